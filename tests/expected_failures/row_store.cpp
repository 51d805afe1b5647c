// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_transfer.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>

struct my_table : tessera::dense_table<> {
  using tessera::dense_table<>::dense_table;
#if CASE == 1  // says: held.find\(exec, ids, slots\)
 private:
  using tessera::dense_table<>::find;
#elif CASE == 2  // says: store.state\(slot\)
  double* state(std::int64_t);
#elif CASE == 3  // says: row_element
  using element = double;
#endif
};

#if CASE == 4  // says: row_stores
using my_tables = my_table;
#elif CASE == 5  // says: row_stores
using my_tables = std::vector<my_table*>;
#else
using my_tables = std::vector<my_table>;
#endif

void use(tessera::host_exec const& exec, my_tables& tables, std::vector<tessera::pooled_feature> const& features,
         tessera::keyed_jagged_view<std::int64_t const> batch, std::vector<tessera::matrix_view<float>> const& out,
         tessera::lookup_saved& saved) {
  tessera::pooled_lookup(exec, tables, features, batch, out, saved);
}
