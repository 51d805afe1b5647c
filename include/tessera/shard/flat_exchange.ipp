// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/flat_exchange.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE flat_exchange::flat_exchange(any_communicator comm, std::vector<exchanged_key> keys,
                                            std::vector<std::vector<exchanged_block>> blocks_of_rank, exchange_codecs const& codecs)
    : comm_(std::move(comm)), keys_(std::move(keys)), blocks_(std::move(blocks_of_rank)), codecs_(codecs) {
  for (auto const& key : keys_) splits_.emplace_back(key.hashed_rows, key.keeps_ids, key.id_bound);
  for (auto const& blocks : blocks_) {
    auto& ranges = ranges_.emplace_back();
    for (auto const& block : blocks)
      ranges.push_back(block.rows > 0 ? splits_[static_cast<std::size_t>(block.key)].add({block.first_row, block.rows}) : 0);
  }
  order_ = detail::block_order(blocks_here(), ranks());
}

TESSERA_INLINE std::int64_t flat_exchange::floats_apart(block_way way, flat_exchange_state const& state) const {
  std::int64_t floats = 0;
  for (std::size_t r = 0; r < ranks(); ++r)
    for_each_block(way, codec::fp32, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t) {
      if (part != nullptr) floats += rows * block.columns;
    });
  return floats;
}

TESSERA_INLINE vector_view<std::byte const> flat_exchange::message_to(flat_exchange_state const& state, codec with, std::size_t r) const {
  if (with == codec::fp32)
    return r < state.vectors_.size() ? message_bytes(state.vectors_[r].view()).slice(0, bytes_here(block_way::own, with, state, r))
                                     : vector_view<std::byte const>();
  return r < state.wire_.size() ? state.wire_[r].view() : vector_view<std::byte const>();
}

TESSERA_INLINE void flat_exchange::begin_ids_exchange(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const {
  detail::begin_messages(
      exec, comm_, state.pending_, "ids to their tables", [&](std::size_t r) { return std::as_const(state.ids_[r]).view(); },
      [](std::size_t) { return awaited_message::unknown; }, std::move(failure));
}

TESSERA_INLINE void flat_exchange::begin_gradients_exchange(host_exec const& exec, flat_exchange_state& state,
                                                            std::exception_ptr failure) const {
  detail::begin_messages(
      exec, comm_, state.pending_, "gradients to their tables", [&](std::size_t r) { return std::as_const(state.wire_[r]).view(); },
      [&](std::size_t r) { return bytes_here(block_way::gradients, codecs_.backward, state, r); }, std::move(failure));
}

TESSERA_INLINE std::vector<std::size_t> flat_exchange::first_of_equal_inverses(host_exec const& exec,
                                                                               keyed_jagged_view<std::int64_t const> batch) const {
  std::vector<std::size_t> first(keys_.size());
  exec.run(batch.keys, [&](std::int64_t number) {
    auto const key = static_cast<std::size_t>(number);
    auto const is_equal = key > 0 && keys_[key].is_inverse && keys_[key - 1].is_inverse && keys_[key].sequence == keys_[key - 1].sequence &&
                          detail::have_equal_rows(batch.key(number), batch.key(number - 1));
    first[key] = is_equal ? key - 1 : key;
  });
  for (std::size_t key = 1; key < first.size(); ++key) first[key] = first[first[key]];
  return first;
}

TESSERA_INLINE std::int64_t flat_exchange::bytes_here(block_way way, codec with, flat_exchange_state const& state, std::size_t r) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < blocks_here().size(); ++i) {
    if (!goes(blocks_here()[i], way)) continue;
    auto const& out = state.out_[key_of(r, i)];
    bytes += detail::exchanged_room(with, out.rows(), out.columns());
  }
  return bytes;
}

