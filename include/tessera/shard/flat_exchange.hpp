// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/id_message.hpp>
#include <tessera/shard/row_split.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Takes ids to the ranks that hold their rows, and vectors back, in one wave of messages a direction: a message from each rank to each.
///
/// Each rank makes blocks of vectors of some keys of every rank's batch. What it gets is one batch, whose key r·K + i is the key of its block
/// i as rank r sent it. A training step:
///
///     exchange.begin_ids(exec, batch, state);
///     auto const all = exchange.finish_ids(exec, state);      // look up `all` into state.out()
///     exchange.begin_vectors(exec, state);
///     exchange.finish_vectors(exec, state, out);
///     exchange.begin_gradients(exec, state, gradients);
///     exchange.finish_gradients(exec, state);                 // update with state.gradients() and state.scales()
///
/// All ranks make the same calls. A `begin` takes a failure of this rank in place of what it would send. Then `finish` throws on all ranks.
/// Vectors and gradients travel as the codecs say, also those that a rank has itself: results do not depend on who holds what.
/// Ids of keys with a bound below 2^32 - 1 travel in 4 bytes. The length of each row travels in as few bytes as hold the longest, and in
/// none where each row has one id.
///
/// Of a key that is cut by rows, each block gets its own ids in their order, and their vectors go to their places. An id that no block has
/// gets zeros, and its gradient goes nowhere.
class flat_exchange {
 public:
  /// `blocks_of_rank` lists what each rank makes. All ranks give the same.
  flat_exchange(any_communicator comm, std::vector<exchanged_key> keys, std::vector<std::vector<exchanged_block>> blocks_of_rank,
                exchange_codecs const& codecs = {})
      : comm_(std::move(comm)), keys_(std::move(keys)), blocks_(std::move(blocks_of_rank)), codecs_(codecs), splits_(keys_.size()) {
    for (auto const& blocks : blocks_) {
      auto& ranges = ranges_.emplace_back();
      for (auto const& block : blocks)
        ranges.push_back(block.rows > 0 ? splits_[static_cast<std::size_t>(block.key)].add({block.first_row, block.rows}) : 0);
    }
  }

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

  /// Sends the ids of this rank's batch. @throws tessera::error as `communicator` says, here and below.
  void begin_ids(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, flat_exchange_state& state) const;
  /// Sends word of a failure in place of ids.
  void begin_ids(host_exec const& exec, std::exception_ptr failure, flat_exchange_state& state) const {
    begin_ids_exchange(exec, state, std::move(failure));
  }

