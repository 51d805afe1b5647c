// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_order.cuh>
#include <tessera/embed/row_sums.hpp>
#include <tessera/embed/row_update.cuh>
#include <tessera/embed/row_update.hpp>

/// What a backward does with sorted values on a device: it sums each row's gradient in canonical order and updates the row, each once. A
/// group of threads takes a row, each thread four of its columns at a time. The chunks of a row that more than `canonical_sum_chunk` values
/// name are summed first, by a group each. So no row keeps one group busy for long.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The gradient of a value and its factor. A back end has a `Source`: plain data with `value_gradient operator()(Index source)`.
struct value_gradient {
  float const* gradient;  // (dim,)
  float scale;
  bool by_four;  // whether it can be read four columns at once
};

/// The segments of more than one chunk of values, and their chunks.
template <class Index>
struct long_segments {
  struct segment {
    Index number;       // of the segment
    Index first_chunk;  // among those of all long segments
  };
  segment* segments;
  std::uint64_t* counts;  // segments in the upper half, chunks in the lower
  float* sums;            // (chunks, width)
  std::int64_t width;

  static constexpr std::uint64_t one_segment = std::uint64_t{1} << 32;
  /// How many segments of more than one chunk n values can make, and how many chunks those have.
  static constexpr std::int64_t most_segments(std::int64_t n) noexcept { return n / (canonical_sum_chunk + 1); }
  static constexpr std::int64_t most_chunks(std::int64_t n) noexcept { return n / canonical_sum_chunk + most_segments(n); }

  TESSERA_HOST_DEVICE static constexpr std::int64_t segments_in(std::uint64_t counts) noexcept {
    return static_cast<std::int64_t>(counts >> 32);
  }
  TESSERA_HOST_DEVICE static constexpr std::int64_t chunks_in(std::uint64_t counts) noexcept {
    return static_cast<std::int64_t>(counts & (one_segment - 1));
  }
};

// Lists the long segments, in any order: chunks follow each other as their segments do in the list.
template <class Index>
struct list_long_segments {
  segments_on_device<Index> sorted;
  int launches;
  long_segments<Index> found;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t segment) const {
    if (segment >= sorted.first_segments[launches]) return;
    auto const count = static_cast<std::int64_t>(sorted.starts[segment + 1] - sorted.starts[segment]);
    if (count <= canonical_sum_chunk) return;
    auto const chunks = static_cast<std::uint64_t>(divide_up(count, canonical_sum_chunk));
    auto const before = block.add(found.counts, long_segments<Index>::one_segment + chunks);
    found.segments[long_segments<Index>::segments_in(before)] = {static_cast<Index>(segment),
                                                                 static_cast<Index>(long_segments<Index>::chunks_in(before))};
  }
};

/// Four columns of the sum over values [first, last), in order, with the gradients of `Ahead` values in flight at once.
template <int Ahead, class Index, class Source>
TESSERA_DEVICE four_elements<float> sum_four(Source const& source, Index const* sources, std::int64_t first, std::int64_t last,
                                             std::int64_t column, std::int64_t count) {
  auto const head = source(sources[first]);
  auto sum = read_four(head.gradient + column, count, head.by_four);
  for (int c = 0; c < 4; ++c) sum[c] = head.scale * sum[c];
  for (auto i = first + 1; i < last; i += Ahead) {
    four_elements<float> four[std::size_t{Ahead}];
    float scale[std::size_t{Ahead}];
    for (int k = 0; k < Ahead; ++k) {
      if (i + k >= last) continue;
      auto const value = source(sources[i + k]);
      scale[k] = value.scale;
      four[k] = read_four(value.gradient + column, count, value.by_four);
    }
    for (int k = 0; k < Ahead; ++k)
      if (i + k < last)
        for (int c = 0; c < 4; ++c) sum[c] = multiply_add(scale[k], four[k][c], sum[c]);
  }
  return sum;
}

/// What the kernels of a call share.
template <class Index, class Rows, class Source, class Action>
struct summed_segments {
  segments_on_device<Index> sorted{};
  table_and_action<Rows, Action> const* tables = nullptr;
  std::int64_t const* table_slots = nullptr;  // (table_count + 1,): where the slots of each begin
  std::int64_t table_count = 0;
  Source source{};
  long_segments<Index> long_ones{};

