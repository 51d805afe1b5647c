// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 6
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "../support/type_lists.hpp"
#include "pooled_lookup_suite.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera_tests::pool_host;
using tessera_tests::serial_host;

TEST_CASE("pooled_lookup over dense tables") { tessera_tests::for_each_team(pooled_lookup_suite<dense>); }
TEST_CASE("pooled_lookup over hashed tables") { tessera_tests::for_each_team(pooled_lookup_suite<hashed>); }

TEST_CASE_TEMPLATE("pooled_lookup: every team gives the same bits", Store, dense, hashed) { pooled_lookup_of_every_team<Store>(); }

TEST_CASE_TEMPLATE("pooled_lookup: dense and hashed tables give the same bits", Element, TESSERA_TEST_SOME_ELEMENTS) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims(all_dims, 50);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  for (bool const weighted : {false, true}) {
    CAPTURE(weighted);
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = 50, .most_rows = 30, .mean_length = 4, .weighted = weighted});
    auto const view = std::as_const(batch).view();
    auto const dense_tables = make_tables<tessera::dense_table<Element>>(exec, options, tessera::sgd{});
    auto hashed_tables = make_tables<tessera::hash_table<Element>>(exec, options, tessera::sgd{});
    pooled_matrices from_dense(options, features, view), unseen(options, features, view), seen(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, dense_tables, features, view, from_dense.out());
    tessera::pooled_lookup(exec, std::as_const(hashed_tables), features, view, unseen.out());
    tessera::pooled_lookup(exec, hashed_tables, features, view, seen.out(), saved);
    CHECK(same_bits(from_dense.values(), unseen.values()));
    CHECK(same_bits(from_dense.values(), seen.values()));
  }
}

TEST_CASE("pooled_lookup: hashed tables take any id") {
  serial_host host;
  auto const exec = host.exec();
  constexpr auto smallest = std::numeric_limits<std::int64_t>::min(), largest = std::numeric_limits<std::int64_t>::max();
  auto const options = tables_of_dims({16, 130}, 0);
  auto tables = make_tables<hashed>(exec, options, tessera::sgd{});
  std::vector<tessera::pooled_feature> const features{{0}, {1, tessera::pooling::mean}};
  auto const batch =
      tessera::keyed_jagged<>::from_rows(exec, {{"a", {{smallest, -1, largest}, {-1}}}, {"b", {{largest, largest, 0, smallest}}}});
  auto const view = std::as_const(batch).view();
  pooled_matrices out(options, features, view), again(options, features, view);
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
  CHECK(close_to(out.values(), reference_pool(options, features, view, initial_rows(options))));
  CHECK(tables[0].rows() == 3);
  CHECK(tables[1].rows() == 3);
  // Some ids of a bag known, some not.
  locate(exec, tables[0], {5});
  tables[0].row(tables[0].rows() - 1)[3] = 100;
  auto const mixed = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{5, 6, 5}}}});
  pooled_matrices read(options, features, std::as_const(mixed).view());
  std::vector<tessera::pooled_feature> const one{{0}};
  tessera::pooled_lookup(exec, std::as_const(tables), one, std::as_const(mixed).view(), read.out());
  CHECK(read.out()[0](0, 3) == doctest::Approx(200 + initial_row(options[0], 6)[3]));
  CHECK(read.out()[0](0, 2) == doctest::Approx(2 * initial_row(options[0], 5)[2] + initial_row(options[0], 6)[2]));
}

