// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/shard/table_spec.hpp>

#include "hosts.hpp"
#include "random.hpp"

namespace hot_tests {

/// A small table, two larger ones and a hashed one, and a log whose ids favour few rows.
struct hot_problem {
  static constexpr std::int64_t rows_of[] = {50, 2000, 3000};
  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  std::vector<std::vector<std::vector<std::int64_t>>> ids;  // [key][sample]
  tessera::memory_log log;

  explicit hot_problem(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t samples = 300, std::int64_t block_rows = 64)
      : specs(make_specs()),
        features({{.name = "a", .table = 1},
                  {.name = "b", .table = 3},
                  {.name = "c", .table = 0},
                  {.name = "d", .table = 1},
                  {.name = "e", .table = 2}}),
        ids(draw_ids(random, static_cast<std::size_t>(samples))),
        log(schema(), columns(exec), block_rows) {}

  static std::vector<tessera::table_spec> make_specs() {
    auto const table = [](std::int64_t id, std::int64_t dim, std::int64_t rows) {
      return tessera::table_options{.id = tessera::table_id{id}, .dim = dim, .rows = rows};
    };
    return {tessera::spec_of<tessera::dense_table<>>(table(3, 4, rows_of[0]), tessera::sgd{}),
            tessera::spec_of<tessera::dense_table<>>(table(5, 8, rows_of[1]), tessera::adagrad{}),
            tessera::spec_of<tessera::dense_table<tessera::bfloat16>>(table(6, 6, rows_of[2]), tessera::rowwise_adagrad{}),
            tessera::spec_of<tessera::hash_table<>>(table(9, 4, 10), tessera::sgd{})};
  }
  static tessera::sample_schema schema() { return {.label = "label", .sparse = {"a", "b", "c", "d", "e"}}; }
  tessera::sample_reader_options in_groups(std::int64_t batch_size) const {
    return {.batch_size = batch_size, .groups = {{"a", "b"}, {"c"}}};
  }

 private:
  // Few rows come often; a sample often repeats the rows of the one before, or has none.
  std::vector<std::vector<std::vector<std::int64_t>>> draw_ids(std::mt19937_64& random, std::size_t samples) const {
    std::vector<std::vector<std::vector<std::int64_t>>> all(features.size(), std::vector<std::vector<std::int64_t>>(samples));
    for (std::size_t i = 0; i < samples; ++i) {
      bool const repeats = i > 0 && random() % 3 == 0;
      for (std::size_t key = 0; key < all.size(); ++key) {
        auto const table = static_cast<std::size_t>(features[key].table);
        if (repeats)
          all[key][i] = all[key][i - 1];
        else
          for (auto n = random() % 4; n > 0; --n) {
            auto const rows = specs[table].slots_are_ids ? specs[table].table.rows : 500;
            auto id = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
            if (random() % 4 != 0) id = id % 7 * 3 % rows;
            all[key][i].push_back(specs[table].slots_are_ids ? id : id * 0x123456789 - 1000);
          }
      }
    }
    return all;
  }
  tessera::sample_columns columns(tessera::host_exec const& exec) const {
    tessera::sample_columns samples(schema());
    samples.resize(exec, static_cast<std::int64_t>(ids[0].size()));
    for (auto& label : samples.labels()) label = 0;
    for (std::size_t key = 0; key < ids.size(); ++key) {
      auto const column = static_cast<std::int64_t>(key);
      auto const offsets = samples.offsets(column);
      offsets[0] = 0;
      for (std::size_t i = 0; i < ids[key].size(); ++i)
        offsets[static_cast<std::int64_t>(i) + 1] = offsets[static_cast<std::int64_t>(i)] + static_cast<std::int64_t>(ids[key][i].size());
      auto const values = samples.ids(exec, column);
      std::int64_t at = 0;
      for (auto const& row : ids[key])
        for (auto const id : row) values[at++] = id;
    }
    return samples;
  }
};

}  // namespace hot_tests
