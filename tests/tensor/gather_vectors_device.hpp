// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/gather_vectors.cuh>

#include "../support/device_arrays.hpp"
#include "../support/hosts.hpp"
#include "inverse_support.hpp"
#include "side_by_side.hpp"

namespace tensor_tests {

/// The bits of two arrays.
inline bool same_floats(floats const& a, floats const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// What a device gathers and sums of matrices of these dims has the host's bits, and leaves what lies between them.
template <class Exec>
void gather_like_host(Exec const& exec, std::mt19937_64& random, std::int64_t rows, ids const& indices, ids const& dims, std::int64_t gap) {
  tessera_tests::serial_host host;
  auto const n = static_cast<std::int64_t>(indices.size());
  side_by_side const of_rows(rows, dims, gap), of_indices(n, dims, gap);
  auto const in = of_rows.random(random), gradient = of_indices.random(random);
  floats out(gradient.size(), 5.0F), sums(in.size(), 6.0F);
  auto const device_in = tessera_tests::put(exec, in), device_gradient = tessera_tests::put(exec, gradient);
  auto device_out = tessera_tests::put(exec, out), device_sums = tessera_tests::put(exec, sums);
  auto const device_indices = tessera_tests::put(exec, indices);
  tessera::gather_vectors(host.exec(), of_rows.views(in.data()), indices, of_indices.views(out.data()));
  tessera::gather_vectors(exec, of_rows.views(device_in.data()), device_indices, of_indices.views(device_out.data()));
  CHECK(same_floats(tessera_tests::get(exec, device_out), out));
  tessera::gather_vectors_backward(host.exec(), of_indices.views(gradient.data()), indices, of_rows.views(sums.data()));
  tessera::gather_vectors_backward(exec, of_indices.views(device_gradient.data()), device_indices, of_rows.views(device_sums.data()));
  CHECK(same_floats(tessera_tests::get(exec, device_sums), sums));
}

template <class Exec>
void gather_vectors_on_device(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  SUBCASE("the host's bits, whatever the shapes") {
    for (auto const& dims : std::vector<ids>{{}, {1}, {64, 3}, {16, 1028, 7}})
      for (std::int64_t const rows : {1, 7, 300})
        for (std::size_t const n : {0U, 1U, 5U, 700U})
          for (std::int64_t const gap : {0, 3, 4}) {
            CAPTURE(rows);
            CAPTURE(n);
            CAPTURE(gap);
            gather_like_host(exec, random, rows, tessera_tests::random_integers<std::int64_t>(random, n, 0, rows - 1), dims, gap);
          }
  }
  SUBCASE("one row that most name, and rows that nobody does") {
    auto indices = tessera_tests::random_integers<std::int64_t>(random, 3000, 0, 99);
    std::fill(indices.begin() + 100, indices.begin() + 2900, 41);
    gather_like_host(exec, random, 200, indices, {8, 5}, 0);
  }
  SUBCASE("no rows at all") { gather_like_host(exec, random, 0, {}, {8, 5}, 1); }
  SUBCASE("a matrix alone") {
    auto const in = tessera_tests::put(exec, floats{1, 2, 3, 4, 5, 6});
    auto const indices = tessera_tests::put(exec, ids{2, 0, 2});
    tessera::buffer<float, Exec> out(exec, 6);
    tessera::gather_vectors(exec, tessera::matrix_view<float const>{in.data(), 3, 2}, indices,
                            tessera::matrix_view<float>{out.data(), 3, 2});
    CHECK(tessera_tests::get(exec, out) == floats{5, 6, 1, 2, 5, 6});
    tessera::gather_vectors_backward(exec, tessera::matrix_view<float const>{in.data(), 3, 2}, indices,
                                     tessera::matrix_view<float>{out.data(), 3, 2});
    CHECK(tessera_tests::get(exec, out) == floats{3, 4, 0, 0, 6, 8});
  }
  SUBCASE("the first index that names no row is told; it gives zeros, and gets no gradient") {
    auto const in = tessera_tests::put(exec, floats{1, 2, 3, 4, 5, 6, 7, 8});
    auto const told = [&](std::int64_t dim, ids const& which, floats const& gathered, floats const& summed) {
      auto const rows = 8 / dim, n = static_cast<std::int64_t>(which.size());
      auto const indices = tessera_tests::put(exec, which);
      auto out = tessera_tests::put(exec, floats(static_cast<std::size_t>(n * dim), 9.0F)),
           sums = tessera_tests::put(exec, floats(8, 9.0F));
      tessera::matrix_view<float const> const from{in.data(), rows, dim};
      tessera::gather_vectors(exec, from, indices, tessera::matrix_view<float>{out.data(), n, dim});
      auto const first = refusal_of([&] { exec.synchronize(); });
      CHECK(tessera_tests::get(exec, out) == gathered);
      tessera::gather_vectors_backward(exec, tessera::matrix_view<float const>{in.data(), n, dim}, indices,
                                       tessera::matrix_view<float>{sums.data(), rows, dim});
      auto const second = refusal_of([&] { exec.synchronize(); });
      CHECK(tessera_tests::get(exec, sums) == summed);
      CHECK(second == "gather_vectors_backward" + first.substr(first.find(':')));
      return first;
    };
    CHECK(told(2, {3, 4, -1, 0}, {7, 8, 0, 0, 0, 0, 1, 2}, {7, 8, 0, 0, 0, 0, 1, 2}) ==
          "gather_vectors: no such row (position 1, index 4, rows 4)");
    CHECK(told(2, {8, 0, 8, 1}, {0, 0, 1, 2, 0, 0, 3, 4}, {3, 4, 7, 8, 0, 0, 0, 0}) ==  // 8 is 0 in the bits that are sorted
          "gather_vectors: no such row (position 0, index 8, rows 4)");
    CHECK(told(4, {INT64_MIN, 1}, {0, 0, 0, 0, 5, 6, 7, 8}, {0, 0, 0, 0, 5, 6, 7, 8}) ==
          "gather_vectors: no such row (position 0, index -9223372036854775808, rows 2)");
    CHECK(told(4, {1, INT64_MAX}, {5, 6, 7, 8, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 2, 3, 4}) ==
          "gather_vectors: no such row (position 1, index 9223372036854775807, rows 2)");
    CHECK(told(8, {1}, floats(8, 0.0F), floats(8, 0.0F)) == "gather_vectors: no such row (position 0, index 1, rows 1)");
  }
  SUBCASE("shapes that do not fit are refused at once") {
    auto const in = tessera_tests::put(exec, floats(6, 1.0F));
    tessera::buffer<float, Exec> out(exec, 6);
    auto const indices = tessera_tests::put(exec, ids{0, 1});
    CHECK(
        refusal_of([&] {
          tessera::gather_vectors(exec, tessera::matrix_view<float const>{in.data(), 3, 2}, indices,
                                  tessera::matrix_view<float>{out.data(), 3, 2});
        }) ==
        "gather_vectors: a matrix of another shape (matrix 0, rows 3, rows expected 3, dim 2, rows gathered 3, indices 2, dim gathered 2)");
  }
}

}  // namespace tensor_tests
