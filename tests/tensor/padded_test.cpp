// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "padded_suite.hpp"

using namespace tensor_tests;
using tessera::matrix_view;

TEST_CASE_TEMPLATE("padded", Host, TESSERA_TEST_HOSTS) {
  Host host;
  padded_suite(rows_on_host{host.exec()});
}

TEST_CASE("the inverse of each other is the backward of each other") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  floats const gradient{1, 2, 3, 4, 5, 6};
  ids const lengths{2, 0, 3};
  // L = sum of gradient * matrix: by the values, what lies where they went.
  auto const by_values = tessera::from_padded(exec, matrix_view<float const>(gradient.data(), 2, 3), ids{1, 3});
  CHECK(text(by_values.view()) == "[[1], [4, 5, 6]]");
  auto const by_rows = tessera::jagged<float>::from_rows(exec, {{1, 2}, {}, {3, 4, 5}});
  floats by_matrix(9, -1);
  tessera::to_padded(exec, by_rows.view(), matrix_view<float>(by_matrix.data(), 3, 3), 0);
  CHECK(by_matrix == floats{1, 2, 0, 0, 0, 0, 3, 4, 5});
}
