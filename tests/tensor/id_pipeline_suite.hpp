// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/id_pipeline.hpp>

#include "inverse_harness.hpp"

namespace id_pipeline_tests {

using namespace tensor_tests;

struct plus_one {
  TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept { return id + 1; }
};
struct plus_key {
  TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t key, std::int64_t id) const noexcept { return id + 1000 * key; }
};

/// The batch with f(key, id) in the place of each id.
template <class F>
model replaced(model batch, F const& f) {
  for (std::size_t key = 0; key < batch.size(); ++key)
    for (auto& row : batch[key])
      for (auto& id : row.values) id = f(key, id);
  return batch;
}

inline model cut(model batch, std::size_t key, std::size_t most) {
  for (auto& row : batch[key]) {
    auto const surplus = static_cast<std::ptrdiff_t>(row.values.size() - std::min(row.values.size(), most));
    row.values.erase(row.values.begin(), row.values.begin() + surplus);
    if (!row.weights.empty()) row.weights.erase(row.weights.begin(), row.weights.begin() + surplus);
  }
  return batch;
}

/// One key with these ids, through one step.
template <class Harness, class Step>
ids through(Harness const& harness, ids const& given, Step const& step) {
  tessera::id_pipeline const pipeline(harness.exec, names{"a"}, step);
  return model_of(harness.get(pipeline(harness.exec, batch_in(harness, {{"a", {given}}}))).view())[0][0].values;
}

template <class Harness>
void transforms_by_hand(Harness const& harness) {
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  CHECK(through(harness, {-4, -3, -1, 0, 2, 3, least, most}, tessera::modulo_ids{.size = 3}) == ids{2, 0, 2, 0, 2, 0, 1, 1});
  CHECK(through(harness, {least, -1, 0, 5, most}, tessera::modulo_ids{.size = most}) == ids{most - 1, most - 1, 0, 5, 0});
  CHECK(through(harness, {-1, 0, most}, tessera::modulo_ids{.size = 1}) == ids{0, 0, 0});
  CHECK(through(harness, {least, -2, 3, 4, 5, most}, tessera::clip_ids{.least = -2, .most = 4}) == ids{-2, -2, 3, 4, 4, 4});
  CHECK(through(harness, {least, 9, 10, 11, 19, 20, most}, tessera::bin_ids{.boundaries = {10, 11, 20}}) == ids{0, 0, 1, 2, 2, 3, 3});
  CHECK(through(harness, {5, 6}, tessera::bin_ids{}) == ids{0, 0});
  CHECK(through(harness, {7, -3, 8, most, 0}, tessera::map_ids{.ids = {most, 7, -3}, .otherwise = 9}) == ids{1, 2, 9, 0, 9});
  CHECK(through(harness, {7}, tessera::map_ids{}) == ids{-1});
  CHECK(through(harness, {1, 2, 3}, tessera::truncate_ids{.most = 2}) == ids{2, 3});
  CHECK(through(harness, {1, 2, 3}, tessera::truncate_ids{.most = 2, .kept = tessera::kept_values::first}) == ids{1, 2});
  CHECK(through(harness, {1, 2, 3}, plus_one{}) == ids{2, 3, 4});
}

// Each of some rows is met about as often as any other, and the key's name and the seed decide which ids fall together.
template <class Harness>
void hashes(Harness const& harness) {
  auto const& exec = harness.exec;
  ids many(20000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i) - 10000;
  auto const batch = batch_in(harness, {{"a", {many}}, {"b", {many}}, {"c", {many}}});
  tessera::id_pipeline const pipeline(exec, names{"a", "b", "c"}, tessera::hash_ids{.size_per_key = {10, 10, 1}});
  auto const out = model_of(harness.get(pipeline(exec, batch)).view());
  for (std::size_t key = 0; key < 3; ++key) {
    ids met(key == 2 ? 1 : 10);
    for (auto const id : out[key][0].values) {
      REQUIRE((id >= 0 && id < static_cast<std::int64_t>(met.size())));
      ++met[static_cast<std::size_t>(id)];
    }
    for (auto const count : met) CHECK(std::abs(count - 20000 / static_cast<std::int64_t>(met.size())) < 300);  // 7 deviations
  }
  std::size_t together = 0;
  for (std::size_t i = 0; i < many.size(); ++i) together += out[0][0].values[i] == out[1][0].values[i];
  CHECK(std::abs(static_cast<std::int64_t>(together) - 2000) < 300);

  // By the name, wherever the key stands.
  tessera::id_pipeline const other_order(exec, names{"b", "c", "a"}, tessera::hash_ids{.size_per_key = {10, 1, 10}});
  auto const moved = model_of(harness.get(other_order(exec, batch.view())).view());
  CHECK(moved[0] == out[1]);
  CHECK(moved[2] == out[0]);
  tessera::id_pipeline const other_seed(exec, names{"a", "b", "c"}, tessera::hash_ids{.size = 10, .seed = 1});
  CHECK(model_of(harness.get(other_seed(exec, batch)).view())[0] != out[0]);

  // All as if they were "b", whose rows stay what they are.
  tessera::id_pipeline const shared(exec, names{"a", "b", "c"}, tessera::on_keys({"a", "b"}, tessera::hash_ids{.size = 10, .as_key = "b"}),
                                    tessera::on_keys({"c"}, tessera::hash_ids{.size = 10, .as_key = "b"}));
  auto const alike = model_of(harness.get(shared(exec, batch)).view());
  for (auto const& key : alike) CHECK(key == out[1]);
}

