// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"
#include "local_source.hpp"
#include "session_support.hpp"

namespace pooling_choice_test {

namespace {

using namespace tessera;
using tessera_tests::largest_difference;
using tessera_tests::serial_host;
using tessera_tests::session_dim;

using any_pooling = pooling_choice<encoder_pooling, target_pooling>;
template <class Pooling>
using pooling_model = click_model<local_tables, eigen_gemm, dot_products, Pooling>;
using any_model = pooling_model<any_pooling>;

transformer_encoder_options small_encoder() { return {.layers = 1, .heads = 2, .hidden = 12}; }
target_attention_options small_attention(bool softmax = false) {
  target_attention_options options;
  options.hidden = {6, 5};
  options.softmax = softmax;
  return options;
}

// Outputs "0" and "1" are one sequence, "2" is another; "3", "4" and "5" are bags of tables 3, 4 and 5, and meet in this order, whatever that of
// the keys that they are of.
template <class Pooling>
pooling_model<Pooling> make_pooling_model(host_exec const& exec, typename Pooling::options const& first,
                                          typename Pooling::options const& second, shared_gradients sums = shared_gradients::merged,
                                          std::vector<std::int64_t> const& bags_of_keys = {0, 1, 2}) {
  rowwise_adagrad const optimizer{.learning_rate = 0.05F};
  table_list tables;
  for (std::int64_t t = 0; t < 6; ++t)
    tables.add(
        dense_table<>(
            exec,
            table_options{
                .id = table_id{t}, .dim = session_dim, .rows = tessera_tests::session_ids, .init_bound = 0.5F, .seed = random_seed{3}},
            optimizer),
        optimizer);
  auto const all = tessera_tests::named(3, {{3, pooling::sum}, {4, pooling::max}, {5, pooling::mean}});
  std::vector<table_feature> features(all.begin(), all.begin() + 3);
  for (auto const bag : bags_of_keys) features.push_back(all[static_cast<std::size_t>(3 + bag)]);
  click_model_options const options{
      .dense_features = 3, .bottom_hidden = {6}, .top_hidden = {7}, .seed = random_seed{5}, .pooled = {"3", "4", "5"}};
  return {exec, options, {std::move(tables), std::move(features), {.sums = sums}}, {}, {{{"0", "1"}, first, "5"}, {{"2"}, second, "3"}}};
}

// Keys 0 and 1, key 2 and key 4 keep their lists for some samples. `reordered`: with key 4 before key 3, in a group of its own.
struct reordered_batch : tessera_tests::session_batch {
  inverse_keyed_jagged<> distinct, reordered;

  reordered_batch(host_exec const& exec, std::mt19937_64& random, std::int64_t samples)
      : tessera_tests::session_batch(exec, random, samples, 4), distinct(deduplicate(exec, rows.view(), std::vector<std::int64_t>{2, 1})) {
    std::swap(lists[3], lists[4]);
    auto const swapped = keyed_jagged<>::from_rows(exec, lists);
    reordered = deduplicate(exec, swapped.view(), std::vector<std::int64_t>{2, 1, 1});
  }

