// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>

struct my_interaction : tessera::dot_products {
  using tessera::dot_products::dot_products;
#if CASE == 1  // says: held.output_width\(\)
 private:
  using tessera::dot_products::output_width;
#elif CASE == 2  // says: held.forward\(exec
  void forward() const {}
#endif
};

void use(tessera::click_model<tessera::local_tables, tessera::eigen_gemm, my_interaction>&);
