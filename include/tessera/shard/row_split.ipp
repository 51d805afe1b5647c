// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/row_split.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::size_t row_split::add(row_range range) {
  auto const found = std::find(ranges_.begin(), ranges_.end(), range);
  auto const number = static_cast<std::size_t>(found - ranges_.begin());
  if (found != ranges_.end()) return number;
  ranges_.push_back(range);
  auto const first = interval_from(range.first), last = interval_from(range.first + range.count);
  for (auto interval = first; interval < last; ++interval) takers_[interval].push_back(number);
  return number;
}

TESSERA_INLINE void row_split::count(jagged_view<std::int64_t const> bags, split_ids& to) const {
  to.counts.assign(ranges_.size() + 1, 0);
  for (auto const id : bags.all_values()) {
    auto const& takers = takers_of(id);
    for (auto const r : takers) ++to.counts[r];
    if (takers.empty()) ++to.counts.back();
  }
}

TESSERA_INLINE void row_split::make_room(host_exec const& exec, std::int64_t rows, split_options const& options, split_ids& to) const {
  to.parts.resize(ranges_.size());
  to.absent.resize(exec, to.counts.back());
  to.means.resize(exec, options.partial && options.pooled == pooling::mean ? rows : 0);
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    auto& part = to.parts[r];
    auto const rows_there = options.keeps_rows ? rows : options.partial ? std::min(rows, to.counts[r]) : 0;
    part.ids.resize(exec, to.counts[r]);
    part.positions.resize(exec, options.partial ? rows_there : to.counts[r]);
    part.offsets.resize(exec, rows_there + 1);
    part.scales.resize(exec, options.scaled ? to.counts[r] : 0);
  }
}

TESSERA_INLINE void row_split::split(jagged_view<std::int64_t const> bags, float const* weights, split_options const& options,
                                     split_ids& to) const {
  std::vector<std::int64_t> next(ranges_.size() + 1, 0), rows_of(ranges_.size(), 0);
  for (auto& part : to.parts) part.offsets[0] = 0;
  for (std::int64_t row = 0; row < bags.rows; ++row) {
    auto const scale = options.partial ? 1.0F : pooling_scale(options.pooled, bags.length(row));
    if (!to.means.empty()) to.means[row] = pooling_scale(options.pooled, bags.length(row));
    for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p) {
      auto const id = bags.values[p];
      auto const& takers = takers_of(id);
      for (auto const r : takers) {
        auto& part = to.parts[r];
        auto const n = next[r]++;
        part.ids[n] = keeps_ids_ ? id : id - ranges_[r].first;
        if (!options.partial) part.positions[n] = p - bags.offsets[0];
        if (options.scaled) part.scales[n] = weights == nullptr ? scale : scale * weights[p];
      }
      if (takers.empty()) to.absent[next.back()++] = p - bags.offsets[0];
    }
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      auto& part = to.parts[r];
      if (!options.keeps_rows && (!options.partial || next[r] == part.offsets[rows_of[r]])) continue;
      if (options.partial) part.positions[rows_of[r]] = row;
      part.offsets[++rows_of[r]] = next[r];
    }
  }
  for (std::size_t r = 0; r < ranges_.size(); ++r) measure(r, rows_of[r], options, to.parts[r]);
}

TESSERA_INLINE void row_split::measure(std::size_t r, std::int64_t rows, split_options const& options, ids_of_range& part) const {
  auto const bound = keeps_ids_ ? id_bound_ : ranges_[r].count, n = part.ids.size();
  if (options.keeps_rows || options.partial)
    part.measured = measure_key({part.ids.data(), part.offsets.data(), rows}, bound, options.scaled);
  else
    part.measured = {.rows = n, .values = n, .id_bytes = id_bytes_below(bound), .weighted = options.scaled ? 1 : 0};
}

TESSERA_INLINE std::size_t row_split::interval_from(std::int64_t row) {
  auto const place = std::lower_bound(bounds_.begin(), bounds_.end(), row) - bounds_.begin();
  auto const before = static_cast<std::size_t>(place);
  if (before == bounds_.size() || bounds_[before] != row) {
    bounds_.insert(bounds_.begin() + place, row);
    takers_.insert(takers_.begin() + place + 1, std::vector<std::size_t>(takers_[before]));
  }
  return before + 1;
}

TESSERA_INLINE void copy_rows(host_exec const& exec, std::vector<rows_to_copy> const& tasks) {
  exec.run(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t number) {
    auto const& task = tasks[static_cast<std::size_t>(number)];
    auto const row_in = [](std::int64_t const* rows, std::int64_t i) { return rows == nullptr ? i : rows[i]; };
    auto const count = std::min(task.from.rows(), task.to.rows());
    for (std::int64_t i = 0; i < count; ++i) {
      auto const row = row_in(task.from_rows, i);
      auto* const to = task.to.row(row_in(task.to_rows, i));
      std::copy_n(task.from.row(row), task.to.columns(), to);
      if (task.scales != nullptr)
        for (std::int64_t c = 0; c < task.to.columns(); ++c) to[c] *= task.scales[row];
    }
  });
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
