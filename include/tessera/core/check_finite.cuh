// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/check_finite.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Leaves the lowest place of a value that is not finite; places go through the rows.
template <class T>
struct find_not_finite {
  matrix_view<T const> values;
  std::int64_t* lowest;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const columns = values.columns();
    if (!is_finite(values.stride() == columns ? values.data()[i] : values.row(i / columns)[i % columns])) block.minimum(lowest, i);
  }
};

// Nobody could say later what the caller calls the values, nor what the value was: so the host waits here.
template <device_execution Exec>
struct back_end<check_finite_tag, Exec> {
  template <class T, class Refuse>
  static void run(Exec const& exec, vector_view<T> values, Refuse const& refuse) {
    if (auto const i = first_not_finite<T>(exec, {values.data(), 1, values.size()}); i >= 0) refuse(read_one(exec, values.data() + i), i);
  }
  template <class T, class Refuse>
  static void run(Exec const& exec, matrix_view<T> values, Refuse const& refuse) {
    auto const i = first_not_finite<T>(exec, values);
    if (i < 0) return;
    auto const r = i / values.columns(), c = i % values.columns();
    refuse(read_one(exec, values.row(r) + c), r, c);
  }

 private:
  template <class T>
  static std::int64_t first_not_finite(Exec const& exec, matrix_view<T const> values) {
    auto const n = values.rows() * values.columns();
    if (n == 0) return -1;
    buffer<std::int64_t, Exec> lowest(exec, 1);
    exec.fill(lowest.data(), 0x7F, sizeof(std::int64_t));  // past any place
    launch_for_each(exec, n, find_not_finite<T>{values, lowest.data()});
    auto const place = read_one(exec, lowest.data());
    return place < n ? place : -1;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
