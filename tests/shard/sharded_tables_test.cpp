// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 6
#include <tessera/shard/sharded_tables.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "../support/sanitizers.hpp"
#include "sharded_problem.hpp"

namespace sharded_tables_test {

namespace {

using namespace shard_tests;

struct one_rank_maker {
  using source_type = sharded_tables;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
    return {exec,
            tessera::self_communicator(),
            specs,
            problem.features,
            tessera::plan_round_robin(tessera::options_of(specs), 1),
            {.sums = problem.sums}};
  }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("sharded_tables of one rank", one_rank_maker)

TEST_CASE("sharded_tables: ranks with parts of every batch give and learn what one process does, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (int const ranks : {1, 2, 3, 4, 8})
    for (auto const cut : {cuts::none, cuts::columns, cuts::rows, cuts::any})
      for (bool const weighted : {false, true}) {
        if (tessera_tests::under_sanitizer && ranks != 3 && (ranks != 8 || weighted)) continue;
        CAPTURE(ranks);
        CAPTURE(static_cast<int>(cut));
        CAPTURE(weighted);
        std::mt19937_64 random(seed + static_cast<std::uint64_t>(ranks));
        auto problem = usual_problem();
        if (weighted) problem.features[2].pooling = tessera::pooling::sum;  // a maximum is of an unweighted batch
        hashed_tables hashed(problem.tables.size());
        for (std::size_t t = 0; t < hashed.size(); ++t) hashed[t] = random() % 2 == 0;
        auto const plan = plan_of(problem, hashed, ranks, cut, random);
        check_as_one_process(problem, specs_of(problem, hashed), plan, ranks, weighted, {}, random, draw_source_rows);
      }
}

TEST_CASE("sharded_tables: ids that no shard has read as zeros and learn nothing, also of tables with fewer rows than ranks") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto problem = usual_problem();
  for (std::size_t t = 0; t < problem.tables.size(); ++t) problem.tables[t].rows = std::vector<std::int64_t>{5, 3, 30, 1, 7}[t];
  auto const draw_any = [](std::mt19937_64& from, std::size_t samples) {
    auto rows = draw_source_rows(from, samples);
    for (auto& key : rows)
      for (auto& bag : key)
        for (auto& id : bag)
          if (from() % 8 == 0) id = std::vector<std::int64_t>{-1, largest_id, smallest_id}[from() % 3];
    return rows;
  };
  for (int const ranks : {2, 8})
    for (auto const cut : {cuts::none, cuts::rows, cuts::any}) {
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(cut));
      hashed_tables const hashed(problem.tables.size(), false);
      auto const plan = plan_of(problem, hashed, ranks, cut, random);
      check_as_one_process(problem, specs_of(problem, hashed), plan, ranks, false, {.out_of_range = tessera::out_of_range_ids::zero},
                           random, draw_any);
    }
}

TEST_CASE("sharded_tables: rows of other formats and optimizers, cut by rows, have the bits of one process") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int ranks = 4;
  auto const problem = usual_problem();
  hashed_tables const hashed(problem.tables.size(), false);
  auto const plan = plan_of(problem, hashed, ranks, cuts::rows, random);
  tessera::rowwise_adagrad const by_row{.learning_rate = 0.1F};
  std::vector<tessera::table_spec> rounded, scaled;
  for (auto const& table : problem.tables) {
    rounded.push_back(tessera::spec_of<tessera::dense_table<tessera::bfloat16>>(table, tessera::adam{.learning_rate = 0.1F}));
    scaled.push_back(tessera::spec_of<tessera::dense_table<tessera::scaled_int8>>(table, by_row));
  }
  check_as_one_process(problem, rounded, plan, ranks, false, {}, random, draw_source_rows);
  check_as_one_process(problem, scaled, plan, ranks, false, {}, random, draw_source_rows);
}

