// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_sums.cuh>
#include <tessera/embed/update_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The place of the sums of a table's rows.
struct summed_table {
  std::int64_t first_segment;
  std::int64_t* slots;
  std::int64_t* ids;
  float* values;  // (rows, dim)
  bool by_four;
};

template <class Index, class Rows, class Source>
struct sum_rows_kernel {
  static constexpr int threads = 256;

  summed_segments<Index, Rows, Source, summed_table> segments;
  int launch;  // -1: the long segments
  int lanes;   // threads a group

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const group = block.thread() / lanes, lane = block.thread() % lanes;
    segments.for_each_segment(block, launch, threads / lanes, group, [&](std::int64_t segment, std::int64_t first_chunk) {
      auto const slot = static_cast<std::int64_t>(segments.sorted.slots[segments.sorted.starts[segment]]);
      auto const& table = segments.table_of(slot);
      auto const& to = table.action;
      auto const dim = table.rows.dim(), row = segment - to.first_segment;
      if (lane == 0) {
        to.slots[row] = slot - table.first_slot;
        to.ids[row] = table.rows.id_of(slot - table.first_slot);
      }
      for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes)
        write_four(to.values + row * dim + column, segments.sum(segment, first_chunk, column, dim - column), dim - column, to.by_four);
    });
  }
};

/// Sums the gradient of each row that the batch names into `out`, a `basic_row_gradients` or a stand-in for it. It waits for the number of
/// rows. All other memory is allocated before `out` is resized.
template <class Exec, class Store, class Feature, class Source, class Gradients>
void sum_rows_on_device(Exec const& exec, vector_view<Store const> tables, vector_view<Feature const> features,
                        basic_lookup_saved<Exec> const& saved, Source const& source, Gradients& out) {
  with_segments(exec, tables, features, saved, [&]<class Index>(auto const& order, segments_on_device<Index> const& sorted) {
    segment_launches<Exec, Store, Index, Source, summed_table> launches(exec, tables, order, sorted, source);
    auto const count = tables.size();
    buffer<std::int64_t, Exec> first_segments(exec, count + 1);
    launch_for_each(exec, count + 1,
                    find_first_segments<Index>{sorted.slots, sorted.starts, sorted.first_segments + order.launches,
                                               launches.segments().table_slots, first_segments.data()});
    std::vector<std::int64_t> firsts(static_cast<std::size_t>(count + 1));  // in the order in which tables are numbered
    exec.copy_out(firsts.data(), first_segments.data(), firsts.size() * sizeof(std::int64_t));
    std::vector<std::size_t> number_of(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < number_of.size(); ++i) number_of[static_cast<std::size_t>(order.tables()[i].table)] = i;
    auto const first_segment = [&](std::int64_t table) { return firsts[number_of[static_cast<std::size_t>(table)]]; };
    out.resize(
        exec, count, [&](std::int64_t t) { return firsts[number_of[static_cast<std::size_t>(t)] + 1] - first_segment(t); },
        [&](std::int64_t t) { return tables[t].dim(); });
    launches.run(
        [&](std::int64_t t) {
          auto const values = out.values(t);
          return summed_table{first_segment(t), out.slots_to_write(t), out.ids_to_write(t), values.data(),
                              moves_by_four(values.data(), values.columns(), values.columns())};
        },
        [&](int number, int lanes, std::int64_t rows, std::int64_t) {
          using kernel = sum_rows_kernel<Index, typename decltype(launches)::rows_type, Source>;
          exec.launch({.blocks = blocks_for(rows, kernel::threads / lanes)}, kernel{launches.segments(), number, lanes});
        });
  });
}

inline constexpr fault_kind no_such_slot{errc::out_of_range, "update_rows: no such slot", {"table", "slot", "bound"}};

// Updates a table's rows by gradients that are summed already.
template <class Rows, class Optimizer>
struct apply_rows_kernel {
  static constexpr int threads = 256;

  table_and_action<Rows, Optimizer> table;
  std::int64_t number;  // of the table
  std::int64_t bound;   // of its slots
  std::int64_t const* slots;
  std::int64_t rows;
  float const* gradients;  // (rows, dim)
  bool by_four;
  std::int64_t width;
  int lanes;
  fault_reporter wrong_slot;

