// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/select_slices.hpp>

#include "inverse_support.hpp"
#include "slices_support.hpp"
#include "vectors_harness.hpp"

using namespace tensor_tests;

namespace {

floats forward(tessera::host_exec const& exec, slices_case const& c, floats const& in) {
  std::vector<std::int64_t> offsets(c.slices.size() + 1);
  tessera::select_slices_offsets(exec, c.slices, tessera::vector_view<std::int64_t>(offsets));
  CHECK(offsets == c.offsets);
  floats out(c.size(), -7);
  tessera::jagged_vectors_view<float> const to{
      {out.data(), offsets.back(), c.dim}, offsets.data(), static_cast<std::int64_t>(c.slices.size())};
  tessera::select_slices(exec, {in.data(), c.vectors, c.dim}, c.slices, to, c.first_value);
  return out;
}

floats backward(tessera::host_exec const& exec, slices_case const& c, floats const& gradient) {
  floats out(static_cast<std::size_t>(c.vectors * c.dim), NAN);
  tessera::jagged_vectors_view<float const> const from{
      {gradient.data(), c.offsets.back(), c.dim}, c.offsets.data(), static_cast<std::int64_t>(c.slices.size())};
  tessera::select_slices_backward(exec, from, c.slices, {out.data(), c.vectors, c.dim}, c.first_value);
  return out;
}

// f(element of the vectors, element of the result), slice after slice.
template <class F>
void for_each_pair(slices_case const& c, F const& f) {
  for (std::size_t i = 0; i < c.slices.size(); ++i)
    for (std::int64_t k = 0; k < c.slices[i].length * c.dim; ++k)
      f(static_cast<std::size_t>((c.slices[i].begin - c.first_value) * c.dim + k), static_cast<std::size_t>(c.offsets[i] * c.dim + k));
}

}  // namespace

TEST_CASE("slices of vectors, and the sums of their gradients in the order of the slices") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& of : slices_shapes) {
    auto const vectors = of.vectors, dim = of.dim;
    CAPTURE(vectors);
    CAPTURE(dim);
    auto const c = random_case(random, vectors, dim, of.slices, of.longest);
    auto const in = tessera_tests::random_floats(random, static_cast<std::size_t>(vectors * dim));
    auto const gradient = tessera_tests::random_floats(random, c.size());
    floats expected(c.size(), -7), sums(in.size(), 0);
    std::vector<double> exact(in.size(), 0);
    for_each_pair(c, [&](std::size_t from, std::size_t to) {
      expected[to] = in[from];
      sums[from] += gradient[to];
      exact[from] += gradient[to];
    });
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
      CHECK(forward(exec, c, in) == expected);
      auto const summed = backward(exec, c, gradient);
      CHECK(std::equal(summed.begin(), summed.end(), sums.begin(), sums.end()));
      double worst = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::fabs(summed[i] - exact[i]));
      CHECK(worst < 1e-3);
    });
  }
}

TEST_CASE("slices that do not fit are refused by name, and nothing is written") {
  tessera_tests::serial_host host;
  auto const refused = [&](std::vector<slice> const& slices, std::vector<std::int64_t> const& offsets, std::int64_t dim = 1) {
    floats in(4, 1), out(8, -7);
    tessera::jagged_vectors_view<float> const rows{
        {out.data(), 8 / dim, dim}, offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1};
    auto const text = refusal_of([&] { tessera::select_slices(host.exec(), {in.data(), 4, 1}, slices, rows, 10); });
    auto const back = refusal_of([&] { tessera::select_slices_backward(host.exec(), rows, slices, {in.data(), 4, 1}, 10); });
    CHECK(out == floats(8, -7));
    CHECK(in == floats(4, 1));
    CHECK(text.substr(0, 14) == "select_slices:");
    CHECK(back.substr(0, 23) == "select_slices_backward:");
    if (dim == 1 && slices.size() + 1 == offsets.size()) CHECK(back.substr(23) == text.substr(14));
    return text;
  };
  check_refused_slices([&](auto const& slices, auto const& offsets) { return refused(slices, offsets); });
  CHECK(refused({{10, 4}}, {0, 4, 5}) == "select_slices: rows of the result (rows of the result 2, expected 1)");
  CHECK(refused({{10, 4}}, {0, 4}, 2) == "select_slices: dim (dim 2, expected 1)");

  floats gradient(6, 1), sums(6, 2);
  std::vector<std::int64_t> const offsets{0, 2};
  CHECK(refusal_of([&] {
          tessera::select_slices_backward(host.exec(),
                                          tessera::jagged_vectors_view<float const>{{gradient.data(), 2, 3}, offsets.data(), 1},
                                          std::vector<slice>{{0, 2}}, {sums.data(), 2, 3, 1});
        }) == "select_slices_backward: rows of the result overlap (dim 3, stride 1)");
  CHECK(sums == floats(6, 2));
}
