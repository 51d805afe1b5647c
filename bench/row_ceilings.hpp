// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>

#include "ceiling.hpp"
#include "inputs.hpp"
#include "memory_ceilings.hpp"

/// How fast rows are read and changed, wherever they are in memory.
namespace tessera_bench {

namespace detail {

inline constexpr std::int64_t line_floats = line_bytes / 4;

// Of each line of a row one float is read: the line comes as a whole, in the fewest instructions, so that the most rows are under way. Four
// sums, as one would make each line wait for the line before it.
struct read_lines {
  float sums[4] = {};

  void operator()(float const* row, std::int64_t dim) {
    std::int64_t c = 0;
    for (; c + 4 * line_floats <= dim; c += 4 * line_floats)
      for (int i = 0; i < 4; ++i) sums[i] += row[c + i * line_floats];
    for (; c < dim; c += line_floats) sums[0] += row[c];
    if (dim % line_floats != 0) sums[1] += row[dim - 1];  // the last float may begin another line
  }
  void finish() { keep((sums[0] + sums[1]) + (sums[2] + sums[3])); }
};

// Of each line one float is changed, by a billionth.
struct change_lines {
  void operator()(float* row, std::int64_t dim) {
    for (std::int64_t c = 0; c < dim; c += line_floats) row[c] += 1e-9F;
    if (dim % line_floats != 0) row[dim - 1] += 1e-9F;
  }
  void finish() { keep(0); }
};

// Into the first level of cache (3) or the second (2).
template <int Level>
void ask_for(float const* row, std::int64_t dim) {
  auto const* const first = reinterpret_cast<char const*>(row);
  for (std::int64_t byte = 0; byte < dim * 4; byte += line_bytes) __builtin_prefetch(first + byte, 0, Level);
}

// A way to visit rows [first, last) of a list.
using row_loop = void (*)(float* const* rows, std::int64_t dim, std::int64_t first, std::int64_t last, std::int64_t distance);

// Prefetches each row `distance` rows ahead, in `Streams` streams side by side.
template <class Visit, int Level, int Streams>
void row_by_row(float* const* rows, std::int64_t dim, std::int64_t first, std::int64_t last, std::int64_t distance) {
  Visit visit;
  auto const each = (last - first) / Streams;
  for (std::int64_t i = 0; i < each; ++i)
    for (int s = 0; s < Streams; ++s) {
      auto const r = first + s * each + i;
      if (distance > 0 && i + distance < each) ask_for<Level>(rows[r + distance], dim);
      visit(rows[r], dim);
    }
  for (auto r = first + Streams * each; r < last; ++r) visit(rows[r], dim);
  visit.finish();
}

// All rows of a block are asked for while those of the block before are visited.
template <class Visit, int Level>
void block_by_block(float* const* rows, std::int64_t dim, std::int64_t first, std::int64_t last, std::int64_t block) {
  Visit visit;
  for (auto b = first; b < last; b += block) {
    for (auto r = std::min(b + block, last); r < std::min(b + 2 * block, last); ++r) ask_for<Level>(rows[r], dim);
    for (auto r = b; r < std::min(b + block, last); ++r) visit(rows[r], dim);
  }
  visit.finish();
}

template <class Visit>
std::vector<std::pair<row_loop, std::int64_t>> row_loops() {
  std::vector<std::pair<row_loop, std::int64_t>> loops{{row_by_row<Visit, 3, 1>, 0}};
  if (smoke()) return loops;
  for (std::int64_t const distance : {4, 8, 16, 32, 64})
    for (row_loop const loop : {row_by_row<Visit, 3, 1>, row_by_row<Visit, 2, 1>, row_by_row<Visit, 3, 2>, row_by_row<Visit, 2, 2>,
                                row_by_row<Visit, 2, 4>, block_by_block<Visit, 3>, block_by_block<Visit, 2>})
      loops.emplace_back(loop, distance);
  return loops;
}

}  // namespace detail

/// Bytes a second of reading rows of `dim` floats wherever they are; of a cache line that a row fills in part, only that part counts. The best of
/// loops that ask for rows at several distances, into the first or second level of cache, one by one, in streams or in blocks.
/// `rows`: their addresses in the order of reading, inside the tables that are measured, so that page sizes are the same.
inline ceiling gather_ceiling(tessera::host_exec const& exec, std::vector<float*> rows, std::int64_t dim) {
  std::vector<ceiling::loop> loops;
  auto const count = static_cast<std::int64_t>(rows.size());
  auto const kept = std::make_shared<std::vector<float*> const>(std::move(rows));
  for (auto const& [loop, distance] : detail::row_loops<detail::read_lines>())
    loops.push_back(detail::by_quarters(exec, count, static_cast<double>(dim * 4),
                                        [kept, dim, loop = loop, distance = distance](std::int64_t first, std::int64_t last) {
                                          loop(kept->data(), dim, first, last, distance);
                                        }));
  return {std::move(loops), exec.threads()};
}

/// The rows that a batch reads, and the distinct ones of them, which it changes.
struct batch_rows {
  std::vector<float*> read, changed;

  /// `rows`: as they are read; ones that repeat among them.
  explicit batch_rows(std::vector<float*> rows) : read(std::move(rows)), changed(read) {
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  }
};

/// Bytes a second of reading and writing the distinct rows of a batch, both counted, right after the batch was read, as in
/// training: what caches still hold is not read from memory again. The loops are those of `gather_ceiling`; each changes the tables, by a billionth
/// in one element of each line.
inline ceiling update_ceiling(tessera::host_exec const& exec, std::vector<batch_rows> batches, std::int64_t dim) {
  using namespace detail;
  auto const kept = std::make_shared<std::vector<batch_rows> const>(std::move(batches));
  std::vector<ceiling::loop> loops;
  for (auto const& way : row_loops<change_lines>())
    loops.push_back([=, next = std::size_t{0}](int threads) mutable {
      constexpr double enough = 1 << 26;
      double bytes = 0, seconds = 0;
      for (std::size_t done = 0; done < (smoke() ? 1 : kept->size()) && bytes < enough; ++done) {
        auto const& batch = (*kept)[next++ % kept->size()];
        auto const visit = [&](std::vector<float*> const& rows, row_loop loop, std::int64_t distance) {
          in_pieces(exec, threads, 0, static_cast<std::int64_t>(rows.size()),
                    [&](std::int64_t first, std::int64_t last) { loop(rows.data(), dim, first, last, distance); });
        };
        visit(batch.read, row_by_row<read_lines, 2, 1>, 16);
        seconds += seconds_of([&] { visit(batch.changed, way.first, way.second); });
        bytes += static_cast<double>(static_cast<std::int64_t>(batch.changed.size()) * dim * 8);
      }
      return bytes / seconds;
    });
  return {std::move(loops), exec.threads()};
}

}  // namespace tessera_bench
