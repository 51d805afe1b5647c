// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/list_hash.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline double count_ratio(std::int64_t a, std::int64_t b) noexcept { return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b); }

// @throws shape_mismatch unless each feature has a row for each sample.
inline void check_feature_rows(char const* of, vector_view<jagged_view<std::int64_t const> const> features,
                               vector_view<std::int64_t const> sessions) {
  if (sessions.empty() && features.size() > 0 && features[0].rows > 0)
    throw error(errc::shape_mismatch, std::string(of) + ": the samples have no sessions", {{"rows", features[0].rows}});
  for (std::int64_t f = 0; f < features.size(); ++f)
    if (features[f].rows != sessions.size())
      throw error(errc::shape_mismatch, std::string(of) + ": rows of a feature",
                  {{"feature", f}, {"rows", features[f].rows}, {"sessions", sessions.size()}});
}

}  // namespace detail

/// Counts what comes again of one feature's lists within sessions. "Earlier" means added earlier.
struct feature_repeats {
  std::int64_t samples = 0;               ///< samples of the sessions that are looked at
  std::int64_t ids = 0;                   ///< ids in the lists of all these samples
  std::int64_t repeated_samples = 0;      ///< samples whose list an earlier sample of the session has
  std::int64_t repeated_samples_ids = 0;  ///< ids in the lists of the repeated samples
  std::int64_t repeated_ids = 0;          ///< ids that an earlier list of the session has; 0 without options().partial
  std::int64_t pairs = 0;                 ///< samples that are not the first of their session
  std::int64_t same_pairs = 0;            ///< samples whose list is the same as in the session's previous sample
  std::int64_t elsewhere_samples = 0;     ///< samples not repeated whose list an earlier session has; 0 without options().across
  std::int64_t elsewhere_ids = 0;         ///< ids in the lists of these

  /// Returns the mean length of a list, in ids.
  double mean_length() const noexcept { return detail::count_ratio(ids, samples); }
  /// Returns the share of lists that are exact duplicates: 15.5 of 16.5 where all 16.5 samples of a session have the same list.
  double exact() const noexcept { return detail::count_ratio(repeated_samples, samples); }
  /// Returns the share of ids that are partial duplicates: 99 of 200 for two lists of 100, where the second has one new id.
  double partial() const noexcept { return detail::count_ratio(repeated_ids, ids); }
  /// Returns d(f), the share of lists that stay from one sample of a session to the next; 0 where every session has one sample.
  double stays() const noexcept { return detail::count_ratio(same_pairs, pairs); }
  /// Returns how many ids are left when each session keeps each list once.
  std::int64_t kept_ids() const noexcept { return ids - repeated_samples_ids; }

  friend bool operator==(feature_repeats const&, feature_repeats const&) = default;
};

/// Means of `feature_repeats` over features.
struct repeat_means {
  double exact = 0, partial = 0;                    ///< means of exact() and partial(), each feature counted once
  double exact_by_bytes = 0, partial_by_bytes = 0;  ///< the same, features weighted by mean length, and so by bytes
};

/// Options of `session_statistics`.
struct session_statistics_options {
  std::int64_t batch_size = 4096;   ///< samples of the batches whose sessions are counted
  bool partial = true;              ///< whether ids are compared as well as lists
  bool across = true;               ///< whether lists of other sessions are looked for
  std::int64_t one_session_in = 1;  ///< of so many sessions one is looked at, chosen by a hash of its id; time and memory fall as much
};

/// Counts how samples and repeats are distributed over the sessions of a log, by the measures of RecD's section 3.
///
/// Lists are compared by hashes of 128 bits, and so are pairs of session and id. A hash takes 16 bytes · 5/3 to 10/3. Each feature has a hash
/// for each distinct list, for each distinct list of a session, and for each distinct id of a session. Each pair of session and feature takes
/// another 8 bytes. One thread at a time uses an object.
class session_statistics {
 public:
  /// Makes statistics of no samples, for so many features.
  /// @throws tessera::error invalid_argument for features < 0, batch_size < 1 or one_session_in < 1.
  explicit session_statistics(std::int64_t features, session_statistics_options options = {}) : options_(options) {
    if (features < 0 || options.batch_size < 1 || options.one_session_in < 1)
      throw error(errc::invalid_argument, "session_statistics: options",
                  {{"features", features}, {"batch_size", options.batch_size}, {"one_session_in", options.one_session_in}});
    features_.resize(at(features));
  }

