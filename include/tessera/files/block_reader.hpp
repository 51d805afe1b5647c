// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Whole lines of a file, as raw bytes with their newlines.
struct line_block {
  vector_view<char const> text;  ///< (bytes,) in the buffer that was passed to `read`
  std::int64_t offset = 0;       ///< of the first byte, in the file
};

/// A text file, cut into blocks of whole lines that can be read in any order.
///
/// Block b holds the lines whose first byte is in [b * block_bytes, (b + 1) * block_bytes). So the blocks in order are the file, and a line
/// of any length belongs to one block. A block inside a long line is empty. A line ends after a newline or at the end of the file; a
/// carriage return is a byte like others. The file's length is that at the time of opening. Blocks are read with pread, so that a file that
/// is cut meanwhile is an error, not a signal. Threads may read through one object at once, each into a buffer of its own.
class line_blocks {
 public:
  /// How far a line may reach past its block. A longer line is refused as something else than text.
  static constexpr std::int64_t longest_overhang_bytes = std::int64_t{1} << 26;

  /// @throws tessera::error invalid_argument unless block_bytes >= 1; io_error for a file that cannot be opened.
  line_blocks(std::string path, std::int64_t block_bytes)
      : file_(posix_file::open(std::move(path))), file_bytes_(file_.size()), block_bytes_(block_bytes) {
    if (block_bytes < 1)
      throw error(errc::invalid_argument, "line_blocks: block size", {{"file", file_.path()}, {"block_bytes", block_bytes}});
  }

  std::string const& path() const noexcept { return file_.path(); }
  /// The length of the file when it was opened.
  std::int64_t file_bytes() const noexcept { return file_bytes_; }
  /// The length of a block.
  std::int64_t block_bytes() const noexcept { return block_bytes_; }
  /// The number of blocks; 0 for an empty file.
  std::int64_t block_count() const noexcept { return divide_up(file_bytes_, block_bytes_); }

  /// Reads block `block`. The text is in `storage`, which grows to block_bytes() and a little, and further only for a long line.
  /// @throws tessera::error out_of_range for a block past the last; io_error; corrupt_file when the file has become shorter. parse_error
  /// for a line that reaches more than `longest_overhang_bytes` past its block. The values name file and offset.
  line_block read(host_exec const& exec, std::int64_t block, buffer<char>& storage) const {
    if (block < 0 || block >= block_count())
      throw error(errc::out_of_range, "line_blocks: no such block", {{"file", path()}, {"block", block}, {"blocks", block_count()}});
    auto const first = block * block_bytes_;
    auto const last = file_bytes_ - first > block_bytes_ ? first + block_bytes_ : file_bytes_;
    auto const start = first == 0 ? 0 : first - 1;  // whether a line begins at `first` depends on the byte before
    auto const longest = file_bytes_ - start;
    auto held = std::min(std::min(block_bytes_, file_bytes_) + 1 + overhang_bytes, longest);
    storage.resize(exec, std::min(block_bytes_, file_bytes_) + 1 + overhang_bytes);
    read_fully(exec, start, storage.view().slice(0, held));

    std::int64_t text_begin = 0;
    if (first != 0) {
      text_begin = after_newline(storage, 0, last - 1 - start);
      if (text_begin < 0) return {{storage.data(), 0}, first};  // no line begins here
    }
    auto text_end = after_newline(storage, last - 1 - start, held);
    while (text_end < 0 && held < longest) {
      auto const more = std::min(held, longest - held);
      if (start + held - last > longest_overhang_bytes) {
        auto line = last - 1 - start;
        while (line > text_begin && storage[line - 1] != '\n') --line;
        throw error(errc::parse_error, "line_blocks: a line that long is no text",
                    {{"file", path()}, {"offset", start + line}, {"bytes", "more than " + std::to_string(held - line)}});
      }
      grow(exec, storage, held, held + more);
      read_fully(exec, start + held, storage.view().slice(held, more));
      text_end = after_newline(storage, held, held + more);
      held += more;
    }
    if (text_end < 0) text_end = longest;  // the last line has no newline
    return {{storage.data() + text_begin, text_end - text_begin}, start + text_begin};
  }

  /// How many lines end before byte `offset`; the line that holds the byte is the next. It reads the whole file up to there, for error
  /// messages.
  std::int64_t count_lines_before(std::int64_t offset) const {
    std::vector<char> piece(static_cast<std::size_t>(std::clamp<std::int64_t>(offset, 0, std::int64_t{1} << 18)));
    std::int64_t lines = 0;
    for (std::int64_t position = 0; position < offset;) {
      auto const wanted = std::min(offset - position, static_cast<std::int64_t>(piece.size()));
      auto const found = file_.read_at(position, {piece.data(), wanted});
      lines += std::count(piece.data(), piece.data() + found, '\n');
      if (found < wanted) break;
      position += found;
    }
    return lines;
  }

 private:
  // Read past every block, so that its last line takes no second read.
  static constexpr std::int64_t overhang_bytes = 4096;
  static constexpr std::int64_t bytes_a_read = std::int64_t{1} << 19;

  // Where the first newline of storage[first, last) ends, or -1.
  static std::int64_t after_newline(buffer<char> const& storage, std::int64_t first, std::int64_t last) noexcept {
    if (first >= last) return -1;
    auto const* const found = std::memchr(storage.data() + first, '\n', static_cast<std::size_t>(last - first));
    return found == nullptr ? -1 : static_cast<char const*>(found) - storage.data() + 1;
  }

  static void grow(host_exec const& exec, buffer<char>& storage, std::int64_t kept, std::int64_t size) {
    buffer<char> larger(exec, size);
    std::memcpy(larger.data(), storage.data(), static_cast<std::size_t>(kept));
    storage = std::move(larger);
  }

  void read_fully(host_exec const& exec, std::int64_t offset, vector_view<char> out) const {
    for_each_piece(exec, out.size(), bytes_a_read, [&](std::int64_t first, std::int64_t last) {
      auto const found = file_.read_at(offset + first, out.slice(first, last - first));
      if (found < last - first)
        throw error(errc::corrupt_file, "line_blocks: the file became shorter while it was read",
                    {{"file", path()}, {"offset", offset + first}, {"expected", file_bytes_}, {"found", offset + first + found}});
    });
  }

  posix_file file_;
  std::int64_t file_bytes_;
  std::int64_t block_bytes_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
