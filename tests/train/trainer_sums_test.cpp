// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads values
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "sanitizers.hpp"
#include "trained_clicks.hpp"

namespace trainer_sums_test {

using namespace train_tests;

template <class Interaction>
learned learn_alone(click_data const& data, tessera::trainer_options const& options, way how) {
  serial_host host;
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(host.exec(), spec.table, list);
  return learn<Interaction>(
      host.exec(), tessera::local_tables(std::move(list), features()), options, data,
      [](std::int64_t samples) { return std::pair<std::int64_t, std::int64_t>(0, samples); }, how);
}

// Table 0 lies on all ranks, by rows.
template <class Interaction>
std::vector<learned> learn_on(int ranks, click_data const& data, tessera::trainer_options const& options, way how) {
  auto const tables = tessera::options_of(specs());
  auto plan = tessera::plan_round_robin(tables, ranks);
  std::erase_if(plan.shards, [](auto const& shard) { return shard.table == 0; });
  for (auto const& shard : tessera::row_wise(tables, 0, ranks)) plan.shards.push_back(shard);
  std::vector<learned> of_rank(static_cast<std::size_t>(ranks));
  std::vector<serial_host> hosts(of_rank.size());
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto with = options;
    with.comm = comm;
    // Whole chunks a rank: some ranks have none, since 2 chunks are an empty part's neighbour.
    auto const bound = [&](std::int64_t samples, int rank) {
      return rank >= ranks ? samples : std::min(samples, (samples / chunk * rank / ranks) * chunk);
    };
    of_rank[r] = learn<Interaction>(
        hosts[r].exec(), tessera::sharded_tables(hosts[r].exec(), comm, specs(), features(), plan), with, data,
        [&](std::int64_t samples) { return std::pair(bound(samples, comm.rank()), bound(samples, comm.rank() + 1)); }, how);
  });
  return of_rank;
}

TEST_CASE_TEMPLATE("trainer: with chunks any number of ranks has the bits of one process", Interaction, tessera::dot_products,
                   tessera::cross_layers, tessera::factorization) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_data const data(random, 6);
  for (auto const how : {way::steps, way::micro_batches}) {
    auto const alone = learn_alone<Interaction>(data, {.chunk_samples = chunk}, how);
    auto const whole = learn_alone<Interaction>(data, {}, how);
    for (std::size_t i = 0; i < alone.losses.size(); ++i) CHECK(alone.losses[i] == doctest::Approx(whole.losses[i]).epsilon(1e-3));
    CHECK(alone.losses != whole.losses);  // other sums, which a test can tell
    for (int const ranks : {1, 2, 3, 4, 8}) {
      if (tessera_tests::under_sanitizer && ranks != 3) continue;
      CAPTURE(ranks);
      for (auto const& one : learn_on<Interaction>(ranks, data, {.chunk_samples = chunk}, how)) CHECK(same(one, alone));
    }
    auto const hosts = tessera::topology::of_hosts(2, 2);
    for (auto const& one : learn_on<Interaction>(4, data, {.levels = hosts, .chunk_samples = chunk}, how)) CHECK(same(one, alone));
  }
}

TEST_CASE("trainer: sums that begin during the backward have the same bits, as have levels of one rank each") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_data const data(random, 5);
  for (int const ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    auto const after = learn_on<tessera::cross_layers>(ranks, data, {}, way::steps);
    for (std::int64_t const bytes : {1, 600, 1 << 20}) {
      CAPTURE(bytes);
      auto const during = learn_on<tessera::cross_layers>(ranks, data, {.bucket_bytes = bytes}, way::steps);
      for (std::size_t r = 0; r < after.size(); ++r) CHECK(same(during[r], after[r]));
    }
    auto const levels = learn_on<tessera::cross_layers>(ranks, data, {.levels = tessera::topology::of_hosts(ranks, 1)}, way::steps);
    for (std::size_t r = 0; r < after.size(); ++r) CHECK(same(levels[r], after[r]));
  }
  auto const flat = learn_on<tessera::cross_layers>(4, data, {.levels = tessera::topology::of_hosts(2, 2)}, way::steps);
  auto const early =
      learn_on<tessera::cross_layers>(4, data, {.levels = tessera::topology::of_hosts(2, 2), .bucket_bytes = 600}, way::steps);
  for (std::size_t r = 0; r < flat.size(); ++r) CHECK((same(flat[r], flat[0]) && same(early[r], flat[0])));
}

