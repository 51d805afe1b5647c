// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t longest_criteo_line = 1 + click_layout::integers * 12 + click_layout::categories * 9 + 1;

// Prints one sample; returns where the line ends. Room for the longest line begins at `out`.
inline char* print_criteo_line(raw_rows_view rows, std::int64_t row, char* out) noexcept {
  constexpr char const* digits = "0123456789abcdef";
  *out++ = rows.labels[row] != 0 ? '1' : '0';
  for (std::int64_t i = 0; i < click_layout::integers; ++i) {
    *out++ = '\t';
    auto const value = rows.integers(i, row);
    if (value != click_layout::missing_integer) out = std::to_chars(out, out + 11, value).ptr;
  }
  for (std::int64_t c = 0; c < click_layout::categories; ++c) {
    *out++ = '\t';
    auto const value = rows.categories(c, row);
    if (value == click_layout::missing_category) continue;
    for (int shift = 28; shift >= 0; shift -= 4) *out++ = digits[value >> shift & 15];
  }
  *out++ = '\n';
  return out;
}

}  // namespace detail

/// Writes samples as text in the layout of Criteo's click logs, which `parse_criteo` reads back: categories as eight hexadecimal digits, a
/// missing value as an empty field. A file of any length goes block by block, in memory for a block's text. Move-only.
class criteo_writer {
 public:
  /// Creates the file; an old one loses its contents. @throws tessera::error io_error.
  explicit criteo_writer(std::string path) : file_(posix_file::create(std::move(path))) {}

  /// Writes samples behind those before. @throws tessera::error io_error; invalid_argument for a category beyond 32 bits.
  void append(host_exec const& exec, raw_rows_view rows) {
    for (std::int64_t first = 0; first < rows.size(); first += rows_per_write)
      append(exec, rows, first, std::min(rows_per_write, rows.size() - first));
  }

  /// Closes, and reports what the system could not write. @throws tessera::error io_error.
  void close() { file_.close(); }

 private:
  static constexpr std::int64_t rows_per_piece = 512;
  static constexpr std::int64_t pieces_per_write = 32;
  static constexpr std::int64_t rows_per_write = pieces_per_write * rows_per_piece;

  void append(host_exec const& exec, raw_rows_view rows, std::int64_t first, std::int64_t count) {
    constexpr auto room = rows_per_piece * detail::longest_criteo_line;
    text_.resize(exec, divide_up(count, rows_per_piece) * room);
    std::array<std::int64_t, pieces_per_write> bytes{};
    for_each_piece(exec, count, rows_per_piece, [&](std::int64_t begin, std::int64_t end) {
      auto const piece = begin / rows_per_piece;
      auto* const text = text_.data() + piece * room;
      auto* at = text;
      for (auto row = first + begin; row < first + end; ++row) {
        for (std::int64_t c = 0; c < click_layout::categories; ++c)
          if (auto const value = rows.categories(c, row); value >> 32 != 0 && value != click_layout::missing_category)
            throw error(errc::invalid_argument, "criteo_writer: a category beyond 32 bits",
                        {{"row", row}, {"field", click_layout::category_name(c)}, {"value", value}});
        at = detail::print_criteo_line(rows, row, at);
      }
      bytes[static_cast<std::size_t>(piece)] = at - text;
    });
    std::int64_t used = bytes[0];
    for (std::int64_t piece = 1; piece < divide_up(count, rows_per_piece); ++piece) {
      auto const* const text = text_.data() + piece * room;
      std::copy(text, text + bytes[static_cast<std::size_t>(piece)], text_.data() + used);
      used += bytes[static_cast<std::size_t>(piece)];
    }
    file_.append(std::as_const(text_).view().slice(0, used));
  }

  posix_file file_;
  buffer<char> text_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