TESSERA_INLINE void flat_exchange::begin_ids(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, bool learns,
                                             flat_exchange_state& state) const {
  std::exception_ptr failure;
  try {
    bool const weighted = batch.weighted();
    std::vector<detail::id_message_key> of_key(keys_.size());
    exec.run(batch.keys, [&](std::int64_t number) {
      auto const key = static_cast<std::size_t>(number);
      auto const& of = keys_[key];
      if (splits_[key].empty())
        of_key[key] = detail::measure_key(batch.key(number), of.id_bound, weighted && !of.sequence && !of.is_inverse);
    });
    auto const first_alike = first_of_equal_inverses(exec, batch);
    detail::split_keys(
        exec, batch, splits_, [&](std::size_t key) { return detail::split_options_of(keys_[key], weighted); }, state.split_);
    state.ids_.resize(ranks());
    state.rows_.resize(ranks());
    std::vector<std::vector<detail::id_message_key>> to_rank(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      state.rows_[r].clear();
      for (std::size_t i = 0; i < blocks_[r].size(); ++i) {
        auto const key = static_cast<std::size_t>(blocks_[r][i].key);
        auto const* const part = part_of(state, r, i);
        auto const way = blocks_[r][i].way;
        bool const is_empty = (way == block_way::own && r != rank()) || (way == block_way::gradients && !learns);
        auto& measured = to_rank[r].emplace_back(is_empty ? detail::id_message_key{} : part == nullptr ? of_key[key] : part->measured);
        if (i > 0 && keys_[key].is_inverse && first_alike[key] == first_alike[static_cast<std::size_t>(blocks_[r][i - 1].key)])
          measured.length_bytes = detail::id_message_key::as_before;
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
          [&](std::size_t i) {
            auto const& of = keys_[static_cast<std::size_t>(key(i))];
            return blocks_[r][i].rows > 0 && !of.keeps_ids ? blocks_[r][i].rows : of.id_bound;
          },
          state.ids_[r].data());
    });
  } catch (...) {
    failure = std::current_exception();
  }
  begin_ids_exchange(exec, state, failure);
}

TESSERA_INLINE keyed_jagged_view<std::int64_t const> flat_exchange::received_ids(host_exec const& exec, flat_exchange_state& state,
                                                                                 std::int64_t least_keys) const {
  auto const& received = state.received_;
  auto const& here = blocks_here();
  std::vector<detail::id_message> messages;
  for (std::size_t r = 0; r < ranks(); ++r) messages.emplace_back(received[r], static_cast<std::int64_t>(here.size()), static_cast<int>(r));
  bool const weighted = std::any_of(messages.begin(), messages.end(), [](auto const& message) { return message.weighted(); });
  bool const has_weights = std::any_of(messages.begin(), messages.end(), [](auto const& message) { return message.has_weights(); });
  auto const came = here.size() * ranks();
  auto const keys = std::max(came, static_cast<std::size_t>(least_keys));
  state.first_row_.assign(keys + 1, 0);
  std::vector<std::int64_t> first_value(keys + 1, 0);
  for (std::size_t r = 0; r < ranks(); ++r)
    for (std::size_t i = 0; i < here.size(); ++i) {
      state.first_row_[key_of(r, i) + 1] = messages[r].rows(i);
      first_value[key_of(r, i) + 1] = messages[r].values(i);
    }
  std::partial_sum(state.first_row_.begin(), state.first_row_.end(), state.first_row_.begin());
  std::partial_sum(first_value.begin(), first_value.end(), first_value.begin());
  state.offsets_.resize(exec, state.first_row_[keys] + 1);
  state.values_.resize(exec, first_value[keys]);
  state.weights_.resize(exec, has_weights ? first_value[keys] : 0);
  state.offsets_[0] = 0;
  exec.run(static_cast<std::int64_t>(came), [&](std::int64_t number) {
    auto const r = static_cast<std::size_t>(number) / here.size(), i = static_cast<std::size_t>(number) % here.size();
    auto const k = key_of(r, i);
    messages[r].read(i, static_cast<int>(r), first_value[k], state.offsets_.data() + state.first_row_[k] + 1,
                     state.values_.data() + first_value[k], has_weights ? state.weights_.data() + first_value[k] : nullptr);
  });

  state.vectors_.resize(ranks());
  state.out_.resize(keys);
  for (std::size_t r = 0; r < ranks(); ++r) {
    auto const rows = [&](std::size_t i) {
      return here[i].way == block_way::ids                           ? 0
             : keys_[static_cast<std::size_t>(here[i].key)].sequence ? messages[r].values(i)
                                                                     : messages[r].rows(i);
    };
    // What travels comes first, then the room of gradients alone.
    std::int64_t bytes = 0;
    std::vector<std::int64_t> first(here.size());
    for (bool const travels : {true, false})
      for (std::size_t i = 0; i < here.size(); ++i)
        if (goes(here[i], block_way::own) == travels)
          bytes = (first[i] = bytes) + detail::exchanged_room(codec::fp32, rows(i), here[i].columns);
    state.vectors_[r].resize(exec, bytes / std::int64_t{sizeof(float)});
    for (std::size_t i = 0; i < here.size(); ++i)
      state.out_[key_of(r, i)] = {detail::floats_at(state.vectors_[r], first[i]), rows(i), here[i].columns};
  }
  for (auto k = came; k < keys; ++k) state.out_[k] = {nullptr, 0, state.out_[k - order_.last_section()].columns()};
  return {state.values_.data(), weighted && has_weights ? state.weights_.data() : nullptr, state.offsets_.data(), state.first_row_.data(),
          static_cast<std::int64_t>(keys)};
}