TEST_CASE("trainer: smaller buckets are more sums, from the second step on; a rank that throws leaves all in step") {
  std::mt19937_64 random(11);
  click_data data(random, 2);
  auto const messages_of = [&](std::int64_t bucket_bytes, bool breaks) {
    std::vector<tessera::sent_counts> sent(2);
    std::vector<serial_host> hosts(2);
    std::vector<std::int64_t> messages;
    std::vector<std::string> said(2);
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[r].exec();
      tessera::table_list list;
      for (auto const& spec : specs()) spec.add(exec, spec.table, list);
      tessera::click_model<tessera::local_tables, tessera::eigen_gemm, tessera::cross_layers> model(
          exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8, 4}, .dim = dim, .projects = true},
          tessera::local_tables(std::move(list), features()));
      tessera::trainer run(
          exec, model, tessera::adam{},
          {.comm = tessera::any_communicator(tessera::counting_communicator(comm, sent[r])), .bucket_bytes = bucket_bytes});
      click_part const part(exec, data.all[0], comm.rank() * std::int64_t{20}, comm.rank() * std::int64_t{20} + 20);
      for (int step = 0; step < 3; ++step) {
        sent[r].clear();
        run.step(exec, part.view);
        if (r == 0) messages.push_back(tessera::sent_by(sent[r], "sum over ranks").messages);
      }
      if (!breaks) return;
      auto bad = data.all[0];
      if (comm.rank() == 0) bad.ids[0][3] = {table_rows};  // which no row has
      click_part const broken(exec, bad, comm.rank() * std::int64_t{20}, comm.rank() * std::int64_t{20} + 20);
      try {
        run.accumulate(exec, broken.view);
      } catch (tessera::error const& e) {
        said[r] = e.what();
      }
      run.step(exec, part.view);
      run.look_ahead(exec, part.view);
      run.step(exec, part.view);
    });
    if (breaks) {
      CHECK(said[0].find("another rank") == std::string::npos);
      CHECK(!said[0].empty());
      CHECK(said[1].find("another rank failed (rank 0") != std::string::npos);
    }
    return messages;
  };
  auto const none = messages_of(0, false), one = messages_of(1 << 20, true), many = messages_of(1, true);
  CHECK(none[0] == none[2]);
  CHECK(one[0] == none[0]);
  CHECK(many[0] == none[0]);
  CHECK(many[1] > one[1]);
  CHECK(many[2] == many[1]);
}

TEST_CASE("trainer: ids that travel ahead leave the bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_data const data(random, 6);
  auto const alone = learn_alone<tessera::dot_products>(data, {.chunk_samples = chunk}, way::steps);
  CHECK(same(learn_alone<tessera::dot_products>(data, {.chunk_samples = chunk}, way::ahead), alone));
  CHECK(same(learn_alone<tessera::dot_products>(data, {}, way::ahead), learn_alone<tessera::dot_products>(data, {}, way::steps)));
  for (int const ranks : {1, 2, 3, 8}) {
    if (tessera_tests::under_sanitizer && ranks != 3) continue;
    CAPTURE(ranks);
    for (auto const& one : learn_on<tessera::dot_products>(ranks, data, {.chunk_samples = chunk}, way::ahead)) CHECK(same(one, alone));
  }

  serial_host host;
  auto const exec = host.exec();
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(exec, spec.table, list);
  tessera::dlrm<tessera::local_tables, tessera::eigen_gemm> model(exec, {.dense_features = numbers, .dim = dim, .projects = true},
                                                                  tessera::local_tables(std::move(list), features()));
  tessera::trainer run(exec, model, tessera::adam{});
  click_part const first(exec, data.all[0], 0, 20), second(exec, data.all[0], 20, 40);
  run.look_ahead(exec, first.view);
  CHECK_THROWS_WITH_AS(run.step(exec, second.view), doctest::Contains("another batch than the one that was looked ahead (samples 20"),
                       tessera::error);
  run.step(exec, first.view);
  run.step(exec, second.view);
}

