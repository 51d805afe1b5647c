// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
// ctest-weight: 4
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/counting_memory.hpp"
#include "../support/hosts.hpp"
#include "click_batches.hpp"
#include "local_source.hpp"

namespace click_model_test {

namespace {

using namespace tessera;
using tessera_tests::serial_host;
using tessera_tests::source_of;
using json = nlohmann::json;

void check_close(vector_view<float const> found, std::vector<float> const& expected) {
  REQUIRE(found.size() == static_cast<std::int64_t>(expected.size()));
  for (std::int64_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[static_cast<std::size_t>(i)]) < 2e-5F);
}

std::vector<float> flat(json const& values) {
  if (!values.is_array()) return {values.get<float>()};
  std::vector<float> result;
  for (auto const& v : values)
    for (float const f : flat(v)) result.push_back(f);
  return result;
}

template <class Store>
void set_parameters(host_exec const& exec, dlrm<local_tables, eigen_gemm>& model, json const& from) {
  for (std::size_t t = 0; t < 3; ++t) {
    auto& table = model.source().store<Store>(static_cast<std::int64_t>(t));
    auto const rows = from["tables"][t];
    std::vector<std::int64_t> ids, slots(rows.size());
    for (std::size_t id = 0; id < rows.size(); ++id) ids.push_back(static_cast<std::int64_t>(id));
    table.locate(exec, ids, slots, {});
    for (std::size_t id = 0; id < rows.size(); ++id) {
      auto const row = flat(rows[id]);
      std::copy(row.begin(), row.end(), table.row(slots[id]));
    }
  }
  auto const set = [](mlp& net, json const& layers) {
    std::vector<float> all;
    for (auto const& l : layers)
      for (char const* part : {"weight", "bias"})
        for (float const f : flat(l[part])) all.push_back(f);
    REQUIRE(net.parameters().size() == static_cast<std::int64_t>(all.size()));
    std::copy(all.begin(), all.end(), net.parameters().begin());
  };
  set(model.bottom(), from["bottom"]);
  set(model.top(), from["top"]);
}

template <class Store>
void check_parameters(host_exec const& exec, dlrm<local_tables, eigen_gemm>& model, json const& expected) {
  for (std::size_t t = 0; t < 3; ++t) {
    auto& table = model.source().store<Store>(static_cast<std::int64_t>(t));
    for (std::size_t id = 0; id < expected["tables"][t].size(); ++id) {
      std::vector<std::int64_t> const ids{static_cast<std::int64_t>(id)};
      std::vector<std::int64_t> slots(1);
      table.locate(exec, ids, slots, {});
      check_close({table.row(slots[0]), table.dim()}, flat(expected["tables"][t][id]));
    }
  }
  auto const check = [](mlp& net, json const& layers) {
    for (std::int64_t l = 0; l < net.layers(); ++l) {
      auto const part = net.layer(net.parameters(), l);
      check_close({part.weight.data(), part.weight.rows() * part.weight.columns()}, flat(layers[static_cast<std::size_t>(l)]["weight"]));
      check_close({part.bias.data(), part.bias.size()}, flat(layers[static_cast<std::size_t>(l)]["bias"]));
    }
  };
  check(model.bottom(), expected["bottom"]);
  check(model.top(), expected["top"]);
}

template <class Store>
std::vector<Store> made_tables(host_exec const& exec, std::vector<std::int64_t> const& rows, std::int64_t dim, auto const& optimizer,
                               random_seed seed) {
  std::vector<Store> tables;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    auto const id = static_cast<std::int64_t>(t);
    tables.emplace_back(exec, table_options{table_id{id}, dim, rows[t], 0.3F, seed}, optimizer);
  }
  return tables;
}

