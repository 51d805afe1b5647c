// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/row_split.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What an exchange does with a key of a batch.
struct exchanged_key {
  bool sequence = false;      ///< a vector for each id; else one for each row
  std::int64_t id_bound = 0;  ///< ids are below it, or name no row; 0: they have no bound
  bool keeps_rows = true;     ///< of a sequence that is cut by rows: whether blocks learn which row an id is of
  /// Of a sequence that is cut by rows: how whoever asks pools its vectors. Ids then bring what their gradients are to be multiplied by.
  std::optional<tessera::pooling> pooled = {};
};

/// A block of vectors that a rank makes of a key: columns [first_column, first_column + columns) of the key's vectors. A block with `rows` is
/// of ids [first_row, first_row + rows) alone, and gets them less its first row. The key is *cut by rows*: all its blocks have `rows`, and it
/// is a sequence.
struct exchanged_block {
  std::int64_t key = 0, first_column = 0, columns = 0;
  std::int64_t first_row = 0, rows = 0;  ///< 0 rows: of all ids
};

/// What a `flat_exchange` keeps of a batch. Its memory is kept from batch to batch.
class flat_exchange_state {
 public:
  /// Without what the communicator holds.
  std::size_t bytes() const noexcept {
    auto sum = values_.capacity_bytes() + offsets_.capacity_bytes() + weights_.capacity_bytes() + apart_.capacity_bytes();
    for (auto const& key : split_) sum += key.bytes();
    for (auto const* all : {&ids_, &wire_})
      for (auto const& message : *all) sum += message.capacity_bytes();
    for (auto const* all : {&vectors_, &gradients_})
      for (auto const& message : *all) sum += message.capacity_bytes();
    return sum;
  }
  /// Where the vectors of the keys of all ranks go, or their gradients are: of key i of rank r, [r * blocks + i].
  std::vector<matrix_view<float>> const& out() const noexcept { return out_; }
  /// The gradients of these vectors, after `finish_gradients`.
  std::vector<matrix_view<float const>> const& gradients() const noexcept { return gradients_here_; }
  /// What the gradients of sequences' values are to be multiplied by: of all values of the batch that came, or none where all are 1.
  vector_view<float const> scales() const noexcept { return weights_.view(); }

 private:
  friend class flat_exchange;

  std::vector<buffer<std::byte>> ids_;           // to each rank
  std::vector<detail::split_ids> split_;         // of each key that is cut by rows
  std::vector<std::vector<std::int64_t>> rows_;  // of each rank's blocks: vectors that come back
  buffer<float> apart_;                          // vectors of keys that are cut, before a codec or behind it
  std::vector<std::int64_t> first_row_;          // what all ranks sent, as one batch
  buffer<std::int64_t> values_, offsets_;
  buffer<float> weights_;
  std::vector<buffer<float>> vectors_;    // for each rank, as they are looked up
  std::vector<buffer<float>> gradients_;  // of each rank, as they are decoded
  std::vector<buffer<std::byte>> wire_;   // to each rank: encoded vectors, then encoded gradients; of this rank what it has itself
  std::vector<matrix_view<float>> out_;
  std::vector<matrix_view<float const>> gradients_here_;
  std::vector<vector_view<std::byte const>> received_;  // ids of each rank, in the communicator's memory
  any_pending pending_;                                 // of ids, of vectors, then of gradients; it ends before what it sends
};

}  // namespace TESSERA_ABI
}  // namespace tessera
