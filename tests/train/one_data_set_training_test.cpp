// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
// ctest-labels: threads
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "../data/one_data_set.hpp"
#include "random.hpp"

namespace one_data_set_training_test {

namespace {

// The bits of what a model has learned in an epoch: losses, dense parameters, and the logits of all samples afterwards.
std::vector<std::uint64_t> learned_from(tessera::host_exec const& exec, tessera::any_sample_source const& source) {
  auto const preprocess = sample_tests::fitted_to(exec, source, sample_tests::unfitted_of(source.schema()));
  tessera::sample_reader_options const options{.batch_size = 32, .groups = {{"s0", "s2"}}};
  tessera::sample_reader reader(exec, source, preprocess, options), again(exec, source, preprocess, options);
  tessera::batch_view batch;
  REQUIRE(reader.next(exec, batch));
  tessera::table_list tables;
  std::vector<tessera::table_feature> features;
  for (auto const& name : batch.key_names) {
    auto const number = tables.size();
    tessera::adagrad const optimizer{.learning_rate = 0.1F};
    tables.add(tessera::hash_table<>(exec, {.id = tessera::table_id{number}, .dim = 4, .rows = 10, .init_bound = 0.3F}, optimizer),
               optimizer);
    features.push_back({.name = name, .table = number});
  }
  tessera::dlrm<tessera::local_tables, tessera::eigen_gemm> model(
      exec, {.dense_features = batch.dense.columns(), .bottom_hidden = {8}, .top_hidden = {8}, .seed = tessera::random_seed{3}},
      {std::move(tables), std::move(features)});
  tessera::trainer run(exec, model, tessera::adagrad{.learning_rate = 0.05F});
  std::vector<std::uint64_t> bits;
  do bits.push_back(std::bit_cast<std::uint64_t>(run.step(exec, batch)));
  while (reader.next(exec, batch));
  auto const add = [&](tessera::vector_view<float const> floats) {
    for (auto const x : floats) bits.push_back(std::bit_cast<std::uint32_t>(x));
  };
  for (auto const& group : model.groups()) add(group.values);
  decltype(model)::saved_type saved;
  while (again.next(exec, batch)) add(model.predict(exec, batch, saved));
  return bits;
}

}  // namespace

TEST_CASE("one data set as text with tabs or commas, in Parquet and in memory: the same model after an epoch, bit for bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  sample_tests::plain_host h;
  sample_tests::data_set const data(h.exec, sample_tests::suite_table(seed, sample_tests::mixed_shape));
  auto const first = learned_from(h.exec, data.sources[0]);
  CHECK(first.size() > 300 + 10);  // a logit each sample, a loss each batch, and parameters
  CHECK(first[0] != first[9]);
  for (std::size_t i = 1; i < data.sources.size(); ++i) {
    CAPTURE(i);
    CHECK(learned_from(h.exec, data.sources[i]) == first);
  }
}

}  // namespace one_data_set_training_test
