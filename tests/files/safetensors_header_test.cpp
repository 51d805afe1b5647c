// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/files/safetensors_header.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera::safetensors_dtype;
using tessera_tests::error_of;

namespace {

tessera::safetensors_header parse(std::string const& text, std::int64_t data_bytes) {
  return tessera::parse_safetensors_header(text, data_bytes, "f");
}

std::string tensor(std::string const& dtype, std::string const& shape, std::string const& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

static_assert(tessera::safetensors_dtype_of<float>() == safetensors_dtype::f32);
static_assert(tessera::safetensors_dtype_of<double>() == safetensors_dtype::f64);
static_assert(tessera::safetensors_dtype_of<bool>() == safetensors_dtype::boolean);
static_assert(tessera::safetensors_dtype_of<std::int8_t>() == safetensors_dtype::i8);
static_assert(tessera::safetensors_dtype_of<std::uint16_t>() == safetensors_dtype::u16);
static_assert(tessera::safetensors_dtype_of<int>() == safetensors_dtype::i32);
static_assert(tessera::safetensors_dtype_of<long long>() == safetensors_dtype::i64);
static_assert(tessera::safetensors_dtype_of<std::uint64_t>() == safetensors_dtype::u64);
static_assert(tessera::element_bytes(safetensors_dtype::bf16) == 2 && tessera::name(safetensors_dtype::bf16) == "BF16");

TEST_CASE("a safetensors header is parsed to its entries") {
  auto const header = parse(R"( {"__metadata__":{"k":"v","":""},
      "z":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12],"unknown":1},
      "a":{"data_offsets":[12,12],"shape":[5,0],"dtype":"F64"},
      "m":{"data_offsets":[12,20],"shape":[],"dtype":"U64"}}   )",
                            20);
  CHECK(header.metadata == tessera::safetensors_metadata{{"", ""}, {"k", "v"}});
  REQUIRE(header.entries.size() == 3);
  CHECK(header.entries[0].name == "a");
  CHECK(header.entries[0].elements() == 0);
  CHECK(header.entries[1].name == "m");
  CHECK(header.entries[1].elements() == 1);
  CHECK(header.entries[1].offset == 12);
  CHECK(header.entries[2].name == "z");
  CHECK(header.entries[2].dtype == safetensors_dtype::bf16);
  CHECK(header.entries[2].shape == std::vector<std::int64_t>{2, 3});
  CHECK(header.entries[2].bytes == 12);
  CHECK(parse("{}", 0).entries.empty());
}

TEST_CASE("a safetensors header with all element types is parsed") {
  for (auto const& d : tessera::detail::safetensors_dtypes) {
    auto const header = parse(tensor(std::string(d.name), "[3]", "[0," + std::to_string(3 * d.bytes) + "]"), 3 * d.bytes);
    CHECK(tessera::name(header.entries[0].dtype) == d.name);
    CHECK(header.entries[0].elements() == 3);
  }
}

TEST_CASE("a safetensors header that contradicts itself is refused with its tensor") {
  auto const refused = [](std::string const& text, std::int64_t data_bytes, errc code) {
    CAPTURE(text);
    auto const e = error_of([&] { parse(text, data_bytes); });
    CHECK(e.code() == code);
    CHECK(std::string(e.what()).find("tensor t") != std::string::npos);
  };
  refused(tensor("F33", "[1]", "[0,4]"), 4, errc::incompatible);
  refused(tensor("f32", "[1]", "[0,4]"), 4, errc::incompatible);
  refused(tensor("F32", "[2]", "[0,4]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[4,0]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[0,8]"), 8, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[0]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[0,4,4]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[1,5]"), 5, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[0,4]"), 3, errc::corrupt_file);
  refused(tensor("F32", "[-1]", "[0,4]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1.0]", "[0,4]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[\"1\"]", "[0,4]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[0,18446744073709551615]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[1]", "[9223372036854775807,9223372036854775811]"), 4, errc::corrupt_file);
  refused(tensor("F32", "[4611686018427387904,4]", "[0,0]"), 0, errc::corrupt_file);                  // 2^66 bytes: 0 in 64 bits
  refused(tensor("F32", "[4294967296,4294967296,0]", "[0,0]"), 0, errc::corrupt_file);                // as the format's own library
  refused(tensor("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 10, errc::corrupt_file);  // larger than the file
  refused(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4, errc::parse_error);
  refused(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4, errc::parse_error);
  refused(R"({"t":{"dtype":"F32","shape":[1]}})", 4, errc::parse_error);
  refused(R"({"t":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4, errc::parse_error);
  refused(R"({"t":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, errc::parse_error);
  refused(R"({"t":7})", 4, errc::parse_error);
}

TEST_CASE("a safetensors header whose tensors do not tile the data is refused") {
  auto const two = [](std::string const& first, std::string const& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first + R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second +
           "}}";
  };
  CHECK_NOTHROW(parse(two("[0,4]", "[4,8]"), 8));
  CHECK_NOTHROW(parse(two("[4,8]", "[0,4]"), 8));
  CHECK(error_of([&] { parse(two("[0,4]", "[0,4]"), 8); }).value("tensor") == "b");  // overlap
  CHECK(error_of([&] { parse(two("[0,4]", "[3,7]"), 7); }).value("tensor") == "b");
  CHECK(error_of([&] { parse(two("[0,4]", "[5,9]"), 9); }).value("tensor") == "b");  // hole
  CHECK(error_of([&] { parse(two("[0,4]", "[4,8]"), 9); }).code() == errc::corrupt_file);
  CHECK(error_of([&] { parse("{}", 1); }).code() == errc::corrupt_file);
}

TEST_CASE("a safetensors header that is no header is refused") {
  for (std::string const text : {"", "[]", "7", "{", R"({"t":{},"t":{}})", R"({"__metadata__":{"k":1}})", R"({"__metadata__":[]})"}) {
    CAPTURE(text);
    CHECK(error_of([&] { parse(text, 0); }).code() == errc::parse_error);
  }
}

TEST_CASE("a safetensors header with any one byte changed is refused or still tiles the data") {
  std::string text =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}} )";
  REQUIRE_NOTHROW(parse(text, 11));
  int refused = 0;
  for (auto& byte : text) {
    char const sound = byte;
    for (int value = 0; value < 256; ++value) {
      byte = static_cast<char>(value);
      try {
        std::int64_t bytes = 0;
        for (auto const& e : parse(text, 11).entries) bytes += e.bytes;
        if (bytes != 11) FAIL(text);
      } catch (tessera::error const&) {
        ++refused;
      }
    }
    byte = sound;
  }
  CHECK(refused > 20000);
}
