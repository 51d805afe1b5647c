// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Profiles as JSON: a list of tables, with the names that the authors of NeuroShard gave the fields:
///
///     [{"name": "user", "row": 1000000, "dim": 64, "pooling_factor": 3.5, "bin_0": 0.9, …, "bin_16": 0, "bags": 65536,
///       "distinct_bags": 65536, "group": -1, "tower": -1, "row_format": "float", "optimizer": "sgd", "hashed": false}]
inline nlohmann::json table_profiles_json(vector_view<table_profile const> tables);

/// The profiles of JSON; errors name `file`. `row`, `dim`, `pooling_factor` and `bin_0` … `bin_16` are needed; a table without a name gets
/// its number; `distinct_bags` is `bags` where it is missing. Defaults of others are those of `table_profile`.
/// @post table_profiles_of_json(table_profiles_json(t), file) == t
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; and as `check_table_profiles`.
inline std::vector<table_profile> table_profiles_of_json(nlohmann::json const& json, std::string const& file);

/// Reads profiles from a JSON file. @throws tessera::error as `read_json` and `table_profiles_of_json`.
inline std::vector<table_profile> read_table_profiles(std::string const& path) { return table_profiles_of_json(read_json(path), path); }

/// Writes profiles to a JSON file. @throws tessera::error as `check_table_profiles` and `write_json`.
inline void write_table_profiles(std::string const& path, vector_view<table_profile const> tables) {
  check_table_profiles(tables);
  write_json(path, table_profiles_json(tables));
}

namespace detail {

inline table_profile table_profile_of_json(nlohmann::json const& json, std::int64_t number, std::string const& file) {
  allow_fields(json,
               {"name",   "row",   "dim",           "pooling_factor", "bin_0",  "bin_1",      "bin_2",     "bin_3",  "bin_4",  "bin_5",
                "bin_6",  "bin_7", "bin_8",         "bin_9",          "bin_10", "bin_11",     "bin_12",    "bin_13", "bin_14", "bin_15",
                "bin_16", "bags",  "distinct_bags", "group",          "tower",  "row_format", "optimizer", "hashed"},
               file, "table");
  table_profile profile;
  profile.name = json.contains("name") ? json_string(json, "name", file) : std::to_string(number);
  profile.rows = json_integer(json, "row", file);
  profile.dim = json_integer(json, "dim", file);
  profile.pooling_factor = json_number(json, "pooling_factor", file);
  for (std::int64_t bin = 0; bin < table_profile::bins; ++bin)
    profile.access[static_cast<std::size_t>(bin)] = json_number(json, access_field(bin), file);
  if (json.contains("bags")) profile.bags = json_number(json, "bags", file);
  profile.distinct_bags = json.contains("distinct_bags") ? json_number(json, "distinct_bags", file) : profile.bags;
  if (json.contains("group")) profile.group = json_integer(json, "group", file);
  if (json.contains("tower")) profile.tower = json_integer(json, "tower", file);
  if (json.contains("row_format")) profile.row_format = json_string(json, "row_format", file);
  if (json.contains("optimizer")) profile.optimizer = json_string(json, "optimizer", file);
  if (json.contains("hashed")) profile.hashed = json_boolean(json, "hashed", file);
  return profile;
}

}  // namespace detail

inline nlohmann::json table_profiles_json(vector_view<table_profile const> tables) {
  auto list = nlohmann::json::array();
  for (auto const& table : tables) {
    nlohmann::json one{{"name", table.name},
                       {"row", table.rows},
                       {"dim", table.dim},
                       {"pooling_factor", table.pooling_factor},
                       {"bags", table.bags},
                       {"distinct_bags", table.distinct_bags},
                       {"group", table.group},
                       {"tower", table.tower},
                       {"row_format", table.row_format},
                       {"optimizer", table.optimizer},
                       {"hashed", table.hashed}};
    for (std::int64_t bin = 0; bin < table_profile::bins; ++bin)
      one[detail::access_field(bin)] = table.access[static_cast<std::size_t>(bin)];
    list.push_back(std::move(one));
  }
  return list;
}

inline std::vector<table_profile> table_profiles_of_json(nlohmann::json const& json, std::string const& file) {
  return detail::told_of_file(file, [&] {
    if (!json.is_array()) detail::throw_json_type(json, "tables", file, "array");
    std::vector<table_profile> tables;
    tables.reserve(json.size());
    for (auto const& one : json) tables.push_back(detail::table_profile_of_json(one, static_cast<std::int64_t>(tables.size()), file));
    check_table_profiles(tables);
    return tables;
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
