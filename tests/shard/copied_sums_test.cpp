// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/shard/copied_sums.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/counting_communicator.hpp>

#include "sharded_problem.hpp"
#include "temporary_folder.hpp"

namespace copied_sums_test {

namespace {

using namespace shard_tests;
using tessera::counting_communicator;
using tessera::sent_by;

sharding_plan all_everywhere(source_problem const& problem) {
  sharding_plan plan;
  for (std::size_t t = 0; t < problem.tables.size(); ++t)
    plan.shards.push_back(tessera::data_parallel(problem.tables, static_cast<std::int64_t>(t)).front());
  return plan;
}

constexpr auto ids_are_slots = [](std::int64_t, tessera::vector_view<std::int64_t const> ids, tessera::vector_view<std::int64_t> slots) {
  std::copy(ids.begin(), ids.end(), slots.begin());
};

}  // namespace

TEST_CASE("tables on all ranks: lookups send no vectors, predictions no ids, and each row's sum comes from one rank") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 3;
  auto const problem = usual_problem();
  auto const plan = all_everywhere(problem);
  auto const rows = draw_source_rows(random, 30);
  std::vector<tessera::sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[r].exec();
    sharded_tables source(here, any_communicator(counting_communicator(comm, sent[r])), specs_of(problem, hashed_tables(5, false)),
                          problem.features, plan);
    source_batch const batch(here, problem, part_of(rows, comm.rank() * 10, comm.rank() * 10 + 10), false);
    batch.fill_gradients([] { return 1.0F; });
    sent[r].clear();
    source.predict(here, batch.view(), batch.out());
    CHECK(sent_by(sent[r], "vectors to their samples").bytes == 0);
    auto const of_prediction = sent_by(std::exchange(sent[r], {}), "ids to their tables").bytes;
    tessera::sharded_saved own;
    tessera::row_gradients sum;
    forward(here, source, batch, own);
    CHECK(sent_by(sent[r], "vectors to their samples").bytes == 0);
    CHECK(sent_by(sent[r], "ids to their tables").bytes > of_prediction);
    CHECK(of_prediction <= 2 * (16 + 14 * 32));  // to each of two ranks a head, and none of fourteen keys has ids
    source.begin_backward(here, own, batch.gradients());
    source.gradients(here, own, sum);
    CHECK(sent[r].size() == 4);
    CHECK(sent_by(sent[r], "gradients of tables on all ranks").messages == ranks);

    auto const places = source.places();
    REQUIRE(places.parts.size() == 5);
    for (std::int64_t t = 0; t < 5; ++t) {
      auto const& place = places.parts[static_cast<std::size_t>(t)];
      CHECK(place.is_copy == (comm.rank() > 0));
      CHECK(place.rows == tessera::part_place::all_rows);
      // All rows that any rank has named, once, and in all ranks the same.
      std::vector<std::int64_t> named;
      for (std::size_t key = 0; key < problem.features.size(); ++key)
        if (problem.features[key].table == t)
          for (auto const& bag : rows[key]) named.insert(named.end(), bag.begin(), bag.end());
      std::sort(named.begin(), named.end());
      named.erase(std::unique(named.begin(), named.end()), named.end());
      CHECK(std::equal(named.begin(), named.end(), sum.ids(t).begin(), sum.ids(t).end()));
      CHECK(std::equal(named.begin(), named.end(), sum.slots(t).begin(), sum.slots(t).end()));
    }
    std::vector<float> const values(sum.values().begin(), sum.values().end());
    auto first = values;
    tessera::broadcast<float>(here, comm, first, 0);
    CHECK(same_bits(first, values));
  });
}

