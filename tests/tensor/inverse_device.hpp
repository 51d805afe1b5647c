// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/deduplicate.cuh>
#include <tessera/tensor/expand.cuh>
#include <tessera/tensor/select_rows.cuh>

#include "inverse_harness.hpp"

/// What a device makes of IKJTs: the host's rows, in its order.
namespace tensor_tests {

// All rows collide.
struct constant_share {
  TESSERA_HOST_DEVICE static constexpr std::uint64_t share(std::uint64_t, std::uint64_t, std::uint64_t) noexcept { return 0; }
};

inline std::int64_t values_in(model const& keys) {
  std::size_t values = 0;
  for (auto const& rows : keys)
    for (auto const& row : rows) values += row.values.size();
  return static_cast<std::int64_t>(values);
}

template <class Exec, class Batch>
ids inverse_of(rows_on_device<Exec> const& harness, Batch const& batch) {
  return tessera_tests::get(harness.exec, batch.view().inverse(0));
}

template <class Offset, class Exec>
void deduplicate_like_host(rows_on_device<Exec> const& harness, model const& content, ids const& keys_per_group) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  auto const batch = batch_of<Offset>(host.exec(), content);
  auto const there = harness.put(batch);
  auto const expected = naive_deduplicate(content, keys_per_group);
  auto const made = tessera::deduplicate(exec, there.view(), keys_per_group);
  CHECK(get_inverse(harness, made) == expected);
  CHECK(made.view().distinct.room == values_in(expected.distinct));
  CHECK(get_inverse(harness, tessera::deduplicate(exec, without_room(there.view()), keys_per_group)) == expected);
  CHECK(get_inverse(harness, tessera::deduplicate(exec, there.view(), keys_per_group, {.most_values = batch.room()})) == expected);
  auto const colliding = tessera::detail::back_end<tessera::detail::deduplicate_tag, Exec>::template run<constant_share>(
      exec, there.view(), keys_per_group, {});
  CHECK(get_inverse(harness, colliding) == expected);
  CHECK(equal(harness.get(tessera::expand(exec, made.view())).view(), batch.view()));
}

template <class Exec>
void deduplicate_on_device(rows_on_device<Exec> const& harness) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  SUBCASE("distinct rows, whatever the hash, and back again") {
    for_each_session_model([&](model const& content, ids const& keys_per_group, std::mt19937_64&) {
      deduplicate_like_host<std::int64_t>(harness, content, keys_per_group);
      deduplicate_like_host<std::int32_t>(harness, content, keys_per_group);
    });
  }
  SUBCASE("long rows that differ in one place") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    model content(2);
    for (std::size_t i = 0; i < 60; ++i)
      for (auto& rows : content) {
        rows.push_back(i == 0 ? random_row(random, 700, true) : model_row(rows[random() % i]));
        auto const changed = random() % 1400;
        if (random() % 3 == 0 && changed < 700) rows.back().values[changed] ^= std::int64_t{1} << random() % 40;
        if (random() % 3 == 0 && changed >= 700) rows.back().weights[changed - 700] += 1;
      }
    deduplicate_like_host<std::int64_t>(harness, content, {2});
    deduplicate_like_host<std::int64_t>(harness, content, {1, 1});
  }
  SUBCASE("some keys of a batch") {
    auto const batch = tessera::keyed_jagged<>::from_rows(
        host.exec(), {{"x", {{9}, {9}, {8}}}, {"b", {{3, 4}, {4}, {3, 4}}}, {"c", {{7, 8}, {7, 8}, {10}}}, {"d", {{9}, {}, {11}}}});
    auto const there = harness.put(batch);
    auto const made = tessera::deduplicate(exec, there.view().slice_keys(1, 3), ids{1, 1});
    CHECK(get_inverse(harness, made) == model_of(tessera::deduplicate(host.exec(), batch.view().slice_keys(1, 3), ids{1, 1}).view()));
    auto const named = tessera::deduplicate(exec, there, ids{2});
    CHECK(named.keys() == batch.keys());
    CHECK(text(harness.get(tessera::expand(exec, named))) == text(batch));
  }
  SUBCASE("values are compared by their bits, whatever their size") {
    auto const batch = tessera::keyed_jagged<float>::from_rows(host.exec(), {{"x", {{0.0F}, {-0.0F}, {NAN}, {NAN}, {0.0F}}}});
    CHECK(inverse_of(harness, tessera::deduplicate(exec, harness.put(batch).view(), ids{1})) == ids{0, 1, 2, 2, 0});
    auto const rows = tessera::keyed_jagged<>::from_rows(host.exec(), {{"x", {{1, 2}, {1}, {513, 2}, {1, 2}, {}, {2, 1}, {}}}});
    std::vector<three_bytes> values;
    for (auto const id : rows.view().flat().all_values()) values.push_back(bytes_of(id));
    auto const bytes = harness.numbers(values);
    auto const there = harness.put(rows);
    CHECK(inverse_of(harness, tessera::deduplicate(exec, there.view().with_values(bytes.data()), ids{1})) == ids{0, 1, 2, 0, 3, 4, 3});
  }
  SUBCASE("one wait, and the host's refusals") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}, {2}}}, {"b", {{1}, {1}, {3, 4}}}});
    auto const there = harness.put(batch);
    CHECK(waits_of(harness, 1, [&] { tessera::deduplicate(exec, there, ids{1, 1}); }) == 1);
    CHECK(waits_of(harness, 1, [&] { tessera::deduplicate(exec, without_room(there.view()), ids{2}); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::deduplicate(exec, there, ids{}, {.most_values = 7}); }) == 0);
    CHECK(refusal_of([&] { tessera::deduplicate(exec, there, ids{3}); }) ==
          "deduplicate: groups are one key or more each (group 0, keys 3, keys before 0, keys of all 2)");
    CHECK(refusal_of([&] {
            get_inverse(harness, tessera::deduplicate(exec, there, ids{1, 1}, {.most_values = 4}));
          }) == "deduplicate: more values than the result was given room for (values 5, room 4)");
  }
}

