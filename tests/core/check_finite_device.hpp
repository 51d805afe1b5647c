// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/check_finite.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device.
template <class Exec>
struct device_check_finite {
  Exec exec;

  template <class T>
  void check(char const* what, std::vector<T> const& values) const {
    auto const on_device = tessera_tests::put(exec, values);
    tessera::check_finite(exec, what, on_device.view());
  }
  template <class T>
  void check(char const* what, std::vector<T> const& values, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    auto on_device = tessera_tests::put(exec, values);
    tessera::check_finite(exec, what, tessera::matrix_view<T>(on_device.data(), rows, columns, stride));
  }
};
