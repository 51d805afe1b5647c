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
  CHECK(made.keys == names{"d", "b", "e", "a", "c"});
  auto const none = tessera::group_keys({"a", "b"}, {});
  CHECK(none.order == ids{0, 1});
  CHECK(none.keys_per_group.empty());
}

TEST_CASE("groups by number have names") {
  CHECK(tessera::group_names({"a", "b", "c"}, {{2, 0}, {1}}) == std::vector<names>{{"c", "a"}, {"b"}});
  CHECK(tessera::group_names({}, {}).empty());
  CHECK(refusal_of([&] { tessera::group_names({"a", "b"}, {{0}, {2}}); }) == "group_names: no such key (group 1, key 2, keys 2)");
  CHECK(refusal_of([&] { tessera::group_names({"a", "b"}, {{-1}}); }) == "group_names: no such key (group 0, key -1, keys 2)");
}

TEST_CASE("unknown, repeated and missing keys are named with their group") {
  auto const refused = [](std::vector<names> const& groups) { return refusal_of([&] { tessera::group_keys({"a", "b"}, groups); }); };
  CHECK(refused({{"a"}, {"x"}}) == "group_keys: no such key (group 1, key x)");
  CHECK(refused({{"a", "a"}}) == "group_keys: a key twice (group 0, key a)");
  CHECK(refused({{"a"}, {"b", "a"}}) == "group_keys: a key twice (group 1, key a)");
  CHECK(refused({{"a"}, {}}) == "group_keys: a group without keys (group 1)");
}
