// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/shard/embedding_times.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/stopwatch.hpp>

#include "sharded_problem.hpp"

namespace embedding_times_test {

namespace {

using namespace shard_tests;
using tessera::embedding_times;

/// Another communicator, whose exchanges of one operation end so much later.
class late_communicator {
 public:
  using execution_type = host_exec;
  struct pending_type {
    tessera::any_pending held;
    bool is_late = false;
  };

  late_communicator(tessera::any_communicator comm, std::string operation, int wait_ms)
      : comm_(std::move(comm)), operation_(std::move(operation)), wait_ms_(wait_ms) {}

  int rank() const noexcept { return comm_.rank(); }
  int size() const noexcept { return comm_.size(); }
  void begin(host_exec const& exec, tessera::exchange_messages const& messages, pending_type& pending,
             std::exception_ptr failure = nullptr) {
    pending.is_late = operation_ == messages.operation;
    comm_.begin(exec, messages, pending.held, std::move(failure));
  }
  tessera::received_messages finish(host_exec const& exec, pending_type& pending) {
    if (pending.is_late) std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms_));
    return comm_.finish(exec, pending.held);
  }
  void fail(std::string_view reason) { comm_.fail(reason); }
  late_communicator split(host_exec const& exec, std::int64_t color, std::int64_t key) {
    return {comm_.split(exec, color, key), operation_, wait_ms_};
  }

 private:
  tessera::any_communicator comm_;
  std::string operation_;
  int wait_ms_;
};
static_assert(tessera::communicator<late_communicator>);

/// Vectors of a prediction after two steps, and the rank's times; the second of those is of no step.
struct outcome {
  std::vector<float> vectors;
  embedding_times times, after;
  double seconds = 0;  // of all calls of the steps, and what is around them
};

outcome run(tessera::any_communicator comm, bool measures, bool sums, std::uint64_t seed) {
  tessera::serial_team team;
  tessera::system_memory memory;
  host_exec const exec(team, memory);
  std::vector<tessera::table_spec> specs;
  for (std::int64_t t = 0; t < 4; ++t)
    specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{t}, .dim = 8, .rows = 50, .init_bound = 0.1F},
                                                             tessera::sgd{.learning_rate = 0.1F}));
  std::vector<tessera::table_feature> features;
  for (std::int64_t t = 0; t < 4; ++t) features.push_back({.name = "f" + std::to_string(t), .table = t});
  // One whole, one by columns, one by rows, one everywhere, as far as there are ranks.
  auto const ranks = comm.size();
  auto const options = tessera::options_of(specs);
  std::vector<int> on(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) on[static_cast<std::size_t>(r)] = r;
  sharding_plan plan;
  for (auto const& shards : {tessera::table_wise(options, 0, ranks - 1), tessera::column_wise(options, 1, on),
                             tessera::row_wise(options, 2, on), tessera::data_parallel(options, 3)})
    plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
  sharded_tables tables(exec, comm, specs, features, plan);
  outcome result;
  if (measures) tables.add_times_to(&result.times);

  std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
  constexpr std::int64_t samples = 5;
  auto const batch_of = [&](std::vector<std::int64_t>& ids, std::vector<std::int64_t>& offsets) {
    offsets = {0};
    for (std::int64_t row = 0; row < 4 * samples; ++row) {
      for (auto n = random() % 4; n > 0; --n) ids.push_back(static_cast<std::int64_t>(random() % 50));
      offsets.push_back(static_cast<std::int64_t>(ids.size()));
    }
  };
  std::vector<float> memory_of_out(4 * samples * 8), memory_of_gradients(4 * samples * 8, 0.25F);
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradients;
  for (std::int64_t t = 0; t < 4; ++t) {
    out.emplace_back(memory_of_out.data() + t * samples * 8, samples, 8);
    gradients.emplace_back(memory_of_gradients.data() + t * samples * 8, samples, 8);
  }
  std::vector<std::int64_t> const first_row{0, samples, 2 * samples, 3 * samples, 4 * samples};
  tessera::stopwatch watch;
  auto const step = [&](auto const& do_it) {
    std::vector<std::int64_t> ids, offsets;
    batch_of(ids, offsets);
    tessera::batch_view batch;
    batch.dense = {nullptr, samples, 0};
    batch.sparse = tessera::keyed_jagged_view<std::int64_t const>{ids.data(),       nullptr, offsets.data(),
                                                                  first_row.data(), 4,       static_cast<std::int64_t>(ids.size())};
    do_it(batch);
  };
  for (int s = 0; s < 2; ++s)
    step([&](tessera::batch_view const& batch) {
      sharded_tables::saved_type saved;
      tables.begin(exec, batch, saved);
      tables.finish(exec, saved, out);
      tables.begin_backward(exec, saved, gradients);
      if (!sums) return tables.finish_backward(exec, saved);
      tessera::row_gradients sum;
      tables.gradients(exec, saved, sum);
      tables.apply(exec, sum);
    });
  result.seconds = watch.lap();
  result.after = result.times;
  step([&](tessera::batch_view const& batch) { tables.predict(exec, batch, out); });
  CHECK(result.times == result.after);
  tables.add_times_to(nullptr);
  step([&](tessera::batch_view const& batch) {
    sharded_tables::saved_type saved;
    tables.begin(exec, batch, saved);
    tables.finish(exec, saved, out);
  });
  CHECK(result.times == result.after);
  result.vectors = memory_of_out;
  return result;
}

std::vector<outcome> on_ranks(int ranks, bool measures, bool sums, std::uint64_t seed, std::string const& late = "", int wait_ms = 0) {
  std::vector<outcome> all(static_cast<std::size_t>(ranks));
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    all[static_cast<std::size_t>(comm.rank())] = run(late_communicator(comm, late, wait_ms), measures, sums, seed);
  });
  return all;
}

}  // namespace

TEST_CASE("embedding times: measured or not, steps have the same bits, and no stage's time is outside their calls") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (int const ranks : {1, 2, 3})
    for (bool const sums : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(sums);
      auto const without = on_ranks(ranks, false, sums, seed), with = on_ranks(ranks, true, sums, seed);
      for (std::size_t r = 0; r < with.size(); ++r) {
        CHECK(with[r].vectors == without[r].vectors);
        CHECK(without[r].times == embedding_times{});
        auto const& times = with[r].times;
        CHECK(times.compute > 0);
        for (auto const time : {times.ids, times.vectors, times.gradients}) CHECK((time > 0) == (ranks > 1));
        CHECK(times.ids + times.compute + times.vectors + times.gradients <= with[r].seconds);
      }
    }
}

TEST_CASE("embedding times: what an operation takes longer is in its own stage") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr int wait_ms = 20;
  std::vector<std::pair<std::string, double embedding_times::*>> const stages{{"ids to their tables", &embedding_times::ids},
                                                                              {"vectors to their samples", &embedding_times::vectors},
                                                                              {"gradients to their tables", &embedding_times::gradients}};
  for (bool const sums : {false, true})
    for (auto const& [name, stage] : stages) {
      auto const& operation = name;
      CAPTURE(operation);
      for (auto const& of_rank : on_ranks(2, true, sums, seed, operation, wait_ms)) CHECK(of_rank.times.*stage >= 2 * wait_ms / 1000.0);
    }
}

}  // namespace embedding_times_test