TESSERA_INLINE void flat_exchange::begin_vectors(host_exec const& exec, flat_exchange_state& state, std::exception_ptr failure) const {
  auto const with = codecs_.forward;
  if (failure == nullptr && with != codec::fp32) try {
      state.wire_.resize(ranks());
      for (std::size_t r = 0; r < ranks(); ++r) {
        state.wire_[r].resize(exec, bytes_here(block_way::own, with, state, r));
        std::int64_t first = 0;
        for (std::size_t i = 0; i < blocks_here().size(); ++i) {
          if (!goes(blocks_here()[i], block_way::own)) continue;
          auto const& out = state.out_[key_of(r, i)];
          encode<host_exec>(exec, with, out, state.wire_[r].view().slice(first, encoded_bytes(with, out.rows(), out.columns())));
          first += detail::exchanged_room(with, out.rows(), out.columns());
        }
      }
    } catch (...) {
      failure = std::current_exception();
    }
  detail::begin_messages(
      exec, comm_, state.pending_, "vectors to their samples", [&](std::size_t r) { return message_to(state, with, r); },
      [&](std::size_t r) { return for_each_block(block_way::own, with, r, state, [](auto...) {}); }, std::move(failure));
}

TESSERA_INLINE void flat_exchange::finish_vectors(host_exec const& exec, flat_exchange_state& state,
                                                  vector_view<matrix_view<float> const> out) const {
  auto const with = codecs_.forward;
  auto const received = detail::finish_messages(exec, comm_, state.pending_, message_to(state, with, rank()));
  std::vector<detail::rows_to_copy> tasks;
  std::vector<std::vector<detail::partial_sums>> sums(keys_.size());
  state.apart_.resize(exec, with == codec::fp32 ? 0 : floats_apart(block_way::own, state));
  auto* apart = state.apart_.data();
  for (std::size_t r = 0; r < ranks(); ++r)
    for_each_block(
        block_way::own, with, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t first) {
          auto const to = out[block.key].columns_from(block.first_column, block.columns);
          auto const bytes = received[r].slice(first, encoded_bytes(with, rows, block.columns));
          if (with != codec::fp32 && part == nullptr) return decode(exec, with, bytes, to);
          auto* const decoded = with == codec::fp32 ? nullptr : std::exchange(apart, apart + rows * block.columns);
          if (with != codec::fp32) decode(exec, with, bytes, {decoded, rows, block.columns});
          auto const* const from = with == codec::fp32 ? message_values<float>(bytes).data() : decoded;
          if (part != nullptr && !keys_[static_cast<std::size_t>(block.key)].sequence)
            sums[static_cast<std::size_t>(block.key)].push_back({block.first_row, {from, rows, block.columns}, to, part->positions.data()});
          else
            tasks.push_back({{from, rows, block.columns}, to, nullptr, detail::positions_of(part)});
        });
  detail::copy_rows(exec, tasks);
  detail::join_partial_sums(
      exec, sums, [&](std::size_t key) { return std::as_const(state.split_[key].means).view(); }, out);
  for (std::size_t key = 0; key < keys_.size(); ++key)
    if (!splits_[key].empty() && keys_[key].sequence) state.split_[key].clear_absent(out[static_cast<std::int64_t>(key)]);
}

