// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/delimited_writer.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE delimited_writer::delimited_writer(std::string path, sample_schema schema, delimited_layout layout)
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

TESSERA_INLINE void delimited_writer::append(host_exec const& exec, sample_columns_view samples) {
  detail::check_columns("delimited_writer", sample_shape::of(schema_), samples);
  for (std::int64_t first = 0; first < samples.size(); first += rows_per_write)
    append(exec, samples, first, std::min(rows_per_write, samples.size() - first));
}

TESSERA_INLINE void delimited_writer::check() const {
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

TESSERA_INLINE std::vector<std::string> delimited_writer::names_of_fields() const {
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

TESSERA_INLINE std::string delimited_writer::as_field(std::string const& name) const {
  if (name.find(layout_.delimiter) == std::string::npos && name.find('"') == std::string::npos) return name;
  std::string quoted = "\"";
  for (auto const c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

TESSERA_INLINE void delimited_writer::append(host_exec const& exec, sample_columns_view samples, std::int64_t first, std::int64_t count) {
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

TESSERA_INLINE char* delimited_writer::print_line(sample_columns_view const& samples, std::int64_t row, char* out) const {
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

}  // namespace TESSERA_ABI
}  // namespace tessera
