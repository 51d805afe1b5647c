// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/slice_rows.hpp>

#include "rows_harness.hpp"

namespace concat_tests {

using namespace tensor_tests;
using tessera::keyed_jagged;

// Keys one batch after the other; slicing them back is the backward.
template <class Harness>
void batches_of_keys(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    using view_type = decltype(view);
    auto const count = static_cast<std::int64_t>(keys.size());
    auto const cut = static_cast<std::int64_t>(random() % (keys.size() + 1));
    std::vector<view_type> const parts{view.slice_keys(0, cut), view.slice_keys(cut, 0), view.slice_keys(cut, count - cut)};
    check_batch(harness.get(tessera::concat_keys(exec, parts)), keys);
    check_batch(harness.get(tessera::concat_keys(exec, parts, {.most_values = host_view.size()})), keys);
    auto expected = keys;
    expected.insert(expected.end(), keys.begin(), keys.end());
    auto const twice = harness.get(tessera::concat_keys(exec, std::array<view_type, 2>{view, view}));
    check_batch(twice, expected);
    CHECK(equal(twice.view().slice_keys(count, count), host_view));
    check_bytes(harness, view, host_view, [&](auto in) { return tessera::concat_keys(exec, std::vector<decltype(in)>{in, in}); });
  });
}

// Rows one batch after the other, key by key; slicing them back is the backward.
template <class Harness>
void batches_of_rows(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto view, auto host_view, model const& keys, std::mt19937_64& random) {
    using view_type = decltype(view);
    ids first, cut, zero(keys.size(), 0), rest;
    for (auto const& rows : keys) {
      cut.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1)));
      rest.push_back(static_cast<std::int64_t>(rows.size()) - cut.back());
    }
    auto const top = tessera::slice_rows(exec, view, zero, cut), bottom = tessera::slice_rows(exec, view, cut, rest);
    auto const joined = tessera::concat_rows(exec, std::vector<view_type>{top.view(), bottom.view()});
    CHECK(equal(harness.get(tessera::slice_rows(exec, joined.view(), cut, rest)).view(),
                harness.get(tessera::slice_rows(exec, view, cut, rest)).view()));
    check_batch(harness.get(tessera::concat_rows(exec, std::vector<view_type>{joined.view()})), keys);
    auto expected = keys;
    for (std::size_t key = 0; key < keys.size(); ++key) {
      expected[key].insert(expected[key].end(), keys[key].begin(), keys[key].end());
      expected[key].insert(expected[key].end(), keys[key].begin(), keys[key].end());
    }
    check_batch(harness.get(tessera::concat_rows(exec, std::vector<view_type>{view, view, view})), expected);
    // Of one feature.
    std::vector<decltype(view.flat())> parts;
    for (std::int64_t key = 0; key < view.keys; ++key) parts.push_back(view.key(key));
    auto const flat = harness.get(tessera::concat_rows(exec, parts));
    tessera::validate(flat.view(), flat.size());
    CHECK(equal(flat.view(), host_view.flat()));
  });
}

template <class Harness>
void split(Harness const& harness) {
  auto const& exec = harness.exec;
  for_each_batch_of(harness, [&](auto, auto host_view, model const& keys, std::mt19937_64& random) {
    using offset = std::remove_cvref_t<decltype(host_view.offsets[0])>;
    auto const given = batch_of<offset>(harness.on_host(), keys, names_of(keys.size()));
    auto const& whole = harness.put(given);
    ids counts{0};
    for (std::size_t left = keys.size(); left > 0; left -= static_cast<std::size_t>(counts.back()))
      counts.push_back(static_cast<std::int64_t>(1 + random() % left));
    auto parts = tessera::split_keys(exec, whole, counts);
    REQUIRE(parts.size() == counts.size());
    std::vector<std::remove_cvref_t<decltype(whole)> const*> inputs;
    for (auto const& part : parts) inputs.push_back(&part);
    CHECK(harness.get(tessera::concat_keys(exec, inputs)) == given);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      CHECK(static_cast<std::int64_t>(parts[i].keys().size()) == counts[i]);
      CHECK(equal(harness.get(std::move(parts[i])).view(), host_view.slice_keys(first, counts[i])));
      first += counts[i];
    }
  });
}

