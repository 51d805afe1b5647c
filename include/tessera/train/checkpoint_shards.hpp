// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/row_bands.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

/// Which block of which table lies in which file of a checkpoint of several ranks, as its manifest says.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// A block of a table in a file of a checkpoint, as `part_place` says.
struct checkpoint_shard {
  std::string file;       // its name in the folder
  std::int64_t part = 0;  // its number in the file
  std::int64_t table = 0, first_column = 0, columns = 0;
  row_state_layout layout;
  std::int64_t first_row = 0, rows = part_place::all_rows;
};

/// The shards of a checkpoint.
struct checkpoint_shards {
  bool of_ranks = false;                    // whether several ranks wrote it; else there are none
  std::vector<std::int64_t> table_columns;  // of each whole table
  std::vector<std::int64_t> table_rows;     // of each whole table that is cut by rows, else all_rows
  std::vector<checkpoint_shard> shards;
};

inline nlohmann::json shard_json(checkpoint_shard const& shard) {
  nlohmann::json json{{"file", shard.file},
                      {"part", shard.part},
                      {"table", shard.table},
                      {"first_column", shard.first_column},
                      {"columns", shard.columns},
                      {"state_per_row", shard.layout.per_row},
                      {"state_per_element", shard.layout.per_element}};
  if (shard.rows == part_place::all_rows) return json;
  json["first_row"] = shard.first_row;
  json["rows"] = shard.rows;
  return json;
}

// A shard of JSON for so many tables.
inline checkpoint_shard shard_of_json(nlohmann::json const& json, std::size_t tables, std::string const& file) {
  constexpr std::int64_t most_columns = std::numeric_limits<std::int32_t>::max(), most_states = 1024, most_rows = std::int64_t{1} << 61;
  auto const number = [&](char const* field, std::int64_t most) {
    auto const value = json_count(json, field, file);
    if (value > most)
      throw error(errc::parse_error, "JSON field is out of range", {{"file", file}, {"field", field}, {"found", value}, {"most", most}});
    return value;
  };
  checkpoint_shard shard;
  shard.file = json_string(json, "file", file);
  shard.part = json_count(json, "part", file);
  shard.table = number("table", static_cast<std::int64_t>(tables) - 1);
  shard.first_column = number("first_column", most_columns);
  shard.columns = number("columns", most_columns);
  shard.layout.per_row = static_cast<int>(number("state_per_row", most_states));
  shard.layout.per_element = static_cast<int>(number("state_per_element", most_states));
  if (json.contains("first_row") || json.contains("rows")) {
    shard.first_row = number("first_row", most_rows);
    shard.rows = number("rows", most_rows);
  }
  return shard;
}

// Refuses shards that do not cover each table once.
inline void check_shards(checkpoint_shards const& all, std::string const& file, errc code) {
  auto const refuse = [&](char const* what, std::size_t table, std::int64_t row, std::int64_t column, std::string const& section = {}) {
    std::vector<error_value> values{{"file", file}, {"table", table}, {"row", row}, {"column", column}};
    if (!section.empty()) values.emplace_back("section", section);
    throw error(code, std::string("checkpoint: shards of a table ") + what, std::move(values));
  };
  std::vector<std::vector<checkpoint_shard>> of_table(all.table_columns.size());
  for (auto const& shard : all.shards) of_table[static_cast<std::size_t>(shard.table)].push_back(shard);
  for (std::size_t t = 0; t < of_table.size(); ++t) {
    auto const& shards = of_table[t];
    auto const rows = all.table_rows[t], columns = all.table_columns[t];
    if (shards.empty()) refuse("leave a gap", t, 0, 0);
    for (auto const& shard : shards) {
      if (shard.columns < 1 || shard.rows < 1) refuse("are empty", t, shard.first_row, shard.first_column, shard.file);
      if (shard.first_row > rows || shard.rows > rows - shard.first_row) refuse("reach past it", t, rows, shard.first_column, shard.file);
      if (shard.layout.per_row != shards[0].layout.per_row || shard.layout.per_element != shards[0].layout.per_element)
        refuse("differ in their states", t, shard.first_row, shard.first_column, shard.file);
    }
    for (auto const& band : row_bands(shards, 0, rows)) {
      auto const end =
          check_band(band, shards, 0, columns, [&](char const* what, std::int64_t column) { refuse(what, t, band.first_row, column); });
      if (end > columns) refuse("reach past it", t, band.first_row, columns);
    }
  }
}

// The rows of tables that are cut by rows. Shards without rows of their own have all of them.
inline void read_table_rows(manifest const& content, std::string const& file, checkpoint_shards& all) {
  all.table_rows.assign(all.table_columns.size(), part_place::all_rows);
  if (std::all_of(all.shards.begin(), all.shards.end(), [](auto const& shard) { return shard.rows == part_place::all_rows; })) return;
  auto const& rows = json_array(content.state, "table_rows", file);
  if (rows.size() != all.table_rows.size())
    throw error(errc::parse_error, "JSON field has another size",
                {{"file", file}, {"field", "table_rows"}, {"found", rows.size()}, {"expected", all.table_rows.size()}});
  for (std::size_t t = 0; t < rows.size(); ++t)
    if (!rows[t].is_null()) all.table_rows[t] = json_count({{"table_rows", rows[t]}}, "table_rows", file);
  for (auto& shard : all.shards)
    if (shard.rows == part_place::all_rows) shard.rows = all.table_rows[static_cast<std::size_t>(shard.table)];
}

