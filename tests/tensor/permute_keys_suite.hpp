// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/permute_keys.hpp>

#include "rows_harness.hpp"

/// What every execution must show.
template <class Harness>
void permute_keys_suite(Harness const& harness) {
  using namespace tensor_tests;
  auto const& exec = harness.exec;
  auto const permuted = [&](auto const& in, ids const& order, tessera::result_room room = {}) {
    return harness.get(tessera::permute_keys(exec, in, order, room));
  };

  SUBCASE("keys in any order, left out and again") {
    for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
      for (std::size_t const count : {std::size_t{0}, keys.size(), 2 * keys.size() + 1}) {
        if (keys.empty() && count > 0) continue;
        auto const order = tessera_tests::random_integers<std::int64_t>(random, count, 0, static_cast<std::int64_t>(keys.size()) - 1);
        model expected;
        for (auto const key : order) expected.push_back(keys[static_cast<std::size_t>(key)]);
        auto const result = permuted(view, order);
        check_batch(result, expected);
        check_batch(permuted(view, order, {.most_values = result.view().size()}), expected);
      }
      ids all(keys.size());
      std::iota(all.begin(), all.end(), 0);
      check_batch(permuted(view, all), keys);
      check_bytes(harness, view, host_view, [&](auto in) { return tessera::permute_keys(exec, in, all); });
    });
  }
  SUBCASE("permutations compose, and the inverse undoes them: it is the backward") {
    for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
      ids p(keys.size()), q, both, inverse(keys.size());
      std::iota(p.begin(), p.end(), 0);
      q = p;
      std::shuffle(p.begin(), p.end(), random);
      std::shuffle(q.begin(), q.end(), random);
      for (auto const i : q) both.push_back(p[static_cast<std::size_t>(i)]);
      for (std::size_t i = 0; i < p.size(); ++i) inverse[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
      auto const once = tessera::permute_keys(exec, view, p);
      CHECK(equal(permuted(once.view(), q).view(), permuted(view, both).view()));
      CHECK(equal(permuted(once.view(), inverse).view(), host_view));
    });
  }
  auto const batch = named_batch_in(harness);
  SUBCASE("names travel with their keys") {
    CHECK(text(permuted(batch, ids{1, 0})) ==
          "{item: [[5, 6], [7]] weights [[5, 6], [7]], user: [[1, 2, 3], [], [4]] weights [[1, 2, 3], [], [4]]}");
    CHECK(text(permuted(batch, ids{1})) == "{item: [[5, 6], [7]] weights [[5, 6], [7]]}");
    CHECK(text(permuted(batch, ids{})) == "{}");
    auto const e = error_of([&] { permuted(batch, ids{1, 0, 1}); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("key") == "item");
    auto const unnamed = tessera::permute_keys(exec, batch.view(), ids{1, 0, 1});
    CHECK(permuted(unnamed, ids{2, 2}).keys().empty());
  }
  SUBCASE("a key that is none is refused at once") {
    for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{2}, INT64_MIN, INT64_MAX}) {
      auto const e = error_of([&] { tessera::permute_keys(exec, batch.view(), ids{0, wrong}); });
      CHECK(e.code() == tessera::errc::out_of_range);
      CHECK(e.value("position") == "1");
      CHECK(e.value("key") == std::to_string(wrong));
      CHECK(e.value("keys") == "2");
    }
  }
  SUBCASE("values past an offset are refused") {
    ids const first_row{0, 1};
    auto const offsets = harness.numbers(std::vector<std::int32_t>{0, 1 << 30});
    auto const values = harness.numbers(floats{0});
    tessera::keyed_jagged_view<float const, std::int32_t> const large{values.data(), nullptr, offsets.data(), first_row.data(), 1};
    for (tessera::result_room const room : {tessera::result_room{}, tessera::result_room{.most_values = 0}})
      CHECK(refusal_of(harness,
                       [&] {
                         return tessera::permute_keys(exec, large, ids{0, 0}, room);
                       }) ==
            "permute_keys: the values do not fit into an offset (values 1073741824, values before 1073741824, largest offset 2147483647)");
  }
  SUBCASE("more values than told are refused, as many are not") {
    check_room(harness, "permute_keys", 11, [&](auto room) { return tessera::permute_keys(exec, batch.view(), ids{0, 1, 0}, room); });
  }
  SUBCASE("waits only for what nobody said") {
    auto const view = batch.view();
    CHECK(waits_of(harness, 0, [&] { tessera::permute_keys(exec, view, ids{1, 0}); }) == 0);
    CHECK(waits_of(harness, 0, [&] { tessera::permute_keys(exec, view, ids{1}); }) == 0);
    CHECK(waits_of(harness, 1, [&] { tessera::permute_keys(exec, view, ids{1, 1}); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::permute_keys(exec, view, ids{1, 1}, {.most_values = 6}); }) == 0);
    CHECK(waits_of(harness, 1, [&] { tessera::permute_keys(exec, without_room(view), ids{1}); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::permute_keys(exec, without_room(view), ids{1}, {.most_values = 6}); }) == 0);
  }
}
