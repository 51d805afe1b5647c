// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/access_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE table_accesses::table_accesses(host_exec const& exec, table_options const& table, bool slots_are_ids, std::int64_t max_ids)
    : table_(table), slots_are_ids_(slots_are_ids), counts_(exec, slots_are_ids ? table.rows : 0), ids_(slots_are_ids ? 0 : max_ids) {
  std::fill(counts_.begin(), counts_.end(), 0U);
}

TESSERA_INLINE table_accesses::table_accesses(table_options const& table, buffer<std::uint32_t> counts)
    : table_(table), slots_are_ids_(true), counts_(std::move(counts)) {
  if (counts_.size() != table.rows)
    throw error(errc::shape_mismatch, "table_accesses: a count a row",
                {{"table", table.id.value}, {"counts", counts_.size()}, {"rows", table.rows}});
  for (auto const count : counts_) accesses_ += count;
}

TESSERA_INLINE table_accesses::table_accesses(table_options const& table, value_counts ids, std::int64_t accesses)
    : table_(table), slots_are_ids_(false), accesses_(accesses), ids_(std::move(ids)) {
  std::int64_t counted = 0;
  for (auto const count : ids_.counts()) counted += count;
  if (accesses < counted)
    throw error(errc::invalid_argument, "table_accesses: fewer accesses than are counted",
                {{"table", table.id.value}, {"accesses", accesses}, {"counted", counted}});
}

TESSERA_INLINE void table_accesses::check_merge(table_accesses const& other) const {
  if (other.table_.id != table_.id || other.slots_are_ids_ != slots_are_ids_ || other.counts_.size() != counts_.size() ||
      other.ids_.limit() != ids_.limit())
    throw error(errc::incompatible, "access_profile: accesses of another table, or counted otherwise",
                {{"table", table_.id.value}, {"other table", other.table_.id.value}});
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  for (std::int64_t i = 0; i < counts_.size(); ++i)
    if (std::int64_t{counts_[i]} + other.counts_[i] > most)
      throw error(errc::out_of_range, "access_profile: a row was read too often to count", {{"table", table_.id.value}, {"row", i}});
}

TESSERA_INLINE void table_accesses::merge(host_exec const& exec, table_accesses const& other) {
  check_merge(other);
  if (slots_are_ids_)
    for (std::int64_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  else
    ids_.merge(exec, other.ids_);
  accesses_ += other.accesses_;
}

TESSERA_INLINE void table_accesses::count(jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> times, std::int64_t key) {
  auto const bound = static_cast<std::uint64_t>(counts_.size());
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    auto const row = rows.row(r);
    auto const more = times.empty() ? 1 : times[r];
    for (std::int64_t i = 0; i < row.size(); ++i) {
      if (static_cast<std::uint64_t>(row[i]) >= bound)
        throw error(errc::out_of_range, "profile_accesses: an id that its table has no row for",
                    {{"key", key}, {"row", r}, {"position", i}, {"id", row[i]}, {"rows of the table", counts_.size()}});
      auto const sum = std::int64_t{counts_[row[i]]} + more;
      if (sum > std::numeric_limits<std::uint32_t>::max())
        throw error(errc::out_of_range, "profile_accesses: a row was read too often to count",
                    {{"table", table_.id.value}, {"row", row[i]}});
      counts_[row[i]] = static_cast<std::uint32_t>(sum);
      accesses_ += more;
    }
  }
}

TESSERA_INLINE void table_accesses::count(host_exec const& exec, jagged_view<std::int64_t const> rows,
                                          vector_view<std::int64_t const> inverse, std::int64_t samples) {
  if (inverse.empty()) {
    ids_.add(exec, rows.all_values());
    accesses_ += rows.size();
    return;
  }
  for (std::int64_t i = 0; i < samples; ++i) {
    auto const row = rows.row(inverse[i]);
    ids_.add(exec, row);
    accesses_ += row.size();
  }
}

TESSERA_INLINE void access_profile::merge(host_exec const& exec, access_profile const& other) {
  if (other.tables.size() != tables.size())
    throw error(errc::incompatible, "access_profile: a profile of other tables",
                {{"tables", tables.size()}, {"other tables", other.tables.size()}});
  for (std::size_t t = 0; t < tables.size(); ++t) tables[t].check_merge(other.tables[t]);
  for (std::size_t t = 0; t < tables.size(); ++t) tables[t].merge(exec, other.tables[t]);
  samples += other.samples;
}

namespace detail {

TESSERA_INLINE access_profile empty_profile(host_exec const& exec, std::vector<table_feature> const& features,
                                            std::vector<table_spec> const& specs, access_profile_options const& options) {
  for (std::size_t f = 0; f < features.size(); ++f)
    if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(specs.size()))
      throw error(errc::out_of_range, "profile_accesses: a feature of no table",
                  {{"feature", f}, {"table", features[f].table}, {"tables", specs.size()}});
  if (options.max_ids < 0)
    throw error(errc::invalid_argument, "profile_accesses: option max_ids", {{"max_ids", options.max_ids}, {"least", 0}});
  access_profile profile;
  for (auto const& spec : specs) profile.tables.emplace_back(exec, spec.table, spec.slots_are_ids, options.max_ids);
  return profile;
}

TESSERA_INLINE void check_keys_of_features(char const* call, batch_view const& batch, std::vector<table_feature> const& features) {
  if (batch.sparse.keys != static_cast<std::int64_t>(features.size()))
    throw error(errc::shape_mismatch, std::string(call) + ": a feature a key",
                {{"keys", batch.sparse.keys}, {"features", features.size()}});
  check_groups(call, batch.inverse_keyed());
  check_inverses(call, batch.inverse_keyed());
}

TESSERA_INLINE void add_accesses(host_exec const& exec, access_profile& profile, std::vector<table_feature> const& features,
                                 batch_view const& batch) {
  check_keys_of_features("profile_accesses", batch, features);
  auto const view = batch.inverse_keyed();
  std::vector<buffer<std::int64_t>> times;  // of each group: how many samples have a distinct row
  for (auto const& group : view.groups) {
    auto& of_rows = times.emplace_back(exec, view.rows(group));
    std::fill(of_rows.begin(), of_rows.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < view.samples; ++i) ++of_rows[group.inverse[i]];
  }
  auto const times_of = [&](std::int64_t key) {
    for (std::int64_t g = 0; g < view.groups.size(); ++g)
      if (key < view.groups[g].first_key + view.groups[g].keys) return std::as_const(times[static_cast<std::size_t>(g)]).view();
    return vector_view<std::int64_t const>();
  };
  auto const of_table = [&](std::int64_t table, auto const& f) {
    for (std::int64_t key = 0; key < view.keys(); ++key)
      if (features[static_cast<std::size_t>(key)].table == table) f(key);
  };
  auto const tables = static_cast<std::int64_t>(profile.tables.size());
  exec.run(tables, [&](std::int64_t t) {
    auto& accesses = profile.tables[static_cast<std::size_t>(t)];
    if (accesses.slots_are_ids()) of_table(t, [&](std::int64_t key) { accesses.count(view.distinct.key(key), times_of(key), key); });
  });
  for (std::int64_t t = 0; t < tables; ++t)  // by one thread, since maps of ids grow
    if (auto& accesses = profile.tables[static_cast<std::size_t>(t)]; !accesses.slots_are_ids())
      of_table(t, [&](std::int64_t key) { accesses.count(exec, view.distinct.key(key), view.inverse(key), view.samples); });
  profile.samples += view.samples;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
