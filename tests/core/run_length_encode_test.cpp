// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "run_length_encode_suite.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../support/hosts.hpp"

using tessera::vector_view;

namespace {

struct host_run_length_encode {
  tessera::host_exec exec;

  template <class T>
  std::pair<std::vector<T>, std::vector<std::int64_t>> encode(std::vector<T> const& values, std::size_t room,
                                                              std::size_t offsets_room) const {
    std::vector<T> runs(room);
    std::vector<std::int64_t> offsets(offsets_room);
    auto const count = tessera::run_length_encode(exec, vector_view<T const>(values), runs, offsets);
    REQUIRE(static_cast<std::size_t>(count) <= room);
    runs.resize(static_cast<std::size_t>(count));
    offsets.resize(static_cast<std::size_t>(count) + 1);
    return {std::move(runs), std::move(offsets)};
  }
};

}  // namespace

TEST_CASE("run_length_encode on one thread") {
  tessera_tests::serial_host host;
  run_length_encode_suite(host_run_length_encode{host.exec()});
}
TEST_CASE("run_length_encode on 2 threads") {
  tessera_tests::pool_host<2> host;
  run_length_encode_suite(host_run_length_encode{host.exec()});
}
TEST_CASE("run_length_encode on 4 threads") {
  tessera_tests::pool_host<4> host;
  run_length_encode_suite(host_run_length_encode{host.exec()});
}

TEST_CASE("run_length_encode writes only what it promises") {
  tessera_tests::serial_host host;
  std::vector<int> const values{4, 4, 2};
  std::vector<int> runs(4, -7);
  std::vector<std::int64_t> offsets(5, -7);
  std::int64_t count = -1;
  tessera::run_length_encode(host.exec(), vector_view<int const>(values), runs, offsets, vector_view<std::int64_t>(&count, 1));
  CHECK(count == 2);
  CHECK(runs == std::vector<int>{4, 2, -7, -7});
  CHECK(offsets == std::vector<std::int64_t>{0, 2, 3, -7, -7});
}
