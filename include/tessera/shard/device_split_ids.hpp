// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The ids of a batch on a device, split by ranges of rows (`split_ids_of_ranges`). Each range has all rows of its key, and those of their ids that
/// it takes. Its memory is kept from batch to batch.
template <device_execution Exec>
struct device_split_ids {
  std::vector<std::int64_t> starts;      ///< (ranges + 1,): where the ids of each begin
  std::vector<std::int64_t> offsets_at;  ///< (ranges + 1,): where its offsets do
  buffer<std::int64_t, Exec> all_ids, all_offsets;
  buffer<float, Exec> all_weights;     ///< (ids,), or none
  std::vector<std::int64_t> means_at;  ///< (keys,): where the means of a key's rows begin; -1: it has none
  buffer<float, Exec> all_means;

  /// How many ids range number r takes.
  std::int64_t count(std::size_t r) const noexcept { return starts[r + 1] - starts[r]; }
  /// These ids (count,), in the order of the key.
  std::int64_t const* ids(std::size_t r) const noexcept { return all_ids.data() + starts[r]; }
  /// Their weights (count,). @pre the batch has weights
  float const* weights(std::size_t r) const noexcept { return all_weights.data() + starts[r]; }
  /// Where the key's rows begin among all ids here, (rows + 1,). @pre the key has rows
  std::int64_t const* offsets(std::size_t r) const noexcept { return all_offsets.data() + offsets_at[r]; }
  /// What multiplies the joined sums of a key's rows (rows,); nullptr: nothing does.
  float const* means(std::int64_t key) const noexcept {
    auto const at = means_at[static_cast<std::size_t>(key)];
    return at < 0 ? nullptr : all_means.data() + at;
  }

  std::size_t bytes() const noexcept {
    return all_ids.capacity_bytes() + all_offsets.capacity_bytes() + all_weights.capacity_bytes() + all_means.capacity_bytes();
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
