// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/core/config.hpp>
#include <tessera/core/id_map.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
__extension__ typedef unsigned __int128 wide_unsigned;
}  // namespace detail

/// The row, of `rows`, that an id of a hashed table counts as where that table is cut by rows: its mixed bits, scaled to [0, rows). Any id has
/// one, and few ids or many, dense or sparse ones, spread evenly. The map of a hashed table uses other bits. @pre rows >= 1
TESSERA_HOST_DEVICE constexpr std::int64_t hashed_row(std::int64_t id, std::int64_t rows) noexcept {
  return static_cast<std::int64_t>(
      static_cast<detail::wide_unsigned>(mix_bits(static_cast<std::uint64_t>(id))) * static_cast<std::uint64_t>(rows) >> 64);
}

/// The share of a limit for all of `rows` that `part` of them have, rounded up. No limit stays none. @pre 0 <= part <= rows, rows >= 1
constexpr std::int64_t share_of_limit(std::int64_t limit, std::int64_t part, std::int64_t rows) noexcept {
  if (limit == std::numeric_limits<std::int64_t>::max()) return limit;
  auto const product = static_cast<detail::wide_unsigned>(limit) * static_cast<std::uint64_t>(part) + static_cast<std::uint64_t>(rows - 1);
  return static_cast<std::int64_t>(product / static_cast<std::uint64_t>(rows));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
