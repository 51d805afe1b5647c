// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/train/position_vectors.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "session_support.hpp"

namespace position_vectors_test {

namespace {

using namespace tessera;
using tessera_tests::session_batch;
using tessera_tests::session_dim;

using encoder_model = click_model<local_tables, eigen_gemm, dot_products, encoder_pooling>;

/// Keys 0 and 1 put together, key 2 alone, both pooled by an encoder that by itself sees no order; three bags.
encoder_model model_of(host_exec const& exec, std::int64_t positions) {
  table_list tables;
  std::vector<table_feature> features;
  for (std::int64_t key = 0; key < 6; ++key) {
    table_options const options{.id = table_id{key}, .dim = session_dim, .rows = tessera_tests::session_ids, .init_bound = 0.5F};
    tables.add(dense_table<>(exec, options, sgd{}), sgd{});
    features.push_back({.name = std::to_string(key), .table = key, .sequence = key < 3});
  }
  transformer_encoder_options const encoder{.layers = 1, .heads = 2, .hidden = 12};
  return {exec,
          {3, {6}, {7}, random_seed{5}},
          {std::move(tables), std::move(features)},
          {},
          {{.outputs = {"0", "1"}, .pooling = encoder, .positions = positions}, {.outputs = {"2"}, .pooling = encoder}}};
}

std::vector<float> predicted(host_exec const& exec, encoder_model const& model, batch_view const& batch) {
  encoder_model::saved_type saved;
  auto const logits = model.predict(exec, batch, saved);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("position_vectors: each vector gets that of its place from the end; sums of gradients against a naive way, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    for (std::int64_t const count : {1, 3, 20}) {
      position_vectors positions(exec, count, 5, random_seed{3}, 7);
      auto const lengths = tessera_tests::random_integers<std::int64_t>(random, 90, 0, 9);
      std::vector<std::int64_t> offsets{0};
      for (auto const length : lengths) offsets.push_back(offsets.back() + length);
      auto const before = tessera_tests::random_floats(random, static_cast<std::size_t>(5 * offsets.back()));
      auto values = before;
      positions.add(exec, {{values.data(), offsets.back(), 5}, offsets.data(), 90});
      std::vector<double> sums(static_cast<std::size_t>(5 * count));
      for (std::size_t row = 0; row < lengths.size(); ++row)
        for (auto i = offsets[row]; i < offsets[row + 1]; ++i)
          for (std::int64_t c = 0; c < 5; ++c) {
            auto const p = std::min(offsets[row + 1] - 1 - i, count - 1), at = 5 * i + c;
            CHECK(values[static_cast<std::size_t>(at)] == before[static_cast<std::size_t>(at)] + positions.parameters()[5 * p + c]);
            sums[static_cast<std::size_t>(5 * p + c)] += static_cast<double>(before[static_cast<std::size_t>(at)]);
          }
      std::vector<float> gradient(sums.size(), 99.0F);
      positions.backward(exec, {{before.data(), offsets.back(), 5}, offsets.data(), 90}, gradient);
      for (std::size_t i = 0; i < sums.size(); ++i) CHECK(static_cast<double>(gradient[i]) == doctest::Approx(sums[i]).epsilon(1e-4));
    }
  });
  tessera_tests::serial_host h;
  CHECK(tessera_tests::error_of([&] { position_vectors(h.exec(), 0, 5, {}, 0); }).value("count") == "0");
  position_vectors const positions(h.exec(), 2, 5, {}, 0);
  std::vector<float> gradient(9);
  CHECK(tessera_tests::error_of([&] { positions.backward(h.exec(), {}, gradient); }).code() == errc::shape_mismatch);
}

TEST_CASE("a model with positions sees the order of a sequence, one without does not") {
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  std::mt19937_64 random(11), again(11);
  session_batch const batch(exec, random, 30, 3);
  session_batch reversed(exec, again, 30, 3);
  for (auto& row : reversed.lists[2].rows) std::reverse(row.begin(), row.end());  // of the group without positions
  reversed.rows = keyed_jagged<>::from_rows(exec, reversed.lists);
  auto const with = model_of(exec, 6), without = model_of(exec, 0);
  auto const near = [](std::vector<float> const& a, std::vector<float> const& b) { return tessera_tests::largest_difference(a, b) < 1e-4; };
  CHECK(near(predicted(exec, with, batch.plain()), predicted(exec, with, reversed.plain())));
  for (auto& row : reversed.lists[0].rows) std::reverse(row.begin(), row.end());
  reversed.rows = keyed_jagged<>::from_rows(exec, reversed.lists);
  CHECK_FALSE(near(predicted(exec, with, batch.plain()), predicted(exec, with, reversed.plain())));
  CHECK(near(predicted(exec, without, batch.plain()), predicted(exec, without, reversed.plain())));
}

TEST_CASE("gradients of positions are those of finite differences, of distinct rows, too") {
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto model = model_of(exec, 4);
  CHECK(model.groups().back().name == "positions.0");
  CHECK(model.blocks().back().shape == std::vector<std::int64_t>{4, session_dim});
  session_batch const batch(exec, random, 20, 3);
  tessera_tests::check_gradients(exec, model, batch.plain(), tessera_tests::random_floats(random, 20));
  auto const distinct = deduplicate(exec, batch.rows.view(), std::vector<std::int64_t>{2, 1});
  tessera_tests::check_gradients(exec, model, batch.with(distinct), tessera_tests::random_floats(random, 20));
  CHECK(tessera_tests::largest_difference(predicted(exec, model, batch.with(distinct)), predicted(exec, model, batch.plain())) < 1e-4);
  CHECK(tessera_tests::error_of([&] { model_of(exec, -1); }).value("positions") == "-1");
}

}  // namespace position_vectors_test
