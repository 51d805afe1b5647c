// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/row_optimizer.hpp>

struct my_optimizer {
  static constexpr int row_state = 0;
#if CASE != 1  // says: O::element_state
  static constexpr int element_state = 0;
#endif
#if CASE == 2  // says: begin_row
  float begin_row(float*) const { return 1; }
#else
  float begin_row(float*, tessera::row_gradient const&) const { return 1; }
#endif
#if CASE == 3  // says: o.update\(weight, state, stride, gradient
  void update(float&, float*, float) const {}
#else
  void update(float&, float*, std::int64_t, float, float) const {}
#endif
#if CASE == 4  // says: gradient_of_takes_gradient_and_weight
  float gradient_of(float gradient) const { return gradient; }
#else
  float gradient_of(float gradient, float) const { return gradient; }
#endif
};

#if CASE == 5  // says: put them outside, as in with_weight_decay
using clipped = tessera::with_row_clipping<tessera::with_weight_decay<tessera::rowwise_adagrad>>;
#else
using clipped = tessera::with_weight_decay<tessera::with_row_clipping<tessera::rowwise_adagrad>>;
#endif

void use(tessera::host_exec const& exec, tessera::table_options const& options) {
  tessera::dense_table<> const mine(exec, options, my_optimizer{});
  tessera::dense_table<> const others(exec, options, clipped{});
}
