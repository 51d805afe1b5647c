// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "unique_suite.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/error.hpp>

#include "../support/hosts.hpp"

using tessera::vector_view;

namespace {

struct host_unique {
  tessera::host_exec exec;

  template <class Key>
  std::pair<std::vector<Key>, std::vector<std::int64_t>> unique(std::vector<Key> const& keys, tessera::radix_bits bits) const {
    std::vector<Key> distinct(keys.size());
    std::vector<std::int64_t> inverse(keys.size());
    auto const count = tessera::unique(exec, vector_view<Key const>(keys), distinct, inverse, bits);
    REQUIRE(static_cast<std::size_t>(count) <= keys.size());
    distinct.resize(static_cast<std::size_t>(count));
    return {std::move(distinct), std::move(inverse)};
  }
};

}  // namespace

TEST_CASE("unique on one thread") {
  tessera_tests::serial_host host;
  unique_suite(host_unique{host.exec()});
}
TEST_CASE("unique on 2 threads") {
  tessera_tests::pool_host<2> host;
  unique_suite(host_unique{host.exec()});
}
TEST_CASE("unique on 4 threads") {
  tessera_tests::pool_host<4> host;
  unique_suite(host_unique{host.exec()});
}

TEST_CASE("unique writes only what it promises") {
  tessera_tests::serial_host host;
  std::vector<std::int64_t> const keys{4, 4, 2};
  std::vector<std::int64_t> distinct(5, -7), inverse(3);
  CHECK(tessera::unique(host.exec(), vector_view<std::int64_t const>(keys), distinct, inverse) == 2);
  CHECK(distinct == std::vector<std::int64_t>{2, 4, -7, -7, -7});
}

TEST_CASE("unique of keys that differ in other bits, too, and in place") {
  tessera_tests::pool_host<2> host;
  for (std::size_t const n : {std::size_t{3}, std::size_t{40'000}}) {
    CAPTURE(n);
    std::vector<std::int64_t> keys, inverse(n);
    for (std::size_t i = 0; i < n; ++i) keys.push_back(static_cast<std::int64_t>(i * 7 % 200) * 0x1001);
    auto const original = keys;
    auto const count = tessera::unique(host.exec(), vector_view<std::int64_t const>(keys), keys, inverse, {.end_bit = 12});
    CHECK(count == static_cast<std::int64_t>(std::min<std::size_t>(n, 200)));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < n; ++i) wrong += keys[static_cast<std::size_t>(inverse[i])] != original[i];
    CHECK(wrong == 0);
  }
}

TEST_CASE("unique refuses outputs without room") {
  tessera_tests::serial_host host;
  std::vector<std::int64_t> keys(3), two(2), three(3), four(4);
  vector_view<std::int64_t> const view(keys);
  CHECK_THROWS_WITH_AS(tessera::unique(host.exec(), view, two, three),
                       "unique: outputs need room for every key (keys 3, distinct 2, inverse 3)", tessera::error);
  CHECK_THROWS_AS(tessera::unique(host.exec(), view, three, two), tessera::error);
  CHECK_THROWS_AS(tessera::unique(host.exec(), view, three, four), tessera::error);
}

TEST_CASE("unique refuses, in a checked build, keys that differ in other bits") {
  if constexpr (tessera::checked) {
    tessera_tests::pool_host<2> host;
    std::vector<std::int64_t> keys{259, 3, 2}, distinct(3), inverse(3);
    vector_view<std::int64_t> const view(keys);
    CHECK_THROWS_WITH_AS(tessera::unique(host.exec(), view, distinct, inverse, {.begin_bit = 0, .end_bit = 1}),
                         "unique: keys differ in bits that are not compared (position 0, begin_bit 0, end_bit 1)", tessera::error);
    CHECK(tessera::unique(host.exec(), view, distinct, inverse, {.begin_bit = 0, .end_bit = 9}) == 3);
  }
}
