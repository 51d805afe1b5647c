// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/train/session_model.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"
#include "session_support.hpp"

namespace {

using namespace tessera;
using tessera_tests::largest_difference;
using tessera_tests::serial_host;

template <class Store>
using model_of = session_model<Store, eigen_gemm, dot_products, encoder_pooling>;

constexpr std::int64_t dim = 8, table_rows = tessera_tests::session_ids;

// Two groups of sequences (2 and 1 keys, 3 tables), then three pooled features in two tables.
template <class Store, class Optimizer>
model_of<Store> make_model(host_exec const& exec, Optimizer const& optimizer, shared_gradients sums,
                           pooled_rows rows = pooled_rows::distinct) {
  std::vector<Store> tables;
  for (std::int64_t t = 0; t < 5; ++t)
    tables.emplace_back(
        exec,
        table_options{
            .id = table_id{t}, .dim = dim, .rows = Store::slots_are_ids ? table_rows : 0, .init_bound = 0.5F, .seed = random_seed{3}},
        optimizer);
  transformer_encoder_options const encoder{.layers = 1, .heads = 2, .hidden = 12};
  std::vector<sequence_group<encoder_pooling>> groups;
  groups.emplace_back(std::vector<std::int64_t>{0, 1}, encoder);
  groups.emplace_back(std::vector<std::int64_t>{2}, encoder);
  click_model_options options(3, {6}, {7}, random_seed{5});
  options.sums = sums;
  return {exec, options, std::move(tables), std::move(groups), {{3, pooling::sum}, {4, pooling::max}, {3, pooling::mean}}, {}, rows};
}

// Keys 0 and 1, key 2 and key 3 keep their lists for some samples.
struct session_batch : tessera_tests::session_batch {
  inverse_keyed_jagged<> distinct;

  session_batch(host_exec const& exec, std::mt19937_64& random, std::int64_t samples)
      : tessera_tests::session_batch(exec, random, samples, 3),
        distinct(deduplicate(exec, rows.view(), std::vector<std::int64_t>{2, 1, 1})) {}

  batch_view shared() const { return with(distinct); }
};

template <class Store>
std::vector<float> contents(host_exec const& exec, model_of<Store>& model) {
  std::vector<float> all;
  for (auto const& group : model.groups()) all.insert(all.end(), group.values.begin(), group.values.end());
  for (auto const& table : model.tables())
    for (std::int64_t id = 0; id < table_rows; ++id) {
      std::vector<std::int64_t> const ids{id};
      std::vector<std::int64_t> slot(1);
      table.find(exec, ids, slot);
      if (slot[0] < 0) continue;
      all.push_back(static_cast<float>(id));
      all.insert(all.end(), table.row(slot[0]), table.row(slot[0]) + dim);
    }
  return all;
}

}  // namespace

TEST_CASE_TEMPLATE("distinct rows train as expanded ones do: expanded sums to the bit, merged sums nearly, on any threads", Store,
                   dense_table<>, hash_table<>) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    rowwise_adagrad const rows{.learning_rate = 0.05F};
    sgd const dense{.learning_rate = 0.05F};
    auto plain = make_model<Store>(exec, rows, shared_gradients::merged), exact = make_model<Store>(exec, rows, shared_gradients::expanded),
         merged = make_model<Store>(exec, rows, shared_gradients::merged),
         lookups = make_model<Store>(exec, rows, shared_gradients::merged, pooled_rows::expanded);
    trainer of_plain(exec, plain, rows, dense), of_exact(exec, exact, rows, dense), of_merged(exec, merged, rows, dense),
        of_lookups(exec, lookups, rows, dense);
    for (int step = 0; step < 4; ++step) {
      session_batch const batch(exec, random, step == 2 ? 1 : 60);
      auto const loss = of_plain.step(exec, batch.plain());
      CHECK(of_exact.step(exec, batch.shared()) == loss);
      CHECK(std::abs(of_merged.step(exec, batch.shared()) - loss) < 1e-4);
      CHECK(std::abs(of_lookups.step(exec, batch.shared()) - loss) < 1e-4);
      typename model_of<Store>::saved_type saved, shared;
      auto const a = plain.predict(exec, batch.plain(), saved), b = exact.predict(exec, batch.shared(), shared);
      CHECK(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
    }
    auto const of_rows = contents(exec, plain);
    CHECK(contents(exec, exact) == of_rows);
    CHECK(largest_difference(contents(exec, merged), of_rows) < 2e-3);
    CHECK(largest_difference(contents(exec, lookups), of_rows) < 2e-3);
    if (first.empty()) first = contents(exec, merged);
    CHECK(contents(exec, merged) == first);
  });
}

