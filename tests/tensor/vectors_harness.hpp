// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"

namespace tessera_tests {

/// Rows of vectors as references compute with them: rows[i][j][c]. Rows of one length are a dense (rows, width, dim), of length 1 a matrix.
using nested = std::vector<std::vector<std::vector<double>>>;

inline nested nested_of(std::vector<std::int64_t> const& lengths, std::int64_t dim, double value = 0) {
  nested rows;
  for (auto const length : lengths)
    rows.emplace_back(static_cast<std::size_t>(length), std::vector<double>(static_cast<std::size_t>(dim), value));
  return rows;
}
inline nested nested_of(std::size_t rows, std::int64_t width, std::int64_t dim, double value = 0) {
  return nested_of(std::vector<std::int64_t>(rows, width), dim, value);
}

template <class F>
void for_each_element(nested& rows, F const& f) {
  for (auto& row : rows)
    for (auto& vector : row)
      for (auto& x : vector) f(x);
}

/// Standard normal, and floats.
inline nested random_values(std::mt19937_64& random, nested rows) {
  std::normal_distribution<float> draw;
  for_each_element(rows, [&](double& x) { x = static_cast<double>(draw(random)); });
  return rows;
}

inline std::vector<std::int64_t> lengths_of(nested const& rows) {
  std::vector<std::int64_t> lengths;
  for (auto const& row : rows) lengths.push_back(static_cast<std::int64_t>(row.size()));
  return lengths;
}

/// Float vectors in memory whose surroundings show who touches them: floats before all, vectors before and behind those of the rows, and a
/// gap behind each.
struct float_rows {
  static constexpr float canary = -12345.678F;
  static constexpr std::int64_t behind = 2;

  std::int64_t dim, gap, before, lead;
  std::vector<std::int64_t> offsets;  // from `before`
  std::vector<float> storage;

  float_rows(nested const& rows, std::int64_t dim, std::int64_t gap = 0, std::int64_t before = 0, std::int64_t lead = 0)
      : dim(dim), gap(gap), before(before), lead(lead), offsets{before} {
    for (auto const& row : rows) offsets.push_back(offsets.back() + static_cast<std::int64_t>(row.size()));
    storage.assign(static_cast<std::size_t>(lead + (offsets.back() + behind) * (dim + gap)), canary);
    auto at = before;
    for (auto const& row : rows)
      for (auto const& vector : row) {
        std::transform(vector.begin(), vector.end(), storage.begin() + lead + (at++) * (dim + gap),
                       [](double x) { return static_cast<float>(x); });
      }
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t vectors() const { return offsets.back() + behind; }
  nested values() const {
    nested result;
    for (std::size_t row = 0; row + 1 < offsets.size(); ++row) {
      result.emplace_back();
      for (auto v = offsets[row]; v < offsets[row + 1]; ++v)
        result.back().emplace_back(storage.begin() + lead + v * (dim + gap), storage.begin() + lead + v * (dim + gap) + dim);
    }
    return result;
  }
  bool surroundings_intact() const {
    if (std::count(storage.begin(), storage.begin() + lead, canary) != lead) return false;
    for (std::int64_t v = 0; v < vectors(); ++v)
      for (std::int64_t c = 0; c < dim + gap; ++c)
        if ((v < before || v >= offsets.back() || c >= dim) && storage[static_cast<std::size_t>(lead + v * (dim + gap) + c)] != canary)
          return false;
    return true;
  }
};

/// Float rows where an execution reads and writes them.
template <class Harness>
class placed {
 public:
  placed(Harness& harness, float_rows rows)
      : harness_(harness), rows_(std::move(rows)), storage_(harness.put(rows_.storage)), offsets_(harness.put(rows_.offsets)) {}

  tessera::jagged_vectors_view<float> jagged() {
    return {{storage_.data() + rows_.lead, rows_.vectors(), rows_.dim, rows_.dim + rows_.gap}, offsets_.data(), rows_.rows()};
  }
  /// All vectors of all rows.
  tessera::matrix_view<float> matrix() { return jagged().values.rows_from(rows_.before, rows_.offsets.back() - rows_.before); }
  /// What they hold now; fails the test where something else was written.
  nested values() {
    rows_.storage = harness_.get(storage_);
    CHECK(rows_.surroundings_intact());
    return rows_.values();
  }

 private:
  Harness& harness_;
  float_rows rows_;
  typename Harness::template array<float> storage_;
  typename Harness::template array<std::int64_t> offsets_;
};

/// What a call throws; fails the test when that is no tessera::error.
template <class F>
tessera::error thrown_by(F const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  FAIL("nothing was thrown");
  return tessera::error(tessera::errc::invalid_argument, "nothing was thrown");
}

/// Random rows, and rows placed with random gaps, first offsets and alignment. A harness offers `exec()`, which `synchronize()`s, `array<T>`,
/// `put(values)` and `get(array)`.
template <class Harness>
class vectors_harness {
 public:
  placed<Harness> place(nested const& rows, std::int64_t dim) {
    auto const few = [&] { return static_cast<std::int64_t>(random_() % 3); };
    auto const gap = few(), before = few(), lead = random_() % 2 == 0 ? 0 : few();
    return placed<Harness>(self(), float_rows(rows, dim, gap, before, lead));
  }
  /// Rows to be written: NaN shows what was not.
  placed<Harness> place_for(nested rows, std::int64_t dim) {
    for_each_element(rows, [](double& x) { x = std::nan(""); });
    return place(rows, dim);
  }
  std::vector<std::int64_t> lengths(std::size_t rows, double mean) { return random_lengths(random_, rows, mean); }
  nested random(std::vector<std::int64_t> const& lengths, std::int64_t dim) { return random_values(random_, nested_of(lengths, dim)); }
  nested random(std::size_t rows, std::int64_t width, std::int64_t dim) { return random_values(random_, nested_of(rows, width, dim)); }
  std::mt19937_64& engine() { return random_; }
  void seed(std::uint64_t seed) { random_.seed(seed); }

