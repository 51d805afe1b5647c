// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/run_length_encode.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device; the count stays there, or is waited for.
template <class Exec>
struct device_run_length_encode {
  Exec exec;
  bool waits;

  template <class T>
  std::pair<std::vector<T>, std::vector<std::int64_t>> encode(std::vector<T> const& host_values, std::size_t room,
                                                              std::size_t offsets_room) const {
    auto const values = tessera_tests::put(exec, host_values);
    tessera::buffer<T, Exec> runs(exec, static_cast<std::int64_t>(room));
    tessera::buffer<std::int64_t, Exec> offsets(exec, static_cast<std::int64_t>(offsets_room));
    std::int64_t found = 0;
    if (waits) {
      found = tessera::run_length_encode(exec, values.view(), runs.view(), offsets.view());
    } else {
      tessera::buffer<std::int64_t, Exec> count(exec, 1);
      tessera::run_length_encode(exec, values.view(), runs.view(), offsets.view(), count.view());
      found = tessera::read_one(exec, count.data());
    }
    return {tessera_tests::get(exec, runs.view().slice(0, found)), tessera_tests::get(exec, offsets.view().slice(0, found + 1))};
  }
};
