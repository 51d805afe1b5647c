// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/truncate_rows.hpp>

using namespace tensor_tests;
using tessera::kept_values;

namespace {

model_row cut(model_row row, std::int64_t most, kept_values kept) {
  auto const keep = [&](auto& values) {
    auto const surplus = std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(values.size()) - most);
    if (kept == kept_values::first) values.erase(values.end() - surplus, values.end());
    if (kept == kept_values::last) values.erase(values.begin(), values.begin() + surplus);
  };
  keep(row.values);
  keep(row.weights);
  return row;
}

}  // namespace

TEST_CASE("the first or the last values of every row") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    for (auto const kept : {kept_values::first, kept_values::last}) {
      for (std::int64_t const most : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{1000}, INT64_MAX}) {
        auto expected = keys;
        for (auto& rows : expected)
          for (auto& row : rows) row = cut(row, std::min<std::int64_t>(most, 1 << 20), kept);
        check_batch(tessera::truncate_rows(exec, view, most, kept), expected);
        model_rows flat;
        for (auto const& rows : expected)
          for (auto const& row : rows) flat.push_back({row.values, {}});
        CHECK(model_of(tessera::truncate_rows(exec, view.flat(), most, kept).view()) == flat);
        if (most >= 1000) CHECK(expected == keys);
      }
      auto const own = tessera_tests::random_integers<std::int64_t>(random, keys.size(), 0, 6);
      auto expected = keys;
      for (std::size_t key = 0; key < keys.size(); ++key)
        for (auto& row : expected[key]) row = cut(row, own[key], kept);
      check_batch(tessera::truncate_rows(exec, view, own, kept), expected);
      check_any_type(view, [&](auto in) { return tessera::truncate_rows(exec, in, own, kept); });
    }
  });
}

TEST_CASE("names stay, and a negative number is refused") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  CHECK(text(tessera::truncate_rows(host.exec(), batch, 1, kept_values::last)) ==
        "{user: [[3], [], [4]] weights [[3], [], [4]], item: [[6], [7]] weights [[6], [7]]}");
  CHECK(text(tessera::truncate_rows(host.exec(), batch, ids{2, 0}, kept_values::first)) ==
        "{user: [[1, 2], [], [4]] weights [[1, 2], [], [4]], item: [[], []] weights [[], []]}");
  auto e = error_of([&] { tessera::truncate_rows(host.exec(), batch, -1, kept_values::first); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("most") == "-1");
  e = error_of([&] { tessera::truncate_rows(host.exec(), batch, ids{2, -3}, kept_values::first); });
  CHECK(std::string(e.what()) == "truncate_rows: negative number of values (key item, most -3)");
  e = error_of([&] { tessera::truncate_rows(host.exec(), batch.view().flat(), -1, kept_values::first); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  e = error_of([&] { tessera::truncate_rows(host.exec(), batch, ids{2}, kept_values::first); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
}

TEST_CASE("offsets that decrease never reach memory") {
  tessera_tests::serial_host host;
  ids const values{1, 2, 3}, offsets{0, 3, 1}, first_row{0, 2};
  tessera::keyed_jagged_view<std::int64_t const> const view{values.data(), nullptr, offsets.data(), first_row.data(), 1};
  auto const e = error_of([&] { tessera::truncate_rows(host.exec(), view, 5, kept_values::first); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("row") == "1");
}
