// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/tensor/gather_vectors.hpp>

#include "inverse_support.hpp"
#include "sanitizers.hpp"

using namespace tensor_tests;

namespace {

// Matrices of some rows and several dims, side by side in rows wider than they are.
struct matrices {
  std::int64_t rows, width = 0;
  std::vector<std::int64_t> dims;
  floats values;

  matrices(std::mt19937_64& random, std::int64_t rows, std::vector<std::int64_t> const& dims) : rows(rows), dims(dims) {
    for (auto const dim : dims) width += dim + 3;
    values = tessera_tests::random_floats(random, static_cast<std::size_t>(rows * width));
  }
  std::vector<tessera::matrix_view<float>> views() {
    std::vector<tessera::matrix_view<float>> result;
    std::int64_t first = 0;
    for (auto const dim : dims) {
      result.emplace_back(values.empty() ? nullptr : values.data() + first, rows, dim, width);
      first += dim + 3;
    }
    return result;
  }
  std::vector<tessera::matrix_view<float const>> views() const {
    std::vector<tessera::matrix_view<float const>> result;
    for (auto const view : const_cast<matrices*>(this)->views()) result.push_back(view);
    return result;
  }
};

}  // namespace

TEST_CASE("gathered rows and summed gradients are those of a naive loop, whatever the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (auto const& dims : std::vector<std::vector<std::int64_t>>{{}, {1}, {64, 3}, {16, 1025, 7}})
    for (std::int64_t const rows : {1, 7, 600})
      for (std::int64_t const n : {0, 1, 5, 3000}) {
        CAPTURE(rows);
        CAPTURE(n);
        std::mt19937_64 random(seed);
        matrices const in(random, rows, dims), gradient(random, n, dims);
        auto const indices = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(n), 0, rows - 1);
        floats first_out, first_sums;
        tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
          matrices out(random, n, dims), sums(random, rows, dims);
          auto const before = out.values, sums_before = sums.values;
          tessera::gather_vectors(exec, in.views(), indices, out.views());
          tessera::gather_vectors_backward(exec, gradient.views(), indices, sums.views());
          auto expected_out = before, expected_sums = sums_before;
          std::int64_t column = 0;
          for (auto const dim : dims) {
            for (std::int64_t c = column; c < column + dim; ++c) {
              for (std::int64_t r = 0; r < rows; ++r) {
                float sum = 0;
                bool is_first = true;
                for (std::int64_t i = 0; i < n; ++i) {
                  if (indices[static_cast<std::size_t>(i)] != r) continue;
                  auto const more = gradient.values[static_cast<std::size_t>(i * gradient.width + c)];
                  sum = is_first ? more : sum + more;
                  is_first = false;
                }
                expected_sums[static_cast<std::size_t>(r * sums.width + c)] = sum;
              }
              for (std::int64_t i = 0; i < n; ++i)
                expected_out[static_cast<std::size_t>(i * out.width + c)] =
                    in.values[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)] * in.width + c)];
            }
            column += dim + 3;
          }
          CHECK(out.values == expected_out);
          CHECK(sums.values == expected_sums);
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
  using gather = tessera::detail::back_end<tessera::detail::gather_vectors_tag, tessera::host_exec>;
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
        std::vector<matrices> in, gradient, out, sums;
        for (std::size_t g = 0; g < rows.size(); ++g) {
          inverses.push_back(tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(n), 0, rows[g] - 1));
          in.emplace_back(random, rows[g], dims[g]);
          gradient.emplace_back(random, n, dims[g]);
          out.emplace_back(random, n, dims[g]);
          sums.emplace_back(random, rows[g], dims[g]);
        }
        auto const together = [](std::vector<matrices>& all) {
          std::vector<tessera::matrix_view<float>> views;
          for (auto& some : all)
            for (auto const view : some.views()) views.push_back(view);
          return views;
        };
        auto const to_read = [&](std::vector<matrices>& all) {
          auto const views = together(all);
          return std::vector<tessera::matrix_view<float const>>(views.begin(), views.end());
        };
        for (std::size_t g = 0; g < rows.size(); ++g) {
          auto const first = groups.empty() ? 0 : groups.back().first_key + groups.back().keys;
          groups.push_back({first, static_cast<std::int64_t>(dims[g].size()), inverses[g].data()});
        }
        auto expected_out = out, expected_sums = sums;
        gather::forward(exec, groups, n, to_read(in), together(out));
        gather::backward(exec, groups, n, to_read(gradient), together(sums));
        for (std::size_t g = 0; g < rows.size(); ++g) {
          std::int64_t column = 0;
          for (auto const dim : dims[g]) {
            for (std::int64_t c = column; c < column + dim; ++c) {
              auto const& to = inverses[g];
              std::vector<char> named(static_cast<std::size_t>(rows[g]));
              for (std::int64_t r = 0; r < rows[g]; ++r) expected_sums[g].values[static_cast<std::size_t>(r * sums[g].width + c)] = 0;
              for (std::int64_t i = 0; i < n; ++i) {
                auto const row = to[static_cast<std::size_t>(i)];
                auto const more = gradient[g].values[static_cast<std::size_t>(i * gradient[g].width + c)];
                auto& sum = expected_sums[g].values[static_cast<std::size_t>(row * sums[g].width + c)];
                sum = named[static_cast<std::size_t>(row)] ? sum + more : more;
                named[static_cast<std::size_t>(row)] = true;
                expected_out[g].values[static_cast<std::size_t>(i * out[g].width + c)] =
                    in[g].values[static_cast<std::size_t>(row * in[g].width + c)];
              }
            }
            column += dim + 3;
          }
          CHECK(out[g].values == expected_out[g].values);
          CHECK(sums[g].values == expected_sums[g].values);
        }
      }
  });
}

TEST_CASE("of groups, too, nothing is summed where one has an index that names no row") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (std::int64_t const rows : {3, 70'000}) {  // sorted by one thread, or by all
    CAPTURE(rows);
    ids const sound{0, 2, 1}, unsound{0, rows, 1};
    std::vector<tessera::row_group> const groups{{0, 1, sound.data()}, {1, 1, unsound.data()}};
    floats const gradient(3, 1.0F);
    floats sums(static_cast<std::size_t>(2 * rows), 7.0F);
    std::vector<tessera::matrix_view<float const>> const from(2, {gradient.data(), 3, 1});
    std::vector<tessera::matrix_view<float>> const to{{sums.data(), rows, 1}, {sums.data() + rows, rows, 1}};
    CHECK(refusal_of([&] {
            tessera::detail::back_end<tessera::detail::gather_vectors_tag, tessera::host_exec>::backward(exec, groups, 3, from, to);
          }) == "gather_vectors_backward: no such row (position 1, index " + std::to_string(rows) + ", rows " + std::to_string(rows) + ")");
    CHECK(sums == floats(static_cast<std::size_t>(2 * rows), 7.0F));
  }
}
