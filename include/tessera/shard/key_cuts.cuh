// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/device_split_ids.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/row_split.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The ids that a block gets of a batch on a device.
struct ids_of_block {
  std::int64_t rows = 0, count = 0;
  std::int64_t const *offsets = nullptr, *ids = nullptr;  // (rows + 1,), of which only differences count; (count,)
  float const* weights = nullptr;                         // (count,), or nullptr
};

/// Which keys of an exchange are cut by rows, and how: each of their blocks gets its own ids, and sums of these come back.
class key_cuts {
 public:
  /// `blocks_of_rank` lists the blocks that each rank makes of the keys.
  key_cuts(std::vector<exchanged_key> const& keys, std::vector<std::vector<exchanged_block>> const& blocks_of_rank) {
    for (auto const& key : keys) is_mean_.push_back(key.pooled == pooling::mean);
    for (auto const& blocks : blocks_of_rank) {
      auto& numbers = number_of_.emplace_back();
      for (auto const& block : blocks) {
        auto const& key = keys[static_cast<std::size_t>(block.key)];
        range_of_key const range{block.key, {block.first_row, block.rows}, key.hashed_rows, key.keeps_ids};
        auto const number = static_cast<std::size_t>(std::find(ranges_.begin(), ranges_.end(), range) - ranges_.begin());
        numbers.push_back(block.rows > 0 ? number : all_ids);
        if (block.rows > 0 && number == ranges_.size()) ranges_.push_back(range);
      }
    }
  }

  /// Splits the ids of a batch that is counted, and says what multiplies the sums of a mean. It calls `wait()`, and waits for the numbers of
  /// ids, where keys are cut.
  template <device_execution Exec, class Wait>
  void split(Exec const& exec, keyed_jagged_view<std::int64_t const> batch, batch_counts const& counts, Wait const& wait,
             device_split_ids<Exec>& to) const {
    to.means_at.assign(is_mean_.size(), -1);
    if (ranges_.empty()) return;
    split_ids_of_ranges(exec, batch, counts, ranges_, wait, to);
    std::int64_t rows = 0;
    for (auto const& range : ranges_)
      if (auto const key = static_cast<std::size_t>(range.key); is_mean_[key] && to.means_at[key] < 0)
        to.means_at[key] = std::exchange(rows, rows + batch.rows(range.key));
    to.all_means.resize(exec, rows);
    means_to_write written;
    for (std::int64_t key = 0; key < batch.keys; ++key)
      if (auto const at = to.means_at[static_cast<std::size_t>(key)]; at >= 0)
        written.add(batch.rows(key), {batch.key(key).offsets, to.all_means.data() + at});
    written.launch(exec);
  }

  /// The ids of block i of rank r, which is of this key. @pre `split` went before
  template <device_execution Exec>
  ids_of_block ids(std::size_t r, std::size_t i, std::int64_t key, keyed_jagged_view<std::int64_t const> batch, batch_counts const& counts,
                   device_split_ids<Exec> const& from) const {
    auto const rows = batch.rows(key);
    if (auto const number = number_of_[r][i]; number != all_ids)
      return {rows, from.count(number), rows == 0 ? nullptr : from.offsets(number), from.ids(number),
              batch.weighted() ? from.weights(number) : nullptr};
    auto const first = counts.first_value + counts.starts[static_cast<std::size_t>(key)];
    return {rows, counts.values(key), batch.key(key).offsets, batch.values + first, batch.weighted() ? batch.weights + first : nullptr};
  }

  /// The gradients (keys,), those of means multiplied, in memory of `room`.
  template <device_execution Exec>
  static std::vector<matrix_view<float const>> scaled(Exec const& exec, device_split_ids<Exec> const& split,
                                                      vector_view<matrix_view<float const> const> gradients, buffer<float, Exec>& room) {
    std::vector<matrix_view<float const>> all(gradients.begin(), gradients.end());
    std::int64_t floats = 0;
    for (std::int64_t key = 0; key < gradients.size(); ++key)
      if (split.means(key) != nullptr) floats += gradients[key].rows() * gradients[key].columns();
    room.resize(exec, floats);
    auto* to = room.data();
    scaled_rows written;
    for (std::int64_t key = 0; key < gradients.size(); ++key) {
      if (split.means(key) == nullptr) continue;
      auto const rows = gradients[key].rows(), columns = gradients[key].columns();
      written.add(rows * columns, {gradients[key], to, split.means(key)});
      all[static_cast<std::size_t>(key)] = {std::exchange(to, to + rows * columns), rows, columns};
    }
    written.launch(exec);
    return all;
  }

 private:
  static constexpr auto all_ids = static_cast<std::size_t>(-1);

  std::vector<bool> is_mean_;                        // of each key
  std::vector<range_of_key> ranges_;                 // of all keys that are cut
  std::vector<std::vector<std::size_t>> number_of_;  // of each rank's blocks: which range it gets, or `all_ids`
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
