// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/criteo_lines.hpp>
#include <tessera/data/raw_rows.hpp>
#include <tessera/files/block_reader.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// The value of a hexadecimal digit; 0xff for other characters.
inline constexpr auto hex_digit = [] {
  std::array<std::uint8_t, 256> value{};
  value.fill(0xff);
  for (std::uint8_t i = 0; i < 10; ++i) value[static_cast<std::size_t>('0' + i)] = i;
  for (std::uint8_t i = 0; i < 6; ++i) {
    value[static_cast<std::size_t>('a' + i)] = static_cast<std::uint8_t>(10 + i);
    value[static_cast<std::size_t>('A' + i)] = static_cast<std::uint8_t>(10 + i);
  }
  return value;
}();

// Reads fields one after the other and stops at the first character that cannot belong to one, so a newline ends every scan: only the
// last line of a text may lack it, and is read Guarded, as if one stood behind `end`.
template <bool Guarded>
struct field_scanner {
  char const* at;
  char const* end;

  char peek() const noexcept {
    if constexpr (Guarded)
      if (at == end) return '\n';
    return *at;
  }
  bool skip(char expected) noexcept {
    bool const found = peek() == expected;
    at += found;
    return found;
  }

  bool label(float& value) noexcept {
    auto const digit = static_cast<unsigned char>(peek() - '0');
    if (digit > 1) return false;
    value = digit;
    ++at;
    return true;
  }

  // Nothing that begins like an integer is a missing one; whether the field ends there is for the caller to see.
  bool integer(std::int32_t& value) noexcept {
    constexpr std::uint32_t limit = std::numeric_limits<std::int32_t>::max();
    bool const negative = peek() == '-';
    at += negative;
    auto digit = static_cast<unsigned char>(peek() - '0');
    if (digit > 9) {
      value = click_layout::missing_integer;
      return !negative;
    }
    std::uint64_t magnitude = 0;
    for (; digit <= 9; digit = static_cast<unsigned char>(peek() - '0')) {
      magnitude = 10 * magnitude + digit;
      if (magnitude > limit) return false;
      ++at;
    }
    value = negative ? -static_cast<std::int32_t>(magnitude) : static_cast<std::int32_t>(magnitude);
    return true;
  }

  // Up to eight digits; none: a missing value.
  void category(std::int64_t& value) noexcept {
    if (end - at >= 8) {
      std::uint32_t eight = 0;
      std::uint8_t all = 0;
      for (int i = 0; i < 8; ++i) {
        auto const digit = hex_digit[static_cast<unsigned char>(at[i])];
        all |= digit;
        eight = eight << 4 | (digit & 15U);
      }
      if (all < 16) {
        value = eight;
        at += 8;
        return;
      }
    }
    std::int64_t bits = 0;
    int digits = 0;
    for (; digits < 8; ++digits, ++at) {
      auto const digit = hex_digit[static_cast<unsigned char>(peek())];
      if (digit > 15) break;
      bits = bits << 4 | digit;
    }
    value = digits == 0 ? click_layout::missing_category : bits;
  }

  bool end_of_line() noexcept {
    skip('\r');
    if (peek() != '\n') return false;
    at += Guarded ? 0 : 1;
    return true;
  }

  bool line(float* labels, matrix_view<std::int32_t> integers, matrix_view<std::int64_t> categories, std::int64_t row) noexcept {
    if (!label(labels[row])) return false;
    for (std::int64_t i = 0; i < click_layout::integers; ++i)
      if (!skip('\t') || !integer(integers(i, row))) return false;
    for (std::int64_t c = 0; c < click_layout::categories; ++c) {
      if (!skip('\t')) return false;
      category(categories(c, row));
    }
    return end_of_line();
  }
};

// Moves `at` behind the line where it is well-formed.
template <bool Guarded>
bool scan_line(char const*& at, char const* end, float* labels, matrix_view<std::int32_t> integers, matrix_view<std::int64_t> categories,
               std::int64_t row) noexcept {
  field_scanner<Guarded> scanner{at, end};
  if (!scanner.line(labels, integers, categories, row)) return false;
  at = scanner.at;
  return true;
}