  constexpr std::int64_t shared_bytes() const noexcept {
    return (threads / lanes) * update_floats(width) * static_cast<std::int64_t>(sizeof(float));
  }

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const group = block.thread() / lanes, lane = block.thread() % lanes;
    auto* const sum = block.template shared<float>() + group * update_floats(width);
    auto const dim = table.rows.dim();
    for_each_unit(block, rows, threads / lanes, group, [&](std::int64_t row) {
      auto const slot = slots[row];
      if (slot < 0 || slot >= bound) {
        if (lane == 0) wrong_slot(block, row, number, slot, bound);
        return;
      }
      for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes)
        write_four(sum + column, read_four(gradients + row * dim + column, dim - column, by_four), 4, true);
      update_row_by_group(block, table, slot, sum, width, lanes, lane);
    });
  }
};

/// Updates rows of a table by the sums of their gradients, (rows, dim). Errors call the table `number`. It allocates nothing.
template <class Exec, class Store, class Optimizer>
void update_table_on_device(Exec const& exec, std::int64_t number, Store const& table, Optimizer const& optimizer,
                            vector_view<std::int64_t const> slots, matrix_view<float const> gradients) {
  if (slots.empty()) return;
  auto const rows = table.device_rows();
  auto const dim = rows.dim();
  using rows_type = std::remove_const_t<decltype(rows)>;
  apply_rows_kernel<rows_type, Optimizer> const kernel{{rows, optimizer, 0, moves_by_four(rows.row(0), dim, dim)},
                                                       number,
                                                       table.slot_bound(),
                                                       slots.data(),
                                                       slots.size(),
                                                       gradients.data(),
                                                       moves_by_four(gradients.data(), dim, dim),
                                                       divide_up(dim, 4) * 4,
                                                       lanes_for(dim),
                                                       exec.faults(no_such_slot)};
  exec.launch({.blocks = blocks_for(kernel.rows, kernel.threads / kernel.lanes), .shared_bytes = kernel.shared_bytes()}, kernel);
}

template <device_execution Exec>
struct back_end<update_rows_tag, Exec> {
  template <class BoundOf>
  static void check_slots(char const*, basic_row_gradients<Exec> const&, std::int64_t, BoundOf const&) {}  // kernels look at the slots

  template <class Store, class Optimizer>
  static void run(Exec const& exec, vector_view<Store> tables, basic_row_gradients<Exec> const& gradients,
                  vector_view<Optimizer const> optimizers) {
    check_updated_columns("update_rows", tables);
    count_step(tables);
    for (std::int64_t t = 0; t < tables.size(); ++t)
      update_table_on_device(exec, t, tables[t], of_table(optimizers, t), gradients.slots(t), gradients.values(t));
  }
};

inline constexpr fault_kind row_of_another_id{
    errc::out_of_range, "add_row_gradients: a row has gone to another id", {"table", "slot", "id", "id now"}};

/// The rows of one table in two gradients and in their sum.
struct merged_table {
  std::int64_t const *slots, *ids;
  float const* values;
  std::int64_t rows;
  std::int64_t const *more_slots, *more_ids;
  float const* more_values;
  std::int64_t more_rows, first_more;  // the first of the table's among those of all
  std::int64_t *sum_slots, *sum_ids;
  float* sum_values;
  std::int64_t dim;

  /// Whether a slot of `more` is among the others, of which `below` have lesser slots.
  TESSERA_HOST_DEVICE bool has(std::int64_t slot, std::int64_t below) const noexcept { return below < rows && slots[below] == slot; }
};

// 1 for each row of `more` that the others have not, and 0 behind the last.
struct mark_new_rows {
  merged_table const* tables;
  std::int64_t const* first_more;  // (table_count + 1,)
  std::int64_t table_count;
  std::int64_t* marks;
  fault_reporter wrong_id;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    marks[i] = 0;
    if (i == first_more[table_count]) return;
    auto const t = range_of(first_more, table_count, i);
    auto const& table = tables[t];
    auto const row = i - table.first_more, slot = table.more_slots[row], below = count_below(table.slots, table.rows, slot);
    if (!table.has(slot, below))
      marks[i] = 1;
    else if (table.ids[below] != table.more_ids[row])
      wrong_id(block, i, t, slot, table.ids[below], table.more_ids[row]);
  }
};

