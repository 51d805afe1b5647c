// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 5
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/row_transfer.hpp>
#include <tessera/embed/row_update.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>

#include "../support/type_lists.hpp"
#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"

using namespace embed_tests;
using tessera::matrix_view;
using tessera::table_options;

namespace {

constexpr std::int64_t whole_rows = 37, steps_taken = 4, ids_a_step = 50;

table_options whole_table(std::int64_t dim) {
  return {.id = tessera::table_id(7), .dim = dim, .rows = whole_rows, .init_bound = 1, .seed = tessera::random_seed(0xFEDCBA9876543210)};
}

/// 0, some multiples of `step` and `size`, ascending.
std::vector<std::int64_t> random_bounds(std::mt19937_64& random, std::int64_t size, std::int64_t step) {
  auto bounds = tessera_tests::random_integers<std::int64_t>(random, 3, 0, size / step);
  for (auto& bound : bounds) bound *= step;
  bounds.push_back(0);
  bounds.push_back(size);
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

/// The shards of a table that is cut at random.
std::vector<table_options> random_cuts(std::mt19937_64& random, table_options const& whole, bool by_rows, bool by_columns) {
  auto const rows = by_rows ? random_bounds(random, whole.rows, 1) : std::vector<std::int64_t>{0, whole.rows};
  auto const columns = by_columns ? random_bounds(random, whole.dim, 4) : std::vector<std::int64_t>{0, whole.dim};
  std::vector<table_options> shards;
  for (std::size_t r = 0; r + 1 < rows.size(); ++r)
    for (std::size_t c = 0; c + 1 < columns.size(); ++c) {
      auto shard = whole;
      shard.first_row = whole.first_row + rows[r];
      shard.rows = rows[r + 1] - rows[r];
      shard.first_column = whole.first_column + columns[c];
      shard.dim = columns[c + 1] - columns[c];
      shards.push_back(shard);
    }
  return shards;
}

/// Rows of a table in any order, with the columns of one of its shards.
table_options scattered(table_options shard, table_options const& whole, std::vector<std::int64_t> const& rows) {
  shard.first_row = 0;
  shard.rows = static_cast<std::int64_t>(rows.size());
  shard.row_ids = rows.data();
  CHECK(whole.first_row == 0);
  return shard;
}

std::int64_t row_of_whole(table_options const& shard, std::int64_t id) {
  return shard.row_ids == nullptr ? shard.first_row + id : shard.row_ids[id];
}

/// The id that a shard gives to a row of the whole table; -1: it has none.
std::int64_t id_in(table_options const& shard, std::int64_t row) {
  for (std::int64_t id = 0; id < shard.rows; ++id)
    if (row_of_whole(shard, id) == row) return id;
  return -1;
}

struct step_gradients {
  std::vector<std::int64_t> ids;
  std::vector<float> values;  // (ids, dim) of the whole table

  step_gradients(std::mt19937_64& random, std::int64_t rows, std::int64_t dim)
      : ids(tessera_tests::random_integers<std::int64_t>(random, ids_a_step, 0, rows - 1)),
        values(tessera_tests::random_floats(random, static_cast<std::size_t>(ids_a_step * dim))) {}
};

template <class Store, class Optimizer>
void take_step(tessera::host_exec const& exec, std::vector<Store>& table, std::vector<std::int64_t> const& ids,
               matrix_view<float const> gradients, Optimizer const& optimizer) {
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"ids", {ids}}});
  tessera::lookup_saved saved;
  saved.batch = batch.view();
  if (!Store::slots_are_ids) {
    saved.slots.resize(exec, batch.view().size());
    table[0].locate(exec, ids, saved.slots.view(), {});
  }
  std::vector<std::int64_t> const features{0};
  std::vector<matrix_view<float const>> const of_keys{gradients};
  tessera::sequence_lookup_backward(exec, table, features, saved, of_keys, optimizer);
}