  batch_view shared() const { return with(distinct); }
};

template <class Model>
std::vector<float> contents_of(Model& model) {
  std::vector<float> all;
  for (auto const& group : model.groups()) all.insert(all.end(), group.values.begin(), group.values.end());
  for (auto const* const table : tessera_tests::tables_of<dense_table<>>(model))
    for (std::int64_t row = 0; row < tessera_tests::session_ids; ++row)
      all.insert(all.end(), table->row(row), table->row(row) + session_dim);
  return all;
}

template <class Model>
std::vector<float> trained_contents(host_exec const& exec, Model& model, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  trainer run(exec, model, adam{.learning_rate = 0.01F});
  for (int step = 0; step < 3; ++step) {
    reordered_batch const batch(exec, random, 40);
    run.step(exec, batch.shared());
  }
  return contents_of(model);
}

}  // namespace

TEST_CASE("a choice has the bits of the kind that is chosen, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    auto encoders = make_pooling_model<encoder_pooling>(exec, small_encoder(), small_encoder());
    auto chosen_encoders = make_pooling_model<any_pooling>(exec, small_encoder(), small_encoder());
    CHECK(trained_contents(exec, chosen_encoders, seed) == trained_contents(exec, encoders, seed));
    auto attentions = make_pooling_model<target_pooling>(exec, small_attention(), small_attention(true));
    auto chosen_attentions = make_pooling_model<any_pooling>(exec, small_attention(), small_attention(true));
    CHECK(trained_contents(exec, chosen_attentions, seed) == trained_contents(exec, attentions, seed));
    auto mixed = make_pooling_model<any_pooling>(exec, small_attention(), small_encoder());
    auto const found = trained_contents(exec, mixed, seed);
    if (first.empty()) first = found;
    CHECK(found == first);
    CHECK(mixed.sequence_groups()[0].pooling.index() == 1);
    CHECK(mixed.bytes() > static_cast<std::size_t>(mixed.parameter_count()) * sizeof(float));
  });
}

TEST_CASE("distinct rows train as expanded ones, whatever order the bags come in: expanded sums to the bit, merged sums nearly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(seed);
  sgd const dense{.learning_rate = 0.05F};
  std::vector<std::int64_t> const swapped{1, 0, 2};
  for (bool const attends : {true, false}) {
    CAPTURE(attends);
    any_pooling::options second = small_encoder();
    if (attends) second = small_attention(true);
    auto plain = make_pooling_model<any_pooling>(exec, small_attention(), second),
         exact = make_pooling_model<any_pooling>(exec, small_attention(), second, shared_gradients::expanded, swapped),
         merged = make_pooling_model<any_pooling>(exec, small_attention(), second, shared_gradients::merged, swapped);
    trainer of_plain(exec, plain, dense), of_exact(exec, exact, dense), of_merged(exec, merged, dense);
    for (int step = 0; step < 4; ++step) {
      reordered_batch const batch(exec, random, step == 2 ? 1 : 60);
      auto const loss = of_plain.step(exec, batch.plain());
      CHECK(of_exact.step(exec, batch.with(batch.reordered)) == loss);
      CHECK(std::abs(of_merged.step(exec, batch.with(batch.reordered)) - loss) < 1e-4);
      any_model::saved_type saved, shared;
      auto const a = plain.predict(exec, batch.plain(), saved), b = exact.predict(exec, batch.with(batch.reordered), shared);
      CHECK(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
    }
    CHECK(contents_of(exact) == contents_of(plain));
    CHECK(largest_difference(contents_of(merged), contents_of(plain)) < 2e-2);
    CHECK(exact.pooled_outputs() == std::vector<std::int64_t>{4, 3, 5});
  }
}

TEST_CASE("gradients of a mixed model are those of finite differences") {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto model = make_pooling_model<any_pooling>(exec, small_attention(true), small_encoder(), shared_gradients::merged, {1, 0, 2});
  reordered_batch const batch(exec, random, 20);
  tessera_tests::check_gradients(exec, model, batch.with(batch.reordered), tessera_tests::random_floats(random, 20));
}

TEST_CASE("a checkpoint goes on with the same bits, and tells what it is of") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  adam const dense{.learning_rate = 0.01F};
  auto model = make_pooling_model<any_pooling>(exec, small_encoder(), small_attention());
  trainer run(exec, model, dense);
  reordered_batch const before(exec, random, 30), after(exec, random, 30);
  run.step(exec, before.shared());
  save_checkpoint(exec, folder.path(), run, {.step = 1}, 1, [](std::string const&) { return std::vector<manifest_section>{}; });
  auto const from = open_newest_checkpoint(folder.path());
  run.step(exec, after.shared());

  auto resumed = make_pooling_model<any_pooling>(exec, small_encoder(), small_attention());
  trainer again(exec, resumed, dense);
  load_trainer(exec, from, again);
  again.step(exec, after.shared());
  CHECK(contents_of(resumed) == contents_of(model));

  auto const refusal = [&](any_pooling::options const& first, any_pooling::options const& second) {
    auto other = make_pooling_model<any_pooling>(exec, first, second);
    return std::string(tessera_tests::error_of([&] { load_model(exec, from, other); }).what());
  };
  auto const has = [](std::string const& text, std::string const& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal(small_encoder(), small_encoder()), "number 1, pooling attention softmax=0, expected transformer heads=2");
  has(refusal(small_encoder(), small_attention(true)),
      "field sequence_groups, number 1, pooling attention softmax=0, expected attention softmax=1");
  has(refusal(transformer_encoder_options{.layers = 1, .heads = 1, .hidden = 12}, small_attention()), "expected transformer heads=1");
  has(refusal(transformer_encoder_options{.layers = 1, .heads = 2, .hidden = 10}, small_attention()), "pooling.0");
  table_list tables;
  for (std::int64_t t = 0; t < 6; ++t) tables.add(dense_table<>(exec, model.source().table(t), rowwise_adagrad{}), rowwise_adagrad{});
  click_model<local_tables, eigen_gemm, dot_products> clicks(
      exec, {3, {6}, {7}, random_seed{5}},
      {std::move(tables), tessera_tests::named(0, {{3, pooling::sum}, {4, pooling::max}, {5, pooling::mean}})});
  has(tessera_tests::error_of([&] { load_model(exec, from, clicks); }).what(), "sequence_groups");
}

