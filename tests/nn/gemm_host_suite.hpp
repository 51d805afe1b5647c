// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <iterator>
#include <numeric>

#include <tessera/nn/gemm_eigen.hpp>

#include "gemm_suite.hpp"

/// What a gemm policy must show on the host beside `gemm_suite`, each for a test case of its own.
namespace tessera_tests {

/// Many small products at once, each thread's of its own factors: a library whose buffers are a race between threads mixes them up. To stand
/// first in its file, since the race is mostly for the first buffers of a process.
template <class Gemm>
void gemm_concurrent_calls() {
  constexpr std::int64_t m = 257, n = 15, k = 2, pieces = 16;
  std::int64_t const products = under_sanitizer ? 100 : 4000;
  strided_floats const ones(k, n, 0, 1);
  pool_host<2> host;
  std::vector<std::int64_t> wrong(static_cast<std::size_t>(pieces));
  host.exec().run(pieces, [&](std::int64_t piece) {
    auto const value = static_cast<float>(piece + 1);
    strided_floats const mine(m, k, 0, value);
    strided_floats c(m, n, 0);
    std::vector<float> workspace(static_cast<std::size_t>(Gemm::workspace(m, n, k)));
    for (std::int64_t i = 0; i < products; ++i) {
      Gemm::multiply(mine.view(), ones.view(), c.view(), workspace.data());
      wrong[static_cast<std::size_t>(piece)] += m * n - std::count(c.storage.begin(), c.storage.end(), k * value);
    }
  });
  CHECK(std::accumulate(wrong.begin(), wrong.end(), std::int64_t{0}) == 0);
}

/// 1, 2 and 4 threads give the same bits, near Eigen's products of the factors as the policy takes them, and nothing is allocated that the
/// policy does not ask for.
template <class Gemm, class Taken = std::identity>
void gemm_same_bits(Taken const& taken = {}) {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<gemm_shape> shapes{{1, 1, 1}, {17, 513, 33}, {300, 300, 5}, {1, 700, 100}, {700, 1, 100}, {33, 65, 3000}};
  if (!under_sanitizer)
    shapes.insert(shapes.end(), {{128, 512, 367}, {2048, 16, 64}, {367, 512, 2048}, {1, 256, 2048}, {2048, 512, 13}, {2048, 1, 256}});
  for (auto const shape : shapes) {
    auto const m = shape.m, n = shape.n, k = shape.k;
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    strided_floats const a(random, m, k, 1), b(random, k, n, 0);
    strided_floats by_eigen(m, n, 2);
    serial_host host;
    tessera::gemm(host.exec(), tessera::eigen_gemm{}, taken(a).view(), taken(b).view(), by_eigen.view());
    for (unsigned way = 0; way < 4; ++way) {
      if (m * n * k > 1 << 24 && way != 1 && way != 2) continue;
      CAPTURE(way);
      auto const stored_a = (way & 1) != 0 ? a.transposed(0) : a;
      auto const stored_b = (way & 2) != 0 ? b.transposed(3) : b;
      tessera::gemm_operand const left(stored_a.view(), (way & 1) != 0), right(stored_b.view(), (way & 2) != 0);
      std::vector<float> first;
      for_each_host([&](tessera::host_exec const& exec, auto& memory) {
        strided_floats c(m, n, 2);
        auto const before = memory.allocations();
        tessera::gemm(exec, Gemm{}, left, right, c.view());
        if (Gemm::workspace(m, n, k) == 0) CHECK(memory.allocations() == before);
        if (first.empty()) {
          first = c.storage;
          CHECK(worst_difference(c, doubles(by_eigen)) < 1e-5);
        }
        CHECK(same_bits(c.storage, first));
      });
    }
  }
}

/// The stride of a matrix of one row means nothing, whatever it is.
template <class Gemm>
void gemm_single_rows() {
  std::vector<float> const row{1, 2, 3, 4, 5, 6};
  float product[2] = {};
  tessera::matrix_view<float const> const one(row.data(), 1, 3, 0), columns(row.data(), 3, 2);
  std::vector<float> workspace(static_cast<std::size_t>(Gemm::workspace(1, 2, 3)));
  Gemm::multiply(one, columns, tessera::matrix_view<float>(product, 1, 2, 0), workspace.data());
  CHECK(product[0] == 22);
  CHECK(product[1] == 28);
}

/// Threads of the process; none that a library starts escapes.
inline bool threads_can_be_counted() { return std::filesystem::exists("/proc/self/task"); }
inline auto count_threads() {
  std::filesystem::directory_iterator const tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// A product that libraries with threads of their own think large enough to share.
template <class Gemm>
void large_product() {
  serial_host host;
  strided_floats const a(1000, 1000, 0, 1), b(1000, 1000, 0, 1);
  strided_floats c(1000, 1000, 0);
  tessera::gemm(host.exec(), Gemm{}, a.view(), b.view(), c.view());
  CHECK(c.at(999, 999) == 1000);
}

}  // namespace tessera_tests