TEST_CASE("pooled_lookup: an id that a dense table cannot hold is named, always the same one") {
  auto const options = tables_of_dims({16, 16}, 100);
  std::vector<tessera::pooled_feature> const features{{1}, {0}, {1}};
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory& memory) {
    for (std::int64_t const bad :
         {std::int64_t{100}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
      CAPTURE(bad);
      std::vector<tessera::feature_rows<>> rows;
      for (int key = 0; key < 3; ++key)
        rows.emplace_back("key" + std::to_string(key), std::vector<std::vector<std::int64_t>>(6000, std::vector<std::int64_t>{1, 99}));
      rows[1].rows[4321] = {5, 6, bad, 7};
      rows[1].rows[4322] = {1000};
      rows[1].rows[5999] = {-2};
      rows[2].rows[0] = {101};
      auto const batch = tessera::keyed_jagged<>::from_rows(exec, rows);
      auto const view = std::as_const(batch).view();
      auto tables = make_tables<dense>(exec, options, tessera::sgd{});
      pooled_matrices out(options, features, view);
      tessera::lookup_saved saved;
      auto const pieces = memory.live_pieces();
      for (int time = 0; time < 6; ++time) {
        try {
          if (time % 2 == 0)
            tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
          else
            tessera::pooled_lookup(exec, std::as_const(tables), features, view, out.out());
          FAIL_CHECK("accepted");
        } catch (tessera::error const& e) {
          CHECK(e.code() == tessera::errc::out_of_range);
          CHECK(e.value("feature") == "1");
          CHECK(e.value("table") == "100");  // the table's own name
          CHECK(e.value("row") == "4321");
          CHECK(e.value("position") == "2");
          CHECK(e.value("id") == std::to_string(bad));
          CHECK(e.value("rows") == "100");
        }
      }
      CHECK(memory.live_pieces() == pieces);
      CHECK(saved.batch.keys == 0);  // fits no backward
      std::vector<std::int64_t> ids(100);
      for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i);
      for (auto const& t : tables) CHECK(rows_are_initial(t, ids, ids));
    }
  });
}

TEST_CASE_TEMPLATE("pooled_lookup: the first offset that is wrong is named, however many threads look for it", Store, dense, hashed) {
  auto const options = tables_of_dims({4}, 10);
  std::vector<tessera::pooled_feature> const features{{0}, {0}};
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    constexpr std::int64_t rows = 50'000;
    std::vector<std::int64_t> const values(static_cast<std::size_t>(rows), 3), first_row{0, 30'000, rows};
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(rows + 1));
    std::iota(offsets.begin(), offsets.end(), 0);
    sparse_view const batch{values.data(), nullptr, offsets.data(), first_row.data(), 2};
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto const rows_before = tables[0].rows();
    pooled_matrices out(options, features, batch);
    tessera::lookup_saved saved;
    auto const refused_row = [&] {
      try {
        tessera::pooled_lookup(exec, tables, features, batch, out.out(), saved);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        return std::string(e.value("row"));
      }
      return std::string("none");
    };
    for (std::size_t const row : {49'999U, 31'000U, 30'000U, 20'011U, 8'191U, 0U}) {
      offsets[row + 1] = offsets[row] - 1;
      CHECK(refused_row() == std::to_string(row));
    }
    offsets[0] = -1;
    CHECK(refused_row() == "0");
    CHECK(rows_before == tables[0].rows());
    std::iota(offsets.begin(), offsets.end(), 0);
    CHECK(refused_row() == "none");
  });
}

TEST_CASE("pooled_lookup: when a table cannot grow, nothing is lost") {
  serial_host host, step;
  auto const options = tables_of_dims({8, 8}, 0);
  auto tables = make_tables<hashed>(host.exec(), options, tessera::sgd{});
  std::vector<tessera::pooled_feature> const features{{0}, {1}};
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2, 3}}}, {"b", {{4, 5}}}});
  auto const view = std::as_const(batch).view();
  pooled_matrices out(options, features, view);
  tessera::lookup_saved saved;
  host.memory().fail_after(4);
  CHECK_THROWS_AS(tessera::pooled_lookup(step.exec(), tables, features, view, out.out(), saved), std::bad_alloc);
  CHECK(saved.batch.keys == 0);
  host.memory().never_fail();
  tessera::pooled_lookup(step.exec(), tables, features, view, out.out(), saved);
  CHECK(close_to(out.values(), reference_pool(options, features, view, initial_rows(options))));
  CHECK(tables[0].rows() == 3);
  CHECK(tables[1].rows() == 2);
}

TEST_CASE("pooled_lookup: pieces read about as much whatever the shape") {
  using tessera::detail::bags_per_piece;
  CHECK(bags_per_piece(0, 0, 64) == 4096);
  CHECK(bags_per_piece(100, 0, 64) == 4096);
  CHECK(bags_per_piece(100, 100, 64) == 2048);
  CHECK(bags_per_piece(1, 1'000'000, 4096) == 4);
  CHECK(bags_per_piece(100, 100, 4) == 4096);
}

