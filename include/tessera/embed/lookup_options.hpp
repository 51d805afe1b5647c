// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a lookup does with an id that its store can never hold.
enum class out_of_range_ids : std::uint8_t {
  refuse,  ///< an error that names it; nothing has changed then. On a device: when it synchronises, and till then as `zero`
  zero,    ///< it reads as zeros, counts in its bag's length, and gets no gradient
};

/// Options of a lookup.
struct lookup_options {
  out_of_range_ids out_of_range = out_of_range_ids::refuse;
  std::int64_t* out_of_range_count = nullptr;  ///< grows by the number of such ids, where given; in the execution's memory
  /// The batch came from so many ranks: of R ranks with K features each, key r·K + k is feature k of rank r. Each key has its own number of
  /// rows, and feature k reads the same table for every rank. Gradients are summed, and new ids get rows, as for one batch of K keys with
  /// the samples of all ranks, rank 0's first. As every key has a matrix of its own, a rank's vectors can lie in the message to it.
  std::int64_t source_ranks = 1;
};

namespace detail {

inline void count_out_of_range(lookup_options const& options, std::int64_t ids) noexcept {
  if (options.out_of_range_count != nullptr) std::atomic_ref(*options.out_of_range_count).fetch_add(ids, std::memory_order_relaxed);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