TEST_CASE("tables on all ranks: sums of other tables are not written down, and rows of both are those of an update by sums") {
  constexpr int ranks = 2;
  constexpr std::int64_t samples = 2000, dim = 32;
  std::vector<std::int64_t> bytes(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[r].exec();
    std::vector<tessera::table_options> const options{{.id = tessera::table_id{0}, .dim = 4, .rows = 10, .init_bound = 0.1F},
                                                      {.id = tessera::table_id{1}, .dim = dim, .rows = samples, .init_bound = 0.1F}};
    std::vector<tessera::table_spec> specs;
    for (auto const& one : options) specs.push_back(tessera::spec_of<tessera::dense_table<>>(one, tessera::adagrad{.learning_rate = 0.1F}));
    sharding_plan const plan{{tessera::data_parallel(options, 0).front(), tessera::whole_table(options, 1, 0)}};
    std::vector<tessera::table_feature> const features{{.name = "small", .table = 0}, {.name = "large", .table = 1}};
    sharded_tables at_once(here, any_communicator(comm), specs, features, plan),
        by_sums(here, any_communicator(comm), specs, features, plan);
    std::vector<std::vector<std::int64_t>> small, large;
    for (std::int64_t s = 0; s < samples; ++s) {
      small.push_back({s % 7});
      large.push_back({s});
    }
    std::vector<tessera::feature_rows<>> lists;
    lists.emplace_back("small", std::move(small));
    lists.emplace_back("large", std::move(large));
    auto const ids = tessera::keyed_jagged<>::from_rows(here, lists);
    tessera::batch_view batch;
    batch.dense = {nullptr, samples, 0};
    batch.sparse = ids.view();
    std::vector<float> vectors(samples * (4 + dim)), slopes(vectors.size());
    for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = 0.001F * static_cast<float>(i % 1013);
    std::vector<tessera::matrix_view<float>> const out{{vectors.data(), samples, 4}, {vectors.data() + 4 * samples, samples, dim}};
    std::vector<tessera::matrix_view<float const>> const gradients{{slopes.data(), samples, 4},
                                                                   {slopes.data() + 4 * samples, samples, dim}};
    auto const learn = [&](sharded_tables& tables, bool sums) {
      tessera::sharded_saved saved;
      tables.begin(here, batch, saved);
      tables.finish(here, saved, out);
      tables.begin_backward(here, saved, gradients);
      if (!sums) {
        tables.finish_backward(here, saved);
        return saved.bytes();
      }
      tessera::row_gradients sum;
      tables.gradients(here, saved, sum);
      tables.apply(here, sum);
      return saved.bytes();
    };
    auto const of_sums = learn(by_sums, true);  // with the gathered sums of both tables
    bytes[r] = static_cast<std::int64_t>(of_sums) - static_cast<std::int64_t>(learn(at_once, false));
    at_once.predict(here, batch, out);
    auto const learned = vectors;
    by_sums.predict(here, batch, out);
    CHECK(same_bits(learned, vectors));
  });
  CHECK(bytes[0] >= samples * dim * 4);  // rank 0 has the large table
  CHECK(bytes[1] < samples * dim * 4);
}

TEST_CASE("tables on all ranks: with codecs, they learn what tables cut by rows do, bit for bit, and copies stay the same") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using tessera::codec;
  for (int const ranks : {2, 3, 8})
    for (auto const with : {codec::fp16, codec::int8, codec::fp8_e4m3}) {
      CAPTURE(ranks);
      auto const problem = usual_problem();
      hashed_tables const hashed(problem.tables.size(), false);
      sharding_plan by_rows;
      for (std::int64_t t = 0; t < 5; ++t)
        for (auto const& shard : tessera::row_wise(problem.tables, t, ranks)) by_rows.shards.push_back(shard);
      auto const rows = draw_source_rows(random, 40);
      std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
        auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
        auto const first = comm.rank() * 40 / ranks, last = (comm.rank() + 1) * 40 / ranks;
        std::vector<std::vector<float>> learned;
        for (auto const& plan : {by_rows, all_everywhere(problem)}) {
          sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed), problem.features, plan,
                                {.codecs = {.forward = with, .backward = with}});
          tessera::sharded_saved own;
          for (int step = 0; step < 3; ++step) {
            source_batch const batch(here, problem, part_of(rows, first, last), false);
            std::mt19937_64 of_rank(static_cast<std::uint64_t>(100 * step + comm.rank()));
            std::normal_distribution<float> draw;
            batch.fill_gradients([&] { return draw(of_rank); });
            forward(here, source, batch, own);
            backward(here, source, batch, own);
          }
          learned.push_back(all_rows(here, problem, source));
        }
        CHECK(same_bits(learned[0], learned[1]));
      });
    }
}

