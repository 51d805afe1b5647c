// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/opaque.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/scan.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/source_lists.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One matrix of vectors to be summed by their targets.
struct target_sums {
  source_lists_view lists;           ///< of rows of `vectors`, a list a row of `sums`
  matrix_view<float const> vectors;  ///< (sources, dim), of any row stride of at least dim
  matrix_view<float> sums;           ///< (targets, dim), of any row stride of at least dim; overwritten
};

/// Options of `sum_by_target`.
struct sum_by_target_options {
  std::uint32_t const* skip = nullptr;  ///< a number in the execution's memory; nothing is written where it is not 0 when the sums are due
};

/// Sums vectors by target. Each row of `sums` becomes the sum of the vectors that its list names, in the list's order, on any number of
/// threads. An empty list gives 0. A list of one vector copies it, signs of zeros too.
///
/// `sums` shares no memory with `vectors`; the jobs, which lie in the host's memory, share none of their sums. Lists {1}, {}, {0, 2} of
/// vectors a, b, c give b, 0, a + c. On a device NaNs may have other bits. @pre lists name rows of `vectors`. @throws tessera::error
/// shape_mismatch for other dims, numbers of lists, or rows that overlap.
template <execution Exec>
void sum_by_target(Exec const& exec, vector_view<target_sums const> jobs, sum_by_target_options options = {});

/// Sums rows of vectors by target. Vector j of a row of `sums` becomes the sum of vectors j of the rows that its list names.
///
/// Float, of any row strides of at least dim. Workspace on the host: 8 bytes a row of `sums`. @pre lists name rows of `vectors` as long as
/// the row of `sums`. @throws tessera::error as above.
template <execution Exec, class Offset>
void sum_by_target(Exec const& exec, source_lists_view lists, detail::jagged_vectors_in<Offset> vectors,
                   jagged_vectors_view<float, Offset> sums, sum_by_target_options options = {});

/// Sums numbers by target: sums[t] becomes the sum of values[i] over the sources i of target t, in their order; 0 where there are none.
///
/// `values` (of every source,), `sums` (targets,), overwritten. A pair whose target is not below `targets` is left out. Work follows the
/// sources, but for the zeros. @pre sources name values. @throws tessera::error shape_mismatch unless there is one target a source.
template <execution Exec, class T>
void sum_by_target(Exec const& exec, source_pairs_view pairs, std::type_identity_t<vector_view<T const>> values, vector_view<T> sums);

namespace detail {

struct sum_by_target_tag {};

template <>
struct back_end<sum_by_target_tag, host_exec> {
  static constexpr std::int64_t numbers_per_piece = 1 << 14;

  static void vectors(host_exec const& exec, vector_view<target_sums const> jobs, sum_by_target_options options) {
    if (options.skip != nullptr && *options.skip != 0) return;
    // A piece is so many vectors read or written, however many sources its rows have.
    auto const share = [&](std::int64_t j) {
      auto const rows = jobs[j].sums.rows(), moved = jobs[j].lists.sources.size() + rows;
      return std::max<std::int64_t>(1, vectors_per_piece(jobs[j].sums.columns()) * rows / std::max<std::int64_t>(moved, 1));
    };
    for_each_piece_of(
        exec, jobs.size(), [&](std::int64_t j) { return jobs[j].sums.rows(); }, share,
        [&](std::int64_t j, std::int64_t first, std::int64_t last) {
          auto const [lists, from, sums] = jobs[j];
          auto const dim = sums.columns();
          for (auto row = first; row < last; ++row) {
            auto* const sum = sums.row(row);
            auto at = lists.starts[row];
            auto const end = lists.starts[row + 1];
            if (at == end)
              std::fill_n(sum, dim, 0.0F);
            else
              std::copy_n(from.row(lists.sources[at++]), dim, sum);
            for (; at < end; ++at) {
              auto const* const more = opaque(from.row(lists.sources[at]));
              for (std::int64_t c = 0; c < dim; ++c) sum[c] += more[c];
            }
          }
        });
  }

