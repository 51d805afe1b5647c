// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/check_finite.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#if CASE == 1  // says: row_element
void use(tessera::dense_table<double>&);
void use(tessera::hash_table<int>&);
#elif CASE == 2  // says: float_element
void use(tessera::host_exec const& exec, tessera::vector_view<tessera::scaled_int8> row) { tessera::check_finite(exec, "row", row); }
#else
void use(tessera::dense_table<tessera::float16>&);
void use(tessera::hash_table<tessera::bfloat16>&);
void use(tessera::dense_table<tessera::scaled_int8>&);
void use(tessera::host_exec const& exec, tessera::vector_view<tessera::float8_e4m3> row) { tessera::check_finite(exec, "row", row); }
#endif
