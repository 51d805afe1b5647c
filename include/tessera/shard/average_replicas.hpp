// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/table_part.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Replaces weights and optimizer states of each row by their mean over ranks that hold copies of the same tables. These ranks all call it,
/// between steps. Sums are in the order of ranks. @post all copies have the same bits
///
/// So a whole plan may have replicas: groups of ranks that each hold all tables, exchange ids and vectors among themselves alone, and average
/// every few steps. Here the ranks of a host are a replica:
///
///     auto replica = comm.split(exec, host, comm.rank());           // who shares out the tables
///     auto copies = comm.split(exec, replica.rank(), comm.rank());  // who holds the same shards
///     sharded_tables tables(exec, replica, specs, features, plan);
///     trainer run(exec, model, adam{}, {.comm = comm});             // whose dense net all ranks share
///     if (step % 64 == 0) average_replicas(exec, copies, model.source().parts());
///
/// @throws tessera::error invalid_argument, naming the table, for a hashed table, whose rows stand elsewhere on each rank, and for rows that are
/// not of float. incompatible where ranks hold other tables. Then all throw, and nothing has changed. The call also throws as
/// `communicator` says.
inline void average_replicas(host_exec const& exec, any_communicator& copies, table_parts const& tables);

namespace detail {

// What must be the same on all ranks, a line a table.
inline std::string described_copies(table_parts const& tables) {
  std::string text;
  for (auto const& table : tables) {
    auto const& options = table->options();
    if (!table->slots_are_ids()) throw error(errc::invalid_argument, "average_replicas: a hashed table", {{"table", options.id.value}});
    for (auto const plane : {row_plane::weights, row_plane::state})
      if (auto const shape = table->shape(plane); shape.width > 0 && shape.type != plane_type::f32)
        throw error(errc::invalid_argument, "average_replicas: rows that are not of float", {{"table", options.id.value}});
    text += "table " + std::to_string(options.id.value) + ": rows " + std::to_string(options.first_row) + " and " +
            std::to_string(table->rows()) + " more, columns " + std::to_string(options.first_column) + " and " +
            std::to_string(table->shape(row_plane::weights).width) + " more, optimizer " + std::string(table->kind().optimizer) + "\n";
  }
  return text;
}

}  // namespace detail

inline void average_replicas(host_exec const& exec, any_communicator& copies, table_parts const& tables) {
  constexpr std::int64_t floats_at_once = std::int64_t{1} << 22;  // of all rows that are under way
  std::string text;
  std::exception_ptr failure;
  try {
    text = detail::described_copies(tables);
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_text(exec, copies, text, "average_replicas: the same tables", failure);
  rank_sums<any_communicator> sums(copies);
  pending_sum<any_communicator> pending;
  buffer<float> values;
  std::vector<std::int64_t> slots;
  auto const share = 1.0F / static_cast<float>(copies.size());
  for (auto const& table : tables)
    for (auto const plane : {row_plane::weights, row_plane::state}) {
      auto const width = table->shape(plane).width;
      if (width == 0) continue;
      auto const rows = table->rows(), band = std::max<std::int64_t>(1, floats_at_once / width);
      for (std::int64_t first = 0; first < rows; first += band) {
        slots.resize(static_cast<std::size_t>(std::min(band, rows - first)));
        std::iota(slots.begin(), slots.end(), first);
        values.resize(exec, static_cast<std::int64_t>(slots.size()) * width);
        auto* const bytes = reinterpret_cast<char*>(values.data());
        table->copy_out(plane, slots, bytes);
        sums.all(exec, values.view(), pending);
        for_each_index(exec, values.size(), 1 << 14, [&](std::int64_t i) { values[i] *= share; });
        table->copy_in(exec, plane, slots, bytes);
      }
    }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
