// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Returns one rule a column, in the order of `columns`. A column has a copy of the rule that names it, else of the rule that names no
/// column, else an empty rule.
/// @throws tessera::error invalid_argument for a name that is no column or stands in two places, and for two rules that name none.
template <class Rule>
std::vector<Rule> rules_by_column(std::string const& caller, std::vector<std::string> const& columns, std::vector<Rule> const& rules) {
  std::vector<Rule const*> of(columns.size(), nullptr);
  Rule const* others = nullptr;
  for (auto const& rule : rules) {
    if (rule.columns.empty()) {
      if (others != nullptr) throw error(errc::invalid_argument, caller + ": two rules for the columns that no rule names");
      others = &rule;
    }
    for (auto const& name : rule.columns) {
      auto const found = static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) - columns.begin());
      if (found == columns.size()) throw error(errc::invalid_argument, caller + ": a rule for no column", {{"column", name}});
      if (of[found] != nullptr) throw error(errc::invalid_argument, caller + ": two rules for a column", {{"column", name}});
      of[found] = &rule;
    }
  }
  std::vector<Rule> result;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    auto const* const rule = of[c] != nullptr ? of[c] : others;
    auto& own = result.emplace_back(rule != nullptr ? *rule : Rule{});
    own.columns = {columns[c]};
  }
  return result;
}

/// Whether each column is dropped, (columns,). @throws tessera::error invalid_argument for a name that is no column.
inline std::vector<bool> marked_columns(std::string const& caller, std::vector<std::string> const& columns,
                                        std::vector<std::string> const& marked) {
  std::vector<bool> result(columns.size());
  for (auto const& name : marked) {
    auto const found = static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) - columns.begin());
    if (found == columns.size()) throw error(errc::invalid_argument, caller + ": no such column to drop", {{"column", name}});
    result[found] = true;
  }
  return result;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
