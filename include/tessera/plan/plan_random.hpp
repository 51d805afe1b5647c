// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Random numbers in order, a function of (seed, stream, what for) alone.
class random_sequence {
 public:
  random_sequence(random_seed seed, std::uint64_t stream, std::uint32_t purpose) noexcept
      : seed_(seed), stream_(stream), purpose_(purpose) {}

  std::uint32_t word() noexcept {
    if (next_ == 4) {
      block_ = philox(seed_, stream_, purpose_, index_++);
      next_ = 0;
    }
    return block_.word[next_++];
  }
  /// Uniform in [0, 1).
  double uniform() noexcept {
    auto const high = word() >> 5, low = word() >> 6;
    return (high * 67108864.0 + low) * 0x1p-53;
  }
  /// Uniform in [0, n). @pre n > 0
  std::int64_t below(std::int64_t n) noexcept {
    auto const high = word();
    return static_cast<std::int64_t>(uniform_below(high, word(), static_cast<std::uint64_t>(n)));
  }
  template <class T>
  void shuffle(std::vector<T>& values) noexcept {
    for (auto last = static_cast<std::int64_t>(values.size()) - 1; last > 0; --last)
      std::swap(values[static_cast<std::size_t>(last)], values[static_cast<std::size_t>(below(last + 1))]);
  }
  /// 0 … n - 1 in random order.
  std::vector<std::int64_t> permutation(std::int64_t n) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    shuffle(order);
    return order;
  }

 private:
  random_seed seed_;
  std::uint64_t stream_;
  std::uint32_t purpose_, index_ = 0;
  random_block block_{};
  int next_ = 4;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
