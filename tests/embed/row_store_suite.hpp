// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/row_store.hpp>

#include "embed_support.hpp"
#include "hosts.hpp"
#include "random.hpp"

namespace embed_tests {

/// An optimizer of two states a row and three an element, to see where they lie.
struct many_states {
  static constexpr int row_state = 2;
  static constexpr int element_state = 3;
  float initial_state = 0.25F;
  float begin_row(float*, tessera::row_gradient const&) const noexcept { return 0; }
  void update(float&, float*, std::int64_t, float, float) const noexcept {}
};

/// A row, with the scale that stands before it.
template <class Store>
std::vector<typename Store::element> row_of(Store const& store, std::int64_t slot) {
  return {store.row(slot) - tessera::row_scale<typename Store::element>::lead, store.row(slot) + store.dim()};
}

/// Whole numbers from 0 to 250: as they are, or where an element is a byte, as its bits.
template <class Element>
Element stamped(std::size_t number) {
  if constexpr (sizeof(Element) == 1)
    return std::bit_cast<Element>(static_cast<std::uint8_t>(number));
  else
    return tessera::round_to<Element>(static_cast<float>(number));
}

/// What every row store must show on every team. Ids stay in [0, 3000), so that a dense table holds them.
template <class Store>
void row_store_suite(int threads) {
  static_assert(tessera::row_store<Store>);
  using element = typename Store::element;
  constexpr auto lead = static_cast<std::size_t>(tessera::row_scale<element>::lead);
  tessera_tests::pool host(threads);
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::table_options options{
      .id = tessera::table_id(5), .dim = 7, .rows = 3000, .init_bound = 0.5F, .seed = tessera::random_seed(0x123456789ABCDEF0)};
  std::vector<std::int64_t> ids(3000);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);

  SUBCASE("it tells what it is") {
    Store store(exec, options, many_states{});
    CHECK(store.options().id == options.id);
    CHECK(store.options().seed == options.seed);
    CHECK(store.dim() == 7);
    CHECK(store.state_layout().per_row == 2);
    CHECK(store.state_layout().per_element == 3);
    CHECK(store.state_layout().width(store.dim()) == 2 + 3 * 7);
    CHECK(store.steps() == tessera::step_count(0));
    store.set_steps(tessera::step_count(17));
    CHECK(store.steps() == tessera::step_count(17));
  }

  SUBCASE("initial rows depend on seed, table and id alone") {
    Store store(exec, options, tessera::rowwise_adagrad{.initial_state = 0.125F});
    auto const slots = locate(exec, store, ids);
    CHECK(rows_are_initial(store, ids, slots));

    auto smaller = options;
    smaller.rows = 100;
    Store other(exec, smaller, tessera::sgd{});
    std::vector<std::int64_t> const few{99, 0, 17, 3};
    CHECK(rows_are_initial(other, few, locate(exec, other, few)));

    auto const first_row_with = [&](tessera::table_options const& changed, std::int64_t id) {
      Store changed_store(exec, changed, tessera::sgd{});
      auto const slot = locate(exec, changed_store, {id})[0];
      return row_of(changed_store, slot);
    };
    auto const here = first_row_with(options, 1);
    auto changed = options;
    CHECK(same_bits(here, first_row_with(changed, 1)));
    CHECK_FALSE(same_bits(here, first_row_with(changed, 2)));
    changed.seed = tessera::random_seed(options.seed.value + 1);
    CHECK_FALSE(same_bits(here, first_row_with(changed, 1)));
    changed.seed = tessera::random_seed(options.seed.value + (std::uint64_t{1} << 32));
    CHECK_FALSE(same_bits(here, first_row_with(changed, 1)));
    changed = options;
    changed.id = tessera::table_id(6);
    CHECK_FALSE(same_bits(here, first_row_with(changed, 1)));
    changed = options;
    changed.dim = 3;  // a narrower row is the beginning of a wider one
    auto const narrow = first_row_with(changed, 1);
    CHECK(narrow.size() == lead + 3);
    CHECK(std::equal(narrow.begin(), narrow.end(), here.begin()));
  }

