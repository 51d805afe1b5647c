// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/dlpack.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/types.hpp>
#include <tessera/tensor/gather_backward.hpp>

// CASE == 1 says: a buffer holds plain data
// CASE == 1 says: radix_sort_pairs: keys are integers
// CASE == 1 says: from_dlpack makes a vector_view or a matrix_view
// CASE == 1 says: DLPack has no name for this type
// CASE == 1 says: a DLManagedTensor cannot say that it is read-only
// CASE == 1 says: gather_backward: gradients are floats or doubles
#if CASE == 1
using element = std::string;
using key = float;
using imported = std::vector<float>;
using imported_element = long double;
using exported = float const;
using gradient = int;
#else
using element = double;
using key = std::int64_t;
using imported = tessera::vector_view<float>;
using imported_element = float;
using exported = float;
using gradient = float;
#endif

#if CASE == 2  // says: step_count
using which_table = tessera::step_count;
#else
using which_table = tessera::table_id;
#endif

void use(tessera::host_exec const& exec, tessera::dlpack::tensor const& tensor, tessera::vector_view<key> keys,
         tessera::vector_view<exported> view, tessera::vector_view<std::int64_t const> sources, tessera::vector_view<gradient> gradients) {
  tessera::buffer<element> const elements(exec, 1);
  tessera::radix_sort_pairs(exec, keys, tessera::vector_view<std::int64_t>());
  tessera::gather_backward(exec, sources, gradients, gradients);
  tessera::from_dlpack<imported>(tensor);
  tessera::from_dlpack<tessera::vector_view<imported_element>>(tensor);
  auto const managed = tessera::export_dlpack<tessera::dlpack::managed_tensor>(1, view);
  tessera::table_id const table = which_table(1);
}
