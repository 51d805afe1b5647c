// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/column_profile.hpp>
#include <tessera/data/profile_columns.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sampled_counts.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Counts what a data set's columns hold, in one pass and in bounded memory: what somebody wants to know before a model is made.
///
///     source_profile profile(source.schema());
///     for (std::int64_t block = 0; block < source.block_count(); ++block) {
///       source.read(exec, block, columns);
///       profile.add(exec, columns.view());
///     }
///     data_profile const found = profile.result(exec);
///
/// Counts, least and largest values are exact. Distinct ids, sessions and what follows from them are exact as far as the limits hold them.
/// Beyond a limit they are estimated from a random sample of ids or sessions, whose counts are exact; results say so (`sampled_counts`).
/// Quantiles are approximate (`number_histogram`).
///
/// Nothing depends on the number of threads. Parts of a data set may be profiled apart and merged in any order; means and deviations alone
/// then differ, by rounding. After an exception for want of memory a profile is of no use. One call at a time. Move-only.
class source_profile {
 public:
  /// Makes a profile of no samples. @throws tessera::error invalid_argument as `check_schema`, for a limit below 64, and for a share
  /// outside [0, 1].
  explicit source_profile(sample_schema schema, profile_options options = {});

  /// The schema of the samples.
  sample_schema const& schema() const noexcept { return schema_; }
  profile_options const& options() const noexcept { return options_; }
  std::int64_t rows() const noexcept { return rows_; }

  /// Adds samples with the schema's columns. Each column is one chunk of work.
  ///
  /// The chunks allocate. @pre `exec`'s memory is thread-safe where `exec` has several threads, and outlives this object.
  /// @throws tessera::error shape_mismatch for samples with other columns, before anything is added; and what the memory throws.
  void add(host_exec const& exec, sample_columns_view samples);

  /// Adds what another profile counted of other samples. Each column is one chunk of work.
  /// @throws tessera::error invalid_argument for another schema or other options, before anything is added; and what the memory throws.
  void merge(host_exec const& exec, source_profile const& other);

  /// Returns what was counted, column by column. Takes workspace of 8 bytes a held id from `exec`'s memory.
  data_profile result(host_exec const& exec) const;

  std::size_t bytes() const noexcept {
    auto sum = sizeof(*this) + sessions_.bytes();
    for (auto const& c : numbers_) sum += c.bytes();
    for (auto const& c : ids_) sum += c.bytes();
    return sum;
  }

 private:
  enum class column_kind : std::uint8_t { ids, numbers, sessions, times };
  struct column {
    column_kind kind;
    std::size_t number;
  };

  static constexpr std::int64_t at(std::size_t number) noexcept { return static_cast<std::int64_t>(number); }

  // Ids come first, since they take longest.
  template <class F>
  void for_each_column(host_exec const& exec, F const& f) const {
    auto const ids = at(ids_.size()), all = ids + at(numbers_.size());
    std::vector<column> others;
    if (!schema_.session.empty()) others.push_back({column_kind::sessions, 0});
    if (!schema_.time.empty()) others.push_back({column_kind::times, 0});
    exec.run(all + at(others.size()), [&](std::int64_t task) {
      if (task < ids) return f(column{column_kind::ids, static_cast<std::size_t>(task)});
      if (task < all) return f(column{column_kind::numbers, static_cast<std::size_t>(task - ids)});
      f(others[static_cast<std::size_t>(task - all)]);
    });
  }

  // In the order of data_profile::numbers.
  vector_view<float const> numbers_of(sample_columns_view const& samples, std::int64_t number) const;

  void add_sessions(host_exec const& exec, vector_view<std::int64_t const> sessions) {
    for (auto const session : sessions) sessions_.add(exec, {sampling_unit(session)});
  }
  void add_times(vector_view<std::int64_t const> times);

  static void add_named(std::vector<number_profile>& out, std::vector<std::string> const& names, number_role role);

  void show_sessions(host_exec const& exec, session_profile& out) const;

  void check_options() const;

  void check(sample_columns_view const& samples) const { detail::check_columns("source_profile", sample_shape::of(schema_), samples); }

  sample_schema schema_;
  profile_options options_;
  std::int64_t rows_ = 0;
  std::vector<detail::number_column> numbers_;
  std::vector<detail::id_column> ids_;
  sampled_counts<sampled_id> sessions_;
  std::int64_t first_time_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t last_time_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/source_profile.ipp>
#endif
