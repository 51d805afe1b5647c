// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/select.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Finds the runs of equal neighbours: writes the value of each and where it begins, and returns how many there are. `values` (n,). `runs`
/// (>= n,), of which the first r are written. `offsets` (>= n + 1,), of which the first r + 1 are written: those that `segmented_reduce`
/// takes. Outputs must not overlap `values`. On a device it waits for the number of runs.
/// @post values[i] == runs[k] for i of [offsets[k], offsets[k + 1]); offsets[r] == n
/// @throws tessera::error shape_mismatch.
template <execution Exec, class T>
std::int64_t run_length_encode(Exec const& exec, vector_view<T> values, vector_view<std::remove_const_t<T>> runs,
                               vector_view<std::int64_t> offsets);

/// As above; it writes the number of runs to `count` (1,), in the execution's memory, and does not synchronise.
template <execution Exec, class T, std::same_as<std::int64_t> Count>
void run_length_encode(Exec const& exec, vector_view<T> values, vector_view<std::remove_const_t<T>> runs, vector_view<std::int64_t> offsets,
                       vector_view<Count> count);

namespace detail {

/// Whether a run begins at place i.
template <class T>
TESSERA_HOST_DEVICE constexpr bool begins_run(T const* values, std::int64_t i) noexcept {
  return i == 0 || values[i] != values[i - 1];
}

struct run_length_encode_tag {};

template <>
struct back_end<run_length_encode_tag, host_exec> {
  template <class T>
  static void run(host_exec const& exec, vector_view<T const> values, vector_view<T> runs, vector_view<std::int64_t> offsets,
                  vector_view<std::int64_t> count) {
    auto const n = values.size();
    count[0] = compact(
        exec, n, [v = values.data()](std::int64_t i) { return begins_run(v, i); },
        [v = values.data(), runs, offsets](std::int64_t k, std::int64_t i) {
          runs[k] = v[i];
          offsets[k] = i;
        });
    offsets[count[0]] = n;
  }
};

}  // namespace detail

template <execution Exec, class T>
std::int64_t run_length_encode(Exec const& exec, vector_view<T> values, vector_view<std::remove_const_t<T>> runs,
                               vector_view<std::int64_t> offsets) {
  return detail::counted(exec, [&](vector_view<std::int64_t> count) { run_length_encode(exec, values, runs, offsets, count); });
}

template <execution Exec, class T, std::same_as<std::int64_t> Count>
void run_length_encode(Exec const& exec, vector_view<T> values, vector_view<std::remove_const_t<T>> runs, vector_view<std::int64_t> offsets,
                       vector_view<Count> count) {
  static_assert(std::is_arithmetic_v<T>, "run_length_encode: values are numbers");
  if (runs.size() < values.size() || offsets.size() < values.size() + 1)
    throw error(errc::shape_mismatch, "run_length_encode: room for as many runs as values, and one offset more",
                {{"values", values.size()}, {"runs", runs.size()}, {"offsets", offsets.size()}});
  detail::check_count("run_length_encode", count);
  detail::back_end<detail::run_length_encode_tag, Exec>::run(exec, vector_view<std::remove_const_t<T> const>{values.data(), values.size()},
                                                             runs, offsets, count);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
