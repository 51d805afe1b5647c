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
  delimited_writer(std::string path, sample_schema schema, delimited_layout layout)
      : schema_(std::move(schema)),
        layout_(std::move(layout)),
        fields_((check(), schema_), layout_, names_of_fields(), path),
        file_(posix_file::create(std::move(path))) {
    if (!layout_.header) return;
    std::string line;
    for (auto const& name : names_of_fields()) line += (line.empty() ? "" : std::string(1, layout_.delimiter)) + as_field(name);
    line += '\n';
    file_.append(vector_view<char const>(line));
  }

  /// Writes samples behind those before. After an exception, some samples of the call may stand in the file.
  /// @throws tessera::error io_error. shape_mismatch for samples of other columns. invalid_argument naming row, field and value, for a
  /// value that has no text, or whose text means that it is missing.
  void append(host_exec const& exec, sample_columns_view samples) {
    detail::check_columns("delimited_writer", sample_shape::of(schema_), samples);
    for (std::int64_t first = 0; first < samples.size(); first += rows_per_write)
      append(exec, samples, first, std::min(rows_per_write, samples.size() - first));
  }

  /// Closes the file, and reports what the system could not write. @throws tessera::error io_error.
  void close() { file_.close(); }

 private:
  using number = detail::field_use::number_kind;
  using integer = detail::field_use::integer_kind;

  static constexpr std::int64_t rows_per_piece = 512;
  static constexpr std::int64_t pieces_per_write = 32;
  static constexpr std::int64_t rows_per_write = pieces_per_write * rows_per_piece;

  void check() const {
    check_schema("delimited_writer", schema_);
    check_layout("delimited_writer", layout_);
    for (auto const c : {layout_.delimiter, layout_.list_separator})
      if (detail::hex_digit[static_cast<unsigned char>(c)] < 16 || c == '+' || c == '-' || c == '.')
        throw error(errc::invalid_argument, "delimited_writer: a separator that numbers are made of", {{"character code", int{c}}});
    for (auto const& column : schema_.sparse) {
      bool const is_dense = std::find(schema_.dense.begin(), schema_.dense.end(), column) != schema_.dense.end();
      if (layout_.format(column) == id_format::text || (is_dense && !schema_.is_single(column)))
        throw error(errc::invalid_argument, "delimited_writer: hashes of texts, or lists that are numbers too", {{"column", column}});
      if (is_dense && layout_.format(column) == id_format::hexadecimal)
        throw error(errc::invalid_argument, "delimited_writer: hexadecimal ids that are numbers too", {{"column", column}});
    }
    if (!layout_.header) return;
    for (auto const& name : names_of_fields())
      if (name.find_first_of("\r\n") != std::string::npos || (!layout_.quotes && as_field(name) != name))
        throw error(errc::invalid_argument, "delimited_writer: a name that cannot be a field", {{"column", name}});
  }

  std::vector<std::string> names_of_fields() const {
    if (!layout_.header) return layout_.columns;
    std::vector<std::string> names{schema_.label};
    auto const add = [&](std::string const& name) {
      if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (auto const& name : schema_.other_labels) add(name);
    for (auto const* name : {&schema_.weight, &schema_.session, &schema_.time}) add(*name);
    for (auto const* columns : {&schema_.dense, &schema_.sparse})
      for (auto const& name : *columns) add(name);
    return names;
  }

  std::string as_field(std::string const& name) const {
    if (name.find(layout_.delimiter) == std::string::npos && name.find('"') == std::string::npos) return name;
    std::string quoted = "\"";
    for (auto const c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + '"';
  }

  void append(host_exec const& exec, sample_columns_view samples, std::int64_t first, std::int64_t count) {
    std::array<std::int64_t, pieces_per_write + 1> starts{};
    std::array<std::int64_t, pieces_per_write> bytes{};
    auto const pieces = divide_up(count, rows_per_piece);
    auto const fields = static_cast<std::int64_t>(fields_.uses().size());
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      auto const begin = first + piece * rows_per_piece, end = std::min(begin + rows_per_piece, first + count);
      auto values = (end - begin) * (fields + 1);
      for (auto const& rows : samples.sparse) values += rows.begin_of(end - 1) + rows.length(end - 1) - rows.begin_of(begin);
      starts[static_cast<std::size_t>(piece) + 1] = starts[static_cast<std::size_t>(piece)] + values * detail::longest_value;
    }
    text_.resize(exec, starts[static_cast<std::size_t>(pieces)]);
    for_each_piece(exec, count, rows_per_piece, [&](std::int64_t begin, std::int64_t end) {
      auto const piece = static_cast<std::size_t>(begin / rows_per_piece);
      auto* const text = text_.data() + starts[piece];
      auto* at = text;
      for (auto row = first + begin; row < first + end; ++row) at = print_line(samples, row, at);
      bytes[piece] = at - text;
    });
    auto used = bytes[0];
    for (std::size_t piece = 1; piece < static_cast<std::size_t>(pieces); ++piece) {
      std::copy_n(text_.data() + starts[piece], bytes[piece], text_.data() + used);
      used += bytes[piece];
    }
    file_.append(std::as_const(text_).view().slice(0, used));
  }

  char* print_line(sample_columns_view const& samples, std::int64_t row, char* out) const {
    for (std::size_t f = 0; f < fields_.uses().size(); ++f) {
      if (f > 0) *out++ = layout_.delimiter;
      auto const& use = fields_.uses()[f];
      auto const refuse = [&](char const* what, auto value) {
        throw error(errc::invalid_argument, std::string("delimited_writer: ") + what,
                    {{"row", row}, {"field", fields_.names()[f]}, {"value", value}});
      };
      auto const print = [&](auto const& printed) {
        auto* const end = printed(out);
        if (fields_.is_missing({out, static_cast<std::size_t>(end - out)}))
          refuse("a value whose text says that it is missing", std::string(out, end));
        out = end;
      };
      auto const print_id = [&](std::int64_t id) {
        bool const hexadecimal = use.format == id_format::hexadecimal;
        if (hexadecimal ? id < 0 : id == missing_id) refuse("an id that has no text", id);
        print([&](char* at) { return hexadecimal ? detail::print_hexadecimal(id, at) : detail::print_integer(id, at); });
      };
      auto const value = number_of(samples, use, row);
      if (use.number != number::none && (std::isinf(value) || (std::isnan(value) && use.number != number::dense)))
        refuse("a number that has no text", value);
      if (layout_.binary_labels && use.number == number::label && value != 0 && value != 1) refuse("a label is neither 0 nor 1", value);
      switch (use.integer) {
        case integer::none:
          if (use.number != number::none && !std::isnan(value)) print([&](char* at) { return detail::print_number(value, at); });
          break;
        case integer::session: print([&](char* at) { return detail::print_integer(samples.sessions[row], at); }); break;
        case integer::time: print([&](char* at) { return detail::print_integer(samples.times[row], at); }); break;
        case integer::single: {
          auto const id = samples.sparse[use.integer_column].row(row)[0];
          bool const missing = id == missing_id;
          // Of a column that is dense too there is one text.
          if (use.number != number::none && (missing ? !std::isnan(value) : static_cast<float>(id) != value))
            refuse("a number and an id of one field that differ", value);
          if (!missing) print_id(id);
          break;
        }
        case integer::list: {
          auto const ids = samples.sparse[use.integer_column].row(row);
          for (std::int64_t i = 0; i < ids.size(); ++i) {
            if (i > 0) *out++ = layout_.list_separator;
            print_id(ids[i]);
          }
          break;
        }
      }
    }
    *out++ = '\n';
    return out;
  }

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
