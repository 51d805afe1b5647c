// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/select.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device; the count stays there, or is waited for.
template <class Exec>
struct device_select {
  Exec exec;
  bool waits;

  template <class T, class Flag>
  std::vector<T> select(std::vector<T> const& host_values, std::vector<Flag> const& host_flags, std::size_t room) const {
    auto const values = tessera_tests::put(exec, host_values);
    auto const flags = tessera_tests::put(exec, host_flags);
    tessera::buffer<T, Exec> out(exec, static_cast<std::int64_t>(room));
    std::int64_t selected = 0;
    if (waits) {
      selected = tessera::select_flagged(exec, values.view(), flags.view(), out.view());
    } else {
      tessera::buffer<std::int64_t, Exec> count(exec, 1);
      tessera::select_flagged(exec, values.view(), flags.view(), out.view(), count.view());
      selected = tessera::read_one(exec, count.data());
    }
    return tessera_tests::get(exec, out.view().slice(0, selected));
  }
};
