// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/embed/borrowed_table.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_transfer.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"

using namespace embed_tests;
using tessera::borrowed_table;
using tessera::errc;
using tessera::vector_view;

static_assert(tessera::row_store<borrowed_table<tessera::float16>>);
static_assert(borrowed_table<>::slots_are_ids);
static_assert(!std::is_copy_constructible_v<borrowed_table<>> && !std::is_copy_assignable_v<borrowed_table<>>);
static_assert(std::is_nothrow_move_constructible_v<borrowed_table<>>);

namespace {

constexpr std::int64_t row_count = 40;

/// The memory of a table, as a user may have it.
template <class Element>
struct table_memory {
  std::vector<Element> weights;
  std::vector<float> states;

  explicit table_memory(tessera::dense_table<Element> const& table) {
    auto const* const first = table.row(0) - tessera::row_scale<Element>::lead;
    weights.assign(first, first + table.rows() * tessera::row_scale<Element>::extent(table.dim()));
    states.assign(table.states().data(), table.states().data() + table.rows() * table.states().columns());
  }
  template <class Optimizer>
  borrowed_table<Element> table(tessera::table_options const& options, Optimizer const& optimizer) {
    return {options, optimizer, weights, states};
  }
};

template <class Element>
bool same_table(tessera::dense_table<Element> const& a, borrowed_table<Element> const& b) {
  using scale = tessera::row_scale<Element>;
  if (a.rows() != b.rows() || a.steps() != b.steps()) return false;
  for (std::int64_t slot = 0; slot < a.rows(); ++slot)
    if (!same_bits(a.row(slot) - scale::lead, b.row(slot) - scale::lead, scale::lead + a.dim()) ||
        !same_bits(a.state(slot), b.state(slot), a.state_layout().width(a.dim())))
      return false;
  return true;
}

template <class Element, class Optimizer>
void check_against_dense(tessera::host_exec const& exec, std::mt19937_64& random, Optimizer const& optimizer) {
  auto const options = tables_of_dims({1, 17, 64, 1030}, row_count);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  auto owned = make_tables<tessera::dense_table<Element>>(exec, options, optimizer);
  std::vector<table_memory<Element>> memory;
  for (auto const& table : owned) memory.emplace_back(table);
  std::vector<borrowed_table<Element>> borrowed;
  for (std::size_t t = 0; t < memory.size(); ++t) borrowed.push_back(memory[t].table(options[t], optimizer));
  for (int step = 0; step < 3; ++step) {
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = row_count, .most_rows = 20, .mean_length = 3, .weighted = true});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices of_owned(options, features, view), of_borrowed(options, features, view);
    tessera::lookup_saved owned_saved, borrowed_saved;
    tessera::pooled_lookup(exec, owned, features, view, of_owned.out(), owned_saved);
    tessera::pooled_lookup(exec, borrowed, features, view, of_borrowed.out(), borrowed_saved);
    CHECK(same_bits(of_owned.values(), of_borrowed.values()));
    tessera::pooled_lookup_backward(exec, owned, features, owned_saved, gradients.in(), optimizer);
    tessera::pooled_lookup_backward(exec, borrowed, features, borrowed_saved, gradients.in(), optimizer);
    for (std::size_t t = 0; t < owned.size(); ++t) CHECK(same_table(owned[t], borrowed[t]));
  }
  // What the steps wrote stands in the caller's memory when the tables are gone.
  borrowed.clear();
  for (std::size_t t = 0; t < owned.size(); ++t) {
    table_memory<Element> const expected(owned[t]);
    CHECK(same_bits(memory[t].states, expected.states));
    auto again = memory[t].table(options[t], optimizer);
    again.set_steps(owned[t].steps());
    CHECK(same_table(owned[t], again));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("borrowed_table: lookups and steps in borrowed memory are those of a dense table, bit for bit", Element, float,
                   tessera::scaled_int8) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  check_against_dense<Element>(host.exec(), random, tessera::rowwise_adam{.learning_rate = 0.1F});
}

TEST_CASE("borrowed_table: rows of half floats, moved in and out") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_options const options{.dim = 3, .rows = 4};
  std::vector<tessera::bfloat16> weights(12);
  std::vector<float> states(4, 0.5F);
  auto table = borrowed_table<tessera::bfloat16>(options, tessera::rowwise_adagrad{.initial_state = 9}, weights, states);
  CHECK(table.state(3)[0] == 0.5F);  // as it was
  CHECK(values_of_row(table, 2) == std::vector<float>{0, 0, 0});
  std::vector<std::int64_t> const ids{3, -1, 4, 0};
  CHECK(find(exec, table, ids) == std::vector<std::int64_t>{3, -1, -1, 0});
  CHECK(locate(exec, table, ids) == std::vector<std::int64_t>{3, -1, -1, 0});
  std::vector<std::int64_t> three(3);
  CHECK_THROWS_WITH_AS(table.locate(exec, ids, three),
                       "borrowed_table::locate: one slot, and one status or none, an id (ids 4, slots 3, statuses 0)", tessera::error);
  std::vector<float> const written{1, 2, 3};
  tessera::write_rows(exec, table, std::vector<std::int64_t>{2}, tessera::matrix_view<float const>(written.data(), 1, 3));
  CHECK(tessera::to_float(weights[8]) == 3.0F);
  auto moved = std::move(table);
  CHECK(moved.row(2) == weights.data() + 6);
  CHECK(moved.weights().row(1) == weights.data() + 3);
  CHECK(std::as_const(moved).states().row(1) == states.data() + 1);
  std::int64_t rows = 0;
  moved.for_each_row([&](std::int64_t slot, std::int64_t id) { rows += slot == id; });
  CHECK(rows == 4);
}