TEST_CASE("what does not fit is refused by name") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  // Only what reads a target needs one.
  auto const with_target = [&](any_pooling::options const& options, std::string const& target) {
    table_list tables;
    for (std::int64_t t = 0; t < 2; ++t)
      tables.add(dense_table<>(exec, table_options{.id = table_id{t}, .dim = session_dim, .rows = tessera_tests::session_ids}, sgd{}),
                 sgd{});
    any_model(exec, {.dense_features = 3}, {std::move(tables), tessera_tests::named(1, {{1, pooling::sum}})}, {},
              {{{"0"}, options, target}});
  };
  with_target(small_encoder(), "");
  with_target(small_attention(), "1");
  CHECK(refusal([&] { with_target(small_attention(), ""); }) == "click_model: no such output (output , outputs 2)");
  CHECK(refusal([&] { with_target(small_attention(), "0"); }) == "click_model: a target of a vector a sample (group 0, target 0)");
  // A backward takes what its own kind saved.
  any_pooling const one(exec, small_encoder(), session_dim, {}, 0), other(exec, small_attention(), session_dim, {}, 0);
  any_pooling::saved saved;
  std::vector<std::int64_t> const offsets{0, 1};
  std::vector<float> vector(session_dim, 1), out(session_dim);
  shared_sequences const sequences{{{vector.data(), 1, session_dim}, offsets.data(), 1}};
  one.forward(exec, eigen_gemm(), sequences, {}, {out.data(), 1, session_dim}, saved);
  CHECK(refusal([&] { other.backward(exec, eigen_gemm(), saved, {}, {}, {}, {}); }) ==
        "pooling_choice: a backward of what another kind's forward saved (backward attention, index of the forward's kind 0)");
}

TEST_CASE("a step allocates nothing after the first ones") {
  serial_host host;
  tessera::arena workspace(host.memory());
  auto const exec = host.exec().with_memory(workspace);
  std::mt19937_64 random(7);
  auto model = make_pooling_model<any_pooling>(host.exec(), small_encoder(), small_attention());
  {
    trainer run(host.exec(), model, adam{});
    reordered_batch const batch(host.exec(), random, 40);
    run.step(exec, batch.shared());
    run.step(exec, batch.shared());
    auto const before = host.memory().allocations();
    run.step(exec, batch.shared());
    CHECK(host.memory().allocations() == before);
  }
}

}  // namespace pooling_choice_test
