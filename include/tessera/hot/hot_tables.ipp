// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/hot_tables.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

TESSERA_INLINE std::vector<hot_key> keys_of_outputs(vector_view<embedding_output const> outputs) {
  std::vector<hot_key> keys(static_cast<std::size_t>(outputs.size()), {-1, -1});
  for (std::int64_t o = 0; o < outputs.size(); ++o) {
    auto const& output = outputs[o];
    if (output.key < 0 || output.key >= outputs.size() || output.table < 0 || keys[static_cast<std::size_t>(output.key)].table >= 0)
      throw error(errc::invalid_argument, "hot_source: each output is made of one key of one table, as towers with modules do not",
                  {{"output", output.name}, {"key", output.key}, {"table", output.table}});
    keys[static_cast<std::size_t>(output.key)] = {output.table, o};
  }
  return keys;
}

TESSERA_INLINE void check_hot_source(vector_view<embedding_output const> outputs, int ranks, bool rows_stay, shared_gradients sums) {
  if (sums == shared_gradients::expanded && ranks > 1)
    throw error(errc::invalid_argument, "hot_source: expanded sums of tables that all workers have", {{"ranks", ranks}});
  for (auto const& output : outputs)
    if (rows_stay && !output.sequence && output.pooling == pooling::max)
      throw error(errc::invalid_argument, "hot_source: the maximum of rows that stay apart has no gradient", {{"output", output.name}});
}

TESSERA_INLINE rows_on_the_move::rows_on_the_move(hot_rows const& hot, row_marks const& marks, sharded_tables* twins)
    : ids_(hot.tables.size()), numbers_(hot.tables.size()) {
  if (twins != nullptr) parts_ = twins->parts();
  for (std::size_t t = 0; t < hot.tables.size(); ++t) {
    marks.for_each(static_cast<std::int64_t>(t), [&](std::int64_t number) {
      numbers_[t].push_back(number);
      ids_[t].push_back(hot.tables[t].id(number));
    });
    auto& some = rows_.emplace_back(moving_rows{static_cast<std::int64_t>(t), ids_[t]});
    if (twins == nullptr) continue;
    some.copy = parts_[t].get();
    some.slots = numbers_[t];
  }
}

TESSERA_INLINE void hot_tables::check(origin const& of) {
  if (of.hot.tables.size() != of.specs.size() || of.places.tables.size() != of.specs.size())
    throw error(errc::incompatible, "hot_source: hot rows of other tables",
                {{"tables", of.places.tables.size()}, {"specs", of.specs.size()}, {"of hot rows", of.hot.tables.size()}});
  for (std::size_t t = 0; t < of.specs.size(); ++t) {
    auto const& table = of.specs[t].table;
    auto const& rows = of.hot.tables[t];
    auto const refuse = [&](char const* what) {
      throw error(errc::incompatible, "hot_source: hot rows or specs of other tables", {{"table", t}, {"what differs", what}});
    };
    if (rows.table().id != table.id || of.places.tables[t].id != table.id) refuse("id");
    if (of.places.tables[t].dim != table.dim) refuse("dim");
    if (rows.slots_are_ids() && rows.table().rows != of.places.tables[t].rows) refuse("rows");
    if (!of.specs[t].slots_are_ids)
      throw error(errc::incompatible, "hot_source: twins are dense; a hashed table takes the spec of a dense one of its kind",
                  {{"table", t}});
  }
  // Rows that were never read start as the whole table's.
  for (std::size_t p = 0; p < of.parts.size(); ++p) {
    auto const t = of.places.parts[p].table;
    auto const &part = of.parts[p]->options(), &table = of.specs[static_cast<std::size_t>(t)].table;
    if (part.seed != table.seed || part.init_bound != table.init_bound)
      throw error(errc::incompatible, "hot_source: hot rows or specs of other tables",
                  {{"table", t}, {"what differs", part.seed != table.seed ? "seed" : "init_bound"}});
  }
}

TESSERA_INLINE hot_tables::hot_tables(host_exec const& exec, any_communicator& comm, origin const& of,
                                      std::vector<table_feature> const& features, sharded_tables_options const& options,
                                      std::optional<any_communicator> workers, row_mover const& mover) {
  auto compact = of.specs;
  sharding_plan plan;
  std::exception_ptr failure;
  try {
    check(of);
    for (std::size_t t = 0; t < compact.size(); ++t) {
      auto const& rows = of.hot.tables[t];
      auto& table = compact[t].table;
      table.rows = std::max<std::int64_t>(rows.size(), 1);
      if (!rows.is_whole()) table.row_ids = rows.size() == 0 ? no_rows_.data() : rows.ids().data();
      plan.shards.push_back(whole_table(options_of(compact), static_cast<std::int64_t>(t), table_shard::all_ranks));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(exec, comm, "hot_source: tables of twins", failure);
  try {
    if (workers) {
      is_copy_ = workers->rank() > 0;
      twins_.emplace(exec, *workers, compact, features, plan, options);
      auto const parts = twins_->parts();
      for (std::size_t t = 0; t < parts.size(); ++t) {
        mover.check_copy(static_cast<std::int64_t>(t), *parts[t]);
        dims_.push_back(parts[t]->options().dim);
      }
    }
  } catch (...) {
    failure = std::current_exception();
  }
  barrier(exec, comm, "hot_source: twins are made", failure);
}

TESSERA_INLINE void copy_row_gradients(row_gradients const& from, std::int64_t table, row_gradients& to, std::int64_t to_table) {
  auto const rows = from.rows(table);
  if (rows == 0) return;
  std::copy_n(from.slots(table).data(), rows, to.slots_to_write(to_table));
  std::copy_n(from.ids(table).data(), rows, to.ids_to_write(to_table));
  std::copy_n(from.values(table).data(), rows * from.dim(table), to.values(to_table).data());
}

TESSERA_INLINE void join_row_gradients(host_exec const& exec, std::vector<std::int64_t> const& first_dims, row_gradients const& first,
                                       std::vector<std::int64_t> const& second_dims, row_gradients const& second, row_gradients& sum) {
  auto const count = static_cast<std::int64_t>(first_dims.size()), all = count + static_cast<std::int64_t>(second_dims.size());
  auto const rows_in = [](row_gradients const& of, std::int64_t t) { return of.tables() == 0 ? 0 : of.rows(t); };
  sum.resize(
      exec, all, [&](std::int64_t t) { return t < count ? rows_in(first, t) : rows_in(second, t - count); },
      [&](std::int64_t t) {
        return t < count ? first_dims[static_cast<std::size_t>(t)] : second_dims[static_cast<std::size_t>(t - count)];
      });
  for (std::int64_t t = 0; t < all; ++t)
    if (sum.rows(t) > 0) t < count ? copy_row_gradients(first, t, sum, t) : copy_row_gradients(second, t - count, sum, t);
}

TESSERA_INLINE void split_row_gradients(host_exec const& exec, std::int64_t first_tables, row_gradients const& sum, row_gradients& first,
                                        row_gradients& second) {
  if (sum.tables() < first_tables)
    throw error(errc::shape_mismatch, "hot_source::apply: gradients of other tables", {{"tables", sum.tables()}, {"least", first_tables}});
  auto const part = [&](row_gradients& to, std::int64_t from, std::int64_t tables) {
    to.resize(
        exec, tables, [&](std::int64_t t) { return sum.rows(from + t); }, [&](std::int64_t t) { return sum.dim(from + t); });
    for (std::int64_t t = 0; t < tables; ++t) copy_row_gradients(sum, from + t, to, t);
  };
  part(first, 0, first_tables);
  part(second, first_tables, sum.tables() - first_tables);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
