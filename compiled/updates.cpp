// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Sums of gradients by rows, and updates of rows.
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/row_update.hpp>

namespace tessera::detail {
TESSERA_INSTANCES_OF_ROW_SORT(template)
TESSERA_INSTANCES_OF_ROW_SUMS(template)
TESSERA_FOR_ROW_ELEMENTS(TESSERA_INSTANCES_OF_UPDATES, template)
}  // namespace tessera::detail
