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
  delimited_parser(sample_schema const& schema, delimited_layout const& layout, std::vector<std::string> fields, std::string_view file);

  std::vector<std::string> const& names() const noexcept { return fields_; }
  // Of each field.
  std::vector<field_use> const& uses() const noexcept { return uses_; }
  bool is_missing(std::string_view text) const noexcept {
    return text.empty() || (!missing_.empty() && std::find(missing_.begin(), missing_.end(), text) != missing_.end());
  }

  // `out`, which has the schema's columns, gets the samples of these lines. Returns where the first line that is none begins, or -1.
  // The work is cut by bytes alone, so the result does not depend on the number of threads.
  std::int64_t parse(host_exec const& exec, vector_view<char const> text, sample_columns& out) const;

  // Says what is wrong with the line at `offset`, which `parse` refused.
  [[noreturn]] void throw_bad_line(vector_view<char const> text, std::int64_t offset, std::string_view file,
                                   std::int64_t line_number) const;

 private:
  static constexpr std::int64_t most_pieces = 256;

  std::int64_t field_count() const noexcept { return static_cast<std::int64_t>(fields_.size()); }

  std::size_t find(std::string const& column, std::string_view file) const;

  // Whether the fields are those of Criteo's logs, each used, if at all, as what it is there.
  bool has_criteo_uses() const;

  std::vector<field_place> places_in(host_exec const& exec, sample_columns& out) const;

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
  void count_ids(vector_view<char const> text, std::int64_t first, std::int64_t last, sample_columns& out) const;

  // Returns where the first bad line begins, or null.
  char const* parse_piece(vector_view<char const> text, vector_view<char const> piece, std::int64_t row, std::int64_t last_row,
                          std::vector<field_place> const& places) const;

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
  char const* read_field(field_use const& use, field_place const& place, std::int64_t row, std::string_view text) const noexcept;

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

#if !TESSERA_COMPILED
#include <tessera/data/delimited_parser.ipp>
#endif
