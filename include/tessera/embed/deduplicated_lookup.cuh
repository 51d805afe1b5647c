// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/device.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/tensor/gather_vectors.cuh>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

template <device_execution Exec>
struct back_end<deduplicated_lookup_tag, Exec> {
  static void check(Exec const&, inverse_keyed_jagged_view<std::int64_t const>) {}  // kernels look at the inverses
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
