// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_slabs.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"

using tessera::row_scale;
using tessera::row_slabs;

namespace {

constexpr std::int64_t slab_dim = 5, slab_rows = 2500;  // three slabs

template <class Element>
Element stamp(std::int64_t slot, std::int64_t column) {
  return row_scale<Element>::covering(tessera::detail::float_bits(127.0F)).nearest(static_cast<float>((slot * 7 + column * 31) % 100));
}

}  // namespace

TEST_CASE_TEMPLATE("row_slabs: each slot has its row and its state, which stay where they are as others come", Element,
                   TESSERA_TEST_SOME_ELEMENTS) {
  tessera_tests::serial_host host;
  auto const layout = tessera::row_state_layout::of(tessera::adam{});
  auto const width = layout.width(slab_dim);
  row_slabs<Element> slabs(slab_dim, layout);
  CHECK(slabs.bytes() == 0);
  std::vector<Element*> placed;
  for (std::int64_t slot = 0; slot < slab_rows; ++slot) {
    slabs.grow(host.exec(), slot + 1, 2100);
    placed.push_back(slabs.row(slot));
    row_scale<Element>::covering(tessera::detail::float_bits(static_cast<float>(slot + 1))).write_to(slabs.row(slot));
    for (std::int64_t c = 0; c < slab_dim; ++c) slabs.row(slot)[c] = stamp<Element>(slot, c);
    for (std::int64_t c = 0; c < width; ++c) slabs.state(slot)[c] = static_cast<float>(slot * width + c);
  }
  std::int64_t wrong = 0;
  auto const& held = slabs;
  for (std::int64_t slot = 0; slot < slab_rows; ++slot) {
    wrong += held.row(slot) != placed[static_cast<std::size_t>(slot)];
    for (std::int64_t c = 0; c < slab_dim; ++c) wrong += held.row(slot)[c] != stamp<Element>(slot, c);
    for (std::int64_t c = 0; c < width; ++c) wrong += held.state(slot)[c] != static_cast<float>(slot * width + c);
    if constexpr (row_scale<Element>::lead > 0)
      wrong += row_scale<Element>::of(held.row(slot)).step !=
               row_scale<Element>::covering(tessera::detail::float_bits(static_cast<float>(slot + 1))).step;
  }
  CHECK(wrong == 0);
  CHECK(held.dim() == slab_dim);
}

TEST_CASE_TEMPLATE("row_slabs take what bytes_for says, in whole slabs", Element, float, tessera::scaled_int8) {
  tessera_tests::serial_host host;
  auto const layout = tessera::row_state_layout::of(tessera::rowwise_adagrad{});
  for (std::int64_t const n : {0, 1, 1024, 1025, 5000}) {
    CAPTURE(n);
    row_slabs<Element> slabs(slab_dim, layout);
    slabs.reserve(host.exec(), n);
    auto const before = slabs.bytes();
    CHECK(before == row_slabs<Element>::bytes_for({.dim = slab_dim, .rows = n}, layout).total());
    CHECK(before == static_cast<std::size_t>((n + 1023) / 1024 * 1024) *
                        (static_cast<std::size_t>(row_scale<Element>::extent(slab_dim)) * sizeof(Element) + sizeof(float)));
    slabs.reserve(host.exec(), n);
    CHECK(slabs.bytes() == before);
  }
}
