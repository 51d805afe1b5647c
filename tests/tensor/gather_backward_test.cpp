// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "gather_backward_suite.hpp"

#include <cstdint>

using tensor_tests::rows_on_host;

TEST_CASE("gather_backward on one thread") {
  tessera_tests::serial_host host;
  gather_backward_suite(rows_on_host{host.exec()});
}
TEST_CASE("gather_backward on 2 threads") {
  tessera_tests::pool_host<2> host;
  gather_backward_suite(rows_on_host{host.exec()});
}
TEST_CASE("gather_backward on 4 threads") {
  tessera_tests::pool_host<4> host;
  gather_backward_suite(rows_on_host{host.exec()});
}

TEST_CASE("a source that is none leaves everything as it was") {
  using namespace tensor_tests;
  tessera_tests::serial_host host;
  floats const gradient{1, 2};
  floats out(3, 9);
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}}) {
    CHECK_THROWS_AS(
        tessera::gather_backward(host.exec(), ids{0, wrong}, tessera::vector_view<float const>(gradient), tessera::vector_view<float>(out)),
        tessera::error);
    CHECK(out == floats(3, 9));
  }
}
