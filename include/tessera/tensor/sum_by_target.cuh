// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.cuh>
#include <tessera/tensor/source_lists.cuh>
#include <tessera/tensor/sum_by_target.hpp>

// The threads of a target's packs, or of its first number, add up its sources in order, as the host does: the same bits, at the price that
// few threads have all of a target that is read very often.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// The sum of a pack of a target's sources in order.
template <class Vectors, class Pack>
struct sum_sources_pack {
  using pack_type = Pack;
  Vectors vectors;  // rows of vectors
  std::int64_t const* starts;
  std::int64_t const* sources;
  matrix_view<float> sums;

  TESSERA_DEVICE Pack read(pack_place const& at) const {
    auto const first = starts[at.row], last = starts[at.row + 1];
    if (first == last) return Pack{};
    auto const source = [&](std::int64_t s) { return read_pack<Pack>(vectors.values, vectors.begin_of(sources[s]) + at.in_row, at.pack); };
    auto sum = source(first);
    auto const add = [](float a, float b) { return a + b; };
    read_ahead(first + 1, last, source, [&](std::int64_t, Pack const& x) { sum = map_columns(add, sum, x); });
    return sum;
  }
  TESSERA_DEVICE void write(pack_place const& at, Pack const& x) const { write_pack(sums, at.vector, at.pack, x); }
};

// For a sum to read neighbours.
template <class T>
struct order_by_source {
  std::int64_t const* sources;
  T const* values;
  T* ordered;

  TESSERA_DEVICE void operator()(std::int64_t i) const { ordered[i] = values[sources[i]]; }
};

template <class T>
struct sum_run_of_target {
  std::int64_t const* targets;
  T const* ordered;
  std::int64_t count;
  vector_view<T> sums;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const target = targets[i];
    if (target >= sums.size() || (i > 0 && targets[i - 1] == target)) return;
    T total = ordered[i];
    for (++i; i < count && targets[i] == target; ++i) total += ordered[i];
    sums.data()[target] = total;
  }
};

template <device_execution Exec>
struct back_end<sum_by_target_tag, Exec> {
  static void vectors(Exec const& exec, vector_view<target_sums const> jobs, sum_by_target_options options) {
    for (auto const& job : jobs)
      launch(exec, vector_a_row<float>(job.sums), job.lists, vector_a_row<float const>(job.vectors), job.sums, options);
  }

  template <class Offset>
  static void rows(Exec const& exec, source_lists_view lists, jagged_vectors_view<float const, Offset> vectors,
                   jagged_vectors_view<float, Offset> sums, sum_by_target_options options) {
    launch(exec, rows_by_offsets<Offset>{sums.offsets, sums.rows}, lists, vectors, sums.values, options);
  }

  template <class T>
  static void numbers(Exec const& exec, source_pairs_view pairs, vector_view<T const> values, vector_view<T> sums) {
    auto const n = pairs.sources.size();
    exec.fill(sums.data(), 0, static_cast<std::size_t>(sums.size()) * sizeof(T));
    buffer<T, Exec> ordered(exec, n);
    launch_for_each(exec, n, order_by_source<T>{pairs.sources.data(), values.data(), ordered.data()});
    launch_for_each(exec, n, sum_run_of_target<T>{pairs.targets.data(), ordered.data(), n, sums});
  }

 private:
  template <class Rows, class Vectors>
  static void launch(Exec const& exec, Rows const& rows, source_lists_view lists, Vectors const& vectors, matrix_view<float> sums,
                     sum_by_target_options options) {
    with_packs(
        [&](auto pack, std::int64_t packs) {
          launch_for_packs<1>(exec, rows, sums.rows(), packs, options.skip,
                              sum_sources_pack<Vectors, decltype(pack)>{vectors, lists.starts.data(), lists.sources.data(), sums});
        },
        vectors.values, sums);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
