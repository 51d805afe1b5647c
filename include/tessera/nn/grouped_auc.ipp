// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/grouped_auc.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE void grouped_auc::add(vector_view<std::int64_t const> groups, vector_view<float const> scores,
                                     vector_view<float const> labels) {
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

TESSERA_INLINE void grouped_auc::merge(grouped_auc const& other) {
  auto const count = other.samples();  // of before: other may be *this
  make_room(count);
  std::copy_n(other.groups_.begin(), count, std::back_inserter(groups_));
  std::copy_n(other.keys_.begin(), count, std::back_inserter(keys_));
  std::copy_n(other.labels_.begin(), count, std::back_inserter(labels_));
}

TESSERA_INLINE grouped_auc_value grouped_auc::value(host_exec const& exec) const {
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

TESSERA_INLINE void grouped_auc::make_room(std::int64_t more) {
  detail::make_room(groups_, more);
  detail::make_room(keys_, more);
  detail::make_room(labels_, more);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
