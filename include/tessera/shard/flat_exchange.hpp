// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/block_order.hpp>
#include <tessera/shard/exchange.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/id_message.hpp>
#include <tessera/shard/partial_sums.hpp>
#include <tessera/shard/rank_messages.hpp>
#include <tessera/shard/row_split.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Takes ids to the ranks that hold their rows, and vectors back, in one wave of messages a direction: a message from each rank to each.
///
/// Each rank makes blocks of vectors of some keys of every rank's batch. What it gets is one batch, which has a key for each of its blocks
/// and each rank: the blocks of a section as rank 0 sent them, then those of rank 1, and so on, section after section. `exchange` shows a step.
///
/// All ranks make the same calls. A `begin` takes a failure of this rank in place of what it would send. Then `finish` throws on all ranks.
/// Vectors and gradients travel as the codecs say, also those that a rank has itself: results do not depend on who holds what.
/// Ids of keys with a bound below 2^32 - 1 travel in 4 bytes. The length of each row travels in as few bytes as hold the longest, and in
/// none where each row has one id. Equal rows of neighbouring inverses travel once.
///
/// Of a key that is cut by rows, each block gets its own ids in their order, and their vectors go to their places. An id that no block has
/// gets zeros, and its gradient goes nowhere. Where such a key is no sequence, a row's sums of all blocks are added up, those of the first rows
/// first. A mean divides by the length of the whole row. The row's gradient, divided likewise, goes to each block that has ids of it.
class flat_exchange {
 public:
  using execution_type = host_exec;
  using communicator_type = any_communicator;
  using state_type = flat_exchange_state;

  /// `blocks_of_rank` lists what each rank makes. All ranks give the same.
  flat_exchange(any_communicator comm, std::vector<exchanged_key> keys, std::vector<std::vector<exchanged_block>> blocks_of_rank,
                exchange_codecs const& codecs = {});

  /// The ranks that exchange.
  any_communicator const& comm() const noexcept { return comm_; }
  /// Which of them this is.
  std::size_t rank() const noexcept { return static_cast<std::size_t>(comm_.rank()); }
  /// How many there are.
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(comm_.size()); }
  /// What a rank makes.
  std::vector<exchanged_block> const& blocks(std::size_t rank) const noexcept { return blocks_[rank]; }
  /// What this rank makes.
  std::vector<exchanged_block> const& blocks_here() const noexcept { return blocks_[rank()]; }

  /// Sends the ids of this rank's batch; those for gradients alone where it `learns`. @throws tessera::error as `communicator` says, here and
  /// below.
  void begin_ids(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, bool learns, flat_exchange_state& state) const;
  /// Sends word of a failure in place of ids.
  void begin_ids(host_exec const& exec, std::exception_ptr failure, flat_exchange_state& state) const {
    begin_ids_exchange(exec, state, std::move(failure));
  }

  /// Waits for the ids that this rank's blocks need.
  void receive_ids(host_exec const& exec, flat_exchange_state& state) const;
  /// Makes a batch of what came, and room for its vectors. The batch lives in `state`. The keys of the last section follow once more, without
  /// rows, until there are `least_keys`. What this throws is of this rank alone.
  keyed_jagged_view<std::int64_t const> received_ids(host_exec const& exec, flat_exchange_state& state, std::int64_t least_keys = 0) const;
  /// Both.
  keyed_jagged_view<std::int64_t const> finish_ids(host_exec const& exec, flat_exchange_state& state, std::int64_t least_keys = 0) const {
    receive_ids(exec, state);
    return received_ids(exec, state, least_keys);
  }

  /// Sends the vectors in `state.out()`.
  void begin_vectors(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure = nullptr) const;
  /// Waits for this rank's vectors and copies them. `out` (keys,) are matrices of any stride: (rows or ids of the key; columns of all its
  /// blocks).
  void finish_vectors(host_exec const& exec, flat_exchange_state& state, vector_view<matrix_view<float> const> out) const;

  /// Sends the gradients of the vectors that came; `gradients` as `out`.
  void begin_gradients(host_exec const& exec, flat_exchange_state& state, vector_view<matrix_view<float const> const> gradients) const;
  /// Sends word of a failure in place of gradients.
  void begin_gradients(host_exec const& exec, std::exception_ptr failure, flat_exchange_state& state) const {
    begin_gradients_exchange(exec, state, std::move(failure));
  }
  /// Waits for the gradients of this rank's blocks.
  void finish_gradients(host_exec const& exec, flat_exchange_state& state) const;

 private:
  // Calls f(block, rows, part, first byte) for what travels between this rank's batch and rank r, as vectors or back as gradients; returns all
  // bytes. `part`: of `part_of`.
  template <class F>
  std::int64_t for_each_block(block_way way, codec with, std::size_t r, flat_exchange_state const& state, F const& f) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
      auto const& block = blocks_[r][i];
      if (!goes(block, way)) continue;
      auto const rows = state.rows_[r][i];
      f(block, rows, part_of(state, r, i), first);
      first += detail::exchanged_room(with, rows, block.columns);
    }
    return first;
  }
  // The ids of a block of a key that is cut by rows; else nullptr.
  detail::ids_of_range const* part_of(flat_exchange_state const& state, std::size_t r, std::size_t i) const {
    auto const& block = blocks_[r][i];
    return block.rows > 0 ? &state.split_[static_cast<std::size_t>(block.key)].parts[ranges_[r][i]] : nullptr;
  }
  // Whether a block has vectors (`way` is own) or gradients.
  static bool goes(exchanged_block const& block, block_way way) noexcept {
    return block.way == block_way::both || block.way == way || (block.way == block_way::vectors && way == block_way::own);
  }
  std::size_t key_of(std::size_t r, std::size_t i) const noexcept { return order_.key_of(r, i); }
  // The floats of all blocks that are cut by rows.
  std::int64_t floats_apart(block_way way, flat_exchange_state const& state) const;
  // Nothing where a failure is sent in its place.
  vector_view<std::byte const> message_to(flat_exchange_state const& state, codec with, std::size_t r) const;

  void begin_ids_exchange(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const;
  void begin_gradients_exchange(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const;
  // (keys,): of each inverse the first of the neighbouring ones that have the same rows; of any other key itself.
  std::vector<std::size_t> first_of_equal_inverses(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch) const;
  // What this rank's blocks take, as rank r has them.
  std::int64_t bytes_here(block_way way, codec with, flat_exchange_state const& state, std::size_t r) const;

  any_communicator comm_;
  std::vector<exchanged_key> keys_;
  std::vector<std::vector<exchanged_block>> blocks_;  // of each rank
  exchange_codecs codecs_;
  std::vector<detail::row_split> splits_;         // of each key; empty where it is not cut by rows
  std::vector<std::vector<std::size_t>> ranges_;  // of each rank's blocks: which part of such a key it gets
  detail::block_order order_;                     // of the blocks here
};

inline void flat_exchange::receive_ids(host_exec const& exec, flat_exchange_state& state) const {
  state.received_ = detail::finish_messages(exec, comm_, state.pending_,
                                            state.ids_.empty() ? vector_view<std::byte const>() : std::as_const(state.ids_[rank()]).view());
}

static_assert(exchange<flat_exchange>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/flat_exchange.ipp>
#endif
