// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.cuh>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/tensor/expand.cuh>
#include <tessera/tensor/gather_vectors.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

struct subtract_number {
  std::int64_t const* from;
  std::int64_t number;
  std::int64_t* to;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t i) const {
    to[i] = from[i] - number;
  }
};

template <device_execution Exec>
struct back_end<expanded_saved_tag, Exec> {
  static std::int64_t first_value(Exec const& exec, keyed_jagged_view<std::int64_t const> batch) {
    return batch.rows() == 0 ? 0 : read_one(exec, batch.flat().offsets);
  }
  static void copy(Exec const& exec, vector_view<std::int64_t const> from, std::int64_t* to) {
    exec.copy(to, from.data(), static_cast<std::size_t>(from.size()) * sizeof(std::int64_t));
  }
  static void subtract(Exec const& exec, vector_view<std::int64_t const> from, std::int64_t number, std::int64_t* to) {
    launch_for_each(exec, from.size(), subtract_number{from.data(), number, to});
  }
};

template <device_execution Exec>
struct back_end<deduplicated_backward_tag, Exec> {
  template <class... Arguments>
  static void expand_argmax(Arguments const&...) {}  // no lookup on a device pools by maximum
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
