// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include <tessera/tensor/concat_vectors.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

TEST_CASE("rows of several parts stand one after the other, and come apart again") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    for (std::size_t const parts : {1U, 3U})
      for (std::size_t const rows : {0U, 1U, 900U})
        for (std::int64_t const dim : {1, 7, 64, 1025}) {
          if (dim > 1000 && rows > 100) continue;
          std::vector<std::vector<std::int64_t>> offsets(parts);
          std::vector<floats> values(parts), back(parts);
          std::vector<tessera::jagged_vectors_view<float const>> in;
          std::vector<tessera::jagged_vectors_view<float>> out;
          for (std::size_t p = 0; p < parts; ++p) {
            offsets[p] = {2};  // vectors before the first row
            for (auto const length : tessera_tests::random_lengths(random, rows, 3)) offsets[p].push_back(offsets[p].back() + length);
            values[p] = tessera_tests::random_floats(random, static_cast<std::size_t>(offsets[p].back() * dim));
            back[p].resize(values[p].size());
            in.push_back({{values[p].data(), offsets[p].back(), dim}, offsets[p].data(), static_cast<std::int64_t>(rows)});
            out.push_back({{back[p].data(), offsets[p].back(), dim}, offsets[p].data(), static_cast<std::int64_t>(rows)});
          }
          tessera::vector_view<tessera::jagged_vectors_view<float const> const> const all(in);
          std::vector<std::int64_t> together(rows + 1);
          tessera::concat_vectors_offsets(exec, all, together);
          floats whole(static_cast<std::size_t>(together.back() * dim));
          tessera::jagged_vectors_view<float> const view{
              {whole.data(), together.back(), dim}, together.data(), static_cast<std::int64_t>(rows)};
          tessera::concat_vectors(exec, all, view);
          floats expected;
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t p = 0; p < parts; ++p)
              expected.insert(expected.end(), values[p].begin() + offsets[p][r] * dim, values[p].begin() + offsets[p][r + 1] * dim);
          CHECK(whole == expected);
          tessera::split_vectors(exec, view, tessera::vector_view<tessera::jagged_vectors_view<float> const>(out));
          bool same = true;
          for (std::size_t p = 0; p < parts; ++p)
            for (auto i = static_cast<std::size_t>(2 * dim); i < back[p].size(); ++i) same = same && back[p][i] == values[p][i];
          CHECK(same);
        }
  });
}

TEST_CASE("parts that do not fit are refused by name") {
  tessera_tests::serial_host host;
  floats values(8);
  ids const two{0, 1, 2}, one{0, 1};
  std::vector<tessera::jagged_vectors_view<float const>> const in{{{values.data(), 2, 2}, two.data(), 2},
                                                                  {{values.data(), 1, 2}, one.data(), 1}};
  tessera::vector_view<tessera::jagged_vectors_view<float const> const> const all(in);
  ids offsets(3);
  CHECK(refusal_of([&] { tessera::concat_vectors_offsets(host.exec(), all, offsets); }) ==
        "concat_vectors_offsets: rows (rows 1, expected 2)");
  tessera::jagged_vectors_view<float> const out{{values.data(), 3, 2}, two.data(), 2};
  CHECK(refusal_of([&] { tessera::concat_vectors(host.exec(), all, out); }) == "concat_vectors: rows (rows 1, expected 2)");
  CHECK(refusal_of([&] {
          tessera::concat_vectors(host.exec(), all.slice(0, 1), tessera::jagged_vectors_view<float>{{values.data(), 2, 1}, two.data(), 2});
        }) == "concat_vectors: dim (dim 2, expected 1)");
}

TEST_CASE("parts whose rows have other lengths than those of the whole are refused before anything is written") {
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    // As many vectors in all, the first row's and the last's lengths exchanged.
    ids const of_part{0, 0, 1, 4}, of_whole{2, 5, 6, 6};
    floats part(8, 1), whole(12, 7);
    std::vector<tessera::jagged_vectors_view<float const>> const in{{{part.data(), 4, 2}, of_part.data(), 3}};
    std::vector<tessera::jagged_vectors_view<float>> const out{{{part.data(), 4, 2}, of_part.data(), 3}};
    tessera::jagged_vectors_view<float> const to{{whole.data(), 6, 2}, of_whole.data(), 3};
    CHECK(refusal_of([&] {
            tessera::concat_vectors(exec, tessera::vector_view<tessera::jagged_vectors_view<float const> const>(in), to);
          }) == "concat_vectors: a row of another length than its parts have (row 0, length 3, length expected 0)");
    CHECK(refusal_of([&] { tessera::split_vectors(exec, to, tessera::vector_view<tessera::jagged_vectors_view<float> const>(out)); }) ==
          "split_vectors: a row of another length than its parts have (row 0, length 3, length expected 0)");
    CHECK(part == floats(8, 1));
    CHECK(whole == floats(12, 7));
  });
}
