// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Reading rows, of all elements and dims.
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/sequence_lookup.hpp>

namespace tessera::detail {
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCE_OF_POOL_BAGS, template)
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCE_OF_READ_VECTORS, template)
}  // namespace tessera::detail
