// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/run_length_encode.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <class T>
struct mark_run_begins {
  T const* values;
  std::int64_t n;
  std::uint8_t* begins;  // (n + 1,), the last is 0

  TESSERA_DEVICE void operator()(std::int64_t i) const { begins[i] = i < n && begins_run(values, i); }
};

/// Writes to before[i], of n + 1, how many runs begin before place i of the n values. It writes 8 bytes a value and reads the values twice.
template <device_execution Exec, class T>
void count_runs(Exec const& exec, vector_view<T const> values, vector_view<std::int64_t> before) {
  buffer<std::uint8_t, Exec> begins(exec, values.size() + 1);
  launch_for_each(exec, begins.size(), mark_run_begins<T>{values.data(), values.size(), begins.data()});
  exclusive_scan(exec, begins.view(), before);
}

template <class T>
struct write_encoded_runs {
  T const* values;
  std::int64_t n;
  std::int64_t const* before;
  T* runs;
  std::int64_t* offsets;
  std::int64_t* count;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const run = before[i];
    if (i == n) {
      offsets[run] = n;
      *count = run;
    } else if (before[i + 1] != run) {
      runs[run] = values[i];
      offsets[run] = i;
    }
  }
};

template <device_execution Exec>
struct back_end<run_length_encode_tag, Exec> {
  template <class T>
  static void run(Exec const& exec, vector_view<T const> values, vector_view<T> runs, vector_view<std::int64_t> offsets,
                  vector_view<std::int64_t> count) {
    auto const n = values.size();
    buffer<std::int64_t, Exec> before(exec, n + 1);
    count_runs(exec, values, before.view());
    launch_for_each(exec, n + 1, write_encoded_runs<T>{values.data(), n, before.data(), runs.data(), offsets.data(), count.data()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
