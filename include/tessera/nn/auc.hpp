// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// Area under the ROC curve, exact: the share of (positive, negative) pairs in which the positive scores higher, ties counting half.
/// Keeps every score, 5 bytes a sample; mergeable. Memory grows by doubling, from the heap.
class exact_auc {
 public:
  /// `scores` (n,), `labels` (n,), 0 or 1. Any increasing function of the scores gives the same AUC, so logits do.
  /// @throws tessera::error shape_mismatch; invalid_argument naming a NaN score or another label: nothing has been added then.
  void add(vector_view<float const> scores, vector_view<float const> labels) {
    if (scores.size() != labels.size())
      throw error(errc::shape_mismatch, "exact_auc: scores and labels differ in size",
                  {{"scores", scores.size()}, {"labels", labels.size()}});
    for (std::int64_t i = 0; i < scores.size(); ++i) {
      if (std::isnan(scores[i])) throw error(errc::invalid_argument, "exact_auc: a score is not a number", {{"position", i}});
      if (labels[i] != 0 && labels[i] != 1)
        throw error(errc::invalid_argument, "exact_auc: a label is neither 0 nor 1", {{"position", i}, {"label", labels[i]}});
    }
    make_room(scores.size());
    for (std::int64_t i = 0; i < scores.size(); ++i) {
      keys_.push_back(ordered_bits(scores[i]));
      labels_.push_back(labels[i] != 0);
    }
  }
  void merge(exact_auc const& other) {
    auto const count = other.samples();  // of before: other may be *this
    make_room(count);
    std::copy_n(other.keys_.begin(), count, std::back_inserter(keys_));
    std::copy_n(other.labels_.begin(), count, std::back_inserter(labels_));
  }
  void clear() noexcept {
    keys_.clear();
    labels_.clear();
  }
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(keys_.size()); }
  std::size_t bytes() const noexcept { return keys_.capacity() * sizeof(keys_[0]) + labels_.capacity(); }

  /// NaN unless both labels occur. Sorts a copy: workspace about 10 bytes a sample from `exec`'s memory. Counts in integers, so the
  /// order of the samples changes nothing.
  /// @throws tessera::error invalid_argument for 2^32 samples or more, whose pairs would not fit.
  double value(host_exec const& exec) const {
    auto const n = samples();
    if (n > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
      throw error(errc::invalid_argument, "exact_auc: too many samples", {{"samples", n}});
    buffer<std::uint32_t> keys(exec, n);
    buffer<std::uint8_t> labels(exec, n);
    std::copy(keys_.begin(), keys_.end(), keys.begin());
    std::copy(labels_.begin(), labels_.end(), labels.begin());
    radix_sort_pairs(exec, keys.view(), labels.view());
    std::uint64_t positives = 0, negatives = 0, twice_pairs = 0;
    for (std::int64_t i = 0; i < n;) {
      std::uint64_t tied_positives = 0, tied_negatives = 0;
      for (auto const key = keys[i]; i < n && keys[i] == key; ++i) ++(labels[i] ? tied_positives : tied_negatives);
      twice_pairs += tied_positives * (2 * negatives + tied_negatives);
      positives += tied_positives;
      negatives += tied_negatives;
    }
    if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(twice_pairs) / 2.0 / (static_cast<double>(positives) * static_cast<double>(negatives));
  }

 private:
  // Room for so many more, so that keys and labels grow together or, when memory runs out, not at all.
  void make_room(std::int64_t more) {
    auto const needed = keys_.size() + static_cast<std::size_t>(more);
    if (needed > keys_.capacity()) keys_.reserve(std::max(needed, 2 * keys_.capacity()));
    if (needed > labels_.capacity()) labels_.reserve(std::max(needed, 2 * labels_.capacity()));
  }

  // Integers in the order of the floats; both zeros are one.
  static std::uint32_t ordered_bits(float score) noexcept {
    auto const bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0F : score);
    return bits >> 31 ? ~bits : bits | 0x80000000;
  }

  std::vector<std::uint32_t> keys_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace tessera::inline TESSERA_ABI