  TESSERA_DEVICE table_and_action<Rows, Action> const& table_of(std::int64_t slot) const {
    return tables[range_of(table_slots, table_count, slot)];
  }

  /// Four columns of a segment's sum: of its values, or, where `first_chunk` is not negative, of the sums of its chunks from there on.
  TESSERA_DEVICE four_elements<float> sum(std::int64_t segment, std::int64_t first_chunk, std::int64_t column, std::int64_t count) const {
    auto const first = static_cast<std::int64_t>(sorted.starts[segment]), last = static_cast<std::int64_t>(sorted.starts[segment + 1]);
    if (first_chunk < 0) return sum_four<4>(source, sorted.sources, first, last, column, count);
    auto const width = long_ones.width;
    auto total = read_four(long_ones.sums + first_chunk * width + column, count, count >= 4);
    for (std::int64_t i = 1; i < divide_up(last - first, canonical_sum_chunk); ++i) {
      auto const more = read_four(long_ones.sums + (first_chunk + i) * width + column, count, count >= 4);
      for (int c = 0; c < 4; ++c) total[c] += more[c];
    }
    return total;
  }

  /// Calls f(segment, first chunk or -1) for the segments of group number `group` of `groups` in its block. They are those of the launch's
  /// tables, except the long ones; launch -1 has the long ones.
  template <class Block, class F>
  TESSERA_DEVICE void for_each_segment(Block& block, int launch, int groups, int group, F const& f) const {
    if (launch < 0) {
      for_each_unit(block, long_segments<Index>::segments_in(*long_ones.counts), groups, group, [&](std::int64_t i) {
        f(static_cast<std::int64_t>(long_ones.segments[i].number), static_cast<std::int64_t>(long_ones.segments[i].first_chunk));
      });
    } else {
      auto const first = sorted.first_segments[launch];
      for_each_unit(block, sorted.first_segments[launch + 1] - first, groups, group, [&](std::int64_t i) {
        if (static_cast<std::int64_t>(sorted.starts[first + i + 1] - sorted.starts[first + i]) <= canonical_sum_chunk) f(first + i, -1);
      });
    }
  }
};

// The sums of the chunks of long segments, a group of a whole warp each.
template <class Index, class Rows, class Source, class Action>
struct sum_chunks_kernel {
  static constexpr int threads = 256, lanes = 32;
  summed_segments<Index, Rows, Source, Action> segments_of_call;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const& found = segments_of_call.long_ones;
    auto const segments = long_segments<Index>::segments_in(*found.counts), chunks = long_segments<Index>::chunks_in(*found.counts);
    for_each_unit(block, chunks, threads / lanes, block.thread() / lanes, [&](std::int64_t chunk) {
      // Its segment: the last whose chunks begin at this one or before.
      auto const segment =
          found.segments[count_first(segments,
                                     [&](std::int64_t r) { return static_cast<std::int64_t>(found.segments[r].first_chunk) <= chunk; }) -
                         1];
      auto const& sorted = segments_of_call.sorted;
      auto const end = static_cast<std::int64_t>(sorted.starts[segment.number + 1]);
      auto const first = static_cast<std::int64_t>(sorted.starts[segment.number]) +
                         (chunk - static_cast<std::int64_t>(segment.first_chunk)) * canonical_sum_chunk;
      auto const last = end - first < canonical_sum_chunk ? end : first + canonical_sum_chunk;
      auto const dim = segments_of_call.table_of(static_cast<std::int64_t>(sorted.slots[first])).rows.dim();
      for (std::int64_t column = 4 * (block.thread() % lanes); column < dim; column += 4 * lanes)
        write_four(found.sums + chunk * found.width + column,
                   sum_four<8>(segments_of_call.source, sorted.sources, first, last, column, dim - column), dim - column,
                   dim - column >= 4);
    });
  }
};

// Sums and updates the rows of a launch. The group's sum stands in shared memory, then what its threads tell each other.
template <class Index, class Rows, class Source, class Optimizer>
struct update_rows_kernel {
  static constexpr int threads = 256;

