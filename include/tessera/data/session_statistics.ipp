// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/session_statistics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_feature_rows(char const* of, vector_view<jagged_view<std::int64_t const> const> features,
                                       vector_view<std::int64_t const> sessions) {
  if (sessions.empty() && features.size() > 0 && features[0].rows > 0)
    throw error(errc::shape_mismatch, std::string(of) + ": the samples have no sessions", {{"rows", features[0].rows}});
  for (std::int64_t f = 0; f < features.size(); ++f)
    if (features[f].rows != sessions.size())
      throw error(errc::shape_mismatch, std::string(of) + ": rows of a feature",
                  {{"feature", f}, {"rows", features[f].rows}, {"sessions", sessions.size()}});
}

}  // namespace detail

TESSERA_INLINE session_statistics::session_statistics(std::int64_t features, session_statistics_options options) : options_(options) {
  if (features < 0 || options.batch_size < 1 || options.one_session_in < 1)
    throw error(errc::invalid_argument, "session_statistics: options",
                {{"features", features}, {"batch_size", options.batch_size}, {"one_session_in", options.one_session_in}});
  features_.resize(at(features));
}

TESSERA_INLINE void session_statistics::add(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                            vector_view<std::int64_t const> sessions) {
  check(features, sessions);
  slots_.resize(exec, sessions.size());
  for (std::int64_t i = 0; i < sessions.size(); ++i) {
    auto const [slot, is_new] = numbers_.insert(exec, sessions[i]);
    slots_[i] = slot;
    if (is_new) grow(exec, counts_, slot + 1);
    if (is_new) counts_[slot] = {};
    ++counts_[slot].samples;
    if (counts_[slot].batch_samples++ == 0) grow(exec, in_batch_, batch_sessions_ + 1), in_batch_[batch_sessions_++] = slot;
    if (++samples_ % options_.batch_size == 0) end_batch();
  }
  exec.run(features.size(), [&](std::int64_t f) { add(exec, features_[at(f)], features[f], sessions); });
}

TESSERA_INLINE std::map<std::int64_t, std::int64_t> session_statistics::histogram() const {
  std::map<std::int64_t, std::int64_t> result;
  for (std::int64_t s = 0; s < sessions(); ++s) ++result[counts_[s].samples];
  return result;
}

TESSERA_INLINE repeat_means session_statistics::means() const noexcept {
  repeat_means m;
  double lengths = 0;
  for (auto const& f : features_) {
    auto const& r = f.repeats;
    auto const count = static_cast<double>(features_.size());
    m.exact += r.exact() / count;
    m.partial += r.partial() / count;
    m.exact_by_bytes += r.exact() * r.mean_length();
    m.partial_by_bytes += r.partial() * r.mean_length();
    lengths += r.mean_length();
  }
  if (lengths > 0) m.exact_by_bytes /= lengths, m.partial_by_bytes /= lengths;
  return m;
}

TESSERA_INLINE void session_statistics::check(vector_view<jagged_view<std::int64_t const> const> features,
                                              vector_view<std::int64_t const> sessions) const {
  if (features.size() != feature_count())
    throw error(errc::shape_mismatch, "session_statistics: number of features",
                {{"features", features.size()}, {"expected", feature_count()}});
  detail::check_feature_rows("session_statistics", features, sessions);
}

TESSERA_INLINE void session_statistics::end_batch() {
  for (std::int64_t i = 0; i < batch_sessions_; ++i) {
    ++batch_histogram_[counts_[in_batch_[i]].batch_samples];
    counts_[in_batch_[i]].batch_samples = 0;
  }
  batch_sessions_ = 0;
}

TESSERA_INLINE void session_statistics::add(host_exec const& exec, feature_state& into, jagged_view<std::int64_t const> rows,
                                            vector_view<std::int64_t const> sessions) const {
  if (auto const before = into.last.size(); before < this->sessions()) {
    grow(exec, into.last, this->sessions());
    std::fill(into.last.begin() + before, into.last.end(), std::uint64_t{0});
  }
  auto& r = into.repeats;
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (!looks_at(sessions[i])) continue;
    auto const list = rows.row(i);
    auto const context = static_cast<std::uint64_t>(slots_[i]);
    list_hash const hash(list);
    auto const name = std::max<std::uint64_t>(hash.low, 1);
    auto const last = std::exchange(into.last[slots_[i]], name);
    bool const is_same = last == name;
    ++r.samples;
    r.ids += list.size();
    r.pairs += last != 0;
    r.same_pairs += is_same;
    if (is_same || !into.lists.insert(exec, hash.within(context))) {
      ++r.repeated_samples;
      r.repeated_samples_ids += list.size();
      r.repeated_ids += options_.partial ? list.size() : 0;
      continue;
    }
    if (options_.across && !into.all_lists.insert(exec, hash)) {
      ++r.elsewhere_samples;
      r.elsewhere_ids += list.size();
    }
    if (!options_.partial) continue;
    // All are looked up before any goes in: what an id repeats is an earlier list.
    auto const named = [&](std::int64_t id) {
      return list_hash(static_cast<std::uint64_t>(id), ~static_cast<std::uint64_t>(id)).within(context);
    };
    for (auto const id : list) r.repeated_ids += into.ids.contains(named(id));
    for (auto const id : list) into.ids.insert(exec, named(id));
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
