// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include <tessera/comm/codec.hpp>

namespace tessera_tests {

/// What the contract says of each codec, in double precision: the most that a finite element of a row may be off.
inline double codec_bound(tessera::codec with, double x, double largest) {
  double const of = std::fabs(x);
  switch (with) {
    case tessera::codec::fp32: return 0;
    case tessera::codec::fp16: return of > 65504 ? of - 65504 : std::max(of * 0x1p-11, 0x1p-25);
    case tessera::codec::bf16: return std::max(of * 0x1p-8, 0x1p-134);
    case tessera::codec::int8: return std::max(largest / 253, 0x1p-126);
    case tessera::codec::fp8_e4m3: return std::max({of * 0x1p-4, largest * 0x1p-17, 0x1p-126});
    case tessera::codec::fp8_e5m2: return std::max({of * 0x1p-3, largest * 0x1p-31, 0x1p-126});
  }
  return -1;
}

}  // namespace tessera_tests
