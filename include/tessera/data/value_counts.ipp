// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/value_counts.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE value_counts value_counts::from_parts(host_exec const& exec, std::int64_t limit, vector_view<std::int64_t const> values,
                                                     vector_view<std::int64_t const> counts, vector_view<std::int64_t const> missed,
                                                     std::int64_t unheld) {
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

TESSERA_INLINE void value_counts::merge(host_exec const& exec, value_counts const& others) {
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

TESSERA_INLINE std::vector<std::int64_t> value_counts::most_frequent(std::int64_t least, std::int64_t most) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> order;  // (-count, value)
  for (std::int64_t i = 0; i < size(); ++i)
    if (counts_[i] >= least) order.emplace_back(-counts_[i], values()[i]);
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> result;
  for (auto const& [count, value] : order)
    if (static_cast<std::int64_t>(result.size()) < most) result.push_back(value);
  return result;
}

TESSERA_INLINE void value_counts::come_in(host_exec const& exec, std::int64_t number, std::int64_t lacks) {
  if (number >= counts_.size()) {
    auto room = std::max<std::int64_t>(16, 2 * number + 2);
    if (limit_ > 0 && number < limit_) room = std::min(limit_, room);
    grow(exec, counts_, number, room);
    if (limit_ > 0) grow(exec, missed_, number, room);
  }
  counts_[number] = 0;
  if (limit_ > 0) missed_[number] = lacks;
}

TESSERA_INLINE void value_counts::grow(host_exec const& exec, buffer<std::int64_t>& numbers, std::int64_t used, std::int64_t room) {
  buffer<std::int64_t> larger(exec, room);
  std::copy(numbers.begin(), numbers.begin() + used, larger.begin());
  numbers = std::move(larger);
}

TESSERA_INLINE void value_counts::evict(host_exec const& exec, std::int64_t last) {
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

}  // namespace TESSERA_ABI
}  // namespace tessera
