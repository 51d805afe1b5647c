// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "source_lists_suite.hpp"

using namespace tensor_tests;

TEST_CASE_TEMPLATE("source_lists", Host, TESSERA_TEST_HOSTS) {
  Host host;
  source_lists_suite(rows_on_host{host.exec()});
}

TEST_CASE("count_sources: the same lists in memory of the caller's") {
  ids const target_of{2, 0, -1, 2, 3, 0};
  ids starts(4, 9), sources(6, 9);
  tessera::count_sources(target_of, tessera::vector_view<std::int64_t>(starts), tessera::vector_view<std::int64_t>(sources));
  CHECK(starts == ids{0, 2, 2, 4});
  CHECK(sources == ids{1, 5, 0, 3, 2, 4});
  for (std::size_t const wrong : {5U, 7U}) {
    ids other(wrong);
    CHECK(error_of([&] {
            tessera::count_sources(target_of, tessera::vector_view<std::int64_t>(starts), tessera::vector_view<std::int64_t>(other));
          }).value("sources") == std::to_string(wrong));
  }
}

TEST_CASE("source_lists and source_pairs: memory follows the sources, and the targets once") {
  auto const peak_of = [](auto const& make) {
    tessera_tests::pool_host<2> host;
    make(host.exec());
    return host.memory().peak_bytes();
  };
  ids const few{5, 3'000'000, 5}, many(200'000, 3);
  CHECK(peak_of([&](auto const& exec) { tessera::source_pairs(exec, few, 4'000'000); }) <= 1024);
  CHECK(peak_of([&](auto const& exec) { tessera::source_lists(exec, few, 4'000'000); }) <= 8 * 4'000'001 + 1024);
  CHECK(peak_of([&](auto const& exec) { tessera::source_pairs(exec, many, 5); }) <= 32 * 200'000 + 65'536);
  CHECK(peak_of([&](auto const& exec) { tessera::source_lists(exec, many, 5); }) <= 32 * 200'000 + 65'536);
}
