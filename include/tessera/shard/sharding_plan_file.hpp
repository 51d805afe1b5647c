// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/json.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A plan as JSON, shard by shard:
///
///     {"shards": [{"table": 0, "rank": 1, "first_row": 0, "rows": 1000, "first_column": 0, "columns": 64}]}
inline nlohmann::json plan_json(sharding_plan const& plan) {
  auto shards = nlohmann::json::array();
  for (auto const& s : plan.shards)
    shards.push_back({{"table", s.table},
                      {"rank", s.rank},
                      {"first_row", s.first_row},
                      {"rows", s.rows},
                      {"first_column", s.first_column},
                      {"columns", s.columns}});
  return {{"shards", std::move(shards)}};
}

/// The plan of JSON for these whole tables and so many ranks; errors name `file`. What a shard does not say is all of the table: "first_row" and
/// "first_column" are 0, "rows" and "columns" reach to its end. @post plan_of_json(plan_json(p), tables, ranks, file) == p
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; invalid_argument as `check_plan`.
inline sharding_plan plan_of_json(nlohmann::json const& json, vector_view<table_options const> tables, int ranks, std::string const& file) {
  return detail::told_of_file(file, [&] {
    detail::allow_fields(json, {"shards"}, file, "plan");
    sharding_plan plan;
    for (auto const& one : json_array(json, "shards", file)) {
      detail::allow_fields(one, {"table", "rank", "first_row", "rows", "first_column", "columns"}, file, "shards");
      auto const number = [&](char const* field, std::int64_t otherwise) {
        return one.contains(field) ? json_integer(one, field, file) : otherwise;
      };
      table_shard shard;
      shard.table = json_integer(one, "table", file);
      auto const rank = json_integer(one, "rank", file);
      // One that no int holds is none.
      shard.rank = rank < 0 || rank > std::numeric_limits<int>::max() ? -1 : static_cast<int>(rank);
      shard.first_row = number("first_row", 0);
      shard.first_column = number("first_column", 0);
      bool const is_there = shard.table >= 0 && shard.table < tables.size();
      shard.rows = number("rows", is_there ? tables[shard.table].rows - shard.first_row : 1);
      shard.columns = number("columns", is_there ? tables[shard.table].dim - shard.first_column : 1);
      plan.shards.push_back(shard);
    }
    check_plan(plan, tables, ranks);
    return plan;
  });
}

/// Reads a plan from a JSON file. @throws tessera::error as `read_json` and `plan_of_json`.
inline sharding_plan read_plan(std::string const& path, vector_view<table_options const> tables, int ranks) {
  return plan_of_json(read_json(path), tables, ranks, path);
}

/// Writes a plan to a JSON file. @throws tessera::error as `write_json`.
inline void write_plan(std::string const& path, sharding_plan const& plan) { write_json(path, plan_json(plan)); }

}  // namespace TESSERA_ABI
}  // namespace tessera