/// What of a step's gradients is a dense shard's, by the shard's ids.
template <class Store, class Optimizer>
void take_step_of_whole(tessera::host_exec const& exec, std::vector<Store>& shard, step_gradients const& step, std::int64_t dim,
                        Optimizer const& optimizer) {
  auto const& options = shard[0].options();
  std::vector<std::int64_t> ids;
  std::vector<float> values;
  for (std::size_t i = 0; i < step.ids.size(); ++i) {
    auto const id = id_in(options, step.ids[i]);
    if (id < 0) continue;
    ids.push_back(id);
    auto const* const from = step.values.data() + static_cast<std::int64_t>(i) * dim + options.first_column;
    values.insert(values.end(), from, from + options.dim);
  }
  take_step(exec, shard, ids, {values.data(), static_cast<std::int64_t>(ids.size()), options.dim}, optimizer);
}

/// Whether a row of a shard and its state are that of the whole table, bit for bit; of its scale only where it has all columns.
template <class Store>
bool is_part_of(Store const& shard, std::int64_t slot, Store const& whole, std::int64_t whole_slot) {
  using scale = tessera::row_scale<typename Store::element>;
  auto const first = shard.options().first_column, dim = shard.dim(), whole_dim = whole.dim();
  if (!same_bits(shard.row(slot), whole.row(whole_slot) + first, dim)) return false;
  if (dim == whole_dim && !same_bits(shard.row(slot) - scale::lead, whole.row(whole_slot) - scale::lead, scale::lead)) return false;
  auto const layout = shard.state_layout();
  if (!same_bits(shard.state(slot), whole.state(whole_slot), layout.per_row)) return false;
  for (std::int64_t plane = 0; plane < layout.per_element; ++plane)
    if (!same_bits(shard.state(slot) + layout.per_row + plane * dim, whole.state(whole_slot) + layout.per_row + plane * whole_dim + first,
                   dim))
      return false;
  return true;
}

template <class Element>
std::int64_t rows_that_differ(tessera::dense_table<Element> const& shard, tessera::dense_table<Element> const& whole) {
  std::int64_t differ = 0;
  for (std::int64_t id = 0; id < shard.rows(); ++id) differ += !is_part_of(shard, id, whole, row_of_whole(shard.options(), id));
  return differ;
}

template <class Element, class Optimizer>
void check_cuts(Optimizer const& optimizer, bool by_rows, bool by_columns) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  CAPTURE(by_rows);
  CAPTURE(by_columns);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const dim : {4, 17, 64, 130, 1030}) {
    CAPTURE(dim);
    std::vector<tessera::dense_table<Element>> whole;
    whole.emplace_back(exec, whole_table(dim), optimizer);
    std::vector<std::vector<tessera::dense_table<Element>>> shards;
    auto cuts = random_cuts(random, whole[0].options(), by_rows, by_columns);
    std::vector<std::int64_t> some_rows(whole_rows);
    std::iota(some_rows.begin(), some_rows.end(), std::int64_t{0});
    std::shuffle(some_rows.begin(), some_rows.end(), random);
    some_rows.resize(random() % whole_rows);
    if (by_rows) cuts.push_back(scattered(cuts.back(), whole[0].options(), some_rows));
    for (auto const& options : cuts) shards.emplace_back().emplace_back(exec, options, optimizer);
    for (auto const& shard : shards) REQUIRE(rows_that_differ(shard[0], whole[0]) == 0);
    std::vector<float> const first_row = values_of_row(whole[0], 0);
    for (std::int64_t s = 0; s < steps_taken; ++s) {
      step_gradients step(random, whole_rows, dim);
      step.ids[0] = 0;
      take_step(exec, whole, step.ids, {step.values.data(), ids_a_step, dim}, optimizer);
      for (auto& shard : shards) take_step_of_whole(exec, shard, step, dim, optimizer);
    }
    CHECK_FALSE(same_bits(first_row, values_of_row(whole[0], 0)));
    for (auto const& shard : shards) {
      CAPTURE(shard[0].options().first_row);
      CAPTURE(shard[0].options().first_column);
      CHECK(rows_that_differ(shard[0], whole[0]) == 0);
      CHECK(shard[0].steps() == whole[0].steps());
    }
  }
}

