// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The id of a sample without one, in a column of single ids.
inline constexpr std::int64_t missing_id = std::numeric_limits<std::int64_t>::min();

/// Which columns a data set has, by name. An empty name of `session`, `time` or `weight` says that the data set has none.
///
///     sample_schema const schema{
///         .label = "click", .dense = {"age"}, .sparse = {"history", "item"}, .session = "visit", .single = {"item"}};
///
/// A name may be dense and sparse at once: the numbers of a column, and the same integers as ids.
struct sample_schema {
  std::string label;                        ///< a number: what a model learns
  std::vector<std::string> dense{};         ///< numbers; NaN is a missing one
  std::vector<std::string> sparse{};        ///< lists of ids, and single ids
  std::string session{};                    ///< an integer
  std::string time{};                       ///< an integer, in any unit
  std::string weight{};                     ///< a number: what a sample counts in loss and metrics
  std::vector<std::string> other_labels{};  ///< numbers: labels of further tasks
  std::vector<std::string> single{};        ///< those of `sparse` that have one id a sample, or `missing_id`

  /// Whether a sparse column has single ids.
  bool is_single(std::string const& column) const { return std::find(single.begin(), single.end(), column) != single.end(); }

  friend bool operator==(sample_schema const&, sample_schema const&) = default;
};

/// Checks a schema. It has a label. No list has an empty name, or a name twice. No name has two roles, unless they are dense and sparse. A
/// single column is sparse.
/// @throws tessera::error invalid_argument naming the caller and the column.
inline void check_schema(char const* caller, sample_schema const& schema) {
  auto const refuse = [caller](char const* what, std::string const& column) {
    throw error(errc::invalid_argument, std::string(caller) + ": " + what, {{"column", column}});
  };
  auto const is_in = [](std::vector<std::string> const& names, std::string const& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (schema.label.empty()) refuse("a schema without a label", schema.label);
  for (auto const* names : {&schema.dense, &schema.sparse, &schema.other_labels, &schema.single})
    for (auto name = names->begin(); name != names->end(); ++name) {
      if (name->empty()) refuse("a column without a name", *name);
      if (std::find(names->begin(), name, *name) != name) refuse("a column twice", *name);
    }
  for (auto const& name : schema.single)
    if (!is_in(schema.sparse, name)) refuse("a single column that is not sparse", name);
  std::vector<std::string> apart{schema.label};
  for (auto const& name : schema.other_labels) apart.push_back(name);
  for (auto const* name : {&schema.session, &schema.time, &schema.weight})
    if (!name->empty()) apart.push_back(*name);
  for (auto name = apart.begin(); name != apart.end(); ++name)
    if (std::find(apart.begin(), name, *name) != name || is_in(schema.dense, *name) || is_in(schema.sparse, *name))
      refuse("a column twice", *name);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
