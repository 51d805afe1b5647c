// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/row_cache.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Copies a row and its state, a group of `lanes` threads.
template <class Element>
TESSERA_DEVICE void copy_row_by_group(Element const* row, float const* state, Element* to_row, float* to_state, std::int64_t dim,
                                      std::int64_t width, int lanes, int lane) {
  bool const by_four = dim % 4 == 0;  // all tables begin on 64 bytes
  if (lane == 0) row_scale<Element>::of(row).write_to(to_row);
  for (std::int64_t column = 4 * lane; column < dim; column += 4 * lanes)
    write_four(to_row + column, read_four(row + column, dim - column, by_four), dim - column, by_four);
  for (std::int64_t c = lane; c < width; c += lanes) to_state[c] = state[c];
}

// Rows whose lines were claimed for others go back, before anything is written there.
template <class Rows>
struct write_leaving {
  static constexpr int lanes = 32;
  Rows rows;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t k, int lane) const {
    auto const line = rows.leaving[2 * k], id = rows.leaving[2 * k + 1];
    copy_row_by_group(rows.row(line), rows.state(line), rows.backing.row(id), rows.backing.state(id), rows.dim(), rows.state_width, lanes,
                      lane);
  }
};

// The rows of ids that got a line.
template <class Rows>
struct fetch_rows {
  static constexpr int lanes = 32;
  located_values<Rows> values;
  missing_values missing;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t k, int lane) const {
    auto const line = missing.slots[k];
    if (line < 0) return;
    auto const i = missing.numbers[k], id = values.id(i);
    auto const& rows = values.rows(i);
    copy_row_by_group(rows.backing.row(id), rows.backing.state(id), rows.row(line), rows.state(line), rows.dim(), rows.state_width, lanes,
                      lane);
  }
};

// Ids without a line: their rows are used where they are.
template <class Rows>
struct use_backing_rows {
  located_values<Rows> values;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (i >= values.count() || values.slots[i] >= 0) return;
    auto const& rows = values.rows(i);
    if (auto const id = values.id(i); rows.in_range(id)) values.set(i, rows.lines() + id, row_status::found);
  }
};

template <class Rows>
struct write_line {
  static constexpr int lanes = 32;
  Rows rows;

  template <class Block>
  TESSERA_DEVICE void operator()(Block&, std::int64_t line, int lane) const {
    auto const id = rows.id_of(line);
    if (id >= 0)
      copy_row_by_group(rows.row(line), rows.state(line), rows.backing.row(id), rows.backing.state(id), rows.dim(), rows.state_width, lanes,
                        lane);
  }
};

template <device_execution Exec>
struct back_end<row_cache_tag, Exec> : locates_in_one<back_end<row_cache_tag, Exec>> {
  template <bool Insert, class Store>
  static void locate_values(Exec const& exec, vector_view<Store> caches, std::vector<std::int64_t> const& table_of, std::int64_t const* ids,
                            std::int64_t const* begins, vector_view<std::int64_t> slots, vector_view<row_status> statuses) {
    using rows_type = typename Store::rows_type;
    auto const n = slots.size();
    if (n == 0) return;
    if constexpr (Insert) {  // in braces, without which nvcc leaves out the next statement too
      for (auto& cache : caches) {
        cache.last_ = exec;
        exec.fill(leaving_in(cache), 0, sizeof(std::int64_t));
      }
    }
    found_values<Insert, rows_type, Exec> found(exec, caches, table_of, ids, begins, slots, statuses);
    if constexpr (Insert) {
      found.claim();
      for (auto& cache : caches)
        launch_counted(exec, leaving_in(cache), n, write_leaving<rows_type>::lanes, write_leaving<rows_type>{cache.device_rows()});
      found.settle();
      launch_counted(exec, found.missing().count, n, fetch_rows<rows_type>::lanes, fetch_rows<rows_type>{found.values(), found.missing()});
    }
    launch_for_each(exec, n, use_backing_rows<rows_type>{found.values()});
  }

  template <class Rows>
  static void write_back(Exec const& exec, Rows const& rows) {
    auto const lines = to_device(exec, std::vector<std::int64_t>{rows.lines()});
    launch_counted(exec, lines.data(), rows.lines(), write_line<Rows>::lanes, write_line<Rows>{rows});
  }

 private:
  // How many rows leave in a call.
  template <class Store>
  static std::int64_t* leaving_in(Store& cache) noexcept {
    return cache.counts_.data() + 3;
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
