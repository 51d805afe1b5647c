// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a table occupies, in bytes.
struct table_bytes {
  std::size_t weights = 0;
  std::size_t state = 0;  ///< of the optimizer
  std::size_t index = 0;  ///< from ids to rows, and what admission and eviction remember

  /// The sum of all parts.
  constexpr std::size_t total() const noexcept { return weights + state + index; }
  friend constexpr bool operator==(table_bytes const&, table_bytes const&) = default;
  friend constexpr table_bytes operator+(table_bytes const& a, table_bytes const& b) noexcept {
    return {a.weights + b.weights, a.state + b.state, a.index + b.index};
  }
};

}  // namespace TESSERA_ABI
}  // namespace tessera
