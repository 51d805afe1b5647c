// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/shard/device_sharded_tables.cuh>

#include "../embed/local_tables_device.hpp"
#include "sanitizers.hpp"
#include "sharded_problem.hpp"

/// Sharded tables on devices beside those of the host, of the same ranks. `Ranks` makes them:
///
///     struct ranks {
///       using exec_type = …;
///       using communicator = …;                              // of devices
///       template <class F> static void run(int ranks, F f);  // f(host, hosts, exec, comm) on a thread for each rank
///     };
namespace shard_tests {

template <class Exec>
std::vector<tessera::basic_table_spec<Exec>> device_specs_of(source_problem const& problem, hashed_tables const& hashed) {
  std::vector<tessera::basic_table_spec<Exec>> specs;
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    tessera::sgd const optimizer{.learning_rate = problem.rates[t]};
    specs.push_back(hashed[t] ? tessera::spec_of<tessera::bucket_table<float, Exec>>(problem.tables[t], optimizer)
                              : tessera::spec_of<tessera::dense_table<float, Exec>>(problem.tables[t], optimizer));
  }
  return specs;
}

/// What devices have: no maxima, and room for all ids in hashed tables.
inline source_problem problem_of_devices(hashed_tables const& hashed) {
  auto problem = usual_problem();
  problem.features[2].pooling = tessera::pooling::sum;
  for (std::size_t t = 0; t < hashed.size(); ++t)
    if (hashed[t]) problem.tables[t].rows = 100;
  return problem;
}

/// As partial sums need it: sums and means alone.
inline void pool_all(source_problem& problem) {
  for (std::size_t f = 0; f < problem.features.size(); ++f) {
    problem.features[f].sequence = false;
    problem.features[f].pooling = f % 3 == 1 ? tessera::pooling::mean : tessera::pooling::sum;
  }
}

inline hashed_tables draw_hashed(std::mt19937_64& random, std::size_t tables) {
  hashed_tables hashed(tables);
  for (std::size_t t = 0; t < tables; ++t) hashed[t] = random() % 2 == 0;
  return hashed;
}

/// Trains a source of the host and one of a device side by side: outputs and rows have the same bits, in steps of distinct rows and of all, of
/// gradients that are applied and of those that are handed out. `batches` are of these problems' features.
template <class Here, class Exec, class There>
void train_beside(host_exec const& host, Here& here, Exec const& exec, There& there, source_problem const& batches, bool groups,
                  bool weighted, std::mt19937_64& random) {
  CHECK(there.outputs().size() == here.outputs().size());
  CHECK(there.parts().size() == here.parts().size());
  typename Here::saved_type saved_here;
  typename There::saved_type saved;
  typename Here::gradients_type sum_here;
  typename There::gradients_type sum;
  std::normal_distribution<float> draw;
  for (int step = 0; step < 4; ++step) {
    bool const grouped = step >= 2 && groups, handed = step % 2 == 1;
    auto const samples = random() % 3 == 0 ? 0 : random() % 15;
    auto rows = draw_source_rows(random, samples);
    while (rows.size() < batches.features.size())
      for (auto& more : draw_source_rows(random, samples)) rows.push_back(std::move(more));
    source_batch const batch_here(host, batches, rows, grouped, weighted);
    source_batch const batch(exec, batches, rows, grouped, weighted);
    auto again = random;  // gradients twice
    batch_here.fill_gradients([&] { return draw(random); });
    draw.reset();
    batch.fill_gradients([&] { return draw(again); });
    draw.reset();
    forward(host, here, batch_here, saved_here);
    forward(exec, there, batch, saved);
    CHECK(gives_same(batch_here, batch));
    here.begin_backward(host, saved_here, batch_here.gradients());
    there.begin_backward(exec, saved, batch.gradients());
    if (handed) {
      here.gradients(host, saved_here, sum_here);
      there.gradients(exec, saved, sum);
      here.apply(host, sum_here);
      there.apply(exec, sum);
    } else {
      here.finish_backward(host, saved_here);
      there.finish_backward(exec, saved);
    }
    here.predict(host, batch_here.view(), batch_here.out());
    there.predict(exec, batch.view(), batch.out());
    CHECK(gives_same(batch_here, batch));
  }
  CHECK(same_parts(here.parts(), there.parts()));
  exec.synchronize();
}

/// Trains sharded tables of both. `batches` are of this problem; sources are made of its first features, where there are several.
template <class Ranks>
void check_beside_host(source_problem const& problem, source_problem const& batches, hashed_tables const& hashed, sharding_plan const& plan,
                       int ranks, bool weighted, tessera::sharded_tables_options const& options, std::uint64_t seed) {
  using exec_type = typename Ranks::exec_type;
  using communicator = typename Ranks::communicator;
  Ranks::run(ranks, [&](host_exec const& host, any_communicator hosts, exec_type const& exec, communicator& comm) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
    sharded_tables here(host, hosts, specs_of(problem, hashed), problem.features, plan, options);
    tessera::device_sharded_tables<communicator> there(host, hosts, exec, comm, device_specs_of<exec_type>(problem, hashed),
                                                       problem.features, plan, options);
    train_beside(host, here, exec, there, batches, options.sources == 1, weighted, random);
  });
}