  /// Adds samples behind those before; each feature is one chunk of work. `features` (features,) have a row for each sample, `sessions`
  /// (samples,) an id.
  ///
  /// The chunks allocate. @pre `exec`'s memory is thread-safe where `exec` has several threads, and outlives this object.
  /// @throws tessera::error shape_mismatch for another number of features or of rows, before anything is added.
  void add(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features, vector_view<std::int64_t const> sessions) {
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
  /// Adds samples with all their lists. @throws tessera::error shape_mismatch as above.
  void add(host_exec const& exec, sample_columns_view samples) { add(exec, samples.sparse, samples.sessions); }

  /// Returns the options.
  session_statistics_options const& options() const noexcept { return options_; }
  /// Returns the number of samples.
  std::int64_t samples() const noexcept { return samples_; }
  /// Returns the number of sessions.
  std::int64_t sessions() const noexcept { return numbers_.size(); }
  /// Returns the mean samples of a session, S.
  double samples_per_session() const noexcept { return detail::count_ratio(samples_, sessions()); }
  /// Returns the share of exact duplicates of a feature that never changes: (S - 1) / S.
  double most_exact() const noexcept { return samples_ == 0 ? 0 : 1 - detail::count_ratio(sessions(), samples_); }
  /// Returns, by number of samples, how many sessions have that number.
  std::map<std::int64_t, std::int64_t> histogram() const {
    std::map<std::int64_t, std::int64_t> result;
    for (std::int64_t s = 0; s < sessions(); ++s) ++result[counts_[s].samples];
    return result;
  }
  /// Returns, by number of samples, how often a session has that number in a batch. Batches have batch_size samples each, in the order of
  /// adding; a last short batch does not count.
  std::map<std::int64_t, std::int64_t> const& batch_histogram() const noexcept { return batch_histogram_; }
  /// Returns the mean samples that a session of a batch has in that batch, over all whole batches; 0 where there is none.
  double samples_per_session_in_batch() const noexcept {
    std::int64_t samples = 0, sessions = 0;
    for (auto const& [n, count] : batch_histogram_) {
      samples += n * count;
      sessions += count;
    }
    return detail::count_ratio(samples, sessions);
  }

  /// Returns the number of features.
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(features_.size()); }
  /// Returns the counts of feature f in the sessions that are looked at. @pre 0 <= f < feature_count()
  feature_repeats const& feature(std::int64_t f) const noexcept { return features_[at(f)].repeats; }
  /// Returns the means over all features.
  repeat_means means() const noexcept {
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

  /// Returns the bytes of memory in use.
  std::size_t bytes() const noexcept {
    auto sum = sizeof(*this) + numbers_.bytes() + counts_.capacity_bytes() + in_batch_.capacity_bytes() + slots_.capacity_bytes();
    for (auto const& f : features_) sum += sizeof(f) + f.last.capacity_bytes() + f.lists.bytes() + f.all_lists.bytes() + f.ids.bytes();
    return sum;
  }

 private:
  struct session_counts {
    std::int64_t samples = 0, batch_samples = 0;
  };
  struct feature_state {
    feature_repeats repeats;
    buffer<std::uint64_t> last;  // by session: half the hash of the list that came last; 0: none came
    detail::hash_set lists;      // of a session
    detail::hash_set all_lists;
    detail::hash_set ids;  // of a session
  };

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  void check(vector_view<jagged_view<std::int64_t const> const> features, vector_view<std::int64_t const> sessions) const {
    if (features.size() != feature_count())
      throw error(errc::shape_mismatch, "session_statistics: number of features",
                  {{"features", features.size()}, {"expected", feature_count()}});
    detail::check_feature_rows("session_statistics", features, sessions);
  }

  void end_batch() {
    for (std::int64_t i = 0; i < batch_sessions_; ++i) {
      ++batch_histogram_[counts_[in_batch_[i]].batch_samples];
      counts_[in_batch_[i]].batch_samples = 0;
    }
    batch_sessions_ = 0;
  }

  bool looks_at(std::int64_t session) const noexcept {
    return options_.one_session_in == 1 ||
           mix_bits(static_cast<std::uint64_t>(session) ^ 0x73616d70) % static_cast<std::uint64_t>(options_.one_session_in) == 0;
  }

  void add(host_exec const& exec, feature_state& into, jagged_view<std::int64_t const> rows,
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

  session_statistics_options options_;
  std::int64_t samples_ = 0;
  id_map numbers_;  // sessions, in the order of their first samples
  buffer<session_counts> counts_;
  buffer<std::int64_t> in_batch_;  // sessions of the present batch
  std::int64_t batch_sessions_ = 0;
  std::map<std::int64_t, std::int64_t> batch_histogram_;
  std::vector<feature_state> features_;
  buffer<std::int64_t> slots_;  // of the samples of a call
};

}  // namespace TESSERA_ABI
}  // namespace tessera
