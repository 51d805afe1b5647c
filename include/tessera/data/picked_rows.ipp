// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/data/picked_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE keyed_jagged<> key_maker::operator()(host_exec const& exec, picked_rows const& rows,
                                                    std::vector<std::int64_t> const& columns, bool keeps_missing) {
  auto const keys = static_cast<std::int64_t>(columns.size());
  rows_per_key_.assign(columns.size(), rows.size);
  bool const is_single = std::all_of(columns.begin(), columns.end(), [&](std::int64_t c) { return rows.from.single(c); });
  if (is_single && keeps_missing) return single_ids(exec, rows, columns);
  auto const values = count(exec, rows, columns, keeps_missing);
  if (is_single && values == keys * rows.size) return single_ids(exec, rows, columns);
  return lists(exec, rows, columns, keeps_missing, values);
}

TESSERA_INLINE keyed_jagged<> key_maker::single_ids(host_exec const& exec, picked_rows const& rows,
                                                    std::vector<std::int64_t> const& columns) {
  auto const size = rows.size, values = static_cast<std::int64_t>(columns.size()) * size;
  if (lent_ == nullptr) lent_ = std::make_unique<lent>();
  // Else the pipeline has kept the batch before.
  bool const is_free = lent_->ids.is_free() && lent_->offsets.is_free();
  if (is_free) {
    lent_->ids.reserve(exec, values);
    lent_->offsets.count_up(exec, values + 1);
  }
  buffer<std::int64_t> offsets(is_free ? exec.with_memory(lent_->offsets) : exec, values + 1);
  buffer<std::int64_t> ids(is_free ? exec.with_memory(lent_->ids) : exec, values);
  if (!is_free) std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
  rows.visit([&](auto const& row_of) {
    for_each_piece(exec, values, ids_per_piece, [&](std::int64_t first, std::int64_t last) {
      while (first < last) {
        auto const key = first / size, sample = first % size;
        auto const count = std::min(size - sample, last - first);
        auto const* const from = ids_of(rows.from.sparse[columns[static_cast<std::size_t>(key)]]);
        auto* const to = ids.data() + first;
        std::int64_t i = 0;
        if (!rows.listed.empty())  // rows in no order are asked for well ahead
          for (constexpr std::int64_t ahead = 64; i + ahead < count; ++i) {
            __builtin_prefetch(from + row_of(sample + i + ahead));
            to[i] = from[row_of(sample + i)];
          }
        for (; i < count; ++i) to[i] = from[row_of(sample + i)];
        first += count;
      }
    });
  });
  return keyed_jagged<>::from_parts(exec, {}, jagged<std::int64_t>::from_buffers(std::move(ids), std::move(offsets)), rows_per_key_);
}

TESSERA_INLINE std::int64_t key_maker::count(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns,
                                             bool keeps_missing) {
  first_value_.resize(exec, static_cast<std::int64_t>(columns.size()) * divide_up(rows.size, samples_per_piece));
  rows.visit([&](auto const& row_of) {
    for_each_piece_of(exec, rows, columns, [&](std::int64_t, std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t piece) {
      auto const column = rows.from.sparse[c];
      std::int64_t sum = 0;
      if (!rows.from.single(c)) {
        for (auto i = first; i < last; ++i) sum += column.length(row_of(i));
      } else if (keeps_missing) {
        sum = last - first;
      } else {
        auto const* const ids = ids_of(column);
        for (auto i = first; i < last; ++i) sum += ids[row_of(i)] != missing_id;
      }
      first_value_.data()[piece] = sum;
    });
  });
  std::int64_t values = 0;
  for (auto& piece : first_value_) values += std::exchange(piece, values);
  return values;
}

TESSERA_INLINE keyed_jagged<> key_maker::lists(host_exec const& exec, picked_rows const& rows, std::vector<std::int64_t> const& columns,
                                               bool keeps_missing, std::int64_t values) {
  auto made = jagged<std::int64_t>::with_room(exec, static_cast<std::int64_t>(columns.size()) * rows.size, values);
  auto* const ids = made.view().values;
  auto* const offsets = made.offsets().data();
  rows.visit([&](auto const& row_of) {
    for_each_piece_of(exec, rows, columns,
                      [&](std::int64_t key, std::int64_t c, std::int64_t first, std::int64_t last, std::int64_t piece) {
                        auto const column = rows.from.sparse[c];
                        bool const drops = rows.from.single(c) && !keeps_missing;
                        auto at = first_value_.data()[piece];
                        for (auto i = first; i < last; ++i) {
                          offsets[key * rows.size + i] = at;
                          auto const begin = column.begin_of(row_of(i)), end = column.end_of(row_of(i));
                          if (drops && column.values[begin] == missing_id) continue;
                          for (auto v = begin; v < end; ++v) ids[at++] = column.values[v];
                        }
                      });
  });
  offsets[static_cast<std::int64_t>(columns.size()) * rows.size] = values;
  return keyed_jagged<>::from_parts(exec, {}, std::move(made), rows_per_key_);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
