// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/nn/metrics.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of a window.
struct window_options {
  std::int64_t buckets = 8;             ///< states kept; more follow the window's edge more closely
  std::int64_t samples_per_bucket = 1;  ///< 1: a bucket is an addition, so the window is the last `buckets` batches
};

/// A metric of the samples seen last, over a ring of buckets that are merged when read. An addition goes to the newest bucket. Where that
/// holds `samples_per_bucket` or more, it goes to a new one in the place of the oldest. Once (buckets * samples_per_bucket) samples came,
/// the window holds the last of them. It holds at least ((buckets - 1) * samples_per_bucket + 1). It holds at most (buckets *
/// (samples_per_bucket - 1 + b)), with b the largest addition. The metric of all samples is another object of type M beside this one.
template <metric M>
class windowed {
 public:
  /// Begins each bucket as a copy of `empty`, which has the metric's options. It holds one state more than there are buckets.
  /// @throws tessera::error invalid_argument unless both options are 1 or more and `empty` has no samples.
  explicit windowed(window_options options, M const& empty = M()) : samples_per_bucket_(options.samples_per_bucket), spare_(empty) {
    if (options.buckets < 1 || options.samples_per_bucket < 1)
      throw error(errc::invalid_argument, "windowed: an option is less than 1",
                  {{"buckets", options.buckets}, {"samples_per_bucket", options.samples_per_bucket}});
    if (empty.samples() != 0)
      throw error(errc::invalid_argument, "windowed: the metric to begin with is not empty", {{"samples", empty.samples()}});
    ring_.assign(static_cast<std::size_t>(options.buckets), empty);
  }

  /// Calls `M::add(arguments…)` on the newest bucket; when that throws, nothing has changed. It allocates what the metric allocates: a
  /// reused bucket keeps its memory.
  template <class... Arguments>
  void add(Arguments&&... arguments) {
    if (ring_[newest_].samples() < samples_per_bucket_) {
      ring_[newest_].add(std::forward<Arguments>(arguments)...);
      return;
    }
    spare_.add(std::forward<Arguments>(arguments)...);
    if (spare_.samples() == 0) return;  // an empty batch pushes nothing out
    newest_ = newest_ + 1 == ring_.size() ? 0 : newest_ + 1;
    std::swap(ring_[newest_], spare_);
    spare_.clear();
  }
  void clear() noexcept {
    for (auto& bucket : ring_) bucket.clear();
  }

  /// The number of samples in the window.
  std::int64_t samples() const noexcept {
    std::int64_t sum = 0;
    for (auto const& bucket : ring_) sum += bucket.samples();
    return sum;
  }
  /// The metric of the window: its buckets merged, the oldest first.
  M merged() const {
    M all = spare_;  // empty
    for (std::size_t i = 1; i <= ring_.size(); ++i) all.merge(ring_[(newest_ + i) % ring_.size()]);
    return all;
  }

 private:
  std::int64_t samples_per_bucket_;
  std::vector<M> ring_;
  std::size_t newest_ = 0;
  M spare_;  // empty between additions
};

}  // namespace TESSERA_ABI
}  // namespace tessera
