// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/config.h>
#include <parquet/exception.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How a file is opened to be read: by its name, or by whatever a name means to the caller. What it returns is read by several threads at
/// once, through `ReadAt` and `GetSize` alone. It may throw; no file (nullptr) is an error.
using parquet_open = std::function<std::shared_ptr<arrow::io::RandomAccessFile>(std::string const& path)>;

namespace detail {

using arrow_bytes = arrow::Result<std::shared_ptr<arrow::Buffer>>;

inline vector_view<char const> chars_of(arrow::Buffer const& buffer) noexcept {
  return {reinterpret_cast<char const*>(buffer.data()), buffer.size()};
}

// A file whose reading is `ReadAt` alone: what Arrow asks beyond that.
class arrow_source : public arrow::io::RandomAccessFile {
 public:
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Seek(std::int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    auto read = ReadAt(position_, bytes, out);
    if (read.ok()) position_ += *read;
    return read;
  }
  arrow_bytes Read(std::int64_t bytes) override {
    auto read = ReadAt(position_, bytes);
    if (read.ok()) position_ += (*read)->size();
    return read;
  }

 private:
  std::int64_t position_ = 0;
};

// A file of this machine, read by pread: one that becomes shorter meanwhile is an error, not a signal.
class local_source final : public arrow_source {
 public:
  local_source(std::string path, arrow::MemoryPool* pool) : file_(posix_file::open(std::move(path))), pool_(pool) {}

