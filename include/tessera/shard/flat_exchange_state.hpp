// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/row_split.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What an exchange does with a key of a batch.
struct exchanged_key {
  bool sequence = false;      ///< a vector for each id; else one for each row
  std::int64_t id_bound = 0;  ///< ids are below it, or name no row; 0: they have no bound
  /// Of a key that is cut by rows: whether blocks get all its rows. Else sequences come as ids alone, and others without empty rows.
  bool keeps_rows = true;
  /// Of a sequence that is cut by rows: how whoever asks pools its vectors. Ids then bring what their gradients are to be multiplied by.
  /// Of a key that is cut by rows and no sequence: a sum or mean of the rows. Each block sums its own ids; the exchange joins and divides.
  std::optional<tessera::pooling> pooled = {};
  /// Of a key that is cut by rows: ids are of the blocks that have row `hashed_row(id, hashed_rows)`. 0: ids are rows.
  std::int64_t hashed_rows = 0;
  bool keeps_ids = false;  ///< of a key that is cut by rows: whether blocks get ids as they are
  /// Of a key that is not: ids say where samples' rows are in another key. They have no weights, and a rank's blocks of neighbouring such keys
  /// get equal rows once.
  bool is_inverse = false;
};

/// What travels for a block, and which way.
enum class block_way : std::uint8_t {
  both,       ///< vectors to who asked, their gradients back
  vectors,    ///< vectors to who asked, and nothing back
  own,        ///< vectors of the ids that the rank itself has, and nothing else
  gradients,  ///< gradients alone, to be summed
  ids,        ///< ids alone
};

/// A block of vectors that a rank makes of a key: columns [first_column, first_column + columns) of the key's vectors. A block with `rows` is
/// of ids [first_row, first_row + rows) alone, and gets them less its first row. The key is *cut by rows*: all its blocks have `rows`. It is
/// a sequence, or says how it is `pooled`.
struct exchanged_block {
  std::int64_t key = 0, first_column = 0, columns = 0;
  std::int64_t first_row = 0, rows = 0;  ///< 0 rows: of all ids
  block_way way = block_way::both;       ///< own and gradients are of keys that are cut by rows
  std::int64_t section = 0;              ///< where it stands in the batch that its rank gets; of later blocks no smaller
};

namespace detail {

/// How the ids of a key that is cut by rows go to its blocks.
inline split_options split_options_of(exchanged_key const& key, bool weighted) noexcept {
  auto const pooled = key.pooled.value_or(pooling::max);
  bool const scaled = (pooled == pooling::mean && key.sequence) || (pooled != pooling::max && weighted);
  return {key.keeps_rows, scaled, key.pooled.value_or(pooling::sum), !key.sequence};
}

/// The bytes that a block's vectors take in a message. Each block begins on a cache line, so that floats lie on the wire as in memory.
inline std::int64_t exchanged_room(codec with, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t line_bytes = 64;
  return divide_up(encoded_bytes(with, rows, columns), line_bytes) * line_bytes;
}

inline float* floats_at(buffer<float>& floats, std::int64_t byte) noexcept { return floats.data() + byte / std::int64_t{sizeof(float)}; }

}  // namespace detail

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
  /// Where the vectors of the keys of the batch that came go, or their gradients are.
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
