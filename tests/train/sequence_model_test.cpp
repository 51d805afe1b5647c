// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-weight: 8
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/hosts.hpp"
#include "../support/random.hpp"
#include "../support/temporary_folder.hpp"
#include "../support/type_lists.hpp"
#include "local_source.hpp"
#include "session_support.hpp"

namespace sequence_model_test {

namespace {

using namespace tessera;
using tessera_tests::largest_difference;
using tessera_tests::serial_host;
using tessera_tests::session_dim;
using tessera_tests::session_ids;

using encoder_model = click_model<local_tables, eigen_gemm, dot_products, encoder_pooling>;

// Two groups of sequences (2 and 1 keys, 3 tables), then three pooled features, of `first_table`, 4 and 3.
template <class Store, class Optimizer>
encoder_model make_encoder_model(host_exec const& exec, Optimizer const& optimizer, shared_gradients sums,
                                 pooled_rows rows = pooled_rows::distinct, std::int64_t first_table = 3) {
  std::vector<Store> tables;
  for (std::int64_t t = 0; t < 5; ++t)
    tables.emplace_back(exec,
                        table_options{.id = table_id{t},
                                      .dim = session_dim,
                                      .rows = Store::slots_are_ids ? session_ids : 0,
                                      .init_bound = 0.5F,
                                      .seed = random_seed{3}},
                        optimizer);
  transformer_encoder_options const encoder{.layers = 1, .heads = 2, .hidden = 12};
  local_tables source(tessera_tests::listed(std::move(tables), optimizer),
                      tessera_tests::named(3, {{first_table, pooling::sum}, {4, pooling::max}, {3, pooling::mean}}), {.sums = sums});
  return {exec,
          {.dense_features = 3, .bottom_hidden = {6}, .top_hidden = {7}, .seed = random_seed{5}, .rows = rows},
          std::move(source),
          {},
          {{{"0", "1"}, encoder}, {{"2"}, encoder}}};
}

// Keys 0 and 1, key 2 and key 3 keep their lists for some samples.
struct grouped_batch : tessera_tests::session_batch {
  inverse_keyed_jagged<> distinct;

  grouped_batch(host_exec const& exec, std::mt19937_64& random, std::int64_t samples)
      : tessera_tests::session_batch(exec, random, samples, 3),
        distinct(deduplicate(exec, rows.view(), std::vector<std::int64_t>{2, 1, 1})) {}

  batch_view shared() const { return with(distinct); }
};

template <class Store>
std::vector<float> parameters_and_rows(host_exec const& exec, encoder_model& model) {
  std::vector<float> all;
  for (auto const& group : model.groups()) all.insert(all.end(), group.values.begin(), group.values.end());
  for (auto const* const held : tessera_tests::tables_of<Store>(model)) {
    auto const& table = *held;
    for (std::int64_t id = 0; id < session_ids; ++id) {
      std::vector<std::int64_t> const ids{id};
      std::vector<std::int64_t> slot(1);
      table.find(exec, ids, slot);
      if (slot[0] < 0) continue;
      all.push_back(static_cast<float>(id));
      all.insert(all.end(), table.row(slot[0]), table.row(slot[0]) + session_dim);
    }
  }
  return all;
}

// A batch of six keys, of which the last have no values, and the same keys behind another one that has a value a sample.
struct part_of_another {
  grouped_batch copy;
  keyed_jagged<> all;
  inverse_keyed_jagged<> distinct;
  std::vector<row_group> groups;

  part_of_another(host_exec const& exec, std::mt19937_64& random, std::int64_t samples, int keys_without_values)
      : copy(exec, random, samples) {
    for (std::size_t key = 6 - static_cast<std::size_t>(keys_without_values); key < 6; ++key)
      for (auto& list : copy.lists[key].rows) list.clear();
    copy.rows = keyed_jagged<>::from_rows(exec, copy.lists);
    copy.distinct = deduplicate(exec, std::as_const(copy.rows).view(), std::vector<std::int64_t>{2, 1, 1});
    auto lists = copy.lists;
    std::vector<std::vector<std::int64_t>> others;
    for (std::int64_t i = 0; i < samples; ++i) others.push_back({i});
    lists.insert(lists.begin(), feature_rows<>("before", others));
    all = keyed_jagged<>::from_rows(exec, lists);
    distinct = deduplicate(exec, std::as_const(all).view(), std::vector<std::int64_t>{1, 2, 1, 1});
    for (auto group : std::as_const(distinct).view().groups) {
      if (--group.first_key >= 0) groups.push_back(group);
    }
  }

