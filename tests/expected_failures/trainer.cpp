// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/train/trainer.hpp>

using model = tessera::dlrm<tessera::dense_table<>, tessera::eigen_gemm>;
template <class RowOptimizer, class DenseOptimizer>
using trainer = tessera::trainer<model, RowOptimizer, DenseOptimizer>;

struct without_update {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 1; }
};

#if CASE == 1  // says: O::row_state
void use(trainer<float, tessera::sgd>&);
#elif CASE == 2  // says: o.update\(weight, state, stride, gradient
void use(trainer<std::variant<tessera::sgd, without_update, tessera::adam>, tessera::sgd>&);
#elif CASE == 3  // says: needs_no_row
void use(trainer<tessera::sgd, tessera::rowwise_adagrad>&);
#elif CASE == 4  // says: needs_no_row
void use(trainer<tessera::sgd, std::variant<tessera::with_row_clipping<tessera::sgd>, tessera::sgd>>&);
#elif CASE == 5  // says: o.update\(weight, state, stride, gradient
void use(trainer<tessera::sgd, std::variant<tessera::sgd, without_update>>&);
#else
void use(trainer<std::variant<tessera::sgd, tessera::rowwise_adagrad>, std::variant<tessera::sgd, tessera::adam>>&);
#endif
