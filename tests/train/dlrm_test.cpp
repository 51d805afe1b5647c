// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/dlrm.hpp>
#include <tessera/train/trainer.hpp>

#include "../support/counting_memory.hpp"
#include "../support/hosts.hpp"
#include "click_batches.hpp"

namespace {

using namespace tessera;
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
void set_parameters(host_exec const& exec, dlrm<Store, eigen_gemm>& model, json const& from) {
  for (std::size_t t = 0; t < 3; ++t) {
    auto& table = model.tables()[t];
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
void check_parameters(host_exec const& exec, dlrm<Store, eigen_gemm>& model, json const& expected) {
  for (std::size_t t = 0; t < 3; ++t) {
    auto& table = model.tables()[t];
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
std::vector<Store> tables_of(host_exec const& exec, std::vector<std::int64_t> const& rows, std::int64_t dim, auto const& optimizer,
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
  dlrm<Store, eigen_gemm> model(exec, dlrm_options(4, {3}, {4, 2}), tables_of<Store>(exec, {4, 3, 2}, 2, rate, {}), {{0}, {1}, {2}});
  set_parameters(exec, model, data["before"]);
  dense_optimizer_state bottom_state(exec, model.bottom().parameters().size(), rate),
      top_state(exec, model.top().parameters().size(), rate);
  buffer<float> bottom_gradient(exec, bottom_state.parameters()), top_gradient(exec, top_state.parameters());
  dlrm_saved saved;
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
    model.backward(exec, saved, gradient, bottom_gradient.view(), top_gradient.view(), rate);
    dense_update(exec, model.bottom().parameters(), bottom_gradient.view(), bottom_state, rate);
    dense_update(exec, model.top().parameters(), top_gradient.view(), top_state, rate);
  }
  check_parameters(exec, model, data["after"]);
}

// Trains on random clicks and returns every number that could differ: dense parameters, then predictions on ids seen and unseen.
template <class Store>
std::vector<float> trained(auto& team, std::int64_t steps) {
  system_memory memory;
  host_exec const exec(team, memory);
  arena workspace(memory);
  auto const step_exec = exec.with_memory(workspace);
  rowwise_adagrad const rows{0.05F};
  adam const dense{0.01F};
  dlrm<Store, eigen_gemm> model(exec, dlrm_options(5, {32}, {24, 8}, random_seed{3}),
                                tables_of<Store>(exec, {50, 7, 1000}, 12, rows, random_seed{5}), {{0}, {1, pooling::mean}, {2}, {0}});
  trainer run(exec, model, rows, dense);
  tessera_tests::click_batches clicks(5, {50, 7, 1000, 50}, random_seed{11});
  for (std::int64_t i = 0; i < steps; ++i) run.step(step_exec, clicks.next(exec, i % 3 == 2 ? 17 : 96));
  std::vector<float> result(model.bottom().parameters().begin(), model.bottom().parameters().end());
  result.insert(result.end(), model.top().parameters().begin(), model.top().parameters().end());
  dlrm_saved saved;
  auto const logits = model.predict(exec, clicks.next(exec, 300), saved);
  result.insert(result.end(), logits.begin(), logits.end());
  return result;
}

}  // namespace

TEST_CASE("the reference's debug run comes out the same, losses and parameters") {
  SUBCASE("dense tables") { reproduces_the_debug_run<dense_table<>>(); }
  SUBCASE("hashed tables") { reproduces_the_debug_run<hash_table<>>(); }
}

TEST_CASE("the number of threads and the kind of store change no bit of training") {
  serial_team one;
  auto const expected = trained<dense_table<>>(one, 20);
  for (int const threads : {2, 3}) {
    thread_pool pool(threads);
    CHECK(trained<dense_table<>>(pool, 20) == expected);
    CHECK(trained<hash_table<>>(pool, 20) == expected);
  }
}
