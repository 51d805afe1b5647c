// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_bytes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of a report.
struct table_bytes_report_options {
  vector_view<std::string const> names{};       ///< one a table, or none: then "table <id>"
  std::int64_t values_per_batch = 0;            ///< ids that one training lookup reads, over all tables
  std::int64_t workspace_bytes_per_value = 40;  ///< of a lookup and its backward, slots included
};

/// What tables will occupy, before one of them is built. `os << report` prints a line a table and the sums.
struct table_bytes_report {
  /// One table of the report.
  struct line {
    std::string name;
    std::int64_t dim;
    std::int64_t rows;
    table_bytes bytes;
  };
  std::vector<line> tables;
  table_bytes sum;
  std::size_t workspace = 0;  ///< bytes, of a batch

  table_bytes_report() {}

  /// The sum of all tables, and the workspace.
  std::size_t total() const noexcept { return sum.total() + workspace; }

  /// `policies`: the admission and eviction policies of the tables, where the store has them.
  /// @throws tessera::error shape_mismatch for names that are not one a table; invalid_argument for options that no table can have.
  template <row_store Store, class... Policies>
  static table_bytes_report of(vector_view<table_options const> tables, row_state_layout layout,
                               table_bytes_report_options const& options = {}, Policies const&... policies) {
    if (!options.names.empty() && options.names.size() != tables.size())
      throw error(errc::shape_mismatch, "table_bytes_report: one name a table",
                  {{"tables", tables.size()}, {"names", options.names.size()}});
    if (options.values_per_batch < 0 || options.workspace_bytes_per_value < 0)
      throw error(errc::invalid_argument, "table_bytes_report: negative workspace",
                  {{"values_per_batch", options.values_per_batch}, {"workspace_bytes_per_value", options.workspace_bytes_per_value}});
    table_bytes_report report;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      auto const& table = tables[t];
      detail::check_table_options("table_bytes_report", table, layout);
      auto const bytes = Store::bytes_for(table, layout, policies...);
      report.tables.push_back(
          {options.names.empty() ? "table " + std::to_string(table.id.value) : options.names[t], table.dim, table.rows, bytes});
      report.sum = report.sum + bytes;
    }
    report.workspace = static_cast<std::size_t>(options.values_per_batch) * static_cast<std::size_t>(options.workspace_bytes_per_value);
    return report;
  }

  friend std::ostream& operator<<(std::ostream& os, table_bytes_report const& report) {
    std::size_t width = 9;
    for (auto const& l : report.tables) width = std::max(width, l.name.size());
    auto const cell = [&](std::string const& value, std::size_t columns) {
      os << std::string(columns > value.size() ? columns - value.size() : 1, ' ') << value;
    };
    auto const row = [&](std::string const& name, std::array<std::string, 6> const& cells) {
      os << name << std::string(width - name.size(), ' ');
      for (std::size_t i = 0; i < cells.size(); ++i) cell(cells[i], i == 0 ? 7 : 13);
      os << '\n';
    };
    row("", {"dim", "rows", "weights", "state", "index", "total"});
    for (auto const& l : report.tables)
      row(l.name, {std::to_string(l.dim), std::to_string(l.rows), text(l.bytes.weights), text(l.bytes.state), text(l.bytes.index),
                   text(l.bytes.total())});
    row("tables", {"", "", text(report.sum.weights), text(report.sum.state), text(report.sum.index), text(report.sum.total())});
    row("workspace", {"", "", "", "", "", text(report.workspace)});
    row("all", {"", "", "", "", "", text(report.total())});
    return os;
  }

 private:
  // "1000 B", "12.3 MiB".
  static std::string text(std::size_t bytes) {
    constexpr std::array<char const*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < units.size()) {
      value /= 1024;
      ++unit;
    }
    char digits[32];
    std::snprintf(digits, sizeof digits, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return digits;
  }
};

}  // namespace TESSERA_ABI
}  // namespace tessera
