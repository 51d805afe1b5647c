// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/parameters.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

TEST_CASE("parameter_block: a view with a name, the same copy everywhere unless said otherwise") {
  std::vector<float> weights(6, 1);
  tessera::parameter_block const block{"bottom.0.weight", {2, 3}, weights};
  CHECK(block.group == tessera::replication::everywhere);
  CHECK(block.values.data() == weights.data());
  CHECK(block.values.size() == 6);
  block.values[5] = 7;  // a constant block still names memory that may change
  CHECK(weights[5] == 7);
  auto copy = block;
  copy.group = tessera::replication::tower;
  CHECK(copy.values.data() == weights.data());
  CHECK(block.group == tessera::replication::everywhere);
}

}  // namespace
