// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/radix_sort.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Counts (positive, negative) pairs of samples that come by ascending score, in integers: exact for less than 2^32 samples.
struct pair_count {
  std::uint64_t positives = 0, negatives = 0, twice_ordered_pairs = 0;

  // Samples of one score.
  void add(std::uint64_t tied_positives, std::uint64_t tied_negatives) noexcept {
    twice_ordered_pairs += tied_positives * (2 * negatives + tied_negatives);
    positives += tied_positives;
    negatives += tied_negatives;
  }
  bool both() const noexcept { return positives != 0 && negatives != 0; }
  double auc() const noexcept {
    if (!both()) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(twice_ordered_pairs) / 2.0 / (static_cast<double>(positives) * static_cast<double>(negatives));
  }
};

// Integers in the order of the floats; both zeros are one.
inline std::uint32_t ordered_bits(float score) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(score == 0 ? 0.0F : score);
  return bits >> 31 ? ~bits : bits | 0x80000000;
}

inline void check_ranked(char const* metric, vector_view<float const> scores, vector_view<float const> labels) {
  if (scores.size() != labels.size())
    throw error(errc::shape_mismatch, std::string(metric) + ": scores and labels differ in size",
                {{"scores", scores.size()}, {"labels", labels.size()}});
  std::int64_t sound = 0;  // counted first, in code without branches
  for (std::int64_t i = 0; i < scores.size(); ++i) {
    int const ranked = !std::isnan(scores[i]), negative = labels[i] == 0, positive = labels[i] == 1;
    sound += ranked & (negative | positive);
  }
  if (sound == scores.size()) return;
  for (std::int64_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) throw error(errc::invalid_argument, std::string(metric) + ": a score is not a number", {{"position", i}});
    if (labels[i] != 0 && labels[i] != 1)
      throw error(errc::invalid_argument, std::string(metric) + ": a label is neither 0 nor 1", {{"position", i}, {"label", labels[i]}});
  }
}

// The pairs of less than 2^32 samples fit into 64 bits.
inline void check_countable(char const* metric, std::int64_t samples) {
  if (samples > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
    throw error(errc::invalid_argument, std::string(metric) + ": too many samples", {{"samples", samples}});
}

// Room for so many more, growing by doubling: arrays that grow together get it first, so that they grow or, when memory runs out, do not.
template <class T>
void make_room(std::vector<T>& values, std::int64_t more) {
  auto const needed = values.size() + static_cast<std::size_t>(more);
  if (needed > values.capacity()) values.reserve(std::max(needed, 2 * values.capacity()));
}

}  // namespace detail

/// The area under the ROC curve, exact: the share of (positive, negative) pairs in which the positive scores higher, ties counting half. It
/// keeps every score, 5 bytes a sample. Its memory, from the heap, grows by doubling. Mergeable.
class exact_auc {
 public:
  /// Adds samples: `scores` (n,), `labels` (n,), 0 or 1. Any increasing function of the scores gives the same AUC, so logits do.
  /// @throws tessera::error shape_mismatch; invalid_argument naming a NaN score or another label. Then nothing was added.
  void add(vector_view<float const> scores, vector_view<float const> labels) {
    detail::check_ranked("exact_auc", scores, labels);
    detail::make_room(keys_, scores.size());
    detail::make_room(labels_, scores.size());
    auto const before = keys_.size();
    keys_.resize(before + static_cast<std::size_t>(scores.size()));
    labels_.resize(keys_.size());
    auto* const keys = keys_.data() + before;
    auto* const is_positive = labels_.data() + before;
    for (std::int64_t i = 0; i < scores.size(); ++i) keys[i] = detail::ordered_bits(scores[i]);
    for (std::int64_t i = 0; i < scores.size(); ++i) is_positive[i] = labels[i] != 0;
  }
  void merge(exact_auc const& other) {
    auto const count = other.samples();  // of before: other may be *this
    detail::make_room(keys_, count);
    detail::make_room(labels_, count);
    std::copy_n(other.keys_.begin(), count, std::back_inserter(keys_));
    std::copy_n(other.labels_.begin(), count, std::back_inserter(labels_));
  }
  void clear() noexcept {
    keys_.clear();
    labels_.clear();
  }
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(keys_.size()); }
  std::size_t bytes() const noexcept { return keys_.capacity() * sizeof(keys_[0]) + labels_.capacity(); }

  /// The AUC, or NaN unless both labels occur. It sorts a copy: workspace about 10 bytes a sample from `exec`'s memory. Counts are
  /// integers, so that the order of the samples changes nothing.
  /// @throws tessera::error invalid_argument for 2^32 samples or more, whose pairs would not fit.
  double value(host_exec const& exec) const {
    auto const n = samples();
    detail::check_countable("exact_auc", n);
    buffer<std::uint32_t> keys(exec, n);
    buffer<std::uint8_t> labels(exec, n);
    std::copy(keys_.begin(), keys_.end(), keys.begin());
    std::copy(labels_.begin(), labels_.end(), labels.begin());
    radix_sort_pairs(exec, keys.view(), labels.view());
    detail::pair_count pairs;
    for (std::int64_t i = 0; i < n;) {
      std::uint64_t positives = 0, negatives = 0;
      for (auto const key = keys[i]; i < n && keys[i] == key; ++i) ++(labels[i] ? positives : negatives);
      pairs.add(positives, negatives);
    }
    return pairs.auc();
  }

 private:
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint8_t> labels_;
};
static_assert(metric<exact_auc>);

}  // namespace TESSERA_ABI
}  // namespace tessera
