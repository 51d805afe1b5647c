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

#include <tessera/comm/codec.cuh>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/block_order.hpp>
#include <tessera/shard/device_exchange_state.hpp>
#include <tessera/shard/device_message.cuh>
#include <tessera/shard/device_message.hpp>
#include <tessera/shard/exchange.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/key_cuts.cuh>
#include <tessera/shard/rank_messages.hpp>
#include <tessera/shard/row_split.cuh>
#include <tessera/shard/word_copies.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The exchange of ranks whose tables and batches lie on devices: a model of `exchange` over a communicator of devices. It is
/// `flat_exchange` for whole tables, blocks of their columns, and sums of some of their rows: a message from each rank to each.
///
///     device_exchange<nccl_communicator> exchange(comm, keys, blocks_of_rank, {.forward = codec::fp16});
///
/// Ids travel in 8 bytes, and 4 a row say where it ends. Vectors and gradients travel as the codecs say, and have the bits of those that
/// travel between hosts. The host waits for a device where it needs a number that the device alone has, besides what the communicator waits
/// for:
/// - `begin_ids`, for the number of ids of each key, unless it is given (`count_batch`);
/// - there too, for the number of ids of each block, where a key is cut by rows;
/// - `received_ids`, for the numbers of rows and ids that came.
/// Where the communicator has a time limit for the work of a stream, as `nccl_communicator::wait`, these waits end at it.
///
/// Vectors and gradients are of known sizes and wait for nothing more. Each call is a few launches, of all messages; codecs launch once a
/// block and rank. Lists of hundreds of blocks may wait for the stream (`word_copies`).
///
/// Each block of a key that is cut by rows gets all rows of the key, with its own ids. A row without ids there travels as zeros.
///
/// Matrices of a sequence may have more rows than their key has ids; those stay as they are, and their gradients count nothing.
template <communicator Comm>
class device_exchange {
 public:
  using execution_type = typename Comm::execution_type;
  using communicator_type = Comm;
  using state_type = device_exchange_state<Comm>;
  static_assert(device_execution<execution_type>, "of ranks on the host, flat_exchange");

  /// `blocks_of_rank` lists what each rank makes. All ranks give the same.
  /// @throws tessera::error invalid_argument for a sequence that is cut by rows, or a key whose rows all ranks have: vectors travel both ways or
  /// not at all.
  device_exchange(Comm comm, std::vector<exchanged_key> keys, std::vector<std::vector<exchanged_block>> blocks_of_rank,
                  exchange_codecs const& codecs = {})
      : comm_(std::move(comm)), keys_(std::move(keys)), blocks_(std::move(blocks_of_rank)), codecs_(codecs), cuts_(keys_, blocks_) {
    for (auto const& blocks : blocks_)
      for (auto const& block : blocks)
        if ((block.rows > 0 && is_sequence(block)) || block.way == block_way::own || block.way == block_way::gradients)
          throw error(errc::invalid_argument, "device_exchange: devices exchange keys of whole rows, and sums of some rows",
                      {{"key", block.key}, {"first row", block.first_row}, {"rows", block.rows}});
    order_ = detail::block_order(blocks_here(), ranks());
  }