template <class Ranks>
void sharded_on_devices(std::vector<int> const& sizes) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : sizes)
    for (auto const cut : {cuts::none, cuts::columns})
      for (bool const weighted : {false, true}) {
        if (tessera_tests::under_asan && weighted != (cut == cuts::columns)) continue;
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(cut));
        CAPTURE(weighted);
        auto const hashed = draw_hashed(random, 5);
        auto const problem = problem_of_devices(hashed);
        check_beside_host<Ranks>(problem, problem, hashed, plan_of(problem, hashed, ranks, cut, random), ranks, weighted, {}, random());
      }
}

template <class Ranks>
void sharded_on_devices_with_codecs(int most_ranks) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using tessera::codec;
  hashed_tables const hashed(5, false);
  auto const problem = problem_of_devices(hashed);
  for (int ranks = 1; ranks <= most_ranks; ++ranks)
    for (auto const codecs : {tessera::exchange_codecs{codec::fp16, codec::bf16}, tessera::exchange_codecs{codec::int8, codec::fp32},
                              tessera::exchange_codecs{codec::fp32, codec::fp8_e5m2}}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(codecs.forward));
      auto const plan = plan_of(problem, hashed, ranks, ranks == 2 ? cuts::columns : cuts::none, random);
      check_beside_host<Ranks>(problem, problem, hashed, plan, ranks, ranks == 2, {.codecs = codecs}, random());
    }
}

/// Tables that are cut by rows, those of hashed tables evenly, or by rows and columns; some are whole. They return partial sums.
template <class Ranks>
void sharded_on_devices_by_rows(std::vector<int> const& sizes, tessera::exchange_codecs const& codecs = {}) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : sizes)
    for (auto const cut : {cuts::rows, cuts::any})
      for (bool const weighted : {false, true}) {
        if (tessera_tests::under_asan && weighted != (cut == cuts::any)) continue;
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(cut));
        CAPTURE(weighted);
        auto const hashed = draw_hashed(random, 5);
        auto problem = problem_of_devices(hashed);
        pool_all(problem);
        for (std::size_t t = 0; t < hashed.size(); ++t)
          if (hashed[t]) problem.tables[t].rows = 100 * ranks;
        auto plan = plan_of(problem, hashed, ranks, cut, random);
        for (auto& shard : plan.shards)
          if (shard.rank == tessera::table_shard::all_ranks) shard.rank = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
        std::erase_if(plan.shards, [&](auto const& shard) { return hashed[static_cast<std::size_t>(shard.table)]; });
        for (std::int64_t t = 0; t < 5; ++t) {
          plan.partial.push_back(t);
          if (!hashed[static_cast<std::size_t>(t)]) continue;
          for (auto const& shard : tessera::row_wise(problem.tables, t, ranks)) plan.shards.push_back(shard);
        }
        check_beside_host<Ranks>(problem, problem, hashed, plan, ranks, weighted, {.codecs = codecs}, random());
      }
}

template <class Ranks>
void sharded_on_devices_of_sources(int most_ranks) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int ranks = 1; ranks <= most_ranks; ++ranks) {
    CAPTURE(ranks);
    auto const hashed = draw_hashed(random, 5);
    auto const problem = problem_of_devices(hashed);
    auto batches = problem;
    for (auto feature : problem.features) {
      feature.name += " of another";
      batches.features.push_back(feature);
    }
    check_beside_host<Ranks>(problem, batches, hashed, plan_of(problem, hashed, ranks, cuts::columns, random), ranks, ranks == 2,
                             {.sources = 2}, random());
  }
}

