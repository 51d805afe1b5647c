// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/core/error.hpp>

using tessera::errc;
using tessera::error;

static_assert(std::is_base_of_v<std::runtime_error, error>);
static_assert(std::is_nothrow_copy_constructible_v<error>);

TEST_CASE("what() reads sentence and values") {
  error const e(errc::out_of_range, "pooled_lookup: id out of range", {{"table", 3}, {"id", 17}, {"rows", 10}});
  CHECK(std::string(e.what()) == "pooled_lookup: id out of range (table 3, id 17, rows 10)");
  CHECK(e.code() == errc::out_of_range);
  CHECK(e.value("table") == "3");
  CHECK(e.value("id") == "17");
  CHECK(e.value("rows") == "10");
  CHECK(e.value("row").empty());
  CHECK(e.values().size() == 3);
  CHECK(e.values()[1].name == "id");
}

TEST_CASE("what() shows control characters of a name, and values() keep them") {
  using namespace std::string_view_literals;
  error const e(errc::io_error, "no such file", {{"path", "a\0b\n\x1b[2J\x7f \\ \xc3\xa4"sv}, {"field\t", 3}});
  CHECK(std::string(e.what()) == "no such file (path a\\x00b\\x0a\\x1b[2J\\x7f \\ \xc3\xa4, field\\x09 3)");
  CHECK(e.sentence() == "no such file");
  CHECK(e.value("path") == "a\0b\n\x1b[2J\x7f \\ \xc3\xa4"sv);
}

TEST_CASE("an error without values is its sentence alone") {
  error const e(errc::io_error, "nothing there");
  CHECK(std::string(e.what()) == "nothing there");
  CHECK(e.values().empty());
  CHECK(e.value("").empty());
}

TEST_CASE("values of every type keep what was given") {
  std::string const text = "from a string";
  std::string_view const part = std::string_view(text).substr(0, 4);
  error const e(errc::parse_error, "types",
                {{"string", text},
                 {"view", part},
                 {"literal", "l"},
                 {"least", std::numeric_limits<std::int64_t>::min()},
                 {"most", std::numeric_limits<std::uint64_t>::max()},
                 {"float", 0.1F},
                 {"tiny", 1e-9},
                 {"half", 0.5},
                 {"infinity", std::numeric_limits<double>::infinity()},
                 {"true", true}});
  CHECK(e.value("string") == text);
  CHECK(e.value("view") == "from");
  CHECK(e.value("literal") == "l");
  CHECK(e.value("least") == "-9223372036854775808");
  CHECK(e.value("most") == "18446744073709551615");
  CHECK(e.value("float") == "0.100000001");
  CHECK(e.value("tiny") == "1e-09");
  CHECK(e.value("half") == "0.5");
  CHECK(e.value("infinity") == "inf");
  CHECK(e.value("true") == "1");
}

TEST_CASE("a copy survives the original, and is caught by its bases") {
  auto const copied = [] {
    error const original(errc::corrupt_file, "torn", {{"file", "a.bin"}});
    error copy = original;
    return copy;
  }();
  CHECK(copied.value("file") == "a.bin");
  CHECK_THROWS_WITH_AS(throw copied, "torn (file a.bin)", std::runtime_error);
}

TEST_CASE("every code has a name of its own") {
  constexpr errc codes[] = {errc::invalid_argument, errc::shape_mismatch, errc::out_of_range, errc::parse_error,
                            errc::io_error,         errc::corrupt_file,   errc::incompatible, errc::out_of_memory};
  for (auto const a : codes)
    for (auto const b : codes) CHECK((name(a) == name(b)) == (a == b));
  static_assert(name(errc::io_error) == "i/o error");
}