  /// Waits for the ids that this rank's blocks need.
  void receive_ids(host_exec const& exec, flat_exchange_state& state) const;
  /// Makes a batch of what came, and room for its vectors. The batch lives in `state`. It has the keys of `ranks_of_keys` ranks, at least as
  /// many as there are; those of more ranks have no rows. What this throws is of this rank alone.
  keyed_jagged_view<std::int64_t const> received_ids(host_exec const& exec, flat_exchange_state& state, std::int64_t ranks_of_keys) const;
  /// Both.
  keyed_jagged_view<std::int64_t const> finish_ids(host_exec const& exec, flat_exchange_state& state, std::int64_t ranks_of_keys) const {
    receive_ids(exec, state);
    return received_ids(exec, state, ranks_of_keys);
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
  // Calls f(block, rows, part, first byte) for what travels between this rank's batch and rank r; returns all bytes. `part`: of `part_of`.
  template <class F>
  std::int64_t for_each_block(codec with, std::size_t r, flat_exchange_state const& state, F const& f) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
      auto const& block = blocks_[r][i];
      auto const rows = state.rows_[r][i];
      f(block, rows, part_of(state, r, i), first);
      first += room_of(with, rows, block.columns);
    }
    return first;
  }
  // The ids of a block of a key that is cut by rows; else nullptr.
  detail::ids_of_range const* part_of(flat_exchange_state const& state, std::size_t r, std::size_t i) const {
    auto const& block = blocks_[r][i];
    return block.rows > 0 ? &state.split_[static_cast<std::size_t>(block.key)].parts[ranges_[r][i]] : nullptr;
  }
  // The floats of all blocks that are cut by rows.
  std::int64_t floats_apart(flat_exchange_state const& state) const {
    std::int64_t floats = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      for_each_block(codec::fp32, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t) {
        if (part != nullptr) floats += rows * block.columns;
      });
    return floats;
  }
  // Each begins on a cache line, so that floats lie on the wire as in memory.
  static std::int64_t room_of(codec with, std::int64_t rows, std::int64_t columns) {
    return divide_up(encoded_bytes(with, rows, columns), line_bytes) * line_bytes;
  }
  static constexpr std::int64_t line_bytes = 64;
  static float* floats_at(buffer<float>& floats, std::int64_t byte) noexcept { return floats.data() + byte / std::int64_t{sizeof(float)}; }
  // Nothing where a failure is sent in its place.
  static vector_view<std::byte const> message_to(flat_exchange_state const& state, codec with, std::size_t r) noexcept {
    if (with == codec::fp32) return r < state.vectors_.size() ? message_bytes(state.vectors_[r].view()) : vector_view<std::byte const>();
    return r < state.wire_.size() ? state.wire_[r].view() : vector_view<std::byte const>();
  }

  void begin_ids_exchange(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const {
    begin_exchange(
        exec, state.pending_, "ids to their tables", [&](std::size_t r) { return std::as_const(state.ids_[r]).view(); },
        [](std::size_t) { return awaited_message::unknown; }, std::move(failure));
  }
  void begin_gradients_exchange(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const {
    begin_exchange(
        exec, state.pending_, "gradients to their tables", [&](std::size_t r) { return std::as_const(state.wire_[r]).view(); },
        [&](std::size_t r) { return bytes_here(codecs_.backward, state, r); }, std::move(failure));
  }
  // What this rank's blocks take, as rank r has them.
  std::int64_t bytes_here(codec with, flat_exchange_state const& state, std::size_t r) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < blocks_here().size(); ++i) {
      auto const& out = state.out_[r * blocks_here().size() + i];
      bytes += room_of(with, out.rows(), out.columns());
    }
    return bytes;
  }

  // Messages to and from all other ranks.
  template <class BytesTo, class BytesFrom>
  void begin_exchange(host_exec const& exec, any_pending& pending, char const* operation, BytesTo const& to, BytesFrom const& from,
                      std::exception_ptr failure) const {
    std::vector<sent_message> send;
    std::vector<awaited_message> receive;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (r == rank()) continue;
      send.push_back({static_cast<int>(r), failure == nullptr ? to(r) : vector_view<std::byte const>()});
      receive.push_back({static_cast<int>(r), from(r)});
    }
    auto comm = comm_;
    comm.begin(exec, {send, receive, operation}, pending, std::move(failure));
  }
  // What came from each rank; `own` for this one.
  std::vector<vector_view<std::byte const>> finish_exchange(host_exec const& exec, any_pending& pending,
                                                            vector_view<std::byte const> own) const {
    auto comm = comm_;
    auto const received = comm.finish(exec, pending);
    std::vector<vector_view<std::byte const>> all(received.begin(), received.end());
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(rank()), own);
    return all;
  }

  any_communicator comm_;
  std::vector<exchanged_key> keys_;
  std::vector<std::vector<exchanged_block>> blocks_;  // of each rank
  exchange_codecs codecs_;
  std::vector<detail::row_split> splits_;         // of each key; empty where it is not cut by rows
  std::vector<std::vector<std::size_t>> ranges_;  // of each rank's blocks: which part of such a key it gets
};

inline void flat_exchange::begin_ids(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, flat_exchange_state& state) const {
  std::exception_ptr failure;
  try {
    bool const weighted = batch.weighted();
    std::vector<detail::id_message_key> of_key(keys_.size());
    exec.run(batch.keys, [&](std::int64_t number) {
      auto const key = static_cast<std::size_t>(number);
      if (splits_[key].empty()) of_key[key] = detail::measure_key(batch.key(number), keys_[key].id_bound, weighted && !keys_[key].sequence);
    });
    detail::split_keys(
        exec, batch, splits_,
        [&](std::size_t key) {
          auto const& of = keys_[key];
          bool const scaled = of.pooled == pooling::mean || (of.pooled == pooling::sum && weighted);
          return detail::split_options{of.keeps_rows, scaled, of.pooled.value_or(pooling::sum)};
        },
        state.split_);
    state.ids_.resize(ranks());
    state.rows_.resize(ranks());
    std::vector<std::vector<detail::id_message_key>> to_rank(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      state.rows_[r].clear();
      for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
        auto const key = static_cast<std::size_t>(blocks_[r][i].key);
        auto const* const part = part_of(state, r, i);
        auto const& measured = to_rank[r].emplace_back(part == nullptr ? of_key[key] : part->measured);
        state.rows_[r].push_back(keys_[key].sequence ? measured.values : measured.rows);
      }
      state.ids_[r].resize(exec, detail::id_message_size(to_rank[r]));
    }
    exec.run(comm_.size(), [&](std::int64_t to) {
      auto const r = static_cast<std::size_t>(to);
      auto const key = [&](std::size_t i) { return blocks_[r][i].key; };
      detail::write_id_message(
          to_rank[r], weighted,
          [&](std::size_t i) {
            auto const* const part = part_of(state, r, i);
            return part == nullptr ? batch.key(key(i)) : part->rows();
          },
          [&](std::size_t i) {
            auto const* const part = part_of(state, r, i);
            return part == nullptr ? batch.weights + batch.key(key(i)).offsets[0] : part->scales.data();
          },
          [&](std::size_t i) { return blocks_[r][i].rows > 0 ? blocks_[r][i].rows : keys_[static_cast<std::size_t>(key(i))].id_bound; },
          state.ids_[r].data());
    });
  } catch (...) {
    failure = std::current_exception();
  }
  begin_ids_exchange(exec, state, failure);
}