/// What one rank's data cannot have is thrown on all, and changes nothing.
template <class Ranks>
void sharded_on_devices_refuses() {
  using exec_type = typename Ranks::exec_type;
  using communicator = typename Ranks::communicator;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  hashed_tables const hashed{false, false, true, false, false};
  auto const problem = problem_of_devices(hashed);
  constexpr int ranks = 3;
  auto const plan = plan_of(problem, hashed, ranks, cuts::columns, random);
  auto const rows = draw_source_rows(random, 8);
  Ranks::run(ranks, [&](host_exec const& host, any_communicator hosts, exec_type const& exec, communicator& comm) {
    tessera::device_sharded_tables<communicator> source(host, hosts, exec, comm, device_specs_of<exec_type>(problem, hashed),
                                                        problem.features, plan);
    auto const before = all_rows(exec, problem, source);
    tessera::device_sharded_saved<communicator> own;
    source_batch const good(exec, problem, rows, false), grouped(exec, problem, rows, true),
        short_one(exec, problem, part_of(rows, 0, 7), false);
    good.fill_gradients([] { return 1.0F; });
    auto wrong = rows, negative = rows;
    wrong[4][5].push_back(source_ids);
    negative[2][3] = {-1};
    source_batch const bad(exec, problem, wrong, false), hashed_bad(exec, problem, negative, false);
    auto const refused = [&](tessera::errc code, std::array<char const*, 3> const& named, auto const& on_one, auto const& on_others) {
      for (int who = 0; who < ranks; ++who) {
        auto const e = tessera_tests::error_of([&] { comm.rank() == who ? on_one() : on_others(); });
        CHECK(e.code() == (comm.rank() == who ? code : tessera::errc::rank_failed));
        if (comm.rank() != who) CHECK(e.value("rank") == std::to_string(who));
        if (comm.rank() == who && named[0] != nullptr) {
          CHECK(e.value("feature") == named[0]);
          CHECK(e.value("row") == named[1]);
          CHECK(e.value("id") == named[2]);
          CHECK(e.value("rank") == std::to_string(who));
        }
        CHECK(same_bits(all_rows(exec, problem, source), before));
      }
    };
    constexpr std::array<char const*, 3> nothing{};
    auto const of_id = std::to_string(source_ids);
    auto const go_on = [&] { forward(exec, source, good, own); };
    refused(
        tessera::errc::out_of_range, {"4", "5", of_id.c_str()}, [&] { forward(exec, source, bad, own); }, go_on);
    refused(
        tessera::errc::out_of_range, {"2", "3", "-1"}, [&] { forward(exec, source, hashed_bad, own); }, go_on);
    refused(
        tessera::errc::shape_mismatch, nothing,
        [&] {
          source.begin(exec, good.view(), own);
          source.finish(exec, own, short_one.out());
        },
        go_on);
    refused(
        tessera::errc::invalid_argument, nothing,
        [&] {
          auto view = good.view();
          view.sparse.room -= 1;
          source.begin(exec, view, own);
          source.finish(exec, own, good.out());
        },
        go_on);
    refused(
        tessera::errc::out_of_range, nothing,
        [&] {
          auto view = grouped.view();
          std::vector<tessera::row_group> groups(view.groups.begin(), view.groups.end());
          auto const inverse = tessera::to_device(exec, std::vector<std::int64_t>{0, 0, 0, -1, 0, 0, 0, 0});
          groups[1].inverse = inverse.data();
          view.groups = groups;
          source.begin(exec, view, own);
          source.finish(exec, own, grouped.out());
        },
        go_on);
    refused(
        tessera::errc::shape_mismatch, nothing,
        [&] {
          forward(exec, source, good, own);
          source.begin_backward(exec, own, short_one.gradients());
          source.finish_backward(exec, own);
        },
        [&] {
          forward(exec, source, good, own);
          backward(exec, source, good, own);
        });
    auto const own_reason = std::make_exception_ptr(tessera::error(tessera::errc::io_error, "no more samples"));
    refused(
        tessera::errc::io_error, nothing,
        [&] {
          source.begin(exec, own_reason, own);
          source.finish(exec, own, good.out());
        },
        go_on);
    refused(
        tessera::errc::io_error, nothing,
        [&] {
          forward(exec, source, good, own);
          source.begin_backward(exec, own_reason, own);
          source.finish_backward(exec, own);
        },
        [&] {
          forward(exec, source, good, own);
          backward(exec, source, good, own);
        });

    // A bad batch behind one in flight.
    tessera::device_sharded_saved<communicator> of_second;
    auto const begin = [&] {
      source.begin(exec, good.view(), own);
      source.begin(exec, comm.rank() == 1 ? bad.view() : good.view(), of_second);
    };
    begin();
    CHECK(tessera_tests::error_of(begin).code() == tessera::errc::invalid_argument);  // they are under way
    source.finish(exec, own, good.out());
    auto const of_bad = tessera_tests::error_of([&] { source.finish(exec, of_second, good.out()); });
    CHECK(of_bad.code() == (comm.rank() == 1 ? tessera::errc::out_of_range : tessera::errc::rank_failed));

    forward(exec, source, good, own);
    CHECK(tessera_tests::error_of([&] { source.finish_backward(exec, own); }).code() == tessera::errc::invalid_argument);
    backward(exec, source, good, own);
    CHECK_FALSE(same_bits(all_rows(exec, problem, source), before));

    // What devices do not exchange yet.
    auto const of = [&](sharding_plan const& other, std::vector<tessera::table_feature> const& features) {
      return tessera_tests::error_of([&] {
        tessera::device_sharded_tables<communicator>(host, hosts, exec, comm, device_specs_of<exec_type>(problem, hashed), features, other);
      });
    };
    auto by_rows = plan, copied = plan;
    auto const is_of_3 = [](tessera::table_shard const& shard) { return shard.table == 3; };
    for (auto* const other : {&by_rows, &copied}) std::erase_if(other->shards, is_of_3);
    for (auto const& shard : tessera::row_wise(problem.tables, 3, {0, 1})) by_rows.shards.push_back(shard);
    for (auto const& shard : tessera::data_parallel(problem.tables, 3)) copied.shards.push_back(shard);
    for (auto const* const other : {&by_rows, &copied}) {
      auto const e = of(*other, problem.features);
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("table") == "3");
    }
    auto largest = problem.features;
    largest[2].pooling = tessera::pooling::max;
    auto const e = of(plan, largest);
    CHECK((e.code() == tessera::errc::invalid_argument || e.code() == tessera::errc::rank_failed));
  });
}

}  // namespace shard_tests