template <class Store>
void reproduces_the_debug_run() {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/train/dlrm_debug.json");
  auto const data = json::parse(file);
  serial_team team;
  system_memory memory;
  host_exec const exec(team, memory);
  sgd const rate{data["learning_rate"].get<float>()};
  dlrm<local_tables, eigen_gemm> model(exec, {4, {3}, {4, 2}},
                                       source_of(made_tables<Store>(exec, {4, 3, 2}, 2, rate, {}), {{0}, {1}, {2}}, rate));
  set_parameters<Store>(exec, model, data["before"]);
  auto const of_bottom = model.bottom().parameters().size(), of_top = model.top().parameters().size();
  REQUIRE(model.parameter_count() == of_bottom + of_top);
  dense_optimizer_state bottom_state(exec, of_bottom, rate), top_state(exec, of_top, rate);
  buffer<float> gradients(exec, model.parameter_count());
  dlrm<local_tables, eigen_gemm>::saved_type saved;
  for (auto const& given : data["batches"]) {
    std::vector<feature_rows<std::int64_t>> features;
    for (auto const& bags : given["ids"])
      features.emplace_back(std::to_string(features.size()), bags.get<std::vector<std::vector<std::int64_t>>>());
    auto const ids = keyed_jagged<>::from_rows(exec, features);
    auto const dense = flat(given["dense"]), labels = flat(given["label"]);
    std::vector<std::int64_t> const sample_ids{0, 1};
    batch_view const batch{{dense.data(), 2, 4}, labels, ids.view(), sample_ids};

    // The reference ends in a sigmoid and a squared error: a loss of the caller's own.
    auto const logits = model.forward(exec, batch, saved);
    std::vector<float> probabilities(2), gradient(2);
    sigmoid_forward(exec, logits, probabilities);
    auto const loss = mean_squared_error(exec, probabilities, labels, gradient);
    CHECK(std::abs(loss - given["loss"].get<double>()) < 2e-5);
    sigmoid_backward(exec, probabilities, gradient);
    model.backward(exec, saved, gradient, gradients.view());
    model.update_rows(exec, saved);
    dense_update(exec, model.bottom().parameters(), gradients.view().slice(0, of_bottom), bottom_state, rate);
    dense_update(exec, model.top().parameters(), gradients.view().slice(of_bottom, of_top), top_state, rate);
  }
  check_parameters<Store>(exec, model, data["after"]);
}

// Trains on random clicks and returns every number that could differ: dense parameters, then predictions on ids seen and unseen.
template <class Store, class Interaction>
std::vector<float> trained(auto& team, std::int64_t steps, typename Interaction::options const& interaction,
                           trainer_options const& options) {
  using model_type = click_model<local_tables, eigen_gemm, Interaction>;
  system_memory memory;
  host_exec const exec(team, memory);
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  rowwise_adagrad const rows{0.05F};
  adam const dense{0.01F};
  model_type model(exec, {5, {32}, {24, 8}, random_seed{3}},
                   source_of(made_tables<Store>(exec, {50, 7, 1000}, 12, rows, random_seed{5}), {{0}, {1, pooling::mean}, {2}, {0}}, rows),
                   interaction);
  trainer run(exec, model, dense, options);
  tessera_tests::click_batches clicks(5, {50, 7, 1000, 50}, random_seed{11});
  for (std::int64_t i = 0; i < steps; ++i) run.step(step_exec, clicks.next(exec, i % 3 == 2 ? 17 : 96));
  std::vector<float> result;
  for (auto const& group : model.groups()) result.insert(result.end(), group.values.begin(), group.values.end());
  typename model_type::saved_type saved;
  auto const logits = model.predict(exec, clicks.next(exec, 300), saved);
  result.insert(result.end(), logits.begin(), logits.end());
  return result;
}

template <class Interaction>
void differs_in_no_bit(typename Interaction::options const& interaction = {}, trainer_options const& options = {}) {
  serial_team one;
  auto const expected = trained<dense_table<>, Interaction>(one, 20, interaction, options);
  for (int const threads : {2, 3}) {
    thread_pool pool(threads);
    CHECK(trained<dense_table<>, Interaction>(pool, 20, interaction, options) == expected);
    CHECK(trained<hash_table<>, Interaction>(pool, 20, interaction, options) == expected);
  }
}

}  // namespace