  /// The ranks that exchange.
  Comm const& comm() const noexcept { return comm_; }
  /// Which of them this is.
  std::size_t rank() const noexcept { return static_cast<std::size_t>(comm_.rank()); }
  /// How many there are.
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(comm_.size()); }
  /// What this rank makes.
  std::vector<exchanged_block> const& blocks_here() const noexcept { return blocks_[rank()]; }

  /// Sends the ids of this rank's batch, whose content lies on the device. @throws tessera::error as `communicator` says, here and below.
  void begin_ids(execution_type const& exec, keyed_jagged_view<std::int64_t const> batch, bool learns, state_type& state) const {
    batch_counts counts;
    std::exception_ptr failure;
    try {
      wait(exec);
      counts = count_batch(exec, "device_exchange::begin_ids", {batch, {}, 0});
    } catch (...) {
      failure = std::current_exception();
    }
    failure == nullptr ? begin_ids(exec, batch, counts, learns, state) : begin_ids(exec, failure, state);
  }
  /// As above, of a batch that is counted. It waits for nothing.
  void begin_ids(execution_type const& exec, keyed_jagged_view<std::int64_t const> batch, batch_counts const& counts, bool learns,
                 state_type& state) const;
  /// Sends word of a failure in place of ids.
  void begin_ids(execution_type const& exec, std::exception_ptr failure, state_type& state) const {
    state.ids_.starts.clear();
    detail::begin_messages(
        exec, comm_, state.pending_, "ids to their tables", [](std::size_t) { return vector_view<std::byte const>(); },
        [](std::size_t) { return awaited_message::unknown; }, std::move(failure));
  }

  /// Waits, as the communicator does, for the ids that this rank's blocks need.
  void receive_ids(execution_type const& exec, state_type& state) const {
    state.received_ = detail::finish_messages(exec, comm_, state.pending_, std::as_const(state.ids_).view(rank()));
  }
  /// Makes a batch of what came, and room for its vectors. The batch lives in `state`. The keys of the first section follow once more, without
  /// rows, until there are `least_keys`. What this throws is of this rank alone.
  keyed_jagged_view<std::int64_t const> received_ids(execution_type const& exec, state_type& state, std::int64_t least_keys = 0) const;

  /// Sends the vectors in `state.out()`.
  void begin_vectors(execution_type const& exec, state_type& state, std::exception_ptr failure = nullptr) const;
  /// Copies this rank's vectors as they come. `out` (keys,) are matrices of any stride: (rows or ids of the key; columns of all its blocks).
  void finish_vectors(execution_type const& exec, state_type& state, vector_view<matrix_view<float> const> out) const;

  /// Sends the gradients of the vectors that came; `gradients` as `out`.
  void begin_gradients(execution_type const& exec, state_type& state, vector_view<matrix_view<float const> const> gradients) const;
  /// Sends word of a failure in place of gradients.
  void begin_gradients(execution_type const& exec, std::exception_ptr failure, state_type& state) const {
    begin_gradients_exchange(exec, state, std::move(failure));
  }
  /// Takes the gradients of this rank's blocks.
  void finish_gradients(execution_type const& exec, state_type& state) const;

  /// Waits for the work of `exec`, within the communicator's time limit; does nothing where that has none for it.
  /// @throws tessera::error as the communicator's `wait`, after which the rank has left.
  void wait(execution_type const& exec) const {
    if constexpr (requires(Comm & comm) { comm.wait(exec, ""); }) {
      auto comm = comm_;
      comm.wait(exec, "ids to their tables");
    }
  }

 private:
  // Whether a block has vectors and gradients; else its ids travel alone.
  static bool has_vectors(exchanged_block const& block) noexcept { return block.way == block_way::both; }
  bool is_sequence(exchanged_block const& block) const noexcept { return keys_[static_cast<std::size_t>(block.key)].sequence; }

  // Calls f(block, rows, first byte) for what comes from rank r as vectors, or goes back as gradients; returns all bytes.
  template <class F>
  std::int64_t for_each_block(codec with, std::size_t r, state_type const& state, F const& f) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
      auto const& block = blocks_[r][i];
      if (!has_vectors(block)) continue;
      f(block, state.rows_[r][i], first);
      first += detail::exchanged_room(with, state.rows_[r][i], block.columns);
    }
    return first;
  }
  // Calls f(key, first byte) for what this rank's blocks make for rank r, in the batch that came; returns all bytes.
  template <class F>
  std::int64_t for_each_block_here(codec with, std::size_t r, state_type const& state, F const& f) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < blocks_here().size(); ++i) {
      if (!has_vectors(blocks_here()[i])) continue;
      auto const key = order_.key_of(r, i);
      f(key, first);
      first += detail::exchanged_room(with, state.out_[key].rows(), state.out_[key].columns());
    }
    return first;
  }
  std::int64_t bytes_of(codec with, std::size_t r, state_type const& state) const {
    return for_each_block(with, r, state, [](auto...) {});
  }
  std::int64_t bytes_here(codec with, std::size_t r, state_type const& state) const {
    return for_each_block_here(with, r, state, [](auto...) {});
  }
  // The floats of all sums of some rows that come here.
  std::int64_t floats_apart(state_type const& state) const {
    std::int64_t floats = 0;
    for (std::size_t r = 0; r < ranks(); ++r)
      for (std::size_t i = 0; i < blocks_[r].size(); ++i)
        if (blocks_[r][i].rows > 0) floats += state.rows_[r][i] * blocks_[r][i].columns;
    return floats;
  }
  // Vectors for rank r, as they travel.
  vector_view<std::byte const> vectors_to(codec with, std::size_t r, state_type const& state) const {
    return with == codec::fp32 ? message_bytes(state.vectors_.view(r)) : state.wire_.view(r);
  }
  // Room for a message to each rank, of `size(r)` elements: whole cache lines.
  template <class Messages, class Size>
  void make_room(execution_type const& exec, Messages& messages, Size const& size) const {
    messages.starts.clear();
    std::vector<std::int64_t> starts{0};
    for (std::size_t r = 0; r < ranks(); ++r) starts.push_back(starts.back() + size(r));
    messages.memory.resize(exec, starts.back());
    messages.starts = std::move(starts);
  }

  void begin_gradients_exchange(execution_type const& exec, state_type& state, std::exception_ptr failure) const {
    if (failure != nullptr) state.wire_.starts.clear();
    detail::begin_messages(
        exec, comm_, state.pending_, "gradients to their tables", [&](std::size_t r) { return std::as_const(state.wire_).view(r); },
        [&](std::size_t r) { return bytes_here(codecs_.backward, r, state); }, std::move(failure));
  }

  Comm comm_;
  std::vector<exchanged_key> keys_;
  std::vector<std::vector<exchanged_block>> blocks_;  // of each rank
  exchange_codecs codecs_;
  detail::key_cuts cuts_;
  detail::block_order order_;  // of the blocks here
};

