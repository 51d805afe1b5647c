// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/safetensors.hpp>

#include "temporary_folder.hpp"

using tessera::as_bytes;
using tessera::errc;
using tessera::safetensors_dtype;
using tessera::safetensors_reader;
using tessera::safetensors_tensor;
using tessera::safetensors_writer;
using tessera::vector_view;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

namespace {

template <std::size_t N>
std::string bytes_of(char const (&literal)[N]) {
  return {literal, N - 1};
}

// safetensors.numpy.save of safetensors 0.8 wrote these bytes:
// {"b": uint8 [1, 2, 3], "a": float32 [[1.5, -2]], "empty": float64 of shape (0, 4), "scalar": int64 7}, metadata {"k": "v"}.
std::string const reference_file =
    bytes_of("\x00\x01\x00\x00\x00\x00\x00\x00") +
    R"({"__metadata__":{"k":"v"},"scalar":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"empty":{"dtype":"F64","shape":[0,4],"data_offsets":[8,8]},)"
    R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},"b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}}    )" +
    bytes_of("\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\xc0\x3f\x00\x00\x00\xc0\x01\x02\x03");

void write_small(std::string const& path) {
  safetensors_writer writer(path,
                            {{"b", safetensors_dtype::u8, {3}},
                             {"a", safetensors_dtype::f32, {1, 2}},
                             {"empty", safetensors_dtype::f64, {0, 4}},
                             {"scalar", safetensors_dtype::i64, {}}},
                            {{"k", "v"}});
  std::array<float, 2> const a{1.5F, -2};
  std::array<std::uint8_t, 3> const b{1, 2, 3};
  std::int64_t const scalar = 7;
  writer.append("b", vector_view(b));
  writer.append("a", vector_view(a));
  writer.append("scalar", vector_view(&scalar, 1));
  writer.finish();
}

void check_small(safetensors_reader const& reader) {
  CHECK(reader.metadata() == tessera::safetensors_metadata{{"k", "v"}});
  REQUIRE(reader.entries().size() == 4);
  reader.expect("a", safetensors_dtype::f32, {1, 2});
  reader.expect("b", safetensors_dtype::u8, {3});
  reader.expect("empty", safetensors_dtype::f64, {0, 4});
  reader.expect("scalar", safetensors_dtype::i64, {});
  std::array<float, 2> a{};
  std::array<std::uint8_t, 3> b{};
  std::int64_t scalar = 0;
  reader.read("a", 0, vector_view(a));
  reader.read("b", 0, vector_view(b));
  reader.read("scalar", 0, vector_view(&scalar, 1));
  reader.read("empty", 0, vector_view<double>());
  CHECK(a == std::array<float, 2>{1.5F, -2});
  CHECK(b == std::array<std::uint8_t, 3>{1, 2, 3});
  CHECK(scalar == 7);
}

}  // namespace

TEST_CASE("safetensors_writer writes the format byte for byte") {
  temporary_folder const folder;
  write_small(folder.file("small"));
  // Length of the header, header padded to 8 with spaces, data; the wider elements first.
  std::string header =
      R"({"__metadata__":{"k":"v"},"a":{"data_offsets":[8,16],"dtype":"F32","shape":[1,2]},"b":{"data_offsets":[16,19],"dtype":"U8","shape":[3]},)"
      R"("empty":{"data_offsets":[0,0],"dtype":"F64","shape":[0,4]},"scalar":{"data_offsets":[0,8],"dtype":"I64","shape":[]}})";
  while (header.size() % 8 != 0) header += ' ';
  REQUIRE(header.size() == 256);
  CHECK(contents(folder.file("small")) == reference_file.substr(0, 8) + header + reference_file.substr(8 + 256));
}

TEST_CASE("safetensors_reader reads what it wrote and what the format's own library wrote") {
  temporary_folder const folder;
  write_small(folder.file("ours"));
  check_small(safetensors_reader(folder.file("ours")));
  write_file(folder.file("theirs"), reference_file);
  check_small(safetensors_reader(folder.file("theirs")));
}