TEST_CASE("the reference's debug run comes out the same, losses and parameters") {
  SUBCASE("dense tables") { reproduces_the_debug_run<dense_table<>>(); }
  SUBCASE("hashed tables") { reproduces_the_debug_run<hash_table<>>(); }
}

TEST_CASE("the number of threads and the kind of store change no bit of training") {
  SUBCASE("DLRM") { differs_in_no_bit<dot_products>(); }
  SUBCASE("DCN") { differs_in_no_bit<cross_layers>({.layers = 2}); }
  SUBCASE("DCN of low rank") { differs_in_no_bit<cross_layers>({.layers = 2, .rank = 7}); }
  SUBCASE("DCN, clipped") { differs_in_no_bit<cross_layers>({.layers = 2}, {.clip_norm = 0.05F}); }
  SUBCASE("DeepFM") { differs_in_no_bit<factorization>(); }
}

TEST_CASE_TEMPLATE("the dense parameters are those of the groups, by name", Interaction, dot_products, cross_layers, factorization) {
  serial_host host;
  auto const exec = host.exec();
  click_model<local_tables, eigen_gemm, Interaction> model(
      exec, {5, {7}, {6}}, source_of(made_tables<dense_table<>>(exec, {3, 4}, 5, sgd{}, {}), {{0}, {1}, {1, pooling::mean}}, sgd{}));
  std::int64_t count = 0, in_blocks = 0;
  std::vector<std::string> names;
  for (auto const& group : model.groups()) {
    count += group.values.size();
    names.emplace_back(group.name);
    float const* at = group.values.begin();
    for (auto const& block : model.blocks()) {  // each group's blocks follow each other in its memory
      if (!block.name.starts_with(names.back() + ".")) continue;
      CHECK(block.values.data() == at);
      at += block.values.size();
      in_blocks += block.values.size();
    }
    CHECK(at == group.values.end());
  }
  CHECK(names == std::vector<std::string>{"bottom", "interaction", "top"});
  CHECK(count == model.parameter_count());
  CHECK(in_blocks == count);
  CHECK(model.groups()[1].values.empty() == !std::is_same_v<Interaction, cross_layers>);
  CHECK(model.bytes() >= static_cast<std::size_t>(count) * sizeof(float) + model.source().bytes());
}

TEST_CASE("what makes no model is refused") {
  serial_host host;
  auto const exec = host.exec();
  using model_type = deepfm<local_tables, eigen_gemm>;
  click_model_options const options{5, {7}, {6}};
  auto const refused = [&](std::vector<dense_table<>> tables, std::vector<pooled_feature> const& features, errc code) {
    try {
      model_type const model(exec, options, source_of(std::move(tables), features, sgd{}));
      FAIL("no error");
    } catch (error const& e) {
      CHECK(e.code() == code);
    }
  };
  refused({}, {}, errc::invalid_argument);
  refused(made_tables<dense_table<>>(exec, {3, 4}, 5, sgd{}, {}), {{2}}, errc::out_of_range);
  refused(made_tables<dense_table<>>(exec, {3, 4}, 5, sgd{}, {}), {{-1}}, errc::out_of_range);
  refused(made_tables<dense_table<>>(exec, {3}, 1, sgd{}, {}), {{0}}, errc::invalid_argument);  // one factor and a weight at least
  auto tables = made_tables<dense_table<>>(exec, {3}, 5, sgd{}, {});
  tables.push_back(std::move(made_tables<dense_table<>>(exec, {3}, 5, sgd{}, {})[0]));
  refused(std::move(tables), {{0}, {1}}, errc::invalid_argument);  // two of one id
  tables = made_tables<dense_table<>>(exec, {3, 3}, 5, sgd{}, {});
  tables[1] = std::move(made_tables<dense_table<>>(exec, {3, 3}, 6, sgd{}, {})[1]);
  refused(std::move(tables), {{0}, {1}}, errc::shape_mismatch);
  CHECK_THROWS_AS((dcn<local_tables, eigen_gemm>(
                      exec, options, source_of(made_tables<dense_table<>>(exec, {3}, 5, sgd{}, {}), {{0}}, sgd{}), {.rank = 11})),
                  error);
}

}  // namespace click_model_test
