// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/learning_rate.hpp>

struct my_schedule {
#if CASE == 1  // says: schedule\(step\)
  double operator()(tessera::step_count) const { return 1; }
#else
  float operator()(tessera::step_count) const { return 1; }
#endif
};

void use(tessera::sgd& optimizer) { tessera::set_learning_rate(optimizer, my_schedule{}, tessera::step_count{1}); }
