// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/preprocessing_fit_file.hpp>

#include "preprocessing_support.hpp"

namespace pipeline_steps_suite {

using namespace preprocessing_tests;

/// Dense rows picked by a list are those that a range picks; an empty batch has none.
inline void check_picked(host_exec const& exec, dense_pipeline const& pipeline, sample_columns_view samples, std::mt19937_64& random) {
  auto const all = dense_of(exec, pipeline, samples);
  auto const features = static_cast<std::size_t>(pipeline.features());
  std::vector<std::int64_t> rows;
  for (int i = 0; i < 300; ++i) rows.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(samples.size())));
  std::vector<float> listed(rows.size() * features), ranged(100 * features);
  pipeline(exec, samples.dense, vector_view<std::int64_t const>(rows), {listed.data(), 300, pipeline.features()});
  pipeline(exec, samples.dense, 17, 100, {ranged.data(), 100, pipeline.features()});
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < listed.size(); ++i)
    wrong += std::bit_cast<std::uint32_t>(listed[i]) != all[static_cast<std::size_t>(rows[i / features]) * features + i % features];
  for (std::size_t i = 0; i < ranged.size(); ++i) wrong += std::bit_cast<std::uint32_t>(ranged[i]) != all[17 * features + i];
  CHECK(wrong == 0);
  pipeline(exec, samples.dense, 5, 0, {nullptr, 0, pipeline.features()});
  pipeline(exec, samples.dense, vector_view<std::int64_t const>{}, {nullptr, 0, pipeline.features()});
}

/// Ids are in [0, id_count), an empty batch has none, and groups of distinct rows become what all rows become.
inline void check_ids(host_exec const& exec, sparse_pipeline const& pipeline, sample_schema const& schema, sample_columns_view samples) {
  auto keys = pipeline.kept();
  auto const plain = ids_of(exec, pipeline, schema, samples, keys);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    CAPTURE(keys[k]);
    REQUIRE(plain[k].size() == static_cast<std::size_t>(samples.size()));
    std::int64_t outside = 0, left = 0;
    auto const bound = pipeline.id_count(keys[k]);
    for (auto const& row : plain[k])
      for (auto const id : row) {
        outside += bound && (id < 0 || id >= *bound);
        left += schema.is_single(keys[k]) && id == missing_id;
      }
    CHECK(outside == 0);
    CHECK(left == 0);
  }
  for (auto const& groups : {std::vector<std::int64_t>{1, 2}, {static_cast<std::int64_t>(keys.size())}, {1, 1, 1}})
    CHECK(ids_of(exec, pipeline, schema, samples, keys, groups) == plain);
  sample_columns none(schema);
  none.resize(exec, 0);
  for (auto const& rows : ids_of(exec, pipeline, schema, none.view(), keys, {1, 1})) CHECK(rows.empty());
}

/// What every step of dense and of sparse columns must show.
inline void check_steps(std::vector<dense_rule> const& dense, std::vector<sparse_rule> const& sparse) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table const training(random, {.rows = 600, .dense = 3, .sparse = 4, .single = 2});
  table const other(random, {.rows = 400, .dense = 3, .sparse = 4, .single = 2});  // values that training lacks
  tessera_tests::serial_host one;
  auto const exec = one.exec();
  preprocessing const unfitted(training.schema, dense, sparse);
  auto const whole = fitted(exec, unfitted, training);
  REQUIRE(whole.is_fitted());
  auto const samples = other.all(exec);
  auto const numbers = dense_of(exec, whole.dense(), samples.view());
  auto const keys = whole.sparse().kept();
  auto const ids = ids_of(exec, whole.sparse(), other.schema, samples.view(), keys);
  for (auto const bits : numbers) REQUIRE(!std::isnan(std::bit_cast<float>(bits)));

  INFO("threads");
  {
    tessera_tests::pool two(2);
    auto const p = fitted(two.exec(), unfitted, training);
    CHECK(p == whole);
    CHECK(dense_of(two.exec(), p.dense(), samples.view()) == numbers);
    CHECK(ids_of(two.exec(), p.sparse(), other.schema, samples.view(), keys) == ids);
    check_picked(two.exec(), p.dense(), samples.view(), random);
    check_ids(two.exec(), p.sparse(), other.schema, samples.view());
  }

  INFO("saved and loaded");
  tessera_tests::temporary_folder const folder;
  save_preprocessing(folder.path(), whole);
  auto const loaded = load_preprocessing(exec, folder.path());
  CHECK(loaded == whole);
  CHECK(dense_of(exec, loaded.dense(), samples.view()) == numbers);
  CHECK(ids_of(exec, loaded.sparse(), other.schema, samples.view(), keys) == ids);

  INFO("parts of a data set, in blocks of another size, saved meanwhile");
  for (auto const& cuts : {std::vector<std::size_t>{0, 250, 600}, {0, 1, 1, 599, 600}}) {
    preprocessing_fit parts(unfitted);
    for (std::size_t part = 1; part < cuts.size(); ++part) {
      preprocessing_fit fit(unfitted, {.first_row = static_cast<std::int64_t>(cuts[part - 1])});
      add(exec, fit, training, cuts[part - 1], cuts[part], 77);
      save_preprocessing_fit(folder.file("fit"), fit);
      parts.merge(exec, load_preprocessing_fit(exec, folder.file("fit")));
    }
    CHECK(parts.rows() == 600);
    auto const merged = std::move(parts).finish(exec);
    CHECK(merged == whole);
    CHECK(dense_of(exec, merged.dense(), samples.view()) == numbers);
  }
}

}  // namespace pipeline_steps_suite