  summed_segments<Index, Rows, Source, Optimizer> segments;
  std::int64_t width;  // of the widest table, rounded up to four
  int launch;          // -1: the long segments
  int lanes;           // threads a group

  constexpr std::int64_t shared_bytes() const noexcept {
    return (threads / lanes) * update_floats(width) * static_cast<std::int64_t>(sizeof(float));
  }

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const group = block.thread() / lanes, lane = block.thread() % lanes;
    auto* const sum = block.template shared<float>() + group * update_floats(width);
    segments.for_each_segment(block, launch, threads / lanes, group, [&](std::int64_t segment, std::int64_t first_chunk) {
      auto const slot = static_cast<std::int64_t>(segments.sorted.slots[segments.sorted.starts[segment]]);
      auto const& table = segments.table_of(slot);
      auto const dim = table.rows.dim();
      prefetch(block, table, slot - table.first_slot, lanes, lane);
      for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes)
        write_four(sum + column, segments.sum(segment, first_chunk, column, dim - column), 4,
                   true);  // there is room up to a multiple of four
      update_row_by_group(block, table, slot - table.first_slot, sum, width, lanes, lane);
    });
  }

  // The row and its state are under way while its gradient is summed.
  template <class Block>
  TESSERA_DEVICE static void prefetch(Block& block, table_and_action<Rows, Optimizer> const& table, std::int64_t slot, int lanes,
                                      int lane) {
    auto const dim = table.rows.dim();
    auto const* const row = table.rows.row(slot);
    auto const* const state = table.rows.state(slot);
    if (Optimizer::row_state > 0 && lane == 0) block.prefetch(state);
    for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes) {
      block.prefetch(row + column);
      for (int k = 0; k < Optimizer::element_state; ++k) block.prefetch(state + Optimizer::row_state + k * dim + column);
    }
  }
};

/// The most columns of a row that an update on a device can take. The sums of eight rows are in a block's shared memory: 129 KiB of the 163
/// that an A100 has.
inline constexpr std::int64_t most_updated_columns = 4096;

/// The launches over sorted segments. `Action` is what happens to each table's rows.
template <class Exec, class Store, class Index, class Source, class Action>
class segment_launches {
 public:
  using rows_type = decltype(std::declval<Store const&>().device_rows());
  using segments_type = summed_segments<Index, rows_type, Source, Action>;

  segment_launches(Exec const& exec, vector_view<Store const> tables, device_row_order<Exec> const& order,
                   segments_on_device<Index> const& sorted, Source const& source)
      : exec_(exec),
        tables_(tables),
        order_(order),
        n_(order.values()),
        device_tables_(exec, tables.size()),
        long_segments_(exec, long_segments<Index>::most_segments(n_)),
        counts_(exec, 1) {
    std::vector<std::int64_t> firsts;
    for (auto const& numbered : order.tables()) {
      firsts.push_back(numbered.first_slot);
      width_ = std::max(width_, whole_fours(tables[numbered.table].dim()));
    }
    firsts.push_back(order.first_slots().back());
    described_.reserve(firsts.size());
    device_firsts_ = to_device(exec, firsts);
    sums_.resize(exec, long_segments<Index>::most_chunks(n_) * width_);
    segments_ = {sorted,
                 device_tables_.data(),
                 device_firsts_.data(),
                 tables.size(),
                 source,
                 {long_segments_.data(), counts_.data(), sums_.data(), width_}};
  }

  segments_type const& segments() const noexcept { return segments_; }

