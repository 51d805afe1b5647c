// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet

// A Parquet file of any bytes is refused by an error that names it, or is a table whose lists fit, the same with and without its checksums. As few
// bytes have the checksum that our files have of their footer, such a file is read a second time with the one that it should have.
// Arrow, which decodes, is not instrumented, and takes as much memory as a file asks for: it is given 64 MiB, and so are we.
#include <tessera/data/parquet_log.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
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

// All that a table says, in order.
using contents = std::vector<std::int64_t>;

void append(tessera::sample_columns_view columns, contents& out) {
  auto const rows = columns.size();
  require(columns.dense.columns() == rows && (columns.sessions.empty() || columns.sessions.size() == rows) &&
              (columns.times.empty() || columns.times.size() == rows),
          "columns have as many rows each");
  auto const push = [&](float value) { out.push_back(std::bit_cast<std::int32_t>(value)); };
  for (auto const label : columns.labels) push(label);
  for (std::int64_t c = 0; c < columns.dense.rows(); ++c)
    for (std::int64_t row = 0; row < rows; ++row) push(columns.dense(c, row));
  for (auto const& lists : columns.sparse) {
    require(lists.rows == rows && lists.begin_of(0) == 0, "a list column has a list a row");
    tessera::validate(lists, lists.room);
    for (std::int64_t row = 0; row < rows; ++row) {
      out.push_back(lists.length(row));
      out.insert(out.end(), lists.row(row).begin(), lists.row(row).end());
    }
  }
  out.insert(out.end(), columns.sessions.begin(), columns.sessions.end());
  out.insert(out.end(), columns.times.begin(), columns.times.end());
}

std::optional<contents> read(std::string const& bytes, tessera::sample_schema const& schema, bool verify) {
  static arrow::CappedMemoryPool pool(arrow::system_memory_pool(), most_bytes);
  auto const file = std::make_shared<arrow::Buffer>(bytes);
  tessera::serial_team team;
  tessera::system_memory system;
  tessera::limited_memory memory(system, std::size_t{most_bytes});
  tessera::host_exec const exec(team, memory);
  try {
    tessera::parquet_log const log(
        {"input"}, schema,
        {.verify = verify, .open = [&](auto const&) { return std::make_shared<arrow::io::BufferReader>(file); }, .pool = &pool});
    contents all;
    std::int64_t rows = 0;
    tessera::sample_columns columns;
    for (std::int64_t block = 0; block < log.block_count(); ++block) {
      log.read(exec, block, columns);
      require(log.first_row(block) == rows && columns.view().size() == log.rows(block), "a block has the rows that it says");
      rows += log.rows(block);
      append(columns.view(), all);
    }
    require(rows == log.rows(), "blocks are the whole table");
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
  tessera::sample_schema const wide("label", {"d0"}, {"s0"}, "session", "time"), narrow("label", {}, {"s0"});
  for (auto const* schema : {&wide, &narrow}) {
    auto const plain = read(bytes, *schema, false);
    auto const verified = read(bytes, *schema, true);
    if (verified) require(plain == verified, "a file that its checksums accept is read the same without them");
    if (plain) break;
  }
}

// In front of the footer of a file of ours: a CRC-32 a column chunk, their number in 8 bytes, the CRC-32 of these and of all from the footer on, 8
// bytes of magic.
std::optional<std::string> with_checksum(std::string bytes) {
  if (bytes.size() < 8) return std::nullopt;
  auto const tail = std::string_view(bytes).substr(bytes.size() - 8);
  std::size_t const footer_bytes = std::size_t{fuzz::number_source(tail).take<std::uint32_t>()} + 8;
  if (footer_bytes + 20 > bytes.size()) return std::nullopt;
  auto const footer = bytes.size() - footer_bytes;
  if (bytes.compare(footer - 8, 8, "TSRSUMS1") != 0) return std::nullopt;
  auto const count = fuzz::number_source(std::string_view(bytes).substr(footer - 20)).take<std::uint64_t>();
  if (count > (footer - 20) / 4) return std::nullopt;
  auto const sums_bytes = 4 * static_cast<std::size_t>(count) + 8;
  auto const sum = tessera::crc32_of(std::string_view(bytes.substr(footer - 12 - sums_bytes, sums_bytes) + bytes.substr(footer)));
  std::memcpy(bytes.data() + footer - 12, &sum, sizeof sum);
  return bytes;
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string const bytes(fuzz::text_of(data, size));
  check(bytes);
  if (auto const mended = with_checksum(bytes); mended && *mended != bytes) check(*mended);
  return 0;
}
