// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/delimited_fields.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_parser.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/separators.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// The bytes of a file's mark of UTF-8, before its first line.
inline std::int64_t byte_order_mark_bytes(vector_view<char const> text) noexcept {
  return std::string_view(text.data(), static_cast<std::size_t>(text.size())).starts_with("\xef\xbb\xbf") ? 3 : 0;
}

// The parser of a file, and how many of its bytes are no samples.
struct opened_text {
  delimited_parser parser;
  std::int64_t header_bytes = 0;

  // How many bytes of the file's beginning are no samples.
  std::int64_t skipped(vector_view<char const> beginning) const noexcept {
    return header_bytes > 0 ? header_bytes : byte_order_mark_bytes(beginning);
  }
};

// `text`: the file's lines from the first on. @throws tessera::error parse_error for a header that is not there or cannot be read; as
// `delimited_parser`.
inline opened_text open_text(vector_view<char const> text, std::string_view file, sample_schema const& schema,
                             delimited_layout const& layout) {
  if (!layout.header) return {delimited_parser(schema, layout, layout.columns, file)};
  std::string_view line(text.data(), static_cast<std::size_t>(text.size()));
  line = line.substr(0, line.find('\n'));
  auto const bytes = std::min(static_cast<std::int64_t>(line.size()) + 1, text.size());
  line.remove_prefix(static_cast<std::size_t>(byte_order_mark_bytes(text)));
  std::vector<std::string> names;
  auto const* const wrong = delimited_lines(line.data(), line.data() + line.size(), layout.delimiter, layout.quotes)
                                .next(std::numeric_limits<std::int64_t>::max(), [&](std::int64_t, std::string_view name) -> char const* {
                                  names.emplace_back(name);
                                  return nullptr;
                                });
  if (text.empty() || wrong != delimited_lines::too_few)
    throw error(errc::parse_error, std::string("delimited_log: ") + (text.empty() ? "a file without its header" : wrong),
                {{"file", file}, {"line", 1}, {"field", "field " + std::to_string(names.size() + 1)}, {"text", printable(line)}});
  return {delimited_parser(schema, layout, std::move(names), file), bytes};
}

}  // namespace detail

/// Parses the text of a file: `out` becomes its samples. `file` is the file's name in errors. `delimited_log` says how a line is read. A
/// text without a line gives no samples where the layout has no header.
/// @throws tessera::error parse_error, incompatible and invalid_argument as the constructor of `delimited_log`.
inline void parse_delimited(host_exec const& exec, vector_view<char const> text, std::string_view file, sample_schema const& schema,
                            delimited_layout const& layout, sample_columns& out) {
  check_schema("parse_delimited", schema);
  check_layout("parse_delimited", layout);
  auto const opened = detail::open_text(text, file, schema, layout);
  auto const skipped = opened.skipped(text);
  auto const lines = text.slice(skipped, text.size() - skipped);
  if (!out.has_columns_of(schema)) out = sample_columns(schema);
  auto const bad = opened.parser.parse(exec, lines, out);
  if (bad < 0) return;
  auto const before = detail::count_newlines(text.slice(0, skipped + bad));
  opened.parser.throw_bad_line(lines, bad, file, before + 1);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
