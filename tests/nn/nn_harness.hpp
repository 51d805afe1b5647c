// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <new>
#include <random>
#include <type_traits>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "sanitizers.hpp"

namespace tessera_tests {

inline std::vector<float> copy_of(tessera::vector_view<float const> values) { return {values.begin(), values.end()}; }

/// The definition, in float.
struct naive_gemm {
  static std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) { return 0; }
  static void multiply(tessera::gemm_operand a, tessera::gemm_operand b, tessera::matrix_view<float> c, float*) {
    for (std::int64_t i = 0; i < c.rows(); ++i)
      for (std::int64_t j = 0; j < c.columns(); ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < a.columns(); ++k) {
          auto const left = a.is_transposed ? a.stored(k, i) : a.stored(i, k);
          auto const right = b.is_transposed ? b.stored(j, k) : b.stored(k, j);
          sum += left * right;
        }
        c(i, j) = sum;
      }
  }
};
static_assert(tessera::gemm_policy<naive_gemm>);

/// The same with a workspace.
struct naive_workspace_gemm : naive_gemm {
  static std::int64_t workspace(std::int64_t, std::int64_t, std::int64_t) { return 1; }
};

/// A product of (m, k) and (k, n).
struct gemm_shape {
  std::int64_t m, n, k;
};

/// What a suite of nn/ runs on: an execution, a gemm policy, and arrays where the execution reads them. A harness for a device offers the
/// same: `put` copies a vector there and returns an owner with data() and size(), `get` copies back.
template <class Gemm, class Host = serial_host>
class nn_host {
 public:
  tessera::host_exec exec() noexcept { return host_.exec(); }
  Gemm policy() const noexcept { return {}; }

  template <class T>
  std::vector<T> put(std::vector<T> values) {
    return values;
  }
  template <class T>
  std::vector<T> get(std::vector<T> const& values) {
    return values;
  }
  template <class T>
  std::vector<std::remove_const_t<T>> get(tessera::vector_view<T> values) {
    return {values.begin(), values.end()};
  }

 private:
  Host host_;
};

/// Row-major floats with a gap of canaries after each row: who writes past a row's end is caught.
struct strided_floats {
  static constexpr float canary = -12345.678F;

  std::int64_t rows, columns, stride;
  std::vector<float> storage;

  /// Full of `value`, NaN to catch what is read before it is written.
  strided_floats(std::int64_t rows, std::int64_t columns, std::int64_t gap, float value = std::nanf(""))
      : rows(rows), columns(columns), stride(columns + gap), storage(static_cast<std::size_t>(rows * stride), canary) {
    for (std::int64_t r = 0; r < rows; ++r) std::fill_n(storage.begin() + r * stride, columns, value);
  }
  strided_floats(std::mt19937_64& random, std::int64_t rows, std::int64_t columns, std::int64_t gap) : strided_floats(rows, columns, gap) {
    std::normal_distribution<float> draw;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) at(r, c) = draw(random);
  }

  float& at(std::int64_t r, std::int64_t c) { return storage[static_cast<std::size_t>(r * stride + c)]; }
  float at(std::int64_t r, std::int64_t c) const { return storage[static_cast<std::size_t>(r * stride + c)]; }
  bool gaps_intact() const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (auto c = columns; c < stride; ++c)
        if (at(r, c) != canary) return false;
    return true;
  }
  strided_floats transposed(std::int64_t gap) const {
    strided_floats other(columns, rows, gap);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) other.at(c, r) = at(r, c);
    return other;
  }

  /// The matrix in memory that holds a copy of `storage`.
  tessera::matrix_view<float> in(float* copy) const { return {copy, rows, columns, stride}; }
  tessera::matrix_view<float const> in(float const* copy) const { return {copy, rows, columns, stride}; }
  tessera::matrix_view<float> view() { return in(storage.data()); }
  tessera::matrix_view<float const> view() const { return in(storage.data()); }
};

