// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/tessera.hpp>

#include "any_job.hpp"
#include "optimizer_choice.hpp"

namespace examples {

/// Adds a table of rows in the format that --row-format names, with this optimizer; says its number. In train_ctr/tables.cpp, the only place
/// that knows formats and optimizers by their types.
/// @throws tessera::error naming the options of its size where there is no memory for it.
std::int64_t add_table(any_job const& j, tessera::table_list& tables, std::int64_t dim, std::int64_t rows,
                       row_optimizer_choice const& choice);

}  // namespace examples