TEST_CASE("sharded_tables: batches with groups give and learn what the definition says") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  hashed_tables const hashed{false, true, false, true, false};
  auto const plan = plan_of(problem, hashed, 3, cuts::any, random);
  check_groups_by_definition(problem, 3, random, [&](host_exec const& exec, any_communicator comm) {
    return sharded_tables(exec, std::move(comm), specs_of(problem, hashed), problem.features, plan);
  });
}

// An exchange of one's own: the flat one, which counts its waves.
struct counted_waves : tessera::flat_exchange {
  using tessera::flat_exchange::flat_exchange;
  static inline std::atomic<int> waves = 0;

  tessera::keyed_jagged_view<std::int64_t const> received_ids(host_exec const& exec, tessera::flat_exchange_state& state,
                                                              std::int64_t least = 0) const {
    ++waves;
    return flat_exchange::received_ids(exec, state, least);
  }
  void finish_gradients(host_exec const& exec, tessera::flat_exchange_state& state) const {
    ++waves;
    flat_exchange::finish_gradients(exec, state);
  }
};
static_assert(tessera::exchange<counted_waves>);

TEST_CASE("sharded_tables: any model of exchange takes ids and vectors") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  hashed_tables const hashed(problem.tables.size(), false);
  auto const plan = plan_of(problem, hashed, 2, cuts::any, random);
  counted_waves::waves = 0;
  check_groups_by_definition(problem, 2, random, [&](host_exec const& exec, any_communicator comm) {
    return tessera::basic_sharded_tables<counted_waves>(exec, std::move(comm), specs_of(problem, hashed), problem.features, plan);
  });
  CHECK(counted_waves::waves == 2 * 3);  // a step and a prediction of two ranks
}

TEST_CASE("sharded_tables: with codecs, ranks give and learn what one process does of vectors that have travelled, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  auto const problem = usual_problem();
  constexpr int ranks = 3;
  auto const rows = draw_source_rows(random, 45);
  hashed_tables const hashed{false, true, false, true, false};
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  using tessera::codec;
  for (auto const codecs : {tessera::exchange_codecs{codec::fp16, codec::bf16}, tessera::exchange_codecs{codec::int8, codec::fp32},
                            tessera::exchange_codecs{codec::fp32, codec::fp8_e5m2}}) {
    CAPTURE(static_cast<int>(codecs.forward));
    // One process, whose gradients have travelled.
    auto local = local_of(exec, problem, hashed);
    source_batch const whole(exec, problem, rows, false), arrived(exec, problem, rows, false);
    whole.fill_gradients([&] { return draw(random); });
    for (std::size_t key = 0; key < problem.features.size(); ++key)
      send(codecs.backward, whole.gradient_blocks()[key], arrived.gradient_blocks()[key]);
    tessera::local_tables_saved saved;
    forward(exec, local, whole, saved);
    forward(exec, local, arrived, saved);
    backward(exec, local, arrived, saved);
    source_batch const probe(exec, problem, rows, false);
    local.predict(exec, probe.view(), probe.out());
    for (int plan_number = 0; plan_number < 2; ++plan_number) {
      auto const plan = plan_of(problem, hashed, ranks, cuts::none, random);
      std::vector<tessera_tests::serial_host> hosts(ranks);
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
        auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
        sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed), problem.features, plan, {.codecs = codecs});
        tessera::sharded_saved own;
        auto const first = comm.rank() * std::int64_t{15};
        source_batch const batch(here, problem, part_of(rows, first, first + 15), false);
        take_gradients(problem, whole, batch, first);
        auto const through = [&](std::vector<float> vector) { return travelled(codecs.forward, std::move(vector)); };
        forward(here, source, batch, own);
        CHECK(gives_part(problem, whole, batch, first, through));
        backward(here, source, batch, own);
        source.predict(here, batch.view(), batch.out());
        CHECK(gives_part(problem, probe, batch, first, through));
      });
    }
  }
}

