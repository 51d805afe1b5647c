// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/select_slices.cuh>

#include "../support/device_arrays.hpp"
#include "inverse_harness.hpp"
#include "slices_support.hpp"

namespace tensor_tests {

/// Matrices with so many elements before, between and behind their rows, gathered ones with as many vectors before and behind the rows that
/// offsets name, and, where an Offset has room for that, values past 2^31.
template <class T, class Offset, class Exec>
void select_slices_like_host(Exec const& exec, std::mt19937_64& random, slices_shape const& of, std::int64_t gap,
                             std::int64_t gathered_gap) {
  using tessera_tests::get;
  using tessera_tests::put;
  auto const vectors = of.vectors, dim = of.dim;
  CAPTURE(vectors);
  CAPTURE(dim);
  CAPTURE(gap);
  CAPTURE(gathered_gap);
  auto const drawn = random_case(random, vectors, dim, of.slices, of.longest);
  auto const far = sizeof(Offset) == 8 ? std::int64_t{1} << 33 : 0, first_value = drawn.first_value + far;
  std::vector<tessera::value_range<Offset>> slices;
  for (auto const& drawn_slice : drawn.slices)
    slices.push_back({static_cast<Offset>(drawn_slice.begin + far), static_cast<Offset>(drawn_slice.length)});
  std::vector<Offset> offsets, from_zero;
  for (auto const offset : drawn.offsets) {
    from_zero.push_back(static_cast<Offset>(offset));
    offsets.push_back(static_cast<Offset>(offset + gathered_gap));
  }
  auto const count = static_cast<std::int64_t>(slices.size()), gathered = drawn.offsets.back() + 2 * gathered_gap;
  auto const size = [&](std::int64_t rows, std::int64_t between) { return static_cast<std::size_t>(rows * (dim + between) + between); };
  auto const matrix = [&](auto* data, std::int64_t rows, std::int64_t between) {
    return tessera::matrix_view<std::remove_pointer_t<decltype(data)>>(data + between, rows, dim, dim + between);
  };

  tessera_tests::serial_host host;
  auto const device_slices = put(exec, slices);
  auto const device_offsets = put(exec, offsets);
  tessera::buffer<Offset, Exec> made(exec, count + 1);
  tessera::select_slices_offsets(exec, device_slices, made.view());
  CHECK(get(exec, made) == from_zero);

  std::vector<T> in, out(size(gathered, gathered_gap), T(7));
  for (std::size_t i = 0; i < size(vectors, gap); ++i) in.push_back(static_cast<T>(random() % 100));
  auto const device_in = put(exec, in);
  auto device_out = put(exec, out);
  tessera::select_slices(host.exec(), matrix(in.data(), vectors, gap), slices,
                         tessera::jagged_vectors_view<T, Offset>{matrix(out.data(), gathered, gathered_gap), offsets.data(), count},
                         first_value);
  tessera::select_slices(
      exec, matrix(device_in.data(), vectors, gap), device_slices,
      tessera::jagged_vectors_view<T, Offset>{matrix(device_out.data(), gathered, gathered_gap), device_offsets.data(), count},
      first_value);
  CHECK(get(exec, device_out) == out);

  auto const gradient = tessera_tests::random_floats(random, size(gathered, gathered_gap));
  floats sums(size(vectors, gap), 7);
  auto const device_gradient = put(exec, gradient);
  auto device_sums = put(exec, sums);
  tessera::select_slices_backward(
      host.exec(),
      tessera::jagged_vectors_view<float const, Offset>{matrix(gradient.data(), gathered, gathered_gap), offsets.data(), count}, slices,
      matrix(sums.data(), vectors, gap), first_value);
  tessera::select_slices_backward(exec,
                                  tessera::jagged_vectors_view<float const, Offset>{matrix(device_gradient.data(), gathered, gathered_gap),
                                                                                    device_offsets.data(), count},
                                  device_slices, matrix(device_sums.data(), vectors, gap), first_value);
  CHECK(get(exec, device_sums) == sums);
}

template <class Exec>
void select_slices_on_device(Exec const& exec, std::vector<slices_shape> const& shapes = slices_shapes) {
  using tessera_tests::get;
  using tessera_tests::put;
  SUBCASE("the host's vectors, and its sums") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (auto const& of : shapes) {
      select_slices_like_host<float, std::int64_t>(exec, random, of, 0, 0);
      if (of.longest > 500) continue;  // the host takes long
      select_slices_like_host<double, std::int32_t>(exec, random, of, 0, 0);
      select_slices_like_host<std::int8_t, std::int64_t>(exec, random, of, 1, 1);
      select_slices_like_host<float, std::int64_t>(exec, random, of, 3, 0);
      select_slices_like_host<float, std::int32_t>(exec, random, of, 0, 3);
    }
  }
  SUBCASE("a gradient of no rows") {
    tessera::buffer<slice, Exec> const none;
    auto const spare = put(exec, floats{1, 2});
    auto sums = put(exec, floats(4, NAN));
    tessera::select_slices_backward(exec, tessera::jagged_vectors_view<float const>{{spare.data(), 2, 1}, nullptr, 0}, none,
                                    {sums.data(), 4, 1});
    CHECK(get(exec, sums) == floats(4, 0));
  }
  SUBCASE("offsets of a gradient that begin behind its first vector") {
    auto const slices = put(exec, std::vector<slice>{{2, 2}, {1, 1}});
    auto const offsets = put(exec, std::vector<std::int64_t>{3, 5, 6});
    auto const gradient = put(exec, floats{90, 91, 92, 1, 2, 3, 93});
    auto sums = put(exec, floats(4, NAN));
    tessera::select_slices_backward(exec, tessera::jagged_vectors_view<float const>{{gradient.data(), 7, 1}, offsets.data(), 2}, slices,
                                    {sums.data(), 4, 1});
    CHECK(get(exec, sums) == floats{0, 3, 1, 2});
  }
  SUBCASE("slices that do not fit are faults, and nothing is written") {
    auto const refused = [&](std::vector<slice> const& some, std::vector<std::int64_t> const& row_offsets) {
      auto const slices = put(exec, some);
      auto const offsets = put(exec, row_offsets);
      auto in = put(exec, floats(4, 1)), out = put(exec, floats(8, -7));
      tessera::jagged_vectors_view<float> const rows{{out.data(), 8, 1}, offsets.data(), static_cast<std::int64_t>(some.size())};
      tessera::select_slices(exec, {in.data(), 4, 1}, slices, rows, 10);
      std::string const text = tessera_tests::error_of([&] { exec.synchronize(); }).what();
      tessera::select_slices_backward(exec, rows, slices, {in.data(), 4, 1}, 10);
      std::string const back = tessera_tests::error_of([&] { exec.synchronize(); }).what();
      CHECK(get(exec, out) == floats(8, -7));
      CHECK(get(exec, in) == floats(4, 1));
      CHECK(text.substr(0, 14) == "select_slices:");
      CHECK(back.substr(0, 23) == "select_slices_backward:");
      return text;
    };
    check_refused_slices(refused);
    auto const slices = put(exec, std::vector<slice>{{0, 1}, {0, 1}});
    auto const decreasing = put(exec, ids{1, 0, 1});
    auto vectors = put(exec, floats(2, -7));
    tessera::select_slices(exec, {vectors.data(), 2, 1}, slices,
                           tessera::jagged_vectors_view<float>{{vectors.data(), 2, 1}, decreasing.data(), 2});
    CHECK(refusal_of([&] { exec.synchronize(); }) == "jagged: offsets decrease (row 0, offset 1, next offset 0)");
    CHECK(get(exec, vectors) == floats(2, -7));
  }
}

}  // namespace tensor_tests
