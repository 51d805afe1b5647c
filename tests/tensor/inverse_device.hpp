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

#include "inverse_suite.hpp"

/// What a device makes of batches that repeat: the host's distinct rows, in its order.
namespace tensor_tests {

// All rows collide.
struct constant_share {
  TESSERA_HOST_DEVICE static constexpr std::uint64_t share(std::uint64_t, std::uint64_t, std::uint64_t) noexcept { return 0; }
};

template <class Exec, class Batch>
ids inverse_of(rows_on_device<Exec> const& harness, Batch const& batch) {
  return tessera_tests::get(harness.exec, batch.view().inverse(0));
}

template <class Offset, class Exec>
void deduplicate_like_host(rows_on_device<Exec> const& harness, model const& content, ids const& keys_per_group) {
  auto const& exec = harness.exec;
  auto const batch = batch_of<Offset>(harness.on_host(), content);
  auto const on_device = harness.put(batch);
  auto const expected = naive_deduplicate(content, keys_per_group);
  auto const made = tessera::deduplicate(exec, on_device.view(), keys_per_group);
  CHECK(get_inverse(harness, made) == expected);
  CHECK(made.view().distinct.room == values_in(expected.distinct));
  CHECK(get_inverse(harness, tessera::deduplicate(exec, without_room(on_device.view()), keys_per_group)) == expected);
  CHECK(get_inverse(harness, tessera::deduplicate(exec, on_device.view(), keys_per_group, {.most_values = batch.room()})) == expected);
  auto const colliding = tessera::detail::back_end<tessera::detail::deduplicate_tag, Exec>::template run<constant_share>(
      exec, on_device.view(), keys_per_group, {});
  CHECK(get_inverse(harness, colliding) == expected);
  CHECK(equal(harness.get(tessera::expand(exec, made.view())).view(), batch.view()));
}

template <class Exec>
void deduplicate_on_device(rows_on_device<Exec> const& harness) {
  auto const& exec = harness.exec;
  auto const host = harness.on_host();
  SUBCASE("distinct rows, whatever the hash, and back again") {
    for_each_session_model(400, [&](model const& content, ids const& keys_per_group, std::mt19937_64&) {
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
        host, {{"x", {{9}, {9}, {8}}}, {"b", {{3, 4}, {4}, {3, 4}}}, {"c", {{7, 8}, {7, 8}, {10}}}, {"d", {{9}, {}, {11}}}});
    auto const on_device = harness.put(batch);
    auto const made = tessera::deduplicate(exec, on_device.view().slice_keys(1, 3), ids{1, 1});
    CHECK(get_inverse(harness, made) == model_of(tessera::deduplicate(host, batch.view().slice_keys(1, 3), ids{1, 1}).view()));
    auto const named = tessera::deduplicate(exec, on_device, ids{2});
    CHECK(named.keys() == batch.keys());
    CHECK(text(harness.get(tessera::expand(exec, named))) == text(batch));
  }
  SUBCASE("values are compared by their bits, whatever their size") {
    auto const batch = tessera::keyed_jagged<float>::from_rows(host, {{"x", {{0.0F}, {-0.0F}, {NAN}, {NAN}, {0.0F}}}});
    CHECK(inverse_of(harness, tessera::deduplicate(exec, harness.put(batch).view(), ids{1})) == ids{0, 1, 2, 2, 0});
    auto const rows = tessera::keyed_jagged<>::from_rows(host, {{"x", {{1, 2}, {1}, {513, 2}, {1, 2}, {}, {2, 1}, {}}}});
    std::vector<three_bytes> values;
    for (auto const id : rows.view().flat().all_values()) values.push_back(bytes_of(id));
    auto const bytes = harness.numbers(values);
    auto const on_device = harness.put(rows);
    CHECK(inverse_of(harness, tessera::deduplicate(exec, on_device.view().with_values(bytes.data()), ids{1})) == ids{0, 1, 2, 0, 3, 4, 3});
  }
  SUBCASE("one wait, and the host's refusals") {
    auto const on_device = batch_in(harness, {{"a", {{1}, {1}, {2}}}, {"b", {{1}, {1}, {3, 4}}}});
    CHECK(waits_of(harness, 1, [&] { tessera::deduplicate(exec, on_device, ids{1, 1}); }) == 1);
    CHECK(waits_of(harness, 1, [&] { tessera::deduplicate(exec, without_room(on_device.view()), ids{2}); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::deduplicate(exec, on_device, ids{}, {.most_values = 7}); }) == 0);
    CHECK(refusal_of([&] { tessera::deduplicate(exec, on_device, ids{3}); }) ==
          "deduplicate: groups are one key or more each (group 0, keys 3, keys before 0, keys of all 2)");
    CHECK(refusal_of([&] {
            get_inverse(harness, tessera::deduplicate(exec, on_device, ids{1, 1}, {.most_values = 4}));
          }) == "deduplicate: more values than the result was given room for (values 5, room 4)");
  }
}

}  // namespace tensor_tests
