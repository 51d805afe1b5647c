// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/embed/table_list.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table of a sharded source: what all of it is, and how a rank makes the part that it holds.
struct table_spec {
  table_options table;         ///< of the whole table; its first row and column are 0
  bool slots_are_ids = false;  ///< whether ids are 0 … rows - 1, as those of a dense table
  /// Makes a part of the table, with its optimizer, and adds it to the list.
  std::function<void(host_exec const& exec, table_options const& part, table_list& list)> add;
  std::string optimizer = {};  ///< its name, which ranks compare
};

/// The spec of a table whose parts are stores of this kind, made from an execution, options and an optimizer.
///
///     table_spec const users = spec_of<dense_table<>>({.id = table_id{0}, .dim = 64, .rows = 1'000'000}, rowwise_adagrad{});
template <row_store Store, row_optimizer Optimizer>
table_spec spec_of(table_options const& table, Optimizer const& optimizer) {
  return {table, Store::slots_are_ids,
          [optimizer](host_exec const& exec, table_options const& part, table_list& list) {
            list.add(Store(exec, part, optimizer), optimizer);
          },
          optimizer_name_of(optimizer)};
}

/// The options of all tables.
inline std::vector<table_options> options_of(std::vector<table_spec> const& specs) {
  std::vector<table_options> all;
  all.reserve(specs.size());
  for (auto const& spec : specs) all.push_back(spec.table);
  return all;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
