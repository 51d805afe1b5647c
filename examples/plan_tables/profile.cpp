// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// What the tables of a log are like: its columns of ids, read as training reads them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/columns_file.hpp>
#include <tessera/data/dense_steps.hpp>
#include <tessera/data/derived_columns.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/preprocessing_fit.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/sparse_steps.hpp>
#include <tessera/plan/profile_tables.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_profile_file.hpp>
#include <tessera/tensor/id_transforms.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_partition_file.hpp>

#include "../support/column_plan.hpp"
#include "../support/data_columns.hpp"
#include "../support/data_files.hpp"
#include "commands.hpp"

namespace plan_tables {

namespace {

using examples::column_list;

// Ids as --hash-size and --max-length have them, unless --columns says what becomes of a column.
tessera::preprocessing make_preprocessing(examples::settings const& s, tessera::data_description const& data,
                                          examples::column_plan const& plan) {
  auto schema = tessera::schema_with(data.schema, data.derived);
  auto sparse = data.sparse;
  for (auto const& name : schema.sparse) {
    bool const has_rule = std::any_of(data.sparse.begin(), data.sparse.end(), [&](auto const& rule) {
      return rule.columns.empty() || std::find(rule.columns.begin(), rule.columns.end(), name) != rule.columns.end();
    });
    if (has_rule) continue;
    tessera::sparse_rule rule{.columns = {name}};
    if (s.max_length > 0 && !schema.is_single(name)) rule.steps.push_back(tessera::truncate_ids{.most = s.max_length});
    if (s.hash_size > 0)
      rule.steps.push_back(tessera::hash_ids{.size = s.hash_size});
    else
      rule.steps.push_back(tessera::vocabulary{.min_count = s.min_count});
    if (auto const owner = plan.table_of.find(name); owner != plan.table_of.end()) rule.share = owner->second;
    sparse.push_back(std::move(rule));
  }
  return tessera::preprocessing(std::move(schema), {tessera::dense_rule{}}, sparse);
}

std::int64_t dim_of(std::string const& name, profile_options const& options, std::vector<std::string>& unused) {
  auto dim = options.dim;
  for (auto const& one : options.own_dims)
    if (auto const equals = one.rfind('='); equals != one.npos && one.substr(0, equals) == name) {
      if (!examples::parse_number(std::string_view(one).substr(equals + 1), dim) || dim < 1)
        examples::detail::refuse_option("--dim-of", "NAME=DIM with a dim from 1", {{"found", one}});
      std::erase(unused, one);
    }
  return dim;
}

// The tower of each column of a file, in the columns' order.
std::vector<std::int64_t> towers_of_columns(std::string const& file, column_list const& columns) {
  return tessera::towers_of_features(tessera::read_towers(file, columns), static_cast<std::int64_t>(columns.size()));
}

void print(std::vector<tessera::table_profile> const& tables) {
  std::printf("%-20s %12s %5s %9s %10s %13s %13s %10s\n", "table", "rows", "dim", "pooling", "bags", "distinct bags", "distinct rows",
              "MB");
  for (auto const& one : tables)
    std::printf("%-20s %12lld %5lld %9.4g %10.0f %13.0f %13.0f %10.4g\n", one.name.c_str(), static_cast<long long>(one.rows),
                static_cast<long long>(one.dim), one.pooling_factor, one.bags, one.distinct_bags, tessera::distinct_rows_of_batch(one),
                static_cast<double>(tessera::memory_of_shard(one).total()) * 1e-6);
}

}  // namespace

void profile(tessera::host_exec const& exec, examples::settings const& s, profile_options const& options) {
  auto const files = examples::named_files("FILE", s.train);
  auto const data = examples::describe_columns(s, files[0]);
  auto const plan = examples::make_column_plan(s, tessera::schema_with(data.schema, data.derived).sparse);
  auto const groups = s.dedup == "off" ? std::vector<column_list>{} : examples::batch_groups(plan, examples::named_groups(s, plan));
  auto const unfitted = make_preprocessing(s, data, plan);
  tessera::preprocessing_fit fit(unfitted);
  auto const source = examples::open_any_files(exec, files, data, [&](tessera::sample_columns_view samples) { fit.add(exec, samples); });
  tessera::sample_columns block;
  for (std::int64_t b = 0; !examples::reads_while_opening(files, data) && b < source.block_count(); ++b) {
    source.read(exec, b, block);
    fit.add(exec, block.view());
  }
  if (source.rows() == 0) throw tessera::error(tessera::errc::invalid_argument, "no samples", {{"file", files[0]}});
  auto const preprocess = std::move(fit).finish(exec);
  tessera::sample_reader<tessera::any_sample_source, tessera::preprocessing> reader(exec, source, preprocess,
                                                                                    {.batch_size = options.batch, .groups = groups});
  auto const keys = preprocess.of_keys(reader.keys()).keys();
  column_list tables;
  for (auto const& key : keys)
    if (auto const& owner = plan.owner(key); std::find(tables.begin(), tables.end(), owner) == tables.end()) tables.push_back(owner);
  auto const towers = options.towers.empty() ? std::vector<std::int64_t>(keys.size(), -1) : towers_of_columns(options.towers, keys);
  std::vector<tessera::table_with_keys> of_tables;
  auto unused = options.own_dims;
  for (auto const& name : tables) {
    auto const rows = preprocess.sparse().id_count(name);
    if (!rows)
      examples::detail::refuse_option("--columns", "ids without a hash or a vocabulary have no number of rows", {{"column", name}});
    tessera::table_profile table{.name = name, .rows = *rows, .dim = dim_of(name, options, unused)};
    table.row_format = options.row_format;
    table.optimizer = options.optimizer;
    std::vector<std::int64_t> of_table;
    for (std::size_t k = 0; k < keys.size(); ++k)
      if (plan.owner(keys[k]) == name) of_table.push_back(static_cast<std::int64_t>(k));
    table.tower = towers[static_cast<std::size_t>(of_table[0])];
    for (auto const k : of_table)
      if (towers[static_cast<std::size_t>(k)] != table.tower)
        examples::detail::refuse_option("--towers", "columns of one table in two towers",
                                        {{"table", name}, {"column", keys[static_cast<std::size_t>(k)]}});
    of_tables.push_back({std::move(table), std::move(of_table)});
  }
  if (!unused.empty())
    examples::detail::refuse_option("--dim-of", "no such table", {{"found", unused[0]}, {"tables", examples::join(tables, ",")}});
  auto const profiles = tessera::profile_tables(exec, reader, of_tables, options.batches);
  tessera::write_table_profiles(options.out, profiles);
  print(profiles);
}

}  // namespace plan_tables