TEST_CASE("sharded_tables: with codecs, tables cut by rows give what one process pools of rows that have travelled, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  auto problem = usual_problem();
  problem.features[2].pooling = tessera::pooling::sum;  // a maximum's gradient has zeros when it travels
  constexpr int ranks = 3;
  auto const rows = draw_source_rows(random, 45);
  hashed_tables const hashed(problem.tables.size(), false);
  auto const plan = plan_of(problem, hashed, ranks, cuts::rows, random);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  using tessera::codec;
  for (auto const codecs : {tessera::exchange_codecs{codec::fp16, codec::bf16}, tessera::exchange_codecs{codec::int8, codec::fp32},
                            tessera::exchange_codecs{codec::fp32, codec::int8}}) {
    CAPTURE(static_cast<int>(codecs.forward));
    auto local = local_of(exec, problem, hashed), there = local_of(exec, problem, hashed);
    // One process that reads what the rows are after they have travelled.
    auto const send_rows = [&] {
      for (std::int64_t t = 0; t < local.table_count(); ++t) {
        auto const from = local.store<tessera::dense_table<>>(t).weights();
        auto const to = there.store<tessera::dense_table<>>(t).weights();
        send(codecs.forward, from, to);
      }
    };
    source_batch const whole(exec, problem, rows, false), arrived(exec, problem, rows, false), after(exec, problem, rows, false);
    whole.fill_gradients([&] { return draw(random); });
    for (std::size_t key = 0; key < problem.features.size(); ++key)
      send(codecs.backward, whole.gradient_blocks()[key], arrived.gradient_blocks()[key]);
    tessera::local_tables_saved saved;
    send_rows();
    there.predict(exec, whole.view(), whole.out());
    forward(exec, local, arrived, saved);
    backward(exec, local, arrived, saved);
    send_rows();
    there.predict(exec, after.view(), after.out());
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed), problem.features, plan, {.codecs = codecs});
      tessera::sharded_saved own;
      auto const first = comm.rank() * std::int64_t{15};
      source_batch const batch(here, problem, part_of(rows, first, first + 15), false);
      take_gradients(problem, whole, batch, first);
      auto const as_it_is = [](std::vector<float> vector) { return vector; };
      forward(here, source, batch, own);
      CHECK(gives_part(problem, whole, batch, first, as_it_is));
      backward(here, source, batch, own);
      source.predict(here, batch.view(), batch.out());
      CHECK(gives_part(problem, after, batch, first, as_it_is));
    });
  }
}

TEST_CASE("sharded_tables: what one rank's data cannot have is thrown on all, and changes nothing") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  constexpr int ranks = 3;
  auto const plan = plan_of(problem, hashed_tables(5, false), ranks, cuts::any, random);
  auto const rows = draw_source_rows(random, 8);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed_tables(5, false)), problem.features, plan);
    auto const before = all_rows(here, problem, source);
    tessera::sharded_saved own;
    source_batch const good(here, problem, rows, false), short_one(here, problem, part_of(rows, 0, 7), false);
    good.fill_gradients([] { return 1.0F; });
    auto wrong = rows;
    wrong[4][5].push_back(source_ids);
    source_batch const bad(here, problem, wrong, false);
    auto const refused = [&](tessera::errc code, auto const& on_one, auto const& on_others) {
      for (int who = 0; who < ranks; ++who) {
        auto const e = tessera_tests::error_of([&] { comm.rank() == who ? on_one() : on_others(); });
        CHECK(e.code() == (comm.rank() == who ? code : tessera::errc::rank_failed));
        if (comm.rank() != who) CHECK(e.value("rank") == std::to_string(who));
        if (comm.rank() == who && code == tessera::errc::out_of_range) {
          CHECK(e.value("id") == std::to_string(source_ids));
          CHECK(e.value("rank") == std::to_string(who));
          CHECK(e.value("feature") == "4");
          CHECK(e.value("row") == "5");
        }
        CHECK(same_bits(all_rows(here, problem, source), before));
      }
    };
    refused(
        tessera::errc::out_of_range, [&] { forward(here, source, bad, own); }, [&] { forward(here, source, good, own); });
    refused(
        tessera::errc::shape_mismatch,
        [&] {
          source.begin(here, good.view(), own);
          source.finish(here, own, short_one.out());
        },
        [&] { forward(here, source, good, own); });
    refused(
        tessera::errc::shape_mismatch,
        [&] {
          forward(here, source, good, own);
          source.begin_backward(here, own, short_one.gradients());
          source.finish_backward(here, own);
        },
        [&] {
          forward(here, source, good, own);
          backward(here, source, good, own);
        });
    forward(here, source, good, own);
    backward(here, source, good, own);
    CHECK_FALSE(same_bits(all_rows(here, problem, source), before));
  });
}

