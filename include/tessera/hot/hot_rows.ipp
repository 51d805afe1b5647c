// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/hot_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE table_hot_rows table_hot_rows::all_of(table_options const& table) {
  table_hot_rows rows(table, true);
  rows.is_whole_ = true;
  return rows;
}

TESSERA_INLINE table_hot_rows table_hot_rows::some_of(host_exec const& exec, table_options const& table, bool slots_are_ids,
                                                      std::vector<std::int64_t> ids) {
  table_hot_rows rows(table, slots_are_ids);
  for (std::size_t i = 1; i < ids.size(); ++i)
    if (ids[i - 1] >= ids[i])
      throw error(errc::invalid_argument, "hot_rows: ids of hot rows ascend",
                  {{"table", table.id.value}, {"number", i}, {"id", ids[i]}, {"id before", ids[i - 1]}});
  if (slots_are_ids && !ids.empty() && (ids.front() < 0 || ids.back() >= table.rows))
    throw error(errc::out_of_range, "hot_rows: a hot row that the table does not have",
                {{"table", table.id.value}, {"id", ids.front() < 0 ? ids.front() : ids.back()}, {"rows", table.rows}});
  if (slots_are_ids) {
    rows.words_.resize(static_cast<std::size_t>(divide_up(table.rows, 64)));
    for (auto const id : ids) rows.words_[static_cast<std::size_t>(id / 64)] |= std::uint64_t{1} << id % 64;
    std::int64_t before = 0;
    for (std::size_t word = 0; word < rows.words_.size(); ++word) {
      if (word % (bits_of_part / 64) == 0) rows.before_.push_back(before);
      before += std::popcount(rows.words_[word]);
    }
  } else {
    rows.numbers_.reserve(exec, static_cast<std::int64_t>(ids.size()));
    for (auto const id : ids) rows.numbers_.insert(exec, id);
  }
  rows.ids_ = std::move(ids);
  return rows;
}

TESSERA_INLINE std::uint32_t hot_rows::digest() const noexcept {
  crc32_sum sum;
  for (auto const& table : tables) {
    std::int64_t const who[] = {table.table().id.value, table.table().rows, table.slots_are_ids(), table.is_whole(), table.size()};
    sum.update(as_bytes(vector_view<std::int64_t const>(who, 5)));
    sum.update(as_bytes(table.ids()));
  }
  return sum.value();
}

TESSERA_INLINE std::int64_t hot_rows::row_bytes(std::vector<table_spec> const& specs) const {
  check_tables("hot_rows::row_bytes", specs);
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < specs.size(); ++t) sum += tables[t].size() * specs[t].row_bytes(specs[t].table.dim);
  return sum;
}

TESSERA_INLINE void hot_rows::check_tables(char const* call, std::vector<table_spec> const& specs) const {
  auto const refuse = [&](char const* what, std::int64_t table, std::int64_t found, std::int64_t expected) {
    throw error(errc::incompatible, std::string(call) + ": hot rows of other tables",
                {{"table", table}, {"what differs", what}, {"hot rows", found}, {"tables", expected}});
  };
  if (tables.size() != specs.size())
    refuse("number of tables", -1, static_cast<std::int64_t>(tables.size()), static_cast<std::int64_t>(specs.size()));
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const& here = tables[t].table();
    auto const& there = specs[t].table;
    auto const number = static_cast<std::int64_t>(t);
    if (here.id != there.id) refuse("id", number, here.id.value, there.id.value);
    if (tables[t].slots_are_ids() != specs[t].slots_are_ids)
      refuse("whether ids are rows", number, tables[t].slots_are_ids(), specs[t].slots_are_ids);
    if (specs[t].slots_are_ids && here.rows != there.rows) refuse("rows", number, here.rows, there.rows);
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