template <class Exec>
void expand_on_device(rows_on_device<Exec> const& harness) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  SUBCASE("an IKJT of the host, with names") {
    for_each_session_model([&](model const& content, ids const& keys_per_group, std::mt19937_64&) {
      auto const batch = batch_of<std::int32_t>(host.exec(), content, names_of(content.size()));
      auto const there = put_inverse(harness, tessera::deduplicate(host.exec(), batch, keys_per_group));
      auto const back = harness.get(tessera::expand(exec, there));
      CHECK((back == batch));
      check_batch(harness.get(tessera::expand(exec, there.view(), {.most_values = batch.room()})), content);
    });
  }
  SUBCASE("the first inverse that names no row is named; what waits") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}, {1}}}, {"b", {{2}, {}, {3}}}});
    auto const there = put_inverse(harness, tessera::deduplicate(host.exec(), batch, ids{1}));
    CHECK(waits_of(harness, 1, [&] { tessera::expand(exec, there); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::expand(exec, there, {.most_values = 5}); }) == 0);
    auto const wrong = harness.numbers(ids{0, -1, 1});
    std::vector<tessera::row_group> const groups{{0, 1, wrong.data()}};
    auto view = there.view();
    view.groups = groups;
    CHECK(std::string(refusal(harness, [&] { return tessera::expand(exec, view); }).what()) ==
          "expand: no such row (key 0, sample 1, row -1, rows 1)");
  }
}

template <class Exec>
void select_samples_on_device(rows_on_device<Exec> const& harness) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  SUBCASE("samples of an IKJT keep the host's rows") {
    for_each_session_model([&](model const& content, ids const& keys_per_group, std::mt19937_64& random) {
      if (content.empty()) return;
      auto const samples = content[0].size();
      auto const made = tessera::deduplicate(host.exec(), batch_of<std::int32_t>(host.exec(), content), keys_per_group);
      auto const there = put_inverse(harness, made);
      for (std::size_t const count : {std::size_t{0}, samples / 3, 2 * samples}) {
        ids indices;
        for (std::size_t i = 0; i < count; ++i) indices.push_back(static_cast<std::int64_t>(random() % samples));
        auto const indices_there = harness.numbers(indices);
        auto const expected = model_of(tessera::select_rows(host.exec(), made, indices).view());
        auto const selected = tessera::select_rows(exec, there, indices_there);
        CHECK(get_inverse(harness, selected) == expected);
        CHECK(selected.view().distinct.room == values_in(expected.distinct));
        CHECK(get_inverse(harness, tessera::select_rows(exec, there.view(), indices_there, {.most_values = 100'000})) == expected);
      }
    });
  }
  SUBCASE("names stay; one wait; the first sample that is not there is named") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {1}, {2}}}, {"b", {{1}, {}, {3, 4}}}});
    auto const made = tessera::deduplicate(host.exec(), batch, ids{1});
    auto const there = put_inverse(harness, made);
    auto const indices = harness.numbers(ids{2, 0, 2});
    auto const selected = tessera::select_rows(exec, there, indices);
    CHECK(selected.keys() == names{"a", "b"});
    CHECK(text(harness.get(tessera::expand(exec, selected))) == "{a: [[2], [1], [2]], b: [[3, 4], [1], [3, 4]]}");
    CHECK(waits_of(harness, 1, [&] { tessera::select_rows(exec, there, indices); }) == 1);
    auto const refused = [&](auto const& view, ids const& which, tessera::result_room room = {}) {
      auto const numbers = harness.numbers(which);
      return refusal_of([&] { get_inverse(harness, tessera::select_rows(exec, view, numbers, room)); });
    };
    CHECK(refused(there.view(), {0, 3, -1}) == "select_rows: no such sample (position 1, index 3, samples 3)");
    CHECK(refused(there.view(), {0, 1, -1}) == "select_rows: no such sample (position 2, index -1, samples 3)");
    CHECK(refused(there.view(), {2, 2}, {.most_values = 4}) ==
          "select_rows: more values than the result was given room for (values 5, room 4)");
    auto const wrong = harness.numbers(ids{0, 2, 1});
    std::vector<tessera::row_group> const groups{{0, 1, wrong.data()}};
    auto view = there.view();
    view.groups = groups;
    CHECK(refused(view, {0, 1}) == "select_rows: an inverse names no row (group 0, sample 1, row 2, rows 2)");
    auto const none = put_inverse(harness, tessera::deduplicate(host.exec(), batch, ids{}));
    CHECK(refused(none.view(), {0, 5}) == "select_rows: no such row (key 0, position 1, index 5, rows 3)");
  }
}

}  // namespace tensor_tests
