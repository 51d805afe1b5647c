// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline void check_dedupe(double samples_per_session, double stays) {
  if (!(samples_per_session >= 1) || !std::isfinite(samples_per_session) || !(stays >= 0 && stays <= 1))
    throw error(errc::invalid_argument, "dedupe model: a session has 1 sample or more, a finite number, and stays is a probability",
                {{"samples_per_session", samples_per_session}, {"stays", stays}});
}

}  // namespace detail

/// How many ids a feature has in a batch when every list of a session is kept once, to expect:
///   DedupeLen(f) = l(f) · B · (1 - (S - 1) / S · d(f)).
/// `mean_length` l: of its lists; `batch` B: samples; `samples_per_session` S: in the batch; `stays` d: how probably the list is that of the
/// session's sample before. Exact in the mean where no list comes back after it changed and lengths say nothing about sizes of sessions.
/// Source: RecD, section 4.2. @throws tessera::error invalid_argument for S < 1 or without end, and for d outside [0, 1]; NaN is refused too.
inline double dedupe_length(double mean_length, double batch, double samples_per_session, double stays) {
  detail::check_dedupe(samples_per_session, stays);
  return mean_length * batch * (1 - (samples_per_session - 1) / samples_per_session * stays);
}

/// How many times fewer ids that is, l(f) · B / DedupeLen(f): length and batch cancel out. @throws tessera::error as above.
inline double dedupe_factor(double samples_per_session, double stays) { return 1 / dedupe_length(1, 1, samples_per_session, stays); }

/// What deduplication finds in one batch.
struct batch_repeats {
  std::int64_t samples = 0;
  std::int64_t sessions = 0;
  std::vector<feature_repeats> features{};  ///< (features,)

  /// S of the batch; 1 where it is empty.
  double samples_per_session() const noexcept { return sessions == 0 ? 1 : static_cast<double>(samples) / static_cast<double>(sessions); }
  /// Ids of a feature by the model, from S, l and d of the batch. @pre 0 <= f < features.size(), here and below.
  double predicted_length(std::int64_t f) const {
    auto const& r = features[static_cast<std::size_t>(f)];
    return dedupe_length(r.mean_length(), static_cast<double>(samples), samples_per_session(), r.stays());
  }
  /// Counted: ids of a feature's different lists, within sessions; repeats across sessions are not taken away.
  std::int64_t measured_length(std::int64_t f) const noexcept { return features[static_cast<std::size_t>(f)].kept_ids(); }
  /// And with those taken away: ids of the lists that are different in the whole batch.
  std::int64_t measured_length_across(std::int64_t f) const noexcept {
    return measured_length(f) - features[static_cast<std::size_t>(f)].elsewhere_ids;
  }
};

/// Measures a batch. `features` (features,) of a row a sample, `sessions` (samples,).
///
/// One chunk of work a feature. Takes `exec`'s memory as a `session_statistics` without `partial` does, and gives it back on return: some 27
/// to 53 bytes for every different list of a session and feature, as much for every different list of a feature, 8 bytes a sample, and 8 a
/// session and feature. Chunks allocate, so the memory must be thread-safe when `exec` has several threads: an arena is not. Several threads
/// may call at once, each with memory of its own or with memory that is thread-safe.
/// @throws tessera::error shape_mismatch for other numbers of rows, and for samples without sessions; and what the memory throws.
inline batch_repeats measure_batch(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                   vector_view<std::int64_t const> sessions) {
  session_statistics_options options;
  options.partial = false;
  session_statistics statistics(features.size(), options);
  statistics.add(exec, features, sessions);
  batch_repeats result;
  result.samples = statistics.samples();
  result.sessions = statistics.sessions();
  for (std::int64_t f = 0; f < features.size(); ++f) result.features.push_back(statistics.feature(f));
  return result;
}
inline batch_repeats measure_batch(host_exec const& exec, sample_columns_view batch) {
  return measure_batch(exec, batch.sparse, batch.sessions);
}
inline batch_repeats measure_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> features,
                                   vector_view<std::int64_t const> sessions) {
  std::vector<jagged_view<std::int64_t const>> keys;
  for (std::int64_t k = 0; k < features.keys; ++k) keys.push_back(features.key(k));
  return measure_batch(exec, keys, sessions);
}

struct recommend_groups_options {
  double least_factor = 1.5;       ///< features of a greater factor are worth it
  double samples_per_session = 0;  ///< S of the batches to come, at least 1 and finite; 0: that of the sample
  /// Of the changes of either feature, the share at which the other one stays, that a feature may have to its group's first. Features that
  /// are updated together differ only where a change happens to bring the same list again; those that are not differ at more than a third.
  /// A group keeps a row for each change of any of its features, so each bears at most about as large a share of rows for nothing.
  double most_disagreement = 0.05;
};

/// Why a feature is deduplicated or not.
struct dedupe_reason {
  double mean_length = 0;   ///< ids a list
  double stays = 0;         ///< d: how probably a list is that of the session's sample before
  double factor = 1;        ///< by the model: how many times fewer ids
  double disagreement = 0;  ///< with the first feature of its group
  std::int64_t group = -1;  ///< -1: not worth it
};