inline void flat_exchange::receive_ids(host_exec const& exec, flat_exchange_state& state) const {
  state.received_ =
      finish_exchange(exec, state.pending_, state.ids_.empty() ? vector_view<std::byte const>() : std::as_const(state.ids_[rank()]).view());
}

inline keyed_jagged_view<std::int64_t const> flat_exchange::received_ids(host_exec const& exec, flat_exchange_state& state,
                                                                         std::int64_t ranks_of_keys) const {
  auto const& received = state.received_;
  auto const& here = blocks_here();
  std::vector<detail::id_message> messages;
  for (std::size_t r = 0; r < ranks(); ++r) messages.emplace_back(received[r], static_cast<std::int64_t>(here.size()), static_cast<int>(r));
  bool const weighted = std::any_of(messages.begin(), messages.end(), [](auto const& message) { return message.weighted(); });
  bool const has_weights = std::any_of(messages.begin(), messages.end(), [](auto const& message) { return message.has_weights(); });
  auto const keys = here.size() * static_cast<std::size_t>(ranks_of_keys);
  state.first_row_.assign(keys + 1, 0);
  std::vector<std::int64_t> first_value(keys + 1, 0);
  for (std::size_t k = 0; k < keys; ++k) {
    auto const r = k / here.size();
    state.first_row_[k + 1] = state.first_row_[k] + (r < ranks() ? messages[r].rows(k % here.size()) : 0);
    first_value[k + 1] = first_value[k] + (r < ranks() ? messages[r].values(k % here.size()) : 0);
  }
  state.offsets_.resize(exec, state.first_row_[keys] + 1);
  state.values_.resize(exec, first_value[keys]);
  state.weights_.resize(exec, has_weights ? first_value[keys] : 0);
  state.offsets_[0] = 0;
  exec.run(static_cast<std::int64_t>(ranks() * here.size()), [&](std::int64_t number) {
    auto const k = static_cast<std::size_t>(number), r = k / here.size();
    messages[r].read(k % here.size(), static_cast<int>(r), first_value[k], state.offsets_.data() + state.first_row_[k] + 1,
                     state.values_.data() + first_value[k], has_weights ? state.weights_.data() + first_value[k] : nullptr);
  });

  state.vectors_.resize(ranks());
  state.out_.clear();
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const rows = [&](std::size_t i) {
      return keys_[static_cast<std::size_t>(here[i].key)].sequence ? messages[r].values(i) : messages[r].rows(i);
    };
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < here.size(); ++i) bytes += room_of(codec::fp32, rows(i), here[i].columns);
    state.vectors_[r].resize(exec, bytes / std::int64_t{sizeof(float)});
    bytes = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      state.out_.push_back({floats_at(state.vectors_[r], bytes), rows(i), here[i].columns});
      bytes += room_of(codec::fp32, rows(i), here[i].columns);
    }
  }
  for (auto k = ranks() * here.size(); k < keys; ++k) state.out_.push_back({nullptr, 0, here[k % here.size()].columns});
  return {state.values_.data(), weighted && has_weights ? state.weights_.data() : nullptr, state.offsets_.data(), state.first_row_.data(),
          static_cast<std::int64_t>(keys)};
}

