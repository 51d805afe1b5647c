// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet

// A Parquet file of any bytes is refused by an error that names it, or is a table whose lists fit, the same with and without its checksums, in
// whole row groups and in parts of them. As few bytes have the checksum that our files have of their footer, such a file is read a second time
// with the one that it should have.
// Arrow, which decodes, is not instrumented, and takes as much memory as a file asks for: it is given 64 MiB, and so are we.
#include <tessera/data/parquet_log.hpp>

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/memory_pool.h>

#include <tessera/core/memory_adaptors.hpp>
#include <tessera/core/thread_team.hpp>

#include "fuzz_support.hpp"

using fuzz::require;
using tessera::errc;

namespace {

constexpr std::int64_t most_bytes = std::int64_t{1} << 26;

// All that a row says, in order.
using contents = std::vector<std::int64_t>;

void append(tessera::sample_columns_view columns, std::vector<contents>& out, std::int64_t first) {
  auto const rows = columns.size();
  require((columns.dense.rows() == 0 || columns.dense.columns() == rows) && (columns.sessions.empty() || columns.sessions.size() == rows) &&
              (columns.times.empty() || columns.times.size() == rows) && (columns.weights.empty() || columns.weights.size() == rows),
          "columns have as many rows each");
  for (auto const& lists : columns.sparse) {
    require(lists.rows == rows && (rows == 0 || lists.begin_of(0) == 0), "a sparse column has a list a row");
    tessera::validate(lists, lists.room);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& values = out[static_cast<std::size_t>(first + row)];
    auto const push = [&](float value) { values.push_back(std::bit_cast<std::int32_t>(value)); };
    push(columns.labels[row]);
    for (std::int64_t c = 0; c < columns.dense.rows(); ++c) push(columns.dense(c, row));
    for (auto const& lists : columns.sparse) {
      values.push_back(lists.length(row));
      values.insert(values.end(), lists.row(row).begin(), lists.row(row).end());
    }
    if (!columns.weights.empty()) push(columns.weights[row]);
    if (!columns.sessions.empty()) values.push_back(columns.sessions[row]);
    if (!columns.times.empty()) values.push_back(columns.times[row]);
  }
}

struct way {
  bool verify = true;
  std::int64_t block_rows = 1 << 16;
  bool backwards = false;  // the last block first
};

// A row a vector, in the table's order.
std::optional<std::vector<contents>> read(std::string const& bytes, tessera::sample_schema const& schema, way how) {
  static arrow::CappedMemoryPool pool(arrow::system_memory_pool(), most_bytes);
  auto const file = std::make_shared<arrow::Buffer>(bytes);
  tessera::serial_team team;
  tessera::system_memory system;
  tessera::limited_memory memory(system, std::size_t{most_bytes});
  tessera::host_exec const exec(team, memory);
  try {
    tessera::parquet_log const log({"input"}, schema,
                                   {.block_rows = how.block_rows,
                                    .verify = how.verify,
                                    .open = [&](auto const&) { return std::make_shared<arrow::io::BufferReader>(file); },
                                    .pool = &pool});
    std::int64_t rows = 0;
    for (std::int64_t block = 0; block < log.block_count(); ++block) {
      require(log.first_row(block) == rows && log.rows(block) <= how.block_rows, "blocks follow each other");
      rows += log.rows(block);
    }
    require(rows == log.rows(), "blocks are the whole table");
    std::vector<contents> all(static_cast<std::size_t>(rows));
    tessera::sample_columns columns;
    for (std::int64_t i = 0; i < log.block_count(); ++i) {
      auto const block = how.backwards ? log.block_count() - 1 - i : i;
      log.read(exec, block, columns);
      require(columns.view().size() == log.rows(block), "a block has the rows that it says");
      append(columns.view(), all, log.first_row(block));
    }
    return all;
  } catch (tessera::error const& e) {
    require(
        e.code() == errc::corrupt_file || e.code() == errc::incompatible || e.code() == errc::io_error || e.code() == errc::out_of_memory,
        "the code of a refused file");
    require(e.value("file") == "input", "a refused file is named");
    return std::nullopt;
  }
}

void check(std::string const& bytes) {
  tessera::sample_schema const wide{"label", {"d0"}, {"s0"}, "session", "time"}, narrow{"label", {}, {"s0"}},
      single{.label = "label", .dense = {"s0"}, .sparse = {"s0"}, .weight = "w", .single = {"s0"}};
  for (auto const* schema : {&wide, &narrow, &single}) {
    auto const plain = read(bytes, *schema, {.verify = false});
    auto const verified = read(bytes, *schema, {});
    if (verified) require(plain == verified, "a file that its checksums accept is read the same without them");
    for (bool const backwards : {false, true}) {
      auto const parts = read(bytes, *schema, {.verify = false, .block_rows = 3, .backwards = backwards});
      if (plain && parts) require(plain == parts, "parts of row groups are read as whole ones");
    }
    if (plain) break;
  }
}

// A footer of ours has "data xxxxxxxx footer xxxxxxxx": at the end the CRC-32 of the footer with the file's last 8 bytes, these digits as zeros.
std::optional<std::string> with_checksum(std::string bytes) {
  if (bytes.size() < 8) return std::nullopt;
  auto const tail = std::string_view(bytes).substr(bytes.size() - 8);
  std::size_t const footer_bytes = std::size_t{fuzz::number_source(tail).take<std::uint32_t>()} + 8;
  if (footer_bytes > bytes.size()) return std::nullopt;
  auto const begin = bytes.size() - footer_bytes, key = bytes.find("tessera.crc32", begin);
  if (key == std::string::npos) return std::nullopt;
  auto const words = bytes.find(" footer ", key);
  if (words == std::string::npos || words + 16 > bytes.size()) return std::nullopt;
  bytes.replace(words + 8, 8, "00000000");
  auto sum = tessera::crc32_of({bytes.data() + begin, static_cast<std::int64_t>(footer_bytes)});
  for (std::size_t digit = 8; digit-- > 0; sum >>= 4) bytes[words + 8 + digit] = "0123456789abcdef"[sum & 15];
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string const bytes(fuzz::text_of(data, size));
  check(bytes);
  if (auto const mended = with_checksum(bytes); mended && *mended != bytes) check(*mended);
  return 0;
}
