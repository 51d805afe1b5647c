// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/slice_rows.hpp>

using namespace tensor_tests;
using tessera::keyed_jagged;

TEST_CASE("keys one batch after the other; slicing them back is the backward") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    using view_type = decltype(view);
    auto const count = static_cast<std::int64_t>(keys.size());
    auto const cut = static_cast<std::int64_t>(random() % (keys.size() + 1));
    std::vector<view_type> const parts{view.slice_keys(0, cut), view.slice_keys(cut, 0), view.slice_keys(cut, count - cut)};
    check_batch(tessera::concat_keys(exec, parts), keys);
    auto expected = keys;
    expected.insert(expected.end(), keys.begin(), keys.end());
    auto const twice = tessera::concat_keys(exec, std::array<view_type, 2>{view, view});
    check_batch(twice, expected);
    CHECK(equal(twice.view().slice_keys(count, count), view));
  });
}

TEST_CASE("rows one batch after the other, key by key; slicing them back is the backward") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    using view_type = decltype(view);
    ids first, cut, zero(keys.size(), 0), rest;
    for (auto const& rows : keys) {
      cut.push_back(static_cast<std::int64_t>(random() % (rows.size() + 1)));
      rest.push_back(static_cast<std::int64_t>(rows.size()) - cut.back());
    }
    auto const top = tessera::slice_rows(exec, view, zero, cut), bottom = tessera::slice_rows(exec, view, cut, rest);
    auto const joined = tessera::concat_rows(exec, std::vector<view_type>{top.view(), bottom.view()});
    check_batch(joined, keys);
    CHECK(equal(tessera::slice_rows(exec, joined.view(), cut, rest).view(), bottom.view()));
    auto expected = keys;
    for (std::size_t key = 0; key < keys.size(); ++key) {
      expected[key].insert(expected[key].end(), keys[key].begin(), keys[key].end());
      expected[key].insert(expected[key].end(), keys[key].begin(), keys[key].end());
    }
    check_batch(tessera::concat_rows(exec, std::vector<view_type>{view, view, view}), expected);
  });
}

TEST_CASE("rows of one feature") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const&, std::mt19937_64&) {
    using view_type = decltype(view.flat());
    std::vector<view_type> parts;
    for (std::int64_t key = 0; key < view.keys; ++key) parts.push_back(view.key(key));
    auto const joined = tessera::concat_rows(exec, parts);
    tessera::validate(joined.view(), joined.size());
    CHECK(equal(joined.view(), view.flat()));
  });
}

TEST_CASE("split then concatenated is the same") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    using batch = keyed_jagged<std::int64_t, std::remove_cvref_t<decltype(view.offsets[0])>>;
    auto const whole = batch_of<std::remove_cvref_t<decltype(view.offsets[0])>>(exec, keys, names_of(keys.size()));
    ids counts{0};
    for (std::size_t left = keys.size(); left > 0; left -= static_cast<std::size_t>(counts.back()))
      counts.push_back(static_cast<std::int64_t>(1 + random() % left));
    auto const parts = tessera::split_keys(exec, whole, counts);
    REQUIRE(parts.size() == counts.size());
    std::vector<batch const*> inputs;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      inputs.push_back(&parts[i]);
      CHECK(static_cast<std::int64_t>(parts[i].keys().size()) == counts[i]);
      CHECK(equal(parts[i].view(), view.slice_keys(first, counts[i])));
      first += counts[i];
    }
    CHECK(tessera::concat_keys(exec, inputs) == whole);
  });
}

TEST_CASE("names") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const a = named_batch(exec);
  auto const b = keyed_jagged<>::from_rows(exec, {{"ad", {{8}}, {{8}}}});
  auto const empty = keyed_jagged<>::from_rows(exec, {{"nothing", {{}}}});
  auto const unnamed = keyed_jagged<>::from_lengths(exec, {}, ids{9}, ids{1}, ids{1}, floats{9});
  using inputs = std::vector<keyed_jagged<> const*>;
  CHECK(tessera::concat_keys(exec, inputs{&a, &b}).keys() == names{"user", "item", "ad"});
  CHECK(text(tessera::concat_keys(exec, inputs{&b, &empty})) == "{ad: [[8]] weights [[8]], nothing: [[]] weights [[]]}");
  CHECK(tessera::concat_keys(exec, inputs{&a, &unnamed}).keys().empty());
  CHECK(text(tessera::concat_keys(exec, inputs{})) == "{}");
  auto e = error_of([&] { tessera::concat_keys(exec, inputs{&a, &b, &a}); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("key") == "user");

  CHECK(text(tessera::concat_rows(exec, inputs{&b, &b})) == "{ad: [[8], [8]] weights [[8], [8]]}");
  CHECK(text(tessera::concat_rows(exec, inputs{})) == "{}");
  e = error_of([&] { tessera::concat_rows(exec, inputs{&a, &a, &b}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(std::string(e.what()) == "concat_rows: inputs differ in keys (key user, input 2, its key ad)");
  e = error_of([&] { tessera::concat_rows(exec, inputs{&b, &unnamed}); });
  CHECK(e.value("its key") == "none");
}

TEST_CASE("what does not fit together is refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const weighted = keyed_jagged<>::from_rows(exec, {{"a", {{1}}, {{1}}}}), plain = keyed_jagged<>::from_rows(exec, {{"b", {{1}}}});
  auto const two = keyed_jagged<>::from_rows(exec, {{"a", {{1}}}, {"b", {{1}}}});
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
  if constexpr (tessera::checked) {
    ids const values{1, 2, 3}, offsets{0, 3, 1}, first_row{0, 2};
    views const inputs{plain.view(), {values.data(), nullptr, offsets.data(), first_row.data(), 1}};
    e = error_of([&] { tessera::concat_keys(exec, inputs); });
    CHECK(std::string(e.what()) == "concat_keys: inputs[1]: jagged: offsets decrease (row 1, offset 3, next offset 1)");
  }
}
