// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/source_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE source_profile::source_profile(sample_schema schema, profile_options options)
    : schema_(std::move(schema)), options_(std::move(options)), sessions_(std::max<std::int64_t>(options_.id_limit, 1)) {
  check_schema("source_profile", schema_);
  check_options();
  numbers_.resize(1 + schema_.other_labels.size() + (schema_.weight.empty() ? 0 : 1) + schema_.dense.size());
  for (std::size_t c = 0; c < schema_.sparse.size(); ++c) ids_.emplace_back(options_, !schema_.session.empty());
}

TESSERA_INLINE void source_profile::add(host_exec const& exec, sample_columns_view samples) {
  check(samples);
  for_each_column(exec, [&](column c) {
    switch (c.kind) {
      case column_kind::ids: return ids_[c.number].add(exec, samples.sparse[at(c.number)], samples.sessions);
      case column_kind::numbers: return numbers_[c.number].add(exec, numbers_of(samples, at(c.number)));
      case column_kind::sessions: return add_sessions(exec, samples.sessions);
      case column_kind::times: return add_times(samples.times);
    }
  });
  rows_ += samples.size();
}

TESSERA_INLINE void source_profile::merge(host_exec const& exec, source_profile const& other) {
  if (!(other.schema_ == schema_) || !(other.options_ == options_))
    throw error(errc::invalid_argument, "source_profile: merge of a profile with another schema or other options",
                {{"rows", rows_}, {"other rows", other.rows_}});
  for_each_column(exec, [&](column c) {
    switch (c.kind) {
      case column_kind::ids: return ids_[c.number].merge(exec, other.ids_[c.number]);
      case column_kind::numbers: return numbers_[c.number].merge(exec, other.numbers_[c.number]);
      case column_kind::sessions: return sessions_.merge(exec, other.sessions_);
      case column_kind::times: first_time_ = std::min(first_time_, other.first_time_); last_time_ = std::max(last_time_, other.last_time_);
    }
  });
  rows_ += other.rows_;
}

TESSERA_INLINE data_profile source_profile::result(host_exec const& exec) const {
  data_profile out;
  out.rows = rows_;
  add_named(out.numbers, {schema_.label}, number_role::label);
  add_named(out.numbers, schema_.other_labels, number_role::other_label);
  if (!schema_.weight.empty()) add_named(out.numbers, {schema_.weight}, number_role::weight);
  add_named(out.numbers, schema_.dense, number_role::dense);
  for (auto const& name : schema_.sparse) {
    out.ids.push_back({.name = name});
    out.ids.back().is_single = schema_.is_single(name);
  }
  if (!schema_.session.empty()) out.sessions.emplace().name = schema_.session;
  if (!schema_.time.empty() && rows_ > 0) out.times = time_profile{schema_.time, first_time_, last_time_};
  for_each_column(exec, [&](column c) {
    switch (c.kind) {
      case column_kind::ids: return ids_[c.number].show(exec, options_, out.ids[c.number]);
      case column_kind::numbers: return numbers_[c.number].show(options_, out.numbers[c.number]);
      case column_kind::sessions: return show_sessions(exec, *out.sessions);
      case column_kind::times: return;
    }
  });
  return out;
}

TESSERA_INLINE vector_view<float const> source_profile::numbers_of(sample_columns_view const& samples, std::int64_t number) const {
  if (number == 0) return samples.labels;
  auto const others = at(schema_.other_labels.size()), n = samples.size();
  if (number <= others) return {samples.other_labels.row(number - 1), n};
  auto const rest = number - 1 - others;
  if (schema_.weight.empty()) return {samples.dense.row(rest), n};
  return rest == 0 ? samples.weights : vector_view<float const>{samples.dense.row(rest - 1), n};
}

TESSERA_INLINE void source_profile::add_times(vector_view<std::int64_t const> times) {
  for (auto const time : times) {
    first_time_ = std::min(first_time_, time);
    last_time_ = std::max(last_time_, time);
  }
}

TESSERA_INLINE void source_profile::add_named(std::vector<number_profile>& out, std::vector<std::string> const& names, number_role role) {
  for (auto const& name : names) {
    out.emplace_back().name = name;
    out.back().role = role;
  }
}

TESSERA_INLINE void source_profile::show_sessions(host_exec const& exec, session_profile& out) const {
  out.sessions = detail::distinct_of(sessions_);
  auto const counts = detail::counts_descending(exec, sessions_);
  if (counts.empty()) return;
  out.mean_samples = static_cast<double>(rows_) / sessions_.distinct();
  for (auto const share : options_.quantiles) {
    auto const rank = std::max(std::int64_t{1}, static_cast<std::int64_t>(std::ceil(share * static_cast<double>(counts.size()))));
    out.quantiles.push_back({share, static_cast<double>(counts[counts.size() - rank])});
  }
}

TESSERA_INLINE void source_profile::check_options() const {
  for (auto const& [name, limit] : {std::pair("id_limit", options_.id_limit), std::pair("list_limit", options_.list_limit)})
    if (limit < 64) throw error(errc::invalid_argument, "source_profile: a limit", {{"option", name}, {"limit", limit}, {"least", 64}});
  for (auto const* shares : {&options_.quantiles, &options_.top_shares})
    for (auto const share : *shares)
      if (!(share >= 0 && share <= 1)) throw error(errc::invalid_argument, "source_profile: a share outside [0, 1]", {{"share", share}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