TEST_CASE_TEMPLATE("pooled_lookup: rows of fewer bits are read as their values", Store, TESSERA_TEST_SMALL_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims(all_dims, 50);
    auto const features = features_over(static_cast<std::int64_t>(options.size()));
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto const batch = random_batch(exec, random, features.size(), {.id_range = 50, .most_rows = 30, .mean_length = 4, .weighted = true});
    auto const view = std::as_const(batch).view();
    pooled_matrices unseen(options, features, view), seen(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, std::as_const(tables), features, view, unseen.out());
    tessera::pooled_lookup(exec, tables, features, view, seen.out(), saved);
    auto const initial = [&](std::int64_t table, std::int64_t id) {
      return stored_initial_row<typename Store::element>(options[static_cast<std::size_t>(table)], id);
    };
    CHECK(close_to(seen.values(), reference_pool(options, features, view, initial)));
    CHECK(same_bits(seen.values(), unseen.values()));
    if (first.empty()) first = seen.values();
    CHECK(same_bits(first, seen.values()));
  });
}

TEST_CASE_TEMPLATE("pooled_lookup: rows that changed are read by the scale that each has now", Store,
                   tessera::dense_table<tessera::scaled_int8>, tessera::hash_table<tessera::scaled_int8>) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  pool_host<2> host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({1, 3, 16, 17, 127, 128, 1030}, 20);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  auto tables = make_tables<Store>(exec, options, tessera::sgd{});
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>> rows;
  for (std::size_t t = 0; t < tables.size(); ++t)
    for (std::int64_t id = 0; id < 20; ++id) {
      auto values = tessera_tests::random_floats(random, static_cast<std::size_t>(options[t].dim));
      for (auto& x : values) x = id == 5 ? 0 : std::ldexp(x, static_cast<int>(id) - 10);
      set_row(tables[t], locate(exec, tables[t], {id})[0], values);
      rows[{static_cast<std::int64_t>(t), id}] = stored<tessera::scaled_int8>(values);
    }
  for (bool const weighted : {false, true}) {
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = 20, .most_rows = 30, .mean_length = 4, .weighted = weighted});
    auto const view = std::as_const(batch).view();
    pooled_matrices seen(options, features, view), unseen(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, seen.out(), saved);
    tessera::pooled_lookup(exec, std::as_const(tables), features, view, unseen.out());
    CHECK(close_to(seen.values(), reference_pool(options, features, view, [&](std::int64_t t, std::int64_t id) { return rows[{t, id}]; })));
    CHECK(same_bits(seen.values(), unseen.values()));
    CHECK(seen.gaps_untouched());
  }
  // A row that is no number makes none of the vectors that it is not in one.
  std::vector<float> odd(127);
  odd[100] = std::numeric_limits<float>::infinity();
  set_row(tables[4], find(exec, tables[4], {7})[0], odd);
  std::vector<tessera::pooled_feature> const one{{4}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{6, 8}, {6, 7}, {8}}}});
  pooled_matrices out(options, one, std::as_const(batch).view());
  tessera::pooled_lookup(exec, std::as_const(tables), one, std::as_const(batch).view(), out.out());
  for (std::int64_t bag = 0; bag < 3; ++bag)
    for (std::int64_t c = 0; c < 127; ++c) CHECK(std::isnan(out.out()[0](bag, c)) == (bag == 1));
}

