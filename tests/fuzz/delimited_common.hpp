// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/delimited_log.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <naive_delimited.hpp>
#include <tessera/core/thread_team.hpp>

#include "fuzz_support.hpp"

namespace fuzz {

struct sample {
  std::uint32_t label = 0, weight = 0;
  std::vector<std::uint32_t> dense{}, other_labels{};
  std::vector<std::vector<std::int64_t>> sparse{};
  std::int64_t session = 0, time = 0;

  friend bool operator==(sample const&, sample const&) = default;
};
using outcome = naive::outcome<sample>;

inline void append(tessera::sample_columns_view samples, std::vector<sample>& out) {
  for (std::int64_t row = 0; row < samples.size(); ++row) {
    auto& to = out.emplace_back();
    to.label = std::bit_cast<std::uint32_t>(samples.labels[row]);
    if (!samples.weights.empty()) to.weight = std::bit_cast<std::uint32_t>(samples.weights[row]);
    if (!samples.sessions.empty()) to.session = samples.sessions[row];
    if (!samples.times.empty()) to.time = samples.times[row];
    for (std::int64_t c = 0; c < samples.dense.rows(); ++c) to.dense.push_back(std::bit_cast<std::uint32_t>(samples.dense(c, row)));
    for (std::int64_t c = 0; c < samples.other_labels.rows(); ++c)
      to.other_labels.push_back(std::bit_cast<std::uint32_t>(samples.other_labels(c, row)));
    for (auto const& rows : samples.sparse) to.sparse.emplace_back(rows.row(row).begin(), rows.row(row).end());
  }
}

template <class F>
void compare(outcome const& expected, std::string const& file, F const& parse) {
  outcome found;
  try {
    parse(found.samples);
  } catch (tessera::error const& e) {
    require(e.code() == tessera::errc::parse_error && e.value("file") == file, "a bad text is a parse error that names its file");
    found.bad_line = std::stoll(std::string(e.value("line")));
    found.bad_field = e.value("field");
  }
  require(found.bad_line == expected.bad_line && found.bad_field == expected.bad_field, "both parsers refuse a text at the same place");
  if (expected.bad_line == 0) require(found.samples == expected.samples, "both parsers read the same values");
}

/// A text in memory, and as a file cut into blocks, each as the plain parser has it.
inline void check(std::string const& text, std::int64_t block_bytes, tessera::sample_schema const& schema,
                  std::vector<tessera::delimited_layout> const& layouts) {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  auto const expected = naive::parse<sample>(text, schema, layouts.front());
  // Without the zero behind it that a string has, so that reading past the end is seen.
  std::unique_ptr<char[]> const exact(new char[text.size()]);
  std::copy(text.begin(), text.end(), exact.get());
  for (auto const& layout : layouts)
    compare(expected, "text", [&](std::vector<sample>& out) {
      tessera::sample_columns columns;
      tessera::parse_delimited(exec, {exact.get(), static_cast<std::int64_t>(text.size())}, "text", schema, layout, columns);
      append(columns.view(), out);
    });
  if (text.empty()) return;
  static memory_file file;
  file.write(text);
  compare(expected, file.path(), [&](std::vector<sample>& out) {
    tessera::delimited_log const log(exec, {file.path()}, schema, layouts.front(), {.block_bytes = block_bytes});
    tessera::sample_columns columns;
    for (std::int64_t block = 0; block < log.block_count(); ++block) {
      log.read(exec, block, columns);
      append(columns.view(), out);
    }
  });
}

}  // namespace fuzz
