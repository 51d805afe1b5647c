// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/plan/measure_compute.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

struct touch_line {  // unproven
  float* floats;
  TESSERA_DEVICE void operator()(std::int64_t line) const { floats[floats_of_line * line] = -floats[floats_of_line * line]; }
};

template <device_execution Exec>
struct back_end<compute_bench_tag, Exec> {
  static void fill(Exec const& exec, vector_view<float> floats, float value) {
    launch_for_each(exec, floats.size(), fill_floats{floats.data(), value});
  }
  static void touch_lines(Exec const& exec, vector_view<float> floats) {
    launch_for_each(exec, divide_up(floats.size(), floats_of_line), touch_line{floats.data()});
  }
  static void wait(Exec const& exec) { exec.synchronize(); }
  static buffer<std::int64_t, Exec> copy_of(Exec const& exec, std::vector<std::int64_t> const& values) { return to_device(exec, values); }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
