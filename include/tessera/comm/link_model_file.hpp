// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tessera/comm/link_model.hpp>
#include <tessera/comm/topology_file.hpp>
#include <tessera/files/json.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A link model as JSON, from the innermost level:
///
///     {"links": [{"level": "host", "seconds_per_message": 2e-06, "seconds_per_byte": 1e-10, "relative_error": 0.05}]}
inline nlohmann::json link_model_json(link_model const& model) {
  auto links = nlohmann::json::array();
  for (auto const& link : model.links)
    links.push_back({{"level", link.level},
                     {"seconds_per_message", link.seconds_per_message},
                     {"seconds_per_byte", link.seconds_per_byte},
                     {"relative_error", link.relative_error}});
  return {{"links", std::move(links)}};
}

/// The link model of JSON as `link_model_json` gives it; errors name `file`. A "relative_error" that is not there is 0.
/// @post link_model_of_json(link_model_json(m), file) == m for a model that `check_link_model` lets pass
/// @throws tessera::error parse_error naming the field that is missing, unknown or of the wrong type; invalid_argument as
/// `check_link_model`.
inline link_model link_model_of_json(nlohmann::json const& json, std::string const& file) {
  return detail::told_of_file(file, [&] {
    detail::allow_fields(json, {"links"}, file, "link model");
    link_model model;
    for (auto const& link : json_array(json, "links", file)) {
      detail::allow_fields(link, {"level", "seconds_per_message", "seconds_per_byte", "relative_error"}, file, "links");
      model.links.push_back({json_string(link, "level", file), json_number(link, "seconds_per_message", file),
                             json_number(link, "seconds_per_byte", file),
                             link.contains("relative_error") ? json_number(link, "relative_error", file) : 0});
    }
    check_link_model(model);
    return model;
  });
}

/// The link model of JSON text. @throws tessera::error as `parse_json` and `link_model_of_json`.
inline link_model parse_link_model(std::string_view text, std::string const& file) {
  return link_model_of_json(parse_json(text, file), file);
}

/// Reads a link model from a JSON file. @throws tessera::error as `read_json` and `link_model_of_json`.
inline link_model read_link_model(std::string const& path) { return link_model_of_json(read_json(path), path); }

/// Writes a link model to a JSON file. @post read_link_model(path) == model @throws tessera::error as `check_link_model` and `write_json`.
inline void write_link_model(std::string const& path, link_model const& model) {
  check_link_model(model);
  write_json(path, link_model_json(model));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