TEST_CASE("copied_sums: where one rank fails, all throw and nothing has changed") {
  constexpr int ranks = 3;
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    tessera::row_gradients sum;
    auto const make = [&] {
      sum.resize(
          here, 2, [&](std::int64_t t) { return t == 0             ? 2
                                                : comm.rank() == 1 ? 0
                                                                   : 1; }, [](std::int64_t t) { return t == 0 ? 2 : 3; });
      for (std::int64_t t = 0; t < 2; ++t)
        for (std::int64_t row = 0; row < sum.rows(t); ++row) sum.set_row(t, row, 10 * comm.rank() + row, 10 * comm.rank() + row);
      for (auto& value : sum.values()) value = static_cast<float>(comm.rank());
    };
    make();
    tessera::detail::copied_sums copied;
    auto const failure = comm.rank() == 1 ? std::make_exception_ptr(std::runtime_error("no")) : nullptr;
    CHECK_THROWS(copied.gather(here, any_communicator(comm), {false, true}, sum, failure, ids_are_slots));
    CHECK(sum.rows(0) == 2);
    CHECK(sum.rows(1) == (comm.rank() == 1 ? 0 : 1));
    copied.gather(here, any_communicator(comm), {false, true}, sum, nullptr, ids_are_slots);
    CHECK(sum.rows(0) == 2);
    CHECK(sum.slots(0)[1] == 10 * comm.rank() + 1);
    CHECK(sum.values(0)(1, 1) == static_cast<float>(comm.rank()));
    REQUIRE(sum.rows(1) == 2);
    CHECK(std::vector<std::int64_t>(sum.ids(1).begin(), sum.ids(1).end()) == std::vector<std::int64_t>{0, 20});
    CHECK(sum.values(1)(0, 2) == 0.0F);
    CHECK(sum.values(1)(1, 2) == 2.0F);
    // A rank without rows of any table.
    make();
    copied.gather(here, any_communicator(comm), {true, true}, sum, nullptr, ids_are_slots);
    CHECK(std::vector<std::int64_t>(sum.slots(0).begin(), sum.slots(0).end()) == std::vector<std::int64_t>{0, 1, 10, 11, 20, 21});
    CHECK(copied.bytes() > 0);
  });
}

TEST_CASE("copied_sums: rows come in the order of the slots that their ids have here; an id without a row is named") {
  constexpr int ranks = 2;
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    tessera::row_gradients sum;
    auto const make = [&] {
      sum.resize(
          here, 1, [](std::int64_t) { return 2; }, [](std::int64_t) { return 2; });
      for (std::int64_t row = 0; row < 2; ++row) {
        sum.set_row(0, row, row, 100 + 10 * comm.rank() + row);
        for (std::int64_t c = 0; c < 2; ++c) sum.values(0)(row, c) = static_cast<float>(100 + 10 * comm.rank() + row);
      }
    };
    auto const backwards = [](std::int64_t, tessera::vector_view<std::int64_t const> ids, tessera::vector_view<std::int64_t> slots) {
      for (std::int64_t i = 0; i < ids.size(); ++i) slots[i] = 111 - ids[i];
    };
    make();
    tessera::detail::copied_sums copied;
    copied.gather(here, any_communicator(comm), {true}, sum, nullptr, backwards);
    CHECK(std::vector<std::int64_t>(sum.ids(0).begin(), sum.ids(0).end()) == std::vector<std::int64_t>{111, 110, 101, 100});
    CHECK(std::vector<std::int64_t>(sum.slots(0).begin(), sum.slots(0).end()) == std::vector<std::int64_t>{0, 1, 10, 11});
    for (std::int64_t row = 0; row < 4; ++row) CHECK(sum.values(0)(row, 1) == static_cast<float>(sum.ids(0)[row]));
    make();
    auto const absent = [](std::int64_t, tessera::vector_view<std::int64_t const> ids, tessera::vector_view<std::int64_t> slots) {
      for (std::int64_t i = 0; i < ids.size(); ++i) slots[i] = ids[i] == 110 ? -1 : i;
    };
    CHECK_THROWS_WITH_AS(copied.gather(here, any_communicator(comm), {true}, sum, nullptr, absent),
                         doctest::Contains("has no row here (shard 0, id 110"), tessera::error);
  });
}

TEST_CASE("tables on all ranks: hashed ones, beside dense ones, give and learn what one process does, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int const ranks : {1, 2, 3, 4})
    for (bool const weighted : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(weighted);
      auto problem = usual_problem();
      if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
      // New ids come in every step, and tables grow.
      for (auto& table : problem.tables) table.rows = 1 + static_cast<std::int64_t>(random() % 8);
      hashed_tables hashed(problem.tables.size(), true);
      hashed[static_cast<std::size_t>(random() % 5)] = false;
      for (std::size_t t = 0; t < 5; ++t)
        if (!hashed[t]) problem.tables[t].rows = source_ids;
      check_as_one_process(problem, specs_of(problem, hashed), all_everywhere(problem), ranks, weighted, {}, random, draw_source_rows);
    }
}

