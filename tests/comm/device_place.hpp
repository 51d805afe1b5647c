// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <device_arrays.hpp>

#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>

namespace tessera_tests {

/// Where a rank with a device has its messages, for the suite of communicators.
template <class Exec>
struct device_place {
  Exec on;

  Exec exec() const { return on; }
  template <class T>
  tessera::buffer<T, Exec> put(std::vector<T> const& values) const {
    return tessera_tests::put(on, values);
  }
  template <class T>
  tessera::vector_view<T const> view(tessera::buffer<T, Exec> const& values) const {
    return values.view();
  }
  template <class T>
  std::vector<T> get(tessera::vector_view<T const> values) const {
    return tessera_tests::get(on, values);
  }
};

}  // namespace tessera_tests
