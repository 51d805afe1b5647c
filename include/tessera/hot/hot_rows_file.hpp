// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/tensor_folder.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/shard/table_spec.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The version of a folder of hot rows that is written, and the newest that is read.
inline constexpr std::int64_t hot_rows_version = 1;

/// Writes hot rows to a folder, which appears whole or not at all: the ids of each table that is not hot as a whole.
/// @throws tessera::error io_error.
inline void save_hot_rows(std::string const& folder, hot_rows const& hot) {
  std::vector<named_values> values;
  auto tables = nlohmann::json::array();
  for (std::size_t t = 0; t < hot.tables.size(); ++t) {
    auto const& table = hot.tables[t];
    tables.push_back({{"id", table.table().id.value},
                      {"rows", table.table().rows},
                      {"hashed", !table.slots_are_ids()},
                      {"whole", table.is_whole()},
                      {"hot", table.size()}});
    if (!table.is_whole()) values.emplace_back(std::to_string(t) + ".ids", table.ids());
  }
  nlohmann::json state{{"tables", std::move(tables)}};
  if (std::isfinite(hot.percent)) state["percent"] = hot.percent;
  write_tensor_folder(folder, "tessera.hot_rows", hot_rows_version, values, std::move(state));
}

/// Reads what `save_hot_rows` wrote, for these tables. @post the rows and numbers are those that were saved
/// @throws tessera::error incompatible for hot rows of other tables, and as `tensor_folder`; parse_error, corrupt_file, io_error;
/// and as `table_hot_rows::some_of`.
inline hot_rows load_hot_rows(host_exec const& exec, std::string const& folder, std::vector<table_spec> const& specs) {
  tensor_folder const in(folder, "tessera.hot_rows", hot_rows_version);
  auto const& file = in.path();
  hot_rows hot;
  hot.percent = in.state().contains("percent") ? json_number(in.state(), "percent", file) : std::numeric_limits<double>::infinity();
  auto const& tables = json_array(in.state(), "tables", file);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    table_options table = t < specs.size() ? specs[t].table : table_options{};
    table.id = table_id{json_integer(tables[t], "id", file)};
    table.rows = json_integer(tables[t], "rows", file);
    bool const is_hashed = json_boolean(tables[t], "hashed", file);
    if (json_boolean(tables[t], "whole", file)) {
      if (is_hashed) throw error(errc::parse_error, "hot_rows: no hashed table is hot as a whole", {{"file", file}, {"table", t}});
      hot.tables.push_back(table_hot_rows::all_of(table));
      continue;
    }
    auto ids = in.read<std::int64_t>(std::to_string(t) + ".ids", json_integer(tables[t], "hot", file));
    hot.tables.push_back(table_hot_rows::some_of(exec, table, !is_hashed, std::move(ids)));
  }
  hot.check_tables("load_hot_rows", specs);
  return hot;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
