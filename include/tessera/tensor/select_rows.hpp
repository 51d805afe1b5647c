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
#include <tessera/tensor/rows_from.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Gathers rows: row i of the result is row indices[i] of the input; an index may come again.
///
/// `indices` (n,). The result's memory is `exec`'s. On a device, whose errors number the keys, the call waits for the number of values
/// unless `room` gives one. There it always waits for the rows of groups. @post selecting by a permutation and then by its inverse gives
/// `in` again. The backward is `gather_backward`. @throws tessera::error out_of_range naming key, position and index, or the row at which
/// the values become more than an Offset counts.
template <execution Exec, class T, class Offset>
jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, jagged_view<T, Offset> in,
                                                         vector_view<std::int64_t const> indices, result_room room = {});

/// Gathers the same rows of every key, with their weights; the result is unnamed.
template <execution Exec, class T, class Offset>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                               vector_view<std::int64_t const> indices, result_room room = {});

/// Gathers the same rows of every key; the result is named as `in`.
template <execution Exec, class T, class Offset>
keyed_jagged<T, Offset, Exec> select_rows(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in,
                                          vector_view<std::int64_t const> indices, result_room room = {});

/// Gathers samples of an IKJT: of each group's distinct rows only those that the samples have, in the order of their first sample. The
/// result is unnamed. @post expand(select_rows(x, i)) == select_rows(expand(x), i).
template <execution Exec, class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> select_rows(Exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                       vector_view<std::int64_t const> indices, result_room room = {});

/// Gathers samples of an IKJT; the result is named as `in`.
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
    auto const source = [=](std::int64_t i) -> value_range<> {
      if (auto const row = indices[i]; row >= 0 && row < in.rows) return {in.begin_of(row), in.length(row)};
      throw error(errc::out_of_range, "select_rows: no such row", {{"position", i}, {"index", indices[i]}, {"rows", in.rows}});
    };
    return rows_from(exec, in, indices.size(), source, {room, "select_rows"});
  }

  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<std::int64_t const> indices, std::vector<std::string> const* names,
                                                          result_room room) {
    buffer<vector_view<std::int64_t const>> lists(exec, in.keys);
    std::fill(lists.begin(), lists.end(), indices);
    return run(exec, in, lists.view(), names, room);
  }

  template <class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, inverse_keyed_jagged_view<T, Offset> in,
                                                                  vector_view<std::int64_t const> indices,
                                                                  std::vector<std::string> const* names, result_room room) {
    check_rows("select_rows", "in", in.distinct);
    auto const n = indices.size(), groups = in.groups.size();
    buffer<std::int64_t> inverses(exec, groups * n), kept(exec, groups * n), rows(exec, groups), keys_per_group(exec, groups);
    buffer<std::int64_t> first_number(exec, groups + 1);  // of each group's rows
    first_number[0] = 0;
    for (std::int64_t g = 0; g < groups; ++g) first_number[g + 1] = first_number[g] + in.rows(in.groups[g]);
    buffer<std::int64_t> numbers(exec, first_number[groups]);
    exec.run(groups, [&](std::int64_t g) {
      rows[g] = keep_used(in, g, indices, numbers.view().slice(first_number[g], in.rows(in.groups[g])), inverses.view().slice(g * n, n),
                          kept.view().slice(g * n, n));
    });
    buffer<vector_view<std::int64_t const>> lists(exec, in.keys());
    std::fill(lists.begin(), lists.end(), indices);
    for (std::int64_t g = 0; g < groups; ++g) {
      keys_per_group[g] = in.groups[g].keys;
      std::fill_n(lists.data() + in.groups[g].first_key, keys_per_group[g],
                  vector_view<std::int64_t const>(kept.view().slice(g * n, rows[g])));
    }
    return inverse_keyed_jagged<std::remove_const_t<T>, Offset>::from_parts(run(exec, in.distinct, lists.view(), names, room),
                                                                            keys_per_group.view(), std::move(inverses), n);
  }

 private:
  // Rows of each key by a list of its own.
  template <class T, class Offset>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in,
                                                          vector_view<vector_view<std::int64_t const>> lists,
                                                          std::vector<std::string> const* names, result_room room) {
    buffer<std::int64_t> rows_per_key(exec, in.keys);
    std::transform(lists.begin(), lists.end(), rows_per_key.begin(), [](auto const& list) { return list.size(); });
    key_ranges<Offset> const ranges{in.offsets, in.first_row};
    auto const source = [=](std::int64_t key, std::int64_t i) {
      if (auto const row = lists[key][i]; ranges.has(key, row)) return ranges(key, row);
      throw error(errc::out_of_range, "select_rows: no such row",
                  {{"key", key_label(names, key)}, {"position", i}, {"index", lists[key][i]}, {"rows", ranges.rows(key)}});
    };
    return rows_from(exec, in, rows_per_key.view(), source, {room, "select_rows"});
  }

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