TEST_CASE("sharded_tables: a bad batch behind one in flight is refused on all ranks, and the one in flight is not") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = usual_problem();
  constexpr int ranks = 3;
  auto const plan = plan_of(problem, hashed_tables(5, false), ranks, cuts::any, random);
  auto const rows = draw_source_rows(random, 8);
  auto wrong = rows;
  wrong[4][5].push_back(source_ids);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    sharded_tables source(here, any_communicator(comm), specs_of(problem, hashed_tables(5, false)), problem.features, plan);
    tessera::sharded_saved of_first, of_second;
    source_batch const first(here, problem, rows, false), second(here, problem, comm.rank() == 1 ? wrong : rows, false);
    naive_source naive(problem);
    auto const begin = [&] {
      source.begin(here, first.view(), of_first);
      source.begin(here, second.view(), of_second);
    };
    begin();
    CHECK(tessera_tests::error_of(begin).code() == tessera::errc::invalid_argument);  // they are under way
    source.finish(here, of_first, first.out());
    CHECK(naive.gives(first));
    auto const e = tessera_tests::error_of([&] { source.finish(here, of_second, second.out()); });
    CHECK(e.code() == (comm.rank() == 1 ? tessera::errc::out_of_range : tessera::errc::rank_failed));
    forward(here, source, first, of_second);
    CHECK(naive.gives(first));
  });
}

TEST_CASE("sharded_tables: the bytes of each rank's dense tables are known beforehand") {
  constexpr int ranks = 3;
  std::vector<tessera_tests::serial_host> hosts(ranks);
  auto const table = [](std::int64_t id, std::int64_t dim, std::int64_t rows) {
    return tessera::table_options{.id = tessera::table_id{id}, .dim = dim, .rows = rows};
  };
  std::vector<tessera::table_spec> const specs{
      tessera::spec_of<tessera::dense_table<>>(table(0, 24, 900), tessera::rowwise_adagrad{}),
      tessera::spec_of<tessera::dense_table<tessera::float16>>(table(1, 15, 2000), tessera::adagrad{}),
      tessera::spec_of<tessera::dense_table<tessera::scaled_int8>>(table(2, 30, 700), tessera::adam{}),
      tessera::spec_of<tessera::dense_table<tessera::bfloat16>>(table(3, 8, 100), tessera::sgd{})};
  auto plan = tessera::plan_by_bytes(specs, ranks);
  for (int cut = 0; cut < 2; ++cut) {
    auto const predicted = tessera::bytes_of_ranks(specs, plan, ranks);
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      sharded_tables const tables(hosts[r].exec(), comm, specs, {{.name = "a", .table = 0}}, plan);
      CHECK(static_cast<double>(tables.bytes()) == doctest::Approx(static_cast<double>(predicted[r])).epsilon(0.05));
    });
    auto& first = plan.shards[0];  // of table 0: its last eight columns go to another rank
    first.columns = 16;
    plan.shards.push_back({0, (first.rank + 1) % ranks, 0, 900, 16, 8});
  }
}