inline std::int64_t count_newlines(vector_view<char const> text) noexcept {
  std::int64_t count = 0;
  // Runs that a byte can count, which compilers turn into vector code.
  for (std::int64_t first = 0; first < text.size(); first += 255 * 16) {
    auto const last = std::min<std::int64_t>(first + 255 * 16, text.size());
    std::uint8_t lanes[16] = {};
    auto i = first;
    for (; i + 16 <= last; i += 16)
      for (int lane = 0; lane < 16; ++lane) lanes[lane] = static_cast<std::uint8_t>(lanes[lane] + (text[i + lane] == '\n'));
    for (; i < last; ++i) count += text[i] == '\n';
    for (auto const lane : lanes) count += lane;
  }
  return count;
}

// Where the lines that begin in [first, last) stand in the text.
inline vector_view<char const> lines_beginning_in(vector_view<char const> text, std::int64_t first, std::int64_t last) noexcept {
  auto const after_newline = [&](std::int64_t from, std::int64_t to) {
    auto const* const found = from < to ? std::memchr(text.data() + from, '\n', static_cast<std::size_t>(to - from)) : nullptr;
    return found == nullptr ? std::int64_t{-1} : static_cast<char const*>(found) - text.data() + 1;
  };
  auto const begin = first == 0 ? 0 : after_newline(first - 1, last - 1);
  if (begin < 0) return {text.data() + first, 0};
  auto const end = after_newline(last - 1, text.size());
  return {text.data() + begin, (end < 0 ? text.size() : end) - begin};
}

// What is wrong with a line.
struct bad_field {
  std::string_view sentence;
  std::string field;
  std::string_view text;
};

// @pre the line is refused by field_scanner::line.
inline bad_field find_bad_field(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  auto const name = [](std::int64_t field) -> std::string {
    if (field == 0) return "label";
    if (field <= click_layout::integers) return click_layout::integer_name(field - 1);
    if (field < click_layout::fields) return click_layout::category_name(field - 1 - click_layout::integers);
    return "field " + std::to_string(field + 1);
  };
  auto const fields = 1 + std::count(line.begin(), line.end(), '\t');
  if (fields < click_layout::fields) return {"criteo_tsv: fewer than 40 fields in a line", name(fields), line};
  if (fields > click_layout::fields) return {"criteo_tsv: more than 40 fields in a line", name(click_layout::fields), line};
  for (std::int64_t field = 0; field < fields; ++field) {
    auto const text = line.substr(0, line.find('\t'));
    line.remove_prefix(std::min(line.size(), text.size() + 1));
    field_scanner<true> scanner{text.data(), text.data() + text.size()};
    if (field == 0) {
      float label = 0;
      if (!scanner.label(label) || scanner.at != scanner.end) return {"criteo_tsv: a label other than 0 or 1", name(field), text};
    } else if (field <= click_layout::integers) {
      std::int32_t value = 0;
      if (scanner.integer(value) && scanner.at == scanner.end) continue;
      auto const digits = text.substr(text.starts_with('-') ? 1 : 0);
      bool const integer = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
      return {integer ? "criteo_tsv: an integer beyond 2147483647" : "criteo_tsv: not an integer", name(field), text};
    } else {
      std::int64_t value = 0;
      scanner.category(value);
      if (scanner.at == scanner.end) continue;
      bool const hex = text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
      return {hex ? "criteo_tsv: a category of more than 8 hexadecimal digits" : "criteo_tsv: not a hexadecimal category", name(field),
              text};
    }
  }
  return {"criteo_tsv: not a sample", name(0), line};
}

