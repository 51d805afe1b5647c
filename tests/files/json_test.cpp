// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <tessera/files/json.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;

TEST_CASE("read_json gives back what write_json wrote") {
  temporary_folder const folder;
  auto const path = folder.file("value.json");
  nlohmann::json const value{{"integer", -7},
                             {"big", 18446744073709551615ULL},
                             {"fraction", 0.1},
                             {"text", "quote \" and \u00e9"},
                             {"list", {1, 2.5, "x"}},
                             {"nothing", nullptr},
                             {"yes", true}};
  tessera::write_json(path, value);
  CHECK(tessera::read_json(path) == value);
  CHECK(tessera_tests::contents(path).back() == '\n');
}

TEST_CASE("parse_json refuses what is no JSON, with file and reason") {
  for (std::string const text : {"", "{", "{\"a\":}", "[1,]", "nul", "{\"a\":1} x", "\"\xff\"", "1e999", "\x01"}) {
    CAPTURE(text);
    auto const e = error_of([&] { tessera::parse_json(text, "some.json"); });
    CHECK(e.code() == errc::parse_error);
    CHECK(e.value("file") == "some.json");
    CHECK(!e.value("reason").empty());
  }
  auto const twice = error_of([] { tessera::parse_json(R"({"a":{"b":1,"c":2,"b":3}})", "f"); });
  CHECK(twice.code() == errc::parse_error);
  CHECK(twice.value("field") == "b");
  CHECK(tessera::parse_json(R"([{"b":1},{"b":{"b":1}}])", "f").size() == 2);  // the same name in other objects
}

TEST_CASE("parse_json bounds the nesting") {
  auto const nested = [](int depth, char open, char close) {
    return std::string(static_cast<std::size_t>(depth), open) + std::string(static_cast<std::size_t>(depth), close);
  };
  CHECK_NOTHROW(tessera::parse_json(nested(64, '[', ']'), "f"));
  CHECK(error_of([&] { tessera::parse_json(nested(65, '[', ']'), "f"); }).code() == errc::parse_error);
  CHECK(error_of([&] { tessera::parse_json(std::string(10'000'000, '['), "f"); }).code() == errc::parse_error);
}

TEST_CASE("print_json refuses text that is not UTF-8") {
  CHECK(error_of([] { tessera::print_json("\xff", "f"); }).code() == errc::invalid_argument);
  auto const e = error_of([] { tessera::print_json({{"a", 1}, {"b", {"good", {{"c", "\xff"}}}}}, "f"); });
  CHECK(e.value("file") == "f");
  CHECK(e.value("field") == "b/1/c");
  CHECK(e.value("reason") == "invalid UTF-8 byte at index 0: 0xFF");
}

TEST_CASE("fields of JSON are taken by name and exact type") {
  auto const json =
      tessera::parse_json(R"({"i":-3,"u":9223372036854775807,"big":9223372036854775808,"d":1.0,"s":"x","b":true,"a":[1],"o":{}})", "f");
  CHECK(tessera::json_integer(json, "i", "f") == -3);
  CHECK(tessera::json_integer(json, "u", "f") == 9223372036854775807);
  CHECK(tessera::json_count(tessera::parse_json(R"({"n":4611686018427387904})", "f"), "n", "f") == std::int64_t{1} << 62);
  CHECK(tessera::json_number(json, "i", "f") == -3.0);
  CHECK(tessera::json_number(json, "d", "f") == 1.0);
  CHECK(tessera::json_boolean(json, "b", "f"));
  CHECK(tessera::json_string(json, "s", "f") == "x");
  CHECK(tessera::json_array(json, "a", "f").size() == 1);
  CHECK(tessera::json_object(json, "o", "f").empty());

  auto const refused = [](auto const& call, char const* field) {
    auto const e = error_of(call);
    CHECK(e.code() == errc::parse_error);
    CHECK(e.value("file") == "f");
    CHECK(e.value("field") == field);
    return std::string(e.value("expected"));
  };
  for (char const* const field : {"big", "d", "s", "b", "a", "o"})
    CHECK(refused([&] { tessera::json_integer(json, field, "f"); }, field) == "integer");
  for (char const* const field : {"s", "b", "a", "o"}) CHECK(refused([&] { tessera::json_number(json, field, "f"); }, field) == "number");
  CHECK(refused([&] { tessera::json_boolean(json, "i", "f"); }, "i") == "boolean");
  CHECK(refused([&] { tessera::json_string(json, "i", "f"); }, "i") == "string");
  CHECK(refused([&] { tessera::json_array(json, "o", "f"); }, "o") == "array");
  CHECK(refused([&] { tessera::json_object(json, "a", "f"); }, "a") == "object");
  CHECK(refused([&] { tessera::json_integer(json, "missing", "f"); }, "missing").empty());
  CHECK(refused([&] { tessera::json_count(json, "d", "f"); }, "d") == "integer");
  for (char const* const field : {"i", "u"}) CHECK(refused([&] { tessera::json_count(json, field, "f"); }, field).empty());
  CHECK(refused([&] { tessera::json_field(json["a"], "missing", "f"); }, "missing").empty());
}
