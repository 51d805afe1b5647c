// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 4
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "sanitizers.hpp"

namespace sharded_training_test {

namespace {

using tessera_tests::serial_host;

constexpr std::int64_t numbers = 3, dim = 8, table_rows = 50, samples = 48;

std::vector<tessera::table_spec> click_specs() {
  std::vector<tessera::table_spec> specs;
  // Steps are smooth near gradients of 0, where sums of another order would else part.
  tessera::adagrad const optimizer{.learning_rate = 0.3F, .initial_state = 1e-4F};
  for (std::int64_t t = 0; t < 4; ++t) {
    tessera::table_options const table{
        .id = tessera::table_id{t}, .dim = dim, .rows = table_rows, .init_bound = 0.3F, .seed = tessera::random_seed{2}};
    specs.push_back(t % 2 == 0 ? tessera::spec_of<tessera::dense_table<>>(table, optimizer)
                               : tessera::spec_of<tessera::hash_table<>>(table, optimizer));
  }
  return specs;
}

std::vector<tessera::table_feature> click_features() {
  return {{.name = "a", .table = 0},
          {.name = "b", .table = 1},
          {.name = "c", .table = 2, .pooling = tessera::pooling::mean},
          {.name = "d", .table = 3},
          {.name = "e", .table = 1}};
}

// Samples whose clicks depend on the first id, as vectors of which each rank takes a part.
struct click_samples {
  std::vector<std::vector<std::vector<std::int64_t>>> ids;  // [key][sample]
  std::vector<float> dense, labels;

  explicit click_samples(std::mt19937_64& random) : ids(click_features().size(), std::vector<std::vector<std::int64_t>>(samples)) {
    dense = tessera_tests::random_floats(random, samples * numbers);
    for (std::size_t key = 0; key < ids.size(); ++key)
      for (auto& bag : ids[key]) bag = tessera_tests::random_integers<std::int64_t>(random, key == 0 ? 1 : random() % 4, 0, table_rows - 1);
    for (std::size_t s = 0; s < static_cast<std::size_t>(samples); ++s)
      labels.push_back(ids[0][s][0] % 3 == 0 || dense[s * numbers] > 0 ? 1.0F : 0.0F);
  }
};

struct click_part {
  tessera::keyed_jagged<> ids;
  tessera::batch_view view;

  click_part(tessera::host_exec const& exec, click_samples const& all, std::int64_t first, std::int64_t last) {
    std::vector<tessera::feature_rows<>> rows;
    auto const names = click_features();
    for (std::size_t key = 0; key < all.ids.size(); ++key)
      rows.emplace_back(names[key].name, std::vector<std::vector<std::int64_t>>(all.ids[key].begin() + first, all.ids[key].begin() + last));
    ids = tessera::keyed_jagged<>::from_rows(exec, rows);
    view.dense = {all.dense.data() + first * numbers, last - first, numbers};
    view.labels = {all.labels.data() + first, last - first};
    view.sparse = std::as_const(ids).view();
  }
};

struct learned {
  std::vector<double> losses;
  std::vector<float> dense, logits;  // parameters; logits of this process's samples after training
};

// Trains on samples [first(step), last(step)) of each batch, and predicts those of the last one.
template <class Source, class Bounds>
learned learn(tessera::host_exec const& exec, Source source, tessera::trainer_options const& options,
              std::vector<click_samples> const& batches, Bounds const& bounds) {
  tessera::dlrm<Source, tessera::eigen_gemm> model(
      exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8}, .seed = tessera::random_seed{3}}, std::move(source));
  tessera::trainer run(exec, model, tessera::adagrad{.learning_rate = 0.15F, .initial_state = 1e-2F}, options);
  learned result;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    auto const [first, last] = bounds(b);
    click_part const part(exec, batches[b], first, last);
    result.losses.push_back(run.step(exec, part.view));
  }
  auto const [first, last] = bounds(batches.size() - 1);
  click_part const part(exec, batches.back(), first, last);
  typename decltype(model)::saved_type saved;
  auto const logits = model.predict(exec, part.view, saved);
  result.logits.assign(logits.begin(), logits.end());
  for (auto const& group : model.groups()) result.dense.insert(result.dense.end(), group.values.begin(), group.values.end());
  return result;
}

}  // namespace

