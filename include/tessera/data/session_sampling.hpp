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

/// Says what a hash that draws or spreads samples is of.
enum class sample_key {
  session,  ///< the session's id: all samples of a session go together
  sample,   ///< the sample's row number in its data set: each sample goes by itself
};

namespace detail {

// A hash of what a sample is drawn or spread by. `purpose` keeps apart what is drawn by one seed for several ends.
constexpr std::uint64_t hash_sample(sample_key key, std::int64_t session, std::int64_t row, random_seed seed,
                                    std::uint64_t purpose) noexcept {
  auto const value = static_cast<std::uint64_t>(key == sample_key::session ? session : row);
  return mix_bits(value ^ mix_bits(seed.value + mix_bits(purpose)));
}

}  // namespace detail

/// Draws a share of the samples by a hash, which keeps the same samples wherever and however often it is asked.
///
/// By session, a session that stays keeps all its samples, and features repeat as often as before. By sample, sessions become shorter.
/// Source: Zhao et al., "RecD: deduplication for end-to-end deep learning recommendation model training infrastructure", MLSys
/// 2023, section 7.
struct sample_selection {
  double rate = 1;                       ///< the share that stays, 0 to 1
  sample_key key = sample_key::session;  ///< what the hash is of
  random_seed seed{0};                   ///< seed of the hash

  /// Returns whether a sample stays, given its session's id and its row number in the data set. @pre 0 <= rate <= 1
  constexpr bool keeps(std::int64_t session, std::int64_t row) const noexcept {
    return static_cast<double>(detail::hash_sample(key, session, row, seed, 1) >> 11) * 0x1p-53 < rate;
  }
};

/// Checks a selection. @throws tessera::error invalid_argument unless 0 <= rate <= 1, and for a key that is not in `sample_key`.
inline void validate(sample_selection const& selection) {
  if (!(selection.rate >= 0 && selection.rate <= 1))
    throw error(errc::invalid_argument, "sample_selection: a share is between 0 and 1", {{"rate", selection.rate}});
  detail::check_choice("sample_selection", "key", selection.key, sample_key::sample);
}

/// Returns the shard of a sample, 0 … shards - 1, given its session's id and its row number. @pre shards >= 1.
constexpr std::int64_t shard_of(sample_key key, std::int64_t session, std::int64_t row, std::int64_t shards,
                                random_seed seed = {}) noexcept {
  return static_cast<std::int64_t>(detail::hash_sample(key, session, row, seed, 2) % static_cast<std::uint64_t>(shards));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
