// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include "pooled_lookup_device.hpp"

#include "../support/type_lists.hpp"
#include "emulated_verbs.hpp"

using namespace embed_tests;

TEST_CASE_TEMPLATE("pooled_lookup on an emulated device", Element, TESSERA_TEST_ELEMENTS) {
  tessera_tests::emulated_device device;
  pooled_lookup_device_suite<Element>(device.exec());
}

TEST_CASE("pooled_lookup: the groups of threads do each column of each bag once, past 2^31 bags too") {
  using tessera::detail::bag_unit;
  using tessera::detail::bag_unit_range;
  for (std::int64_t const dim : {1, 4, 5, 16, 100, 128, 129, 1027})
    for (std::int64_t const bags : {0, 1, 2, 33, 1000}) {
      auto const range = bag_unit_range::of(0, bags, dim, 7);
      std::vector<int> done(static_cast<std::size_t>(bags * dim));
      std::int64_t speakers = 0;
      for (auto block = range.first_block; block < range.first_block + range.blocks(); ++block)
        for (int thread = 0; thread < bag_unit_range::threads; ++thread) {
          bag_unit unit;
          if (!unit.set(range, block, thread)) continue;
          speakers += unit.leads;
          for (std::int64_t c = unit.column; c < std::min(unit.column + 4, dim); ++c) ++done[static_cast<std::size_t>(unit.bag * dim + c)];
        }
      CHECK(std::all_of(done.begin(), done.end(), [](int times) { return times == 1; }));
      CHECK(speakers == bags);
    }
  constexpr std::int64_t bags = (std::int64_t{1} << 33) + 5;
  auto const range = bag_unit_range::of(0, bags, 130, 0);
  bag_unit unit;
  CHECK(unit.set(range, range.blocks() - 1, 0));
  CHECK(unit.bag >= bags - 4);
  CHECK(unit.bag < bags);
}