// What a manifest says; `file` is its path.
inline checkpoint_shards shards_of(manifest const& content, std::string const& file, errc code = errc::corrupt_file) {
  checkpoint_shards all;
  if (!content.state.contains("shards")) return all;
  all.of_ranks = true;
  for (auto const& columns : json_array(content.state, "table_columns", file))
    all.table_columns.push_back(json_count({{"table_columns", columns}}, "table_columns", file));
  for (auto const& shard : json_array(content.state, "shards", file))
    all.shards.push_back(shard_of_json(shard, all.table_columns.size(), file));
  read_table_rows(content, file, all);
  check_shards(all, file, code);
  return all;
}

// The files of a checkpoint's folder, each of them opened once.
class shard_files {
 public:
  explicit shard_files(std::string folder) : folder_(std::move(folder)) {}

  stored_block block(checkpoint_shard const& shard) {
    auto& file = files_[shard.file];
    if (file == nullptr) file = std::make_shared<safetensors_reader const>(folder_ + "/" + shard.file);
    return {file, shard.part, shard.first_column, shard.columns, shard.first_row, shard.rows};
  }
  // What a place has of a table, of which `table_rows` are all rows, where ids are rows: one list of rows, or one for each range of a hashed
  // table that was cut by rows. A place of such a range needs that alone.
  std::vector<stored_table> table(checkpoint_shards const& all, part_place const& place, row_state_layout layout,
                                  std::int64_t table_rows = part_place::all_rows) {
    std::map<std::int64_t, std::vector<checkpoint_shard>> ranges;  // by their first rows
    bool is_hashed = false, is_same_cut = false;
    for (auto const& shard : all.shards) {
      if (shard.table != place.table || shard.first_column >= place.first_column + place.columns ||
          place.first_column >= shard.first_column + shard.columns)
        continue;
      is_hashed |= shard.rows != part_place::all_rows && lists_ids(shard);
      is_same_cut |= shard.first_row == place.first_row && shard.rows == place.rows &&
                     all.table_rows[static_cast<std::size_t>(shard.table)] == place.hashed_rows;
      ranges[shard.first_row].push_back(shard);
    }
    std::vector<stored_table> stored;
    if (!is_hashed) {
      std::vector<stored_block> blocks;
      for (auto const& [first, shards] : ranges)
        for (auto const& shard : shards)
          if (place.hashed_rows > 0 || have_common_rows(shard, place)) blocks.push_back(block(shard));
      stored.emplace_back(place, std::move(blocks), layout, table_rows);
      return stored;
    }
    for (auto& [first, shards] : ranges) {
      if (is_same_cut && first != place.first_row) continue;
      std::vector<stored_block> blocks;
      for (auto& shard : shards) {
        shard.first_row = 0;
        shard.rows = part_place::all_rows;
        blocks.push_back(block(shard));
      }
      part_place const all_of_range{place.table, place.first_column, place.columns};
      stored.emplace_back(is_same_cut ? all_of_range : place, std::move(blocks), layout, table_rows);
    }
    return stored;
  }

 private:
  bool lists_ids(checkpoint_shard const& shard) {
    return block(shard).file->find(table_tensor(static_cast<std::size_t>(shard.part), "ids")) != nullptr;
  }
  static bool have_common_rows(checkpoint_shard const& shard, part_place const& place) noexcept {
    auto const first = std::max(shard.first_row, place.first_row);
    return first - shard.first_row < shard.rows && first - place.first_row < place.rows;
  }

  std::string folder_;
  std::map<std::string, std::shared_ptr<safetensors_reader const>> files_;
};

// What a checkpoint holds for each of these parts.
inline std::vector<std::vector<stored_table>> stored_parts(std::string const& folder, manifest const& content, table_places const& places,
                                                           table_parts const& parts) {
  auto const file = folder + "/manifest.json";
  auto all = shards_of(content, file);
  shard_files files(folder);
  if (!all.of_ranks) {  // one process had all tables
    for (auto const& table : places.tables) {
      auto const number = static_cast<std::int64_t>(all.shards.size());
      all.table_columns.push_back(table.dim);
      all.table_rows.push_back(part_place::all_rows);
      all.shards.push_back({"tables.safetensors", number, number, 0, table.dim, {}});
    }
    safetensors_reader const in(folder + "/tables.safetensors");
    if (auto const more = table_tensor(places.tables.size(), "weight"); in.find(more) != nullptr) refuse_table_tensor(in.path(), more);
  }
  for (std::size_t t = 0; t < std::max(places.tables.size(), all.table_columns.size()); ++t) {
    auto const found = t < all.table_columns.size() ? all.table_columns[t] : 0;
    auto const expected = t < places.tables.size() ? places.tables[t].dim : 0;
    if (found != expected)
      throw error(errc::incompatible, "checkpoint: a table of another width",
                  {{"file", file}, {"table", t}, {"columns", found}, {"expected", expected}});
  }
  std::vector<std::vector<stored_table>> stored;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto const& place = places.parts[p];
    auto const t = static_cast<std::size_t>(place.table);
    auto const rows = parts[p]->slots_are_ids() ? places.tables[t].rows : part_place::all_rows;
    if (auto const found = all.table_rows[t]; found != part_place::all_rows && rows != part_place::all_rows && found != rows)
      throw error(errc::incompatible, "checkpoint: a table of another size",
                  {{"file", file}, {"table", t}, {"rows", found}, {"expected", rows}});
    stored.push_back(files.table(all, place, parts[p]->state_layout(), rows));
  }
  return stored;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
