// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/shard/table_spec.hpp>

#include "any_job.hpp"

namespace examples {

/// A feature's table as the settings have it, the `number`-th. `dim`: elements of a row; `rows`: of a dense table. In train_ctr/tables.cpp,
/// the only place that knows stores, formats and optimizers by their types. Making its parts throws a tessera::error that names the options
/// of its size where there is no memory for it.
tessera::table_spec spec_of_table(settings const& s, std::int64_t number, std::string const& feature, std::int64_t dim, std::int64_t rows);

/// The same of a dense table, whatever the settings say: for copies of rows.
tessera::table_spec dense_spec_of_table(settings const& s, std::int64_t number, std::string const& feature, std::int64_t dim,
                                        std::int64_t rows);

/// @throws tessera::error where --tables speaks of a feature that is not among these.
void check_own_tables(settings const& s, std::vector<std::string> const& features);

}  // namespace examples
