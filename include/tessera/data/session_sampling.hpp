// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// By what samples are drawn or spread: all of a session together, or each by itself, by its row number.
enum class sample_key { session, sample };

namespace detail {

// A hash of what a sample is drawn or spread by. `purpose` keeps apart what is drawn by one seed for several ends.
constexpr std::uint64_t hash_sample(sample_key key, std::int64_t session, std::int64_t row, random_seed seed,
                                    std::uint64_t purpose) noexcept {
  auto const value = static_cast<std::uint64_t>(key == sample_key::session ? session : row);
  return mix_bits(value ^ mix_bits(seed.value + mix_bits(purpose)));
}

}  // namespace detail

/// A share of the samples, drawn by a hash: the same ones wherever and however often they are drawn.
///
/// By session, the sessions that stay have all their samples, so that repeated features stay as frequent; by sample, sessions become
/// shorter. Source: Zhao et al., "RecD: deduplication for end-to-end deep learning recommendation model training infrastructure", MLSys
/// 2023, section 7.
struct sample_selection {
  double rate = 1;  ///< the share that stays, 0 to 1
  sample_key key = sample_key::session;
  random_seed seed{0};

  /// Whether a sample stays. `row`: its number in its data set.
  constexpr bool keeps(std::int64_t session, std::int64_t row) const noexcept {
    return static_cast<double>(detail::hash_sample(key, session, row, seed, 1) >> 11) * 0x1p-53 < rate;
  }
};

/// @throws tessera::error invalid_argument unless 0 <= rate <= 1, and for a key that is none.
inline void validate(sample_selection const& selection) {
  if (!(selection.rate >= 0 && selection.rate <= 1))
    throw error(errc::invalid_argument, "sample_selection: a share is between 0 and 1", {{"rate", selection.rate}});
  detail::check_choice("sample_selection", "key", selection.key, sample_key::sample);
}

/// Over which shard a sample goes, of so many. @pre shards >= 1.
constexpr std::int64_t shard_of(sample_key key, std::int64_t session, std::int64_t row, std::int64_t shards,
                                random_seed seed = {}) noexcept {
  return static_cast<std::int64_t>(detail::hash_sample(key, session, row, seed, 2) % static_cast<std::uint64_t>(shards));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
