// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/trainer.hpp>

namespace chunked_poolings_test {

using namespace tessera;
using tessera_tests::serial_host;
using any_pooling = pooling_choice<encoder_pooling, target_pooling>;

constexpr std::int64_t numbers = 3, dim = 8, table_rows = 30, chunk = 8;

std::vector<table_spec> specs() {
  std::vector<table_spec> all;
  for (std::int64_t t = 0; t < 4; ++t)
    all.push_back(
        spec_of<dense_table<>>({.id = table_id{t}, .dim = t == 3 ? 5 : dim, .rows = table_rows, .init_bound = 0.3F, .seed = random_seed{2}},
                               adagrad{.learning_rate = 0.1F, .initial_state = 0.01F}));
  return all;
}
std::vector<table_feature> features() {
  return {{.name = "seen", .table = 0, .sequence = true},
          {.name = "bought", .table = 1, .sequence = true},
          {.name = "clicked", .table = 2, .sequence = true},
          {.name = "item", .table = 2},
          {.name = "user", .table = 3, .pooling = pooling::mean}};
}

// Batches as vectors. Samples often have the lists of an earlier one, of its first two keys or of the third.
struct session_data {
  struct batch {
    std::vector<std::vector<std::vector<std::int64_t>>> ids;  // [key][sample]
    std::vector<float> dense, labels;
    std::int64_t samples() const { return static_cast<std::int64_t>(labels.size()); }
  };
  std::vector<batch> all;

  session_data(std::mt19937_64& random, int count) {
    for (int b = 0; b < count; ++b) {
      auto& one = all.emplace_back();
      auto const samples = b + 1 == count ? std::size_t{5} : 30 + random() % 40;
      one.dense = tessera_tests::random_floats(random, samples * numbers);
      one.ids.resize(5);
      for (std::size_t s = 0; s < samples; ++s) {
        std::size_t const earlier[] = {s == 0 ? 0 : random() % s, s == 0 ? 0 : random() % s};
        bool const repeats[] = {s > 0 && random() % 2 == 0, s > 0 && random() % 2 == 0};
        for (std::size_t key = 0; key < 5; ++key) {
          std::size_t const group = key < 2 ? 0 : 1;
          one.ids[key].push_back(key < 3 && repeats[group]
                                     ? one.ids[key][earlier[group]]
                                     : tessera_tests::random_integers<std::int64_t>(random, random() % 5, 0, table_rows - 1));
        }
        one.labels.push_back(random() % 3 == 0 ? 1.0F : 0.0F);
      }
    }
  }
};

struct session_part {
  keyed_jagged<> ids;
  inverse_keyed_jagged<> distinct;
  batch_view view;

