// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

using model = tessera::dlrm<tessera::local_tables, tessera::eigen_gemm>;
template <class DenseOptimizer>
using trainer = tessera::trainer<model, DenseOptimizer>;

struct without_update {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float begin_row(float*, tessera::row_gradient const&) const { return 1; }
};

#if CASE == 1  // says: needs_no_row
void use(trainer<tessera::rowwise_adagrad>&);
#elif CASE == 2  // says: needs_no_row
void use(trainer<std::variant<tessera::with_row_clipping<tessera::sgd>, tessera::sgd>>&);
#elif CASE == 3  // says: o.update\(weight, state, stride, gradient
void use(trainer<std::variant<tessera::sgd, without_update>>&);
#else
void use(trainer<std::variant<tessera::sgd, tessera::adam>>&);
#endif