struct dedupe_recommendation {
  double samples_per_session = 1;                   ///< S that factors are of
  std::vector<std::vector<std::int64_t>> groups{};  ///< numbers of features, ascending; groups by their first features
  std::vector<dedupe_reason> features{};            ///< (features,)
};

namespace detail {

// By feature, the bits of those rows whose list is not that of the session's row before.
inline std::vector<std::uint64_t> changes_of(jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> before) {
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(divide_up(rows.rows, 64)));
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    if (before[i] < 0) continue;
    auto const a = rows.row(i), b = rows.row(before[i]);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) bits[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << i % 64;
  }
  return bits;
}

// |a xor b| / |a or b|; 0 where neither has any.
inline double disagreement(std::vector<std::uint64_t> const& a, std::vector<std::uint64_t> const& b) noexcept {
  std::int64_t either = 0, one = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    either += std::popcount(a[i] | b[i]);
    one += std::popcount(a[i] ^ b[i]);
  }
  return either == 0 ? 0 : static_cast<double>(one) / static_cast<double>(either);
}

}  // namespace detail

/// Which features to deduplicate, in which groups: those whose factor exceeds least_factor, features that change at the same samples of their
/// sessions together. A feature joins the first group with whose first feature it agrees. `features` (features,) of a row a sample, in an
/// order in which each session's samples follow each other in time; `sessions` (samples,). Some thousand samples in whole sessions do.
/// One chunk of work a feature. Takes 35 to 61 bytes a session of `exec`'s memory, on the calling thread alone, and of the heap 8 bytes a
/// session, 8 a sample, and one bit a sample and feature; several threads may call at once, as above.
/// @throws tessera::error shape_mismatch for other numbers of rows, invalid_argument for options that make no sense.
inline dedupe_recommendation recommend_groups(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                              vector_view<std::int64_t const> sessions, recommend_groups_options options = {}) {
  bool const says_samples = options.samples_per_session >= 1 && std::isfinite(options.samples_per_session);
  if (!(options.least_factor >= 0) || !(options.samples_per_session == 0 || says_samples) ||
      !(options.most_disagreement >= 0 && options.most_disagreement <= 1))
    throw error(errc::invalid_argument, "recommend_groups: options",
                {{"least_factor", options.least_factor},
                 {"samples_per_session", options.samples_per_session},
                 {"most_disagreement", options.most_disagreement}});
  detail::check_feature_rows("recommend_groups", features, sessions);
  id_map numbers;
  std::vector<std::int64_t> last, before(static_cast<std::size_t>(sessions.size()));
  for (std::int64_t i = 0; i < sessions.size(); ++i) {
    auto const [slot, is_new] = numbers.insert(exec, sessions[i]);
    if (is_new) last.push_back(-1);
    before[static_cast<std::size_t>(i)] = std::exchange(last[static_cast<std::size_t>(slot)], i);
  }
  auto const pairs = sessions.size() - numbers.size();
  std::vector<std::vector<std::uint64_t>> changes(static_cast<std::size_t>(features.size()));
  exec.run(features.size(), [&](std::int64_t f) { changes[static_cast<std::size_t>(f)] = detail::changes_of(features[f], before); });

  dedupe_recommendation result;
  if (options.samples_per_session >= 1)
    result.samples_per_session = options.samples_per_session;
  else if (numbers.size() > 0)
    result.samples_per_session = static_cast<double>(sessions.size()) / static_cast<double>(numbers.size());
  for (std::int64_t f = 0; f < features.size(); ++f) {
    auto const& changed = changes[static_cast<std::size_t>(f)];
    std::int64_t count = 0;
    for (auto const word : changed) count += std::popcount(word);
    auto& reason = result.features.emplace_back();
    if (sessions.size() > 0) reason.mean_length = static_cast<double>(features[f].size()) / static_cast<double>(sessions.size());
    if (pairs > 0) reason.stays = 1 - static_cast<double>(count) / static_cast<double>(pairs);
    reason.factor = dedupe_factor(result.samples_per_session, reason.stays);
    if (!(reason.factor > options.least_factor)) continue;
    for (std::size_t g = 0; g < result.groups.size() && reason.group < 0; ++g) {
      reason.disagreement = detail::disagreement(changed, changes[static_cast<std::size_t>(result.groups[g][0])]);
      if (reason.disagreement <= options.most_disagreement) reason.group = static_cast<std::int64_t>(g);
    }
    if (reason.group < 0) {
      reason.disagreement = 0;
      reason.group = static_cast<std::int64_t>(result.groups.size());
      result.groups.emplace_back();
    }
    result.groups[static_cast<std::size_t>(reason.group)].push_back(f);
  }
  return result;
}
inline dedupe_recommendation recommend_groups(host_exec const& exec, sample_columns_view sample, recommend_groups_options options = {}) {
  return recommend_groups(exec, sample.sparse, sample.sessions, options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
