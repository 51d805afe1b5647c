// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_update.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What each position of a batch, its first value first, adds to the gradient of its row.
struct batch_contributions {
  row_contribution* of_positions;
  std::int64_t const* ids;  // of the same
  bool maxima;              // whether some may be of maxima
};

/// A segment of the sorted positions: all those that name one row.
template <class Index>
struct slot_segment {
  std::int64_t table;
  std::int64_t slot;
  Index const* positions;
  std::int64_t count;  // how many contributions there are to sum
};

/// Whether a segment is shared by all threads: it would keep one busy while others wait, and one chunk can sum its chunks.
constexpr bool is_shared_segment(std::int64_t count) noexcept {
  return count >= 4 * canonical_sum_chunk && count <= canonical_sum_chunk * canonical_sum_chunk;
}

/// The sorted positions of all tables, cut into pieces. A segment belongs to the piece in which it starts.
template <class Index>
struct segment_pieces {
  static constexpr std::int64_t positions_per_piece = 256;

  vector_view<table_order<Index> const> tables;
  piece_list pieces;

  segment_pieces(host_exec const& exec, row_sort<Index> const& sorted)
      : tables(sorted.tables.view()),
        pieces(exec, tables.size(), [this](std::int64_t t) { return divide_up(tables[t].count, positions_per_piece); }) {}

  std::int64_t count() const noexcept { return pieces.count(); }
  std::int64_t table_of(std::int64_t piece) const noexcept { return pieces.range_of(piece); }

  /// Calls f(segment, the order of its table, the segment's end in that order) for each segment of a piece.
  /// @pre shared segments are summed
  template <class F>
  void for_each_segment(std::int64_t piece, F const& f) const noexcept {
    auto const t = table_of(piece);
    auto const& order = tables[t];
    auto first = (piece - pieces.first_of(t)) * positions_per_piece;
    auto const last = std::min(order.count, first + positions_per_piece);
    while (first < last && first > 0 && order.slots[first] == order.slots[first - 1]) ++first;  // begun by the piece before
    while (first < last) {
      auto end = first + 1;
      while (end < order.count && order.slots[end] == order.slots[first]) ++end;
      auto const count = is_shared_segment(end - first) ? divide_up(end - first, canonical_sum_chunk) : end - first;
      f(slot_segment<Index>{t, static_cast<std::int64_t>(order.slots[first]), order.positions + first, count}, order, end);
      first = end;
    }
  }
};

/// Sums the chunks of shared segments, on all threads. The sums replace the contributions of the segment's first positions, one a chunk.
template <class Index>
class shared_segments {
 public:
  shared_segments(host_exec const& exec, vector_view<row_places const> tables, row_sort<Index> const& sorted,
                  batch_contributions const& contributions);

 private:
  struct segment {
    Index const* positions;
    std::int64_t count;
    std::int64_t dim;
    float* sums;  // (chunks, dim)
  };

  // Calls f(table, positions, count) for each. One holds a multiple of `step`, and half as many positions before or behind it.
  template <class F>
  static void for_each(row_sort<Index> const& sorted, F const& f) {
    constexpr std::int64_t step = 4 * canonical_sum_chunk;
    for (std::int64_t t = 0; t < sorted.tables.size(); ++t) {
      auto const& order = sorted.tables[t];
      auto const* const slots = order.slots;
      std::int64_t last = 0;  // of the segment before
      for (std::int64_t i = 0; i < order.count; i += step) {
        if (i < last || order.count < step) continue;
        auto const before = std::max<std::int64_t>(i - step / 2, 0), behind = std::min(i + step / 2, order.count) - 1;
        if (slots[before] != slots[i] && slots[behind] != slots[i]) continue;
        auto const first = std::lower_bound(slots + last, slots + i, slots[i]) - slots;
        last = std::upper_bound(slots + i, slots + order.count, slots[i]) - slots;
        if (is_shared_segment(last - first)) f(t, order.positions + first, last - first);
      }
    }
  }

  buffer<float> sums_;
};

/// Prefetches what an update reads first: a row, its state, and the gradient of one of its positions.
template <int Dim, class Index>
[[gnu::always_inline]] inline void prefetch_update(row_places const& table, table_order<Index> const& order, std::int64_t i,
                                                   row_contribution const* contributions) noexcept {
  constexpr std::int64_t contributions_ahead = 16;  // where the gradient is, is read from one of many
  auto const slot = static_cast<std::int64_t>(order.slots[i]);
  __builtin_prefetch(contributions + order.positions[std::min(i + contributions_ahead, order.count - 1)]);
  prefetch_row(contributions[order.positions[i]].gradient, Dim == 0 ? table.dim : Dim);
  if (i > 0 && order.slots[i - 1] == order.slots[i]) return;
  constexpr auto float_bytes = Dim * static_cast<std::int64_t>(sizeof(float));
  if (Dim > 0 && table.row_bytes == float_bytes)  // of known length: no loop
    prefetch_bytes(table.row(slot), float_bytes);
  else
    prefetch_bytes(table.row(slot), table.row_bytes);
  prefetch_bytes(table.state(slot), table.state_width * static_cast<std::int64_t>(sizeof(float)));
}

