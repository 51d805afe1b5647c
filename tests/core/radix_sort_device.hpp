// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include <tessera/core/radix_sort.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device.
template <class Exec>
struct device_radix_sort {
  Exec exec;

  template <class Key, class Value>
  std::pair<std::vector<Key>, std::vector<Value>> sort(std::vector<Key> const& keys, std::vector<Value> const& values,
                                                       tessera::radix_bits bits) const {
    auto sorted = tessera_tests::put(exec, keys);
    auto moved = tessera_tests::put(exec, values);
    tessera::radix_sort_pairs(exec, sorted.view(), moved.view(), bits);
    return {tessera_tests::get(exec, sorted), tessera_tests::get(exec, moved)};
  }
};
