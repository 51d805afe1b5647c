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

void check_dedupe(double samples_per_session, double stays);

}  // namespace detail

/// Returns how many ids a feature is expected to have in a batch when every session keeps each list once.
///   DedupeLen(f) = l(f) · B · (1 - (S - 1) / S · d(f)).
/// `mean_length` is l, the ids of a list. `batch` is B, the samples of the batch. `samples_per_session` is S, in the batch. `stays` is d,
/// the probability that a list is that of the session's sample before. The mean is exact where no list comes back after it changed, and
/// lengths say nothing about sizes of sessions. Source: RecD, section 4.2.
/// @throws tessera::error invalid_argument for S below 1, infinite or NaN, and for d outside [0, 1] or NaN.
inline double dedupe_length(double mean_length, double batch, double samples_per_session, double stays) {
  detail::check_dedupe(samples_per_session, stays);
  return mean_length * batch * (1 - (samples_per_session - 1) / samples_per_session * stays);
}

/// Returns how many times fewer ids that is, l(f) · B / DedupeLen(f): length and batch cancel out. @throws tessera::error as
/// `dedupe_length`.
inline double dedupe_factor(double samples_per_session, double stays) { return 1 / dedupe_length(1, 1, samples_per_session, stays); }

/// What deduplication finds in one batch.
struct batch_repeats {
  std::int64_t samples = 0;
  std::int64_t sessions = 0;
  std::vector<feature_repeats> features{};  ///< (features,)

  /// S of the batch: samples a session; 1 where the batch is empty.
  double samples_per_session() const noexcept { return sessions == 0 ? 1 : static_cast<double>(samples) / static_cast<double>(sessions); }
  /// Ids of feature f by `dedupe_length`, from S, l and d of the batch. @pre 0 <= f < features.size(), here and below.
  double predicted_length(std::int64_t f) const {
    auto const& r = features[static_cast<std::size_t>(f)];
    return dedupe_length(r.mean_length(), static_cast<double>(samples), samples_per_session(), r.stays());
  }
  /// Ids of feature f, counted, when every session keeps each list once.
  std::int64_t measured_length(std::int64_t f) const noexcept { return features[static_cast<std::size_t>(f)].kept_ids(); }
  /// Ids of feature f, counted, when the whole batch keeps each list once.
  std::int64_t measured_length_across(std::int64_t f) const noexcept {
    return measured_length(f) - features[static_cast<std::size_t>(f)].elsewhere_ids;
  }
};

/// Measures what deduplication finds in a batch. `features` (features,) have a row for each sample, `sessions` (samples,) an id.
///
/// Each feature is one chunk of work. `exec`'s memory holds a `session_statistics` without `partial`, and is back on return. Every distinct
/// list of a session and feature takes 27 to 53 bytes, and so does every distinct list of a feature. A sample takes 8 bytes, and so does a
/// session of each feature. The chunks allocate, so memory must be thread-safe where `exec` has several threads; an arena is not. Several
/// threads may call at once, each with memory of its own or with memory that is thread-safe.
/// @throws tessera::error shape_mismatch for a feature with another number of rows, and for samples without sessions; and what the memory
/// throws.
batch_repeats measure_batch(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                            vector_view<std::int64_t const> sessions);
/// Measures all sparse columns of the samples. @throws tessera::error as above.
inline batch_repeats measure_batch(host_exec const& exec, sample_columns_view batch) {
  return measure_batch(exec, batch.sparse, batch.sessions);
}
/// Measures all keys of a KJT; each has a row for each sample. @throws tessera::error as above.
batch_repeats measure_batch(host_exec const& exec, keyed_jagged_view<std::int64_t const> features,
                            vector_view<std::int64_t const> sessions);

/// The prices of a training step's work, in nanoseconds of one core. `recommend_groups` compares steps with and without a group by them.
///
/// A step copies a batch from columns (`deduplicate`), looks up, pools by sum, and updates rows by SGD. `bench/quality/dedupe_costs.cpp`
/// measures the prices. On another machine the program prints that machine's prices, and how near they come to steps that it times.
///
/// The defaults are those of an AMD EPYC with AVX2 and 32 MiB of L3. They were measured with batches of 2,048, lists of 1 to 50 ids, and
/// factors from 1 to 5. Dims were 16 and 64, of tables with 100,000 rows. The program timed 60 steps. No step that a group slowed by more
/// than 2 % was predicted to gain. No step that gained more than 10 % was predicted to lose.
struct dedupe_costs {
  // What a step without groups does for each sample, and a group for each distinct list.
  double lookup_ns_per_list = 11;
  double lookup_ns_per_id = 22;
  double lookup_ns_per_float = 0.1;  ///< a float of the row of an id
  double memory_ns_per_float = 0.4;  ///< the same, besides: of a distinct list, with a group or without
  // What is done for a group besides.
  double dedupe_ns_per_sample = 19;   ///< a sample of a group, whatever its number of features
  double dedupe_ns_per_id = 0.42;     ///< an id before repeats are taken away
  double expand_ns_per_list = 22;     ///< a sample of a feature: its vector is copied, its gradient added
  double expand_ns_per_float = 0.07;  ///< a float of such a vector
};