struct copy_counts {
  std::int64_t const* first_more;
  std::int64_t const* new_before;
  std::int64_t* counts;
  TESSERA_DEVICE void operator()(std::int64_t t) const { counts[t] = new_before[first_more[t]]; }
};

// A group of threads writes a row of one table's sum: rows [0, rows) are the others', then come those of `more`.
struct merge_rows_kernel {
  static constexpr int threads = 256;

  merged_table table;
  std::int64_t const* new_before;  // for each row of `more`, of all tables
  int lanes;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const group = block.thread() / lanes, lane = block.thread() % lanes;
    auto const* const before = new_before + table.first_more;
    for_each_unit(block, table.rows + table.more_rows, threads / lanes, group, [&](std::int64_t i) {
      bool const is_more = i >= table.rows;
      auto const row = is_more ? i - table.rows : i;
      auto const slot = is_more ? table.more_slots[row] : table.slots[row];
      auto const other = is_more ? count_below(table.slots, table.rows, slot) : count_below(table.more_slots, table.more_rows, slot);
      if (is_more && table.has(slot, other)) return;  // it is added there
      auto const to = is_more ? other + before[row] - before[0] : row + before[other] - before[0];
      bool const both = !is_more && other < table.more_rows && table.more_slots[other] == slot;
      if (lane == 0) {
        table.sum_slots[to] = slot;
        table.sum_ids[to] = is_more ? table.more_ids[row] : table.ids[row];
      }
      auto const* const from = (is_more ? table.more_values : table.values) + row * table.dim;
      for (std::int64_t c = lane; c < table.dim; c += lanes)
        table.sum_values[to * table.dim + c] = both ? from[c] + table.more_values[other * table.dim + c] : from[c];
    });
  }
};

// Waits for the number of rows of the sum, and with it for faults.
template <device_execution Exec>
struct back_end<add_row_gradients_tag, Exec> {
  using gradients = basic_row_gradients<Exec>;

  static void run(Exec const& exec, gradients const& into, gradients const& more, gradients& sum) {
    auto const tables = more.tables();
    bool const first = into.tables() == 0;
    std::vector<merged_table> described;
    std::vector<std::int64_t> first_more{0};
    for (std::int64_t t = 0; t < tables; ++t) {
      merged_table table{};
      if (!first) {
        table.slots = into.slots(t).data();
        table.ids = into.ids(t).data();
        table.values = into.values(t).data();
        table.rows = into.rows(t);
      }
      table.more_slots = more.slots(t).data();
      table.more_ids = more.ids(t).data();
      table.more_values = more.values(t).data();
      table.more_rows = more.rows(t);
      table.first_more = first_more.back();
      table.dim = more.dim(t);
      described.push_back(table);
      first_more.push_back(first_more.back() + table.more_rows);
    }
    auto const table_pairs = to_device(exec, described);
    auto const first_on_device = to_device(exec, first_more);
    buffer<std::int64_t, Exec> new_before(exec, first_more.back() + 1), counts(exec, tables + 1);
    launch_for_each(exec, new_before.size(),
                    mark_new_rows{table_pairs.data(), first_on_device.data(), tables, new_before.data(), exec.faults(row_of_another_id)});
    exclusive_scan(exec, new_before.view(), new_before.view());
    launch_for_each(exec, tables + 1, copy_counts{first_on_device.data(), new_before.data(), counts.data()});
    exec.synchronize();
    std::vector<std::int64_t> before(first_more.size());
    exec.copy_out(before.data(), counts.data(), before.size() * sizeof(std::int64_t));
    sum.resize(
        exec, tables,
        [&](std::int64_t t) {
          auto const i = static_cast<std::size_t>(t);
          return described[i].rows + before[i + 1] - before[i];
        },
        [&](std::int64_t t) { return more.dim(t); });
    for (std::int64_t t = 0; t < tables; ++t) {
      auto& table = described[static_cast<std::size_t>(t)];
      if (table.rows + table.more_rows == 0) continue;
      table.sum_slots = sum.slots_to_write(t);
      table.sum_ids = sum.ids_to_write(t);
      table.sum_values = sum.values(t).data();
      auto const lanes = lanes_for(table.dim);
      exec.launch({.blocks = blocks_for(table.rows + table.more_rows, merge_rows_kernel::threads / lanes)},
                  merge_rows_kernel{table, new_before.data(), lanes});
    }
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