inline void flat_exchange::begin_vectors(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const {
  auto const with = codecs_.forward;
  if (failure == nullptr && with != codec::fp32) try {
      state.wire_.resize(ranks());
      for (std::size_t r = 0; r < ranks(); ++r) {
        state.wire_[r].resize(exec, bytes_here(with, state, r));
        std::int64_t first = 0;
        for (std::size_t i = 0; i < blocks_here().size(); ++i) {
          auto const& out = state.out_[r * blocks_here().size() + i];
          encode<host_exec>(exec, with, out, state.wire_[r].view().slice(first, encoded_bytes(with, out.rows(), out.columns())));
          first += room_of(with, out.rows(), out.columns());
        }
      }
    } catch (...) {
      failure = std::current_exception();
    }
  begin_exchange(
      exec, state.pending_, "vectors to their samples", [&](std::size_t r) { return message_to(state, with, r); },
      [&](std::size_t r) { return for_each_block(with, r, state, [](auto...) {}); }, std::move(failure));
}

inline void flat_exchange::finish_vectors(host_exec const& exec, flat_exchange_state& state,
                                          vector_view<matrix_view<float> const> out) const {
  auto const with = codecs_.forward;
  auto const received = finish_exchange(exec, state.pending_, message_to(state, with, rank()));
  std::vector<detail::rows_to_copy> tasks;
  state.apart_.resize(exec, with == codec::fp32 ? 0 : floats_apart(state));
  auto* apart = state.apart_.data();
  for (std::size_t r = 0; r < ranks(); ++r)
    for_each_block(with, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t first) {
      auto const to = out[block.key].columns_from(block.first_column, block.columns);
      auto const bytes = received[r].slice(first, encoded_bytes(with, rows, block.columns));
      if (with != codec::fp32 && part == nullptr) return decode(exec, with, bytes, to);
      auto* const decoded = with == codec::fp32 ? nullptr : std::exchange(apart, apart + rows * block.columns);
      if (with != codec::fp32) decode(exec, with, bytes, {decoded, rows, block.columns});
      auto const* const from = with == codec::fp32 ? message_values<float>(bytes).data() : decoded;
      tasks.push_back({{from, rows, block.columns}, to, nullptr, detail::positions_of(part)});
    });
  detail::copy_rows(exec, tasks);
  for (std::size_t key = 0; key < keys_.size(); ++key)
    if (!splits_[key].empty()) state.split_[key].clear_absent(out[static_cast<std::int64_t>(key)]);
}

inline void flat_exchange::begin_gradients(host_exec const& exec, flat_exchange_state& state,
                                           vector_view<matrix_view<float const> const> gradients) const {
  auto const with = codecs_.backward;
  std::exception_ptr failure;
  try {
    state.wire_.resize(ranks());
    // Of a key that is cut by rows, what is to be encoded is gathered first.
    std::vector<detail::rows_to_copy> tasks;
    std::vector<std::pair<matrix_view<float const>, vector_view<std::byte>>> encoded;
    state.apart_.resize(exec, with == codec::fp32 ? 0 : floats_apart(state));
    auto* apart = state.apart_.data();
    for (std::size_t r = 0; r < ranks(); ++r) {
      auto& wire = state.wire_[r];
      wire.resize(exec, for_each_block(with, r, state, [](auto...) {}));
      for_each_block(with, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t first) {
        matrix_view<float const> from = gradients[block.key].columns_from(block.first_column, block.columns);
        if (with == codec::fp32 || part != nullptr) {
          auto* const to =
              with == codec::fp32 ? reinterpret_cast<float*>(wire.data() + first) : std::exchange(apart, apart + rows * block.columns);
          matrix_view<float> const copied{to, rows, block.columns};
          tasks.push_back({std::exchange(from, copied), copied, detail::positions_of(part), nullptr});
        }
        if (with != codec::fp32) encoded.emplace_back(from, wire.view().slice(first, encoded_bytes(with, rows, block.columns)));
      });
    }
    detail::copy_rows(exec, tasks);
    for (auto const& [from, to] : encoded) encode(exec, with, from, to);
  } catch (...) {
    failure = std::current_exception();
  }
  begin_gradients_exchange(exec, state, failure);
}

inline void flat_exchange::finish_gradients(host_exec const& exec, flat_exchange_state& state) const {
  auto const with = codecs_.backward;
  auto const received = finish_exchange(
      exec, state.pending_, rank() < state.wire_.size() ? std::as_const(state.wire_[rank()]).view() : vector_view<std::byte const>());
  state.gradients_here_.assign(state.out_.begin(), state.out_.end());
  state.gradients_.resize(ranks());
  auto const count = blocks_here().size();
  for (std::size_t r = 0; r < ranks(); ++r) {
    if (with != codec::fp32) state.gradients_[r].resize(exec, state.vectors_[r].size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      auto const& out = state.out_[r * count + i];
      auto const bytes = received[r].slice(first, encoded_bytes(with, out.rows(), out.columns()));
      auto& here = state.gradients_here_[r * count + i];
      if (with == codec::fp32) {
        here = {message_values<float>(bytes).data(), out.rows(), out.columns()};
      } else {
        matrix_view<float> const to{state.gradients_[r].data() + (out.data() - state.vectors_[r].data()), out.rows(), out.columns()};
        decode(exec, with, bytes, to);
        here = to;
      }
      first += room_of(with, out.rows(), out.columns());
    }
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
