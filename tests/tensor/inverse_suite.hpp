// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/select_rows.hpp>

#include "inverse_harness.hpp"

namespace tensor_tests {

inline std::int64_t values_in(model const& keys) {
  std::size_t values = 0;
  for (auto const& rows : keys)
    for (auto const& row : rows) values += row.values.size();
  return static_cast<std::int64_t>(values);
}

/// A view whose one group, of one key, has another inverse.
template <class View>
struct with_inverse {
  tessera::row_group group;
  View view;

  with_inverse(View of, std::int64_t const* inverse) : group{0, 1, inverse}, view(of) { view.groups = {&group, 1}; }
  with_inverse(with_inverse const&) = delete;
};

}  // namespace tensor_tests

/// What every execution must show of `expand`, with up to so many samples.
template <class Harness>
void expand_suite(Harness const& harness, std::size_t most_samples) {
  using namespace tensor_tests;
  auto const& exec = harness.exec;
  auto const host = harness.on_host();
  SUBCASE("what was made distinct comes back bit for bit, with names") {
    for_each_session_model(most_samples, [&](model const& content, ids const& keys_per_group, std::mt19937_64&) {
      auto const batch = batch_of<std::int32_t>(host, content, names_of(content.size()));
      auto const made = harness.put(tessera::deduplicate(host, batch, keys_per_group));
      auto const back = harness.get(tessera::expand(exec, made));
      CHECK((back == batch));
      check_batch(harness.get(tessera::expand(exec, made.view(), {.most_values = batch.room()})), content);
    });
  }
  SUBCASE("the first inverse that names no row is named; what waits") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host, {{"a", {{1}, {1}, {1}}}, {"b", {{2}, {}, {3}}}});
    auto const made = harness.put(tessera::deduplicate(host, batch, ids{1}));
    CHECK(waits_of(harness, 1, [&] { tessera::expand(exec, made); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::expand(exec, made, {.most_values = 5}); }) == 0);
    auto const wrong = harness.numbers(ids{0, -1, 1});
    with_inverse const spoilt(made.view(), wrong.data());
    CHECK(refusal_of(harness, [&] { return tessera::expand(exec, spoilt.view); }) ==
          "expand: no such row (key 0, sample 1, row -1, rows 1)");
  }
}

/// What every execution must show of `select_rows` of an IKJT, of up to so many samples.
template <class Harness>
void select_samples_suite(Harness const& harness, std::size_t most_samples) {
  using namespace tensor_tests;
  auto const& exec = harness.exec;
  auto const host = harness.on_host();
  SUBCASE("selected samples keep the rows that they have, distinct again, in the order of their first sample") {
    for_each_session_model(most_samples, [&](model const& content, ids const& keys_per_group, std::mt19937_64& random) {
      if (content.empty()) return;
      auto const samples = content[0].size();
      auto const made = harness.put(tessera::deduplicate(host, batch_of<std::int32_t>(host, content), keys_per_group));
      for (std::size_t const count : {std::size_t{0}, samples / 3, 2 * samples}) {
        ids indices;
        model picked(content.size());
        for (std::size_t i = 0; i < count; ++i) {
          indices.push_back(static_cast<std::int64_t>(random() % samples));
          for (std::size_t key = 0; key < content.size(); ++key)
            picked[key].push_back(content[key][static_cast<std::size_t>(indices.back())]);
        }
        auto const placed_indices = harness.numbers(indices);
        auto const expected = naive_deduplicate(picked, keys_per_group);
        auto const selected = tessera::select_rows(exec, made, placed_indices);
        CHECK(get_inverse(harness, selected) == expected);
        CHECK(selected.view().distinct.room == values_in(expected.distinct));
        CHECK(get_inverse(harness, tessera::select_rows(exec, made.view(), placed_indices, {.most_values = 100'000})) == expected);
      }
    });
  }
  SUBCASE("names stay; one wait; the first sample that is not there is named") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host, {{"a", {{1}, {1}, {2}}}, {"b", {{1}, {}, {3, 4}}}});
    auto const made = harness.put(tessera::deduplicate(host, batch, ids{1}));
    auto const indices = harness.numbers(ids{2, 0, 2});
    auto const selected = tessera::select_rows(exec, made, indices);
    CHECK(selected.keys() == names{"a", "b"});
    CHECK(text(harness.get(tessera::expand(exec, selected))) == "{a: [[2], [1], [2]], b: [[3, 4], [1], [3, 4]]}");
    CHECK(waits_of(harness, 1, [&] { tessera::select_rows(exec, made, indices); }) == 1);
    auto const refused = [&](auto const& view, ids const& which, tessera::result_room room = {}) {
      auto const numbers = harness.numbers(which);
      return refusal_of([&] { get_inverse(harness, tessera::select_rows(exec, view, numbers, room)); });
    };
    CHECK(refused(made.view(), {0, 3, -1}) == "select_rows: no such sample (position 1, index 3, samples 3)");
    CHECK(refused(made.view(), {0, 1, -1}) == "select_rows: no such sample (position 2, index -1, samples 3)");
    CHECK(refused(made.view(), {2, 2}, {.most_values = 4}) ==
          "select_rows: more values than the result was given room for (values 5, room 4)");
    auto const wrong = harness.numbers(ids{0, 2, 1});
    with_inverse const spoilt(made.view(), wrong.data());
    CHECK(refused(spoilt.view, {0, 1}) == "select_rows: an inverse names no row (group 0, sample 1, row 2, rows 2)");
    auto const none = harness.put(tessera::deduplicate(host, batch, ids{}));
    CHECK(refused(none.view(), {0, 5}) == "select_rows: no such row (key 0, position 1, index 5, rows 3)");
  }
}
