// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/properties.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/files/atomic_file.hpp>
#include <tessera/files/checksum.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `parquet_writer`. The defaults make small files of logs in the order of sessions (bench/results/parquet.md).
///
/// Small, large and hashed ids were measured. Level 3 without dictionaries takes 53, 103 and 100 % of the bytes of level 1. Dictionaries
/// take 102, 160 and 128 % of the bytes of none.
struct parquet_writer_options {
  std::int64_t row_group_rows = std::int64_t{1} << 16;   ///< the most samples of a row group
  std::int64_t row_group_bytes = std::int64_t{1} << 27;  ///< of values, the most of a row group; one sample may have more
  int zstd_level = 3;                                    ///< 0: not compressed; negative: faster, larger
  std::int64_t page_bytes = std::int64_t{1} << 20;       ///< of values: what is compressed at once
  bool dictionary = false;                               ///< stores each column's distinct values once a row group, while they are few
  std::vector<std::string> other_columns = {};           ///< columns for which the opposite of `dictionary` holds
  arrow::MemoryPool* pool = nullptr;                     ///< of Arrow's own memory; nullptr: its default pool
};

/// What a writer has written.
struct parquet_written {
  std::int64_t rows = 0;
  std::int64_t row_groups = 0;
  std::int64_t value_bytes = 0;  ///< of all values in memory, without offsets
  std::int64_t file_bytes = 0;
};

namespace detail {

// Where Arrow writes. Sums all bytes as they pass, and holds back the footer, which is to have their sum.
class parquet_sink final : public arrow::io::OutputStream {
 public:
  explicit parquet_sink(std::string target) : staged_(std::move(target)), file_(posix_file::create(staged_.path())) {}

  posix_file& file() noexcept { return file_; }
  /// Gives the file its name.
  void commit() {
    file_.close();
    staged_.commit();
  }
  /// Keeps what is written from here on.
  void hold_back() noexcept { holds_back_ = true; }
  void abandon() noexcept { abandoned_ = true; }
  std::string& held_back() noexcept { return held_back_; }
  /// Of all bytes in the file.
  std::uint32_t sum() const noexcept { return sum_.value(); }
  /// What the last failure of `Write` was: Arrow knows only that there was one.
  std::exception_ptr failure() const noexcept { return failure_; }

  arrow::Status Write(void const* data, std::int64_t bytes) override {
    if (abandoned_) return arrow::Status::OK();
    vector_view<char const> const text(static_cast<char const*>(data), bytes);
    try {
      if (holds_back_) {
        held_back_.append(text.data(), static_cast<std::size_t>(bytes));
        return arrow::Status::OK();
      }
      file_.append(text);
      sum_.update(text);
      position_ += bytes;
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("cannot write");
    }
    return arrow::Status::OK();
  }
  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<std::int64_t> Tell() const override { return position_ + static_cast<std::int64_t>(held_back_.size()); }

 private:
  staged_file staged_;
  posix_file file_;
  crc32_sum sum_;
  std::int64_t position_ = 0;
  std::string held_back_;
  std::exception_ptr failure_;
  bool holds_back_ = false, abandoned_ = false;
};

// What the files of all our writers have in common.
inline void set_properties(parquet_writer_options const& options, parquet::WriterProperties::Builder& builder) {
  auto const application = std::string(parquet_application) + std::to_string(TESSERA_VERSION_MAJOR) + "." +
                           std::to_string(TESSERA_VERSION_MINOR) + "." + std::to_string(TESSERA_VERSION_PATCH);
  builder.created_by(application)
      ->memory_pool(options.pool != nullptr ? options.pool : arrow::default_memory_pool())
      ->data_pagesize(options.page_bytes)
      ->write_batch_size(4096)
      ->enable_page_checksum()
      ->disable_write_page_index()
      ->disable_statistics()
      ->set_size_statistics_level(parquet::SizeStatisticsLevel::None);
  if (options.zstd_level != 0) builder.compression(parquet::Compression::ZSTD)->compression_level(options.zstd_level);
  options.dictionary ? builder.enable_dictionary() : builder.disable_dictionary();
}

// Calls close(key-value pairs), gives the footer that this writes its checksums, and the file its name. Returns the file's bytes.
template <class Close>
std::int64_t seal_parquet(parquet_sink& sink, std::string const& path, Close const& close) {
  sink.hold_back();
  auto const blank = parquet_sums(0, 0);
  close(arrow::KeyValueMetadata::Make({parquet_sums_key}, {blank}));
  auto& text = sink.held_back();  // perhaps with the last row group in front of the footer
  auto const tail = static_cast<std::size_t>(parquet_tail);
  auto const footer_bytes = text.size() < tail ? text.size() : little_endian<std::uint32_t>(text.data() + text.size() - tail) + tail;
  auto const first = text.size() - std::min(text.size(), footer_bytes);
  auto const position = footer_sum_position(std::string_view(text).substr(first), blank);
  if (position == std::string_view::npos)
    throw error(errc::incompatible, "parquet_writer: this Arrow lays out footers otherwise", {{"file", path}});
  crc32_sum data(sink.sum());
  data.update({text.data(), static_cast<std::int64_t>(first)});
  text.replace(first + position + 8 - blank.size(), blank.size(), parquet_sums(data.value(), 0));
  text.replace(first + position, 8, eight_digits(footer_sum(std::string_view(text).substr(first), position)));
  sink.file().append({text.data(), static_cast<std::int64_t>(text.size())});
  auto const bytes = sink.file().size();
  sink.commit();
  return bytes;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