TEST_CASE("accumulated micro-batches make the step of one batch, nearly") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(tessera_tests::draw_seed());
  sgd const optimizer{.learning_rate = 0.1F};
  auto one = make_model<dense_table<>>(exec, optimizer, shared_gradients::merged),
       many = make_model<dense_table<>>(exec, optimizer, shared_gradients::merged);
  trainer of_one(exec, one, optimizer, optimizer), of_many(exec, many, optimizer, optimizer);
  session_batch const batch(exec, random, 50);
  of_one.step(exec, batch.shared());
  of_many.accumulate(exec, batch.shared(), 0.25F);
  of_many.accumulate(exec, batch.plain(), 0.75F);
  of_many.update(exec);
  CHECK(largest_difference(contents(exec, one), contents(exec, many)) < 1e-4);
}

TEST_CASE("gradients are those of finite differences") {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto model = make_model<dense_table<>>(exec, sgd{.learning_rate = 1}, shared_gradients::merged);
  session_batch const batch(exec, random, 20);
  model_of<dense_table<>>::saved_type saved;
  std::vector<float> const weight = tessera_tests::random_floats(random, 20);
  auto const loss = [&] {
    model_of<dense_table<>>::saved_type local;
    auto const logits = model.predict(exec, batch.shared(), local);
    double sum = 0;
    for (std::size_t i = 0; i < weight.size(); ++i)
      sum += static_cast<double>(weight[i]) * static_cast<double>(logits[static_cast<std::int64_t>(i)]);
    return sum;
  };
  model.forward(exec, batch.shared(), saved);
  auto slopes = weight;
  std::vector<float> gradient(static_cast<std::size_t>(model.parameter_count()));
  model.backward(exec, saved, slopes, gradient);
  row_gradients of_rows;
  model.gradients_of_rows(exec, saved, of_rows);

  tessera_tests::difference_check check(loss);
  check.check_model(model, gradient, of_rows);
}

TEST_CASE("batches and shapes that do not fit are refused by name") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto model = make_model<dense_table<>>(exec, sgd{}, shared_gradients::merged);
  session_batch const batch(exec, random, 4);
  model_of<dense_table<>>::saved_type saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  auto others = batch.shared();
  auto const apart = deduplicate(exec, batch.rows.view(), std::vector<std::int64_t>{1, 1, 1});
  others.sparse = std::as_const(apart).view().distinct;
  others.groups = std::as_const(apart).view().groups;
  CHECK(refusal([&] { model.forward(exec, others, saved); }) ==
        "session_model: the keys of a group are one group of the batch, or the batch has no groups (group 0, first key 0, keys 2)");
  auto few = batch.plain();
  few.sparse = few.sparse.slice_keys(0, 5);
  CHECK(refusal([&] { model.forward(exec, few, saved); }) ==
        "session_model: the batch does not fit the model (dense features 3, expected dense features 3, keys 5, expected keys 6)");
  std::vector<dense_table<>> tables;
  tables.emplace_back(exec, table_options{.id = table_id{0}, .dim = dim, .rows = 4}, sgd{});
  std::vector<sequence_group<encoder_pooling>> groups;
  groups.emplace_back(std::vector<std::int64_t>{0}, transformer_encoder_options{});
  CHECK(
      refusal([&] {
        model_of<dense_table<>>(exec, click_model_options(3, {}, {}), std::move(tables), std::move(groups), {{0, pooling::sum}});
      }) ==
      "session_model: a pooled feature reads a table behind those of the sequences (feature 0, table 0, tables of sequences 1, tables 1)");
}