/// Takes summed rows. It refers to a closure by a pointer, as the closure's type would else be part of every loop's type.
class summed_rows_sink {
 public:
  template <class F>
  explicit summed_rows_sink(F const& f) noexcept
      : closure_(&f), call_([](void const* closure, std::int64_t table, summed_rows const& rows) noexcept {
          (*static_cast<F const*>(closure))(table, rows);
        }) {}
  void operator()(std::int64_t table, summed_rows const& rows) const noexcept { call_(closure_, table, rows); }

 private:
  void const* closure_;
  void (*call_)(void const*, std::int64_t, summed_rows const&) noexcept;
};

/// The summed gradients of the rows that a batch names. The constructor takes all memory that `for_each` needs.
template <class Index>
class row_sums {
 public:
  /// Overwrites contributions of shared segments.
  row_sums(host_exec const& exec, vector_view<row_places const> tables, row_sort<Index> const& sorted,
           batch_contributions const& contributions);

  /// Hands all rows to `sink`, some of a table at a time, on any threads; but those of tables t with `but[t]`, where it is not nullptr.
  void for_each(host_exec const& exec, summed_rows_sink const& sink, std::vector<bool> const* but = nullptr) noexcept;

  /// Writes the rows of each table t with `only[t]`, or of all where it is nullptr; `out` has none of others.
  void write(host_exec const& exec, row_gradients& out, std::vector<bool> const* only = nullptr) const;

 private:
  static constexpr std::int64_t stack_floats = 2304, floats_at_once = 128, max_rows = 32;

  // How many rows are summed before they are handed on, beside two more for the sum of a chunk and for the sink; 0: a single one is too wide.
  // Few, as nothing is fetched from memory while they are updated; but two where they fit, as handing on takes time, too.
  static constexpr std::int64_t rows_on_stack(std::int64_t dim) noexcept {
    return std::min(std::clamp<std::int64_t>(floats_at_once / dim, 2, max_rows), std::max<std::int64_t>(stack_floats / dim - 2, 0));
  }

  template <int Dim>
  void sum_piece(std::int64_t piece, summed_rows_sink const& sink) noexcept {
    auto const t = pieces_.table_of(piece);
    auto const& table = tables_[t];
    auto const dim = Dim == 0 ? table.dim : Dim;
    alignas(64) float on_stack[stack_floats];
    bool const is_wide = rows_on_stack(dim) == 0;
    auto const most = is_wide ? 1 : rows_on_stack(dim);
    float* const sums = is_wide ? scratch_.data() + 3 * width_ * piece : on_stack;
    float *const chunk_sum = sums + most * dim, *const scratch = chunk_sum + dim;
    std::int64_t slots[max_rows], positions[max_rows], count = 0, ahead = 0;
    auto const distance = prefetch_distance(table.row_bytes);
    auto const flush = [&] {
      if (count > 0) sink(t, {slots, contributions_.ids, positions, std::exchange(count, 0), sums, scratch});
    };
    pieces_.for_each_segment(piece, [&](slot_segment<Index> const& segment, table_order<Index> const& order, std::int64_t end) {
      for (ahead = std::max(ahead, end); ahead < std::min(order.count, end + distance); ++ahead)
        prefetch_update<Dim>(table, order, ahead, contributions_.of_positions);
      sum_contributions_of<Dim>(contributions_.maxima, contributions_.of_positions, segment.positions, segment.count, dim,
                                sums + count * dim, chunk_sum);
      slots[count] = segment.slot;
      positions[count] = static_cast<std::int64_t>(segment.positions[0]);
      if (++count == most) flush();
    });
    flush();
  }

  vector_view<row_places const> tables_;
  batch_contributions contributions_;
  segment_pieces<Index> pieces_;
  shared_segments<Index> shared_;
  std::int64_t width_ = 0;  // of the widest row that is not summed on the stack
  buffer<float> scratch_;   // (3, width) a piece
};