TEST_CASE("pooled_lookup: ids out of range may count as zeros") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims({1, 16, 130}, 20);
    auto const features = features_over(3);
    auto tables = make_tables<dense>(exec, options, tessera::sgd{.learning_rate = 1});
    // Ids in [0, 40): about half have no row, and at least one.
    auto const draw = [&] {
      return random_batch(exec, random, features.size(), {.id_range = 40, .most_rows = 30, .mean_length = 4, .weighted = true});
    };
    auto const has_other = [](auto const& drawn) {
      auto const of = std::as_const(drawn).view();
      return std::any_of(of.values, of.values + of.size(), [](auto id) { return id >= 20; });
    };
    auto batch = draw();
    while (!has_other(batch)) batch = draw();
    auto const view = std::as_const(batch).view();
    pooled_matrices out(options, features, view), again(options, features, view);
    tessera::lookup_saved saved;
    CHECK_THROWS_AS(tessera::pooled_lookup(exec, tables, features, view, out.out(), saved), tessera::error);
    std::int64_t count = 0, expected_count = 0;
    tessera::lookup_options const options_of_call{.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count};
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved, options_of_call);
    for (std::int64_t p = 0; p < view.size(); ++p) expected_count += view.values[p] >= 20;
    CHECK(expected_count > 0);
    CHECK(count == expected_count);
    initial_rows const rows_of(options);
    auto const or_zeros = [&](std::int64_t table, std::int64_t id) {
      if (id < 20) return rows_of(table, id);
      return std::vector<float>(static_cast<std::size_t>(options[static_cast<std::size_t>(table)].dim), 0.0F);
    };
    CHECK(close_to(out.values(), reference_pool(options, features, view, or_zeros)));
    tessera::pooled_lookup(exec, std::as_const(tables), features, view, again.out(), options_of_call);
    CHECK(same_bits(out.values(), again.values()));
    CHECK(count == 2 * expected_count);
  });
}

namespace {
struct no_lifetime : tessera::evict_ttl {
  no_lifetime() : evict_ttl{.lifetime = 0} {}
};
}  // namespace

TEST_CASE_TEMPLATE("pooled_lookup: a batch's new ids take no row that any of its keys names", Eviction, tessera::evict_lru,
                   tessera::evict_lfu, no_lifetime) {
  using store = tessera::hash_table<float, tessera::admit_all, Eviction>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    auto options = tables_of_dims({3, 5}, 0);
    for (auto& o : options) o.most_rows = 60;
    std::vector<tessera::pooled_feature> const features{{0}, {1}, {0, tessera::pooling::mean}, {0}};
    auto tables = make_tables<store>(exec, options, tessera::sgd{});
    auto whole = make_tables<store>(exec, options, tessera::sgd{});  // sees a batch's ids of a table in one call
    std::mt19937_64 random(seed);
    for (int step = 0; step < 40; ++step) {
      CAPTURE(step);
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 150, .most_rows = 9, .mean_length = 2, .weighted = false});
      auto const view = std::as_const(batch).view();
      std::vector<std::int64_t> held;  // of table 0, named by the batch
      for (std::int64_t key : {0, 2, 3}) {
        auto const bags = view.key(key);
        for (auto p = bags.offsets[0]; p < bags.offsets[bags.rows]; ++p)
          if (find(exec, tables[0], {view.values[p]})[0] >= 0) held.push_back(view.values[p]);
      }
      auto const before = find(exec, tables[0], held);
      pooled_matrices out(options, features, view);
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
      CHECK(find(exec, tables[0], held) == before);
      for (std::int64_t t = 0; t < 2; ++t) {
        std::vector<std::int64_t> ids, slots;
        for (std::int64_t key = 0; key < view.keys; ++key) {
          if (features[static_cast<std::size_t>(key)].table != t) continue;
          auto const bags = view.key(key);
          for (auto p = bags.offsets[0]; p < bags.offsets[bags.rows]; ++p) {
            ids.push_back(view.values[p]);
            slots.push_back(saved.slots[p]);
          }
        }
        auto& other = whole[static_cast<std::size_t>(t)];
        other.begin_batch();
        CHECK(slots == locate(exec, other, ids));
      }
    }
    CHECK(tables[0].rows() == 60);
  });
}