  SUBCASE("initial elements are uniform within the bound") {
    Store store(exec, options, tessera::sgd{});
    auto const slots = locate(exec, store, ids);
    double sum = 0, squares = 0, neighbours = 0;
    bool inside = true;
    std::vector<int> bins(16);
    double const b = options.init_bound, n = static_cast<double>(ids.size()) * 7;
    for (auto const slot : slots) {
      auto const row = values_of_row(store, slot);
      for (std::size_t c = 0; c < 7; ++c) {
        auto const x = static_cast<double>(row[c]);
        inside = inside && x >= -b && (std::is_same_v<element, float> ? x < b : x <= b);  // the bound may be the nearest
        sum += x;
        squares += x * x;
        neighbours += x * static_cast<double>(row[(c + 1) % 7]);
        ++bins[static_cast<std::size_t>(std::clamp((x + b) / (2 * b) * 16, 0.0, 15.0))];
      }
    }
    CHECK(inside);
    // Six standard deviations of each estimate.
    CHECK(std::abs(sum / n) < 6 * b / std::sqrt(3 * n));
    CHECK(std::abs(squares / n - b * b / 3) < 6 * b * b * std::sqrt(4.0 / 45 / n));
    CHECK(std::abs(neighbours / n) < 6 * b * b / 3 / std::sqrt(n));
    if (sizeof(element) > 1)  // a byte has too few values for them to fall into the bins evenly
      for (auto const count : bins) CHECK(std::abs(count - n / 16) < 6 * std::sqrt(n / 16));
  }

  SUBCASE("a bound of 0 gives zeros") {
    options.init_bound = 0;
    Store store(exec, options, tessera::sgd{});
    for (auto const slot : locate(exec, store, {0, 5}))
      for (auto const x : values_of_row(store, slot)) CHECK(x == 0.0F);
  }

  SUBCASE("no ids") {
    Store store(exec, options, tessera::sgd{});
    auto const rows = store.rows();
    CHECK(locate(exec, store, {}).empty());
    CHECK(find(exec, store, {}).empty());
    CHECK(store.rows() == rows);
  }

  SUBCASE("locate finds again what it gave") {
    Store store(exec, options, many_states{});
    auto const slots = locate(exec, store, ids);
    CHECK(locate(exec, store, ids) == slots);
    CHECK(find(exec, store, ids) == slots);
    auto distinct = slots;
    std::sort(distinct.begin(), distinct.end());
    CHECK(std::adjacent_find(distinct.begin(), distinct.end()) == distinct.end());
    CHECK(distinct.front() == 0);
    CHECK(distinct.back() == static_cast<std::int64_t>(ids.size()) - 1);
    CHECK(store.rows() == static_cast<std::int64_t>(ids.size()));
    CHECK(store.slot_bound() == static_cast<std::int64_t>(ids.size()));
    std::size_t rows = 0, right = 0;
    auto seen = distinct;
    store.for_each_row([&](std::int64_t slot, std::int64_t id) {
      ++rows;
      right += std::exchange(seen.at(static_cast<std::size_t>(slot)), -1) == slot && find(exec, store, {id})[0] == slot;
    });
    CHECK(rows == ids.size());
    CHECK(right == ids.size());
  }

  SUBCASE("a new batch changes no row") {
    Store store(exec, options, many_states{});
    auto const slots = locate(exec, store, ids);
    if constexpr (requires { store.begin_batch(); })
      for (int batch = 0; batch < 3; ++batch) store.begin_batch();
    CHECK(find(exec, store, ids) == slots);
    CHECK(rows_are_initial(store, ids, slots));
    CHECK(locate(exec, store, ids) == slots);
  }

  SUBCASE("a repeated id has one row") {
    Store store(exec, options, tessera::sgd{});
    auto const draws = tessera_tests::random_integers<std::int64_t>(random, 5000, 0, 50);
    auto const slots = locate(exec, store, draws);
    for (std::size_t i = 0; i < draws.size(); ++i) {
      auto const first = static_cast<std::size_t>(std::find(draws.begin(), draws.end(), draws[i]) - draws.begin());
      REQUIRE(slots[i] == slots[first]);
    }
    CHECK(rows_are_initial(store, draws, slots));
  }

