// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table of a sharded source: what all of it is, and how a rank makes the part that it holds, in the memory of `Exec`. `table_spec` is the
/// host's.
template <execution Exec>
struct basic_table_spec {
  table_options table;         ///< of the whole table; its first row and column are 0
  bool slots_are_ids = false;  ///< whether ids are 0 … rows - 1, as those of a dense table
  /// Makes a part of the table, with its optimizer, and adds it to the list.
  std::function<void(Exec const& exec, table_options const& part, basic_table_list<Exec>& list)> add = {};
  std::string optimizer = {};  ///< its name, which ranks compare
  /// What a row of so many columns takes with its optimizer's state, without what finds the rows of a hashed table.
  std::function<std::int64_t(std::int64_t columns)> row_bytes = {};
  bool keeps_ids = true;  ///< whether each id that is looked up gets a row, and keeps it: no policies of a hashed table say otherwise
};
/// A table of the host.
using table_spec = basic_table_spec<host_exec>;

namespace detail {

/// A spec is compiled once a store, for all optimizers.
template <class Store>
using rules_of_store = typename table_groups<execution_of<Store>>::template rules<Store>;
template <class Store, class... Policies>
basic_table_spec<execution_of<Store>> spec_of_store(table_options const& table, std::shared_ptr<rules_of_store<Store> const> optimizer,
                                                    Policies const&... policies) {
  using element = typename Store::element;
  using exec_type = execution_of<Store>;
  auto const layout = optimizer->layout(0);
  basic_table_spec<exec_type> spec{table, Store::slots_are_ids};
  spec.keeps_ids = !has_policies<Store>();
  spec.add = [optimizer = std::move(optimizer), policies...](exec_type const& exec, table_options const& part,
                                                             basic_table_list<exec_type>& list) {
    optimizer->check();
    Store store(exec, part, optimizer->layout(0), policies...);
    list.add_table(store, *optimizer);
  };
  spec.optimizer = layout.optimizer;
  spec.row_bytes = [layout](std::int64_t columns) {
    return row_scale<element>::extent(columns) * static_cast<std::int64_t>(sizeof(element)) +
           layout.width(columns) * static_cast<std::int64_t>(sizeof(float));
  };
  return spec;
}

}  // namespace detail

/// The spec of a table whose parts are stores of this kind. A store is made from an execution, options, the optimizer's `row_state_layout`
/// and policies.
///
///     table_spec const users = spec_of<dense_table<>>({.id = table_id{0}, .dim = 64, .rows = 1'000'000}, rowwise_adagrad{});
///
/// It is of the execution whose memory such stores have. `policies` are those of a hashed store: who gets a row, and who leaves.
template <row_store Store, row_optimizer Optimizer, class... Policies>
basic_table_spec<execution_of<Store>> spec_of(table_options const& table, Optimizer const& optimizer, Policies const&... policies) {
  using rules_of = typename detail::table_groups<execution_of<Store>>::template rules_of<Store, Optimizer>;
  return detail::spec_of_store<Store>(table, std::make_shared<rules_of const>(optimizer), policies...);
}

/// The options of all tables.
template <execution Exec>
std::vector<table_options> options_of(std::vector<basic_table_spec<Exec>> const& specs) {
  std::vector<table_options> all;
  all.reserve(specs.size());
  for (auto const& spec : specs) all.push_back(spec.table);
  return all;
}

/// Gives each whole table, the largest first, to the rank with the fewest bytes so far. A hashed table counts as the rows that it makes room
/// for at first. @throws tessera::error as `plan_by_bytes` of options.
template <execution Exec>
sharding_plan plan_by_bytes(std::vector<basic_table_spec<Exec>> const& specs, int ranks, std::int64_t limit_bytes = 0) {
  std::vector<std::int64_t> row_bytes;
  row_bytes.reserve(specs.size());
  for (auto const& spec : specs) row_bytes.push_back(spec.row_bytes(spec.table.dim));
  return plan_by_bytes(options_of(specs), row_bytes, ranks, limit_bytes);
}

/// The bytes of tables that each rank holds under a plan, (ranks,). A hashed table counts as above; its index is not counted.
/// @throws tessera::error as `check_plan`.
template <execution Exec>
std::vector<std::int64_t> bytes_of_ranks(std::vector<basic_table_spec<Exec>> const& specs, sharding_plan const& plan, int ranks) {
  check_plan(plan, options_of(specs), ranks);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(ranks));
  for (auto const& shard : plan.shards)
    for (int rank = 0; rank < ranks; ++rank)
      if (shard.rank == rank || shard.rank == table_shard::all_ranks)
        bytes[static_cast<std::size_t>(rank)] += shard.rows * specs[static_cast<std::size_t>(shard.table)].row_bytes(shard.columns);
  return bytes;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
