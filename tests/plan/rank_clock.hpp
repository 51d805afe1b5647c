// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera_tests {

/// A clock that each read moves by a millisecond, times the rank's number plus one.
struct rank_clock {
  int rank = 0;
  double time = 0;  // seconds

  double now() { return time += 0.001 * (rank + 1); }
  void wait(double) {}
};

}  // namespace tessera_tests