TEST_CASE_TEMPLATE("borrowed_table: bytes are those that it refers to", Element, TESSERA_TEST_ELEMENTS) {
  tessera_tests::serial_host host;
  for (std::int64_t const rows : {0, 1, 9}) {
    tessera::table_options const options{.dim = 5, .rows = rows};
    tessera::dense_table<Element> const owned(host.exec(), options, tessera::adam{});
    std::vector<Element> weights(static_cast<std::size_t>(rows * tessera::row_scale<Element>::extent(5)));
    std::vector<float> states(static_cast<std::size_t>(rows * 10));
    auto const before = host.memory().live_bytes();
    borrowed_table<Element> const table(options, tessera::adam{}, weights, states);
    CHECK(host.memory().live_bytes() == before);
    CHECK(table.bytes() == weights.size() * sizeof(Element) + states.size() * sizeof(float));
    CHECK(table.bytes() == owned.bytes());
    auto const expected = borrowed_table<Element>::bytes_for(options, table.state_layout());
    CHECK(expected.weights == weights.size() * sizeof(Element));
    CHECK(expected.state == states.size() * sizeof(float));
    CHECK(table.rows() == rows);
    CHECK(table.state_layout().width(table.dim()) == 10);
  }
}

TEST_CASE("borrowed_table: memory that is none, of another size or not aligned is refused by name") {
  tessera::table_options const options{.id = tessera::table_id(6), .dim = 5, .rows = 4};
  std::vector<float> weights(21), states(11);
  auto const refused = [&](errc code, char const* what, std::string const& value, auto const& build) {
    try {
      build();
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == code);
      CHECK(e.value(what) == value);
      CHECK(e.value("table") == "6");
    }
  };
  tessera::rowwise_adagrad const optimizer;  // one float a row
  vector_view<float> const right(weights.data(), 20), right_states(states.data(), 4);
  CHECK(borrowed_table<>(options, optimizer, right, right_states).rows() == 4);
  for (std::int64_t const size : {0, 19, 21})
    refused(errc::shape_mismatch, "weights", std::to_string(size), [&] {
      borrowed_table<>(options, optimizer, {weights.data(), size}, right_states);
    });
  for (std::int64_t const size : {0, 3, 5})
    refused(errc::shape_mismatch, "states", std::to_string(size), [&] {
      borrowed_table<>(options, optimizer, right, {states.data(), size});
    });
  refused(errc::shape_mismatch, "states", "4", [&] { borrowed_table<>(options, tessera::adam{}, right, right_states); });
  refused(errc::invalid_argument, "weights", "null", [&] { borrowed_table<>(options, optimizer, {nullptr, 20}, right_states); });
  refused(errc::invalid_argument, "states", "null", [&] { borrowed_table<>(options, optimizer, right, {nullptr, 4}); });
  auto const past = [](void* memory, std::size_t bytes) { return static_cast<char*>(memory) + bytes; };
  auto* const odd = reinterpret_cast<float*>(past(weights.data(), 2));
  refused(errc::invalid_argument, "weights", "misaligned", [&] { borrowed_table<>(options, optimizer, {odd, 20}, right_states); });
  refused(errc::invalid_argument, "states", "misaligned", [&] {
    borrowed_table<>(options, optimizer, right, {reinterpret_cast<float*>(past(states.data(), 1)), 4});
  });
  // Steps of scaled rows are bytes, their scales are not.
  auto* const bytes = reinterpret_cast<tessera::scaled_int8*>(weights.data());
  CHECK(borrowed_table<tessera::scaled_int8>(options, optimizer, {bytes + 4, 48}, right_states).row(0) == bytes + 8);
  refused(errc::invalid_argument, "weights", "misaligned", [&] {
    borrowed_table<tessera::scaled_int8>(options, optimizer, {bytes + 1, 48}, right_states);
  });
  refused(errc::shape_mismatch, "weights", "20", [&] {
    borrowed_table<tessera::scaled_int8>(options, optimizer, {bytes, 20}, right_states);
  });

  auto wrong = options;
  wrong.dim = 0;
  refused(errc::invalid_argument, "dim", "0", [&] { borrowed_table<>(wrong, optimizer, right, right_states); });
  if constexpr (tessera::checked) {
    borrowed_table<> const table(options, optimizer, right, right_states);
    CHECK_THROWS_WITH_AS(table.row(4), "borrowed_table: no such slot (table 6, slot 4, slot bound 4)", tessera::error);
  }
}