  batch_view part() const {
    auto batch = copy.plain();
    batch.sparse = all.view().slice_keys(1, 6);
    return batch;
  }
  batch_view shared_part() const {
    auto batch = copy.plain();
    batch.sparse = distinct.view().distinct.slice_keys(1, 6);
    batch.groups = groups;
    return batch;
  }
};

// Logits, gradients, and the model after its step.
template <class Store>
std::vector<float> one_step(host_exec const& exec, batch_view const& batch, shared_gradients sums, pooled_rows rows) {
  sgd const optimizer{.learning_rate = 0.1F};
  auto model = make_encoder_model<Store>(exec, optimizer, sums, rows);
  encoder_model::saved_type saved, predicted;
  std::vector<float> all;
  auto const add = [&](auto const& values) { all.insert(all.end(), values.begin(), values.end()); };
  add(model.predict(exec, batch, predicted));
  add(model.forward(exec, batch, saved));
  std::vector<float> slopes(static_cast<std::size_t>(batch.samples()), 1), gradient(static_cast<std::size_t>(model.parameter_count()));
  model.backward(exec, saved, slopes, gradient);
  add(gradient);
  row_gradients of_rows;
  model.gradients_of_rows(exec, saved, of_rows);
  for (std::int64_t t = 0; t < of_rows.tables(); ++t) add(of_rows.ids(t));
  add(of_rows.values());
  model.update_rows(exec, saved);
  add(parameters_and_rows<Store>(exec, model));
  return all;
}

// A pooling that needs no memory.
class sum_pooling {
 public:
  struct options {};
  struct saved {
    shared_sequences sequences;
  };
  static constexpr std::string_view name = "sum";
  static constexpr bool uses_target = false;

  sum_pooling(host_exec const&, options const&, std::int64_t, random_seed, std::uint32_t) {}
  static std::string describe(options const&) { return "sum"; }
  static vector_view<float> parameters() noexcept { return {}; }
  static std::vector<parameter_block> blocks(std::string_view) { return {}; }
  static std::size_t bytes() noexcept { return 0; }

  template <class Gemm>
  static void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
                      matrix_view<float> out, saved& saved) {
    predict(exec, policy, sequences, targets, out);
    saved.sequences = sequences;
  }
  template <class Gemm>
  static void predict(host_exec const&, Gemm const&, shared_sequences sequences, matrix_view<float const>, matrix_view<float> out) {
    for (std::int64_t i = 0; i < out.rows(); ++i)
      for (std::int64_t c = 0; c < out.columns(); ++c) {
        out(i, c) = 0;
        auto const row = sequences.rows.row(sequences.inverse.empty() ? i : sequences.inverse[i]);
        for (std::int64_t v = 0; v < row.rows(); ++v) out(i, c) += row(v, c);
      }
  }
  template <class Gemm>
  static void backward(host_exec const&, Gemm const&, saved& saved, matrix_view<float const> out_gradient, vector_view<float>,
                       matrix_view<float> vector_gradient, matrix_view<float>) {
    auto const rows = saved.sequences.rows;
    for (std::int64_t i = 0; i < out_gradient.rows(); ++i)
      for (auto v = rows.begin_of(i); v < rows.end_of(i); ++v)
        for (std::int64_t c = 0; c < out_gradient.columns(); ++c) vector_gradient(v, c) = out_gradient(i, c);
  }
};
static_assert(sequence_pooler<sum_pooling>);

}  // namespace

