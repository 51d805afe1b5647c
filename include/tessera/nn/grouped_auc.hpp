// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/unique.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The result of `grouped_auc::value`.
struct grouped_auc_value {
  double auc = std::numeric_limits<double>::quiet_NaN();  ///< NaN when no group counts
  std::int64_t groups = 0;                                ///< with both labels: those that count
  std::int64_t one_label_groups = 0;                      ///< left out
  std::int64_t counted_samples = 0;                       ///< of the groups that count
};

/// The AUC within each group (a user, a session), averaged over the groups by their numbers of samples (GAUC). It measures how well the
/// model ranks for one user, whatever it knows of how users differ in their clicks. A group whose labels are all the same has no AUC and is
/// left out. The result is exact, ties count half. It keeps every score, 13 bytes a sample; its memory, from the heap, grows by doubling.
/// Mergeable, also where a group is cut. Source: Zhou et al., "Deep interest network for click-through rate prediction", 2018, section 6.1,
/// weighted by impressions.
class grouped_auc {
 public:
  /// Adds samples: `groups` (n,), any ids; `scores` (n,), comparable within a group; `labels` (n,), 0 or 1.
  /// @throws tessera::error shape_mismatch; invalid_argument naming a NaN score or another label. Then nothing was added.
  void add(vector_view<std::int64_t const> groups, vector_view<float const> scores, vector_view<float const> labels) {
    if (groups.size() != scores.size())
      throw error(errc::shape_mismatch, "grouped_auc: groups and scores differ in size",
                  {{"groups", groups.size()}, {"scores", scores.size()}});
    detail::check_ranked("grouped_auc", scores, labels);
    make_room(scores.size());
    for (std::int64_t i = 0; i < scores.size(); ++i) {
      groups_.push_back(groups[i]);
      keys_.push_back(detail::ordered_bits(scores[i]));
      labels_.push_back(labels[i] != 0);
    }
  }
  void merge(grouped_auc const& other) {
    auto const count = other.samples();  // of before: other may be *this
    make_room(count);
    std::copy_n(other.groups_.begin(), count, std::back_inserter(groups_));
    std::copy_n(other.keys_.begin(), count, std::back_inserter(keys_));
    std::copy_n(other.labels_.begin(), count, std::back_inserter(labels_));
  }
  void clear() noexcept {
    groups_.clear();
    keys_.clear();
    labels_.clear();
  }
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(keys_.size()); }
  std::size_t bytes() const noexcept {
    return groups_.capacity() * sizeof(groups_[0]) + keys_.capacity() * sizeof(keys_[0]) + labels_.capacity();
  }

  /// The GAUC. It sorts a copy: workspace about 65 bytes a sample from `exec`'s memory. Pairs are counted in integers and groups joined by
  /// ascending id: neither the order of the samples nor the number of threads changes a bit.
  /// @throws tessera::error invalid_argument for 2^32 samples or more, whose pairs would not fit.
  grouped_auc_value value(host_exec const& exec) const {
    auto const n = samples();
    detail::check_countable("grouped_auc", n);
    // Ordered by group, then score: the group's rank among the ids above the score's bits.
    buffer<std::uint64_t> keys(exec, n);
    buffer<std::uint8_t> labels(exec, n);
    std::int64_t groups = 0;
    {
      buffer<std::int64_t> distinct(exec, n), rank(exec, n);
      groups = unique(exec, vector_view<std::int64_t const>(groups_), distinct.view(), rank.view());
      for (std::int64_t i = 0; i < n; ++i) {
        auto const at = static_cast<std::size_t>(i);
        keys[i] = static_cast<std::uint64_t>(rank[i]) << 32 | keys_[at];
        labels[i] = labels_[at];
      }
    }
    radix_sort_pairs(exec, keys.view(), labels.view(),
                     {.end_bit = 32 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(groups)))});
    grouped_auc_value result;
    double sum = 0;
    for (std::int64_t i = 0; i < n;) {
      auto const first = i;
      detail::pair_count pairs;
      for (auto const group = keys[i] >> 32; i < n && keys[i] >> 32 == group;) {
        std::uint64_t positives = 0, negatives = 0;
        for (auto const key = keys[i]; i < n && keys[i] == key; ++i) ++(labels[i] ? positives : negatives);
        pairs.add(positives, negatives);
      }
      if (!pairs.both()) {
        ++result.one_label_groups;
        continue;
      }
      ++result.groups;
      result.counted_samples += i - first;
      sum += pairs.auc() * static_cast<double>(i - first);
    }
    if (result.groups != 0) result.auc = sum / static_cast<double>(result.counted_samples);
    return result;
  }

 private:
  void make_room(std::int64_t more) {
    detail::make_room(groups_, more);
    detail::make_room(keys_, more);
    detail::make_room(labels_, more);
  }

  std::vector<std::int64_t> groups_;
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint8_t> labels_;
};
static_assert(metric<grouped_auc>);

}  // namespace TESSERA_ABI
}  // namespace tessera
