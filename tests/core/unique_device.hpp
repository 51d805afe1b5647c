// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/unique.cuh>

#include "../support/device_arrays.hpp"

/// The suite's harness on a device; the count stays there, or is waited for.
template <class Exec>
struct device_unique {
  Exec exec;
  bool waits;

  template <class Key>
  std::pair<std::vector<Key>, std::vector<std::int64_t>> unique(std::vector<Key> const& host_keys, tessera::radix_bits bits) const {
    auto const keys = tessera_tests::put(exec, host_keys);
    tessera::buffer<Key, Exec> distinct(exec, keys.size());
    tessera::buffer<std::int64_t, Exec> inverse(exec, keys.size());
    std::int64_t found = 0;
    if (waits) {
      found = tessera::unique(exec, keys.view(), distinct.view(), inverse.view(), bits);
    } else {
      tessera::buffer<std::int64_t, Exec> count(exec, 1);
      tessera::unique(exec, keys.view(), distinct.view(), inverse.view(), count.view(), bits);
      found = tessera::read_one(exec, count.data());
    }
    return {tessera_tests::get(exec, distinct.view().slice(0, found)), tessera_tests::get(exec, inverse)};
  }
};
