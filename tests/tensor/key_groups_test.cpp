// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <tessera/tensor/key_groups.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

TEST_CASE("grouped keys come first, group after group; the others stay in order") {
  auto const made = tessera::group_keys({"a", "b", "c", "d", "e"}, {{"d", "b"}, {"e"}});
  CHECK(made.order == ids{3, 1, 4, 0, 2});
  CHECK(made.keys_per_group == ids{2, 1});
  auto const none = tessera::group_keys({"a", "b"}, {});
  CHECK(none.order == ids{0, 1});
  CHECK(none.keys_per_group.empty());
}

TEST_CASE("unknown, repeated and missing keys are named with their group") {
  auto const refused = [](std::vector<names> const& groups) { return refusal_of([&] { tessera::group_keys({"a", "b"}, groups); }); };
  CHECK(refused({{"a"}, {"x"}}) == "group_keys: no such key (group 1, key x)");
  CHECK(refused({{"a", "a"}}) == "group_keys: a key twice (group 0, key a)");
  CHECK(refused({{"a"}, {"b", "a"}}) == "group_keys: a key twice (group 1, key a)");
  CHECK(refused({{"a"}, {}}) == "group_keys: a group without keys (group 1)");
}