  session_part(host_exec const& exec, session_data::batch const& all, std::int64_t first, std::int64_t last, bool grouped) {
    std::vector<feature_rows<>> rows;
    auto const of = features();
    for (std::size_t key = 0; key < of.size(); ++key)
      rows.emplace_back(of[key].name, std::vector<std::vector<std::int64_t>>(all.ids[key].begin() + first, all.ids[key].begin() + last));
    ids = keyed_jagged<>::from_rows(exec, rows);
    view.dense = {all.dense.data() + first * numbers, last - first, numbers};
    view.labels = {all.labels.data() + first, last - first};
    view.sparse = std::as_const(ids).view();
    if (!grouped) return;
    distinct = deduplicate(exec, view.sparse, std::vector<std::int64_t>{2, 1});
    view.sparse = std::as_const(distinct).view().distinct;
    view.groups = std::as_const(distinct).view().groups;
  }
};

struct learned {
  std::vector<double> losses;
  std::vector<float> values;  // dense parameters, then logits of the first batch after training
};

bool same(learned const& a, learned const& b) {
  return a.losses == b.losses && a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

template <class Source>
using session_model = click_model<Source, eigen_gemm, dot_products, any_pooling>;

template <class Source>
session_model<Source> make_model(host_exec const& exec, Source source) {
  target_attention_options attention;
  attention.hidden = {6};
  attention.softmax = true;
  return {exec,
          {.dense_features = numbers,
           .bottom_hidden = {6},
           .top_hidden = {7},
           .seed = random_seed{3},
           .pooled = {"item", "user"},
           .dim = dim,
           .projects = true},
          std::move(source),
          {},
          {{{"seen", "bought"}, transformer_encoder_options{.layers = 1, .heads = 2, .hidden = 12}, "", 3},
           {{"clicked"}, attention, "item", 2}}};
}

// Trains on samples [first, last) of each batch as `part` says.
template <class Source, class Part>
learned learn(host_exec const& exec, Source source, trainer_options const& options, session_data const& data, bool grouped,
              Part const& part) {
  auto model = make_model(exec, std::move(source));
  trainer run(exec, model, adam{.learning_rate = 0.02F, .epsilon = 1e-3F}, options);
  learned result;
  for (int pass = 0; pass < 2; ++pass)
    for (auto const& batch : data.all) {
      auto const range = part(batch.samples());
      session_part const own(exec, batch, range.first, range.second, grouped);
      result.losses.push_back(run.step(exec, own.view));
    }
  for (auto const& group : model.groups()) result.values.insert(result.values.end(), group.values.begin(), group.values.end());
  session_part const whole(exec, data.all[0], 0, data.all[0].samples(), grouped);
  typename decltype(model)::saved_type saved;
  saved.chunk_samples = options.chunk_samples;
  auto const logits = model.predict(exec, whole.view, saved);
  result.values.insert(result.values.end(), logits.begin(), logits.end());
  return result;
}

learned learn_alone(session_data const& data, trainer_options const& options, bool grouped, shared_gradients sums) {
  serial_host host;
  table_list list;
  for (auto const& spec : specs()) spec.add(host.exec(), spec.table, list);
  return learn(host.exec(), local_tables(std::move(list), features(), {.sums = sums}), options, data, grouped,
               [](std::int64_t samples) { return std::pair<std::int64_t, std::int64_t>(0, samples); });
}

std::vector<learned> learn_on(int ranks, session_data const& data, trainer_options const& options, bool grouped, shared_gradients sums) {
  std::vector<learned> of_rank(static_cast<std::size_t>(ranks));
  std::vector<serial_host> hosts(of_rank.size());
  run_thread_ranks(ranks, [&](thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto with = options;
    with.comm = comm;
    // Whole chunks a rank: some ranks have none.
    auto const bound = [&](std::int64_t samples, int rank) {
      return rank >= ranks ? samples : std::min(samples, (samples / chunk * rank / ranks) * chunk);
    };
    auto const plan = plan_round_robin(options_of(specs()), ranks);
    of_rank[r] =
        learn(hosts[r].exec(), sharded_tables(hosts[r].exec(), comm, specs(), features(), plan, {.sums = sums}), with, data, grouped,
              [&](std::int64_t samples) { return std::pair(bound(samples, comm.rank()), bound(samples, comm.rank() + 1)); });
  });
  return of_rank;
}

TEST_CASE("trainer: with chunks, models that pool sequences have the bits of one process, whose rows may be there once") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  session_data const data(random, 4);
  trainer_options const by_chunks{.chunk_samples = chunk};
  auto const alone = learn_alone(data, by_chunks, false, shared_gradients::merged);
  auto const whole = learn_alone(data, {}, false, shared_gradients::merged);
  for (std::size_t i = 0; i < alone.losses.size(); ++i) CHECK(alone.losses[i] == doctest::Approx(whole.losses[i]).epsilon(1e-3));
  CHECK(alone.losses != whole.losses);  // other sums, which a test can tell
  CHECK(same(learn_alone(data, by_chunks, true, shared_gradients::expanded), alone));
  for (int const ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    for (auto const& one : learn_on(ranks, data, by_chunks, false, shared_gradients::merged)) CHECK(same(one, alone));
    for (auto const& one : learn_on(ranks, data, by_chunks, true, shared_gradients::expanded)) CHECK(same(one, alone));
  }
}

TEST_CASE("click_model: gradients by chunks of sequence groups add up to those of the whole batch") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  session_data const data(random, 2);
  serial_host host;
  auto const exec = host.exec();
  table_list list;
  for (auto const& spec : specs()) spec.add(exec, spec.table, list);
  auto model = make_model(exec, local_tables(std::move(list), features()));
  CHECK(model.chunked_parameters() == model.parameter_count());
  for (bool const grouped : {false, true})
    for (auto const samples : {std::int64_t{0}, data.all[0].samples()}) {
      CAPTURE(grouped);
      CAPTURE(samples);
      session_part const part(exec, data.all[0], 0, samples, grouped);
      typename decltype(model)::saved_type saved, in_chunks;
      in_chunks.chunk_samples = chunk;
      auto const size = static_cast<std::size_t>(model.parameter_count());
      std::vector<float> slopes(static_cast<std::size_t>(samples)), more(slopes), gradient(size), summed(size);
      for (std::size_t i = 0; i < slopes.size(); ++i) more[i] = slopes[i] = static_cast<float>(i % 5) - 2;
      auto const logits = model.forward(exec, part.view, saved), of_chunks = model.forward(exec, part.view, in_chunks);
      for (std::int64_t i = 0; i < samples; ++i) CHECK(of_chunks[i] == doctest::Approx(logits[i]).epsilon(1e-4));
      model.backward(exec, saved, slopes, gradient);
      sum_tree tree;
      tree.start(0);
      model.backward(exec, in_chunks, more, summed, tree);
      tree.join(exec, summed);
      float largest = 0;
      for (auto const value : gradient) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < size; ++i) CHECK(std::abs(summed[i] - gradient[i]) <= 1e-4F * largest);
      CHECK((samples == 0 || largest > 0));
    }
}

}  // namespace chunked_poolings_test