/// Dense row-major doubles: what references compute with.
struct doubles {
  std::int64_t rows, columns;
  std::vector<double> values;

  doubles(std::int64_t rows, std::int64_t columns) : rows(rows), columns(columns), values(static_cast<std::size_t>(rows * columns)) {}
  explicit doubles(tessera::matrix_view<float const> m) : doubles(m.rows(), m.columns()) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) at(r, c) = static_cast<double>(m(r, c));
  }
  explicit doubles(strided_floats const& m) : doubles(m.view()) {}
  double& at(std::int64_t r, std::int64_t c) { return values[static_cast<std::size_t>(r * columns + c)]; }
  double at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * columns + c)]; }
};

/// The largest |result - expected| over all elements, in units of the largest |expected|, or of 1 where that is smaller. NaN counts as
/// infinite, so a check for `< tolerance` fails.
inline double worst_difference(std::vector<double> const& result, std::vector<double> const& expected) {
  if (result.size() != expected.size()) return HUGE_VAL;
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < result.size(); ++i) {
    auto const difference = std::fabs(result[i] - expected[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? HUGE_VAL : difference;
    largest = std::max(largest, std::fabs(expected[i]));
  }
  return worst / largest;
}
inline double worst_difference(strided_floats const& result, doubles const& expected) {
  return worst_difference(doubles(result).values, expected.values);
}
template <class Floats>
double worst_difference(Floats const& result, std::vector<double> const& expected) {
  return worst_difference(std::vector<double>(result.begin(), result.end()), expected);
}

/// Equal bit by bit: 0 and -0 differ, a NaN equals itself.
inline bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

/// Central difference of f() by the variable x, in double.
template <class F>
double numeric_derivative(double& x, F const& f, double step = 1e-6) {
  auto const before = x;
  x = before + step;
  auto const above = f();
  x = before - step;
  auto const below = f();
  x = before;
  return (above - below) / (2 * step);
}

/// Of a forward that throws, for a wrong shape or for want of memory, no backward takes what it saved, whatever was saved before.
/// `Saved`: of a network from `in` to `out` floats a sample.
template <class Saved, class Net>
void check_failed_forward(serial_host& host, Net const& net, std::int64_t in, std::int64_t out) {
  constexpr std::int64_t samples = 3;
  std::vector<float> const x(static_cast<std::size_t>(samples * in), 1.0F);
  std::vector<float> y(static_cast<std::size_t>(samples * out)), y_gradient(y.size(), 1.0F);
  std::vector<float> const untouched(static_cast<std::size_t>(net.parameters().size()), 7.0F);
  auto gradient = untouched;
  Saved saved;
  auto const forward = [&](std::int64_t rows) {
    net.forward(host.exec(), naive_workspace_gemm{}, tessera::matrix_view<float const>(x.data(), samples, in),
                tessera::matrix_view<float>(y.data(), rows, out), saved);
  };
  auto const backward = [&] {
    net.backward(host.exec(), naive_workspace_gemm{}, saved, tessera::matrix_view<float>(y_gradient.data(), samples, out), gradient);
  };
  auto const refused = [&] {
    try {
      backward();
    } catch (tessera::error const& e) {
      return e.code() == tessera::errc::shape_mismatch && gradient == untouched;
    }
    return false;
  };
  forward(samples);
  CHECK_THROWS_AS(forward(samples - 1), tessera::error);
  CHECK(refused());
  bool failed = true;
  for (int allowed = 0; failed; ++allowed) {
    forward(samples);
    host.memory().fail_after(allowed);
    try {
      forward(samples);
      failed = false;
    } catch (std::bad_alloc const&) {
    }
    host.memory().never_fail();
    CHECK(refused() == failed);
    CHECK((allowed > 0 || failed));  // a product has a workspace
  }
  CHECK(gradient != untouched);
}

}  // namespace tessera_tests