TEST_CASE_TEMPLATE("distinct rows train as expanded ones do: expanded sums to the bit, merged sums nearly, on any threads", Store,
                   TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    rowwise_adagrad const rows{.learning_rate = 0.05F};
    sgd const dense{.learning_rate = 0.05F};
    auto plain = make_encoder_model<Store>(exec, rows, shared_gradients::merged),
         exact = make_encoder_model<Store>(exec, rows, shared_gradients::expanded),
         merged = make_encoder_model<Store>(exec, rows, shared_gradients::merged),
         lookups = make_encoder_model<Store>(exec, rows, shared_gradients::merged, pooled_rows::expanded);
    trainer of_plain(exec, plain, dense), of_exact(exec, exact, dense), of_merged(exec, merged, dense), of_lookups(exec, lookups, dense);
    for (int step = 0; step < 4; ++step) {
      grouped_batch const batch(exec, random, step == 2 ? 1 : 60);
      auto const loss = of_plain.step(exec, batch.plain());
      CHECK(of_exact.step(exec, batch.shared()) == loss);
      CHECK(std::abs(of_merged.step(exec, batch.shared()) - loss) < 1e-4);
      CHECK(std::abs(of_lookups.step(exec, batch.shared()) - loss) < 1e-4);
      encoder_model::saved_type saved, shared;
      auto const a = plain.predict(exec, batch.plain(), saved), b = exact.predict(exec, batch.shared(), shared);
      CHECK(std::vector<float>(a.begin(), a.end()) == std::vector<float>(b.begin(), b.end()));
    }
    auto const of_rows = parameters_and_rows<Store>(exec, plain);
    CHECK(parameters_and_rows<Store>(exec, exact) == of_rows);
    CHECK(largest_difference(parameters_and_rows<Store>(exec, merged), of_rows) < 2e-2);
    CHECK(largest_difference(parameters_and_rows<Store>(exec, lookups), of_rows) < 2e-2);
    if (first.empty()) first = parameters_and_rows<Store>(exec, merged);
    CHECK(parameters_and_rows<Store>(exec, merged) == first);
  });
}

TEST_CASE_TEMPLATE("a group of the model that is none of the batch has a row a sample", Store, TESSERA_TEST_STORES) {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  rowwise_adagrad const optimizer{.learning_rate = 0.05F};
  auto plain = make_encoder_model<Store>(exec, optimizer, shared_gradients::merged),
       exact = make_encoder_model<Store>(exec, optimizer, shared_gradients::expanded),
       merged = make_encoder_model<Store>(exec, optimizer, shared_gradients::merged);
  trainer of_plain(exec, plain, sgd{}), of_exact(exec, exact, sgd{}), of_merged(exec, merged, sgd{});
  for (int step = 0; step < 3; ++step) {
    grouped_batch const batch(exec, random, 60);
    auto const first_alone = deduplicate(exec, batch.rows.view(), std::vector<std::int64_t>{2});
    auto const loss = of_plain.step(exec, batch.plain());
    CHECK(of_exact.step(exec, batch.with(first_alone)) == loss);
    CHECK(std::abs(of_merged.step(exec, batch.with(first_alone)) - loss) < 1e-4);
  }
  CHECK(parameters_and_rows<Store>(exec, exact) == parameters_and_rows<Store>(exec, plain));
  CHECK(largest_difference(parameters_and_rows<Store>(exec, merged), parameters_and_rows<Store>(exec, plain)) < 2e-2);
}

TEST_CASE_TEMPLATE("a batch that is a part of another trains as a copy of it, without values and samples, too", Store,
                   TESSERA_TEST_STORES) {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const samples : {0, 1, 30})
    for (int const keys_without_values : {0, 1, 2, 3, 6})
      for (auto const sums : {shared_gradients::merged, shared_gradients::expanded})
        for (auto const rows : {pooled_rows::distinct, pooled_rows::expanded}) {
          CAPTURE(samples);
          CAPTURE(keys_without_values);
          CAPTURE(static_cast<int>(sums));
          CAPTURE(static_cast<int>(rows));
          part_of_another const batch(exec, random, samples, keys_without_values);
          auto const is_as = [&](batch_view const& part, batch_view const& copy) {
            REQUIRE(part.sparse.offsets[part.sparse.first_row[0]] == samples);
            CHECK(one_step<Store>(exec, part, sums, rows) == one_step<Store>(exec, copy, sums, rows));
          };
          is_as(batch.part(), batch.copy.plain());
          is_as(batch.shared_part(), batch.copy.shared());
        }
}

