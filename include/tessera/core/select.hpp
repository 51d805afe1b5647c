// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes the values whose flag is not 0, in their order, and returns how many there are. `values` and `flags` (n,); flags are integers or
/// bool. `out` (>= n,), of which that many are written, must not overlap `values`. On a device it waits for the number.
/// @throws tessera::error shape_mismatch.
template <execution Exec, class T, class Flag>
std::int64_t select_flagged(Exec const& exec, vector_view<T> values, vector_view<Flag> flags, vector_view<std::remove_const_t<T>> out);

/// As above; it writes the number to `count` (1,), in the execution's memory, and does not synchronise.
template <execution Exec, class T, class Flag, std::same_as<std::int64_t> Count>
void select_flagged(Exec const& exec, vector_view<T> values, vector_view<Flag> flags, vector_view<std::remove_const_t<T>> out,
                    vector_view<Count> count);

namespace detail {

/// The number that `write(count)` writes to its one element of the execution's memory; on a device it waits for that.
template <execution Exec, class Write>
std::int64_t counted(Exec const& exec, Write const& write) {
  if constexpr (device_execution<Exec>) {
    buffer<std::int64_t, Exec> count(exec, 1);
    write(count.view());
    return read_one(exec, count.data());
  } else {
    std::int64_t count = 0;
    write(vector_view<std::int64_t>{&count, 1});
    return count;
  }
}

inline void check_count(char const* call, vector_view<std::int64_t> count) {
  if (count.size() != 1) throw error(errc::shape_mismatch, std::string(call) + ": one element for the count", {{"elements", count.size()}});
}

inline constexpr std::int64_t compact_piece = 1 << 15;

/// Calls put(k, i) for the k-th i of [0, n), in order, that `keep` accepts; returns how many there are. Threads never share an i.
template <class Keep, class Put>
std::int64_t compact(host_exec const& exec, std::int64_t n, Keep const& keep, Put const& put) {
  buffer<std::int64_t> starts(exec, divide_up(n, compact_piece));
  for_each_piece(exec, n, compact_piece, [&](std::int64_t first, std::int64_t last) {
    std::int64_t kept = 0;
    for (auto i = first; i < last; ++i) kept += keep(i) ? 1 : 0;
    starts[first / compact_piece] = kept;
  });
  std::int64_t sum = 0;
  for (auto& start : starts) sum += std::exchange(start, sum);
  for_each_piece(exec, n, compact_piece, [&](std::int64_t first, std::int64_t last) {
    auto k = starts[first / compact_piece];
    for (auto i = first; i < last; ++i)
      if (keep(i)) put(k++, i);
  });
  return sum;
}

struct select_flagged_tag {};

template <>
struct back_end<select_flagged_tag, host_exec> {
  template <class T, class Flag>
  static void run(host_exec const& exec, vector_view<T const> values, vector_view<Flag const> flags, vector_view<T> out,
                  vector_view<std::int64_t> count) {
    count[0] = compact(
        exec, values.size(), [f = flags.data()](std::int64_t i) { return f[i] != Flag{}; },
        [from = values.data(), to = out.data()](std::int64_t k, std::int64_t i) { to[k] = from[i]; });
  }
};

}  // namespace detail

template <execution Exec, class T, class Flag>
std::int64_t select_flagged(Exec const& exec, vector_view<T> values, vector_view<Flag> flags, vector_view<std::remove_const_t<T>> out) {
  return detail::counted(exec, [&](vector_view<std::int64_t> count) { select_flagged(exec, values, flags, out, count); });
}

template <execution Exec, class T, class Flag, std::same_as<std::int64_t> Count>
void select_flagged(Exec const& exec, vector_view<T> values, vector_view<Flag> flags, vector_view<std::remove_const_t<T>> out,
                    vector_view<Count> count) {
  static_assert(std::is_trivially_copyable_v<T>, "select_flagged: values are plain data");
  static_assert(std::is_integral_v<Flag>, "select_flagged: flags are integers or bool");
  if (flags.size() != values.size() || out.size() < values.size())
    throw error(errc::shape_mismatch, "select_flagged: one flag a value, and room for all",
                {{"values", values.size()}, {"flags", flags.size()}, {"out", out.size()}});
  detail::check_count("select_flagged", count);
  using value = std::remove_const_t<T>;
  detail::back_end<detail::select_flagged_tag, Exec>::run(exec, vector_view<value const>{values.data(), values.size()},
                                                          vector_view<std::remove_const_t<Flag> const>{flags.data(), flags.size()}, out,
                                                          count);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
