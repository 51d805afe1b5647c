// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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
///     {"shards": [{"table": 0, "rank": 1, "first_row": 0, "rows": 1000, "first_column": 0, "columns": 64}], "partial": [0]}
inline nlohmann::json plan_json(sharding_plan const& plan) {
  auto shards = nlohmann::json::array();
  for (auto const& s : plan.shards)
    if (s.rank == table_shard::all_ranks)
      shards.push_back({{"table", s.table}, {"kind", "data_parallel"}});
    else
      shards.push_back({{"table", s.table},
                        {"rank", s.rank},
                        {"first_row", s.first_row},
                        {"rows", s.rows},
                        {"first_column", s.first_column},
                        {"columns", s.columns}});
  nlohmann::json json{{"shards", std::move(shards)}};
  if (!plan.partial.empty()) json["partial"] = plan.partial;
  return json;
}

/// The plan of JSON for these whole tables and so many ranks; errors name `file`. What a shard does not say is all of the table:
/// "first_row" and "first_column" are 0, "rows" and "columns" reach to its end. Without "partial" no table returns partial sums. A file may
/// say of how many "ranks" its plan is.
///
/// A table is a number, or one of `names` (tables,), where they are given. In place of a rectangle, "shards" may have a kind, with the ranks
/// that the function of that name takes; of a grid they are lists, one a block of columns:
///
///     {"table": "user", "kind": "row_wise", "ranks": [0, 1, 2, 3]}     also column_wise; table_wise of one rank
///     {"table": "item", "kind": "grid", "ranks": [[0, 1], [2, 3]]}
///     {"table": "hour", "kind": "data_parallel"}                       of all ranks
///
/// A field "found" is left to who knows what a plan was found with (plan/found_plan_file.hpp).
///
/// @post plan_of_json(plan_json(p), tables, ranks, file) == p
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; invalid_argument as `check_plan`, and
/// for a name or a kind that there is not; incompatible for a plan of another number of ranks.
inline sharding_plan plan_of_json(nlohmann::json const& json, vector_view<table_options const> tables, int ranks, std::string const& file,
                                  vector_view<std::string const> names = {});

/// Reads a plan from a JSON file. @throws tessera::error as `read_json` and `plan_of_json`.
inline sharding_plan read_plan(std::string const& path, vector_view<table_options const> tables, int ranks,
                               vector_view<std::string const> names = {}) {
  return plan_of_json(read_json(path), tables, ranks, path, names);
}

/// Writes a plan to a JSON file. @throws tessera::error as `write_json`.
inline void write_plan(std::string const& path, sharding_plan const& plan) { write_json(path, plan_json(plan)); }
/// As above, after `check_plan` with these whole tables and so many ranks. The file says the number of ranks.
/// @throws tessera::error also as `check_plan`, and then writes nothing.
inline void write_plan(std::string const& path, sharding_plan const& plan, vector_view<table_options const> tables, int ranks) {
  check_plan(plan, tables, ranks);
  auto json = plan_json(plan);
  json["ranks"] = ranks;
  write_json(path, json);
}

namespace detail {

// What plan files say of tables and ranks.
class plan_reader {
 public:
  plan_reader(vector_view<table_options const> tables, std::string const& file, vector_view<std::string const> names)
      : tables_(tables), file_(file), names_(names) {}

  std::int64_t table(nlohmann::json const& object, std::string_view field) const {
    if (names_.empty() || !json_field(object, field, file_).is_string()) return json_integer(object, field, file_);
    auto const& name = json_string(object, field, file_);
    auto const found = std::find(names_.begin(), names_.end(), name) - names_.begin();
    if (found == names_.size()) throw error(errc::invalid_argument, "sharding plan: no table has this name", {{"table", name}});
    return found;
  }

  std::vector<table_shard> shards(nlohmann::json const& one) const {
    return one.is_object() && one.contains("kind") ? of_kind(one) : std::vector<table_shard>{rectangle(one)};
  }

