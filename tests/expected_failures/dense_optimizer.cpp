// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/nn/dense_optimizer.hpp>

#if CASE == 1  // says: needs_no_row
using my_optimizer = tessera::rowwise_adagrad;
#elif CASE == 2  // says: needs_no_row
using my_optimizer = tessera::with_row_clipping<tessera::adam>;
#else
using my_optimizer = tessera::with_value_clipping<tessera::adam>;
#endif

void use(tessera::host_exec const& exec, tessera::vector_view<float> parameters, tessera::dense_optimizer_state& state) {
  tessera::dense_update(exec, parameters, parameters, state, my_optimizer{});
}
