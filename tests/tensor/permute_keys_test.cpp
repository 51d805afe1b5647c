// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/permute_keys.hpp>

using namespace tensor_tests;

TEST_CASE("keys in any order, left out and again") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    for (std::size_t const count : {std::size_t{0}, keys.size(), 2 * keys.size() + 1}) {
      if (keys.empty() && count > 0) continue;
      auto const order = tessera_tests::random_integers<std::int64_t>(random, count, 0, static_cast<std::int64_t>(keys.size()) - 1);
      model expected;
      for (auto const key : order) expected.push_back(keys[static_cast<std::size_t>(key)]);
      check_batch(tessera::permute_keys(exec, view, order), expected);
    }
    ids all(keys.size());
    std::iota(all.begin(), all.end(), 0);
    check_batch(tessera::permute_keys(exec, view, all), keys);
    check_any_type(view, [&](auto in) { return tessera::permute_keys(exec, in, all); });
  });
}

TEST_CASE("permutations compose, and the inverse undoes them: it is the backward") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    ids p(keys.size()), q, both, inverse(keys.size());
    std::iota(p.begin(), p.end(), 0);
    q = p;
    std::shuffle(p.begin(), p.end(), random);
    std::shuffle(q.begin(), q.end(), random);
    for (auto const i : q) both.push_back(p[static_cast<std::size_t>(i)]);
    for (std::size_t i = 0; i < p.size(); ++i) inverse[static_cast<std::size_t>(p[i])] = static_cast<std::int64_t>(i);
    auto const once = tessera::permute_keys(exec, view, p);
    CHECK(equal(tessera::permute_keys(exec, once.view(), q).view(), tessera::permute_keys(exec, view, both).view()));
    CHECK(equal(tessera::permute_keys(exec, once.view(), inverse).view(), view));
  });
}

TEST_CASE("names travel with their keys") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  CHECK(text(tessera::permute_keys(host.exec(), batch, ids{1, 0})) ==
        "{item: [[5, 6], [7]] weights [[5, 6], [7]], user: [[1, 2, 3], [], [4]] weights [[1, 2, 3], [], [4]]}");
  CHECK(text(tessera::permute_keys(host.exec(), batch, ids{1})) == "{item: [[5, 6], [7]] weights [[5, 6], [7]]}");
  CHECK(text(tessera::permute_keys(host.exec(), batch, ids{})) == "{}");
  auto e = error_of([&] { tessera::permute_keys(host.exec(), batch, ids{1, 0, 1}); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("key") == "item");
  auto const unnamed = tessera::permute_keys(host.exec(), batch.view(), ids{1, 0, 1});
  CHECK(tessera::permute_keys(host.exec(), unnamed, ids{2, 2}).keys().empty());
}

TEST_CASE("a key that is none, and values past an offset, are refused") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{2}, INT64_MIN, INT64_MAX}) {
    auto const e = error_of([&] { tessera::permute_keys(host.exec(), batch.view(), ids{0, wrong}); });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("position") == "1");
    CHECK(e.value("key") == std::to_string(wrong));
    CHECK(e.value("keys") == "2");
  }
  std::vector<std::int32_t> const offsets{0, 1 << 30};
  ids const first_row{0, 1};
  float value = 0;
  tessera::keyed_jagged_view<float const, std::int32_t> const large{&value, nullptr, offsets.data(), first_row.data(), 1};
  auto const e = error_of([&] { tessera::permute_keys(host.exec(), large, ids{0, 0}); });
  CHECK(e.code() == tessera::errc::out_of_range);
  CHECK(e.value("values before") == std::to_string(1 << 30));
}

TEST_CASE("a checked build refuses offsets that decrease") {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    ids const values{1, 2, 3}, offsets{0, 3, 1}, first_row{0, 1, 2};
    tessera::keyed_jagged_view<std::int64_t const> const view{values.data(), nullptr, offsets.data(), first_row.data(), 2};
    auto const e = error_of([&] { tessera::permute_keys(host.exec(), view, ids{0}); });
    CHECK(std::string(e.what()) == "permute_keys: in: jagged: offsets decrease (row 1, offset 3, next offset 1)");
  }
}