  template <class Offset>
  static void rows(host_exec const& exec, source_lists_view lists, jagged_vectors_view<float const, Offset> from,
                   jagged_vectors_view<float, Offset> sums, sum_by_target_options options) {
    if (options.skip != nullptr && *options.skip != 0) return;
    // A piece is so much work, however many sources its rows have: what a vector costs is 1 + its row's sources.
    auto const cost = [&](std::int64_t row) { return 1 + lists.starts[row + 1] - lists.starts[row]; };
    buffer<std::int64_t> work(exec, sums.rows + 1);
    for_each_index(exec, sums.rows, sources_per_piece, [&](std::int64_t row) { work[row] = cost(row) * sums.length(row); });
    work[sums.rows] = exclusive_scan(exec, work.view().slice(0, sums.rows), work.view().slice(0, sums.rows));
    for_each_row_run(exec, work.data(), sums.rows, vectors_per_piece(sums.dim()), [&](auto row, std::int64_t first, std::int64_t last) {
      auto const begin = divide_up(first - work[row], cost(row)), end = divide_up(last - work[row], cost(row));
      if (begin == end) return;
      auto const to = sums.row(row).rows_from(begin, end - begin);
      auto const list = lists.of(row);
      if (list.empty()) return fill_vectors(to, 0.0F);
      copy_vectors(from.row(list[0]).rows_from(begin, end - begin), to);
      for (std::int64_t s = 1; s < list.size(); ++s) add_vectors(from.row(list[s]).rows_from(begin, end - begin), to);
    });
  }

  template <class T>
  static void numbers(host_exec const& exec, source_pairs_view pairs, vector_view<T const> values, vector_view<T> sums) {
    for_each_index(exec, sums.size(), numbers_per_piece, [=](std::int64_t target) { sums[target] = T{}; });
    auto const targets = pairs.targets, sources = pairs.sources;
    // A piece sums for the targets that begin in it.
    for_each_piece(exec, targets.size(), numbers_per_piece, [=](std::int64_t first, std::int64_t last) {
      auto i = first;
      while (i < last && i > 0 && targets[i] == targets[i - 1]) ++i;
      while (i < last && targets[i] < sums.size()) {
        auto const target = targets[i];
        T total = values[sources[i]];
        for (++i; i < targets.size() && targets[i] == target; ++i) total += values[sources[i]];
        sums[target] = total;
      }
    });
  }
};

}  // namespace detail

template <execution Exec>
void sum_by_target(Exec const& exec, vector_view<target_sums const> jobs, sum_by_target_options options) {
  for (auto const& job : jobs)
    if (job.lists.starts.size() != job.sums.rows() + 1 || job.vectors.columns() != job.sums.columns() ||
        job.vectors.stride() < job.vectors.columns() || (job.sums.rows() > 1 && job.sums.stride() < job.sums.columns()))
      throw error(errc::shape_mismatch, "sum_by_target: one list a row, and vectors of one dim that do not overlap",
                  {{"job", &job - jobs.data()},
                   {"lists", job.lists.starts.size() - 1},
                   {"rows", job.sums.rows()},
                   {"dim", job.vectors.columns()},
                   {"dim of the sums", job.sums.columns()},
                   {"strides", std::to_string(job.vectors.stride()) + " and " + std::to_string(job.sums.stride())}});
  detail::back_end<detail::sum_by_target_tag, Exec>::vectors(exec, jobs, options);
}

template <execution Exec, class Offset>
void sum_by_target(Exec const& exec, source_lists_view lists, detail::jagged_vectors_in<Offset> vectors,
                   jagged_vectors_view<float, Offset> sums, sum_by_target_options options) {
  detail::check_vectors_shape("sum_by_target", "vectors", vectors);
  detail::check_vectors_shape("sum_by_target", "sums", sums);
  detail::check_extent("sum_by_target", "lists", lists.starts.size() - 1, sums.rows);
  detail::check_extent("sum_by_target", "dim", vectors.dim(), sums.dim());
  detail::back_end<detail::sum_by_target_tag, Exec>::rows(exec, lists, vectors, sums, options);
}

template <execution Exec, class T>
void sum_by_target(Exec const& exec, source_pairs_view pairs, std::type_identity_t<vector_view<T const>> values, vector_view<T> sums) {
  static_assert(std::is_floating_point_v<T>, "sum_by_target: sums are floats or doubles");
  if (pairs.targets.size() != pairs.sources.size())
    throw error(errc::shape_mismatch, "sum_by_target: one target a source",
                {{"targets", pairs.targets.size()}, {"sources", pairs.sources.size()}});
  detail::back_end<detail::sum_by_target_tag, Exec>::template numbers<T>(exec, pairs, values, sums);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
