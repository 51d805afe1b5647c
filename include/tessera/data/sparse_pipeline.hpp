// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/bound_ids.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sparse_steps.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The values that a fit found for a vocabulary: value v has id vocabulary::first_value + v.
struct fitted_vocabulary {
  std::string name;                  ///< the `share` of the columns, or the name of the one column
  std::vector<std::int64_t> values;  ///< distinct
};

/// Makes a model's ids of a schema's columns of ids, by one rule a column, chosen at run time. Move-only.
class sparse_pipeline {
 public:
  sparse_pipeline() = default;
  /// Makes a pipeline that is not yet fitted. A pipeline without vocabularies needs no fit.
  /// @throws tessera::error invalid_argument naming column and value, where one of these holds. A rule names no column, or two rules name
  /// one. Options of a step are out of range. A column has two truncations, a hash beside a vocabulary, or a step behind one. Columns that
  /// share have other steps.
  explicit sparse_pipeline(sample_schema const& schema, std::vector<sparse_rule> const& rules = {});
  /// Makes a fitted pipeline. The vocabularies are in `exec`'s memory, which outlives the pipeline. `dropped` are columns that give no key.
  /// @throws tessera::error as above. invalid_argument for a vocabulary of no column, a vocabulary twice, or a value twice in one. The same
  /// for a dropped name that is no column.
  sparse_pipeline(host_exec const& exec, sample_schema const& schema, std::vector<sparse_rule> const& rules,
                  std::vector<fitted_vocabulary> const& fitted, std::vector<std::string> dropped);

  /// The columns that the pipeline reads, dropped ones too, in order.
  std::vector<std::string> const& columns() const noexcept { return columns_; }
  /// One rule a column, in the order of `columns()`.
  std::vector<sparse_rule> const& rules() const noexcept { return rules_; }
  /// The names of the columns that give no key.
  std::vector<std::string> const& dropped() const noexcept { return dropped_; }
  /// The columns that are not dropped, in order.
  std::vector<std::string> kept() const;
  /// Whether a column has single ids. @throws tessera::error invalid_argument for no such column.
  bool is_single(std::string const& column) const { return single_[at(column)] != 0; }
  /// Whether a vocabulary is still to be found by a `preprocessing_fit`.
  bool needs_fit() const noexcept {
    for (std::size_t c = 0; c < columns_.size(); ++c)
      if (!is_dropped_[c] && detail::vocabulary_of(rules_[c].steps) != nullptr && map_of(rules_[c]) == nullptr) return true;
    return false;
  }

  /// Returns the rows that a column's table needs: its ids are in [0, id_count). There is no such number where ids are as they are stored,
  /// or where a clip leaves them negative or without a bound.
  ///
  /// A hash of `size` makes size rows. Where the column is single and the policy is `own_id`, there is one more row, the last, for missing
  /// ids. Columns that share need as many rows as the column that needs the most.
  /// @throws tessera::error invalid_argument for no such column and for a vocabulary that is not fitted.
  std::optional<std::int64_t> id_count(std::string const& column) const;

  /// How many vocabularies are fitted.
  std::int64_t vocabularies() const noexcept { return static_cast<std::int64_t>(maps_.size()); }
  /// The name of vocabulary v: the `share` of its columns, or the name of the one column. @pre 0 <= v < vocabularies(), here and below.
  std::string const& vocabulary_name(std::int64_t v) const noexcept { return names_[static_cast<std::size_t>(v)]; }
  /// The values of vocabulary v, in the order of their ids.
  vector_view<std::int64_t const> vocabulary_values(std::int64_t v) const noexcept { return maps_[static_cast<std::size_t>(v)].ids(); }

  /// Returns what becomes of batches that have these keys, in this order. The result refers to the pipeline, which may be moved meanwhile,
  /// but not end.
  /// @throws tessera::error invalid_argument for a key that is no column or comes twice, and for a vocabulary that is not fitted.
  bound_ids of_keys(std::vector<std::string> const& keys) const&;
  bound_ids of_keys(std::vector<std::string> const& keys) const&& = delete;

  std::size_t bytes() const noexcept {
    std::size_t sum = sizeof(*this);
    for (auto const& map : maps_) sum += map.bytes();
    return sum;
  }

  /// Whether both have the same columns and rules, and make the same ids.
  friend bool operator==(sparse_pipeline const& a, sparse_pipeline const& b) {
    if (a.columns_ != b.columns_ || a.single_ != b.single_ || a.rules_ != b.rules_ || a.dropped_ != b.dropped_ || a.names_ != b.names_)
      return false;
    for (std::int64_t v = 0; v < a.vocabularies(); ++v) {
      auto const x = a.vocabulary_values(v), y = b.vocabulary_values(v);
      if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
    }
    return true;
  }

 private:
  std::size_t at(std::string const& column) const;

  void add_vocabulary(host_exec const& exec, std::string const& name, std::vector<std::int64_t> const& values);

  id_map const* map_of(sparse_rule const& rule) const noexcept {
    auto const found = std::find(names_.begin(), names_.end(), detail::shared_name(rule));
    return found == names_.end() ? nullptr : &maps_[static_cast<std::size_t>(found - names_.begin())];
  }

  // What ids that are not missing are below.
  std::optional<std::int64_t> bound_of(std::size_t c) const;
  bool has_own_missing(std::size_t c) const {
    return single_[c] != 0 && rules_[c].missing == missing_policy::own_id && detail::vocabulary_of(rules_[c].steps) == nullptr;
  }
  // The id of a missing one, or missing_id: the row becomes empty.
  std::int64_t missing_of(std::size_t c) const;

  std::vector<std::string> columns_;
  std::vector<std::uint8_t> single_;  // by column
  std::vector<sparse_rule> rules_;    // one a column
  std::vector<std::string> dropped_;
  std::vector<bool> is_dropped_;    // by column
  std::vector<std::string> names_;  // of vocabularies
  std::vector<id_map> maps_;        // of each: a value's number
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/sparse_pipeline.ipp>
#endif
