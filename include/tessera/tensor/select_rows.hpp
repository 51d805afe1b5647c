// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gathers rows: row i of the result is row indices[i] of the input; an index may come again.
///
/// The result's memory is `exec`'s; on a device, whose errors number the keys, the call waits for the number of values unless `room` tells
/// it, and for the rows of groups always. @throws tessera::error out_of_range naming key, position and index, or the row at which the
/// values become more than an Offset counts. Backward: `gather_backward`.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, jagged_view<T, Offset> in,
                                                         vector_view<std::int64_t const> indices, result_room room = {});

/// The same rows of every key, with their weights; the result is unnamed.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                               vector_view<std::int64_t const> indices, result_room room = {});

/// The same, named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> select_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                          vector_view<std::int64_t const> indices, result_room room = {});

/// Samples, and of each group's distinct rows only those that they have, in the order of their first sample; the result is unnamed.
template <execution Exec, class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                       vector_view<std::int64_t const> indices, result_room room = {});

/// The same, named as `in`.
template <execution Exec, class T, class Offset>
inverse_keyed_jagged<T, Offset, Exec> select_rows(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& in,
                                                  vector_view<std::int64_t const> indices, result_room room = {});

namespace detail {

struct select_rows_tag {};

template <>
struct back_end<select_rows_tag, host_exec> {
  template <class T, class Offset>
  static jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, jagged_view<T, Offset> in,
                                                    vector_view<std::int64_t const> indices, result_room room) {
    check_rows("select_rows", "in", in);
    row_ranges<Offset> ranges(exec, indices.size());
    for_each_piece(exec, indices.size(), copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; ++i) {
        if (indices[i] < 0 || indices[i] >= in.rows)
          throw error(errc::out_of_range, "select_rows: no such row", {{"position", i}, {"index", indices[i]}, {"rows", in.rows}});
        ranges.begins[i] = in.begin_of(indices[i]);
        ranges.lengths[i] = static_cast<Offset>(in.length(indices[i]));
      }
    });
    return rows_of_ranges(exec, "select_rows", in, ranges, room);
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> indices, std::vector<std::string> const* names,
                                                          result_room room) {
    check_rows("select_rows", "in", in);
    auto const n = indices.size();
    row_ranges<Offset> ranges(exec, in.keys * n);
    for_each_piece(exec, in.keys * n, copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto key = first / n; key * n < last; ++key) {
        auto const rows = in.key(key);
        for (auto i = std::max(first, key * n); i < std::min(last, (key + 1) * n); ++i) {
          auto const index = indices[i - key * n];
          if (index < 0 || index >= rows.rows)
            throw error(errc::out_of_range, "select_rows: no such row",
                        {{"key", key_label(names, key)}, {"position", i - key * n}, {"index", index}, {"rows", rows.rows}});
          ranges.begins[i] = rows.begin_of(index);
          ranges.lengths[i] = static_cast<Offset>(rows.length(index));
        }
      }
    });
    buffer<std::int64_t> rows_per_key(exec, in.keys);
    std::fill(rows_per_key.begin(), rows_per_key.end(), n);
    return batch_of_ranges(exec, "select_rows", in, ranges, std::as_const(rows_per_key).view(), room);
  }

  template <class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                  vector_view<std::int64_t const> indices,
                                                                  std::vector<std::string> const* names, result_room room) {
    check_rows("select_rows", "in", in.distinct);
    auto const n = indices.size(), groups = in.groups.size(), ungrouped = in.keys() - in.grouped_keys();
    buffer<std::int64_t> inverses(exec, groups * n), kept(exec, groups * n), rows(exec, groups), keys_per_group(exec, groups);
    std::int64_t of_groups = 0;
    for (auto const& group : in.groups) of_groups += in.rows(group);
    buffer<std::int64_t> numbers(exec, of_groups), first_number(exec, groups);  // of each group's rows
    of_groups = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      first_number[g] = of_groups;
      of_groups += in.rows(in.groups[g]);
    }
    exec.run(groups, [&](std::int64_t g) {
      rows[g] = keep_used(in, g, indices, numbers.view().slice(first_number[g], in.rows(in.groups[g])), inverses.view().slice(g * n, n),
                          kept.view().slice(g * n, n));
    });
    std::int64_t all = ungrouped * n;
    for (std::int64_t g = 0; g < groups; ++g) all += in.groups[g].keys * rows[g];
    row_ranges<Offset> ranges(exec, all);
    buffer<std::int64_t> rows_per_key(exec, in.keys());
    std::int64_t to = 0;
    for (std::int64_t key = 0, g = 0; key < in.keys(); ++key) {
      while (g < groups && key >= in.groups[g].first_key + in.groups[g].keys) ++g;
      auto const from = in.distinct.key(key);
      auto const picked = g < groups ? vector_view<std::int64_t const>(kept.view().slice(g * n, rows[g])) : indices;
      if (g < groups) keys_per_group[g] = in.groups[g].keys;
      rows_per_key[key] = picked.size();
      for_each_piece(exec, picked.size(), copied_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
        for (auto i = first; i < last; ++i) {
          if (picked[i] < 0 || picked[i] >= from.rows)
            throw error(errc::out_of_range, "select_rows: no such row",
                        {{"key", key_label(names, key)}, {"position", i}, {"index", picked[i]}, {"rows", from.rows}});
          ranges.begins[to + i] = from.begin_of(picked[i]);
          ranges.lengths[to + i] = static_cast<Offset>(from.length(picked[i]));
        }
      });
      to += picked.size();
    }
    auto distinct = batch_of_ranges(exec, "select_rows", in.distinct, ranges, std::as_const(rows_per_key).view(), room);
    return inverse_keyed_jagged<std::remove_const_t<T>, Offset>::from_parts(std::move(distinct), keys_per_group.view(), std::move(inverses),
                                                                            n);
  }

 private:
  // The rows of a group that the selected samples have, in the order of their first one, and where each sample finds its own.
  template <class T, class Offset>
  static std::int64_t keep_used(inverse_keyed_jagged_view<T, Offset> in, std::int64_t g, vector_view<std::int64_t const> indices,
                                vector_view<std::int64_t> number, vector_view<std::int64_t> inverse, vector_view<std::int64_t> kept) {
    auto const group = in.groups[g];
    std::fill(number.begin(), number.end(), std::int64_t{-1});
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0 || indices[i] >= in.samples)
        throw error(errc::out_of_range, "select_rows: no such sample", {{"position", i}, {"index", indices[i]}, {"samples", in.samples}});
      auto const row = group.inverse[indices[i]];
      if (row < 0 || row >= number.size())
        throw error(errc::out_of_range, "select_rows: an inverse names no row",
                    {{"group", g}, {"sample", indices[i]}, {"row", row}, {"rows", number.size()}});
      if (number[row] < 0) {
        kept[found] = row;
        number[row] = found++;
      }
      inverse[i] = number[row];
    }
    return found;
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, jagged_view<T, Offset> in,
                                                         vector_view<std::int64_t const> indices, result_room room) {
  return detail::back_end<detail::select_rows_tag, Exec>::run(exec, in, indices, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                               vector_view<std::int64_t const> indices, result_room room) {
  return detail::back_end<detail::select_rows_tag, Exec>::run(exec, in, indices, nullptr, room);
}

template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> select_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                          vector_view<std::int64_t const> indices, result_room room) {
  return detail::back_end<detail::select_rows_tag, Exec>::run(exec, in.view(), indices, &in.keys(), room).named(in.keys());
}

template <execution Exec, class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                       vector_view<std::int64_t const> indices, result_room room) {
  detail::check_groups("select_rows", in);
  return detail::back_end<detail::select_rows_tag, Exec>::run(exec, in, indices, nullptr, room);
}

template <execution Exec, class T, class Offset>
inverse_keyed_jagged<T, Offset, Exec> select_rows(Exec const& exec, inverse_keyed_jagged<T, Offset, Exec> const& in,
                                                  vector_view<std::int64_t const> indices, result_room room) {
  return detail::back_end<detail::select_rows_tag, Exec>::run(exec, in.view(), indices, &in.keys(), room).named(in.keys());
}

}  // namespace TESSERA_ABI
}  // namespace tessera
