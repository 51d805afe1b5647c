// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/criteo_lines.hpp>
#include <tessera/data/delimited_fields.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/separators.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// What becomes of a field: a number, and an integer or an id or a list of ids.
struct field_use {
  enum class number_kind : std::uint8_t { none, label, dense, weight, other_label };
  enum class integer_kind : std::uint8_t { none, session, time, single, list };

  number_kind number = number_kind::none;
  integer_kind integer = integer_kind::none;
  id_format format = id_format::automatic;
  std::int64_t number_column = 0, integer_column = 0;

  bool is_skipped() const noexcept { return number == number_kind::none && integer == integer_kind::none; }
  bool may_miss() const noexcept {
    return (number == number_kind::none || number == number_kind::dense) && integer != integer_kind::session &&
           integer != integer_kind::time;
  }
};

// Where the values of a field go.
struct field_place {
  field_target values;                    // by row; of a list the ids of all rows
  std::int64_t const* offsets = nullptr;  // of a list
};

// Parses lines of files whose fields have the same names in the same order.
class delimited_parser {
 public:
  // `fields`: the names of the fields in order; `file`: whose they are, for errors.
  // @throws tessera::error invalid_argument for a layout that cannot be, incompatible for a column that is not there, or twice.
  delimited_parser(sample_schema const& schema, delimited_layout const& layout, std::vector<std::string> fields, std::string_view file)
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

  std::vector<std::string> const& names() const noexcept { return fields_; }
  // Of each field.
  std::vector<field_use> const& uses() const noexcept { return uses_; }
  bool is_missing(std::string_view text) const noexcept {
    return text.empty() || (!missing_.empty() && std::find(missing_.begin(), missing_.end(), text) != missing_.end());
  }

  // `out`, which has the schema's columns, gets the samples of these lines. Returns where the first line that is none begins, or -1.
  // The work is cut by bytes alone, so the result does not depend on the number of threads.
  std::int64_t parse(host_exec const& exec, vector_view<char const> text, sample_columns& out) const {
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

  // Says what is wrong with the line at `offset`, which `parse` refused.
  [[noreturn]] void throw_bad_line(vector_view<char const> text, std::int64_t offset, std::string_view file,
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

 private:
  static constexpr std::int64_t most_pieces = 256;

  std::int64_t field_count() const noexcept { return static_cast<std::int64_t>(fields_.size()); }

  std::size_t find(std::string const& column, std::string_view file) const {
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

  // Whether the fields are those of Criteo's logs, each used, if at all, as what it is there.
  bool has_criteo_uses() const {
    using number = field_use::number_kind;
    using integer = field_use::integer_kind;
    if (field_count() != criteo_line_group::fields || uses_[0].number != number::label) return false;
    auto const is_simple = [](field_use const& use) {
      return (use.number == number::none || use.number == number::dense) &&
             (use.integer == integer::none || use.integer == integer::single);
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

  std::vector<field_place> places_in(host_exec const& exec, sample_columns& out) const {
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

  // Counts ids piece by piece, then makes room for them.
  template <class CountPiece>
  void measure_lists(host_exec const& exec, std::int64_t pieces, CountPiece const& count_piece, sample_columns& out) const {
    exec.run(pieces, count_piece);
    exec.run(field_count(), [&](std::int64_t f) {
      auto const& use = uses_[static_cast<std::size_t>(f)];
      if (use.integer != field_use::integer_kind::list) return;
      auto const offsets = out.offsets(use.integer_column);
      offsets[0] = 0;
      for (std::int64_t row = 1; row < offsets.size(); ++row) offsets[row] += offsets[row - 1];
    });
    for (auto const& use : uses_)
      if (use.integer == field_use::integer_kind::list) {
        auto const offsets = out.offsets(use.integer_column);
        out.room(exec, use.integer_column, offsets[offsets.size() - 1]);
      }
  }

  // A list's length goes to the place of the offset behind it. Of lines that cannot be it is anything: parsing finds them again.
  void count_ids(vector_view<char const> text, std::int64_t first, std::int64_t last, sample_columns& out) const {
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

  // Returns where the first bad line begins, or null.
  char const* parse_piece(vector_view<char const> text, vector_view<char const> piece, std::int64_t row, std::int64_t last_row,
                          std::vector<field_place> const& places) const {
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

  template <class ParseLine>
  static char const* parse_criteo_piece(vector_view<char const> text, vector_view<char const> piece, delimited_lines& lines,
                                        std::int64_t& row, std::int64_t last_row, std::vector<field_place> const& places,
                                        ParseLine const& parse_line) {
    constexpr auto together = criteo_line_group::lines;
    std::array<field_target, criteo_line_group::fields> targets;
    for (std::size_t f = 0; f < targets.size(); ++f) targets[f] = places[f].values;
    criteo_line_group group;
    bool const more_behind = piece.end() != text.end();
    // Where the last group may begin, which has a line behind it.
    auto const first_row = row, last_start = last_row - together - (more_behind ? 0 : 1);
    while (row < last_row) {
      if (more_behind && row > last_start && last_start > first_row) {
        // The lines that are left go together with some that were before, whose values become the same again.
        auto const* at = lines.at();
        for (; row > last_start; --row) at = begin_of_line_before(at);
        lines.move_to(at);
      }
      bool const before = lines.at() - text.begin() >= criteo_line_group::bytes_before;
      if (before && row <= last_start)
        if (auto const* const next = group.parse(lines.at(), text.end(), targets.data(), row)) {
          lines.move_to(next);
          row += together;
          continue;
        }
      for (auto const stop = before ? std::min(row + together, last_row) : row + 1; row < stop; ++row) {
        auto const* const begin = lines.at();
        if (parse_line() != nullptr) return begin;
      }
    }
    return nullptr;
  }

  // @pre a line begins at `at`, and another before it.
  static char const* begin_of_line_before(char const* at) noexcept {
    for (--at; at[-1] != '\n'; --at) {
    }
    return at;
  }

  // Returns what is wrong with the text, or null.
  char const* read_field(field_use const& use, field_place const& place, std::int64_t row, std::string_view text) const noexcept {
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

  char delimiter_;
  bool quotes_;
  char list_separator_;
  std::vector<std::string> missing_;
  bool binary_labels_;
  std::vector<std::string> fields_;
  std::vector<field_use> uses_;  // of each field
  bool has_lists_ = false, is_criteo_ = false;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
