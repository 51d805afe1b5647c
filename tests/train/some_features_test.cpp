// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "session_support.hpp"
#include "temporary_folder.hpp"
#include "trainer_setup.hpp"

namespace some_features_test {

namespace {

using namespace tessera;
using tessera_tests::serial_host;
using tessera_tests::small_shape;

template <class Interaction>
using categorical_run = tessera_tests::small_run<dense_table<>, rowwise_adagrad, adam, Interaction>;

small_shape categories_alone() {
  small_shape shape;
  shape.dense_features = 0;
  return shape;
}

template <class Interaction>
std::vector<float> categorical_predictions(host_exec const& exec, categorical_run<Interaction> const& run) {
  auto clicks = categories_alone().clicks(99);
  typename categorical_run<Interaction>::model_type::saved_type saved;
  auto const logits = run.model.predict(exec, clicks.next(exec, 50), saved);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE_TEMPLATE("without dense features a model has no bottom MLP, and one vector fewer meets", Interaction, dot_products, cross_layers,
                   factorization) {
  serial_host host;
  auto const exec = host.exec();
  categorical_run<Interaction> run(exec, {0.05F}, {0.01F}, categories_alone());
  auto& model = run.model;
  CHECK(model.groups()[0].name == "bottom");
  CHECK(model.groups()[0].values.empty());
  for (auto const& block : model.blocks()) CHECK_FALSE(block.name.starts_with("bottom"));
  Interaction const four_vectors(exec, {}, 4, model.dim(), {});
  CHECK(model.interaction().output_width() == four_vectors.output_width());
  CHECK(model.top().input_width() == four_vectors.output_width());
  for (auto const& state : run.run.dense_states()) CHECK(state.group != "bottom");

  auto with = small_shape().clicks();
  typename categorical_run<Interaction>::model_type::saved_type saved;
  CHECK_THROWS_AS(model.predict(exec, with.next(exec, 4), saved), error);
}

TEST_CASE_TEMPLATE("without dense features gradients are those of finite differences", Interaction, dot_products, cross_layers,
                   factorization) {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  categorical_run<Interaction> run(exec, {0.05F}, {0.01F}, categories_alone());
  auto clicks = categories_alone().clicks(seed);
  tessera_tests::check_gradients(exec, run.model, clicks.next(exec, 20), tessera_tests::random_floats(random, 20));
}

TEST_CASE("without dense features a single bag makes a model, and nothing at all makes none") {
  serial_host host;
  auto const exec = host.exec();
  auto shape = categories_alone();
  shape.rows = {30};
  auto const tables = [&] { return categorical_run<dot_products>::tables(exec, {0.05F}, shape); };
  auto const source = [&](std::vector<pooled_feature> const& features) {
    return tessera_tests::source_of(tables(), features, rowwise_adagrad{.learning_rate = 0.05F});
  };
  dlrm<local_tables, eigen_gemm> model(exec, {0, {4}, {6}}, source({{0}}));
  tessera_tests::click_batches clicks(0, {30}, random_seed{5});
  tessera_tests::check_gradients(exec, model, clicks.next(exec, 10), std::vector<float>(10, 1.0F));
  CHECK_THROWS_WITH_AS((dlrm<local_tables, eigen_gemm>(exec, {0, {4}, {6}}, source({}))), doctest::Contains("no outputs"), error);
  CHECK_THROWS_WITH_AS((dlrm<local_tables, eigen_gemm>(exec, {.bottom_hidden = {4}, .top_hidden = {6}, .dim = 3}, source({}))),
                       doctest::Contains("neither dense features nor lookups"), error);
}

TEST_CASE_TEMPLATE("without dense features a model learns, and goes on from its checkpoint to the bit", Interaction, dot_products,
                   cross_layers, factorization) {
  serial_host host;
  auto const exec = host.exec();
  categorical_run<Interaction> whole(exec, {0.05F}, {0.01F}, categories_alone());
  auto clicks = categories_alone().clicks();
  tessera_tests::temporary_folder folder;
  for (int step = 0; step < 150; ++step) {
    if (step == 100) save_checkpoint(exec, folder.path(), whole.run, {.step = 100});
    whole.run.step(exec, clicks.next(exec, 64));
  }
  auto const test = clicks.next(exec, 400);
  typename categorical_run<Interaction>::model_type::saved_type saved;
  exact_auc auc;
  auc.add(whole.model.predict(exec, test, saved), test.labels);
  CHECK(auc.value(exec) > 0.9);  // the label is the parity of an id

  auto const found = open_newest_checkpoint(folder.path());
  categorical_run<Interaction> resumed(exec, {0.05F}, {0.01F}, categories_alone(), 1234);
  load_trainer(exec, found, resumed.run);
  auto again = categories_alone().clicks();
  for (int step = 0; step < 150; ++step) {
    auto const batch = again.next(exec, 64);
    if (step >= 100) resumed.run.step(exec, batch);
  }
  CHECK(categorical_predictions<Interaction>(exec, resumed) == categorical_predictions<Interaction>(exec, whole));

  categorical_run<Interaction> with_dense(exec, {0.05F}, {0.01F});
  CHECK_THROWS_AS(load_model(exec, found, with_dense.model), error);
}

TEST_CASE("without dense features sequences and bags meet alone") {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  table_list tables;
  for (std::int64_t t = 0; t < 5; ++t)
    tables.add(dense_table<>(exec, table_options{table_id{t}, tessera_tests::session_dim, tessera_tests::session_ids, 0.5F, random_seed{3}},
                             sgd{}),
               sgd{});
  std::vector<table_feature> features;
  for (std::int64_t key = 0; key < 3; ++key) features.push_back({.name = std::to_string(key), .table = key, .sequence = true});
  features.push_back({.name = "3", .table = 3});
  features.push_back({.name = "4", .table = 4, .pooling = pooling::max});
  features.push_back({.name = "5", .table = 3, .pooling = pooling::mean});
  transformer_encoder_options const encoder{.layers = 1, .heads = 2, .hidden = 12};
  click_model<local_tables, eigen_gemm, dot_products, encoder_pooling> model(
      exec, {0, {6}, {7}, random_seed{5}}, {std::move(tables), std::move(features)}, {}, {{{"0", "1"}, encoder}, {{"2"}, encoder}});
  CHECK(model.vector_count() == 5);
  tessera_tests::session_batch const drawn(exec, random, 20, 3);
  auto batch = drawn.plain();
  batch.dense = {nullptr, batch.samples(), 0};
  tessera_tests::check_gradients(exec, model, batch, tessera_tests::random_floats(random, 20));
}

TEST_CASE_TEMPLATE("without sparse features the bottom's vector meets alone", Interaction, dot_products, cross_layers) {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_model<local_tables, eigen_gemm, Interaction> model(
      exec, {.dense_features = 3, .bottom_hidden = {4}, .top_hidden = {6}, .seed = random_seed{7}, .dim = 5}, {table_list(), {}});
  CHECK(model.vector_count() == 1);
  tessera_tests::click_batches clicks(3, {}, random_seed{seed});
  tessera_tests::check_gradients(exec, model, clicks.next(exec, 20), tessera_tests::random_floats(random, 20));
  auto const empty = clicks.next(exec, 0);
  typename decltype(model)::saved_type saved;
  CHECK(model.predict(exec, empty, saved).empty());
}

TEST_CASE("a batch that names its keys is refused by a model of other keys, or of these in another order") {
  serial_host host;
  auto const exec = host.exec();
  table_list tables;
  for (std::int64_t t = 0; t < 2; ++t) tables.add(dense_table<>(exec, {.id = table_id{t}, .dim = 4, .rows = 30}, sgd{}), sgd{});
  dlrm<local_tables, eigen_gemm> model(exec, {3, {4}, {6}},
                                       {std::move(tables), {{.name = "item", .table = 0}, {.name = "user", .table = 1}}});
  tessera_tests::click_batches clicks(3, {30, 30}, random_seed{5});
  auto batch = clicks.next(exec, 10);
  typename dlrm<local_tables, eigen_gemm>::saved_type saved;
  CHECK_NOTHROW(model.predict(exec, batch, saved));  // it names none
  std::vector<std::string> names{"item", "user"};
  batch.key_names = names;
  CHECK_NOTHROW(model.predict(exec, batch, saved));
  names = {"user", "item"};
  auto const e = tessera_tests::error_of([&] { model.forward(exec, batch, saved); });
  CHECK(e.code() == errc::shape_mismatch);
  CHECK(e.value("key") == "0");
  CHECK(e.value("found") == "user");
  CHECK(e.value("expected") == "item");
  names = {"item", "place"};
  CHECK(tessera_tests::error_of([&] { model.predict(exec, batch, saved); }).value("found") == "place");
}

TEST_CASE("a reader whose groups put keys into another order than the trainer's is refused by name") {
  serial_host host;
  auto const exec = host.exec();
  sample_schema const schema{.label = "y", .dense = {"age"}, .sparse = {"user", "item"}, .single = {"user", "item"}};
  sample_columns columns(schema);
  columns.resize(exec, 20);
  for (std::int64_t i = 0; i < 20; ++i) {
    columns.labels()[i] = static_cast<float>(i % 2);
    columns.dense()(0, i) = static_cast<float>(i);
    for (std::int64_t c = 0; c < 2; ++c) columns.single_ids(c)[i] = i % (3 + c);
  }
  memory_log const log(schema, std::move(columns));
  table_list tables;
  for (std::int64_t t = 0; t < 2; ++t) tables.add(dense_table<>(exec, {.id = table_id{t}, .dim = 4, .rows = 30}, sgd{}), sgd{});
  dlrm<local_tables, eigen_gemm> model(exec, {1, {4}, {6}},
                                       {std::move(tables), {{.name = "user", .table = 0}, {.name = "item", .table = 1}}});
  typename dlrm<local_tables, eigen_gemm>::saved_type saved;
  sample_reader training(exec, log, {.batch_size = 10}), test(exec, log, {.batch_size = 10, .groups = {{"item"}}});
  batch_view batch;
  REQUIRE(training.next(exec, batch));
  CHECK_NOTHROW(model.predict(exec, batch, saved));
  REQUIRE(test.next(exec, batch));
  auto const e = tessera_tests::error_of([&] { model.predict(exec, batch, saved); });
  CHECK(e.code() == errc::shape_mismatch);
  CHECK(e.value("found") == "item");
  CHECK(e.value("expected") == "user");
}

}  // namespace some_features_test