TEST_CASE("safetensors_writer takes pieces in any order among tensors, and sums them as the file") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  temporary_folder const folder;
  for (int round = 0; round < 40; ++round) {
    auto const path = folder.file("round" + std::to_string(round));
    std::vector<safetensors_tensor> tensors;
    std::map<std::string, std::string> data;
    for (auto count = random() % 8; count > 0; --count) {
      safetensors_tensor t{"tensor \"" + std::to_string(count) + "\" \u00e9", static_cast<safetensors_dtype>(random() % 15), {}};
      auto bytes = static_cast<std::size_t>(element_bytes(t.dtype));
      for (auto rank = random() % 4; rank > 0; --rank) {
        t.shape.push_back(static_cast<std::int64_t>(random() % 7));
        bytes *= static_cast<std::size_t>(t.shape.back());
      }
      auto& d = data[t.name];
      for (; bytes > 0; --bytes) d += static_cast<char>(random());
      tensors.push_back(std::move(t));
    }
    safetensors_writer writer(path, tensors, {{"round", std::to_string(round)}});
    auto left = data;
    for (bool more = true; more;) {
      more = false;
      for (auto& [name, bytes] : left) {
        auto const piece = std::min<std::size_t>(random() % 50, bytes.size());
        writer.append_bytes(name, vector_view<char const>(bytes.data(), static_cast<std::int64_t>(piece)));
        bytes.erase(0, piece);
        more = more || !bytes.empty();
      }
    }
    auto const digest = writer.finish();
    CHECK(digest == tessera::digest_of(path));

    safetensors_reader const reader(path);
    CHECK(reader.entries().size() == tensors.size());
    for (auto const& t : tensors) {
      auto const& entry = reader.expect(t.name, t.dtype, t.shape);
      CHECK(entry.offset % element_bytes(t.dtype) == 0);
      std::string found(static_cast<std::size_t>(entry.bytes), '?');
      auto const cut = static_cast<std::int64_t>(random() % (found.size() + 1));
      reader.read_bytes(entry, 0, {found.data(), cut});
      reader.read_bytes(entry, cut, {found.data() + cut, entry.bytes - cut});
      CHECK(found == data[t.name]);
    }
  }
}

TEST_CASE("safetensors_reader reads parts of a tensor") {
  temporary_folder const folder;
  auto const path = folder.file("rows");
  std::vector<std::int32_t> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * i);
  safetensors_writer writer(path, {{"rows", safetensors_dtype::i32, {100, 10}}});
  for (std::int64_t row = 0; row < 100; row += 7) {
    auto const first = row * 10;
    writer.append("rows", vector_view(values).slice(first, std::min<std::int64_t>(70, 1000 - first)));
  }
  writer.finish();
  safetensors_reader const reader(path);
  std::vector<std::int32_t> row(10);
  for (std::int64_t r = 0; r < 100; ++r) {
    reader.read("rows", r * 10, vector_view(row));
    REQUIRE(std::equal(row.begin(), row.end(), values.begin() + r * 10));
  }
  reader.read("rows", 1000, vector_view<std::int32_t>());
  for (std::int64_t const first : {-1, 991, 1001}) {
    auto const e = error_of([&] { reader.read("rows", first, vector_view(row)); });
    CHECK(e.code() == errc::out_of_range);
    CHECK(e.value("tensor") == "rows");
    CHECK(error_of([&] { reader.read_bytes(reader.at("rows"), first * 4, as_writable_bytes(vector_view(row))); }).code() ==
          errc::out_of_range);
  }
}

