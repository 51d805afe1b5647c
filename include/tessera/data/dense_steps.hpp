// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A number x becomes ln(max(x, 0) + 1).
struct log_values {
  friend bool operator==(log_values const&, log_values const&) = default;
};

/// A number x becomes (x − mean) / deviation. Where the deviation is 0, a fit finds both in the training data.
struct standardise {
  double mean = 0;
  double deviation = 0;  ///< the standard deviation, > 0 when fitted; 1 for a column of equal numbers

  /// Whether mean and deviation are known.
  bool is_fitted() const noexcept { return deviation > 0; }
  friend bool operator==(standardise const&, standardise const&) = default;
};

/// A number past a bound becomes that bound. @pre least <= most.
struct clip_numbers {
  float least = -std::numeric_limits<float>::infinity();
  float most = std::numeric_limits<float>::infinity();

  friend bool operator==(clip_numbers const&, clip_numbers const&) = default;
};

/// A number becomes the count of the boundaries that are at most that number. With `buckets` and no boundaries, a fit takes the quantiles
/// of the training data. Each bucket then has about as many numbers as the others. Equal boundaries are one, and the least number is no
/// boundary, as no number is below it.
struct bucketise {
  std::vector<float> boundaries{};  ///< finite, ascending
  std::int64_t buckets = 0;         ///< 0: the boundaries are given; else at least 2

  /// Whether the boundaries are known.
  bool is_fitted() const noexcept { return buckets == 0 || !boundaries.empty(); }
  friend bool operator==(bucketise const&, bucketise const&) = default;
};

/// A missing number becomes `value`, which is finite.
struct fill_missing {
  float value = 0;

  friend bool operator==(fill_missing const&, fill_missing const&) = default;
};

/// Gives a further feature, named as the column with " missing" behind: 1 where the column has no number, else 0. The step may stand
/// anywhere among the others.
struct indicate_missing {
  friend bool operator==(indicate_missing const&, indicate_missing const&) = default;
};

/// One step of a rule for a column of numbers.
using dense_step = std::variant<log_values, standardise, clip_numbers, bucketise, fill_missing, indicate_missing>;

/// What becomes of columns of numbers: each step in order. A missing number stays missing except in `fill_missing`.
struct dense_rule {
  std::vector<std::string> columns{};  ///< none: the columns that no other rule names
  std::vector<dense_step> steps{};

  friend bool operator==(dense_rule const&, dense_rule const&) = default;
};

namespace detail {

// ln(y) of a double y >= 1, within a few units in the last place, in code that compilers turn into vectors: y = 2^k m with m from sqrt(1/2)
// to sqrt(2), and ln(m) = 2 artanh(s) for s = (m - 1) / (m + 1) by its series, whose first term left out is below 2^-52 of the sum.
inline double log_of_at_least_one(double y) noexcept {
  constexpr auto least_bits = std::bit_cast<std::uint64_t>(0.70710678118654752);
  constexpr auto two_to_52_bits = std::bit_cast<std::uint64_t>(0x1p52);
  auto const bits = std::bit_cast<std::uint64_t>(y);
  auto const k = (bits - least_bits) >> 52;
  auto const m = std::bit_cast<double>(bits - (k << 52));
  auto const s = (m - 1) / (m + 1), square = s * s;
  double series = 1.0 / 19;
  for (int odd = 17; odd >= 3; odd -= 2) series = series * square + 1.0 / odd;
  return (std::bit_cast<double>(k | two_to_52_bits) - 0x1p52) * 0.69314718055994531 + 2 * (s + s * square * series);
}

// ln(max(x, 0) + 1), as exact; NaN stays. What 1 + x rounds away is added as the logarithm's slope there has it. Choices are made on bits:
// compilers would make branches of comparisons of doubles, and no vectors.
inline double log_plus_one(double number) noexcept {
  constexpr auto magnitude = ~std::uint64_t{0} >> 1;
  constexpr auto infinite = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  auto const of = [](bool choice) { return std::uint64_t{0} - static_cast<std::uint64_t>(choice); };
  auto bits = std::bit_cast<std::uint64_t>(number);
  bits &= ~(of(bits > magnitude) & of((bits & magnitude) <= infinite));  // a negative number, no NaN, is 0
  auto const x = std::bit_cast<double>(bits), y = 1 + x;
  auto const result = std::bit_cast<std::uint64_t>(log_of_at_least_one(y) + (x - (y - 1)) / y);
  auto const stays = of((bits & magnitude) >= infinite);
  return std::bit_cast<double>((result & ~stays) | (bits & stays));
}

/// @throws tessera::error invalid_argument naming column and value.
inline void check_step(std::string const& caller, std::string const& column, dense_step const& step) {
  auto const refuse = [&](char const* what, std::vector<error_value> values) {
    values.emplace(values.begin(), "column", column);
    throw error(errc::invalid_argument, caller + ": " + what, std::move(values));
  };
  if (auto const* const s = std::get_if<standardise>(&step); s != nullptr)
    if (!std::isfinite(s->mean) || !std::isfinite(s->deviation) || s->deviation < 0)
      refuse("mean or deviation", {{"mean", s->mean}, {"deviation", s->deviation}});
  if (auto const* const s = std::get_if<clip_numbers>(&step); s != nullptr)
    if (!(s->least <= s->most)) refuse("bounds out of order", {{"least", s->least}, {"most", s->most}});
  if (auto const* const s = std::get_if<bucketise>(&step); s != nullptr) {
    if (s->buckets < 0 || s->buckets == 1) refuse("number of buckets", {{"buckets", s->buckets}, {"least", 2}});
    for (std::size_t i = 0; i < s->boundaries.size(); ++i)
      if (!std::isfinite(s->boundaries[i]) || (i > 0 && s->boundaries[i] <= s->boundaries[i - 1]))
        refuse("boundaries that do not ascend", {{"position", i}, {"boundary", s->boundaries[i]}});
  }
  if (auto const* const s = std::get_if<fill_missing>(&step); s != nullptr)
    if (!std::isfinite(s->value)) refuse("a number to fill in that is not finite", {{"value", s->value}});
}

inline bool is_fitted(dense_step const& step) noexcept {
  return std::visit(
      [](auto const& s) {
        if constexpr (requires { s.is_fitted(); })
          return s.is_fitted();
        else
          return true;
      },
      step);
}

/// Applies a step to n numbers in place; NaN is a missing one. @pre the step is fitted.
inline void apply_step(dense_step const& step, double* values, std::int64_t n) noexcept {
  auto const each = [=](auto const& f) {
    for (std::int64_t i = 0; i < n; ++i) values[i] = f(values[i]);
  };
  if (std::holds_alternative<log_values>(step)) {
    each([](double x) { return log_plus_one(x); });
  } else if (auto const* const s = std::get_if<standardise>(&step)) {
    each([mean = s->mean, deviation = s->deviation](double x) { return (x - mean) / deviation; });
  } else if (auto const* const c = std::get_if<clip_numbers>(&step)) {
    each([least = double{c->least}, most = double{c->most}](double x) { return x < least ? least : x > most ? most : x; });
  } else if (auto const* const b = std::get_if<bucketise>(&step)) {
    each([&](double x) {
      auto const& bounds = b->boundaries;
      return std::isnan(x) ? x : static_cast<double>(std::upper_bound(bounds.begin(), bounds.end(), x) - bounds.begin());
    });
  } else if (auto const* const f = std::get_if<fill_missing>(&step)) {
    each([value = double{f->value}](double x) { return std::isnan(x) ? value : x; });
  }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
