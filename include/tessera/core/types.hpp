// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An integer of a kind of its own: two of different tags neither convert nor compare.
template <class Tag, class Value>
struct strong {
  Value value{};

  constexpr strong() = default;
  /// The number as one of this kind.
  TESSERA_HOST_DEVICE constexpr explicit strong(Value value) noexcept : value(value) {}
  friend constexpr auto operator<=>(strong const&, strong const&) = default;
};

/// Which embedding table. A row's initial value depends on it, so it must not change when the shard plan does.
using table_id = strong<struct table_id_tag, std::int64_t>;

/// The seed that every random number of a training run derives from.
using random_seed = strong<struct random_seed_tag, std::uint64_t>;

/// The optimizer steps taken; 1 during the first.
using step_count = strong<struct step_count_tag, std::int64_t>;

/// The most steps, batches or uses that a file or a caller may claim. An int64 does not overflow by counting on from there.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 62;

}  // namespace TESSERA_ABI
}  // namespace tessera
