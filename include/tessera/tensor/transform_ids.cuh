// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/range_tiles.cuh>
#include <tessera/tensor/row_copies.cuh>
#include <tessera/tensor/transform_ids.hpp>

// Tiles of values, each through all functions in registers: 8 bytes read and written an id, however many functions there are.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind unfit_id_on_device{errc::out_of_range, unfit_id, {"key", "id", "result"}};

/// With how many values before it, from the view's first on, a key begins.
template <class Offset>
struct count_before_key {
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,), from 0
  std::int64_t* starts;

  TESSERA_DEVICE void operator()(std::int64_t key) const {
    starts[key] = static_cast<std::int64_t>(offsets[first_rows[key]]) - static_cast<std::int64_t>(offsets[0]);
  }
};

// As a part of tiles over the keys.
template <class T, class Offset, class Chain>
struct transform_values {
  T* values;
  Offset const* offsets;
  Chain chain;
  fault_reporter unfit;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t key, std::int64_t, std::int64_t at, std::int64_t count) const {
    auto* const own = values + offsets[0];
    for (auto i = at; i < at + count; ++i) own[i] = replaced(block, chain, i, key, own[i]);
  }

 private:
  template <class Block>
  TESSERA_DEVICE T replaced(Block&, id_chain<> const&, std::int64_t, std::int64_t, T id) const {
    return id;
  }
  template <class Block, class F, class... Rest>
  TESSERA_DEVICE T replaced(Block& block, id_chain<F, Rest...> const& links, std::int64_t i, std::int64_t key, T id) const {
    auto const& own = links.first;
    if (own.selected != nullptr && own.selected[key] == 0) return replaced(block, links.rest, i, key, id);
    auto const& f = own.functions[key * own.stride];
    auto const before = static_cast<std::int64_t>(id);
    std::int64_t result;
    if constexpr (std::is_invocable_v<F const&, std::int64_t, std::int64_t>) {
      result = f(key, before);
    } else {
      result = f(before);
    }
    if (!holds_id<T>(result)) unfit(block, i, key, before, result);
    return replaced(block, links.rest, i, key, static_cast<T>(result));
  }
};

template <device_execution Exec>
struct back_end<transform_ids_tag, Exec> {
  template <class T, class Offset, class... Fs>
  static void run(Exec const& exec, keyed_jagged_view<T, Offset> batch, id_chain<Fs...> const& chain) {
    if (batch.rows() == 0) return;
    auto const first_rows = to_device(exec, first_rows_of(batch));
    auto const flat = batch.flat();
    auto const room = value_bound(exec, flat);
    buffer<std::int64_t, Exec> starts(exec, batch.keys + 1);
    launch_for_each(exec, batch.keys + 1, count_before_key<Offset>{flat.offsets, first_rows.data(), starts.data()});
    launch_tiles<1>(exec, starts.data(), batch.keys, room,
                    transform_values<T, Offset, id_chain<Fs...>>{batch.values, flat.offsets, chain, exec.faults(unfit_id_on_device)});
  }

  template <class T, class Offset, class F>
  static void run_on_all(Exec const& exec, keyed_jagged_view<T, Offset> batch, F const& f) {
    auto const device_function = to_device(exec, std::vector<F>{f});
    run(exec, batch, chain_of(key_functions<F>{device_function.data(), 0, nullptr}));
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
