// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>  // fmaf for host and device alike

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// a * b + c, rounded once where the machine has an instruction for it, else twice; the same everywhere in one build.
///
/// The compiler may fuse `a * b + c` or not, place by place: g++ fuses one loop and not its neighbour. A sum that must not depend on who
/// computes it would then have two values.
TESSERA_HOST_DEVICE inline float multiply_add(float a, float b, float c) noexcept {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__)
  return fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace TESSERA_ABI
}  // namespace tessera
