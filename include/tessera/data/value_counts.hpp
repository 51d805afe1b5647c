// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How often each value of a stream came; with a limit in bounded memory, whatever the number of distinct values.
///
/// Without a limit every count is exact. With one, at most `limit` values are held: when they are full, the half that may have come the
/// fewest times makes room. A value is then counted from when it came in last, and before that it may have come `missed` times at most; a
/// value that is not held may have come unheld() times at most. After n values, unheld() <= 2 n / limit, whatever their order; while the
/// stream has no more distinct values than the limit, unheld() is 0 and every count exact. Peak memory is below 200 bytes times the limit.
/// Source: Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and top-k elements in data streams", ICDT 2005 (Space-Saving),
/// with evictions in bulk. What is held depends on the values and their order alone. Counting is for one thread at a time. Move-only.
class value_counts {
 public:
  /// @throws tessera::error invalid_argument for a negative limit; 0: none.
  explicit value_counts(std::int64_t limit = 0) : limit_(limit) {
    if (limit < 0) throw error(errc::invalid_argument, "value_counts: limit", {{"limit", limit}});
  }

  std::int64_t limit() const noexcept { return limit_; }
  std::int64_t size() const noexcept { return map_.size(); }
  /// The values held, in the order in which they came in, (size(),).
  vector_view<std::int64_t const> values() const noexcept { return map_.ids(); }
  /// How often they came since, (size(),): never more than the true count.
  vector_view<std::int64_t const> counts() const noexcept { return {counts_.data(), size()}; }
  /// The most that counts()[i] may lack.
  std::int64_t missed(std::int64_t i) const noexcept { return limit_ == 0 ? 0 : missed_[i]; }
  /// The most times that a value which is not held may have come.
  std::int64_t unheld() const noexcept { return unheld_; }
  std::size_t bytes() const noexcept { return map_.bytes() + counts_.capacity_bytes() + missed_.capacity_bytes(); }

  /// Counts values[i] for all i but where it is `ignored`; returns how often that was.
  template <class T>
  std::int64_t add(host_exec const& exec, vector_view<T const> values, T ignored) {
    constexpr std::int64_t ahead = 16;
    std::int64_t ignored_count = 0;
    for (std::int64_t i = 0; i < values.size(); ++i) {
      if (i + ahead < values.size()) map_.prefetch(values[i + ahead]);
      if (values[i] == ignored) {
        ++ignored_count;
        continue;
      }
      if (limit_ > 0 && size() == limit_ && map_.find(values[i]) == id_map::absent) evict(exec);
      auto const [number, is_new] = map_.insert(exec, values[i]);
      if (is_new) come_in(exec, number);
      ++counts_[number];
    }
    return ignored_count;
  }

  /// The values that came at least `least` times for sure, most frequent first, the smaller first among equals, at most `most` of them: a
  /// vocabulary.
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
  void come_in(host_exec const& exec, std::int64_t number) {
    if (number >= counts_.size()) {
      auto const room = limit_ > 0 ? std::min(limit_, std::max<std::int64_t>(16, 2 * number)) : std::max<std::int64_t>(16, 2 * number + 2);
      grow(exec, counts_, number, room);
      if (limit_ > 0) grow(exec, missed_, number, room);
    }
    counts_[number] = 0;
    if (limit_ > 0) missed_[number] = unheld_;
  }

  static void grow(host_exec const& exec, buffer<std::int64_t>& numbers, std::int64_t used, std::int64_t room) {
    buffer<std::int64_t> larger(exec, room);
    std::copy(numbers.begin(), numbers.begin() + used, larger.begin());
    numbers = std::move(larger);
  }

  void evict(host_exec const& exec) {
    auto const n = size();
    {
      buffer<std::int64_t> most(exec, n);
      for (std::int64_t i = 0; i < n; ++i) most[i] = counts_[i] + missed_[i];
      auto* const last_out = most.begin() + (n - 1) / 2;
      std::nth_element(most.begin(), last_out, most.end());
      unheld_ = *last_out;
    }
    id_map held;
    held.reserve(exec, limit_);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (counts_[i] + missed_[i] <= unheld_) continue;
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
