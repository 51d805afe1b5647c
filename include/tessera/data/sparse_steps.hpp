// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/data/column_rules.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/tensor/id_transforms.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An id becomes its number in a list that a fit finds in the training data.
///
/// Id `unknown` stands for values that are not in the list. Id `missing` stands for a missing one of a column of single ids. From
/// `first_value` on come the values that the training data have at least `min_count` times, in the order of their first appearance.
///
/// With a limit there are at most so many values, the most frequent first; of equally frequent values the smaller comes first.
/// `value_counts` counts them with memory for twice as many values. So a count may lack up to (training values / limit). Of values that all
/// come about equally often, some may be left out though there is room; of more distinct values than twice the limit at least half the limit
/// stay, before `min_count`.
struct vocabulary {
  static constexpr std::int64_t unknown = 0, missing = 1, first_value = 2;

  std::int64_t min_count = 1;  ///< at least 1
  std::int64_t limit = 0;      ///< the most values; 0: all

  friend bool operator==(vocabulary const&, vocabulary const&) = default;
};

/// One step of a rule for a column of ids: what becomes of a list, or of each id in it. Options of one number a key do not fit a rule.
using id_step = std::variant<truncate_ids, hash_ids, modulo_ids, clip_ids, bin_ids, vocabulary>;

/// What a missing id of a column of single ids becomes.
enum class missing_policy : std::uint8_t {
  own_id,  ///< an id that no other value has, where the steps bound the ids; else the row is empty
  no_id,   ///< the row is empty
};

/// What becomes of columns of ids. Rows are cut first, wherever `truncate_ids` stands. Then the other steps change each id, in order.
///
/// Columns of one `share` can have one table. They have one vocabulary, are hashed alike and need tables of as many rows. The column of
/// that name shares, too. Columns that share have the same steps but for `truncate_ids`; a column without such steps takes those of the
/// others.
///
///     sparse_rule{.columns = {"history"}, .steps = {truncate_ids{.most = 50}, hash_ids{.size = 100'000}}, .share = "item"}
struct sparse_rule {
  std::vector<std::string> columns{};  ///< none: the columns that no other rule names
  std::vector<id_step> steps{};
  missing_policy missing = missing_policy::own_id;
  std::string share{};  ///< the name that the columns share; empty: each has its own

  friend bool operator==(sparse_rule const&, sparse_rule const&) = default;
};

namespace detail {

std::vector<id_step> functions_of(std::vector<id_step> const& steps);

inline vocabulary const* vocabulary_of(std::vector<id_step> const& steps) noexcept {
  for (auto const& step : steps)
    if (auto const* const found = std::get_if<vocabulary>(&step)) return found;
  return nullptr;
}

inline truncate_ids const* truncation_of(std::vector<id_step> const& steps) noexcept {
  for (auto const& step : steps)
    if (auto const* const found = std::get_if<truncate_ids>(&step)) return found;
  return nullptr;
}

/// Checks one column's rule. @throws tessera::error invalid_argument naming column and value.
void check_rule(std::string const& caller, sparse_rule const& rule);

/// One rule a column of the schema, checked; columns that share have the same functions and `share`.
std::vector<sparse_rule> sparse_rules_by_column(std::vector<std::string> const& columns, std::vector<sparse_rule> const& rules);

/// The name by which a column is hashed, or its vocabulary is known.
inline std::string const& shared_name(sparse_rule const& rule) noexcept { return rule.share.empty() ? rule.columns.front() : rule.share; }

/// A function of a vocabulary's ids.
struct vocabulary_function {
  id_map const* map;

  std::int64_t operator()(std::int64_t id) const noexcept {
    auto const number = map->find(id);
    return number == id_map::absent ? vocabulary::unknown : vocabulary::first_value + number;
  }
};

/// What becomes of each id, one step.
using step_function = std::variant<hash_ids::function, modulo_ids::function, clip_ids::function, bin_ids::function, vocabulary_function>;

/// The functions of a column's rule, in order. @pre `map` is there where the rule has a vocabulary. They refer to the rule and the map.
std::vector<step_function> step_functions(sparse_rule const& rule, id_map const* map);

/// Replaces n ids by what a function makes of them. Where `has_missing`, a missing id becomes `of_missing` instead.
void apply_function(step_function const& function, std::int64_t* ids, std::int64_t n, bool has_missing, std::int64_t of_missing);

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/sparse_steps.ipp>
#endif