TESSERA_INLINE void flat_exchange::begin_gradients(host_exec const& exec, flat_exchange_state& state,
                                                   vector_view<matrix_view<float const> const> gradients) const {
  auto const with = codecs_.backward;
  std::exception_ptr failure;
  try {
    state.wire_.resize(ranks());
    // Of a key that is cut by rows, what is to be encoded is gathered first.
    std::vector<detail::rows_to_copy> tasks;
    std::vector<std::pair<matrix_view<float const>, vector_view<std::byte>>> encoded;
    state.apart_.resize(exec, with == codec::fp32 ? 0 : floats_apart(block_way::gradients, state));
    auto* apart = state.apart_.data();
    for (std::size_t r = 0; r < ranks(); ++r) {
      auto& wire = state.wire_[r];
      wire.resize(exec, for_each_block(block_way::gradients, with, r, state, [](auto...) {}));
      for_each_block(
          block_way::gradients, with, r, state, [&](exchanged_block const& block, std::int64_t rows, auto const* part, std::int64_t first) {
            matrix_view<float const> from = gradients[block.key].columns_from(block.first_column, block.columns);
            if (with == codec::fp32 || part != nullptr) {
              auto* const to =
                  with == codec::fp32 ? reinterpret_cast<float*>(wire.data() + first) : std::exchange(apart, apart + rows * block.columns);
              matrix_view<float> const copied{to, rows, block.columns};
              auto const* const means = state.split_[static_cast<std::size_t>(block.key)].means_or_none();
              tasks.push_back({std::exchange(from, copied), copied, detail::positions_of(part), nullptr, means});
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

TESSERA_INLINE void flat_exchange::finish_gradients(host_exec const& exec, flat_exchange_state& state) const {
  auto const with = codecs_.backward;
  auto const received =
      detail::finish_messages(exec, comm_, state.pending_,
                              rank() < state.wire_.size() ? std::as_const(state.wire_[rank()]).view() : vector_view<std::byte const>());
  state.gradients_here_.assign(state.out_.begin(), state.out_.end());
  state.gradients_.resize(ranks());
  auto const count = blocks_here().size();
  for (std::size_t r = 0; r < ranks(); ++r) {
    if (with != codec::fp32) state.gradients_[r].resize(exec, state.vectors_[r].size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (!goes(blocks_here()[i], block_way::gradients)) continue;
      auto const& out = state.out_[key_of(r, i)];
      auto const bytes = received[r].slice(first, encoded_bytes(with, out.rows(), out.columns()));
      auto& here = state.gradients_here_[key_of(r, i)];
      if (with == codec::fp32) {
        here = {message_values<float>(bytes).data(), out.rows(), out.columns()};
      } else {
        matrix_view<float> const to{state.gradients_[r].data() + (out.data() - state.vectors_[r].data()), out.rows(), out.columns()};
        decode(exec, with, bytes, to);
        here = to;
      }
      first += detail::exchanged_room(with, out.rows(), out.columns());
    }
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
