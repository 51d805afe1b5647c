// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "radix_sort_suite.hpp"

#include "../support/hosts.hpp"

namespace {

struct host_radix_sort {
  tessera::host_exec exec;

  template <class Key, class Value>
  std::pair<std::vector<Key>, std::vector<Value>> sort(std::vector<Key> keys, std::vector<Value> values, tessera::radix_bits bits) const {
    tessera::radix_sort_pairs(exec, tessera::vector_view<Key>(keys), tessera::vector_view<Value>(values), bits);
    return {std::move(keys), std::move(values)};
  }
};

}  // namespace

TEST_CASE("radix_sort on one thread") {
  tessera_tests::serial_host host;
  radix_sort_suite(host_radix_sort{host.exec()});
}
TEST_CASE("radix_sort on 2 threads") {
  tessera_tests::pool_host<2> host;
  radix_sort_suite(host_radix_sort{host.exec()});
}
TEST_CASE("radix_sort on 4 threads") {
  tessera_tests::pool_host<4> host;
  radix_sort_suite(host_radix_sort{host.exec()});
}

TEST_CASE("the workspace is n keys and n values, and goes back") {
  for (std::size_t const size : {100U, 65'536U, 65'537U}) {
    CAPTURE(size);
    tessera_tests::pool_host<2> host;
    host_radix_sort{host.exec()}.sort(std::vector<std::int64_t>(size, 3), std::vector<std::int32_t>(size), {});
    CHECK(host.memory().balanced());
    CHECK(host.memory().peak_bytes() >= 12 * size);
    CHECK(host.memory().peak_bytes() <= 12 * size + 8192);  // and the counts of each piece
  }
}

TEST_CASE("without memory the pairs stay as they were") {
  tessera_tests::serial_host host;
  std::vector<int> keys(70'000, 5), values(70'000, 6);
  keys[0] = 9;
  for (int allowed = 0; allowed < 3; ++allowed) {
    host.memory().fail_after(allowed);
    CHECK_THROWS_AS(tessera::radix_sort_pairs(host.exec(), tessera::vector_view<int>(keys), tessera::vector_view<int>(values)),
                    std::bad_alloc);
    CHECK(keys[0] == 9);
    CHECK(keys[1] == 5);
    CHECK(host.memory().live_pieces() == 0);
  }
}

TEST_CASE("with workspace of the caller's nothing is allocated, and too little is refused") {
  using ints = tessera::vector_view<int>;
  tessera_tests::serial_host host;
  std::vector<int> keys{3, 1, 2}, values{30, 10, 20}, other_keys(3), other_values(3);
  auto const [sorted_keys, sorted_values] =
      tessera::radix_sort_pairs(host.exec(), ints(keys), ints(values), ints(other_keys), ints(other_values));
  CHECK(std::vector<int>(sorted_keys.begin(), sorted_keys.end()) == std::vector{1, 2, 3});
  CHECK(std::vector<int>(sorted_values.begin(), sorted_values.end()) == std::vector{10, 20, 30});
  CHECK(host.memory().peak_bytes() == 0);
  CHECK_THROWS_WITH_AS(tessera::radix_sort_pairs(host.exec(), ints(keys), ints(values), ints(other_keys), ints(other_values.data(), 2)),
                       "radix_sort_pairs: workspace as large as the pairs (keys 3, other keys 3, other values 2)", tessera::error);
}
