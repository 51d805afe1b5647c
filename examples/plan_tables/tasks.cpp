// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The synthetic pool of tables, and tasks of placing some of them.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/types.hpp>
#include <tessera/plan/measure_combination.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_profile_file.hpp>
#include <tessera/synth/sharding_tasks.hpp>
#include <tessera/synth/table_pool.hpp>

#include "commands.hpp"

namespace plan_tables {

namespace {

std::vector<tessera::table_profile> profiles_of(std::vector<tessera::pool_table> const& pool, std::int64_t dim) {
  std::vector<tessera::table_profile> profiles;
  for (auto const& one : pool) {
    tessera::table_profile profile{.name = "t" + std::to_string(profiles.size()), .rows = one.rows, .dim = dim};
    profile.pooling_factor = one.pooling_factor;
    profile.access = one.shares();
    profile.bags = profile.distinct_bags = static_cast<double>(tessera::pool_batch);
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

}  // namespace

void write_tasks(task_options const& o) {
  std::vector<tessera::table_profile> profiles;
  std::vector<tessera::pool_table> pool;
  if (o.tables.empty()) {
    pool = tessera::make_table_pool({.seed = tessera::random_seed{o.pool_seed}});
    profiles = profiles_of(pool, o.most_dim);
  } else {
    profiles = tessera::read_table_profiles(o.tables);
    pool.resize(profiles.size());
    for (std::size_t t = 0; t < pool.size(); ++t) pool[t].rows = profiles[t].rows;
  }
  if (o.batch > 0) {
    std::vector<tessera::table_profile> of_batch;
    for (std::size_t t = 0; t < profiles.size(); ++t)  // the ids of one table after the other
      of_batch.push_back(tessera::pool_ids(profiles, tessera::random_seed{o.pool_seed}).of(static_cast<std::int64_t>(t), o.batch).profile);
    profiles = std::move(of_batch);
  }
  if (!o.pool.empty()) {
    tessera::write_table_profiles(o.pool, profiles);
    std::printf("%zu tables in %s\n", profiles.size(), o.pool.c_str());
  }
  if (o.out.empty()) return;
  tessera::sharding_task_options options;
  options.seed = tessera::random_seed{o.seed};
  options.devices = o.devices;
  options.most_dim = o.most_dim;
  options.least_tables = o.least_tables;
  options.below_tables = o.most_tables + 1;
  options.device_bytes = static_cast<std::int64_t>(o.bytes_per_device);
  options.slack_bytes = static_cast<std::int64_t>(o.slack_bytes);
  std::filesystem::create_directories(o.out);
  for (std::int64_t number = 0; number < o.tasks; ++number) {
    auto const task = tessera::make_sharding_task(pool, options, number);
    std::vector<tessera::table_profile> tables;
    std::map<std::int64_t, int> seen;  // one table may come twice, but names do not
    for (std::size_t i = 0; i < task.tables.size(); ++i) {
      auto table = profiles[static_cast<std::size_t>(task.tables[i])];
      table.dim = task.dims[i];
      if (auto const before = seen[task.tables[i]]++; before > 0) table.name += "." + std::to_string(before + 1);
      tables.push_back(std::move(table));
    }
    auto digits = std::to_string(number);
    tessera::write_table_profiles(o.out + "/task_" + std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits + ".json",
                                  tables);
  }
  std::printf("%lld tasks in %s\n", static_cast<long long>(o.tasks), o.out.c_str());
}

}  // namespace plan_tables
