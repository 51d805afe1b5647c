// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/gather_vectors.hpp>

#include "inverse_support.hpp"
#include "sanitizers.hpp"
#include "side_by_side.hpp"

using namespace tensor_tests;

namespace {

// What a loop over the indices writes into `out` and `sums`.
void gather_naively(side_by_side const& of_rows, side_by_side const& of_indices, ids const& indices, floats const& in,
                    floats const& gradient, floats& out, floats& sums) {
  auto const from = of_rows.views(in.data()), more = of_indices.views(gradient.data());
  auto const to = of_indices.views(out.data()), sum = of_rows.views(sums.data());
  for (std::size_t m = 0; m < from.size(); ++m)
    for (std::int64_t c = 0; c < from[m].columns(); ++c) {
      sums_in_order<float> of_column(static_cast<std::size_t>(of_rows.rows));
      for (std::int64_t i = 0; i < of_indices.rows; ++i) {
        auto const row = indices[static_cast<std::size_t>(i)];
        to[m](i, c) = from[m](row, c);
        of_column.add(row, more[m](i, c));
      }
      for (std::int64_t r = 0; r < of_rows.rows; ++r) sum[m](r, c) = of_column.values[static_cast<std::size_t>(r)];
    }
}

}  // namespace

TEST_CASE("gathered rows and summed gradients are those of a naive loop, whatever the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (auto const& dims : std::vector<std::vector<std::int64_t>>{{}, {1}, {64, 3}, {16, 1025, 7}})
    for (std::int64_t const rows : {1, 7, 600})
      for (std::int64_t const n : {0, 1, 5, 3000}) {
        if (tessera_tests::under_sanitizer && n == 3000 && rows != 600) continue;
        CAPTURE(rows);
        CAPTURE(n);
        std::mt19937_64 random(seed);
        side_by_side const of_rows(rows, dims, 3), of_indices(n, dims, 3);
        auto const in = of_rows.random(random), gradient = of_indices.random(random);
        auto const indices = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(n), 0, rows - 1);
        tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
          auto out = of_indices.random(random), sums = of_rows.random(random);
          auto expected_out = out, expected_sums = sums;
          tessera::gather_vectors(exec, of_rows.views(in.data()), indices, of_indices.views(out.data()));
          tessera::gather_vectors_backward(exec, of_indices.views(gradient.data()), indices, of_rows.views(sums.data()));
          gather_naively(of_rows, of_indices, indices, in, gradient, expected_out, expected_sums);
          CHECK(out == expected_out);
          CHECK(sums == expected_sums);
        });
      }
}

TEST_CASE("a result larger than the caches is streamed") {
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::int64_t const n = 150'000, dim = 64;
    floats in(10 * dim), out(static_cast<std::size_t>(n * dim));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    ids indices;
    for (std::int64_t i = 0; i < n; ++i) indices.push_back(i * i % 10);
    tessera::gather_vectors(exec, tessera::matrix_view<float const>{in.data(), 10, dim}, indices,
                            tessera::matrix_view<float>{out.data(), n, dim});
    bool same = true;
    for (std::int64_t i = 0; i < n * dim; ++i)
      same = same && out[static_cast<std::size_t>(i)] == static_cast<float>(indices[static_cast<std::size_t>(i / dim)] * dim + i % dim);
    CHECK(same);
  });
}

TEST_CASE("indices and shapes that do not fit are refused, and nothing is written") {
  tessera_tests::serial_host host;
  floats in(6, 1.0F), out(6, 7.0F);
  tessera::matrix_view<float const> const from{in.data(), 3, 2};
  tessera::matrix_view<float> const to{out.data(), 3, 2};
  CHECK(refusal_of([&] {
          tessera::gather_vectors(host.exec(), from, ids{0, 3, 1}, to);
        }) == "gather_vectors: no such row (position 1, index 3, rows 3)");
  CHECK(refusal_of([&] {
          tessera::gather_vectors_backward(host.exec(), from, ids{0, -1, 1}, to);
        }) == "gather_vectors_backward: no such row (position 1, index -1, rows 3)");
  CHECK(refusal_of([&] {
          tessera::gather_vectors(host.exec(), from, ids{0, 1}, to);
        }) ==
        "gather_vectors: a matrix of another shape (matrix 0, rows 3, rows expected 3, dim 2, rows gathered 3, indices 2, dim gathered 2)");
  CHECK(out == floats(6, 7.0F));
}