template <class Index>
shared_segments<Index>::shared_segments(host_exec const& exec, vector_view<row_places const> tables, row_sort<Index> const& sorted,
                                        batch_contributions const& contributions) {
  std::int64_t count = 0, floats = 0;
  for_each(sorted, [&](std::int64_t t, Index const*, std::int64_t n) {
    ++count;
    floats += divide_up(n, canonical_sum_chunk) * tables[t].dim;
  });
  if (count == 0) return;
  buffer<segment> segments(exec, count);
  sums_.resize(exec, floats);
  auto* next = segments.data();
  auto* sums = sums_.data();
  for_each(sorted, [&](std::int64_t t, Index const* positions, std::int64_t n) {
    *next++ = {positions, n, tables[t].dim, sums};
    sums += divide_up(n, canonical_sum_chunk) * tables[t].dim;
  });
  for_each_piece_of(
      exec, count, [&](std::int64_t r) { return segments[r].count; }, [](std::int64_t) { return canonical_sum_chunk; },
      [&](std::int64_t r, std::int64_t first, std::int64_t last) {
        auto const& of = segments[r];
        auto* const sum = of.sums + first / canonical_sum_chunk * of.dim;
        sum_contributions_of<0>(contributions.maxima, contributions.of_positions, of.positions + first, last - first, of.dim, sum, sum);
      });
  for (auto const& of : segments)
    for (std::int64_t chunk = 0; chunk < divide_up(of.count, canonical_sum_chunk); ++chunk)
      contributions.of_positions[of.positions[chunk]] = {of.sums + chunk * of.dim, 1.0F, -1};
}

template <class Index>
row_sums<Index>::row_sums(host_exec const& exec, vector_view<row_places const> tables, row_sort<Index> const& sorted,
                          batch_contributions const& contributions)
    : tables_(tables), contributions_(contributions), pieces_(exec, sorted), shared_(exec, tables, sorted, contributions) {
  for (auto const& table : tables)
    if (rows_on_stack(table.dim) == 0) width_ = std::max(width_, table.dim);
  scratch_.resize(exec, 3 * width_ * pieces_.count());
}

template <class Index>
void row_sums<Index>::for_each(host_exec const& exec, summed_rows_sink const& sink, std::vector<bool> const* but) noexcept {
  exec.run(pieces_.count(), [&](std::int64_t piece) {
    if (but != nullptr && (*but)[static_cast<std::size_t>(pieces_.table_of(piece))]) return;
    with_sum_dim<Index>(tables_[pieces_.table_of(piece)].dim, [&](auto dim) { sum_piece<dim()>(piece, sink); });
  });
}

template <class Index>
void row_sums<Index>::write(host_exec const& exec, row_gradients& out, std::vector<bool> const* only) const {
  auto const is_wanted = [&](std::int64_t t) { return only == nullptr || (*only)[static_cast<std::size_t>(t)]; };
  buffer<std::int64_t> first_row(exec, pieces_.count());  // of each piece, within its table
  exec.run(pieces_.count(), [&](std::int64_t piece) {
    std::int64_t rows = 0;
    if (is_wanted(pieces_.table_of(piece))) pieces_.for_each_segment(piece, [&](auto const&, auto const&, std::int64_t) { ++rows; });
    first_row[piece] = rows;
  });
  buffer<std::int64_t> rows(exec, tables_.size());
  std::int64_t widest = 0;
  for (std::int64_t t = 0; t < tables_.size(); ++t) {
    rows[t] = 0;
    for (auto piece = pieces_.pieces.first_of(t); piece < pieces_.pieces.first_of(t + 1); ++piece)
      rows[t] += std::exchange(first_row[piece], rows[t]);
    if (is_wanted(t)) widest = std::max(widest, tables_[t].dim);
  }
  out.resize(
      exec, tables_.size(), [&](std::int64_t t) { return rows[t]; }, [&](std::int64_t t) { return tables_[t].dim; });
  buffer<float> scratch(exec, widest * pieces_.count());
  exec.run(pieces_.count(), [&](std::int64_t piece) {
    auto const t = pieces_.table_of(piece);
    if (!is_wanted(t)) return;
    auto const values = out.values(t);
    auto row = first_row[piece];
    with_sum_dim<Index>(values.columns(), [&](auto dim) {
      pieces_.for_each_segment(piece, [&](slot_segment<Index> const& segment, auto const&, std::int64_t) {
        out.set_row(t, row, segment.slot, contributions_.ids[segment.positions[0]]);
        sum_contributions_of<dim()>(contributions_.maxima, contributions_.of_positions, segment.positions, segment.count, values.columns(),
                                    values.row(row), scratch.data() + widest * piece);
        ++row;
      });
    });
  });
}

#define TESSERA_INSTANCES_OF_ROW_SUMS(how) \
  how class row_sums<std::uint32_t>;       \
  how class row_sums<std::uint64_t>;
#if TESSERA_COMPILED
TESSERA_INSTANCES_OF_ROW_SUMS(extern template)
#endif

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
