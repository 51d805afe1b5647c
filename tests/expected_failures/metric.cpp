// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/windowed.hpp>

struct my_metric {
#if CASE != 1  // says: m.merge\(other\)
  void merge(my_metric const&) {}
#endif
  void clear() {}
#if CASE == 2  // says: other.samples\(\)
  int samples() const { return 0; }
#else
  std::int64_t samples() const { return 0; }
#endif
};

void use(tessera::windowed<my_metric>&);