TEST_CASE("groups gathered and summed at once are those of a naive loop, sorted by one thread each or by many") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (std::int64_t const n : {0, 3, 4097, 70'000})
      for (std::int64_t const many : {11, 66'000}) {  // rows of one group
        if (tessera_tests::under_asan && n == 70'000 && many == 11) continue;
        CAPTURE(n);
        CAPTURE(many);
        std::mt19937_64 random(seed);
        std::vector<std::int64_t> const rows{5, many, 600};
        std::vector<std::vector<std::int64_t>> const dims{{2}, {1, 3}, {4}};
        std::vector<ids> inverses;
        std::vector<tessera::row_group> groups;
        std::vector<side_by_side> of_rows, of_indices;
        std::vector<floats> in, gradient, out, sums;
        for (std::size_t g = 0; g < rows.size(); ++g) {
          inverses.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(n), 0, rows[g] - 1));
          of_rows.emplace_back(rows[g], dims[g], 3);
          of_indices.emplace_back(n, dims[g], 3);
          for (auto* const values : {&in, &sums}) values->push_back(of_rows[g].random(random));
          for (auto* const values : {&gradient, &out}) values->push_back(of_indices[g].random(random));
        }
        auto const together = [](std::vector<side_by_side> const& of, auto& all) {
          decltype(of[0].views(all[0].data())) views;
          for (std::size_t g = 0; g < all.size(); ++g)
            for (auto const view : of[g].views(all[g].data())) views.push_back(view);
          return views;
        };
        for (std::size_t g = 0; g < rows.size(); ++g) {
          auto const first = groups.empty() ? 0 : groups.back().first_key + groups.back().keys;
          groups.push_back({first, static_cast<std::int64_t>(dims[g].size()), inverses[g].data()});
        }
        auto expected_out = out, expected_sums = sums;
        tessera::gather_vectors(exec, groups, n, together(of_rows, std::as_const(in)), together(of_indices, out));
        tessera::gather_vectors_backward(exec, groups, n, together(of_indices, std::as_const(gradient)), together(of_rows, sums));
        for (std::size_t g = 0; g < rows.size(); ++g) {
          gather_naively(of_rows[g], of_indices[g], inverses[g], in[g], gradient[g], expected_out[g], expected_sums[g]);
          CHECK(out[g] == expected_out[g]);
          CHECK(sums[g] == expected_sums[g]);
        }
      }
  });
}

TEST_CASE("of groups, too, nothing is summed where one has an index that names no row") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const rows : {3, 70'000}) {  // sorted by one thread, or by all
    CAPTURE(rows);
    ids const valid{0, 2, 1}, invalid{0, rows, 1};
    std::vector<tessera::row_group> const groups{{0, 1, valid.data()}, {1, 1, invalid.data()}};
    floats const gradient(3, 1.0F);
    floats sums(static_cast<std::size_t>(2 * rows), 7.0F);
    std::vector<tessera::matrix_view<float const>> const from(2, {gradient.data(), 3, 1});
    std::vector<tessera::matrix_view<float>> const to{{sums.data(), rows, 1}, {sums.data() + rows, rows, 1}};
    CHECK(refusal_of([&] { tessera::gather_vectors_backward(exec, groups, 3, from, to); }) ==
          "gather_vectors_backward: no such row (position 1, index " + std::to_string(rows) + ", rows " + std::to_string(rows) + ")");
    CHECK(sums == floats(static_cast<std::size_t>(2 * rows), 7.0F));
  }
}