TEST_CASE("a model over sharded tables learns on several ranks what one process learns") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::size_t steps = 50;

  std::vector<click_samples> batches;
  for (std::size_t b = 0; b < steps; ++b) batches.emplace_back(random);
  for (float const clip_norm : {0.0F, 0.5F}) {
    CAPTURE(clip_norm);
    serial_host host;
    tessera::table_list list;
    for (auto const& spec : click_specs()) spec.add(host.exec(), spec.table, list);
    auto const alone = learn(host.exec(), tessera::local_tables(std::move(list), click_features()), {.clip_norm = clip_norm}, batches,
                             [](std::size_t) { return std::pair<std::int64_t, std::int64_t>(0, samples); });
    for (int const ranks : {1, 2, 3, 8}) {
      if (tessera_tests::under_sanitizer && ranks != 3) continue;
      CAPTURE(ranks);
      // Uneven parts, some empty, other ones in every batch.
      auto const bound = [&](std::size_t b, int rank) {
        return rank == ranks ? samples : rank == 0 ? 0 : (samples * rank / ranks + static_cast<std::int64_t>(b * 7) % 5) / 2 * 2;
      };
      auto const tables = tessera::options_of(click_specs());
      auto const plan = tessera::plan_round_robin(tables, ranks);
      auto const train = [&](tessera::sharding_plan const& by) {
        std::vector<learned> of_rank(static_cast<std::size_t>(ranks));
        std::vector<serial_host> hosts(of_rank.size());
        tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
          auto const r = static_cast<std::size_t>(comm.rank());
          auto const exec = hosts[r].exec();
          of_rank[r] =
              learn(exec, tessera::sharded_tables(exec, comm, click_specs(), click_features(), by), {.clip_norm = clip_norm, .comm = comm},
                    batches, [&](std::size_t b) { return std::pair(bound(b, comm.rank()), bound(b, comm.rank() + 1)); });
        });
        return of_rank;
      };
      auto const of_rank = train(plan);
      // The dense tables on all ranks, cut by rows. Where nothing is clipped by a norm, whose sum is another, the bits are the same.
      auto by_rows = plan;
      std::erase_if(by_rows.shards, [](auto const& shard) { return shard.table % 2 == 0; });
      for (std::int64_t const table : {0, 2})
        for (auto const& shard : tessera::row_wise(tables, table, ranks)) by_rows.shards.push_back(shard);
      // Or on all ranks, and the hashed ones cut by rows.
      tessera::sharding_plan everywhere;
      for (std::int64_t table = 0; table < 4; ++table)
        for (auto const& shard : table % 2 == 0 ? tessera::data_parallel(tables, table) : tessera::row_wise(tables, table, ranks))
          everywhere.shards.push_back(shard);
      for (auto const& of_rows : {train(by_rows), train(everywhere)})
        for (std::size_t r = 0; r < of_rank.size(); ++r) {
          for (std::size_t i = 0; i < of_rank[r].logits.size(); ++i)
            CHECK(std::fabs(of_rows[r].logits[i] - of_rank[r].logits[i]) <= (clip_norm > 0 ? 0.1F : 0.0F));
          if (clip_norm == 0.0F) {
            CHECK(of_rows[r].losses == of_rank[r].losses);
            CHECK(of_rows[r].dense == of_rank[r].dense);
          }
        }
      std::vector<float> logits;
      for (auto const& r : of_rank) {
        CHECK(r.losses == of_rank[0].losses);
        CHECK(r.dense.size() == alone.dense.size());
        CHECK(std::memcmp(r.dense.data(), of_rank[0].dense.data(), r.dense.size() * sizeof(float)) == 0);
        logits.insert(logits.end(), r.logits.begin(), r.logits.end());
      }
      for (std::size_t s = 0; s < steps; ++s) CHECK(std::fabs(of_rank[0].losses[s] - alone.losses[s]) < 1e-3);
      REQUIRE(logits.size() == alone.logits.size());
      for (std::size_t i = 0; i < logits.size(); ++i) CHECK(std::fabs(logits[i] - alone.logits[i]) < 0.1F);
    }
    auto const mean = [](auto first, auto last) { return std::accumulate(first, last, 0.0) / static_cast<double>(last - first); };
    CHECK(mean(alone.losses.end() - 10, alone.losses.end()) < 0.9 * mean(alone.losses.begin(), alone.losses.begin() + 3));
  }
}

TEST_CASE("a trainer without the ranks of its tables is refused on each of them") {
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    serial_host host;
    auto const exec = host.exec();
    auto const plan = tessera::plan_round_robin(tessera::options_of(click_specs()), 2);
    using model_type = tessera::dlrm<tessera::sharded_tables, tessera::eigen_gemm>;
    model_type model(exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8}},
                     tessera::sharded_tables(exec, comm, click_specs(), click_features(), plan));
    CHECK_THROWS_WITH_AS(tessera::trainer(exec, model, tessera::sgd{}),
                         "trainer: tables of several ranks, whose dense parameters nobody would sum: the options need a comm (ranks 2)",
                         tessera::error);
    tessera::trainer const run(exec, model, tessera::sgd{}, {.comm = comm});
    CHECK(run.comm().has_value());

    // Ranks that hold tables alone update at once: others can neither clip nor wait.
    auto const alone = comm.split(exec, comm.rank(), 0);
    CHECK_THROWS_WITH_AS(tessera::trainer(exec, model, tessera::sgd{}, {.clip_norm = 1, .comm = alone}),
                         "trainer: clip_norm, where ranks that do not train hold tables (ranks 2, that train 1)", tessera::error);
    tessera::trainer few(exec, model, tessera::sgd{}, {.comm = alone});
    CHECK_THROWS_WITH_AS(few.accumulate(exec, tessera::batch_view()),
                         "trainer: accumulate, where ranks that do not train hold tables (ranks 2, that train 1)", tessera::error);
  });
}

}  // namespace sharded_training_test