TEST_CASE("vectors of sequences are there once, their gradients once, and nothing else that is as large") {
  serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 256, samples = 20, length = 100;
  for (std::int64_t const keys : {1, 2, 3}) {
    CAPTURE(keys);
    std::vector<dense_table<>> tables;
    std::vector<std::string> names;
    std::vector<feature_rows<>> lists;
    for (std::int64_t key = 0; key < keys; ++key) {
      tables.emplace_back(exec, table_options{.id = table_id{key}, .dim = dim, .rows = 2}, sgd{});
      names.push_back(std::to_string(key));
      lists.emplace_back("key " + std::to_string(key),
                         std::vector<std::vector<std::int64_t>>(samples, std::vector<std::int64_t>(length, key % 2)));
    }
    click_model<local_tables, eigen_gemm, dot_products, sum_pooling> model(
        exec, {1, {2}, {2}}, {tessera_tests::listed(std::move(tables), sgd{}), tessera_tests::named(keys, {})}, {}, {{names}});
    auto const ids = keyed_jagged<>::from_rows(exec, lists);
    std::vector<float> const dense(samples), labels(samples);
    std::vector<std::int64_t> const sample_ids(samples);
    batch_view const batch{{dense.data(), samples, 1}, labels, ids.view(), sample_ids};
    auto const vectors = static_cast<double>(keys * samples * length * dim) * sizeof(float);
    tessera_tests::counting_memory memory;
    auto const counted = exec.with_memory(memory);
    decltype(model)::saved_type saved;
    auto const peak = [&] { return static_cast<double>(memory.peak_bytes()) / vectors; };
    // The pooled vectors of all samples, and what sorts the ids, are small beside them.
    model.forward(counted, batch, saved);
    CHECK(peak() > 1);
    CHECK(peak() < (keys == 1 ? 1 : 2) + 0.2);
    std::vector<float> slopes(samples, 1), gradient(static_cast<std::size_t>(model.parameter_count()));
    model.backward(counted, saved, slopes, gradient);
    model.update_rows(counted, saved);
    CHECK(peak() > 2);
    CHECK(peak() < 2.2);
    model.forward(counted, batch, saved);
    CHECK(peak() < 2.2);
  }
}

TEST_CASE("accumulated micro-batches make the step of one batch, nearly") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(tessera_tests::draw_seed());
  sgd const optimizer{.learning_rate = 0.1F};
  auto one = make_encoder_model<dense_table<>>(exec, optimizer, shared_gradients::merged),
       many = make_encoder_model<dense_table<>>(exec, optimizer, shared_gradients::merged);
  trainer of_one(exec, one, optimizer), of_many(exec, many, optimizer);
  grouped_batch const batch(exec, random, 50);
  of_one.step(exec, batch.shared());
  of_many.accumulate(exec, batch.shared(), 0.25F);
  of_many.accumulate(exec, batch.plain(), 0.75F);
  of_many.update(exec);
  CHECK(largest_difference(parameters_and_rows<dense_table<>>(exec, one), parameters_and_rows<dense_table<>>(exec, many)) < 1e-4);
}

TEST_CASE("gradients are those of finite differences, of tables that a sequence and a bag read, too") {
  serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const first_table : {3, 1, 2}) {
    CAPTURE(first_table);
    auto model =
        make_encoder_model<dense_table<>>(exec, sgd{.learning_rate = 1}, shared_gradients::merged, pooled_rows::distinct, first_table);
    grouped_batch const batch(exec, random, 20);
    tessera_tests::check_gradients(exec, model, batch.shared(), tessera_tests::random_floats(random, 20));
  }
}

TEST_CASE_TEMPLATE("a table that a sequence and a bag read takes one step a batch, distinct rows as expanded ones", Store,
                   TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    adam const rows{.learning_rate = 0.01F};
    auto const make = [&](shared_gradients sums) { return make_encoder_model<Store>(exec, rows, sums, pooled_rows::distinct, 1); };
    auto plain = make(shared_gradients::merged), exact = make(shared_gradients::expanded), clipped = make(shared_gradients::merged);
    trainer of_plain(exec, plain, sgd{.learning_rate = 0.05F}), of_exact(exec, exact, sgd{.learning_rate = 0.05F}),
        of_clipped(exec, clipped, sgd{.learning_rate = 0.05F}, {.clip_norm = 1e9F});
    for (int step = 0; step < 4; ++step) {
      grouped_batch const batch(exec, random, 40);
      auto const loss = of_plain.step(exec, batch.plain());
      CHECK(of_exact.step(exec, batch.shared()) == loss);
      CHECK(of_clipped.step(exec, batch.plain()) == loss);  // row gradients, and one update with them
    }
    for (auto const* const table : tessera_tests::tables_of<Store>(plain)) CHECK(table->steps().value == 4);
    auto const trained = parameters_and_rows<Store>(exec, plain);
    CHECK(parameters_and_rows<Store>(exec, exact) == trained);
    CHECK(parameters_and_rows<Store>(exec, clipped) == trained);
    if (first.empty()) first = trained;
    CHECK(trained == first);
  });
}