TEST_CASE("safetensors_reader reaches past 4 GiB") {
  temporary_folder const folder;
  auto const path = folder.file("large");
  std::int64_t const bytes = (std::int64_t{5} << 30) + 8;
  std::string header =
      R"({"large":{"dtype":"U64","shape":[)" + std::to_string(bytes / 8) + R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
  header.resize(120, ' ');
  write_file(path, bytes_of("\x78\x00\x00\x00\x00\x00\x00\x00") + header);
  REQUIRE(::truncate(path.c_str(), 128 + bytes - 8) == 0);  // a hole: takes no room
  std::ofstream(path, std::ios::binary | std::ios::app) << "lastlast";
  safetensors_reader const reader(path);
  std::array<std::uint64_t, 2> values{};
  reader.read("large", bytes / 8 - 2, vector_view(values));
  CHECK(values[0] == 0);
  CHECK(values[1] == 0x7473616c7473616c);
  CHECK(error_of([&] { reader.read("large", bytes / 8 - 1, vector_view(values)); }).code() == errc::out_of_range);
}

TEST_CASE("safetensors_reader names file, tensor, expected and found") {
  temporary_folder const folder;
  auto const path = folder.file("small");
  write_small(path);
  safetensors_reader const reader(path);
  auto const shape = error_of([&] { reader.expect("a", safetensors_dtype::f32, {2, 1}); });
  CHECK(shape.code() == errc::incompatible);
  CHECK(shape.value("file") == path);
  CHECK(shape.value("tensor") == "a");
  CHECK(shape.value("expected") == "F32 [2, 1]");
  CHECK(shape.value("found") == "F32 [1, 2]");
  CHECK(error_of([&] { reader.expect("a", safetensors_dtype::i32, {1, 2}); }).value("expected") == "I32 [1, 2]");
  auto const missing = error_of([&] { reader.at("c"); });
  CHECK(missing.code() == errc::incompatible);
  CHECK(missing.value("tensor") == "c");
  CHECK(reader.find("c") == nullptr);
  std::array<std::int32_t, 2> integers{};
  auto const dtype = error_of([&] { reader.read("a", 0, vector_view(integers)); });
  CHECK(dtype.code() == errc::incompatible);
  CHECK(dtype.value("expected") == "I32");
  CHECK(dtype.value("found") == "F32");
}

