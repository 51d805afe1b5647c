// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

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
    auto whole = tessera_tests::put(exec, keys);
    auto whole_moved = tessera_tests::put(exec, values);
    tessera::radix_sort_pairs(exec, sorted.view(), moved.view(), bits);
    tessera::radix_sort_pairs(exec, whole, whole_moved, bits);
    CHECK(tessera_tests::get(exec, whole) == tessera_tests::get(exec, sorted));
    CHECK(tessera_tests::get(exec, whole_moved) == tessera_tests::get(exec, moved));
    auto between = tessera_tests::put(exec, keys);
    auto between_moved = tessera_tests::put(exec, values);
    tessera::buffer<Key, Exec> other(exec, between.size());
    tessera::buffer<Value, Exec> other_moved(exec, between.size());
    auto const ended = tessera::radix_sort_pairs(exec, between.view(), between_moved.view(), other.view(), other_moved.view(), bits);
    CHECK(tessera_tests::get(exec, ended.first) == tessera_tests::get(exec, sorted));
    CHECK(tessera_tests::get(exec, ended.second) == tessera_tests::get(exec, moved));
    return {tessera_tests::get(exec, sorted), tessera_tests::get(exec, moved)};
  }
};
