// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>

// Of the case's call, const tables.
template <int Case>
std::conditional_t<CASE == Case, std::vector<tessera::dense_table<>> const, std::vector<tessera::dense_table<>>>& tables_of();

void use(tessera::host_exec const& exec, std::vector<tessera::pooled_feature> const& bags, std::vector<std::int64_t> const& sequences,
         tessera::keyed_jagged_view<std::int64_t const> batch, std::vector<tessera::matrix_view<float>> const& out,
         std::vector<tessera::matrix_view<float const>> const& gradients, tessera::row_gradients const& sums,
         tessera::lookup_saved& saved) {
  // CASE == 1 says: this call changes its tables, which are const here
  tessera::pooled_lookup(exec, tables_of<1>(), bags, batch, out, saved);
  // CASE == 2 says: this call changes its tables, which are const here
  tessera::pooled_lookup_backward(exec, tables_of<2>(), bags, saved, gradients, tessera::sgd{});
  // CASE == 3 says: this call changes its tables, which are const here
  tessera::sequence_lookup(exec, tables_of<3>(), sequences, batch, out, saved);
  // CASE == 4 says: this call changes its tables, which are const here
  tessera::sequence_lookup_backward(exec, tables_of<4>(), sequences, saved, gradients, tessera::sgd{});
  // CASE == 5 says: this call changes its tables, which are const here
  tessera::update_rows(exec, tables_of<5>(), sums, tessera::sgd{});
}
