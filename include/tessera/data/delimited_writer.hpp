// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_parser.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/files/posix_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// What a value, or an id of a list, takes at most.
inline constexpr std::int64_t longest_value = 24;

inline char* print_integer(std::int64_t value, char* out) noexcept { return std::to_chars(out, out + longest_value, value).ptr; }

// As few digits as read back the same; whole numbers without an exponent.
inline char* print_number(float value, char* out) noexcept {
  constexpr float most = 1e15F;
  if (std::trunc(value) != value || std::abs(value) > most) return std::to_chars(out, out + longest_value, value).ptr;
  if (std::signbit(value)) *out++ = '-';
  return print_integer(static_cast<std::int64_t>(std::abs(value)), out);
}

// Eight digits, or sixteen.
inline char* print_hexadecimal(std::int64_t value, char* out) noexcept {
  for (int shift = value >> 32 == 0 ? 28 : 60; shift >= 0; shift -= 4) *out++ = "0123456789abcdef"[value >> shift & 15];
  return out;
}

}  // namespace detail

/// Writes samples as text. @post `delimited_log` reads the same samples back, with the same schema and layout.
///
/// A number has as few digits as read back the same. A hexadecimal id has 8 or 16 digits. A missing value is an empty field, and so is a
/// field that the schema does not name. With a header, a file has the label, other labels, weight, session, time, dense and sparse columns
/// in that order. A file of any length is written block by block, with memory for the text of some thousand samples. Move-only.
class delimited_writer {
 public:
  /// Creates the file; an old file of that name loses its contents.
  /// @throws tessera::error io_error. incompatible for a column of the schema that has no field, or two. invalid_argument as `check_schema`
  /// and `check_layout`, and where one of these holds. The ids of a column are always hashed. A list column is dense, too. Numbers are made
  /// of a separator. A name ends a line, or needs quotes where the layout has none.
  delimited_writer(std::string path, sample_schema schema, delimited_layout layout);

  /// Writes samples behind those before. After an exception, some samples of the call may stand in the file.
  /// @throws tessera::error io_error. shape_mismatch for samples of other columns. invalid_argument naming row, field and value, for a
  /// value that has no text, or whose text means that it is missing.
  void append(host_exec const& exec, sample_columns_view samples);

  /// Closes the file, and reports what the system could not write. @throws tessera::error io_error.
  void close() { file_.close(); }

 private:
  using number = detail::field_use::number_kind;
  using integer = detail::field_use::integer_kind;

  static constexpr std::int64_t rows_per_piece = 512;
  static constexpr std::int64_t pieces_per_write = 32;
  static constexpr std::int64_t rows_per_write = pieces_per_write * rows_per_piece;

  void check() const;

  std::vector<std::string> names_of_fields() const;

  std::string as_field(std::string const& name) const;

  void append(host_exec const& exec, sample_columns_view samples, std::int64_t first, std::int64_t count);

  char* print_line(sample_columns_view const& samples, std::int64_t row, char* out) const;

  static float number_of(sample_columns_view const& samples, detail::field_use const& use, std::int64_t row) noexcept {
    switch (use.number) {
      case number::label: return samples.labels[row];
      case number::dense: return samples.dense.row(use.number_column)[row];
      case number::weight: return samples.weights[row];
      case number::other_label: return samples.other_labels.row(use.number_column)[row];
      case number::none: break;
    }
    return 0;
  }

  sample_schema schema_;
  delimited_layout layout_;
  detail::delimited_parser fields_;
  posix_file file_;
  buffer<char> text_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/delimited_writer.ipp>
#endif
