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
                                 vector_view<std::int64_t const> counts, vector_view<std::int64_t const> missed, std::int64_t unheld) {
    value_counts result(limit);
    auto const n = values.size();
    if (counts.size() != n || missed.size() != (limit > 0 ? n : 0))
      throw error(errc::shape_mismatch, "value_counts: one count a value",
                  {{"values", n}, {"counts", counts.size()}, {"missed", missed.size()}});
    if ((limit > 0 && n > limit) || unheld < 0 || (limit == 0 && unheld > 0))
      throw error(errc::invalid_argument, "value_counts: more than the limit lets", {{"values", n}, {"limit", limit}, {"unheld", unheld}});
    result.unheld_ = unheld;
    result.map_.reserve(exec, n);
    for (std::int64_t i = 0; i < n; ++i) {
      auto const lacks = limit > 0 ? missed[i] : 0;
      if (counts[i] < 1 || lacks < 0 || lacks > unheld)
        throw error(errc::invalid_argument, "value_counts: not a count", {{"value", values[i]}, {"count", counts[i]}, {"missed", lacks}});
      if (!result.map_.insert(exec, values[i]).second)
        throw error(errc::invalid_argument, "value_counts: a value twice", {{"value", values[i]}});
      result.come_in(exec, i, lacks);
      result.counts_[i] = counts[i];
    }
    return result;
  }

  /// The most values that are held; 0: there is no limit.
  std::int64_t limit() const noexcept { return limit_; }
  std::int64_t size() const noexcept { return map_.size(); }
  /// The values held, in the order in which they came in, (size(),).
  vector_view<std::int64_t const> values() const noexcept { return map_.ids(); }
  /// How often each held value came since it came in, (size(),): never more than the true count.
  vector_view<std::int64_t const> counts() const noexcept { return {counts_.data(), size()}; }
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
  void merge(host_exec const& exec, value_counts const& others) {
    if (others.limit_ != limit_)
      throw error(errc::invalid_argument, "value_counts: counts of another limit",
                  {{"limit", limit_}, {"limit of the others", others.limit_}});
    auto const before = size();
    if (limit_ > 0)
      for (std::int64_t i = 0; i < before; ++i)
        if (others.map_.find(map_.ids()[i]) == id_map::absent) missed_[i] += others.unheld_;
    for (std::int64_t i = 0; i < others.size(); ++i) {
      auto const [number, is_new] = map_.insert(exec, others.values()[i]);
      if (is_new)
        come_in(exec, number, unheld_ + others.missed(i));
      else if (limit_ > 0)
        missed_[number] += others.missed_[i];
      counts_[number] += others.counts_[i];
    }
    unheld_ += others.unheld_;
    if (limit_ > 0 && size() > limit_) evict(exec, size() - limit_ - 1);
  }

  /// Returns a vocabulary: the values whose counts() are at least `least`, the most frequent first, at most `most` of them. Of equally
  /// frequent values the smaller comes first.
  std::vector<std::int64_t> most_frequent(std::int64_t least, std::int64_t most) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> order;  // (-count, value)
    for (std::int64_t i = 0; i < size(); ++i)
      if (counts_[i] >= least) order.emplace_back(-counts_[i], values()[i]);
    std::sort(order.begin(), order.end());
    std::vector<std::int64_t> result;
    for (auto const& [count, value] : order)
      if (static_cast<std::int64_t>(result.size()) < most) result.push_back(value);
    return result;
  }

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
  void come_in(host_exec const& exec, std::int64_t number, std::int64_t lacks) {
    if (number >= counts_.size()) {
      auto room = std::max<std::int64_t>(16, 2 * number + 2);
      if (limit_ > 0 && number < limit_) room = std::min(limit_, room);
      grow(exec, counts_, number, room);
      if (limit_ > 0) grow(exec, missed_, number, room);
    }
    counts_[number] = 0;
    if (limit_ > 0) missed_[number] = lacks;
  }

  static void grow(host_exec const& exec, buffer<std::int64_t>& numbers, std::int64_t used, std::int64_t room) {
    buffer<std::int64_t> larger(exec, room);
    std::copy(numbers.begin(), numbers.begin() + used, larger.begin());
    numbers = std::move(larger);
  }

  // Makes room of the last + 1 values that may have come the fewest times. Of values that may have come as often as the last of them, those
  // stay first that have come again since they came in. The others only stay where fewer than a quarter of the limit would.
  void evict(host_exec const& exec, std::int64_t last) {
    auto const n = size();
    {
      buffer<std::int64_t> most(exec, n);
      for (std::int64_t i = 0; i < n; ++i) most[i] = counts_[i] + missed_[i];
      auto* const last_out = most.begin() + last;
      std::nth_element(most.begin(), last_out, most.end());
      unheld_ = *last_out;
    }
    std::int64_t above = 0, equal_again = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto const most = counts_[i] + missed_[i];
      above += most > unheld_;
      equal_again += most == unheld_ && counts_[i] > 1;
    }
    auto const may_stay = n - (last + 1) - above;  // of the equal ones
    auto again = std::min(equal_again, may_stay);
    auto once = std::max<std::int64_t>(std::min(may_stay, limit_ / 4 - above) - again, 0);
    id_map held;
    held.reserve(exec, limit_);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      auto const most = counts_[i] + missed_[i];
      if (most < unheld_ || (most == unheld_ && (counts_[i] > 1 ? again : once)-- <= 0)) continue;
      held.insert(exec, map_.ids()[i]);
      counts_[kept] = counts_[i];
      missed_[kept++] = missed_[i];
    }
    map_ = std::move(held);
  }

  std::int64_t limit_;
  std::int64_t unheld_ = 0;
  id_map map_;
  buffer<std::int64_t> counts_;  // by the value's number
  buffer<std::int64_t> missed_;  // with a limit
};

}  // namespace TESSERA_ABI
}  // namespace tessera