  arrow::Result<std::int64_t> GetSize() override {
    return guarded([&]() -> arrow::Result<std::int64_t> { return file_.size(); });
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    return guarded([&]() -> arrow::Result<std::int64_t> { return file_.read_at(position, {static_cast<char*>(out), bytes}); });
  }
  arrow_bytes ReadAt(std::int64_t position, std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(bytes, pool_));
    ARROW_ASSIGN_OR_RAISE(auto const read, ReadAt(position, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(read, false));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  template <class F>
  static auto guarded(F const& f) -> decltype(f()) {
    try {
      return f();
    } catch (error const& failure) {
      return arrow::Status::IOError(failure.value("reason"));
    }
  }

  posix_file file_;
  arrow::MemoryPool* pool_;
};

// Where a name leads that the caller did not say how to open.
inline std::shared_ptr<arrow::io::RandomAccessFile> open_source(parquet_open const& open, std::string const& path,
                                                                arrow::MemoryPool* pool) {
  if (!open) return std::make_shared<local_source>(path, pool);
  try {
    if (auto file = open(path)) return file;
  } catch (error const&) {
    throw;
  } catch (std::exception const& failure) {
    throw_io_error("cannot open file", path, failure.what());
  }
  throw_io_error("cannot open file", path, "there is none");
}

// Bytes of a file that has to have them.
inline std::shared_ptr<arrow::Buffer> read_source(arrow::io::RandomAccessFile& file, std::string const& path, std::int64_t position,
                                                  std::int64_t bytes) {
  auto read = file.ReadAt(position, bytes);
  if (!read.ok()) throw_io_error("cannot read", path, read.status().message());
  if ((*read)->size() != bytes)
    throw error(errc::corrupt_file, "parquet: the file became shorter while it was read",
                {{"file", path}, {"offset", position}, {"bytes", bytes}, {"found", (*read)->size()}});
  return *read;
}

// Calls f; whatever Arrow throws becomes an error with this sentence, `where()`'s values and the reason. Memory that was refused stays that:
// a damaged file may ask for any amount.
template <class Where, class F>
decltype(auto) arrow_call(errc code, char const* sentence, Where const& where, F const& f) {
  auto const fail = [&](errc what, std::string_view reason) {
    std::vector<error_value> values = where();
    values.emplace_back("reason", std::string(reason.substr(0, reason.find('\n'))));
    throw error(what, sentence, std::move(values));
  };
  try {
    return f();
  } catch (error const&) {
    throw;
  } catch (parquet::ParquetStatusException const& failure) {
    fail(failure.status().IsOutOfMemory() ? errc::out_of_memory : code, failure.status().message());
  } catch (std::bad_alloc const&) {
    fail(errc::out_of_memory, "no memory left");
  } catch (std::exception const& failure) {
    fail(code, failure.what());
  }
  throw error(code, sentence);  // not reached
}

// Parquet protects the contents of pages at most. Files of ours have, in front of their footer, where Parquet allows anything: the CRC-32 of
// each column chunk with all its headers (4 bytes each, row group by row group), their number (8), the CRC-32 of these 12 … bytes and of all
// that follows the magic (4), the magic (8); numbers in little endian.
inline constexpr std::string_view parquet_sums_magic = "TSRSUMS1";
inline constexpr std::int64_t parquet_sums_tail = 20;
inline constexpr std::string_view parquet_magic = "PAR1";
inline constexpr std::int64_t parquet_tail = 8;  // the footer's length, the magic
// Whose files have sums. Not said by key-value pairs, which other programs copy into the files that they write.
inline constexpr std::string_view parquet_application = "tessera version ";

template <class T>
T little_endian(char const* bytes) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  return value;
}
template <class T>
void append_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// The sums and all behind them, for a footer with its tail.
inline std::string parquet_sums_text(std::vector<std::uint32_t> const& sums, std::string const& footer) {
  std::string text;
  for (auto const sum : sums) append_little_endian(text, sum);
  append_little_endian(text, static_cast<std::uint64_t>(sums.size()));
  append_little_endian(text, crc32_of(text + footer));
  return text + std::string(parquet_sums_magic) + footer;
}

inline std::shared_ptr<parquet::FileMetaData> parse_parquet_footer(char const* text, std::int64_t length, arrow::MemoryPool* pool) {
#if ARROW_VERSION_MAJOR >= 26
  return parquet::FileMetaData::Make(text, length, parquet::ReaderProperties(pool));
#else
  auto parsed = static_cast<std::uint32_t>(length);
  return parquet::FileMetaData::Make(text, &parsed, parquet::ReaderProperties(pool));
#endif
}

struct parquet_footer {
  std::shared_ptr<parquet::FileMetaData> metadata;
  std::vector<std::uint32_t> sums;  // of each row group's columns; empty where the file has none
  std::uint32_t fingerprint = 0;    // of the file's size and footer
};

// Reads a footer with what protects it. @throws tessera::error corrupt_file, incompatible for an encrypted file, io_error.
inline parquet_footer read_parquet_footer(arrow::io::RandomAccessFile& file, std::string const& path, arrow::MemoryPool* pool) {
  auto const refuse = [&](char const* sentence) { throw error(errc::corrupt_file, sentence, {{"file", path}}); };
  auto const size = file.GetSize();
  if (!size.ok()) throw_io_error("cannot inspect file", path, size.status().message());
  if (*size < parquet_tail + 4) refuse("parquet: too short to be a Parquet file");
  auto const guess = std::min<std::int64_t>(*size, 1 << 16);
  auto end = read_source(file, path, *size - guess, guess);
  auto const magic = std::string_view(chars_of(*end).data() + guess - 4, 4);
  if (magic == "PARE") throw error(errc::incompatible, "parquet: the file is encrypted", {{"file", path}});
  if (magic != parquet_magic) refuse("parquet: not a Parquet file, or a truncated one");
  std::int64_t const length = little_endian<std::uint32_t>(chars_of(*end).data() + guess - parquet_tail);
  auto const footer_bytes = length + parquet_tail;
  if (length == 0 || footer_bytes + 4 > *size) refuse("parquet: the footer's length is no length");

  auto room = std::min(*size, footer_bytes + parquet_sums_tail);
  if (room > end->size()) end = read_source(file, path, *size - room, room);
  auto const* const footer = chars_of(*end).data() + end->size() - footer_bytes;
  parquet_footer result;
  bool const has_sums = room == footer_bytes + parquet_sums_tail && std::string_view(footer - 8, 8) == parquet_sums_magic;
  std::int64_t before = 0;  // bytes of sums
  if (has_sums) {
    auto const count = little_endian<std::uint64_t>(footer - parquet_sums_tail);
    if (count > static_cast<std::uint64_t>(*size) / 4) refuse("parquet: altered checksums");
    before = 4 * static_cast<std::int64_t>(count);
    room = std::min(*size, footer_bytes + parquet_sums_tail + before);
    auto const sums = read_source(file, path, *size - room, room - footer_bytes);
    crc32_sum found;
    found.update(chars_of(*sums).slice(0, sums->size() - 12));
    found.update({footer, footer_bytes});
    if (found.value() != little_endian<std::uint32_t>(footer - 12)) refuse("parquet: the footer or its checksums are altered");
    for (std::int64_t i = 0; i < before; i += 4) result.sums.push_back(little_endian<std::uint32_t>(chars_of(*sums).data() + i));
  }

  arrow_call(
      errc::corrupt_file, "parquet: a footer that cannot be read",
      [&] {
        return std::vector<error_value>{{"file", path}};
      },
      [&] { result.metadata = parse_parquet_footer(footer, length, pool); });
  auto const& metadata = *result.metadata;
  if (metadata.created_by().starts_with(parquet_application) && !has_sums) refuse("parquet: the checksums are missing");
  auto const chunks = std::int64_t{metadata.num_row_groups()} * metadata.num_columns();
  if (has_sums && static_cast<std::int64_t>(result.sums.size()) != chunks)
    refuse("parquet: as many checksums as column chunks are expected");

  std::string bytes;
  append_little_endian(bytes, *size);
  crc32_sum sum;
  sum.update(bytes);
  if (has_sums) sum.update({footer - parquet_sums_tail, parquet_sums_tail});
  sum.update({footer, footer_bytes});
  result.fingerprint = sum.value();
  return result;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
