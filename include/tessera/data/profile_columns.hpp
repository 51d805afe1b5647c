// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/column_profile.hpp>
#include <tessera/data/list_hash.hpp>
#include <tessera/data/moments.hpp>
#include <tessera/data/number_histogram.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sampled_counts.hpp>
#include <tessera/tensor/jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

class number_column {
 public:
  void add(host_exec const& exec, vector_view<float const> numbers);

  void merge(host_exec const& exec, number_column const& other);

  void show(profile_options const& options, number_profile& out) const;

  std::size_t bytes() const noexcept { return sizeof(*this) + histogram_.bytes(); }

 private:
  std::int64_t missing_ = 0, zeros_ = 0, ones_ = 0;
  moments finite_;
  number_histogram histogram_;
};

inline estimated_count distinct_of(sampled_counts<sampled_id> const& counts) {
  return {static_cast<std::int64_t>(std::llround(counts.distinct())), counts.holds_all(), counts.standard_error()};
}

// The counts of what is held, the largest first.
buffer<std::int64_t> counts_descending(host_exec const& exec, sampled_counts<sampled_id> const& from);

// Lookups of the most frequent share of distinct ids. Of lookups, all that are not of the sample's other ids: the number of all is known,
// and no other id is frequent, so chance moves the difference little.
top_ids top_of(vector_view<std::int64_t const> descending, double rate, std::int64_t lookups, double share);

class id_column {
 public:
  id_column(profile_options const& options, bool has_sessions)
      : ids_(options.id_limit), lists_(options.list_limit), has_sessions_(has_sessions) {}

  void add(host_exec const& exec, jagged_view<std::int64_t const> rows, vector_view<std::int64_t const> sessions);

  void merge(host_exec const& exec, id_column const& other);

  void show(host_exec const& exec, profile_options const& options, id_profile& out) const;

  std::size_t bytes() const noexcept { return sizeof(*this) + lengths_.bytes() + ids_.bytes() + lists_.bytes(); }

 private:
  // A few at once, whose entries are on the way from memory while the others are hashed.
  void add_ids(host_exec const& exec, vector_view<std::int64_t const> values);

  std::int64_t missing_ = 0, lookups_ = 0, of_one_id_ = 0;
  number_histogram lengths_;
  sampled_counts<sampled_id> ids_;
  sampled_counts<sampled_list> lists_;
  bool has_sessions_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/profile_columns.ipp>
#endif
