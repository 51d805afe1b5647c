// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A function of ids: `f(id)`, or `f(key, id)` with the key's number. On a device it is plain data, and is called there.
template <class F>
concept id_function = std::is_invocable_r_v<std::int64_t, F const&, std::int64_t> ||
    std::is_invocable_r_v<std::int64_t, F const&, std::int64_t, std::int64_t>;

/// Replaces every id of a batch by f(id), or by f(key, id), where keys are counted from the view's first. Of an unsigned id of 64 bits f
/// gets the same bits, signed.
///
/// Several threads call f, in any order. On a device the call waits for the number of values where the view does not give its room.
/// @throws tessera::error out_of_range naming key, id and result where the type of the ids does not hold the result. Other ids of the batch
/// may have changed then.
template <execution Exec, class T, class Offset, id_function F>
void transform_ids(Exec const& exec, keyed_jagged_view<T, Offset> batch, F const& f);

/// Replaces the ids of an IKJT: f is called once for each id of the distinct rows, however many samples have them. Distinct rows that
/// become equal stay apart, so the batch means the same but is longer than it need be.
template <execution Exec, class T, class Offset, id_function F>
void transform_ids(Exec const& exec, inverse_keyed_jagged_view<T, Offset> batch, F const& f);

namespace detail {

struct transform_ids_tag {};

/// What becomes of a key's ids, for all keys or some; all in the execution's memory.
template <class F>
struct key_functions {
  F const* functions;
  std::int64_t stride;           // 1: one a key; 0: one for all
  std::uint8_t const* selected;  // (keys,): whether a key's ids change; nullptr: all do
};

/// What becomes of them first, and then, …
template <class... Fs>
struct id_chain {};
template <class F, class... Rest>
struct id_chain<F, Rest...> {
  key_functions<F> first;
  id_chain<Rest...> rest;
};

inline id_chain<> chain_of() noexcept { return {}; }
template <class F, class... Rest>
id_chain<F, Rest...> chain_of(key_functions<F> first, key_functions<Rest>... rest) noexcept {
  return {first, chain_of(rest...)};
}

/// Whether a type of ids has this one. An unsigned one has none below 0, though all 64 bits come back from it.
template <class T>
TESSERA_HOST_DEVICE constexpr bool holds_id(std::int64_t id) noexcept {
  return static_cast<std::int64_t>(static_cast<T>(id)) == id && (std::is_signed_v<T> || id >= 0);
}

inline constexpr char const* unfit_id = "transform_ids: what becomes of an id does not fit its type";

template <>
struct back_end<transform_ids_tag, host_exec> {
  // Values that stay in the nearest cache from one function to the next.
  static constexpr std::int64_t values_per_piece = 2048;

  template <class T, class Offset, class... Fs>
  static void run(host_exec const& exec, keyed_jagged_view<T, Offset> batch, id_chain<Fs...> const& chain) {
    check_rows("transform_ids", "batch", batch);
    buffer<std::int64_t> starts(exec, batch.keys + 1);
    for (std::int64_t key = 0; key < batch.keys; ++key) starts[key] = batch.key(key).rows == 0 ? -1 : batch.key(key).first_value();
    starts[batch.keys] = batch.first_value() + batch.size();
    for (auto key = batch.keys; key-- > 0;)
      if (starts[key] < 0) starts[key] = starts[key + 1];
    for_each_piece(exec, batch.size(), values_per_piece, [&](std::int64_t first, std::int64_t last) {
      auto at = batch.first_value() + first;
      auto const end = batch.first_value() + last;
      for (auto key = std::upper_bound(starts.begin(), starts.end(), at) - starts.begin() - 1; at < end; ++key) {
        auto const stop = std::min(end, starts[key + 1]);
        if (at < stop) apply(chain, key, batch.values + at, stop - at);
        at = stop;
      }
    });
  }

  /// One function of the ids of all keys.
  template <class T, class Offset, class F>
  static void run_on_all(host_exec const& exec, keyed_jagged_view<T, Offset> batch, F const& f) {
    run(exec, batch, chain_of(key_functions<F>{&f, 0, nullptr}));
  }

 private:
  template <class T>
  static void apply(id_chain<> const&, std::int64_t, T*, std::int64_t) noexcept {}

  template <class T, class F, class... Rest>
  static void apply(id_chain<F, Rest...> const& chain, std::int64_t key, T* values, std::int64_t count) {
    auto const& own = chain.first;
    if (own.selected == nullptr || own.selected[key] != 0) {
      auto const& f = own.functions[key * own.stride];
      // A copy stays in registers, where the values might be what plain data is read from.
      if constexpr (std::is_trivially_copyable_v<F>)
        replace<T, F>(F(f), key, values, count);
      else
        replace<T, F const&>(f, key, values, count);
    }
    apply(chain.rest, key, values, count);
  }

  template <class T, class F>
  static void replace(F f, std::int64_t key, T* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const id = static_cast<std::int64_t>(values[i]);
      std::int64_t result;
      if constexpr (std::is_invocable_v<std::remove_reference_t<F> const&, std::int64_t, std::int64_t>)
        result = std::as_const(f)(key, id);
      else
        result = std::as_const(f)(id);
      if (!holds_id<T>(result)) throw error(errc::out_of_range, unfit_id, {{"key", key}, {"id", id}, {"result", result}});
      values[i] = static_cast<T>(result);
    }
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset, id_function F>
void transform_ids(Exec const& exec, keyed_jagged_view<T, Offset> batch, F const& f) {
  static_assert(std::is_integral_v<T> && !std::is_const_v<T>, "transform_ids: ids are integers, and written in place");
  detail::back_end<detail::transform_ids_tag, Exec>::run_on_all(exec, batch, f);
}

template <execution Exec, class T, class Offset, id_function F>
void transform_ids(Exec const& exec, inverse_keyed_jagged_view<T, Offset> batch, F const& f) {
  transform_ids(exec, batch.distinct, f);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
