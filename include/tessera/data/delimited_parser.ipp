// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/delimited_parser.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE delimited_parser::delimited_parser(sample_schema const& schema, delimited_layout const& layout,
                                                  std::vector<std::string> fields, std::string_view file)
    : delimiter_(layout.delimiter),
      quotes_(layout.quotes),
      list_separator_(layout.list_separator),
      missing_(layout.missing),
      binary_labels_(layout.binary_labels),
      fields_(std::move(fields)),
      uses_(fields_.size()) {
  using number = field_use::number_kind;
  using integer = field_use::integer_kind;
  auto const of = [&](std::string const& column) -> field_use& { return uses_[find(column, file)]; };
  auto const use_numbers = [&](std::vector<std::string> const& columns, number kind) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      auto& use = of(columns[c]);
      use.number = kind;
      use.number_column = static_cast<std::int64_t>(c);
    }
  };
  use_numbers({schema.label}, number::label);
  use_numbers(schema.dense, number::dense);
  use_numbers(schema.other_labels, number::other_label);
  if (!schema.weight.empty()) of(schema.weight).number = number::weight;
  if (!schema.session.empty()) of(schema.session).integer = integer::session;
  if (!schema.time.empty()) of(schema.time).integer = integer::time;
  for (std::size_t c = 0; c < schema.sparse.size(); ++c) {
    auto& use = of(schema.sparse[c]);
    use.integer = schema.is_single(schema.sparse[c]) ? integer::single : integer::list;
    use.integer_column = static_cast<std::int64_t>(c);
    use.format = layout.format(schema.sparse[c]);
    has_lists_ |= use.integer == integer::list;
  }
  is_criteo_ = delimiter_ == '\t' && !quotes_ && !layout.header && missing_.empty() && has_criteo_uses();
}

TESSERA_INLINE std::int64_t delimited_parser::parse(host_exec const& exec, vector_view<char const> text, sample_columns& out) const {
  constexpr std::int64_t least_piece_bytes = 1 << 16;
  auto const piece_bytes = std::max(least_piece_bytes, divide_up(text.size(), most_pieces));
  auto const pieces = divide_up(text.size(), piece_bytes);
  auto const lines_of = [&](std::int64_t p) {
    return lines_beginning_in(text, p * piece_bytes, std::min((p + 1) * piece_bytes, text.size()));
  };
  std::array<std::int64_t, most_pieces + 1> first_row{};
  exec.run(pieces, [&](std::int64_t p) {
    auto const lines = lines_of(p);
    bool const unfinished = !lines.empty() && lines[lines.size() - 1] != '\n';
    first_row[static_cast<std::size_t>(p + 1)] = count_newlines(lines) + unfinished;
  });
  for (std::size_t p = 0; p < static_cast<std::size_t>(pieces); ++p) first_row[p + 1] += first_row[p];
  out.clear();
  out.resize(exec, first_row[static_cast<std::size_t>(pieces)]);
  if (has_lists_)
    measure_lists(
        exec, pieces,
        [&](std::int64_t p) {
          count_ids(lines_of(p), first_row[static_cast<std::size_t>(p)], first_row[static_cast<std::size_t>(p + 1)], out);
        },
        out);

  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first_bad{none};
  auto const places = places_in(exec, out);
  exec.run(pieces, [&](std::int64_t p) {
    auto const* const bad =
        parse_piece(text, lines_of(p), first_row[static_cast<std::size_t>(p)], first_row[static_cast<std::size_t>(p + 1)], places);
    if (bad == nullptr) return;
    auto const offset = bad - text.data();
    for (auto seen = first_bad.load(); offset < seen && !first_bad.compare_exchange_weak(seen, offset);) {
    }
  });
  auto const bad = first_bad.load();
  return bad == none ? -1 : bad;
}

TESSERA_INLINE void delimited_parser::throw_bad_line(vector_view<char const> text, std::int64_t offset, std::string_view file,
                                                     std::int64_t line_number) const {
  std::string_view line(text.data() + offset, static_cast<std::size_t>(text.size() - offset));
  line = line.substr(0, line.find('\n'));
  auto const walk = [&](auto const& f) {
    delimited_lines lines(line.data(), line.data() + line.size(), delimiter_, quotes_);
    return lines.next(field_count(), f);
  };
  // First whether the fields are as many as there are columns: a value in a wrong place says less.
  std::size_t field = 0;
  std::string bad(line.substr(0, line.size() - line.ends_with('\r')));
  auto const* wrong = walk([&](std::int64_t, std::string_view) -> char const* { return ++field, nullptr; });
  if (wrong == nullptr) {
    std::vector<std::int64_t> ids(line.size() + 1);
    std::int64_t const begin = 0;
    float number = 0;
    wrong = walk([&](std::int64_t f, std::string_view found) {
      field = static_cast<std::size_t>(f);
      bad = found;
      return read_field(uses_[field], {{&number, ids.data()}, &begin}, 0, found);
    });
  }
  throw error(errc::parse_error, std::string("delimited_log: ") + (wrong == nullptr ? "not a sample" : wrong),
              {{"file", file},
               {"line", line_number},
               {"field", field < fields_.size() ? fields_[field] : "field " + std::to_string(field + 1)},
               {"text", printable(bad)}});
}

TESSERA_INLINE std::size_t delimited_parser::find(std::string const& column, std::string_view file) const {
  auto const found = std::find(fields_.begin(), fields_.end(), column);
  auto const refuse = [&](char const* what) {
    std::string all;
    for (auto const& name : fields_) all += (all.empty() ? "" : ", ") + name;
    throw error(errc::incompatible, what, {{"file", file}, {"column", column}, {"columns", all}});
  };
  if (found == fields_.end()) refuse("delimited_log: no such column");
  if (std::find(found + 1, fields_.end(), column) != fields_.end()) refuse("delimited_log: two fields of one name");
  return static_cast<std::size_t>(found - fields_.begin());
}

