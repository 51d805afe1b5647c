// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <arrow/io/interfaces.h>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/data/parquet_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Counts the bytes that are read from files, and limits their rate as the link to a remote store does. Any number of threads may use a meter.
/// A meter must outlive the files that it measures.
class read_meter {
 public:
  /// Makes a meter of a rate in bytes a second, where 0 sets no limit. @throws tessera::error invalid_argument for a negative rate.
  explicit read_meter(std::int64_t bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {
    if (bytes_per_second < 0) throw error(errc::invalid_argument, "read_meter: bytes a second", {{"bytes_per_second", bytes_per_second}});
  }

  /// Returns the bytes read so far.
  std::int64_t bytes() const noexcept { return bytes_; }
  /// Returns the reads so far.
  std::int64_t reads() const noexcept { return reads_; }

  /// Counts a read of so many bytes, and waits until the link has let them through. Reads at the same time share the rate.
  void pass(std::int64_t bytes) {
    bytes_ += bytes;
    ++reads_;
    if (bytes_per_second_ == 0) return;
    auto const time = std::chrono::duration_cast<clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
    clock::time_point over;
    {
      std::lock_guard const lock(mutex_);
      over = free_ = std::max(free_, clock::now()) + time;
    }
    std::this_thread::sleep_until(over);
  }

 private:
  using clock = std::chrono::steady_clock;

  std::int64_t bytes_per_second_;
  std::atomic<std::int64_t> bytes_ = 0, reads_ = 0;
  std::mutex mutex_;
  clock::time_point free_{};  // when all that was asked for has passed
};

namespace detail {

class metered_source final : public arrow_source {
 public:
  metered_source(std::shared_ptr<arrow::io::RandomAccessFile> file, read_meter& meter) : file_(std::move(file)), meter_(meter) {}

  arrow::Result<std::int64_t> GetSize() override { return file_->GetSize(); }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override {
    auto read = file_->ReadAt(position, bytes, out);
    if (read.ok()) meter_.pass(*read);
    return read;
  }
  arrow_bytes ReadAt(std::int64_t position, std::int64_t bytes) override {
    auto read = file_->ReadAt(position, bytes);
    if (read.ok()) meter_.pass((*read)->size());
    return read;
  }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  read_meter& meter_;
};

}  // namespace detail

/// Returns a function that opens files behind a meter, for `parquet_log_options::open`. Without `open` the files are those of this machine.
/// @pre `meter` outlives the function and the files.
inline parquet_open metered(read_meter& meter, parquet_open open = {}) {
  return [&meter, open = std::move(open)](std::string const& path) -> std::shared_ptr<arrow::io::RandomAccessFile> {
    return std::make_shared<detail::metered_source>(detail::open_source(open, path, arrow::default_memory_pool()), meter);
  };
}

}  // namespace TESSERA_ABI
}  // namespace tessera
