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
#include <arrow/util/key_value_metadata.h>
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

/// Opens a file to be read, by its name or by whatever a name means to the caller. Several threads read the returned file at once, through
/// `ReadAt` and `GetSize` alone. The function may throw; a returned nullptr is refused as io_error.
using parquet_open = std::function<std::shared_ptr<arrow::io::RandomAccessFile>(std::string const& path)>;

namespace detail {

using arrow_bytes = arrow::Result<std::shared_ptr<arrow::Buffer>>;

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
inline void read_source(arrow::io::RandomAccessFile& file, std::string const& path, std::int64_t position, vector_view<char> out) {
  auto const read = file.ReadAt(position, out.size(), out.data());
  if (!read.ok()) throw_io_error("cannot read", path, read.status().message());
  if (*read != out.size())
    throw error(errc::corrupt_file, "parquet: the file became shorter while it was read",
                {{"file", path}, {"offset", position}, {"bytes", out.size()}, {"found", *read}});
}

// Calls f; whatever Arrow throws becomes an error with this sentence, `where()`'s values and the reason. Memory that was refused stays
// that: a damaged file may ask for any amount.
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

inline constexpr std::string_view parquet_magic = "PAR1";
inline constexpr std::int64_t parquet_tail = 8;  // the footer's length, the magic

// Parquet's own checksums protect the contents of pages, neither their headers nor the footer. So a footer of ours has a key-value pair:
// the CRC-32 of all bytes in front of it, and that of itself with its tail, these eight digits as zeros. Who writes such pairs is told by
// `parquet_application`: other programs copy pairs into files of their own.
inline constexpr std::string_view parquet_application = "tessera-parquet version ";
inline constexpr char const* parquet_sums_key = "tessera.crc32";

inline std::string eight_digits(std::uint32_t value) {
  constexpr char const* digits = "0123456789abcdef";
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; value >>= 4) text[i] = digits[value & 15];
  return text;
}
inline std::string parquet_sums(std::uint32_t data, std::uint32_t footer) {
  return "data " + eight_digits(data) + " footer " + eight_digits(footer);
}
/// Where in a footer the digits of its own checksum stand; npos: nowhere.
inline std::size_t footer_sum_position(std::string_view footer, std::string_view sums) noexcept {
  auto const at = footer.find(sums);
  return at == std::string_view::npos ? at : at + sums.size() - 8;
}
// Of a footer with its tail.
inline std::uint32_t footer_sum(std::string_view footer, std::size_t position) noexcept {
  crc32_sum sum;
  auto const add = [&](std::string_view part) { sum.update({part.data(), static_cast<std::int64_t>(part.size())}); };
  add(footer.substr(0, position));
  add("00000000");
  add(footer.substr(position + 8));
  return sum.value();
}

template <class T>
T little_endian(char const* bytes) noexcept {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  return value;
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
  bool is_ours = false;           // written by parquet_writer
  std::uint32_t fingerprint = 0;  // of the file's size and footer
};

// Reads a footer with what protects it. @throws tessera::error corrupt_file, incompatible for an encrypted file, io_error.
inline parquet_footer read_parquet_footer(arrow::io::RandomAccessFile& file, std::string const& path, arrow::MemoryPool* pool) {
  auto const refuse = [&](char const* sentence) { throw error(errc::corrupt_file, sentence, {{"file", path}}); };
  auto const size = file.GetSize();
  if (!size.ok()) throw_io_error("cannot inspect file", path, size.status().message());
  if (*size < parquet_tail + 4) refuse("parquet: too short to be a Parquet file");
  std::string end;
  auto const read_end = [&](std::int64_t bytes) {
    end.resize(static_cast<std::size_t>(bytes));
    read_source(file, path, *size - bytes, {end.data(), bytes});
  };
  read_end(std::min<std::int64_t>(*size, 1 << 16));
  auto const magic = std::string_view(end).substr(end.size() - 4);
  if (magic == "PARE") throw error(errc::incompatible, "parquet: the file is encrypted", {{"file", path}});
  if (magic != parquet_magic) refuse("parquet: not a Parquet file, or a truncated one");
  std::int64_t const length = little_endian<std::uint32_t>(end.data() + end.size() - parquet_tail);
  auto const footer_bytes = length + parquet_tail;
  if (length == 0 || footer_bytes + 4 > *size) refuse("parquet: the footer's length is no length");
  if (footer_bytes > static_cast<std::int64_t>(end.size())) read_end(footer_bytes);
  auto const footer = std::string_view(end).substr(end.size() - static_cast<std::size_t>(footer_bytes));

  parquet_footer result;
  arrow_call(
      errc::corrupt_file, "parquet: a footer that cannot be read",
      [&] {
        return std::vector<error_value>{{"file", path}};
      },
      [&] { result.metadata = parse_parquet_footer(footer.data(), length, pool); });
  result.is_ours = result.metadata->created_by().starts_with(parquet_application);
  if (result.is_ours) {
    auto const& pairs = result.metadata->key_value_metadata();
    auto const found = pairs == nullptr ? -1 : pairs->FindKey(parquet_sums_key);
    auto const sums = found < 0 ? std::string() : pairs->value(found);
    auto const position = sums.size() == parquet_sums(0, 0).size() ? footer_sum_position(footer, sums) : std::string_view::npos;
    if (position == std::string_view::npos) refuse("parquet: the checksums are missing");
    if (eight_digits(footer_sum(footer, position)) != footer.substr(position, 8)) refuse("parquet: the footer is altered");
  }

  crc32_sum sum;
  sum.update({reinterpret_cast<char const*>(&*size), sizeof(*size)});
  sum.update({footer.data(), footer_bytes});
  result.fingerprint = sum.value();
  return result;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