 private:
  table_shard rectangle(nlohmann::json const& one) const {
    allow_fields(one, {"table", "rank", "first_row", "rows", "first_column", "columns"}, file_, "shards");
    auto const number = [&](char const* field, std::int64_t otherwise) {
      return one.contains(field) ? json_integer(one, field, file_) : otherwise;
    };
    table_shard shard;
    shard.table = table(one, "table");
    shard.rank = rank(one, "rank");
    shard.first_row = number("first_row", 0);
    shard.first_column = number("first_column", 0);
    shard.rows = number("rows", is_there(shard.table) ? tables_[shard.table].rows - shard.first_row : 1);
    shard.columns = number("columns", is_there(shard.table) ? tables_[shard.table].dim - shard.first_column : 1);
    return shard;
  }

  std::vector<table_shard> of_kind(nlohmann::json const& one) const {
    auto const& kind = json_string(one, "kind", file_);
    if (kind == "data_parallel")
      allow_fields(one, {"table", "kind"}, file_, "shards");
    else
      allow_fields(one, {"table", "kind", "ranks"}, file_, "shards");
    auto const t = table(one, "table");
    if (!is_there(t)) throw error(errc::invalid_argument, "sharding plan: no such table", {{"table", t}, {"tables", tables_.size()}});
    if (kind == "data_parallel") return data_parallel(tables_, t);
    if (kind == "grid") {
      std::vector<std::vector<int>> blocks;
      for (auto const& block : json_array(one, "ranks", file_)) blocks.push_back(ranks({{"ranks", block}}));
      return grid(tables_, t, blocks);
    }
    if (kind == "row_wise") return row_wise(tables_, t, ranks(one));
    if (kind == "column_wise") return column_wise(tables_, t, ranks(one));
    if (kind != "table_wise")
      throw error(errc::invalid_argument, "sharding plan: neither table_wise, row_wise, column_wise, grid nor data_parallel",
                  {{"table", t}, {"kind", kind}});
    auto const one_rank = ranks(one);
    if (one_rank.size() != 1)
      throw error(errc::invalid_argument, "sharding plan: table_wise is of one rank", {{"table", t}, {"ranks", one_rank.size()}});
    return table_wise(tables_, t, one_rank.front());
  }

  bool is_there(std::int64_t table) const noexcept { return table >= 0 && table < tables_.size(); }
  // One that no int holds is none.
  int rank(nlohmann::json const& object, std::string_view field) const {
    auto const value = json_integer(object, field, file_);
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return value < 0 || value > most ? static_cast<int>(most) : static_cast<int>(value);
  }
  std::vector<int> ranks(nlohmann::json const& object) const {
    std::vector<int> all;
    for (auto const& one : json_array(object, "ranks", file_)) all.push_back(rank({{"ranks", one}}, "ranks"));
    return all;
  }

  vector_view<table_options const> tables_;
  std::string const& file_;
  vector_view<std::string const> names_;
};

}  // namespace detail

inline sharding_plan plan_of_json(nlohmann::json const& json, vector_view<table_options const> tables, int ranks, std::string const& file,
                                  vector_view<std::string const> names) {
  return detail::told_of_file(file, [&] {
    detail::allow_fields(json, {"shards", "partial", "ranks", "found"}, file, "plan");
    if (json.contains("ranks") && json_integer(json, "ranks", file) != ranks)
      throw error(errc::incompatible, "sharding plan: of another number of ranks",
                  {{"field", "ranks"}, {"value", json_integer(json, "ranks", file)}, {"ranks", ranks}});
    detail::plan_reader const reader(tables, file, names);
    sharding_plan plan;
    for (auto const& one : json_array(json, "shards", file))
      for (auto const& shard : reader.shards(one)) plan.shards.push_back(shard);
    if (json.contains("partial"))
      for (auto const& one : json_array(json, "partial", file)) plan.partial.push_back(reader.table({{"partial", one}}, "partial"));
    check_plan(plan, tables, ranks);
    return plan;
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
