// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/sparse_steps.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<id_step> functions_of(std::vector<id_step> const& steps) {
  std::vector<id_step> functions;
  for (auto const& step : steps)
    if (!std::holds_alternative<truncate_ids>(step)) functions.push_back(step);
  return functions;
}

TESSERA_INLINE void check_rule(std::string const& caller, sparse_rule const& rule) {
  auto const& column = rule.columns.front();
  auto const refuse = [&](char const* what, std::vector<error_value> values) {
    values.emplace(values.begin(), "column", column);
    throw error(errc::invalid_argument, caller + ": " + what, std::move(values));
  };
  constexpr auto most_rows = std::numeric_limits<std::int64_t>::max() - 1;  // one more is for a missing id
  auto const check_size = [&](char const* what, std::int64_t size, std::vector<std::int64_t> const& per_key) {
    if (!per_key.empty()) refuse("one number for all columns of a rule", {{"numbers", per_key.size()}});
    if (size < 1 || size > most_rows) refuse(what, {{"size", size}, {"least", 1}});
  };
  std::int64_t truncations = 0, hashes = 0, vocabularies = 0;
  for (auto const& step : rule.steps) {
    if (auto const* const s = std::get_if<truncate_ids>(&step)) {
      if (!s->most_per_key.empty()) refuse("one number for all columns of a rule", {{"numbers", s->most_per_key.size()}});
      if (s->most < 0) refuse("rows cut to a negative length", {{"most", s->most}, {"least", 0}});
      check_choice(caller.c_str(), "kept", s->kept, kept_values::last);
      if (++truncations > 1) refuse("rows cut twice", {{"most", s->most}});
      continue;
    }
    if (auto const* const s = std::get_if<hash_ids>(&step)) {
      check_size("a hash of that size", s->size, s->size_per_key);
      if (!rule.share.empty() && !s->as_key.empty() && s->as_key != rule.share)
        refuse("a hash as of another name than the shared one", {{"as_key", s->as_key}, {"share", rule.share}});
      ++hashes;
    }
    if (auto const* const s = std::get_if<modulo_ids>(&step)) check_size("a remainder of that size", s->size, s->size_per_key);
    if (auto const* const s = std::get_if<clip_ids>(&step))
      if (s->least > s->most) refuse("bounds out of order", {{"least", s->least}, {"most", s->most}});
    if (auto const* const s = std::get_if<bin_ids>(&step))
      for (std::size_t i = 1; i < s->boundaries.size(); ++i)
        if (s->boundaries[i] <= s->boundaries[i - 1])
          refuse("boundaries that do not ascend", {{"position", i}, {"boundary", s->boundaries[i]}});
    if (vocabularies > 0 && hashes == 0) refuse("a step behind a vocabulary", {});
    if (auto const* const s = std::get_if<vocabulary>(&step)) {
      if (s->min_count < 1) refuse("a vocabulary of that min_count", {{"min_count", s->min_count}, {"least", 1}});
      if (s->limit < 0 || s->limit > most_rows / 2) refuse("a vocabulary of that limit", {{"limit", s->limit}, {"least", 0}});
      ++vocabularies;
    }
    if (hashes > 0 && vocabularies > 0) refuse("a hash and a vocabulary exclude each other", {});
  }
}

TESSERA_INLINE std::vector<sparse_rule> sparse_rules_by_column(std::vector<std::string> const& columns,
                                                               std::vector<sparse_rule> const& rules) {
  std::string const caller = "sparse_pipeline";
  auto result = rules_by_column(caller, columns, rules);
  for (auto& rule : result)
    if (rule.share.empty())
      for (auto const& other : result)
        if (other.share == rule.columns.front()) rule.share = other.share;
  for (auto const& rule : result) {
    check_choice(caller.c_str(), "missing", rule.missing, missing_policy::no_id);
    check_rule(caller, rule);
  }
  for (std::size_t c = 0; c < result.size(); ++c) {
    if (result[c].share.empty()) continue;
    auto const own = functions_of(result[c].steps);
    for (auto& other : result) {
      if (other.share != result[c].share || own.empty()) continue;
      auto const theirs = functions_of(other.steps);
      if (theirs.empty())
        other.steps.insert(other.steps.end(), own.begin(), own.end());
      else if (theirs != own)
        throw error(errc::invalid_argument, caller + ": columns that share have other steps",
                    {{"share", other.share}, {"column", result[c].columns.front()}, {"other column", other.columns.front()}});
    }
  }
  return result;
}

TESSERA_INLINE std::vector<step_function> step_functions(sparse_rule const& rule, id_map const* map) {
  std::vector<step_function> functions;
  transformed_key const key{0, salt_of(shared_name(rule))};
  for (auto const& step : rule.steps) {
    if (auto const* const h = std::get_if<hash_ids>(&step)) functions.emplace_back(h->of_key(key));
    if (auto const* const m = std::get_if<modulo_ids>(&step)) functions.emplace_back(m->of_key(key));
    if (auto const* const c = std::get_if<clip_ids>(&step)) functions.emplace_back(c->of_key(key));
    if (auto const* const b = std::get_if<bin_ids>(&step))
      functions.emplace_back(bin_ids::function{b->boundaries.data(), static_cast<std::int64_t>(b->boundaries.size())});
    if (std::holds_alternative<vocabulary>(step) && map != nullptr) functions.emplace_back(vocabulary_function{map});
  }
  return functions;
}

TESSERA_INLINE void apply_function(step_function const& function, std::int64_t* ids, std::int64_t n, bool has_missing,
                                   std::int64_t of_missing) {
  // No id is told from others where there are none to tell.
  auto const result_or_missing = [=](std::int64_t id, std::int64_t result) {
    return has_missing && id == missing_id ? of_missing : result;
  };
  auto const replace = [&](auto const& f) {
    for (std::int64_t i = 0; i < n; ++i) ids[i] = result_or_missing(ids[i], f(ids[i]));
  };
  if (auto const* const hash = std::get_if<hash_ids::function>(&function)) {
    constexpr std::int64_t most = 512;
    std::array<std::uint64_t, most> bits;
    for (std::int64_t first = 0; first < n; first += most) {
      auto const count = std::min(most, n - first);
      for (std::int64_t i = 0; i < count; ++i) bits.data()[i] = hash->mixed(ids[first + i]);
      for (std::int64_t i = 0; i < count; ++i) ids[first + i] = result_or_missing(ids[first + i], hash->scaled(bits.data()[i]));
    }
  } else if (auto const* const values = std::get_if<vocabulary_function>(&function)) {
    constexpr std::int64_t ahead = 16;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i + ahead < n) values->map->prefetch(ids[i + ahead]);
      ids[i] = result_or_missing(ids[i], (*values)(ids[i]));
    }
  } else if (auto const* const remainder = std::get_if<modulo_ids::function>(&function)) {
    replace(*remainder);
  } else if (auto const* const clip = std::get_if<clip_ids::function>(&function)) {
    replace(*clip);
  } else if (auto const* const bins = std::get_if<bin_ids::function>(&function)) {
    replace(*bins);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
