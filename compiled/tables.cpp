// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Tables behind the interfaces of lists and checkpoints.
#include <tessera/embed/table_list.hpp>

namespace tessera::detail {
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCES_OF_TABLES, template)
}  // namespace tessera::detail
