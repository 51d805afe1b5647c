// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A sum of doubles without rounding: the same for every order and every way to part the numbers.
///
/// A fixed-point number of 2,176 bits, of which the lowest stands for the smallest double above 0. It takes 2^63 numbers of any size.
/// Infinities and NaN count as in a sum of doubles. Source: Kulisch, "Computer Arithmetic and Validity", 2013 (complete arithmetic).
class exact_sum {
 public:
  void add(double x) noexcept {
    auto const bits = std::bit_cast<std::uint64_t>(x);
    auto const exponent = static_cast<int>((bits >> 52) & 0x7ff);
    if (exponent == 0x7ff) {
      unbounded_ += x;
      return;
    }
    auto const fraction = bits & ((std::uint64_t{1} << 52) - 1);
    auto const place = exponent == 0 ? 0 : exponent - 1;  // of the mantissa's lowest bit
    wide const shifted = wide{exponent == 0 ? fraction : fraction | (std::uint64_t{1} << 52)} << (place % digit_bits);
    auto* const digits = digits_.data() + place / digit_bits;
    std::int64_t const sign = (bits >> 63) != 0 ? -1 : 1;
    digits[0] += sign * digit_of(shifted);
    digits[1] += sign * digit_of(shifted >> digit_bits);
    digits[2] += sign * digit_of(shifted >> (2 * digit_bits));
    if (++added_ == most_added) carry();
  }

  /// Adds a product without rounding. @pre both factors are 0, or the product is 2^-968 at least; else its lowest bits may be lost.
  void add_product(double a, double b) noexcept {
    auto const product = a * b;
    add(product);
    if (std::isfinite(product)) add(std::fma(a, b, -product));
  }

  /// Adds all that another sum has. @post equal to the sum of the numbers of both
  void merge(exact_sum const& other) noexcept {
    auto from = other;
    from.carry();
    carry();
    for (std::size_t i = 0; i < digits_.size(); ++i) digits_[i] += from.digits_[i];
    unbounded_ += other.unbounded_;
    carry();
  }

  /// The nearest double, ties to even; infinite beyond the largest.
  double value() const noexcept {
    if (unbounded_ != 0) return unbounded_;
    auto digits = *this;
    digits.carry();
    bool const is_negative = digits.digits_.back() < 0;
    if (is_negative) {
      for (auto& digit : digits.digits_) digit = -digit;
      digits.carry();
    }
    auto const magnitude = digits.magnitude();
    return is_negative ? -magnitude : magnitude;
  }

  /// Doubles whose sum it is, largest first, each the nearest to what those before leave; none for 0.
  /// @post the sum of the parts equals it, unless it is beyond the largest double
  std::vector<double> parts() const {
    std::vector<double> result;
    auto rest = *this;
    for (auto part = rest.value(); part != 0; part = rest.value()) {
      result.push_back(part);
      if (!std::isfinite(part)) break;
      rest.add(-part);
    }
    return result;
  }

  /// Whether the sums are equal, however they came about; sums that are NaN are not.
  friend bool operator==(exact_sum const& a, exact_sum const& b) noexcept {
    auto first = a, second = b;
    first.carry();
    second.carry();
    return first.unbounded_ == second.unbounded_ && first.digits_ == second.digits_;
  }

 private:
  __extension__ typedef unsigned __int128 wide;

  static constexpr int digit_bits = 32, lowest_exponent = -1074;
  static constexpr std::int32_t most_added = 1 << 30;  // each adds less than 2^32 to a digit

  static std::int64_t digit_of(wide value) noexcept { return static_cast<std::int64_t>(static_cast<std::uint32_t>(value)); }

  // Brings all digits but the last into [0, 2^32).
  void carry() noexcept {
    for (std::size_t i = 0; i + 1 < digits_.size(); ++i) {
      auto const carried = digits_[i] >> digit_bits;
      digits_[i] -= carried * (std::int64_t{1} << digit_bits);
      digits_[i + 1] += carried;
    }
    added_ = 0;
  }

  // Of carried digits whose last is not negative.
  double magnitude() const noexcept {
    if (digits_.back() > 0) return std::numeric_limits<double>::infinity();  // 2^1070 at least
    auto top = digits_.size();
    while (top > 0 && digits_[top - 1] == 0) --top;
    // Four digits have 97 bits at least. What lies below decides ties alone.
    auto const low = top > 4 ? top - 4 : 0;
    wide bits = 0;
    for (auto i = top; i > low; --i) bits = bits << digit_bits | static_cast<std::uint32_t>(digits_[i - 1]);
    for (std::size_t i = 0; i < low; ++i)
      if (digits_[i] != 0) bits |= 1;
    return std::ldexp(static_cast<double>(bits), static_cast<int>(low) * digit_bits + lowest_exponent);
  }

  std::array<std::int64_t, 68> digits_{};  // of 32 bits, the lowest first, carried at times
  double unbounded_ = 0;                   // the sum of infinities and NaN
  std::int32_t added_ = 0;                 // numbers since digits were carried
};

}  // namespace TESSERA_ABI
}  // namespace tessera