template <class Optimizer>
Optimizer fast() {
  Optimizer optimizer;
  optimizer.learning_rate = 0.1F;
  return optimizer;
}

}  // namespace

TEST_CASE_TEMPLATE("table cuts: shards of rows, of scattered rows and of columns of any element stay parts of the whole table", Element,
                   TESSERA_TEST_ELEMENTS) {
  constexpr bool scale_a_row = tessera::row_scale<Element>::lead > 0;
  check_cuts<Element>(fast<tessera::adagrad>(), true, false);
  if (scale_a_row) return;
  check_cuts<Element>(fast<tessera::adagrad>(), false, true);
  check_cuts<Element>(fast<tessera::adagrad>(), true, true);
}

TEST_CASE_TEMPLATE("table cuts: shards stay parts of the whole table under any optimizer that does not look across their bounds", Optimizer,
                   TESSERA_TEST_OPTIMIZERS, tessera::rowwise_adagrad) {
  check_cuts<tessera::bfloat16>(fast<Optimizer>(), true, !tessera::uses_sum_of_squares<Optimizer>);
}

TEST_CASE("table cuts: a hashed table cut by columns, its ids over two processes, is the whole table") {
  using store = tessera::hash_table<tessera::bfloat16>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 70;
  auto const optimizer = fast<tessera::adagrad>();
  auto const known = tessera_tests::random_integers(random, 20, smallest_id, largest_id);
  std::vector<store> whole;
  whole.emplace_back(exec, whole_table(dim), optimizer);
  auto const cuts = random_cuts(random, whole[0].options(), false, true);
  std::vector<std::vector<store>> shards;
  for (auto const& options : cuts)
    for (int process = 0; process < 2; ++process) shards.emplace_back().emplace_back(exec, options, optimizer);
  for (std::int64_t s = 0; s < steps_taken; ++s) {
    step_gradients step(random, 20, dim);
    for (auto& id : step.ids) id = known[static_cast<std::size_t>(id)];
    take_step(exec, whole, step.ids, {step.values.data(), ids_a_step, dim}, optimizer);
    for (std::size_t k = 0; k < shards.size(); ++k) {
      auto const& options = shards[k][0].options();
      std::vector<std::int64_t> ids;
      std::vector<float> values;
      for (std::size_t i = 0; i < step.ids.size(); ++i) {
        if (static_cast<std::uint64_t>(step.ids[i]) % 2 != k % 2) continue;
        ids.push_back(step.ids[i]);
        auto const* const from = step.values.data() + static_cast<std::int64_t>(i) * dim + options.first_column;
        values.insert(values.end(), from, from + options.dim);
      }
      take_step(exec, shards[k], ids, {values.data(), static_cast<std::int64_t>(ids.size()), options.dim}, optimizer);
    }
  }
  std::int64_t differ = 0, rows = 0;
  for (auto const& shard : shards)
    shard[0].for_each_row([&](std::int64_t slot, std::int64_t id) {
      differ += !is_part_of(shard[0], slot, whole[0], find(exec, whole[0], {id})[0]);
      ++rows;
    });
  CHECK(differ == 0);
  CHECK(rows == whole[0].rows() * static_cast<std::int64_t>(cuts.size()));

  // A row that none has yet.
  std::vector<std::int64_t> const absent{12345};
  std::vector<float> of_whole(dim), of_shard(dim);
  tessera::read_rows(exec, whole[0], absent, matrix_view<float>(of_whole.data(), 1, dim));
  for (auto const& shard : shards) {
    tessera::read_rows(exec, shard[0], absent, matrix_view<float>(of_shard.data(), 1, shard[0].dim()));
    CHECK(same_bits(of_shard.data(), of_whole.data() + shard[0].options().first_column, shard[0].dim()));
  }
}