TEST_CASE("click_model: a backward tells each part of the gradient once, when it is final, from the top's last layer on") {
  std::mt19937_64 random(5);
  click_data const data(random, 1);
  serial_host host;
  auto const exec = host.exec();
  tessera::table_list list;
  for (auto const& spec : specs()) spec.add(exec, spec.table, list);
  tessera::click_model<tessera::local_tables, tessera::eigen_gemm, tessera::cross_layers> model(
      exec, {.dense_features = numbers, .bottom_hidden = {7}, .top_hidden = {6, 4}, .dim = dim, .projects = true},
      tessera::local_tables(std::move(list), features()));
  click_part const part(exec, data.all[0], 0, data.all[0].samples());
  typename decltype(model)::saved_type saved;
  auto const logits = model.forward(exec, part.view, saved);
  std::vector<float> slopes(static_cast<std::size_t>(logits.size()), 0.1F),
      gradient(static_cast<std::size_t>(model.parameter_count()), -7.0F);
  std::vector<std::pair<std::int64_t, std::vector<float>>> told;  // place, values then
  model.backward(exec, saved, slopes, gradient, [&](tessera::vector_view<float> values) {
    told.emplace_back(values.data() - gradient.data(), std::vector<float>(values.begin(), values.end()));
  });
  REQUIRE(told.size() == 3 + 1 + 2 + 1);  // layers of the top, the cross net, layers of the bottom, a projection
  auto const groups = model.groups();
  CHECK(told[0].second.size() == 4 + 1);
  CHECK(told[0].first + 5 == groups[0].values.size() + groups[1].values.size() + groups[2].values.size());
  std::vector<int> times(gradient.size(), 0);
  for (auto const& [place, values] : told)
    for (std::size_t i = 0; i < values.size(); ++i) {
      ++times[static_cast<std::size_t>(place) + i];
      CHECK(values[i] == gradient[static_cast<std::size_t>(place) + i]);
    }
  CHECK(std::count(times.begin(), times.end(), 1) == static_cast<std::ptrdiff_t>(times.size()));
}

TEST_CASE("trainer: parts that begin within a chunk, and options that differ or are none, are refused on all ranks") {
  std::mt19937_64 random(3);
  click_data const data(random, 2);
  std::vector<serial_host> hosts(2);
  auto const said = [&](auto const& options_of_rank, std::int64_t middle) {
    std::vector<std::string> all(2);
    try {
      tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
        auto const r = static_cast<std::size_t>(comm.rank());
        auto options = options_of_rank(comm.rank());
        options.comm = comm;
        auto const exec = hosts[r].exec();
        try {
          auto const plan = tessera::plan_round_robin(tessera::options_of(specs()), 2);
          learn<tessera::dot_products>(
              exec, tessera::sharded_tables(exec, comm, specs(), features(), plan), options, data,
              [&](std::int64_t samples) {
                return comm.rank() == 0 ? std::pair<std::int64_t, std::int64_t>(0, middle) : std::pair(middle, samples);
              },
              way::steps);
        } catch (tessera::error const& e) {
          all[r] = e.what();
        }
      });
    } catch (tessera::error const&) {
    }
    return all;
  };
  for (auto const& one : said([](int) { return tessera::trainer_options{.chunk_samples = chunk}; }, 17))
    CHECK(one.find("ranks cut a batch within a chunk (rank 1, samples before it 17, chunk_samples 16") != std::string::npos);
  for (auto const& one : said([](int) { return tessera::trainer_options{.chunk_samples = -1}; }, 16))
    CHECK(one.find("chunk_samples (chunk_samples -1") != std::string::npos);
  for (auto const& one : said([](int) { return tessera::trainer_options{.bucket_bytes = -4}; }, 16))
    CHECK(one.find("bucket_bytes (bucket_bytes -4") != std::string::npos);
  auto const other = said([](int rank) { return tessera::trainer_options{.chunk_samples = rank == 0 ? chunk : 2 * chunk}; }, 32);
  CHECK(other[1].find("there chunk_samples 32, on rank 0 chunk_samples 16") != std::string::npos);
  CHECK(other[0].find("another rank failed (rank 1") != std::string::npos);
  // What is wrong on one rank alone stops all of them.
  auto const one = said([](int rank) { return tessera::trainer_options{.clip_norm = rank == 1 ? -1.0F : 0.0F}; }, 32);
  CHECK(one[1].find("clip_norm (clip_norm -1") != std::string::npos);
  CHECK(one[0].find("another rank failed (rank 1, operation trainer: the same options") != std::string::npos);
  auto const levels = said(
      [](int rank) {
        auto options = tessera::trainer_options{};
        if (rank == 1) options.levels = tessera::topology::of_hosts(2, 1);
        return options;
      },
      32);
  CHECK(levels[1].find("there level host") != std::string::npos);
}

}  // namespace trainer_sums_test