TEST_CASE("safetensors_writer refuses declarations that no reader takes, and leaves an old file alone") {
  temporary_folder const folder;
  auto const path = folder.file("old");
  write_file(path, "old");
  using dtype = safetensors_dtype;
  auto const refused = [&](std::vector<safetensors_tensor> const& tensors, std::string const& name) {
    auto const e = error_of([&] { safetensors_writer(path, tensors); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value("file") == path);
    CHECK(e.value("tensor") == name);
  };
  refused({{"", dtype::f32, {1}}}, "");
  refused({{"__metadata__", dtype::f32, {1}}}, "__metadata__");
  refused({{"a", dtype::f32, {1}}, {"b", dtype::u8, {1}}, {"a", dtype::u8, {1}}}, "a");
  refused({{"a", dtype::f32, {2, -1}}}, "a");
  refused({{"a", dtype::f32, {std::int64_t{1} << 62}}}, "a");
  refused({{"a", dtype::u8, {std::int64_t{1} << 62}}, {"b", dtype::u8, {1}}}, "b");
  CHECK(error_of([&] { safetensors_writer(path, {{"\xff", dtype::f32, {1}}}); }).code() == errc::invalid_argument);
  CHECK(error_of([&] { safetensors_writer(path, {}, {{"k", "\xff"}}); }).code() == errc::invalid_argument);
  CHECK(contents(path) == "old");
  CHECK(error_of([&] { safetensors_writer(folder.path(), {}); }).code() == errc::io_error);
}

TEST_CASE("safetensors_writer refuses data other than declared") {
  temporary_folder const folder;
  auto const path = folder.file("file");
  safetensors_writer writer(path, {{"a", safetensors_dtype::f32, {2}}, {"none", safetensors_dtype::f32, {0}}});
  std::vector<float> const values(3);
  std::vector<std::int32_t> const integers(2);
  CHECK(error_of([&] { writer.append("b", vector_view(values)); }).value("tensor") == "b");
  auto const dtype = error_of([&] { writer.append("a", vector_view(integers)); });
  CHECK(dtype.code() == errc::invalid_argument);
  CHECK(dtype.value("expected") == "F32");
  CHECK(dtype.value("found") == "I32");
  auto const more = error_of([&] { writer.append("a", vector_view(values)); });
  CHECK(more.code() == errc::invalid_argument);
  CHECK(more.value("expected") == "8");
  CHECK(more.value("found") == "12");
  CHECK(error_of([&] { writer.append("none", vector_view(values)); }).value("expected") == "0");
  writer.append("a", vector_view(values).slice(0, 1));
  auto const early = error_of([&] { writer.finish(); });
  CHECK(early.code() == errc::invalid_argument);
  CHECK(early.value("tensor") == "a");
  CHECK(early.value("found") == "4");
  CHECK(error_of([&] { safetensors_reader reader(path); }).code() == errc::corrupt_file);  // no header yet
  writer.append("a", vector_view(values).slice(0, 1));
  CHECK(error_of([&] { safetensors_reader reader(path); }).code() == errc::corrupt_file);
  writer.finish();
  CHECK_NOTHROW(safetensors_reader{path});
}

TEST_CASE("safetensors files without tensors and without metadata are files") {
  temporary_folder const folder;
  auto const path = folder.file("none");
  auto const digest = safetensors_writer(path, {}).finish();
  CHECK(digest == tessera::digest_of(path));
  CHECK(contents(path) == bytes_of("\x08\x00\x00\x00\x00\x00\x00\x00{}      "));
  CHECK(safetensors_reader(path).entries().empty());
}

TEST_CASE("safetensors_reader refuses every prefix and every file with more behind") {
  temporary_folder const folder;
  auto const path = folder.file("torn");
  for (std::size_t size = 0; size < reference_file.size(); ++size) {
    write_file(path, reference_file.substr(0, size));
    auto const e = error_of([&] { safetensors_reader reader(path); });
    CHECK(e.value("file") == path);
  }
  write_file(path, reference_file + "x");
  CHECK(error_of([&] { safetensors_reader reader(path); }).code() == errc::corrupt_file);
}

TEST_CASE("safetensors_reader with one bit flipped refuses, or gives the data but for that bit") {
  temporary_folder const folder;
  auto const path = folder.file("altered");
  auto bytes = reference_file;
  auto const data_begin = bytes.size() - 19;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      write_file(path, bytes);
      try {
        safetensors_reader const reader(path);
        std::string data(19, '?');
        for (auto const& e : reader.entries()) reader.read_bytes(e, 0, {data.data() + e.offset, e.bytes});
        CHECK(data == bytes.substr(data_begin));
      } catch (tessera::error const& e) {
        CHECK(i < data_begin);
        CHECK(!std::string(e.what()).empty());
      }
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    }
}

TEST_CASE("safetensors_reader refuses impossible header lengths before it allocates") {
  temporary_folder const folder;
  auto const path = folder.file("length");
  for (std::uint64_t const length :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::string bytes = reference_file;
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
    write_file(path, bytes);
    REQUIRE(::truncate(path.c_str(), 200'000'000) == 0);
    CHECK(error_of([&] { safetensors_reader reader(path); }).code() == errc::corrupt_file);
  }
  write_file(path, bytes_of("\x08\x00\x00\x00\x00\x00\x00\x00  {}    "));  // the format begins with {
  CHECK(error_of([&] { safetensors_reader reader(path); }).code() == errc::corrupt_file);
}

TEST_CASE("safetensors_reader refuses what cannot be opened, and notices a file that becomes shorter") {
  temporary_folder const folder;
  CHECK(error_of([&] { safetensors_reader reader(folder.file("missing")); }).code() == errc::io_error);
  CHECK(error_of([&] { safetensors_reader reader(folder.path()); }).code() == errc::io_error);
  auto const path = folder.file("small");
  write_small(path);
  safetensors_reader const reader(path);
  REQUIRE(::truncate(path.c_str(), 270) == 0);
  std::array<float, 2> a{};
  auto const e = error_of([&] { reader.read("a", 0, vector_view(a)); });
  CHECK(e.code() == errc::corrupt_file);
  CHECK(e.value("tensor") == "a");
}
