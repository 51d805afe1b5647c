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
  void add(vector_view<std::int64_t const> groups, vector_view<float const> scores, vector_view<float const> labels);
  void merge(grouped_auc const& other);
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
  grouped_auc_value value(host_exec const& exec) const;

 private:
  void make_room(std::int64_t more);

  std::vector<std::int64_t> groups_;
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint8_t> labels_;
};
static_assert(metric<grouped_auc>);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/nn/grouped_auc.ipp>
#endif
