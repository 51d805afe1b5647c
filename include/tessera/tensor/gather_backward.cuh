// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/gather_backward.hpp>

// Where sources may come again they are sorted with their positions, stably, and the thread of the first of equal ones adds up their
// gradients in order, as the host does: the same bits, at the price that one thread has all of a source that comes very often.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_source{errc::out_of_range, "gather_backward: no such source", {"position", "source", "values"}};
inline constexpr fault_kind source_twice{errc::invalid_argument, "gather_backward: a source twice", {"source", "position"}};

template <class T>
struct scatter_gradient {  // unproven
  std::int64_t const* sources;
  T const* gradient;
  T* out;
  std::int64_t values;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const source = sources[i];
    if (source < 0 || source >= values) return missing(block, i, i, source, values);
    out[source] = gradient[i];
  }
};

// One that is none sorts behind all others.
struct number_source {  // unproven
  std::int64_t const* sources;
  std::int64_t values;
  std::uint64_t* numbered;
  std::int64_t* position;
  fault_reporter missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const source = sources[i];
    bool const right = source >= 0 && source < values;
    if (!right) missing(block, i, i, source, values);
    numbered[i] = static_cast<std::uint64_t>(right ? source : values);
    position[i] = i;
  }
};

template <class T>
struct reorder_gradient {  // unproven
  std::int64_t const* position;
  T const* gradient;
  T* sorted;

  TESSERA_DEVICE void operator()(std::int64_t i) const { sorted[i] = gradient[position[i]]; }
};

template <class T>
struct sum_gradient {  // unproven
  std::uint64_t const* sources;
  std::int64_t const* position;
  T const* gradient;
  std::int64_t count;
  T* out;
  std::int64_t values;
  bool distinct;
  fault_reporter twice;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const source = sources[i];
    if (source == static_cast<std::uint64_t>(values) || (i > 0 && sources[i - 1] == source)) return;
    T total = gradient[i];
    for (++i; i < count && sources[i] == source; ++i) {
      if (distinct) return twice(block, i, source, position[i]);
      total += gradient[i];
    }
    out[source] = total;
  }
};

template <device_execution Exec>
struct back_end<gather_backward_tag, Exec> {
  template <class T>
  static void run(Exec const& exec, vector_view<std::int64_t const> sources, vector_view<T const> gradient, vector_view<T> out,
                  gather_backward_options options) {
    exec.fill(out.data(), 0, static_cast<std::size_t>(out.size()) * sizeof(T));
    if (options.distinct_sources && !checked)
      launch_for_each(exec, sources.size(),
                      scatter_gradient<T>{sources.data(), gradient.data(), out.data(), out.size(), exec.faults(no_source)});
    else
      sum(exec, sources, gradient, out, options);
  }

 private:
  template <class T>
  static void sum(Exec const& exec, vector_view<std::int64_t const> sources, vector_view<T const> gradient, vector_view<T> out,
                  gather_backward_options options) {
    auto const n = sources.size();
    buffer<std::uint64_t, Exec> source(exec, n), other_source(exec, n);
    buffer<std::int64_t, Exec> position(exec, n), other_position(exec, n);
    buffer<T, Exec> sorted_gradient(exec, n);
    launch_for_each(exec, n, number_source{sources.data(), out.size(), source.data(), position.data(), exec.faults(no_source)});
    auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(out.size())));
    auto const [sorted, from] = back_end<radix_sort_tag, Exec>::run_between(exec, source.view(), position.view(), other_source.view(),
                                                                            other_position.view(), radix_bits{0, bits});
    launch_for_each(exec, n, reorder_gradient<T>{from, gradient.data(), sorted_gradient.data()});
    launch_for_each(exec, n,
                    sum_gradient<T>{sorted, from, sorted_gradient.data(), n, out.data(), out.size(), options.distinct_sources,
                                    exec.faults(source_twice)});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
