// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/scan.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device.
template <class Exec>
struct device_scan {
  Exec exec;

  template <class T, class Sum>
  std::pair<std::vector<Sum>, Sum> exclusive_scan(std::vector<T> const& in, Sum initial) const {
    auto const values = tessera_tests::put(exec, in);
    tessera::buffer<Sum, Exec> out(exec, values.size());
    tessera::exclusive_scan(exec, values.view(), out.view(), initial);
    auto result = tessera_tests::get(exec, out);
    auto const sum = in.empty() ? initial : static_cast<Sum>(result.back() + static_cast<Sum>(in.back()));
    return {std::move(result), sum};
  }
  template <class T>
  std::pair<std::vector<T>, T> exclusive_scan_in_place(std::vector<T> const& in) const {
    auto values = tessera_tests::put(exec, in);
    tessera::exclusive_scan(exec, values.view(), values.view());
    auto result = tessera_tests::get(exec, values);
    auto const sum = in.empty() ? T{} : static_cast<T>(result.back() + in.back());
    return {std::move(result), sum};
  }
  template <class T, class Offset>
  std::vector<Offset> lengths_to_offsets(std::vector<T> const& in, std::size_t count, Offset) const {
    auto const lengths = tessera_tests::put(exec, in);
    tessera::buffer<Offset, Exec> offsets(exec, static_cast<std::int64_t>(count));
    tessera::lengths_to_offsets(exec, lengths.view(), offsets.view());
    return tessera_tests::get(exec, offsets);
  }
};