/// Options of `recommend_groups`.
struct recommend_groups_options {
  double least_saving = 0;         ///< groups that save a greater share of their time are worth it; below 1
  double samples_per_session = 0;  ///< S of the batches to come, at least 1 and finite; 0: that of the sample
  /// How far a feature may disagree with its group's first: of the changes of either, the share at which the other one stays. Features that
  /// are updated together differ only where a change happens to bring the same list again. Features that are not updated together differ at
  /// more than a third. A group keeps a row for each change of any of its features. So about as large a share of a feature's rows is kept
  /// for nothing.
  double most_disagreement = 0.05;
  double dim = 16;       ///< floats of a row of the features' tables
  dedupe_costs costs{};  ///< of the machine that trains
};

/// Why a feature is deduplicated or not.
struct dedupe_reason {
  double mean_length = 0;   ///< ids a list
  double stays = 0;         ///< d: how probably a list is that of the session's sample before
  double factor = 1;        ///< by the model: how many times fewer ids
  double saving = 0;        ///< share of its group's time that is saved; of a feature without a group, what it would save alone
  double disagreement = 0;  ///< with the first feature of its group
  std::int64_t group = -1;  ///< -1: not worth it
};

/// What `recommend_groups` recommends, and why.
struct dedupe_recommendation {
  double samples_per_session = 1;                   ///< S that factors are of
  std::vector<std::vector<std::int64_t>> groups{};  ///< numbers of features, ascending; groups by their first features
  std::vector<dedupe_reason> features{};            ///< (features,)
};

namespace detail {

// By feature, the bits of those rows whose list is not that of the session's row before.
std::vector<std::uint64_t> changes_of(jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> before);

// |a xor b| / |a or b|; 0 where neither has any.
inline double disagreement(std::vector<std::uint64_t> const& a, std::vector<std::uint64_t> const& b) noexcept {
  std::int64_t either = 0, one = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    either += std::popcount(a[i] | b[i]);
    one += std::popcount(a[i] ^ b[i]);
  }
  return either == 0 ? 0 : static_cast<double>(one) / static_cast<double>(either);
}

// Nanoseconds a sample.
struct sample_costs {
  double step = 0;   // without a group
  double saved = 0;  // by one; below 0: lost

  static sample_costs of(dedupe_reason const& feature, recommend_groups_options const& options) noexcept {
    auto const& c = options.costs;
    auto const l = feature.mean_length, distinct = 1 / feature.factor;
    auto const lookup = c.lookup_ns_per_list + l * (c.lookup_ns_per_id + options.dim * c.lookup_ns_per_float);
    auto const memory = distinct * l * options.dim * c.memory_ns_per_float;
    auto const added = c.expand_ns_per_list + options.dim * c.expand_ns_per_float + l * c.dedupe_ns_per_id;
    return {lookup + memory, lookup * (1 - distinct) - added};
  }
  double share() const noexcept { return step > 0 ? saved / step : 0; }
};

void check_recommend_groups(recommend_groups_options const& options);

}  // namespace detail

/// Recommends which features to deduplicate, in which groups. Recommended groups save time by the options' `costs`; the features of a group
/// change at the same samples of their sessions.
///
/// A feature joins the first group with whose first feature it agrees, unless the feature adds more time than it saves. A group is
/// recommended where it saves a greater share of its features' time than `least_saving`. A group saves the lookups of repeated lists, which
/// `dedupe_factor` counts. A group adds the comparison of all ids, its inverse, and the expansion of vectors and gradients to all samples.
/// Lists of one id thus lose at a factor of 1.9, and lists of 50 gain at a factor of 1.2.
///
/// Preprocessing, sequence layers and bytes sent are not counted, though distinct lists save them too. Where a step has them, name groups
/// of short lists by hand, or add their price to `lookup_ns_per_id`. Source: the factor is of RecD, section 4.2; the prices are measured.
///
/// `features` (features,) have a row for each sample, `sessions` (samples,) an id. @pre the samples of each session follow each other in
/// time. Some thousand samples in whole sessions are enough.
///
/// Each feature is one chunk of work. The call takes 35 to 61 bytes a session of `exec`'s memory, on the calling thread alone. Of the heap
/// it takes 8 bytes a session, 8 a sample, and one bit a sample and feature. Several threads may call at once, as they may `measure_batch`.
/// @throws tessera::error shape_mismatch for a feature with another number of rows, and for samples without sessions. invalid_argument for
/// an option or a cost out of its range.
dedupe_recommendation recommend_groups(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features,
                                       vector_view<std::int64_t const> sessions, recommend_groups_options options = {});
/// Recommends groups of the sparse columns of the samples. @throws tessera::error as above.
inline dedupe_recommendation recommend_groups(host_exec const& exec, sample_columns_view sample, recommend_groups_options options = {}) {
  return recommend_groups(exec, sample.sparse, sample.sessions, options);
}

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/dedupe_model.ipp>
#endif
