// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/plan_random.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The bins of `table_profile::access`.
inline constexpr int access_bins = static_cast<int>(table_profile::bins);

constexpr std::int64_t least_of_bin(int bin) noexcept { return bin == 0 ? 1 : (std::int64_t{1} << (bin - 1)) + 1; }
constexpr std::int64_t most_of_bin(int bin) noexcept {
  return bin == access_bins - 1 ? std::numeric_limits<std::int64_t>::max() : std::int64_t{1} << bin;
}

/// How often each distinct row of a batch is accessed: counts that sum to `accesses`, with the bins' shares as near as counts allow, and at
/// most `rows` of them.
std::vector<std::int64_t> draw_access_counts(random_sequence& random, std::array<double, access_bins> const& bins, std::int64_t rows,
                                             std::int64_t accesses);

/// So many distinct numbers of [0, rows), in random order, with rows - 1 among them unless there are none. @pre count <= rows
std::vector<std::int64_t> draw_distinct_rows(random_sequence& random, std::int64_t rows, std::int64_t count);

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/plan/draw_accesses.ipp>
#endif