template <class Harness>
void key_names(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const a = named_batch_in(harness), b = batch_in(harness, {{"ad", {{8}}, {{8}}}}), empty = batch_in(harness, {{"nothing", {{}}}});
  auto const unnamed = harness.put(keyed_jagged<>::from_lengths(harness.on_host(), {}, ids{9}, ids{1}, ids{1}, floats{9}));
  using inputs = std::vector<decltype(&a)>;
  CHECK(tessera::concat_keys(exec, inputs{&a, &b}).keys() == names{"user", "item", "ad"});
  CHECK(text(harness.get(tessera::concat_keys(exec, inputs{&b, &empty}))) == "{ad: [[8]] weights [[8]], nothing: [[]] weights [[]]}");
  CHECK(tessera::concat_keys(exec, inputs{&a, &unnamed}).keys().empty());
  CHECK(text(harness.get(tessera::concat_keys(exec, inputs{}))) == "{}");
  auto e = error_of([&] { tessera::concat_keys(exec, inputs{&a, &b, &a}); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("key") == "user");

  CHECK(text(harness.get(tessera::concat_rows(exec, inputs{&b, &b}))) == "{ad: [[8], [8]] weights [[8], [8]]}");
  CHECK(text(harness.get(tessera::concat_rows(exec, inputs{}))) == "{}");
  e = error_of([&] { tessera::concat_rows(exec, inputs{&a, &a, &b}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(std::string(e.what()) == "concat_rows: inputs differ in keys (key user, input 2, its key ad)");
  e = error_of([&] { tessera::concat_rows(exec, inputs{&b, &unnamed}); });
  CHECK(e.value("its key") == "none");
}

template <class Harness>
void refusals(Harness const& harness) {
  auto const& exec = harness.exec;
  auto const weighted = batch_in(harness, {{"a", {{1}}, {{1}}}}), plain = batch_in(harness, {{"b", {{1}}}});
  auto const two = batch_in(harness, {{"a", {{1}}}, {"b", {{1}}}});
  using views = std::vector<tessera::keyed_jagged_view<std::int64_t const>>;
  for (int rows = 0; rows < 2; ++rows) {
    auto const e = error_of([&] {
      views const inputs{plain.view().slice_keys(0, 0), plain.view(), weighted.view()};
      if (rows == 0) tessera::concat_keys(exec, inputs);
      if (rows == 1) tessera::concat_rows(exec, views{inputs[1], inputs[2]});
    });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("input") == (rows == 0 ? "1" : "0"));
    CHECK(e.value("other input") == (rows == 0 ? "2" : "1"));
  }
  auto e = error_of([&] { tessera::concat_rows(exec, views{plain.view(), two.view()}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("input") == "1");
  CHECK(e.value("its keys") == "2");
  e = error_of([&] { tessera::split_keys(exec, two, ids{1}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  e = error_of([&] { tessera::split_keys(exec, two, ids{3, -1}); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("part") == "0");
  CHECK(error_of([&] { tessera::split_keys(exec, two, ids{1, -1, 2}); }).value("part") == "1");
  views const both{two.view(), two.view()};
  std::vector<tessera::jagged_view<std::int64_t const>> const features{two.view().flat(), two.view().flat()};
  check_room(harness, "concat_keys", 4, [&](tessera::result_room room) { return tessera::concat_keys(exec, both, room); });
  check_room(harness, "concat_rows", 4, [&](tessera::result_room room) { return tessera::concat_rows(exec, both, room); });
  check_room(harness, "concat_rows", 4, [&](tessera::result_room room) { return tessera::concat_rows(exec, features, room); });
  views const unsaid{without_room(two.view()), two.view()};
  CHECK(waits_of(harness, 0, [&] { tessera::concat_keys(exec, both); }) == 0);
  CHECK(waits_of(harness, 0, [&] { tessera::concat_rows(exec, both); }) == 0);
  CHECK(waits_of(harness, 0, [&] { tessera::concat_rows(exec, features); }) == 0);
  CHECK(waits_of(harness, 1, [&] { tessera::concat_keys(exec, unsaid); }) == 1);
  CHECK(waits_of(harness, 0, [&] { tessera::concat_keys(exec, unsaid, {.most_values = 4}); }) == 0);
}

}  // namespace concat_tests

/// What every execution must show.
template <class Harness>
void concat_suite(Harness const& harness) {
  using namespace concat_tests;
  SUBCASE("keys") { batches_of_keys(harness); }
  SUBCASE("rows") { batches_of_rows(harness); }
  SUBCASE("split then concatenated is the same") { split(harness); }
  SUBCASE("names") { key_names(harness); }
  SUBCASE("what does not fit together is refused") { refusals(harness); }
}
