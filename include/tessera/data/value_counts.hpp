// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Counts how often each value of a stream came. With a limit memory is bounded, whatever the number of distinct values.
///
/// Without a limit every count is exact. With a limit, at most `limit` values are held. When they are full, the half that may have come the
/// fewest times makes room. With it go those that may have come as often, and came once; a quarter of the limit stays. The count of a value
/// begins when the value comes in; before that it may have come up to `missed` times. A value that is not held may have come up to unheld()
/// times.
///
/// After n values, unheld() <= 2 n / limit, whatever their order. While the stream has no more distinct values than the limit, unheld() is
/// 0 and every count is exact. Peak memory is below 200 bytes times the limit. Source: Metwally, Agrawal, El Abbadi, "Efficient computation
/// of frequent and top-k elements in data streams", ICDT 2005 (Space-Saving), with evictions in bulk. What is held depends on the values
/// and their order alone. One thread at a time. Move-only.
///
/// `merge` puts the counts of the parts of a stream together. Without a limit the result is that of one count of the whole, bit for bit.
/// With a limit, every bound above holds of the whole stream, though other values may be held.
class value_counts {
 public:
  /// Makes counts of no values; limit 0 means none. @throws tessera::error invalid_argument for a negative limit.
  explicit value_counts(std::int64_t limit = 0) : limit_(limit) {
    if (limit < 0) throw error(errc::invalid_argument, "value_counts: limit", {{"limit", limit}});
  }

  /// Returns counts with what other counts of the same limit had: `values` in their order, `counts` (values,), and `unheld`. With a limit,
  /// `missed` is (values,), else empty.
  /// @throws tessera::error shape_mismatch; invalid_argument for more values than the limit, a value twice, and numbers that no count has.
  static value_counts from_parts(host_exec const& exec, std::int64_t limit, vector_view<std::int64_t const> values,
                                 vector_view<std::int64_t const> counts, vector_view<std::int64_t const> missed, std::int64_t unheld);

  /// The most values that are held; 0: there is no limit.
  std::int64_t limit() const noexcept { return limit_; }
  std::int64_t size() const noexcept { return map_.size(); }
  /// The values held, in the order in which they came in, (size(),).
  vector_view<std::int64_t const> values() const noexcept { return map_.ids(); }
  /// How often each held value came since it came in, (size(),): never more than the true count.
  vector_view<std::int64_t const> counts() const noexcept { return {counts_.data(), size()}; }
  /// How often a value came since it came in; 0 of one that is not held.
  std::int64_t count_of(std::int64_t value) const noexcept {
    auto const number = map_.find(value);
    return number == id_map::absent ? 0 : counts_[number];
  }
  /// The most that each of counts() may lack, (size(),); empty without a limit.
  vector_view<std::int64_t const> missed() const noexcept { return {missed_.data(), limit_ == 0 ? 0 : size()}; }
  /// The most that counts()[i] may lack. @pre 0 <= i < size().
  std::int64_t missed(std::int64_t i) const noexcept { return limit_ == 0 ? 0 : missed_[i]; }
  /// The most times that a value which is not held may have come.
  std::int64_t unheld() const noexcept { return unheld_; }
  std::size_t bytes() const noexcept { return map_.bytes() + counts_.capacity_bytes() + missed_.capacity_bytes(); }

  /// Counts all values but those equal to `ignored`. @return how many were ignored.
  template <class T>
  std::int64_t add(host_exec const& exec, vector_view<T const> values, T ignored) {
    return add(exec, values, [=](T value) { return value == ignored; });
  }
  /// Counts all values.
  template <class T>
  void add(host_exec const& exec, vector_view<T const> values) {
    add(exec, values, [](T) { return false; });
  }

  /// Adds the counts of what came behind. Takes time and memory for the values of both.
  ///
  /// Without a limit, counts are sums, and the others' new values come in behind, in their order. With a limit, a value that one of both
  /// does not hold may have been missed there as often as that one's unheld() says. unheld() becomes the sum of both. Where more values are
  /// held than the limit allows, those that may have come the fewest times go. So unheld() <= 2 n / limit still.
  /// @throws tessera::error invalid_argument for another limit.
  void merge(host_exec const& exec, value_counts const& others);

  /// Returns a vocabulary: the values whose counts() are at least `least`, the most frequent first, at most `most` of them. Of equally
  /// frequent values the smaller comes first.
  std::vector<std::int64_t> most_frequent(std::int64_t least, std::int64_t most) const;

 private:
  template <class T, class Ignored>
    requires std::is_invocable_v<Ignored, T> std::int64_t add(host_exec const& exec, vector_view<T const> values,
                                                              Ignored const& is_ignored) {
      constexpr std::int64_t ahead = 16;
      std::int64_t ignored_count = 0;
      for (std::int64_t i = 0; i < values.size(); ++i) {
        if (i + ahead < values.size()) map_.prefetch(values[i + ahead]);
        if (is_ignored(values[i])) {
          ++ignored_count;
          continue;
        }
        if (limit_ > 0 && size() == limit_ && map_.find(values[i]) == id_map::absent)
          evict(exec, std::max<std::int64_t>(size() / 2, 1) - 1);
        auto const [number, is_new] = map_.insert(exec, values[i]);
        if (is_new) come_in(exec, number, unheld_);
        ++counts_[number];
      }
      return ignored_count;
    }

  // `lacks`: how often the value may have come before.
  void come_in(host_exec const& exec, std::int64_t number, std::int64_t lacks);

  static void grow(host_exec const& exec, buffer<std::int64_t>& numbers, std::int64_t used, std::int64_t room);

  // Makes room of the last + 1 values that may have come the fewest times. Of values that may have come as often as the last of them, those
  // stay first that have come again since they came in. The others only stay where fewer than a quarter of the limit would.
  void evict(host_exec const& exec, std::int64_t last);

  std::int64_t limit_;
  std::int64_t unheld_ = 0;
  id_map map_;
  buffer<std::int64_t> counts_;  // by the value's number
  buffer<std::int64_t> missed_;  // with a limit
};

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/data/value_counts.ipp>
#endif
