// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline topology_level topology_level_of(nlohmann::json const& json, std::string const& file) {
  allow_fields(json, {"name", "domains"}, file, "levels");
  topology_level level{json_string(json, "name", file), {}};
  for (auto const& domain : json_array(json, "domains", file)) {
    if (!domain.is_array()) throw_json_type(domain, "domains", file, "array of ranks");
    auto& ranks = level.domains.emplace_back();
    for (auto const& rank : domain) {
      auto const fits = !rank.is_number_unsigned() || rank.get<std::uint64_t>() < std::uint64_t{1} << 63;
      if (!rank.is_number_integer() || !fits) throw_json_type(rank, "domains", file, "array of ranks");
      ranks.push_back(rank.get<std::int64_t>());
    }
  }
  return level;
}

}  // namespace detail

/// A topology as JSON, levels from the innermost, each with the ranks of its domains:
///
///     {"ranks": 4, "levels": [{"name": "host", "domains": [[0, 1], [2, 3]]}, {"name": "rack", "domains": [[0, 1, 2, 3]]}]}
inline nlohmann::json topology_json(topology const& topology) {
  auto levels = nlohmann::json::array();
  for (auto const& level : topology.description()) levels.push_back({{"name", level.name}, {"domains", level.domains}});
  return {{"ranks", topology.ranks()}, {"levels", std::move(levels)}};
}

/// The topology of JSON as `topology_json` gives it; errors name `file`. @post topology_of_json(topology_json(t), file) == t
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; invalid_argument as the constructor.
inline topology topology_of_json(nlohmann::json const& json, std::string const& file) {
  return detail::told_of_file(file, [&] {
    detail::allow_fields(json, {"ranks", "levels"}, file, "topology");
    std::vector<topology_level> levels;
    for (auto const& level : json_array(json, "levels", file)) levels.push_back(detail::topology_level_of(level, file));
    return topology(json_integer(json, "ranks", file), std::move(levels));
  });
}

/// The topology of JSON text. @throws tessera::error as `parse_json` and `topology_of_json`.
inline topology parse_topology(std::string_view text, std::string const& file) { return topology_of_json(parse_json(text, file), file); }

/// Reads a topology from a JSON file. @throws tessera::error as `read_json` and `topology_of_json`.
inline topology read_topology(std::string const& path) { return topology_of_json(read_json(path), path); }

/// Writes a topology to a JSON file. @post read_topology(path) == topology @throws tessera::error as `write_json`.
inline void write_topology(std::string const& path, topology const& topology) { write_json(path, topology_json(topology)); }

}  // namespace TESSERA_ABI
}  // namespace tessera