  SUBCASE("rows and states do not overlap") {
    Store store(exec, options, many_states{});
    auto const slots = locate(exec, store, ids);
    CHECK(rows_are_initial(store, ids, slots));
    auto const width = store.state_layout().width(store.dim());
    // No two neighbours are alike.
    auto const stamp = [](std::size_t i, std::int64_t c) { return stamped<element>((i * 37 + static_cast<std::size_t>(c) * 5) % 251); };
    auto const size_of_steps = [](std::size_t i) { return std::ldexp(1.0F, static_cast<int>(i % 200) - 100); };
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if constexpr (lead > 0) tessera::row_scale<element>{size_of_steps(i)}.write_to(store.row(slots[i]));
      for (std::int64_t c = 0; c < store.dim(); ++c) store.row(slots[i])[c] = stamp(i, c);
      for (std::int64_t c = 0; c < width; ++c) store.state(slots[i])[c] = static_cast<float>(i * 64) + static_cast<float>(c);
    }
    bool whole = true;
    auto const& held = std::as_const(store);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if constexpr (lead > 0) whole = whole && tessera::row_scale<element>::of(held.row(slots[i])).step == size_of_steps(i);
      for (std::int64_t c = 0; c < store.dim(); ++c) whole = whole && held.row(slots[i])[c] == stamp(i, c);
      for (std::int64_t c = 0; c < width; ++c)
        whole = whole && held.state(slots[i])[c] == static_cast<float>(i * 64) + static_cast<float>(c);
    }
    CHECK(whole);
    CHECK(locate(exec, store, ids) == slots);
    CHECK(held.row(slots[0])[0] == stamp(0, 0));
  }

  SUBCASE("rows of any width end before the next, whose scale is aligned") {
    for (std::int64_t const dim : {1, 3, 5, 127, 1030}) {
      CAPTURE(dim);
      options.dim = dim;
      options.rows = 30;
      Store store(exec, options, tessera::sgd{});
      std::vector<std::int64_t> few(30);
      std::iota(few.begin(), few.end(), 0);
      auto const slots = locate(exec, store, few);
      CHECK(rows_are_initial(store, few, slots));
      std::vector<std::vector<float>> rows(30);
      for (std::size_t i = 0; i < 30; ++i) {
        rows[i] = tessera_tests::random_floats(random, static_cast<std::size_t>(dim));
        for (auto& x : rows[i]) x *= std::ldexp(1.0F, static_cast<int>(i % 5));
        if (i == 7) std::fill(rows[i].begin(), rows[i].end(), 0.0F);
        set_row(store, slots[i], rows[i]);
      }
      for (std::size_t i = 0; i < 30; ++i) {
        CHECK(same_bits(values_of_row(store, slots[i]), stored<element>(rows[i])));
        if constexpr (lead > 0) CHECK(reinterpret_cast<std::uintptr_t>(store.row(slots[i]) - lead) % alignof(float) == 0);
      }
    }
  }

  SUBCASE("moved, it is the same store") {
    Store store(exec, options, tessera::rowwise_adagrad{});
    auto const slots = locate(exec, store, ids);
    auto const* const row = store.row(slots[0]);
    Store moved(std::move(store));
    CHECK(find(exec, moved, ids) == slots);
    CHECK(moved.row(slots[0]) == row);
    CHECK(rows_are_initial(moved, ids, slots));
  }

  SUBCASE("bytes are counted") {
    for (std::int64_t const rows : {0, 1, 9, 10, 1023, 1024, 1025, 5000}) {
      CAPTURE(rows);
      options.rows = rows;
      auto const before = host.memory().live_bytes();
      Store store(exec, options, many_states{});
      CHECK(store.bytes() == host.memory().live_bytes() - before);
      CHECK(store.bytes() == Store::bytes_for(options, store.state_layout()).total());
    }
    CHECK(host.memory().live_bytes() == 0);
  }

  SUBCASE("building fails whole") {
    host.memory().fail_after(1);
    CHECK_THROWS_AS(Store(exec, options, many_states{}), std::bad_alloc);
    CHECK(host.memory().live_bytes() == 0);
  }

  SUBCASE("options that cannot be are named") {
    auto const refused = [&](tessera::table_options const& wrong, char const* option) {
      try {
        Store store(exec, wrong, many_states{});
        FAIL_CHECK("accepted: " << option);
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::invalid_argument);
        CHECK_FALSE(e.value(option).empty());
        CHECK(e.value("table") == std::to_string(wrong.id.value));
      }
    };
    constexpr auto largest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t const dim : {std::int64_t{0}, std::int64_t{-1}, largest, std::int64_t{1} << 31}) {
      auto wrong = options;
      wrong.dim = dim;
      refused(wrong, "dim");
    }
    // Sizes whose product leaves 64 bits must not come out small.
    for (std::int64_t const rows : {std::int64_t{-1}, largest, std::int64_t{1} << 61, std::int64_t{1} << 62}) {
      auto wrong = options;
      wrong.dim = 8;
      wrong.rows = rows;
      refused(wrong, "rows");
    }
    for (float const bound : {-0.1F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      auto wrong = options;
      wrong.init_bound = bound;
      refused(wrong, "init_bound");
    }
    auto wrong_limit = options;
    wrong_limit.most_rows = options.rows - 1;
    refused(wrong_limit, "most_rows");
    auto wrong_flight = options;
    wrong_flight.batches_in_flight = 0;
    refused(wrong_flight, "batches_in_flight");
    for (std::int64_t const id : {std::int64_t{-1}, std::int64_t{1} << 32}) {
      auto wrong = options;
      wrong.id = tessera::table_id(id);
      refused(wrong, "id");
    }
    CHECK(host.memory().live_bytes() == 0);
  }

  SUBCASE("a checked build names a slot that the store does not have") {
    if constexpr (tessera::checked) {
      Store store(exec, options, many_states{});
      auto const slots = locate(exec, store, ids);
      auto const bound = store.slot_bound();
      auto const refused = [&](std::int64_t slot, auto const& call) {
        try {
          call();
          FAIL_CHECK("accepted: " << slot);
        } catch (tessera::error const& e) {
          CHECK(e.code() == tessera::errc::out_of_range);
          CHECK(e.value("table") == "5");
          CHECK(e.value("slot") == std::to_string(slot));
          CHECK(e.value("slot bound") == std::to_string(bound));
        }
      };
      for (std::int64_t const slot : {std::int64_t{-1}, bound, std::numeric_limits<std::int64_t>::max()}) {
        refused(slot, [&] { store.row(slot); });
        refused(slot, [&] { store.state(slot); });
        refused(slot, [&] { std::as_const(store).row(slot); });
        refused(slot, [&] { std::as_const(store).state(slot); });
      }
      CHECK(store.row(bound - 1) == std::as_const(store).row(bound - 1));
      CHECK(store.state(0) == std::as_const(store).state(0));
    }
  }

  SUBCASE("slots and statuses of another size are named") {
    Store store(exec, options, tessera::sgd{});
    auto const rows = store.rows();
    std::vector<std::int64_t> const three{1, 2, 3};
    std::vector<std::int64_t> two(2), right(3);
    std::vector<tessera::row_status> statuses(2);
    auto const refused = [&](auto const& call) {
      try {
        call();
        FAIL_CHECK("accepted");
      } catch (tessera::error const& e) {
        CHECK(e.code() == tessera::errc::shape_mismatch);
        CHECK(e.value("ids") == "3");
      }
    };
    refused([&] { store.locate(exec, three, two, {}); });
    refused([&] { store.locate(exec, three, right, statuses); });
    refused([&] { std::as_const(store).find(exec, three, two); });
    CHECK(store.rows() == rows);
  }
}

}  // namespace embed_tests
