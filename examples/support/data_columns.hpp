// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/columns_file.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>

#include "settings.hpp"

namespace examples {

/// The columns of the files and how text files are laid out: as --columns says, or as options name them, or those of Criteo's layout.
/// Without either, its error says which columns `file` has. `file`: one of the data set. @throws tessera::error naming the option.
tessera::data_description describe_columns(settings const& s, std::string const& file);

/// Opens files with these columns. Where `reads_while_opening`, `visit` sees all samples in order.
tessera::any_sample_source open_files(tessera::host_exec const& exec, std::vector<std::string> const& files,
                                      tessera::data_description const& data,
                                      std::function<void(tessera::sample_columns_view)> const& visit = {});

/// Likewise, but labels may be any numbers: what is neither 0 nor 1 is to be looked at, or kept.
tessera::any_sample_source open_any_files(tessera::host_exec const& exec, std::vector<std::string> const& files,
                                          tessera::data_description const& data,
                                          std::function<void(tessera::sample_columns_view)> const& visit = {});

/// Whether all samples are read and checked when the files are opened: of text files, without derived columns.
bool reads_while_opening(std::vector<std::string> const& files, tessera::data_description const& data);

/// A source of Parquet files. In train_ctr/parquet.cpp. @throws tessera::error naming what to install where that was built without Arrow.
tessera::any_sample_source open_parquet(std::vector<std::string> const& files, tessera::sample_schema const& schema);
/// The columns of a Parquet file by what they may be: "lists", "integers", "texts", "other numbers", "of no use"; names with commas between.
std::vector<tessera::error_value> parquet_columns(std::string const& path);

}  // namespace examples
