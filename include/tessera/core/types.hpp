// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An integer of its own kind: two of different tags neither convert nor compare.
template <class Tag, class Value>
struct strong {
  Value value{};

  constexpr strong() = default;
  TESSERA_HOST_DEVICE constexpr explicit strong(Value value) noexcept : value(value) {}
  friend constexpr auto operator<=>(strong const&, strong const&) = default;
};

/// Which embedding table; part of what a row's initial value depends on, so it must survive a change of shard plan.
using table_id = strong<struct table_id_tag, std::int64_t>;

/// What every random number of a run derives from.
using random_seed = strong<struct random_seed_tag, std::uint64_t>;

/// Optimizer steps taken, 1 during the first.
using step_count = strong<struct step_count_tag, std::int64_t>;

/// The most that a count of steps, batches or uses may be where it comes from a file or a caller. An int64 does not overflow by counting on
/// from there.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 62;

}  // namespace TESSERA_ABI
}  // namespace tessera
