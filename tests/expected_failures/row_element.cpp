// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

// CASE == 1 says: row_element
#if CASE == 1
void use(tessera::dense_table<double>&);
void use(tessera::hash_table<int>&);
#else
void use(tessera::dense_table<tessera::float16>&);
void use(tessera::hash_table<tessera::bfloat16>&);
#endif