// A shard of columns begins as a part of the whole table. Its steps are those of a table of its columns alone: rounded by the random words of
// the whole table, under the shard's own scale.
TEST_CASE("table cuts: columns of rows that share a scale choose one of their own, and are never coarser for it") {
  using scale = tessera::row_scale<tessera::scaled_int8>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::sgd const optimizer{.learning_rate = 1};
  for (std::int64_t const dim : {17, 130}) {
    std::vector<tessera::dense_table<tessera::scaled_int8>> whole;
    whole.emplace_back(exec, whole_table(dim), optimizer);
    auto const cuts = random_cuts(random, whole[0].options(), true, true);
    std::vector<std::vector<tessera::dense_table<tessera::scaled_int8>>> shards;
    for (auto const& options : cuts) shards.emplace_back().emplace_back(exec, options, optimizer);
    for (auto const& shard : shards)
      for (std::int64_t id = 0; id < shard[0].rows(); ++id) {
        auto const whole_id = id + shard[0].options().first_row;
        CHECK(same_bits(shard[0].row(id) - scale::lead, whole[0].row(whole_id) - scale::lead, scale::lead));
        CHECK(is_part_of(shard[0], id, whole[0], whole_id));
      }

    step_gradients step(random, whole_rows, dim);
    for (std::size_t i = 0; i < step.ids.size(); ++i) step.ids[i] = std::min<std::int64_t>(static_cast<std::int64_t>(i), whole_rows - 1);
    std::vector<std::vector<float>> expected;  // unrounded, of rows named once
    for (std::int64_t id = 0; id < whole_rows - 1; ++id) {
      expected.push_back(values_of_row(whole[0], id));
      for (std::int64_t c = 0; c < dim; ++c)
        expected.back()[static_cast<std::size_t>(c)] -= step.values[static_cast<std::size_t>(id * dim + c)];
    }
    take_step(exec, whole, step.ids, {step.values.data(), ids_a_step, dim}, optimizer);
    for (auto& shard : shards) take_step_of_whole(exec, shard, step, dim, optimizer);
    for (auto const& shard : shards) {
      auto const& options = shard[0].options();
      for (std::int64_t id = 0; id < options.rows && options.first_row + id < whole_rows - 1; ++id) {
        auto const row = options.first_row + id;
        auto const* const weights = expected[static_cast<std::size_t>(row)].data() + options.first_column;
        auto const own = scale::for_values(weights, options.dim), of_whole = scale::of(whole[0].row(row));
        CHECK(scale::of(shard[0].row(id)).step == own.step);
        CHECK(own.step <= of_whole.step);
        if (own.step == of_whole.step) CHECK(is_part_of(shard[0], id, whole[0], row));
        std::int64_t wrong = 0;
        for (std::int64_t c = 0; c < options.dim; ++c) {
          auto const column = options.first_column + c;
          auto const words = tessera::rounding_block(whole[0].options(), tessera::step_count{1}, row, column / 4);
          wrong += shard[0].row(id)[c].steps != own.stochastic(weights[c], words[static_cast<int>(column % 4)]).steps;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE_TEMPLATE("table cuts: places that no shard has are refused by name", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const refused = [&](table_options const& wrong, char const* option, std::int64_t value) {
    try {
      Store const store(host.exec(), wrong, tessera::sgd{});
      FAIL_CHECK("accepted: " << option << " " << value);
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value(option) == std::to_string(value));
      CHECK(e.value("table") == "7");
    }
  };
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t const first : {std::int64_t{-1}, largest, largest - whole_rows + 1}) {
    auto wrong = whole_table(8);
    wrong.first_row = first;
    refused(wrong, "first_row", first);
  }
  for (std::int64_t const first : {std::int64_t{-4}, std::int64_t{2}, (std::int64_t{1} << 31) - 8, largest}) {
    auto wrong = whole_table(8);
    wrong.first_column = first;
    refused(wrong, "first_column", first);
  }
  auto farthest = whole_table(8);
  farthest.first_column = (std::int64_t{1} << 31) - 16;
  farthest.first_row = largest - whole_rows;
  if constexpr (Store::slots_are_ids) {
    CHECK(Store(host.exec(), farthest, tessera::sgd{}).options().first_row == largest - whole_rows);
  } else {
    refused(farthest, "first_row", farthest.first_row);
    farthest.first_row = 0;
  }
  CHECK(Store(host.exec(), farthest, tessera::sgd{}).options().first_column == (std::int64_t{1} << 31) - 16);
}
