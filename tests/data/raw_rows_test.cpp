// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/raw_rows.hpp>

#include "click_support.hpp"

using namespace click_tests;

TEST_CASE("raw_rows: every field has a place of its own, and a smaller size allocates nothing") {
  host h;
  tessera::raw_rows rows;
  CHECK(rows.size() == 0);
  CHECK(rows.bytes() == 0);
  std::int64_t allocations = 0;
  for (std::int64_t const size : {1000, 1, 0, 15, 16, 17, 999, 1000}) {
    rows.resize(h.exec, size);
    if (allocations == 0) allocations = h.memory.allocations();
    REQUIRE(rows.size() == size);
    for (std::int64_t i = 0; i < size; ++i) {
      rows.labels()[i] = static_cast<float>(i);
      for (std::int64_t c = 0; c < 13; ++c) rows.integers()(c, i) = static_cast<std::int32_t>(100 * i + c);
      for (std::int64_t c = 0; c < 26; ++c) rows.categories()(c, i) = 100 * i + c;
    }
    auto const view = rows.view();
    REQUIRE(view.size() == size);
    bool same =
        view.integers.rows() == 13 && view.integers.columns() == size && view.categories.rows() == 26 && view.categories.columns() == size;
    for (std::int64_t i = 0; i < size; ++i) {
      same = same && view.labels[i] == static_cast<float>(i);
      for (std::int64_t c = 0; c < 13; ++c) same = same && view.integers(c, i) == 100 * i + c;
      for (std::int64_t c = 0; c < 26; ++c) same = same && view.categories(c, i) == 100 * i + c;
    }
    CHECK(same);
  }
  CHECK(h.memory.allocations() == allocations);
  CHECK(rows.bytes() == h.memory.live_bytes());
}

TEST_CASE("click_layout: columns are counted from 1 in names") {
  CHECK(tessera::click_layout::integer_name(0) == "integer 1");
  CHECK(tessera::click_layout::category_name(25) == "category 26");
  CHECK(tessera::click_layout::fields == 40);
}
