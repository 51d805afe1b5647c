// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/data/sample_schema.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How the text of an id becomes an integer of 64 bits.
enum class id_format : std::uint8_t {
  automatic,    ///< a decimal integer of 64 bits is itself; other text is hashed by `hash_text`
  decimal,      ///< a decimal integer of 64 bits; other text is an error
  hexadecimal,  ///< 1 to 16 hexadecimal digits, at most 7fffffffffffffff; other text is an error
  text          ///< all text is hashed by `hash_text`
};

/// How a text file has samples in it. Each sample is a line, whose fields stand between delimiters. Columns are found by name.
///
///     delimited_layout const csv{.delimiter = ',', .header = true, .quotes = true, .missing = {"NA"}};
struct delimited_layout {
  char delimiter = '\t';                         ///< between the fields of a line
  bool header = false;                           ///< the first line of each file names its columns; the order may differ among files
  std::vector<std::string> columns{};            ///< without a header: the names of the fields in order
  bool quotes = false;                           ///< a field may stand between '"', where '""' is a quote (RFC 4180); no line ends within
  char list_separator = '|';                     ///< between the ids of a list
  std::vector<std::string> missing{};            ///< texts beside the empty one that say that a value is missing
  id_format ids = id_format::automatic;          ///< of the columns that `format_of` does not name
  std::map<std::string, id_format> format_of{};  ///< of columns by name
  bool binary_labels = false;                    ///< `label` other than 0 and 1 is an error; else any number is a label

  /// The format of a column's ids: that of `format_of`, else `ids`.
  id_format format(std::string const& column) const {
    auto const found = format_of.find(column);
    return found == format_of.end() ? ids : found->second;
  }

  friend bool operator==(delimited_layout const&, delimited_layout const&) = default;
};

/// Checks a layout. A layout has either a header or names of columns. Delimiter and list separator differ, and neither ends a line, is the
/// zero character, or is the quote of a layout with quotes.
/// @throws tessera::error invalid_argument naming the caller and what is wrong.
inline void check_layout(char const* caller, delimited_layout const& layout) {
  auto const refuse = [caller](char const* what, std::vector<error_value> values) {
    throw error(errc::invalid_argument, std::string(caller) + ": " + what, std::move(values));
  };
  if (layout.header == !layout.columns.empty())
    refuse("a layout has either a header or names of columns",
           {{"header", layout.header}, {"columns", static_cast<std::int64_t>(layout.columns.size())}});
  auto const is_taken = [&](char c) { return c == '\n' || c == '\r' || c == '\0' || (layout.quotes && c == '"'); };
  if (is_taken(layout.delimiter)) refuse("a delimiter that means something else", {{"character code", int{layout.delimiter}}});
  if (is_taken(layout.list_separator))
    refuse("a list separator that means something else", {{"character code", int{layout.list_separator}}});
  if (layout.delimiter == layout.list_separator)
    refuse("a list separator that is the delimiter", {{"character code", int{layout.delimiter}}});
}

/// Returns the columns of Criteo's click logs: "label", the numbers "I1" … "I13", and the single ids "C1" … "C26".
inline sample_schema criteo_schema() {
  sample_schema schema{.label = "label"};
  for (int i = 1; i <= 13; ++i) schema.dense.push_back("I" + std::to_string(i));
  for (int i = 1; i <= 26; ++i) schema.sparse.push_back("C" + std::to_string(i));
  schema.single = schema.sparse;
  return schema;
}

/// Returns the layout of Criteo's click logs: 40 fields between tabs, named as in `criteo_schema`, no header, "C1" … "C26" hexadecimal.
inline delimited_layout criteo_layout() {
  auto const schema = criteo_schema();
  delimited_layout layout;
  layout.columns.push_back(schema.label);
  layout.columns.insert(layout.columns.end(), schema.dense.begin(), schema.dense.end());
  layout.columns.insert(layout.columns.end(), schema.sparse.begin(), schema.sparse.end());
  for (auto const& name : schema.sparse) layout.format_of.emplace(name, id_format::hexadecimal);
  return layout;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
