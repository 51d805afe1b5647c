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

/// A block of a table's columns in a file of a checkpoint.
struct checkpoint_shard {
  std::string file;       // its name in the folder
  std::int64_t part = 0;  // its number in the file
  std::int64_t table = 0, first_column = 0, columns = 0;
  row_state_layout layout;
};

/// The shards of a checkpoint.
struct checkpoint_shards {
  bool of_ranks = false;                    // whether several ranks wrote it; else there are none
  std::vector<std::int64_t> table_columns;  // of each whole table
  std::vector<checkpoint_shard> shards;
};

inline nlohmann::json shard_json(checkpoint_shard const& shard) {
  return {{"file", shard.file},
          {"part", shard.part},
          {"table", shard.table},
          {"first_column", shard.first_column},
          {"columns", shard.columns},
          {"state_per_row", shard.layout.per_row},
          {"state_per_element", shard.layout.per_element}};
}

// A shard of JSON for so many tables.
inline checkpoint_shard shard_of_json(nlohmann::json const& json, std::size_t tables, std::string const& file) {
  constexpr std::int64_t most_columns = std::numeric_limits<std::int32_t>::max(), most_states = 1024;
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
  return shard;
}

// Refuses shards that do not cover each table once.
inline void check_shards(checkpoint_shards const& all, std::string const& file, errc code) {
  std::vector<checkpoint_shard const*> order;
  for (auto const& shard : all.shards) order.push_back(&shard);
  std::sort(order.begin(), order.end(),
            [](auto const* a, auto const* b) { return std::pair(a->table, a->first_column) < std::pair(b->table, b->first_column); });
  auto const refuse = [&](char const* what, std::size_t table, std::int64_t column, std::string const& section) {
    std::vector<error_value> values{{"file", file}, {"table", table}, {"column", column}};
    if (!section.empty()) values.emplace_back("section", section);
    throw error(code, std::string("checkpoint: shards of a table ") + what, std::move(values));
  };
  auto shard = order.begin();
  for (std::size_t t = 0; t < all.table_columns.size(); ++t) {
    std::int64_t next = 0;
    for (auto const first = shard; shard != order.end() && (*shard)->table == static_cast<std::int64_t>(t); ++shard) {
      auto const& here = **shard;
      if (here.first_column > next) refuse("leave a gap", t, next, {});
      if (here.first_column < next || here.columns < 1) refuse("overlap", t, here.first_column, here.file);
      if (here.layout.per_row != (*first)->layout.per_row || here.layout.per_element != (*first)->layout.per_element)
        refuse("differ in their states", t, here.first_column, here.file);
      next += here.columns;
    }
    if (next < all.table_columns[t]) refuse("leave a gap", t, next, {});
    if (next > all.table_columns[t]) refuse("reach past it", t, all.table_columns[t], {});
  }
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
    return {file, shard.part, shard.first_column, shard.columns};
  }
  // The columns [first, first + columns) of a table.
  stored_table table(checkpoint_shards const& all, std::int64_t table, std::int64_t first, std::int64_t columns, row_state_layout layout) {
    std::vector<stored_block> blocks;
    for (auto const& shard : all.shards)
      if (shard.table == table && shard.first_column < first + columns && first < shard.first_column + shard.columns)
        blocks.push_back(block(shard));
    return {table, std::move(blocks), first, columns, layout};
  }

 private:
  std::string folder_;
  std::map<std::string, std::shared_ptr<safetensors_reader const>> files_;
};

// What a checkpoint holds for each of these parts.
inline std::vector<stored_table> stored_parts(std::string const& folder, manifest const& content, table_places const& places,
                                              table_parts const& parts) {
  auto const file = folder + "/manifest.json";
  auto all = shards_of(content, file);
  shard_files files(folder);
  if (!all.of_ranks) {  // one process had all tables
    for (auto const& table : places.tables) {
      auto const number = static_cast<std::int64_t>(all.shards.size());
      all.table_columns.push_back(table.dim);
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
  std::vector<stored_table> stored;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    auto const& place = places.parts[p];
    stored.push_back(files.table(all, place.table, place.first_column, place.columns, parts[p]->state_layout()));
  }
  return stored;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
