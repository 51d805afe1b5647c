// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/column_profile_file.hpp>

#include <doctest/doctest.h>

#include <tessera/data/column_profile.hpp>
#include <tessera/files/json.hpp>

#include "temporary_folder.hpp"

namespace column_profile_file_tests {

using namespace tessera;

TEST_CASE("column_profile_file: each figure that may be estimated says whether it is") {
  data_profile profile{.rows = 8};
  profile.numbers.push_back({.name = "click", .role = number_role::label, .rows = 8, .missing = 2, .zeros = 3, .ones = 3});
  profile.numbers[0].least = 0;
  profile.numbers[0].quantiles = {{0.5, 1}};
  profile.ids.push_back({.name = "item", .is_single = true, .rows = 8, .lookups = 8, .distinct = {5, true, 0}});
  profile.ids.push_back({.name = "seen", .rows = 8, .lookups = 20, .distinct = {900, false, 0.01}});
  profile.ids[0].top = {{0.1, 0.5, 0}};
  profile.ids[1].top = {{0.1, 0.5, 0.02}};
  profile.ids[1].repeats = session_repeats{0.25, 8, 4, 20, 5};
  profile.sessions = session_profile{"visit", {3, true, 0}, 8.0 / 3, {{0.5, 2}}};
  profile.times = time_profile{"at", -1, 7};

  tessera_tests::temporary_folder const folder;
  write_profile(folder.file("profile.json"), profile);
  auto const json = read_json(folder.file("profile.json"));
  CHECK(json == profile_json(profile));
  CHECK(json["rows"] == 8);
  auto const& label = json["numbers"][0];
  CHECK(label["role"] == "label");
  CHECK(label["missing_share"] == 0.25);
  CHECK(label["one_share"] == 0.5);
  CHECK(label["least"] == 0);
  CHECK(label["mean"].is_null());  // NaN
  CHECK(label["approximate_quantiles"] == nlohmann::json::parse(R"([{"share":0.5,"value":1}])"));
  auto const& item = json["ids"][0];
  CHECK(item["role"] == "id");
  CHECK(item["distinct"] == nlohmann::json::parse(R"({"value":5,"kind":"exact"})"));
  CHECK(item["top"][0] == nlohmann::json::parse(R"({"ids":0.1,"lookups":0.5,"kind":"exact"})"));
  CHECK_FALSE(item.contains("within_sessions"));
  auto const& seen = json["ids"][1];
  CHECK(seen["role"] == "list of ids");
  CHECK(seen["distinct"] == nlohmann::json::parse(R"({"value":900,"kind":"estimated","standard_error":0.01})"));
  CHECK(seen["top"][0]["standard_error"] == 0.02);
  CHECK(seen["within_sessions"]["kind"] == "estimated");
  CHECK(seen["within_sessions"]["row_factor"] == 2);
  CHECK(seen["within_sessions"]["id_factor"] == 4);
  CHECK(json["sessions"]["count"]["kind"] == "exact");
  CHECK(json["times"] == nlohmann::json::parse(R"({"name":"at","least":-1,"largest":7})"));
}

TEST_CASE("column_profile_file: an empty profile, and a name that is no text") {
  auto const json = profile_json({});
  CHECK(json == nlohmann::json::parse(R"({"rows":0,"numbers":[],"ids":[]})"));
  data_profile profile;
  profile.ids.push_back({.name = "\xFF"});
  tessera_tests::temporary_folder const folder;
  CHECK(tessera_tests::error_of([&] { write_profile(folder.file("p.json"), profile); }).code() == errc::invalid_argument);
}

}  // namespace column_profile_file_tests
