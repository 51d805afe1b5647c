// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/sparse_pipeline.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE sparse_pipeline::sparse_pipeline(sample_schema const& schema, std::vector<sparse_rule> const& rules)
    : columns_(schema.sparse), rules_(detail::sparse_rules_by_column(columns_, rules)) {
  for (auto const& name : columns_) single_.push_back(schema.is_single(name));
  is_dropped_.resize(columns_.size());
}

TESSERA_INLINE sparse_pipeline::sparse_pipeline(host_exec const& exec, sample_schema const& schema, std::vector<sparse_rule> const& rules,
                                                std::vector<fitted_vocabulary> const& fitted, std::vector<std::string> dropped)
    : sparse_pipeline(schema, rules) {
  dropped_ = std::move(dropped);
  is_dropped_ = detail::marked_columns("sparse_pipeline", columns_, dropped_);
  for (auto const& [name, values] : fitted) add_vocabulary(exec, name, values);
}

TESSERA_INLINE std::vector<std::string> sparse_pipeline::kept() const {
  std::vector<std::string> names;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    if (!is_dropped_[c]) names.push_back(columns_[c]);
  return names;
}

TESSERA_INLINE std::optional<std::int64_t> sparse_pipeline::id_count(std::string const& column) const {
  auto const c = at(column);
  std::optional<std::int64_t> most;
  for (std::size_t other = 0; other < columns_.size(); ++other)
    if (other == c || (!rules_[c].share.empty() && rules_[other].share == rules_[c].share))
      if (auto const bound = bound_of(other)) most = std::max(most.value_or(0), *bound + has_own_missing(other));
  return most;
}

TESSERA_INLINE bound_ids sparse_pipeline::of_keys(std::vector<std::string> const& keys) const& {
  std::vector<detail::key_plan> plans;
  for (auto key = keys.begin(); key != keys.end(); ++key) {
    if (std::find(keys.begin(), key, *key) != key) throw error(errc::invalid_argument, "sparse_pipeline: a key twice", {{"key", *key}});
    auto const c = at(*key);
    detail::key_plan plan{.is_dropped = is_dropped_[c], .is_single = single_[c] != 0};
    if (auto const* const truncation = detail::truncation_of(rules_[c].steps)) {
      plan.most = truncation->most;
      plan.kept = truncation->kept;
    }
    if (!plan.is_dropped) {
      plan.of_missing = missing_of(c);
      plan.functions = detail::step_functions(rules_[c], map_of(rules_[c]));
    }
    plans.push_back(std::move(plan));
  }
  return bound_ids(keys, std::move(plans));
}

TESSERA_INLINE std::size_t sparse_pipeline::at(std::string const& column) const {
  auto const found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) throw error(errc::invalid_argument, "sparse_pipeline: no such column", {{"column", column}});
  return static_cast<std::size_t>(found - columns_.begin());
}

TESSERA_INLINE void sparse_pipeline::add_vocabulary(host_exec const& exec, std::string const& name,
                                                    std::vector<std::int64_t> const& values) {
  bool const is_used = std::any_of(rules_.begin(), rules_.end(), [&](sparse_rule const& rule) {
    return detail::shared_name(rule) == name && detail::vocabulary_of(rule.steps) != nullptr;
  });
  if (!is_used) throw error(errc::invalid_argument, "sparse_pipeline: a vocabulary of no column", {{"vocabulary", name}});
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    throw error(errc::invalid_argument, "sparse_pipeline: a vocabulary twice", {{"vocabulary", name}});
  names_.push_back(name);
  auto& map = maps_.emplace_back();
  map.reserve(exec, static_cast<std::int64_t>(values.size()));
  for (auto const value : values)
    if (!map.insert(exec, value).second)
      throw error(errc::invalid_argument, "sparse_pipeline: a value twice in a vocabulary", {{"vocabulary", name}, {"value", value}});
}

TESSERA_INLINE std::optional<std::int64_t> sparse_pipeline::bound_of(std::size_t c) const {
  auto const functions = detail::functions_of(rules_[c].steps);
  if (functions.empty()) return {};
  auto const& last = functions.back();
  if (auto const* const h = std::get_if<hash_ids>(&last)) return h->size;
  if (auto const* const m = std::get_if<modulo_ids>(&last)) return m->size;
  if (auto const* const b = std::get_if<bin_ids>(&last)) return static_cast<std::int64_t>(b->boundaries.size()) + 1;
  if (auto const* const clip = std::get_if<clip_ids>(&last)) {
    if (clip->least < 0 || clip->most >= std::numeric_limits<std::int64_t>::max() - 1) return {};
    return clip->most + 1;
  }
  auto const* const map = map_of(rules_[c]);
  if (map == nullptr && !is_dropped_[c])
    throw error(errc::invalid_argument, "sparse_pipeline: a vocabulary that is not fitted", {{"column", columns_[c]}});
  return vocabulary::first_value + (map == nullptr ? 0 : map->size());
}

TESSERA_INLINE std::int64_t sparse_pipeline::missing_of(std::size_t c) const {
  auto const bound = bound_of(c);
  if (!bound || rules_[c].missing == missing_policy::no_id) return missing_id;
  return detail::vocabulary_of(rules_[c].steps) != nullptr ? vocabulary::missing : *bound;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
