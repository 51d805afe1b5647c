// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup.hpp>

#if CASE == 0
using tables = std::vector<tessera::dense_table<>>;
#elif CASE == 1  // says: this call changes its tables, which are const here
using tables = std::vector<tessera::dense_table<>> const;
#endif

void use(tessera::host_exec const& exec, tables& some, std::vector<tessera::pooled_feature> const& features,
         tessera::keyed_jagged_view<std::int64_t const> batch, std::vector<tessera::matrix_view<float>> const& out,
         tessera::lookup_saved& saved) {
  tessera::pooled_lookup(exec, some, features, batch, out, saved);
}
