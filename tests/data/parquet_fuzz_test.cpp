// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
#include <tessera/data/parquet_log.hpp>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>

#include <tessera/data/parquet_writer.hpp>

#include <random.hpp>
#include <temporary_folder.hpp>

#include "foreign_parquet.hpp"
#include "sample_support.hpp"

using namespace sample_tests;
using tessera_tests::contents;

namespace parquet_fuzz_test {

namespace {

// TESSERA_FUZZ_ROUNDS in the environment: damaged files of each kind.
int rounds() {
  char const* const text = std::getenv("TESSERA_FUZZ_ROUNDS");
  return text != nullptr ? std::stoi(text) : 1500;
}

// Flips bits, overwrites, cuts, doubles or takes away bytes.
std::string damaged(std::mt19937_64& random, std::string bytes) {
  auto const position = [&] {
    // Half of the damage near the end, where the footer is.
    auto const near_end = std::min<std::size_t>(bytes.size(), 600);
    return random() % 2 == 0 ? random() % bytes.size() : bytes.size() - 1 - random() % near_end;
  };
  auto const count = 1 + random() % 20;
  switch (random() % 8) {
    case 0: bytes.resize(position()); break;
    case 1: bytes.erase(position(), count); break;
    case 2: bytes.insert(position(), bytes.substr(position(), count)); break;
    case 3:
      for (auto i = position(), end = std::min<std::size_t>(bytes.size(), i + count); i < end; ++i) bytes[i] = static_cast<char>(random());
      break;
    case 4: bytes += bytes.substr(position()); break;
    default:
      for (auto n = 1 + random() % 3; n > 0; --n) {
        auto& byte = bytes[position()];
        byte = static_cast<char>(byte ^ 1 << random() % 8);
      }
  }
  return bytes;
}

// All samples of a file of these bytes, or nothing where an error says what is wrong.
std::optional<std::vector<sample>> read(std::string const& bytes, tessera::sample_schema const& schema, std::int64_t block_rows = 1 << 16) {
  plain_host h;
  auto const file = std::make_shared<arrow::Buffer>(bytes);
  try {
    tessera::parquet_log const log({"bytes"}, schema, {.block_rows = block_rows, .open = [&](auto const&) {
                                                         return std::make_shared<arrow::io::BufferReader>(file);
                                                       }});
    std::vector<sample> all;
    tessera::sample_columns columns;
    for (std::int64_t block = 0; block < log.block_count(); ++block) {
      log.read(h.exec, block, columns);
      auto const some = samples_of(columns.view());
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  } catch (tessera::error const& e) {
    CHECK(e.value("file") == "bytes");
    return std::nullopt;
  }
}

}  // namespace

TEST_CASE("parquet_log: of a damaged file of ours comes an error, or what was written") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  plain_host h;
  int refused = 0;
  for (int variant = 0; variant < 4; ++variant) {
    table_shape const shape{60, 2, 3};
    auto const samples = random_samples(random, shape);
    tessera::sample_columns columns;
    fill(h.exec, schema_of(shape), samples, columns);
    tessera::parquet_writer writer(folder.file("good"), schema_of(shape),
                                   {.row_group_rows = 25, .zstd_level = variant % 2, .dictionary = variant >= 2});
    writer.write(h.exec, columns.view());
    writer.finish();
    auto const good = contents(writer.path());
    for (int round = 0; round < rounds() / 4; ++round) {
      CAPTURE(round);
      auto const bytes = damaged(random, good);
      auto const found = read(bytes, schema_of(shape), variant % 2 == 0 ? 10 : 100);
      refused += !found.has_value();
      if (found && bytes != good) CHECK(*found == samples);
    }
  }
  CHECK(refused > rounds() * 8 / 10);  // most bytes are protected, not ignored
}

TEST_CASE("parquet_log: no changed byte of a file of ours makes it another table") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{.rows = 40, .dense = 1, .sparse = 2, .single = 1, .other_labels = 1, .weights = true};
  auto const samples = random_samples(random, shape);
  tessera::sample_columns columns;
  fill(h.exec, schema_of(shape), samples, columns);
  for (int variant = 0; variant < 3; ++variant) {
    tessera::parquet_writer writer(folder.file("good"), schema_of(shape),
                                   {.row_group_rows = 25, .zstd_level = variant % 2, .page_bytes = 64, .dictionary = variant == 2});
    writer.write(h.exec, columns.view());
    writer.finish();
    auto const good = contents(writer.path());
    REQUIRE(read(good, schema_of(shape)) == samples);
    std::size_t refused = 0;
    for (int round = 0; round < rounds() / 1500; ++round)
      for (auto at = random() % 4; at < good.size(); at += std::size_t{rounds() > 1500 ? 1U : 4U}) {
        auto bytes = good;
        bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^
                                      (random() % 2 == 0 ? std::uint64_t{1} << random() % 8 : 1 + random() % 255));
        auto const found = read(bytes, schema_of(shape), at % 2 == 0 ? 10 : 100);
        refused += !found.has_value();
        CAPTURE(at);
        if (found) CHECK(*found == samples);
      }
    CHECK(refused > 0);
  }
}

TEST_CASE("parquet_log: of a damaged file of others comes an error or a sane table") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  auto const integer = foreign::integer_types();
  auto const real = foreign::float_types();
  for (int round = 0; round < rounds(); ++round) {
    CAPTURE(round);
    if (round % 50 == 0) {
      // As one of ours, in forms of others.
      foreign::file_contents file;
      auto const optional = foreign::Repetition::OPTIONAL;
      file.fields = {foreign::number_node("label", real[0], optional), foreign::number_node("d0", real[2], optional),
                     foreign::list_node("s0", integer[6], foreign::list_form::three, true, true),
                     foreign::list_node("s1", integer[4], foreign::list_form::one, false, false),
                     foreign::number_node("session", integer[6], optional)};
      for (int g = 0; g < 2; ++g) {
        auto& leaves = file.row_groups.emplace_back(5);
        for (int row = 0; row < 30; ++row) {
          for (std::size_t const c : {0U, 1U, 4U}) {
            leaves[c].definition.push_back(1);
            leaves[c].repetition.push_back(0);
            leaves[c].values.push_back(std::bit_cast<std::uint64_t>(static_cast<double>(random() % 2)));
          }
          for (std::size_t const c : {2U, 3U})
            for (std::size_t k = 0, n = 1 + random() % 4; k < n; ++k) {
              leaves[c].definition.push_back(c == 2 ? 3 : 1);
              leaves[c].repetition.push_back(k == 0 ? 0 : 1);
              leaves[c].values.push_back(random() % 50);
            }
        }
      }
      foreign::write_file(folder.file("good"), file, foreign::random_properties(random, random() % 2 == 0));
    }
    read(damaged(random, contents(folder.file("good"))), tessera::sample_schema{"label", {"d0"}, {"s0", "s1"}, "session"},
         round % 2 == 0 ? 7 : 100);
  }
}

}  // namespace parquet_fuzz_test