template <communicator Comm>
void device_exchange<Comm>::begin_ids(execution_type const& exec, keyed_jagged_view<std::int64_t const> batch, batch_counts const& counts,
                                      bool, state_type& state) const {
  std::exception_ptr failure;
  try {
    for (std::int64_t key = 0; key < batch.keys; ++key)
      if (counts.values(key) > detail::device_message::most_ids)
        throw error(errc::out_of_range, "device_exchange: more ids of a key than a message says the ends of",
                    {{"key", key}, {"ids", counts.values(key)}, {"most", detail::device_message::most_ids}});
    cuts_.split(
        exec, batch, counts, [&] { wait(exec); }, state.split_);
    std::vector<detail::device_message> layouts;
    std::vector<std::int64_t> headers;
    state.rows_.assign(ranks(), {});
    for (std::size_t r = 0; r < ranks(); ++r) {
      std::vector<detail::sent_block> sent;
      for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
        auto const from = cuts_.ids(r, i, blocks_[r][i].key, batch, counts, state.split_);
        sent.push_back({from.rows, from.count});
        state.rows_[r].push_back(is_sequence(blocks_[r][i]) ? from.count : from.rows);
      }
      layouts.emplace_back(std::move(sent), batch.weighted(), [&](std::size_t i) { return !is_sequence(blocks_[r][i]); });
      auto const header = layouts.back().header();
      headers.insert(headers.end(), header.begin(), header.end());
    }
    make_room(exec, state.ids_, [&](std::size_t r) { return layouts[r].bytes(); });

    auto const headers_there = to_device(exec, headers);
    detail::word_copies copies;
    detail::ends_to_write ends;
    auto const* header = headers_there.data();
    for (std::size_t r = 0; r < ranks(); ++r) {
      auto const& layout = layouts[r];
      auto* const to = state.ids_.to(r);
      auto const words = detail::device_message::header_words(layout.blocks());
      copies.add(std::exchange(header, header + words), reinterpret_cast<std::int64_t*>(to), words);
      for (std::size_t i = 0; i < layout.blocks(); ++i) {
        auto const from = cuts_.ids(r, i, blocks_[r][i].key, batch, counts, state.split_);
        ends.add(from.rows, detail::ends_of_offsets{from.offsets, layout.ends(i, to)});
        copies.add(from.ids, layout.ids(i, to), from.count);
        if (layout.has_weights(i)) copies.add(from.weights, layout.weights(i, to), from.count);
      }
    }
    ends.launch(exec);
    copies.launch(exec);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure != nullptr) return begin_ids(exec, failure, state);
  detail::begin_messages(
      exec, comm_, state.pending_, "ids to their tables", [&](std::size_t r) { return std::as_const(state.ids_).view(r); },
      [](std::size_t) { return awaited_message::unknown; }, nullptr);
}

