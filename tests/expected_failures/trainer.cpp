// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/train/trainer.hpp>

using model = tessera::dlrm<tessera::dense_table<>, tessera::eigen_gemm>;
template <class RowOptimizer, class DenseOptimizer>
using trainer = tessera::trainer<model, RowOptimizer, DenseOptimizer>;

#if CASE == 1  // says: row_optimizer_choice
void use(trainer<float, tessera::sgd>&);
#elif CASE == 2  // says: dense_optimizer_choice
void use(trainer<tessera::sgd, tessera::rowwise_adagrad>&);
void use(trainer<tessera::sgd, std::variant<tessera::sgd, tessera::with_row_clipping<tessera::sgd>>>&);
#else
void use(trainer<std::variant<tessera::sgd, tessera::rowwise_adagrad>, std::variant<tessera::sgd, tessera::adam>>&);
#endif