// At most 64 characters, all of them printable.
inline std::string printable(std::string_view text) {
  constexpr std::size_t most = 64;
  constexpr char const* digits = "0123456789abcdef";
  std::string result = "\"";
  for (auto const c : text.substr(0, most)) {
    auto const byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte > 0x7e) {
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + (text.size() > most ? "\"..." : "\"");
}

// Parses what is well-formed; returns where the first line that is not begins, or -1.
inline std::int64_t parse_criteo_lines(host_exec const& exec, vector_view<char const> text, raw_rows& out) {
  constexpr std::int64_t most_pieces = 256;
  constexpr std::int64_t least_piece_bytes = 1 << 16;
  auto const piece_bytes = std::max(least_piece_bytes, divide_up(text.size(), most_pieces));
  auto const pieces = divide_up(text.size(), piece_bytes);
  auto const piece = [&](std::int64_t p) {
    return lines_beginning_in(text, p * piece_bytes, std::min((p + 1) * piece_bytes, text.size()));
  };

  std::array<std::int64_t, most_pieces + 1> first_row{};
  exec.run(pieces, [&](std::int64_t p) {
    auto const lines = piece(p);
    bool const unfinished = !lines.empty() && lines[lines.size() - 1] != '\n';
    first_row[static_cast<std::size_t>(p + 1)] = count_newlines(lines) + unfinished;
  });
  for (std::size_t p = 0; p < static_cast<std::size_t>(pieces); ++p) first_row[p + 1] += first_row[p];
  out.resize(exec, first_row[static_cast<std::size_t>(pieces)]);

  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> first_bad{none};
  auto* const labels = out.labels().data();
  auto const integers = out.integers();
  auto const categories = out.categories();
  exec.run(pieces, [&](std::int64_t p) {
    auto const lines = piece(p);
    auto const last_row = first_row[static_cast<std::size_t>(p + 1)];
    criteo_line_group group;
    auto const* at = lines.begin();
    for (auto row = first_row[static_cast<std::size_t>(p)]; row < last_row;) {
      bool const before = at - text.begin() >= criteo_line_group::bytes_before;
      if (before && last_row - row > criteo_line_group::lines)
        if (auto const* const next = group.parse(at, text.end(), labels, integers, categories, row)) {
          at = next;
          row += criteo_line_group::lines;
          continue;
        }
      for (auto const stop = before ? std::min(row + criteo_line_group::lines, last_row) : row + 1; row < stop; ++row) {
        auto const* const begin = at;
        bool const guarded = row + 1 == last_row && lines[lines.size() - 1] != '\n';
        if (guarded ? scan_line<true>(at, text.end(), labels, integers, categories, row)
                    : scan_line<false>(at, text.end(), labels, integers, categories, row))
          continue;
        auto const bad = begin - text.data();
        for (auto seen = first_bad.load(); bad < seen && !first_bad.compare_exchange_weak(seen, bad);) {
        }
        return;
      }
    }
  });
  auto const bad = first_bad.load();
  return bad == none ? -1 : bad;
}

[[noreturn]] inline void throw_bad_line(vector_view<char const> text, std::int64_t offset, std::string_view file,
                                        std::int64_t line_number) {
  std::string_view line(text.data() + offset, static_cast<std::size_t>(text.size() - offset));
  line = line.substr(0, line.find('\n'));
  auto const bad = find_bad_field(line);
  throw error(errc::parse_error, bad.sentence,
              {{"file", file}, {"line", line_number}, {"field", bad.field}, {"text", printable(bad.text)}});
}

}  // namespace detail

/// Parses samples in the layout of Criteo's click logs: a line each, with the fields label, 13 integers, 26 categories between tabs.
///
/// The label is 0 or 1; an integer is decimal, −2147483647 … 2147483647; a category 1 to 8 hexadecimal digits; an empty field is a
/// missing value. Lines end in "\n" or "\r\n", the last one perhaps in nothing. `text`: whole lines; `file`: their name in errors.
/// The work is cut by bytes alone, and the result does not depend on the number of threads. Allocates only when `out` grows.
/// @throws tessera::error parse_error for the first line that is not as above, with file, line (from 1), field and text.
inline void parse_criteo(host_exec const& exec, vector_view<char const> text, std::string_view file, raw_rows& out) {
  auto const bad = detail::parse_criteo_lines(exec, text, out);
  if (bad >= 0) detail::throw_bad_line(text, bad, file, detail::count_newlines(text.slice(0, bad)) + 1);
}

/// Reads block `block` of a file in that layout; `text` holds its bytes, which are returned. @throws tessera::error as `parse_criteo`, with the
/// line's number in the file, and as line_blocks::read.
inline vector_view<char const> read_criteo(host_exec const& exec, line_blocks const& file, std::int64_t block, buffer<char>& text,
                                           raw_rows& out) {
  auto const lines = file.read(exec, block, text);
  auto const bad = detail::parse_criteo_lines(exec, lines.text, out);
  if (bad >= 0) detail::throw_bad_line(lines.text, bad, file.path(), file.count_lines_before(lines.offset + bad) + 1);
  return lines.text;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
