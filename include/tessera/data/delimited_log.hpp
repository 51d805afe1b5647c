// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_text.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/files/block_reader.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/checksum.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `delimited_log`.
struct delimited_log_options {
  std::int64_t block_bytes = std::int64_t{1} << 24;  ///< of file text in a block, about; at least 1
};

/// The samples of one or more text files of one layout as a data set, in the files' order. Blocks can be read in any order.
///
/// The constructor reads and checks every line once, so that a bad line is known before training starts. A sample's id is its row number
/// over all files. Blocks depend on files and `block_bytes` alone; no block is empty. Threads may read through one object at once.
/// Move-only.
///
/// How a line is read:
/// - A line has as many fields as its file has columns, and ends in "\n" or "\r\n". The last line may end with the file. Only fields that
///   the schema names are read.
/// - An empty field is a missing value, and so is each text that the layout's `missing` lists. A missing value is NaN in a dense column,
///   `missing_id` in a column of single ids, and an empty list in any other.
/// - A missing label, session, time or weight is refused, and so is a missing id within a list.
/// - A number is written as C++ writes one, with '.' in every locale. "nan" says that it is missing, and an infinite number is refused.
/// - A time is a decimal integer of 64 bits, and so is a session; of other text a session is the `hash_text`. An id is what the layout's
///   `id_format` says. The ids of a list stand between `list_separator`.
class delimited_log {
 public:
  /// Opens the files and reads every line once.
  /// @throws tessera::error io_error for what cannot be read. parse_error for a bad line or an empty file, naming file, line, field and
  /// text. incompatible for a column that a file lacks or has twice, naming file, column and the file's columns. invalid_argument without
  /// files, for block_bytes below 1, and as `check_schema` and `check_layout`.
  delimited_log(host_exec const& exec, std::vector<std::string> const& files, sample_schema schema, delimited_layout const& layout,
                delimited_log_options options = {})
      : delimited_log(
            exec, files, std::move(schema), layout, [](sample_columns_view) {}, options) {}

  /// Does the same, and calls visit(sample_columns_view) with the samples of each block in order. The samples are shown until `visit`
  /// returns.
  template <std::invocable<sample_columns_view> Visit>
  delimited_log(host_exec const& exec, std::vector<std::string> const& files, sample_schema schema, delimited_layout const& layout,
                Visit const& visit, delimited_log_options options = {})
      : schema_(std::move(schema)) {
    check_schema("delimited_log", schema_);
    check_layout("delimited_log", layout);
    if (files.empty()) throw error(errc::invalid_argument, "delimited_log: no files");
    sample_columns samples(schema_);
    for (auto const& path : files) {
      add(exec, line_blocks(path, options.block_bytes), layout, samples);
      auto const& file = files_.back();
      for (std::int64_t block = 0; block < file.lines.block_count(); ++block) {
        place found{files_.size() - 1, block, rows_, 0, fingerprint_.value(), 0};
        auto const text = file.lines.read(exec, block, samples.scratch());
        add_pieces(exec, text.text, fingerprint_);
        parse(exec, file, text, samples);
        if (samples.size() == 0) continue;
        found.rows = samples.size();
        found.sum_behind = fingerprint_.value();
        blocks_.push_back(found);
        rows_ += samples.size();
        visit(std::as_const(samples).view());
      }
    }
  }

  sample_schema const& schema() const noexcept { return schema_; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return static_cast<std::int64_t>(blocks_.size()); }
  /// How many samples a block has, at least one. @pre 0 <= block < block_count(), here and below.
  std::int64_t rows(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].rows; }
  /// The id of a block's first sample.
  std::int64_t first_row(std::int64_t block) const noexcept { return blocks_[static_cast<std::size_t>(block)].first_row; }
  /// The path of the file that has a block.
  std::string const& file_of(std::int64_t block) const noexcept {
    return files_[blocks_[static_cast<std::size_t>(block)].file].lines.path();
  }

  /// A checksum of all bytes of all files in their order, and of where blocks end. Other data have another fingerprint, almost surely.
  std::uint32_t fingerprint() const noexcept { return fingerprint_.value(); }

  /// `out` becomes the samples of a block. `out.scratch()` holds the text meanwhile, and its checksum is compared with that of the first
  /// reading. The call allocates only when a buffer grows.
  /// @throws tessera::error out_of_range naming a block that is not there; corrupt_file naming file and block, when bytes have changed;
  /// io_error.
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "delimited_log: no such block", {{"block", block}, {"blocks", block_count()}});
    auto const& known = blocks_[static_cast<std::size_t>(block)];
    auto const& file = files_[known.file];
    if (!out.has_columns_of(schema_)) out = sample_columns(schema_);
    auto const text = file.lines.read(exec, known.block, out.scratch());
    crc32_sum sum(known.sum_before);
    add_pieces(exec, text.text, sum);
    if (sum.value() != known.sum_behind)
      throw error(
          errc::corrupt_file, "delimited_log: the file has changed since it was opened",
          {{"file", file.lines.path()}, {"block", known.block}, {"checksum", sum.value()}, {"expected checksum", known.sum_behind}});
    parse(exec, file, text, out);
  }

 private:
  struct text_file {
    line_blocks lines;
    detail::opened_text opened;
  };
  struct place {
    std::size_t file;
    std::int64_t block;  // of the file
    std::int64_t first_row;
    std::int64_t rows;
    std::uint32_t sum_before, sum_behind;  // the fingerprint before the block's bytes, and with them
  };

  void add(host_exec const& exec, line_blocks lines, delimited_layout const& layout, sample_columns& samples) {
    if (lines.block_count() == 0)
      throw error(errc::parse_error, "delimited_log: an empty file",
                  {{"file", lines.path()}, {"line", 1}, {"field", layout.header ? "header" : layout.columns.front()}, {"text", "\"\""}});
    auto const first = layout.header ? lines.read(exec, 0, samples.scratch()) : line_block{};
    auto opened = detail::open_text(first.text, lines.path(), schema_, layout);
    files_.push_back({std::move(lines), std::move(opened)});
  }

  static void parse(host_exec const& exec, text_file const& file, line_block block, sample_columns& out) {
    auto const skipped = block.offset == 0 ? file.opened.skipped(block.text) : 0;
    auto const text = block.text.slice(skipped, block.text.size() - skipped);
    auto const bad = file.opened.parser.parse(exec, text, out);
    if (bad >= 0)
      file.opened.parser.throw_bad_line(text, bad, file.lines.path(), file.lines.count_lines_before(block.offset + skipped + bad) + 1);
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

  sample_schema schema_;
  std::vector<text_file> files_;
  std::vector<place> blocks_;
  std::int64_t rows_ = 0;
  crc32_sum fingerprint_;
};
static_assert(fingerprinted_source<delimited_log>);

}  // namespace TESSERA_ABI
}  // namespace tessera
