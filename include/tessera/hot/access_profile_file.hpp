// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/tensor_folder.hpp>
#include <tessera/hot/access_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The version of a profile's folder that is written, and the newest that is read.
inline constexpr std::int64_t access_profile_version = 1;

/// Writes a profile to a folder, which appears whole or not at all. @throws tessera::error io_error.
inline void save_access_profile(std::string const& folder, access_profile const& profile) {
  std::vector<named_values> values;
  auto tables = nlohmann::json::array();
  for (std::size_t t = 0; t < profile.tables.size(); ++t) {
    auto const& table = profile.tables[t];
    auto const number = std::to_string(t);
    tables.push_back({{"id", table.table().id.value},
                      {"rows", table.table().rows},
                      {"hashed", !table.slots_are_ids()},
                      {"accesses", table.accesses()},
                      {"counted", table.size()}});
    if (table.slots_are_ids()) {
      values.emplace_back(number + ".counts", table.counts());
      continue;
    }
    auto const& ids = table.ids();
    tables.back()["max_ids"] = ids.limit();
    tables.back()["unheld"] = ids.unheld();
    values.emplace_back(number + ".ids", ids.values());
    values.emplace_back(number + ".id_counts", ids.counts());
    values.emplace_back(number + ".missed", ids.missed());
  }
  write_tensor_folder(folder, "tessera.access_profile", access_profile_version, values,
                      {{"samples", profile.samples}, {"tables", std::move(tables)}});
}

/// Reads what `save_access_profile` wrote, a profile of these tables.
/// @post the profile is that which was saved
/// @throws tessera::error incompatible for a profile of other tables, and as `tensor_folder`; parse_error, corrupt_file, io_error;
/// invalid_argument for numbers that no profile has.
inline access_profile load_access_profile(host_exec const& exec, std::string const& folder, std::vector<table_spec> const& specs) {
  tensor_folder const in(folder, "tessera.access_profile", access_profile_version);
  auto const& file = in.path();
  access_profile profile;
  profile.samples = json_integer(in.state(), "samples", file);
  auto const& tables = json_array(in.state(), "tables", file);
  auto const refuse = [&](char const* what, std::size_t table) {
    throw error(errc::incompatible, "access_profile: a profile of other tables",
                {{"file", file}, {"table", table}, {"what differs", what}});
  };
  if (tables.size() != specs.size()) refuse("number of tables", tables.size());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const& options = specs[t].table;
    if (json_integer(tables[t], "id", file) != options.id.value) refuse("id", t);
    if (json_boolean(tables[t], "hashed", file) == specs[t].slots_are_ids) refuse("whether ids are rows", t);
    auto const number = std::to_string(t);
    auto const counted = json_integer(tables[t], "counted", file);
    if (specs[t].slots_are_ids) {
      if (counted != options.rows) refuse("rows", t);
      auto const counts = in.read<std::uint32_t>(number + ".counts", counted);
      buffer<std::uint32_t> own(exec, counted);
      std::copy(counts.begin(), counts.end(), own.begin());
      profile.tables.emplace_back(options, std::move(own));
      continue;
    }
    auto const limit = json_integer(tables[t], "max_ids", file);
    auto ids = value_counts::from_parts(
        exec, limit, in.read<std::int64_t>(number + ".ids", counted), in.read<std::int64_t>(number + ".id_counts", counted),
        in.read<std::int64_t>(number + ".missed", limit > 0 ? counted : 0), json_integer(tables[t], "unheld", file));
    profile.tables.emplace_back(options, std::move(ids), json_integer(tables[t], "accesses", file));
  }
  return profile;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
