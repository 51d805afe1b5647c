// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "any_job.hpp"

namespace examples {

/// Adds a feature's table as the settings have it, and says its number. `dim`: elements of a row; `rows`: of a dense table. In
/// train_ctr/tables.cpp, the only place that knows stores, formats and optimizers by their types.
/// @throws tessera::error naming the options of its size where there is no memory for it.
std::int64_t add_table(any_job const& j, tessera::table_list& tables, std::string const& feature, std::int64_t dim, std::int64_t rows);

/// @throws tessera::error where --tables speaks of a feature that is not among these.
void check_own_tables(settings const& s, std::vector<std::string> const& features);

}  // namespace examples
