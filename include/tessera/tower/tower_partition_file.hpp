// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/tower/tower_partition.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The version of partition files that is written, and the only one that is read.
inline constexpr std::int64_t tower_partition_version = 1;

/// A partition as JSON. `names` (features,) are the features' names, here and below:
///
///     {"version": 1, "towers": [["user", "age"], ["item"]]}
///
/// @throws tessera::error as `check_towers`; invalid_argument for two features of one name, here and below.
inline nlohmann::json towers_json(tower_partition const& partition, vector_view<std::string const> names);

/// The partition of JSON; errors name `file`. Features have the order of `names`, which may differ from that at the time of writing.
/// @post towers_of_json(towers_json(p, names), names, file) == p
/// @throws tessera::error as `check_towers`; parse_error naming the field that is missing, unknown or of the wrong type; incompatible for
/// another version. invalid_argument, naming the field and the feature's name, for a feature that there is not, is there twice, or in no tower.
inline tower_partition towers_of_json(nlohmann::json const& json, vector_view<std::string const> names, std::string const& file);

/// Reads a partition from a JSON file. @throws tessera::error as `read_json` and `towers_of_json`.
inline tower_partition read_towers(std::string const& path, vector_view<std::string const> names) {
  return towers_of_json(read_json(path), names, path);
}

/// Writes a partition to a JSON file. @throws tessera::error as `towers_json` and `write_json`.
inline void write_towers(std::string const& path, tower_partition const& partition, vector_view<std::string const> names) {
  write_json(path, towers_json(partition, names));
}

namespace detail {

inline std::map<std::string, std::int64_t> numbers_of_features(vector_view<std::string const> names) {
  std::map<std::string, std::int64_t> numbers;
  for (std::int64_t f = 0; f < names.size(); ++f)
    if (auto const added = numbers.emplace(names[f], f); !added.second)
      throw error(errc::invalid_argument, "tower partition: two features have one name",
                  {{"name", names[f]}, {"feature", added.first->second}, {"other feature", f}});
  return numbers;
}

}  // namespace detail

inline nlohmann::json towers_json(tower_partition const& partition, vector_view<std::string const> names) {
  check_towers(partition, names.size());
  detail::numbers_of_features(names);
  auto towers = nlohmann::json::array();
  for (auto const& tower : partition.towers) {
    auto of_tower = nlohmann::json::array();
    for (auto const feature : tower) of_tower.push_back(names[feature]);
    towers.push_back(std::move(of_tower));
  }
  return {{"version", tower_partition_version}, {"towers", std::move(towers)}};
}

inline tower_partition towers_of_json(nlohmann::json const& json, vector_view<std::string const> names, std::string const& file) {
  return detail::told_of_file(file, [&] {
    detail::allow_fields(json, {"version", "towers"}, file, "tower partition");
    if (auto const version = json_integer(json, "version", file); version != tower_partition_version)
      throw error(errc::incompatible, "tower partition: another version",
                  {{"field", "version"}, {"version", version}, {"expected", tower_partition_version}});
    auto const numbers = detail::numbers_of_features(names);
    std::vector<std::int64_t> first_tower(static_cast<std::size_t>(names.size()), -1);
    tower_partition partition;
    for (auto const& one : json_array(json, "towers", file)) {
      auto const number = static_cast<std::int64_t>(partition.towers.size());
      auto& tower = partition.towers.emplace_back();
      if (!one.is_array()) detail::throw_json_type(one, "towers", file, "array");
      for (auto const& feature : one) {
        if (!feature.is_string()) detail::throw_json_type(feature, "towers", file, "string");
        auto const& name = feature.get_ref<std::string const&>();
        auto const found = numbers.find(name);
        if (found == numbers.end())
          throw error(errc::invalid_argument, "tower partition: no feature has this name",
                      {{"field", "towers"}, {"tower", number}, {"feature", name}});
        auto& first = first_tower[static_cast<std::size_t>(found->second)];
        if (first >= 0)
          throw error(errc::invalid_argument, "tower partition: a feature is there twice",
                      {{"field", "towers"}, {"tower", number}, {"first tower", first}, {"feature", name}});
        first = number;
        tower.push_back(found->second);
      }
    }
    for (std::int64_t f = 0; f < names.size(); ++f)
      if (first_tower[static_cast<std::size_t>(f)] < 0)
        throw error(errc::invalid_argument, "tower partition: a feature is in no tower", {{"field", "towers"}, {"feature", names[f]}});
    check_towers(partition, names.size());
    return partition;
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