TESSERA_INLINE bool delimited_parser::has_criteo_uses() const {
  using number = field_use::number_kind;
  using integer = field_use::integer_kind;
  if (field_count() != criteo_line_group::fields || uses_[0].number != number::label) return false;
  auto const is_simple = [](field_use const& use) {
    return (use.number == number::none || use.number == number::dense) && (use.integer == integer::none || use.integer == integer::single);
  };
  for (std::size_t f = 1; f < uses_.size(); ++f) {
    auto const& use = uses_[f];
    bool const has_ids = use.integer != integer::none;
    bool const is_integer = f <= static_cast<std::size_t>(criteo_line_group::integers);
    if (!is_simple(use)) return false;
    if (is_integer && has_ids && use.format != id_format::automatic && use.format != id_format::decimal) return false;
    if (!is_integer && (use.number != number::none || (has_ids && use.format != id_format::hexadecimal))) return false;
  }
  return true;
}

TESSERA_INLINE std::vector<field_place> delimited_parser::places_in(host_exec const& exec, sample_columns& out) const {
  using number = field_use::number_kind;
  using integer = field_use::integer_kind;
  std::vector<field_place> places;
  for (auto const& use : uses_) {
    auto& place = places.emplace_back();
    switch (use.number) {
      case number::none: break;
      case number::label: place.values.number = out.labels().data(); break;
      case number::dense: place.values.number = out.dense().row(use.number_column); break;
      case number::weight: place.values.number = out.weights().data(); break;
      case number::other_label: place.values.number = out.other_labels().row(use.number_column); break;
    }
    switch (use.integer) {
      case integer::none: break;
      case integer::session: place.values.id = out.sessions().data(); break;
      case integer::time: place.values.id = out.times().data(); break;
      case integer::single: place.values.id = out.single_ids(use.integer_column).data(); break;
      case integer::list:
        place.values.id = out.ids(exec, use.integer_column).data();
        place.offsets = out.offsets(use.integer_column).data();
        break;
    }
  }
  return places;
}

TESSERA_INLINE void delimited_parser::count_ids(vector_view<char const> text, std::int64_t first, std::int64_t last,
                                                sample_columns& out) const {
  for (auto const& use : uses_)
    if (use.integer == field_use::integer_kind::list) std::fill_n(out.offsets(use.integer_column).data() + first + 1, last - first, 0);
  delimited_lines lines(text.begin(), text.end(), delimiter_, quotes_);
  for (auto row = first; row < last; ++row) {
    auto const* const wrong = lines.next(field_count(), [&](std::int64_t f, std::string_view found) -> char const* {
      auto const& use = uses_[static_cast<std::size_t>(f)];
      if (use.integer == field_use::integer_kind::list && !is_missing(found))
        out.offsets(use.integer_column)[row + 1] = 1 + std::count(found.begin(), found.end(), list_separator_);
      return nullptr;
    });
    if (wrong != nullptr) return;
  }
}

TESSERA_INLINE char const* delimited_parser::parse_piece(vector_view<char const> text, vector_view<char const> piece, std::int64_t row,
                                                         std::int64_t last_row, std::vector<field_place> const& places) const {
  delimited_lines lines(piece.begin(), piece.end(), delimiter_, quotes_);
  auto const parse_line = [&] {
    return lines.next(field_count(), [&](std::int64_t f, std::string_view found) {
      auto const field = static_cast<std::size_t>(f);
      return read_field(uses_[field], places[field], row, found);
    });
  };
  if (is_criteo_) return parse_criteo_piece(text, piece, lines, row, last_row, places, parse_line);
  for (; row < last_row; ++row) {
    auto const* const begin = lines.at();
    if (parse_line() != nullptr) return begin;
  }
  return nullptr;
}

TESSERA_INLINE char const* delimited_parser::read_field(field_use const& use, field_place const& place, std::int64_t row,
                                                        std::string_view text) const noexcept {
  using integer = field_use::integer_kind;
  if (use.is_skipped()) return nullptr;
  auto const [number, ids] = place.values;
  bool const has_number = use.number != field_use::number_kind::none;
  if (is_missing(text)) {
    if (!use.may_miss()) return "a value is missing";
    if (has_number) number[row] = std::numeric_limits<float>::quiet_NaN();
    if (use.integer == integer::single) ids[row] = missing_id;
    return nullptr;
  }
  if (has_number)
    if (auto const* const wrong = read_number(text, number[row])) return wrong;
  if (has_number && !use.may_miss() && std::isnan(number[row])) return "a value is missing";
  if (binary_labels_ && use.number == field_use::number_kind::label && number[row] != 0 && number[row] != 1)
    return "a label is neither 0 nor 1";
  switch (use.integer) {
    case integer::none: return nullptr;
    case integer::session:
      if (read_integer(text, ids[row]) != nullptr) ids[row] = hash_text(text);
      return nullptr;
    case integer::time: return read_integer(text, ids[row]);
    case integer::single: return read_id(text, use.format, ids[row]);
    case integer::list: break;
  }
  for (auto* id = ids + place.offsets[row];; ++id) {
    auto const end = text.find(list_separator_);
    auto const one = text.substr(0, end);
    if (is_missing(one)) return "an id of a list is missing";
    if (auto const* const wrong = read_id(one, use.format, *id)) return wrong;
    if (end == std::string_view::npos) return nullptr;
    text.remove_prefix(end + 1);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