TEST_CASE("batches and shapes that do not fit are refused by name") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto model = make_encoder_model<dense_table<>>(exec, sgd{}, shared_gradients::merged);
  grouped_batch const batch(exec, random, 4);
  encoder_model::saved_type saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  auto others = batch.shared();
  auto const apart = deduplicate(exec, batch.rows.view(), std::vector<std::int64_t>{1, 1, 1});
  others.sparse = std::as_const(apart).view().distinct;
  others.groups = std::as_const(apart).view().groups;
  CHECK(refusal([&] { model.forward(exec, others, saved); }) ==
        "click_model: the keys of a group are one group of the batch, or have a row a sample (group 0, first key 0, keys 2)");
  auto few = batch.plain();
  few.sparse = few.sparse.slice_keys(0, 5);
  CHECK(refusal([&] { model.forward(exec, few, saved); }) ==
        "click_model: the batch does not fit the model (dense features 3, expected dense features 3, keys 5, expected keys 6)");
  auto const of_groups = [&](std::vector<encoder_model::group_type> groups, std::vector<std::string> pooled = {}) {
    std::vector<dense_table<>> tables;
    for (std::int64_t t = 0; t < 3; ++t) tables.emplace_back(exec, table_options{.id = table_id{t}, .dim = session_dim, .rows = 4}, sgd{});
    return refusal([&] {
      encoder_model(exec, {.dense_features = 3, .pooled = std::move(pooled)},
                    {tessera_tests::listed(std::move(tables), sgd{}), tessera_tests::named(2, {{2}})}, {}, std::move(groups));
    });
  };
  transformer_encoder_options const encoder{.layers = 1, .heads = 1, .hidden = 4};
  CHECK(of_groups({{{"0", "1"}, encoder}, {{"x"}, encoder}}) == "click_model: no such output (output x, outputs 3)");
  CHECK(of_groups({{{"0"}, encoder}}) == "click_model: a sequence that no group pools (output 1)");
  CHECK(of_groups({{{"0", "1"}, encoder}, {{"1"}, encoder}}) == "click_model: an output twice (output 1)");
  CHECK(of_groups({{{"0", "1"}, encoder}, {{"2"}, encoder}}) == "click_model: a group is of sequences (output 2)");
  CHECK(of_groups({{{"0", "1"}, encoder}, {{}, encoder}}) == "click_model: a group without outputs (group 1)");
  CHECK(of_groups({{{"1", "0"}, encoder}}) == "click_model: keys of a group follow one another (group 0, output 0, key 0, first key 1)");
  CHECK(of_groups({{{"0", "1"}, encoder}}, {"0"}) == "click_model: an output twice (output 0)");
  CHECK(of_groups({{{"0"}, encoder}}, {"1", "2"}) == "click_model: a sequence that no group pools (output 1)");
  using unpooled = click_model<local_tables, eigen_gemm, dot_products>;
  CHECK(refusal([&] {
          std::vector<dense_table<>> tables;
          for (std::int64_t t = 0; t < 3; ++t)
            tables.emplace_back(exec, table_options{.id = table_id{t}, .dim = session_dim, .rows = 4}, sgd{});
          unpooled(exec, {.dense_features = 3}, {tessera_tests::listed(std::move(tables), sgd{}), tessera_tests::named(2, {{2}})}, {},
                   {{{"0", "1"}}});
        }) == "no_pooling: a model without poolings has no groups of sequences");
}

TEST_CASE("gradients take the place of the vectors: another backward needs another forward") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto model = make_encoder_model<dense_table<>>(exec, sgd{}, shared_gradients::merged);
  grouped_batch const batch(exec, random, 4);
  encoder_model::saved_type saved;
  std::vector<float> gradient(static_cast<std::size_t>(model.parameter_count()));
  auto const go_back = [&] {
    std::vector<float> slopes(4, 1);
    model.backward(exec, saved, slopes, gradient);
  };
  model.forward(exec, batch.shared(), saved);
  go_back();
  CHECK(tessera_tests::error_of(go_back).code() == errc::invalid_argument);
  row_gradients once, twice;
  model.gradients_of_rows(exec, saved, once);
  model.gradients_of_rows(exec, saved, twice);
  CHECK(std::vector<float>(once.values().begin(), once.values().end()) == std::vector<float>(twice.values().begin(), twice.values().end()));
  CHECK(tessera_tests::error_of(go_back).code() == errc::invalid_argument);
  model.forward(exec, batch.shared(), saved);
  go_back();
  model.update_rows(exec, saved);
  CHECK(tessera_tests::error_of(go_back).code() == errc::invalid_argument);
}

}  // namespace sequence_model_test
