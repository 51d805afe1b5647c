// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

#if CASE == 1  // says: row_optimizers
using my_optimizers = float;
#elif CASE == 2  // says: row_optimizers
using my_optimizers = std::vector<float>;
#else
using my_optimizers = std::vector<tessera::sgd>;
#endif

void use(tessera::host_exec const& exec, std::vector<tessera::dense_table<>>& tables, std::vector<tessera::pooled_feature> const& features,
         std::vector<tessera::matrix_view<float const>> const& gradients, tessera::lookup_saved const& saved,
         my_optimizers const& optimizers) {
  tessera::pooled_lookup_backward(exec, tables, features, saved, gradients, optimizers);
}