template <communicator Comm>
keyed_jagged_view<std::int64_t const> device_exchange<Comm>::received_ids(execution_type const& exec, state_type& state,
                                                                          std::int64_t least_keys) const {
  auto const& here = blocks_here();
  auto const messages = detail::read_messages(
      exec, state.received_, here.size(), [&](std::size_t i) { return !is_sequence(here[i]); }, [&] { wait(exec); });
  bool weighted = false, has_weights = false;
  auto const came = here.size() * ranks();
  auto const keys = std::max(came, static_cast<std::size_t>(least_keys));
  state.first_row_.assign(keys + 1, 0);
  std::vector<std::int64_t> first_value(keys + 1, 0);
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const& message = messages[r];
    weighted = weighted || message.weighted();
    for (std::size_t i = 0; i < here.size(); ++i) {
      has_weights = has_weights || message.has_weights(i);
      state.first_row_[order_.key_of(r, i) + 1] = message.block(i).rows;
      first_value[order_.key_of(r, i) + 1] = message.block(i).ids;
    }
  }
  std::partial_sum(state.first_row_.begin(), state.first_row_.end(), state.first_row_.begin());
  std::partial_sum(first_value.begin(), first_value.end(), first_value.begin());
  state.offsets_.resize(exec, state.first_row_[keys] + 1);
  state.values_.resize(exec, first_value[keys]);
  state.weights_.resize(exec, has_weights ? first_value[keys] : 0);

  make_room(exec, state.vectors_, [&](std::size_t r) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      auto const& block = messages[r].block(i);
      if (has_vectors(here[i]))
        bytes += detail::exchanged_room(codec::fp32, is_sequence(here[i]) ? block.ids : block.rows, here[i].columns);
    }
    return bytes / std::int64_t{sizeof(float)};
  });
  state.out_.assign(keys, {});
  detail::word_copies copies;
  detail::ends_to_read ends;
  exec.fill(state.offsets_.data(), 0, sizeof(std::int64_t));
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const& message = messages[r];
    auto const* const from = state.received_[r].data();
    auto* vectors = state.vectors_.to(r);
    for (std::size_t i = 0; i < here.size(); ++i) {
      auto const key = order_.key_of(r, i);
      auto const [rows, ids] = message.block(i);
      auto const first = first_value[key];
      ends.add(rows, {message.ends(i, from), first, state.offsets_.data() + state.first_row_[key] + 1});
      copies.add(message.ids(i, from), state.values_.data() + first, ids);
      if (has_weights) copies.add(message.has_weights(i) ? message.weights(i, from) : nullptr, state.weights_.data() + first, ids);
      state.out_[key] = {vectors, !has_vectors(here[i]) ? 0 : is_sequence(here[i]) ? ids : rows, here[i].columns};
      vectors += detail::exchanged_room(codec::fp32, state.out_[key].rows(), here[i].columns) / std::int64_t{sizeof(float)};
    }
  }
  ends.launch(exec);
  copies.launch(exec);
  for (auto k = came; k < keys; ++k) state.out_[k] = {nullptr, 0, state.out_[k - order_.last_section()].columns()};
  return {state.values_.data(),
          weighted && has_weights ? state.weights_.data() : nullptr,
          state.offsets_.data(),
          state.first_row_.data(),
          static_cast<std::int64_t>(keys),
          first_value[keys]};
}

template <communicator Comm>
void device_exchange<Comm>::begin_vectors(execution_type const& exec, state_type& state, std::exception_ptr failure) const {
  auto const with = codecs_.forward;
  if (failure == nullptr && with != codec::fp32) try {
      make_room(exec, state.wire_, [&](std::size_t r) { return bytes_here(with, r, state); });
      for (std::size_t r = 0; r < ranks(); ++r)
        for_each_block_here(with, r, state, [&](std::size_t key, std::int64_t first) {
          auto const& out = state.out_[key];
          encode<execution_type>(exec, with, out, {state.wire_.to(r) + first, encoded_bytes(with, out.rows(), out.columns())});
        });
    } catch (...) {
      failure = std::current_exception();
    }
  auto const fails = failure != nullptr;
  detail::begin_messages(
      exec, comm_, state.pending_, "vectors to their samples",
      [&](std::size_t r) { return fails ? vector_view<std::byte const>() : vectors_to(with, r, std::as_const(state)); },
      [&](std::size_t r) { return bytes_of(with, r, state); }, std::move(failure));
}