TEST_CASE_TEMPLATE("pooled_lookup: more vectors than caches keep are the same bits", Store,
                   dense TESSERA_TEST_MORE_TYPES(, hashed, tessera::dense_table<tessera::scaled_int8>,
                                                 tessera::hash_table<tessera::float8_e4m3>)) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  pool_host<2> host;
  auto const exec = host.exec();
  constexpr std::int64_t bags = 30'000;
  auto const options = tables_of_dims({16, 32, 200, 64}, 40);
  std::vector<tessera::pooled_feature> const features{{0}, {1, tessera::pooling::mean}, {2}, {3}};
  std::vector<std::int64_t> const rows_per_key(4, bags);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(4 * bags));
  std::int64_t count = 0;
  for (auto& length : lengths) count += length = static_cast<std::int64_t>(random() % 3);
  auto const ids = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(count), 0, 39);
  auto const weights = tessera_tests::random_floats(random, static_cast<std::size_t>(count));
  auto tables = make_tables<Store>(exec, options, tessera::sgd{});
  for (auto& table : tables) {
    std::vector<std::int64_t> known(40);
    std::iota(known.begin(), known.end(), 0);
    locate(exec, table, known);
  }
  for (bool const weighted : {false, true}) {
    auto const batch = tessera::keyed_jagged<>::from_lengths(exec, {"a", "b", "c", "d"}, ids, lengths, rows_per_key,
                                                             weighted ? weights : std::vector<float>{});
    auto const view = std::as_const(batch).view();
    // Side by side: 312 columns and 8 between, so that all rows start lines but those that are moved by one.
    for (std::int64_t const shift : {0, 1}) {
      CAPTURE(shift);
      constexpr std::int64_t stride = 320;
      tessera::buffer<float> storage(exec, bags * stride + shift);
      std::fill(storage.begin(), storage.end(), pooled_matrices::canary);
      std::vector<tessera::matrix_view<float>> out;
      std::int64_t column = 0;
      for (auto const& table : options) {
        out.push_back({storage.data() + shift + column, bags, table.dim, stride});
        column += table.dim;
      }
      tessera::pooled_lookup(exec, std::as_const(tables), features, view, out);
      std::int64_t wrong = 0;
      for (std::int64_t key = 0; key < 4; ++key) {  // alone, each is small
        auto const part = view.slice_keys(key, 1);
        std::vector<tessera::pooled_feature> const one{features[static_cast<std::size_t>(key)]};
        pooled_matrices alone(options, one, part);
        tessera::pooled_lookup(exec, std::as_const(tables), one, part, alone.out());
        auto const& together = out[static_cast<std::size_t>(key)];
        for (std::int64_t r = 0; r < bags; ++r) wrong += !same_bits(together.row(r), alone.out()[0].row(r), together.columns());
      }
      CHECK(wrong == 0);
      for (std::int64_t r = 0; r < bags; ++r)
        for (std::int64_t c = column; c < stride; ++c) wrong += storage[shift + r * stride + c] != pooled_matrices::canary;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("pooled_lookup: ids out of range that read as zeros, in vectors that go past the caches") {
  pool_host<2> host;
  auto const exec = host.exec();
  constexpr std::int64_t bags = 140'000, wrong_every = 5'000;
  auto const options = tables_of_dims({64}, 10);
  auto const tables = make_tables<dense>(exec, options, tessera::sgd{});
  std::vector<std::int64_t> ids(static_cast<std::size_t>(bags));
  std::vector<std::int64_t> const lengths(ids.size(), 1), rows_per_key{bags};
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i % wrong_every == 0 ? 10 : static_cast<std::int64_t>(i % 10);
  auto const batch = tessera::keyed_jagged<>::from_lengths(exec, {"a"}, ids, lengths, rows_per_key, {});
  tessera::buffer<float> storage(exec, bags * 64);
  std::vector<tessera::matrix_view<float>> const out{{storage.data(), bags, 64, 64}};
  std::vector<tessera::pooled_feature> const one{{0}};
  std::int64_t zeros = 0, wrong = 0;
  tessera::pooled_lookup(exec, tables, one, std::as_const(batch).view(), out,
                         {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &zeros});
  CHECK(zeros == bags / wrong_every);
  std::vector<float> const nothing(64);
  for (std::int64_t r = 0; r < bags; ++r) {
    auto const id = ids[static_cast<std::size_t>(r)];
    wrong += !same_bits(out[0].row(r), id == 10 ? nothing.data() : tables[0].row(id), 64);
  }
  CHECK(wrong == 0);
}