// Tables that were trained stay right: an id's row never changes.
template <class Harness>
void hashes_stay(Harness const& harness) {
  constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  ids const given{0, 1, -1, 42, least, most};
  CHECK(through(harness, given, tessera::hash_ids{.size = 1'000'000'007}) ==
        ids{79056116, 553529119, 882428453, 111908291, 939059075, 540468238});
  CHECK(through(harness, given, tessera::hash_ids{.size = 1'000'000'007, .seed = 5}) ==
        ids{32545183, 386251453, 255651610, 894971560, 282358807, 553489103});
}

// Several steps for several keys, on every kind of batch and its IKJT, as a view and as an owner that is kept or given away.
template <class Harness>
void pipelines(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_session_model(400, [&](model const& content, ids const& keys_per_group, std::mt19937_64&) {
    if (content.empty()) return;
    auto const keys = names_of(content.size());
    auto const last = keys.size() - 1;
    tessera::id_pipeline const pipeline(
        exec, keys, tessera::on_keys({keys[last]}, tessera::truncate_ids{.most = 2}), tessera::modulo_ids{.size = 100},
        tessera::except_keys({keys[0]}, plus_key{}),
        tessera::on_keys({keys[last]},
                         [](auto const& on, auto view) { return tessera::truncate_rows(on, view, 1, tessera::kept_values::last); }),
        tessera::on_keys({}, tessera::hash_ids{.size = 2}), plus_one{});
    auto const expect = [&](model const& of) {
      auto const one = replaced(cut(of, last, 2), [&](std::size_t key, std::int64_t id) {
        return id % 100 + (key == 0 ? 0 : 1000 * static_cast<std::int64_t>(key)) + 1;
      });
      return cut(one, last, 1);
    };
    auto const given = batch_of<std::int32_t>(harness.on_host(), content, keys);
    {
      auto const& batch = harness.put(given);
      check_batch(harness.get(pipeline(exec, batch.view())), expect(content));
      auto const owned = harness.get(pipeline(exec, batch));
      CHECK(owned.keys() == keys);
      CHECK(model_of(owned.view()) == expect(content));
      auto own = tessera::concat_keys(exec, std::vector{batch.view()}).named(keys);
      auto const moved = harness.get(pipeline(exec, std::move(own)));
      CHECK(moved.keys() == keys);
      CHECK(model_of(moved.view()) == expect(content));
      CHECK(model_of(harness.get(pipeline(exec, batch)).view()) == expect(content));  // it is as it was
    }
    auto const inverse = tessera::deduplicate(harness.on_host(), given, keys_per_group);
    auto const& placed = harness.put(inverse);
    auto expected = naive_deduplicate(content, keys_per_group);
    expected.distinct = expect(expected.distinct);
    CHECK(get_inverse(harness, pipeline(exec, placed.view())) == expected);
    auto const named = pipeline(exec, harness.put(inverse));
    CHECK(get_inverse(harness, named) == expected);
  });
}

// Functions alone write into the memory of an owner that is given away.
template <class Harness>
void in_place(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const given = tessera::keyed_jagged<>::from_rows(harness.on_host(), {{"a", {{1, 2}, {1, 2}, {3}}}, {"b", {{4}, {}, {5, 6}}}});
  tessera::id_pipeline const pipeline(exec, names{"a", "b"}, tessera::on_keys({"b"}, plus_one{}), tessera::clip_ids{.most = 5});
  auto own = tessera::concat_keys(exec, std::vector{harness.put(given).view()}).named({"a", "b"});
  auto const* const memory = own.view().values;
  auto const out = pipeline(exec, std::move(own));
  CHECK(out.view().values == memory);
  CHECK(text(harness.get(pipeline(exec, harness.put(given)))) == "{a: [[1, 2], [1, 2], [3]], b: [[5], [], [5, 5]]}");

  auto const inverse = tessera::deduplicate(harness.on_host(), given, ids{1});
  tessera::id_pipeline const none(exec, names{"a", "b"});
  auto copy = none(exec, harness.put(inverse).view());
  CHECK(get_inverse(harness, copy) == model_of(inverse.view()));
  auto const* const values = copy.view().distinct.values;
  auto const* const numbers = copy.view().groups[0].inverse;
  auto const moved = pipeline(exec, std::move(copy));
  CHECK(moved.view().distinct.values == values);
  CHECK(moved.view().groups[0].inverse == numbers);
  CHECK(get_inverse(harness, moved).distinct == model{{{{1, 2}, {}}, {{3}, {}}}, {{{5}, {}}, {{}, {}}, {{5, 5}, {}}}});
  // A part of a batch: the keys behind the first.
  tessera::id_pipeline const of_b(exec, names{"b"}, plus_one{});
  CHECK(model_of(harness.get(of_b(exec, harness.put(given).view().slice_keys(1, 1))).view()) == model{{{{5}, {}}, {{}, {}}, {{6, 7}, {}}}});
}

// Distinct rows that a function makes equal stay apart.
template <class Harness>
void rows_that_become_equal(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const given = tessera::keyed_jagged<>::from_rows(harness.on_host(), {{"a", {{1, 2}, {3, 4}, {1, 2}}}});
  auto const inverse = tessera::deduplicate(harness.on_host(), given, ids{1});
  tessera::id_pipeline const pipeline(exec, names{"a"}, tessera::modulo_ids{.size = 2});
  CHECK(get_inverse(harness, pipeline(exec, harness.put(inverse))) == inverse_model{{{{{1, 0}, {}}, {{1, 0}, {}}}}, {{0, 1, 0}}});
}

template <class Harness>
void narrow_ids(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const batch = batch_in<std::int8_t>(harness, {{"a", {{1, 2}}}, {"b", {{}, {126, 127, 5}}}});
  tessera::id_pipeline const pipeline(exec, names{"a", "b"}, plus_one{});
  CHECK(refusal_of(harness, [&] { return pipeline(exec, batch); }) ==
        "transform_ids: what becomes of an id does not fit its type (key 1, id 127, result 128)");
  tessera::id_pipeline const hashed(exec, names{"a", "b"}, tessera::hash_ids{.size = 128});
  CHECK(harness.get(hashed(exec, batch)).view().size() == 5);
}

// Unsigned ids have no -1, though its bits fit.
template <class Harness>
void unsigned_ids(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const least_of = [&](auto id, std::int64_t least) {
    using value = decltype(id);
    auto const batch = batch_in<value>(harness, {{"a", {{id}, {}}}});
    tessera::id_pipeline const clipped(exec, names{"a"}, tessera::clip_ids{.least = least, .most = least});
    return refusal_of(harness, [&] { return clipped(exec, batch); });
  };
  auto const refused = std::string("transform_ids: what becomes of an id does not fit its type (key 0, id 3, result -1)");
  CHECK(least_of(std::uint64_t{3}, -1) == refused);
  CHECK(least_of(std::uint32_t{3}, -1) == refused);
  auto const batch = batch_in<std::uint64_t>(harness, {{"a", {{7}, {std::uint64_t{1} << 63}}}});
  tessera::id_pipeline const hashed(exec, names{"a"}, tessera::hash_ids{.size = 100});
  auto const out = harness.get(hashed(exec, batch));
  for (auto const id : tessera::vector_view(out.view().values, 2)) CHECK(id < 100);
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const refused = [&](auto const& step) { return refusal_of([&] { tessera::id_pipeline(exec, names{"a", "b"}, step); }); };
  CHECK(refused(tessera::on_keys({"c"}, plus_one{})) == "id_pipeline: no such key (key c)");
  CHECK(refused(tessera::except_keys({"a", "a"}, plus_one{})) == "id_pipeline: a key twice (key a)");
  CHECK(refused(tessera::hash_ids{}) == "hash_ids: size (key 0, size 0, least 1)");
  CHECK(refused(tessera::hash_ids{.size_per_key = {1}}) == "hash_ids: one number a key (keys 2, numbers 1)");
  CHECK(refused(tessera::on_keys({"b"}, tessera::hash_ids{.size_per_key = {1}})) == "");
  CHECK(refused(tessera::modulo_ids{.size_per_key = {3, -1}}) == "modulo_ids: size (key 1, size -1, least 1)");
  CHECK(refused(tessera::clip_ids{.least = 1, .most = 0}) == "clip_ids: bounds out of order (least 1, most 0)");
  CHECK(refused(tessera::bin_ids{.boundaries = {1, 3, 3}}) == "bin_ids: boundaries do not ascend (position 2, boundary 3)");
  CHECK(refused(tessera::map_ids{.ids = {4, 5, 4}}) == "map_ids: an id twice (id 4)");
  CHECK(refused(tessera::hash_ids{.as_key = "c"}) == "hash_ids: size (key 0, size 0, least 1)");
  CHECK(refused(tessera::truncate_ids{.most = -1}) == "truncate_ids: most (key 0, most -1, least 0)");

  auto const batch = batch_in(harness, {{"a", {{1}, {2}}}, {"b", {{1}, {2}}}});
  tessera::id_pipeline const swapped(exec, names{"b", "a"}, plus_one{}), one(exec, names{"a"}, plus_one{});
  CHECK(refusal_of([&] { swapped(exec, batch); }) == "id_pipeline: a batch of other keys (key a, key of the pipeline b)");
  CHECK(refusal_of([&] { one(exec, batch.view()); }) == "id_pipeline: a batch of other keys (keys 2, keys of the pipeline 1)");
  tessera::id_pipeline const drops_keys(exec, names{"a", "b"}, [](auto const& on, auto view) {
    return tessera::truncate_rows(on, view.slice_keys(0, 1), 1, tessera::kept_values::last);
  });
  CHECK(refusal_of([&] { drops_keys(exec, batch); }) == "id_pipeline: a step of rows that keeps not the keys (keys 2, result 1)");
  tessera::id_pipeline const doubles_rows(exec, names{"a", "b"}, tessera::on_keys({"b"}, [](auto const& on, auto view) {
                                            return tessera::concat_rows(on, std::vector{view, view});
                                          }));
  CHECK(refusal_of([&] { doubles_rows(exec, batch); }) ==
        "id_pipeline: a step of rows that keeps not their number (key 1, rows 2, result 4)");

  // Groups that an IKJT cannot have.
  tessera::id_pipeline const pipeline(exec, names{"a", "b"}, plus_one{});
  auto const refused_group = [&](std::int64_t first_key, std::int64_t const* inverse, std::int64_t samples) {
    tessera::row_group const group{first_key, 1, inverse};
    tessera::inverse_keyed_jagged_view<std::int64_t const> const view{batch.view(), {&group, 1}, samples};
    return refusal_of([&] { pipeline(exec, view); });
  };
  auto const& inverse = harness.numbers(ids{1, 0});
  auto const* const numbers = tessera::vector_view<std::int64_t const>(inverse).data();
  CHECK(refused_group(0, nullptr, 2) == "id_pipeline: a group without an inverse (group 0)");
  CHECK(refused_group(1, numbers, 2) ==
        "id_pipeline: groups are one key or more each, in order (group 0, first key 1, keys 1, keys of all 2)");
  CHECK(refused_group(0, numbers, 1) == "id_pipeline: a key without a group has a row a sample (key 1, rows 2, samples 1)");
  CHECK(refused_group(0, numbers, -2) == "id_pipeline: samples (samples -2, least 0)");
}

}  // namespace id_pipeline_tests

/// What every execution must show.
template <class Harness>
void id_pipeline_suite(Harness const& harness) {
  using namespace id_pipeline_tests;
  SUBCASE("each transform, by hand") { transforms_by_hand(harness); }
  SUBCASE("hashes fill their table evenly, apart in each feature, by its name and the seed") { hashes(harness); }
  SUBCASE("hashes stay what they are") { hashes_stay(harness); }
  SUBCASE("unsigned ids stay from 0 on") { unsigned_ids(harness); }
  SUBCASE("pipelines over KJT and IKJT") { pipelines(harness); }
  SUBCASE("functions write in place") { in_place(harness); }
  SUBCASE("rows that become equal stay apart") { rows_that_become_equal(harness); }
  SUBCASE("ids that their type does not hold are refused") { narrow_ids(harness); }
  SUBCASE("options and batches that do not fit are refused by name") { refusals(harness); }
}