template <communicator Comm>
void device_exchange<Comm>::finish_vectors(execution_type const& exec, state_type& state, vector_view<matrix_view<float> const> out) const {
  auto const with = codecs_.forward;
  auto const received = detail::finish_messages(exec, comm_, state.pending_, vectors_to(with, rank(), std::as_const(state)));
  detail::word_copies copies;
  detail::device_partial_sums sums(keys_.size());
  state.apart_.resize(exec, with == codec::fp32 ? 0 : floats_apart(state));
  auto* apart = state.apart_.data();
  for (std::size_t r = 0; r < ranks(); ++r)
    for_each_block(with, r, state, [&](exchanged_block const& block, std::int64_t rows, std::int64_t first) {
      bool const is_cut = block.rows > 0;
      auto const bytes = received[r].slice(first, encoded_bytes(with, rows, block.columns));
      auto to = out[block.key].rows_from(0, rows).columns_from(block.first_column, block.columns);
      if (with != codec::fp32 && is_cut) to = {std::exchange(apart, apart + rows * block.columns), rows, block.columns};
      if (with != codec::fp32) decode(exec, with, bytes, to);
      auto const* const from = with == codec::fp32 ? message_values<float>(bytes).data() : to.data();
      if (is_cut)
        sums.add(block.key, rows, {block.first_row, block.first_column, block.columns, from});
      else if (with == codec::fp32)
        copies.add({from, rows, block.columns}, to);
    });
  copies.launch(exec);
  sums.join(
      exec, [&](std::int64_t key) { return state.split_.means(key); }, out);
}

template <communicator Comm>
void device_exchange<Comm>::begin_gradients(execution_type const& exec, state_type& state,
                                            vector_view<matrix_view<float const> const> gradients) const {
  auto const with = codecs_.backward;
  std::exception_ptr failure;
  try {
    make_room(exec, state.wire_, [&](std::size_t r) { return bytes_of(with, r, state); });
    auto const scaled = detail::key_cuts::scaled(exec, state.split_, gradients, state.apart_);
    detail::word_copies copies;
    for (std::size_t r = 0; r < ranks(); ++r)
      for_each_block(with, r, state, [&](exchanged_block const& block, std::int64_t rows, std::int64_t first) {
        auto const from = scaled[static_cast<std::size_t>(block.key)].rows_from(0, rows).columns_from(block.first_column, block.columns);
        auto* const to = state.wire_.to(r) + first;
        if (with == codec::fp32)
          copies.add(from, {reinterpret_cast<float*>(to), rows, block.columns});
        else
          encode(exec, with, from, {to, encoded_bytes(with, rows, block.columns)});
      });
    copies.launch(exec);
  } catch (...) {
    failure = std::current_exception();
  }
  begin_gradients_exchange(exec, state, failure);
}

template <communicator Comm>
void device_exchange<Comm>::finish_gradients(execution_type const& exec, state_type& state) const {
  auto const with = codecs_.backward;
  auto const received = detail::finish_messages(exec, comm_, state.pending_, std::as_const(state.wire_).view(rank()));
  state.gradients_here_.assign(state.out_.begin(), state.out_.end());
  if (with != codec::fp32) state.gradients_.resize(exec, state.vectors_.memory.size());
  for (std::size_t r = 0; r < ranks(); ++r)
    for_each_block_here(with, r, state, [&](std::size_t key, std::int64_t first) {
      auto const& out = state.out_[key];
      auto const bytes = received[r].slice(first, encoded_bytes(with, out.rows(), out.columns()));
      auto& gradients = state.gradients_here_[key];
      if (with == codec::fp32) {
        gradients = {message_values<float>(bytes).data(), out.rows(), out.columns()};
      } else {
        matrix_view<float> const to{state.gradients_.data() + (out.data() - state.vectors_.memory.data()), out.rows(), out.columns()};
        decode(exec, with, bytes, to);
        gradients = to;
      }
    });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
