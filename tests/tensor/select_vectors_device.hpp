// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/select_vectors.cuh>

#include "select_vectors_suite.hpp"
#include "vectors_device.hpp"

namespace tessera_tests {

template <class Exec>
void select_vectors_on_device(Exec const& exec) {
  select_vectors_suite<vectors_device<Exec>>(exec);

  SUBCASE("the host's bits, whatever is repeated") {
    auto const seed = draw_seed();
    CAPTURE(seed);
    for (std::int64_t const dim : {1, 4, 7, 32, 132})
      CHECK(same_as_host(exec, seed, [&](auto& harness) {
        auto const rows = harness.random(harness.lengths(40, 8), dim);
        auto which = random_integers<std::int64_t>(harness.engine(), 300, 0, 39);
        std::fill(which.begin() + 50, which.begin() + 150, 7);
        auto const gradient = harness.random(lengths_of(reference_select(rows, which)), dim);
        return std::vector{selected(harness, rows, which, dim), added(harness, rows, gradient, which, dim)};
      }));
  }
  SUBCASE("elements of other sizes") {
    auto const copied = [&](auto element) {
      using element_type = decltype(element);
      std::vector<element_type> values(5 * 12);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<element_type>(i);
      auto const from = tessera_tests::put(exec, values);
      auto const in_offsets = tessera_tests::put(exec, indices{0, 2, 5}), out_offsets = tessera_tests::put(exec, indices{0, 3, 5});
      auto const which = tessera_tests::put(exec, indices{1, 0});
      tessera::buffer<element_type, Exec> to(exec, from.size());
      tessera::select_vectors(exec, tessera::jagged_vectors_view<element_type const>{{from.data(), 5, 12}, in_offsets.data(), 2}, which,
                              tessera::jagged_vectors_view<element_type>{{to.data(), 5, 12}, out_offsets.data(), 2});
      std::rotate(values.begin(), values.begin() + 24, values.end());
      return tessera_tests::get(exec, to) == values;
    };
    CHECK(copied(std::int8_t{}));
    CHECK(copied(std::uint16_t{}));
    CHECK(copied(std::int32_t{}));
    CHECK(copied(double{}));
  }
  SUBCASE("narrow offsets that the selection outgrows") {
    auto const offsets = tessera_tests::put(exec, std::vector<std::int32_t>{0, 1 << 30});
    auto const which = tessera_tests::put(exec, indices{0, 0});
    tessera::buffer<std::int32_t, Exec> selected(exec, 3);
    tessera::jagged_vectors_view<float, std::int32_t> const rows{{nullptr, 1 << 30, 1}, offsets.data(), 1};
    tessera::select_vectors_offsets(exec, rows, which, selected.view());
    CHECK(thrown_by([&] { exec.synchronize(); }).value("row") == "1");
    tessera::select_vectors_offsets(exec, rows, which.view().slice(0, 1), selected.view().slice(0, 2));
    CHECK(tessera_tests::get(exec, selected)[1] == 1 << 30);
  }
  SUBCASE("no rows at all have no offsets") {
    vectors_device<Exec> harness(exec);
    auto values = harness.put(std::vector<float>(16, 4.0F));
    tessera::jagged_vectors_view<float> const none{{values.data(), 8, 2}, nullptr, 0};
    auto offsets = harness.put(indices{7});
    tessera::select_vectors_offsets(exec, none, indices{}, offsets.view());
    tessera::select_vectors(exec, none, indices{}, none);
    tessera::select_vectors_backward(exec, none, indices{}, none);
    CHECK(harness.get(offsets) == indices{0});
    CHECK(harness.get(values) == std::vector<float>(16, 4.0F));
  }
  SUBCASE("offsets that are wrong are faults, and nothing is written") {
    vectors_device<Exec> harness(exec);
    auto const which = harness.put(indices{0, 1, 2});
    for_each_invalid(harness, "select_vectors", [&](auto bad, auto rows, auto, auto const& refused) {
      refused("in", [&] { tessera::select_vectors(exec, bad, which, rows); });
      refused("out", [&] { tessera::select_vectors(exec, rows, which, bad); });
    });
    for_each_invalid(harness, "select_vectors_backward", [&](auto bad, auto rows, auto, auto const& refused) {
      refused("in", [&] { tessera::select_vectors_backward(exec, rows, which, bad); });
      refused("out", [&] { tessera::select_vectors_backward(exec, bad, which, rows); });
    });
    for_each_invalid(harness, "select_vectors_offsets", [&](auto bad, auto, auto, auto const& refused) {
      auto offsets = harness.put(indices(4, 9));
      refused("in", [&] { tessera::select_vectors_offsets(exec, bad, which, offsets.view()); });
      CHECK(harness.get(offsets) == indices(4, 0));
    });
  }
}

}  // namespace tessera_tests
