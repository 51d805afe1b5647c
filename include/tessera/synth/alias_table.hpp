// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Draws numbers 0 … size() - 1 with given probabilities. A draw takes 64 random bits and constant time; a table has 8 bytes a number.
///
/// Probabilities are exact up to about 2^-32. An object never changes, so any number of threads may use it. Source: Walker, "An efficient
/// method for generating discrete random variables with general distributions", ACM TOMS 3(3), 1977; built as in Vose, IEEE TSE 17(9),
/// 1991.
class alias_table {
 public:
  /// The largest number of weights.
  static constexpr std::int64_t most_numbers = std::int64_t{1} << 24;

  /// Gives number i the probability weights[i] / sum of `weights`; `weights` has shape (numbers,).
  /// @throws tessera::error invalid_argument for no weights, more than most_numbers, a weight that is negative or NaN, or a sum that is 0
  /// or infinite.
  explicit alias_table(std::vector<double> const& weights) : entries_(weights.size()) {
    auto const n = weights.size();
    if (n == 0 || n > static_cast<std::size_t>(most_numbers))
      throw error(errc::invalid_argument, "alias_table: number of weights", {{"weights", n}, {"least", 1}, {"most", most_numbers}});
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (!(weights[i] >= 0)) throw error(errc::invalid_argument, "alias_table: weight", {{"number", i}, {"weight", weights[i]}});
      sum += weights[i];
    }
    if (!(sum > 0 && std::isfinite(sum))) throw error(errc::invalid_argument, "alias_table: sum of weights", {{"sum", sum}});

    // Shares of 1 / n each: what one lacks is filled by another that has more.
    std::vector<double> share(n);
    std::vector<std::uint32_t> lacking, rich;
    for (std::size_t i = 0; i < n; ++i) {
      share[i] = weights[i] / sum * static_cast<double>(n);
      (share[i] < 1 ? lacking : rich).push_back(static_cast<std::uint32_t>(i));
    }
    for (std::size_t i = 0; i < n; ++i) entries_[i] = {full, static_cast<std::uint32_t>(i)};
    while (!lacking.empty() && !rich.empty()) {
      auto const poor = lacking.back(), giver = rich.back();
      lacking.pop_back();
      entries_[poor] = {static_cast<std::uint32_t>(share[poor] * 0x1p32), giver};
      share[giver] -= 1 - share[poor];
      if (share[giver] < 1) {
        rich.pop_back();
        lacking.push_back(giver);
      }
    }
  }

  /// Returns how many numbers there are.
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(entries_.size()); }
  /// Returns the bytes of the table.
  std::size_t bytes() const noexcept { return entries_.capacity() * sizeof(entry); }

  /// Returns the number that 64 random bits draw.
  std::int64_t operator()(std::uint64_t bits) const noexcept {
    auto const i = static_cast<std::size_t>((bits >> 32) * entries_.size() >> 32);
    auto const& e = entries_[i];
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(bits) < e.own ? i : e.other);
  }

 private:
  static constexpr std::uint32_t full = 0xFFFFFFFF;

  struct entry {
    std::uint32_t own;    // of 2^32: the part of its share that the number itself has
    std::uint32_t other;  // who has the rest
  };

  std::vector<entry> entries_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
