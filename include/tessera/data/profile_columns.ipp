// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/profile_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void number_column::add(host_exec const& exec, vector_view<float const> numbers) {
  for (auto const x : numbers) {
    if (std::isnan(x)) {
      ++missing_;
      continue;
    }
    histogram_.add(exec, x);
    zeros_ += x == 0;
    ones_ += x == 1;
    if (std::isfinite(x)) finite_.add(x);
  }
}

TESSERA_INLINE void number_column::merge(host_exec const& exec, number_column const& other) {
  missing_ += other.missing_;
  zeros_ += other.zeros_;
  ones_ += other.ones_;
  finite_.merge(other.finite_);
  histogram_.merge(exec, other.histogram_);
}

TESSERA_INLINE void number_column::show(profile_options const& options, number_profile& out) const {
  out.rows = missing_ + histogram_.count();
  out.missing = missing_;
  out.infinite = histogram_.count() - finite_.count;
  out.zeros = zeros_;
  out.ones = ones_;
  if (finite_.count > 0) {
    out.mean = finite_.mean();
    out.deviation = std::sqrt(finite_.variance());
  }
  if (histogram_.count() == 0) return;
  out.least = histogram_.least();
  out.largest = histogram_.largest();
  for (auto const share : options.quantiles) out.quantiles.push_back({share, histogram_.quantile(share)});
}

TESSERA_INLINE buffer<std::int64_t> counts_descending(host_exec const& exec, sampled_counts<sampled_id> const& from) {
  buffer<std::int64_t> counts(exec, from.size());
  std::int64_t i = 0;
  from.for_each([&](sampled_id const&, std::int64_t count) { counts.data()[i++] = count; });
  std::sort(counts.begin(), counts.end(), std::greater<>());
  return counts;
}

TESSERA_INLINE top_ids top_of(vector_view<std::int64_t const> descending, double rate, std::int64_t lookups, double share) {
  top_ids result{share};
  if (descending.empty()) return result;
  auto const n = descending.size();
  auto const top = std::max(1.0, std::ceil(share * static_cast<double>(n) / rate)) * rate;  // of the sample's ids: no whole number
  auto const whole = std::min(static_cast<std::int64_t>(top), n - 1);
  auto const border = static_cast<double>(descending[whole]);
  auto others = -(top - static_cast<double>(whole)) * border;
  double variance = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    auto const count = static_cast<double>(descending[i]);
    if (i >= whole) others += count;
    // What one id more in the sample would add: its lookups, less those that move over the border of the top.
    auto const change = std::min(count, border) - border * share;
    variance += (1 - rate) * change * change;
  }
  auto const all = static_cast<double>(lookups);
  result.lookups = std::clamp((all - others / rate) / all, 0.0, 1.0);
  result.standard_error = std::sqrt(variance) / (rate * all);
  return result;
}

TESSERA_INLINE void id_column::add(host_exec const& exec, jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> sessions) {
  add_ids(exec, rows.all_values());
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    auto const row = rows.row(i);
    auto const length = row.size() - std::count(row.begin(), row.end(), missing_id);
    missing_ += length == 0;
    // Lengths repeat: those of single ids come in two counts.
    if (length == 1)
      ++of_one_id_;
    else
      lengths_.add(exec, static_cast<float>(length));
    if (!has_sessions_) continue;
    if (auto const unit = sampling_unit(sessions[i]); lists_.takes(unit)) lists_.add(exec, {unit, list_hash(row).low, length});
  }
  lengths_.add(exec, 1, std::exchange(of_one_id_, 0));
}

TESSERA_INLINE void id_column::merge(host_exec const& exec, id_column const& other) {
  missing_ += other.missing_;
  lookups_ += other.lookups_;
  lengths_.merge(exec, other.lengths_);
  ids_.merge(exec, other.ids_);
  lists_.merge(exec, other.lists_);
}

TESSERA_INLINE void id_column::show(host_exec const& exec, profile_options const& options, id_profile& out) const {
  out.rows = lengths_.count();
  out.missing = missing_;
  out.lookups = lookups_;
  out.distinct = distinct_of(ids_);
  if (out.rows > 0) {
    out.lengths.least = static_cast<std::int64_t>(lengths_.least());
    out.lengths.largest = static_cast<std::int64_t>(lengths_.largest());
    out.lengths.mean = share_of(lookups_, out.rows);
    for (auto const share : options.quantiles) out.lengths.quantiles.push_back({share, lengths_.quantile(share)});
  }
  auto const counts = counts_descending(exec, ids_);
  for (auto const share : options.top_shares) out.top.push_back(top_of(counts.view(), ids_.rate(), lookups_, share));
  if (lists_.size() == 0) return;
  session_repeats repeats{.sessions = lists_.rate()};
  lists_.for_each([&](sampled_list const& key, std::int64_t count) {
    repeats.rows += count;
    repeats.ids += count * key.length;
    ++repeats.kept_rows;
    repeats.kept_ids += key.length;
  });
  out.repeats = repeats;
}

TESSERA_INLINE void id_column::add_ids(host_exec const& exec, vector_view<std::int64_t const> values) {
  constexpr std::int64_t at_once = 64;
  std::array<sampled_id, at_once> taken;
  for (std::int64_t first = 0; first < values.size(); first += at_once) {
    std::size_t count = 0;
    for (auto const id : values.slice(first, std::min(at_once, values.size() - first))) {
      if (id == missing_id) continue;
      ++lookups_;
      sampled_id const key{sampling_unit(id)};
      if (!ids_.takes(key.unit)) continue;
      ids_.prefetch(key);
      taken[count++] = key;
    }
    for (std::size_t i = 0; i < count; ++i) ids_.add(exec, taken[i]);
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