  /// Makes the launches. `action(table)` is what happens to a table's rows. `launch(number, lanes, rows, width)` launches a kernel for up
  /// to `rows` rows, with so many lanes each. It allocates nothing.
  template <class ActionOf, class Launch>
  void run(ActionOf const& action, Launch const& launch) {
    auto& described = described_;
    described.clear();
    for (auto const& numbered : order_.tables()) {
      auto const rows = tables_[numbered.table].device_rows();
      described.push_back({rows, action(numbered.table), numbered.first_slot, moves_by_four(rows.row(0), rows.dim(), rows.dim())});
    }
    if (described.empty() || n_ == 0) return;
    exec_.copy_in(device_tables_.data(), described.data(), described.size() * sizeof described[0]);
    exec_.fill(counts_.data(), 0, sizeof(std::uint64_t));
    if (!long_segments_.empty()) {
      using kernel = sum_chunks_kernel<Index, rows_type, Source, Action>;
      launch_for_each(exec_, n_, list_long_segments<Index>{segments_.sorted, order_.launches, segments_.long_ones});
      exec_.launch({.blocks = blocks_for(long_segments<Index>::most_chunks(n_), kernel::threads / kernel::lanes)}, kernel{segments_});
    }
    for (int number = 0; number < order_.launches; ++number) {
      std::int64_t slots = 0, width = 0;
      for (auto const& numbered : order_.tables()) {
        if (numbered.lanes != 1 << number) continue;
        slots += tables_[numbered.table].slot_bound();
        width = std::max(width, whole_fours(tables_[numbered.table].dim()));
      }
      if (slots > 0) launch(number, 1 << number, std::min(slots, n_), width);
    }
    if (!long_segments_.empty()) launch(-1, 32, long_segments_.size(), width_);
  }

 private:
  static constexpr std::int64_t whole_fours(std::int64_t dim) noexcept { return divide_up(dim, 4) * 4; }

  Exec const& exec_;
  vector_view<Store const> tables_;
  device_row_order<Exec> const& order_;
  std::int64_t n_, width_ = 4;
  std::vector<table_and_action<rows_type, Action>> described_;
  buffer<table_and_action<rows_type, Action>, Exec> device_tables_;
  buffer<std::int64_t, Exec> device_firsts_;
  buffer<typename long_segments<Index>::segment, Exec> long_segments_;
  buffer<std::uint64_t, Exec> counts_;
  buffer<float, Exec> sums_;
  segments_type segments_{};
};

/// Calls f(order, detail::segments_on_device) with the prepared order, or with one made for the call.
template <class Exec, class Store, class Feature, class F>
void with_segments(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                   basic_lookup_saved<Exec> const& saved, F const& f) {
  device_row_order<Exec> own;
  if (!saved.order.ready()) sort_rows(exec, tables, features, saved, own);
  auto const& order = saved.order.ready() ? saved.order : own;
  order.visit([&](auto const& segments) { f(order, segments); });
}

inline void check_updated_columns(char const* call, std::int64_t table, std::int64_t dim) {
  if (dim > most_updated_columns)
    throw error(errc::invalid_argument, std::string(call) + ": more columns than a device updates",
                {{"table", table}, {"dim", dim}, {"most", most_updated_columns}});
}
template <class Store>
void check_updated_columns(char const* call, vector_view<Store> tables) {
  for (std::int64_t t = 0; t < tables.size(); ++t) check_updated_columns(call, t, tables[t].dim());
}

struct nothing_more {
  constexpr void operator()() const noexcept {}
};

/// Sorts, sums and updates. It calls begin(), which may throw, once all memory is allocated; nothing changes before.
template <class Exec, class Store, class Feature, class Source, class Optimizer, class Begin = nothing_more>
void update_rows_on_device(Exec const& exec, char const* call, vector_view<Store> tables, vector_view<Feature const> features,
                           basic_lookup_saved<Exec> const& saved, vector_view<Optimizer const> optimizers, Source const& source,
                           Begin const& begin = {}) {
  check_updated_columns(call, tables);
  with_segments(exec, vector_view<Store const>(tables), features, saved,
                [&]<class Index>(auto const& order, segments_on_device<Index> const& sorted) {
                  segment_launches<Exec, Store, Index, Source, Optimizer> launches(exec, tables, order, sorted, source);
                  using kernel_type = update_rows_kernel<Index, typename decltype(launches)::rows_type, Source, Optimizer>;
                  begin();
                  count_step(tables);
                  launches.run([&](std::int64_t table) { return of_table(optimizers, table); },
                               [&](int number, int lanes, std::int64_t rows, std::int64_t width) {
                                 kernel_type const kernel{launches.segments(), width, number, lanes};
                                 exec.launch({.blocks = blocks_for(rows, kernel.threads / lanes), .shared_bytes = kernel.shared_bytes()},
                                             kernel);
                               });
                });
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