TEST_CASE("sharded_tables: ten thousand uneven batches in a row, and no rank waits for ever") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  constexpr int ranks = 3, batches = tessera_tests::under_asan || tessera_tests::under_tsan ? 1000 : 10000;
  auto const problem = usual_problem();
  std::vector<tessera_tests::serial_host> hosts(ranks);
  hashed_tables const hashed{false, true, false, true, false};
  auto const specs = specs_of(problem, hashed);
  std::mt19937_64 random(seed);
  auto const plan = plan_of(problem, hashed, ranks, cuts::any, random);
  auto const first_seed = random();
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
    std::mt19937_64 mine(first_seed + static_cast<std::uint64_t>(comm.rank()));
    sharded_tables tables(exec, comm, specs, problem.features, plan);
    tessera::sharded_saved saved;
    std::normal_distribution<float> draw;
    int done = 0;
    for (; done < batches; ++done) {
      source_batch batch(exec, problem, draw_source_rows(mine, mine() % 4), false, false);
      batch.fill_gradients([&] { return draw(mine); });
      forward(exec, tables, batch, saved);
      backward(exec, tables, batch, saved);
    }
    CHECK(done == batches);  // where one waits for ever, its communicator throws
  });
}

TEST_CASE("sharded_tables: ranks that disagree, and plans that cannot be executed, are refused on all ranks") {
  auto const problem = usual_problem();
  constexpr int ranks = 3;
  std::vector<tessera_tests::serial_host> hosts(ranks);
  auto const specs = specs_of(problem, hashed_tables(5, false));
  auto const plan = tessera::plan_round_robin(tessera::options_of(specs), ranks);
  auto const refused = [&](auto const& change, tessera::errc code, char const* part, bool on_all) {
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
      auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
      auto own_specs = specs;
      auto own_plan = plan;
      auto own_features = problem.features;
      bool const is_changed = on_all || comm.rank() == 1;
      if (is_changed) change(own_specs, own_features, own_plan);
      auto const e =
          tessera_tests::error_of([&] { sharded_tables const source(here, any_communicator(comm), own_specs, own_features, own_plan); });
      CHECK(e.code() == (is_changed ? code : tessera::errc::rank_failed));
      CHECK(std::string(e.what()).find(part) != std::string::npos);
      tessera::barrier(here, comm);
    });
  };
  using tessera::errc;
  refused([](auto& s, auto&, auto&) { s[2].table.seed = tessera::random_seed{9}; }, errc::incompatible, "table 2:", false);
  refused([](auto& s, auto&, auto&) { s[2].optimizer = "adam"; }, errc::incompatible, "optimizer adam", false);
  refused([](auto&, auto& f, auto&) { f[1].name = "other"; }, errc::incompatible, "feature 1: other", false);
  refused([](auto&, auto&, auto& p) { std::swap(p.shards[0].rank, p.shards[1].rank); }, errc::incompatible, "shard: table", false);
  refused([](auto&, auto&, auto& p) { p.shards.pop_back(); }, errc::invalid_argument, "not covered", false);
  refused([](auto&, auto&, auto& p) { p.shards.pop_back(); }, errc::invalid_argument, "not covered", true);
  refused([](auto&, auto& f, auto&) { f[0].table = 5; }, errc::out_of_range, "no such table (feature 0, table 5", true);
  refused(
      [](auto& s, auto&, auto& p) {
        auto const left = p.shards[3];
        p.shards.push_back({3, 1, 0, 30, 4, left.columns - 4});
        p.shards.push_back({3, 2, 30, left.rows - 30, 4, left.columns - 4});
        p.shards[3].columns = 4;
        s[3] = tessera::spec_of<tessera::hash_table<>>(s[3].table, tessera::sgd{});
      },
      errc::invalid_argument, "a hashed table whose rows are cut differently (table 3", true);
  refused(
      [](auto&, auto&, auto& p) {
        auto half = p.shards[3];
        half.columns -= 2;
        p.shards.push_back({3, half.rank, 0, half.rows, half.columns, 2});
        p.shards[3] = half;
      },
      errc::invalid_argument, "two shards of one table", true);
}

}  // namespace sharded_tables_test
