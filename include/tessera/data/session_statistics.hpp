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
void check_feature_rows(char const* of, vector_view<jagged_view<std::int64_t const> const> features,
                        vector_view<std::int64_t const> sessions);

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
  explicit session_statistics(std::int64_t features, session_statistics_options options = {});

  /// Adds samples behind those before; each feature is one chunk of work. `features` (features,) have a row for each sample, `sessions`
  /// (samples,) an id.
  ///
  /// The chunks allocate. @pre `exec`'s memory is thread-safe where `exec` has several threads, and outlives this object.
  /// @throws tessera::error shape_mismatch for another number of features or of rows, before anything is added.
  void add(host_exec const& exec, vector_view<jagged_view<std::int64_t const> const> features, vector_view<std::int64_t const> sessions);
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
  std::map<std::int64_t, std::int64_t> histogram() const;
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
  repeat_means means() const noexcept;

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

  void check(vector_view<jagged_view<std::int64_t const> const> features, vector_view<std::int64_t const> sessions) const;

  void end_batch();

  bool looks_at(std::int64_t session) const noexcept {
    return options_.one_session_in == 1 ||
           mix_bits(static_cast<std::uint64_t>(session) ^ 0x73616d70) % static_cast<std::uint64_t>(options_.one_session_in) == 0;
  }

  void add(host_exec const& exec, feature_state& into, jagged_view<std::int64_t const> rows,
           vector_view<std::int64_t const> sessions) const;

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

#if !TESSERA_COMPILED
#include <tessera/data/session_statistics.ipp>
#endif
