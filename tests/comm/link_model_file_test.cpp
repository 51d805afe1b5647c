// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>

#include <tessera/comm/link_model_file.hpp>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace link_model_file_test {

namespace {

tessera::error link_text_error(std::string const& text) {
  try {
    tessera::parse_link_model(text, "links.json");
  } catch (tessera::error const& e) {
    CHECK(e.value("file") == "links.json");
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

}  // namespace

TEST_CASE("link_model_file: written and read again, to the last bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(0, 1e-5);
  tessera_tests::temporary_folder const folder;
  auto const path = folder.file("links.json");
  for (int round = 0; round < 20; ++round) {
    tessera::link_model model;
    for (int i = 0; i < round % 4; ++i) model.links.push_back({"level" + std::to_string(i), draw(random), draw(random), draw(random)});
    tessera::write_link_model(path, model);
    CHECK(tessera::read_link_model(path) == model);
  }
  CHECK_THROWS_AS(tessera::write_link_model(path, {{{"host", -1, 0}}}), tessera::error);
}

TEST_CASE("link_model_file: by hand, and what it refuses") {
  auto const model =
      tessera::parse_link_model(R"({"links": [{"level": "host", "seconds_per_message": 2e-6, "seconds_per_byte": 0}]})", "links.json");
  CHECK(model == tessera::link_model{{{"host", 2e-6, 0, 0}}});

  using tessera::errc;
  CHECK(link_text_error("[]").value("field") == "link model");
  CHECK(link_text_error("{}").value("field") == "links");
  CHECK(link_text_error(R"({"links": [1]})").value("field") == "links");
  CHECK(link_text_error(R"({"links": [], "unit": "us"})").value("field") == "unit");
  CHECK(link_text_error(R"({"links": [{"level": "host", "seconds_per_message": 1}]})").value("field") == "seconds_per_byte");
  CHECK(link_text_error(R"({"links": [{"level": "host", "seconds_per_message": "1", "seconds_per_byte": 0}]})").code() ==
        errc::parse_error);
  CHECK(link_text_error(R"({"links": [{"level": "host", "seconds_per_message": 1, "seconds_per_byte": 0, "alpha": 0}]})").value("field") ==
        "alpha");
  auto const negative = link_text_error(R"({"links": [{"level": "host", "seconds_per_message": 1, "seconds_per_byte": -1}]})");
  CHECK(negative.code() == errc::invalid_argument);
  CHECK(negative.value("cost") == "-1");
}

}  // namespace link_model_file_test
