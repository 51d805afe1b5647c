// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/pooling.hpp>

#include "settings.hpp"

namespace examples {

using column_list = std::vector<std::string>;

inline column_list split(std::string_view text, char separator) {
  column_list parts;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    auto const end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

inline std::string join(column_list const& parts, char const* separator) {
  std::string text;
  for (auto const& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

/// What becomes of the sparse columns, as the options say. Nothing here depends on what is deduplicated.
struct column_plan {
  enum class pooled_by { transformer, attention };
  struct sequence {
    column_list columns;  // whose lists are put together
    pooled_by kind;
  };
  std::vector<sequence> sequences;
  column_list bags;  // the other columns, in the order of the schema
  std::vector<tessera::pooling> poolings;
  std::int64_t target = -1;                       // of attention: which of the bags
  std::map<std::string, std::string> table_of{};  // of columns that read the table of another

  /// The column whose table a column reads.
  std::string const& owner(std::string const& column) const {
    auto const found = table_of.find(column);
    return found == table_of.end() ? column : found->second;
  }
  /// Leaves out columns that are not among these.
  void keep(column_list const& kept) {
    auto const is_gone = [&](std::string const& name) { return std::find(kept.begin(), kept.end(), name) == kept.end(); };
    auto const target_name = target < 0 ? std::string() : bags[static_cast<std::size_t>(target)];
    for (auto& s : sequences) std::erase_if(s.columns, is_gone);
    std::erase_if(sequences, [](auto const& s) { return s.columns.empty(); });
    for (auto b = bags.size(); b-- > 0;)
      if (is_gone(bags[b])) {
        bags.erase(bags.begin() + static_cast<std::ptrdiff_t>(b));
        poolings.erase(poolings.begin() + static_cast<std::ptrdiff_t>(b));
      }
    if (target < 0) return;
    target = std::find(bags.begin(), bags.end(), target_name) - bags.begin();
    if (target == static_cast<std::int64_t>(bags.size()))
      throw tessera::error(tessera::errc::incompatible, "the target of attention is empty everywhere", {{"column", target_name}});
  }
  /// Sequences, then bags: the order of the keys where nothing is deduplicated.
  column_list columns() const {
    column_list all;
    for (auto const& s : sequences) all.insert(all.end(), s.columns.begin(), s.columns.end());
    all.insert(all.end(), bags.begin(), bags.end());
    return all;
  }
};

namespace detail {

[[noreturn]] inline void refuse_option(char const* option, char const* what, std::vector<tessera::error_value> values) {
  throw tessera::error(tessera::errc::invalid_argument, std::string("option ") + option + ": " + what, std::move(values));
}

/// Names of an option, each known and there once.
class checked_names {
 public:
  checked_names(char const* option, column_list const& known) : option_(option), known_(known) {}

  void add(std::string const& name) {
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      refuse_option(option_, "not among the sparse columns", {{"column", name}, {"sparse columns", join(known_, ",")}});
    if (std::find(seen_.begin(), seen_.end(), name) != seen_.end()) refuse_option(option_, "a column twice", {{"column", name}});
    seen_.push_back(name);
  }

 private:
  char const* option_;
  column_list const& known_;
  column_list seen_;
};

inline std::int64_t find_target(settings const& s, column_plan const& plan) {
  auto const bags = static_cast<std::int64_t>(plan.bags.size());
  if (!s.attention_target.empty()) {
    auto const found = std::find(plan.bags.begin(), plan.bags.end(), s.attention_target) - plan.bags.begin();
    if (found == bags)
      refuse_option("--attention-target", "not a sparse column that is pooled by sum, mean or max",
                    {{"column", s.attention_target}, {"those columns", join(plan.bags, ",")}});
    return found;
  }
  for (auto b = bags; b-- > 0;)
    if (plan.poolings[static_cast<std::size_t>(b)] == tessera::pooling::sum) return b;
  refuse_option("--pooling", "attention needs a target, a column that is pooled by sum, or --attention-target", {{"--pooling", s.pooling}});
}

}  // namespace detail

/// `columns`: the sparse ones. @throws tessera::error naming the option and what is wrong in it.
inline column_plan make_column_plan(settings const& s, column_list const& columns) {
  detail::checked_names names("--pooling", columns);
  column_plan plan;
  column_list pooled;  // by a kind that the option names
  std::vector<std::pair<std::string, tessera::pooling>> bags;
  bool attends = false;
  for (auto const& part : split(s.pooling, ',')) {
    auto const equals = part.find('=');
    auto const kind = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    auto const own = split(std::string_view(part).substr(0, equals), '+');
    if (own.empty() || kind.empty()) detail::refuse_option("--pooling", "NAME=KIND is expected", {{"found", part}});
    for (auto const& name : own) {
      names.add(name);
      pooled.push_back(name);
    }
    if (kind == "attention" || kind == "transformer") {
      attends = attends || kind == "attention";
      plan.sequences.push_back({own, kind == "attention" ? column_plan::pooled_by::attention : column_plan::pooled_by::transformer});
      continue;
    }
    if (kind != "sum" && kind != "mean" && kind != "max")
      detail::refuse_option("--pooling", "no such kind",
                            {{"column", own[0]}, {"found", kind}, {"kinds", "sum, mean, max, attention, transformer"}});
    if (own.size() > 1) detail::refuse_option("--pooling", "only attention and transformer put lists together", {{"found", part}});
    bags.emplace_back(own[0], kind == "max" ? tessera::pooling::max : kind == "mean" ? tessera::pooling::mean : tessera::pooling::sum);
  }
  for (auto const& column : columns) {
    auto const bag = std::find_if(bags.begin(), bags.end(), [&](auto const& b) { return b.first == column; });
    if (bag == bags.end() && std::find(pooled.begin(), pooled.end(), column) != pooled.end()) continue;
    plan.bags.push_back(column);
    plan.poolings.push_back(bag == bags.end() ? tessera::pooling::sum : bag->second);
  }
  if (attends) plan.target = detail::find_target(s, plan);
  if (!attends && !s.attention_target.empty())
    detail::refuse_option("--attention-target", "no column is pooled by attention", {{"--pooling", s.pooling}});
  for (auto const& part : split(s.share, ',')) {
    auto const equals = part.find('=');
    auto const name = part.substr(0, equals), other = equals == std::string::npos ? std::string() : part.substr(equals + 1);
    if (name.empty() || other.empty()) detail::refuse_option("--share", "NAME=OTHER is expected", {{"found", part}});
    for (auto const& column : {name, other})
      if (std::find(columns.begin(), columns.end(), column) == columns.end())
        detail::refuse_option("--share", "not among the sparse columns", {{"column", column}, {"sparse columns", join(columns, ",")}});
    if (name == other || !plan.table_of.emplace(name, other).second)
      detail::refuse_option("--share", "a column reads one other table", {{"column", name}});
  }
  for (auto const& [name, other] : plan.table_of)
    if (plan.table_of.contains(other))
      detail::refuse_option("--share", "the other column has a table of its own", {{"column", name}, {"other", other}});
  return plan;
}

/// The groups that an option names. @throws tessera::error naming what is wrong in them.
inline std::vector<column_list> named_groups(settings const& s, column_plan const& plan) {
  auto const columns = plan.columns();
  detail::checked_names names("--dedup", columns);
  std::vector<column_list> groups;
  if (s.dedup.empty()) detail::refuse_option("--dedup", "auto, off, or groups of columns", {});
  for (auto const& part : split(s.dedup, ',')) {
    auto const& group = groups.emplace_back(split(part, '+'));
    if (group.empty()) detail::refuse_option("--dedup", "an empty group", {{"--dedup", s.dedup}});
    for (auto const& name : group) names.add(name);
    for (auto const& sequence : plan.sequences) {
      auto const inside = std::count_if(sequence.columns.begin(), sequence.columns.end(),
                                        [&](auto const& column) { return std::find(group.begin(), group.end(), column) != group.end(); });
      if (inside > 0 && inside < static_cast<std::ptrdiff_t>(sequence.columns.size()))
        detail::refuse_option("--dedup", "columns whose lists are put together are in one group, or in none",
                              {{"group", part}, {"put together", join(sequence.columns, "+")}});
    }
  }
  return groups;
}

/// The groups that a batch has: of what is wanted, sequences each their own, as the model pools them, then the rest of each group.
inline std::vector<column_list> batch_groups(column_plan const& plan, std::vector<column_list> const& wanted) {
  auto const is_in = [](column_list const& names, std::string const& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<column_list> groups;
  for (auto const& sequence : plan.sequences)
    if (std::any_of(wanted.begin(), wanted.end(), [&](auto const& group) { return is_in(group, sequence.columns[0]); }))
      groups.push_back(sequence.columns);
  for (auto const& group : wanted) {
    column_list rest;
    for (auto const& name : group)
      if (is_in(plan.bags, name)) rest.push_back(name);
    if (!rest.empty()) groups.push_back(std::move(rest));
  }
  return groups;
}

}  // namespace examples