TEST_CASE("tables on all ranks: copies of hashed ones stay the same after a step that failed on one rank before it had new rows") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 3;
  auto const problem = usual_problem();
  // The first batch fails; the last ones name all ids.
  std::vector<source_rows> batches{draw_source_rows(random, 9), draw_source_rows(random, 9)};
  auto& last = batches.emplace_back(7, std::vector<std::vector<std::int64_t>>(9));
  for (auto& key : last)
    for (std::int64_t id = 0; id < source_ids; ++id) key[static_cast<std::size_t>(random() % 9)].push_back(id);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed_tables(5, true)), problem.features,
                          all_everywhere(problem));
    tessera::sharded_saved own;
    for (std::size_t b = 0; b < batches.size(); ++b) {
      source_batch const batch(here, problem, part_of(batches[b], comm.rank() * 3, comm.rank() * 3 + 3), false);
      batch.fill_gradients([&] { return static_cast<float>(b + 1) * 0.1F; });
      source.begin(here, batch.view(), own);
      if (b == 0) {
        auto out = batch.out();
        if (comm.rank() == 1) out.pop_back();
        CHECK_THROWS(source.finish(here, own, out));
        continue;
      }
      source.finish(here, own, batch.out());
      backward(here, source, batch, own);
    }
    auto const rows = all_rows(here, problem, source);
    auto first = rows;
    tessera::broadcast<float>(here, comm, first, 0);
    CHECK(same_bits(first, rows));
  });
}

TEST_CASE("tables on all ranks: where rows of another table left one rank before their gradients came, no rank waits for it") {
  if constexpr (tessera::checked) {  // other builds look for no rows that left
    constexpr int ranks = 3;
    std::vector<tessera_tests::serial_host> hosts(ranks);
    auto const run = [&](bool at_once, tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      auto const problem = usual_problem();
      auto plan = all_everywhere(problem);
      plan.shards[0] = tessera::whole_table(problem.tables, 0, 1);
      hashed_tables hashed(problem.tables.size());
      hashed[0] = true;
      sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed), problem.features, plan);
      tessera::sharded_saved own;
      source_rows const rows(problem.features.size(), std::vector<std::vector<std::int64_t>>(6, {1, 2}));
      source_batch const batch(here, problem, rows, false);
      batch.fill_gradients([] { return 0.1F; });
      source.begin(here, batch.view(), own);
      source.finish(here, own, batch.out());
      if (comm.rank() == 1) {
        std::vector<std::int64_t> const ids{1, 2};
        CHECK(source.here().store<tessera::hash_table<>>(0).erase(here, ids) == 2);
      }
      begin_backward(here, source, batch, own);
      tessera::row_gradients sum;
      auto const end = [&] { at_once ? source.finish_backward(here, own) : source.gradients(here, own, sum); };
      CHECK(tessera_tests::error_of(end).code() == (comm.rank() == 1 ? tessera::errc::out_of_range : tessera::errc::rank_failed));
      CHECK(tessera_tests::error_of(end).code() == tessera::errc::invalid_argument);  // no rank tries again alone
    };
    for (bool const at_once : {true, false})
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) { run(at_once, comm); }, {.timeout_ms = 120'000});
  }
}

TEST_CASE("tables on all ranks: those whose ids may have no row are refused by name") {
  auto const problem = usual_problem();
  std::vector<tessera_tests::serial_host> hosts(2);
  for (bool const limited : {false, true}) {
    auto specs = specs_of(problem, {false, false, true, false, false});
    auto table = specs[2].table;
    if (limited) table.most_rows = 50;
    tessera::sgd const optimizer{};
    specs[2] = limited ? tessera::spec_of<tessera::hash_table<>>(table, optimizer)
                       : tessera::spec_of<tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>>(table, optimizer);
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      CHECK_THROWS_WITH_AS(sharded_tables(here, any_communicator(comm), specs, problem.features, all_everywhere(problem)),
                           doctest::Contains("a table on all ranks whose ids may have no row (table 2"), tessera::error);
    });
  }
}

}  // namespace copied_sums_test