  /// What a call throws by the time that it is done.
  template <class F>
  tessera::error thrown_by(F const& call) {
    return tessera_tests::thrown_by([&] {
      call();
      self().synchronize();
    });
  }

 private:
  Harness& self() noexcept { return static_cast<Harness&>(*this); }

  std::mt19937_64 random_;
};

template <class Host>
class vectors_host : public vectors_harness<vectors_host<Host>> {
 public:
  template <class T>
  using array = std::vector<T>;

  tessera::host_exec exec() noexcept { return host_.exec(); }
  void synchronize() noexcept {}
  template <class T>
  std::vector<T> put(std::vector<T> values) {
    return values;
  }
  template <class T>
  std::vector<T> get(std::vector<T> const& values) {
    return values;
  }

 private:
  Host host_;
};

/// The largest difference, in units of the largest expected value, or of 1 where that is smaller; infinite for NaN or another shape.
inline double worst_difference(nested const& result, nested const& expected) {
  if (lengths_of(result) != lengths_of(expected)) return HUGE_VAL;
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < result.size(); ++i)
    for (std::size_t j = 0; j < result[i].size(); ++j) {
      if (result[i][j].size() != expected[i][j].size()) return HUGE_VAL;
      for (std::size_t c = 0; c < result[i][j].size(); ++c) {
        auto const difference = std::fabs(result[i][j][c] - expected[i][j][c]);
        if (!(difference <= worst)) worst = std::isnan(difference) ? HUGE_VAL : difference;
        largest = std::max(largest, std::fabs(expected[i][j][c]));
      }
    }
  return worst / largest;
}

/// <a, b>.
inline double inner(nested const& a, nested const& b) {
  REQUIRE(lengths_of(a) == lengths_of(b));
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      for (std::size_t c = 0; c < a[i][j].size(); ++c) sum += a[i][j][c] * b[i][j][c];
  return sum;
}

/// Whether <A x, y> and <x, A^T y> agree, for sums of `terms` rounded products.
inline bool adjoint(nested const& ax, nested const& y, nested const& x, nested const& aty) {
  auto const left = inner(ax, y), right = inner(x, aty);
  auto const scale = std::sqrt(inner(ax, ax) * inner(y, y)) + std::sqrt(inner(x, x) * inner(aty, aty)) + 1e-30;
  return std::fabs(left - right) <= 1e-5 * scale;
}

/// Central differences of <weight, f()> by each element of `variable`, which f reads.
template <class F>
nested numeric_gradient(nested& variable, nested const& weight, F const& f, double step = 1e-5) {
  auto result = variable;
  for (std::size_t i = 0; i < variable.size(); ++i)
    for (std::size_t j = 0; j < variable[i].size(); ++j)
      for (std::size_t c = 0; c < variable[i][j].size(); ++c) {
        auto& x = variable[i][j][c];
        auto const before = x;
        x = before + step;
        auto const above = inner(f(), weight);
        x = before - step;
        auto const below = inner(f(), weight);
        x = before;
        result[i][j][c] = (above - below) / (2 * step);
      }
  return result;
}

/// The shapes that every primitive is tried on: rows, mean length, dim. Some fill several pieces.
struct vectors_shape {
  std::size_t rows;
  double mean;
  std::int64_t dim;
};
inline std::vector<vectors_shape> const vectors_shapes{{0, 0, 3},  {1, 1, 1},    {5, 0, 4},    {7, 3, 1},    {9, 3, 3},    {30, 4, 17},
                                                       {8, 5, 64}, {11, 4, 130}, {6, 9, 1027}, {900, 20, 1}, {400, 20, 3}, {200, 20, 16}};

inline std::vector<std::uint64_t> bits_of(std::vector<nested> results) {
  std::vector<std::uint64_t> bits;
  for (auto& rows : results) for_each_element(rows, [&](double& x) { bits.push_back(std::bit_cast<std::uint64_t>(x)); });
  return bits;
}

/// Runs f(harness) on one thread, on two and on three: what it returns has the same bits.
template <class F>
void same_on_every_team(F const& f) {
  auto const bits = [&](auto harness) { return bits_of(f(harness)); };
  auto const expected = bits(vectors_host<serial_host>());
  CHECK(!expected.empty());
  CHECK(bits(vectors_host<pool_host<2>>()) == expected);
  CHECK(bits(vectors_host<pool_host<3>>()) == expected);
}

}  // namespace tessera_tests
