// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/click_statistics.hpp>
#include <tessera/data/criteo_tsv.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/files/block_reader.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

struct click_log_options {
  std::int64_t block_bytes = std::int64_t{1} << 24;  ///< of file text; what is in memory at once, and what is shuffled within
};

/// A data set: the samples of one or more files in Criteo's layout, in their order, cut into blocks that can be read in any order.
///
/// Making it reads and checks every line once, so that a bad one is known before training starts. A sample's id is its row number over
/// all files. Blocks depend on files and block_bytes alone; none is empty. Move-only.
class click_log {
 public:
  /// @throws tessera::error invalid_argument without files or with block_bytes < 1; parse_error for a bad line or an empty file, with
  /// file, line, field and text; io_error for what cannot be read.
  click_log(host_exec const& exec, std::vector<std::string> const& files, click_log_options options = {})
      : click_log(exec, files, nullptr, options) {}

  /// As above; in the same pass adds every sample to `statistics`.
  click_log(host_exec const& exec, std::vector<std::string> const& files, click_statistics& statistics, click_log_options options = {})
      : click_log(exec, files, &statistics, options) {}

  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  /// Samples in a block; the id of its first.
  std::int64_t rows(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].rows; }
  std::int64_t first_row(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].first_row; }
  /// The most samples in any block.
  std::int64_t largest_block_rows() const noexcept { return largest_block_rows_; }

  /// A checksum of all bytes of all files in their order, and of how blocks cut them: other data have, almost surely, another.
  std::uint32_t fingerprint() const noexcept { return fingerprint_.value(); }

  /// Reads a block; `text` holds its bytes meanwhile, whose checksum is compared with that of the first time. Allocates only when a buffer
  /// grows. @throws tessera::error out_of_range for no such block; corrupt_file when its bytes are not what they were; as the constructor.
  void read(host_exec const& exec, std::int64_t block, buffer<char>& text, raw_rows& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "click_log: no such block", {{"block", block}, {"blocks", block_count()}});
    auto const& known = blocks_[static_cast<std::size_t>(block)];
    auto const& file = files_[known.file];
    crc32_sum sum(known.sum_before);
    add_pieces(exec, read_criteo(exec, file, known.block, text, out), sum);
    if (sum.value() == known.sum_behind && out.size() == known.rows) return;
    std::vector<error_value> values{
        {"file", file.path()}, {"block", known.block}, {"checksum", sum.value()}, {"expected checksum", known.sum_behind}};
    if (out.size() != known.rows) {
      values.emplace_back("rows", out.size());
      values.emplace_back("expected rows", known.rows);
    }
    throw error(errc::corrupt_file, "click_log: the file has changed since it was opened", std::move(values));
  }

 private:
  struct place {
    std::size_t file;
    std::int64_t block;  // of the file
    std::int64_t first_row;
    std::int64_t rows;
    std::uint32_t sum_before, sum_behind;  // the fingerprint before the block's bytes, and with them
  };

  click_log(host_exec const& exec, std::vector<std::string> const& files, click_statistics* statistics, click_log_options options) {
    if (files.empty()) throw error(errc::invalid_argument, "click_log: no files");
    buffer<char> text;
    raw_rows rows;
    for (auto const& path : files) {
      auto const& file = files_.emplace_back(path, options.block_bytes);
      if (file.block_count() == 0)
        throw error(errc::parse_error, "click_log: an empty file", {{"file", path}, {"line", 1}, {"field", "label"}, {"text", "\"\""}});
      for (std::int64_t block = 0; block < file.block_count(); ++block) {
        auto const sum_before = fingerprint_.value();
        add_pieces(exec, read_criteo(exec, file, block, text, rows), fingerprint_);
        if (rows.size() == 0) continue;
        if (statistics != nullptr) statistics->add(exec, rows.view());
        blocks_.push_back({files_.size() - 1, block, rows_, rows.size(), sum_before, fingerprint_.value()});
        rows_ += rows.size();
        largest_block_rows_ = std::max(largest_block_rows_, rows.size());
      }
    }
  }

  // Pieces are summed by the team, then the sums in order.
  static void add_pieces(host_exec const& exec, vector_view<char const> text, crc32_sum& sum) {
    constexpr std::int64_t piece = 1 << 18, most_pieces = 64;
    std::array<std::uint32_t, most_pieces> sums;
    for (std::int64_t done = 0; done < text.size(); done += most_pieces * piece) {
      auto const part = text.slice(done, std::min(most_pieces * piece, text.size() - done));
      for_each_piece(exec, part.size(), piece, [&](std::int64_t first, std::int64_t last) {
        sums[static_cast<std::size_t>(first / piece)] = crc32_of(part.slice(first, last - first));
      });
      sum.update(as_bytes(vector_view<std::uint32_t const>(sums.data(), divide_up(part.size(), piece))));
    }
  }

  std::vector<line_blocks> files_;
  std::vector<place> blocks_;
  std::int64_t rows_ = 0;
  std::int64_t largest_block_rows_ = 0;
  crc32_sum fingerprint_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
