// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/segmented_reduce.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device.
template <class Exec>
struct device_segmented_reduce {
  Exec exec;

  template <class T, class Offset, class Result, class Op>
  std::vector<Result> reduce(std::vector<T> const& host_values, std::vector<Offset> const& host_offsets, Result initial, Op op) const {
    auto const values = tessera_tests::put(exec, host_values);
    auto const offsets = tessera_tests::put(exec, host_offsets);
    tessera::buffer<Result, Exec> out(exec, offsets.size() - 1);
    tessera::segmented_reduce(exec, values.data(), offsets.view(), out.view(), initial, op);
    return tessera_tests::get(exec, out);
  }
};
