// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera_tests {

/// A clock whose every read takes a millisecond more than the one before; the first ends at 1 ms.
struct slowing_clock {
  double time = 0, step = 0;  // seconds
  int reads = 0;

  double now() {
    ++reads;
    return time += step += 0.001;
  }
  void wait(double) {}
};

}  // namespace tessera_tests
