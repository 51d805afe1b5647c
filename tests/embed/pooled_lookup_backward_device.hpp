// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.cuh>

#include "device_tables.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// A host and a device that train the same tables side by side.
template <class Element, class Exec, class Optimizer>
class trained_twins {
 public:
  trained_twins(Exec const& exec, std::vector<tessera::table_options> options, std::vector<tessera::pooled_feature> features,
                Optimizer const& optimizer)
      : exec_(exec),
        options_(std::move(options)),
        features_(std::move(features)),
        optimizer_(optimizer),
        tables_(make_tables<tessera::dense_table<Element>>(host_.exec(), options_, optimizer)),
        device_tables_(make_device_tables<Element>(exec, options_, optimizer)) {}

  tessera::host_exec host() { return host_.exec(); }
  auto& device_tables() { return device_tables_; }

  /// One step with gradients of no pattern. `prepared`: sorts ahead; `gap`: floats between the gradients' rows on the device.
  void step(std::mt19937_64& random, tessera::keyed_jagged<> const& batch, bool prepared, std::int64_t gap,
            tessera::lookup_options const& options = {}) {
    auto const there = device_batch<Exec>::copy_of(exec_, batch);
    auto const view = batch.view();
    auto const gradients = random_gradients(random, options_, features_, view);
    pooled_matrices out(options_, features_, view);
    device_matrices<Exec> device_out(exec_, out.out(), gap), device_gradients(exec_, gradients.out(), gap);
    tessera::lookup_saved saved;
    tessera::basic_lookup_saved<Exec> device_saved;
    tessera::pooled_lookup(host_.exec(), tables_, features_, view, out.out(), saved, options);
    tessera::pooled_lookup_backward(host_.exec(), tables_, features_, saved, gradients.in(), optimizer_);
    tessera::pooled_lookup(exec_, device_tables_, features_, there.view(), device_out.out(), device_saved, options);
    if (prepared)
      tessera::prepare_backward(exec_, device_tables_, tessera::vector_view<tessera::pooled_feature const>(features_), device_saved);
    tessera::pooled_lookup_backward(exec_, device_tables_, features_, device_saved, device_gradients.in(), optimizer_);
  }
  bool same() { return same_tables(exec_, tables_, device_tables_); }

 private:
  Exec exec_;
  tessera_tests::serial_host host_;
  std::vector<tessera::table_options> options_;
  std::vector<tessera::pooled_feature> features_;
  Optimizer optimizer_;
  std::vector<tessera::dense_table<Element>> tables_;
  std::vector<tessera::dense_table<Element, Exec>> device_tables_;
};

/// Steps on a device leave the bits of the host's, whatever the elements and the optimizer.
template <class Element, class Optimizer, class Exec>
void pooled_backward_device_suite(Exec const& exec, Optimizer const& optimizer) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = tables_of_dims(all_dims, 60);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  trained_twins<Element, Exec, Optimizer> twins(exec, options, features, optimizer);
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    batch_shape const shape{.id_range = 60, .most_rows = 12, .mean_length = 4, .weighted = step == 1};
    twins.step(random, random_batch(twins.host(), random, features.size(), shape), step == 2, step % 2 == 0 ? 0 : 3);
    CHECK(twins.same());
  }
}

/// What does not depend on the kind of element or optimizer.
template <class Exec>
void pooled_backward_device_edges(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};

  SUBCASE("rows that more values name than one chunk sums, in tables of one key and of several") {
    auto const options = tables_of_dims({16, 4, 33}, 5);
    std::vector<tessera::pooled_feature> const features{{0}, {1, tessera::pooling::mean}, {2}, {1}, {1}};
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, features, optimizer);
    for (bool const weighted : {false, true}) {
      batch_shape const shape{.id_range = 5, .most_rows = 3000, .mean_length = 4, .weighted = weighted};
      for (int step = 0; step < 2; ++step) twins.step(random, random_batch(twins.host(), random, features.size(), shape), false, step);
      CHECK(twins.same());
    }
  }
  SUBCASE("runs of exactly one chunk, one more, one less, and of exactly two") {
    auto const options = tables_of_dims({8}, 4);
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, {{0}}, optimizer);
    auto const chunk = static_cast<std::size_t>(tessera::canonical_sum_chunk);
    std::vector<std::vector<std::int64_t>> rows;
    std::size_t const counts[]{chunk, chunk + 1, chunk - 1, 2 * chunk};
    for (std::size_t id = 0; id < 4; ++id)
      for (std::size_t i = 0; i < counts[id]; ++i) rows.push_back({static_cast<std::int64_t>(id)});
    std::shuffle(rows.begin(), rows.end(), random);
    twins.step(random, tessera::keyed_jagged<>::from_rows(twins.host(), {{"a", rows}}), false, 0);
    CHECK(twins.same());
  }
  SUBCASE("nothing is named: only the step counts") {
    auto const options = tables_of_dims({8, 3}, 4);
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, {{0}, {1}}, optimizer);
    twins.step(random, tessera::keyed_jagged<>::from_rows(twins.host(), {{"a", {}}, {"b", {{}, {}}}}), false, 0);
    twins.step(random, tessera::keyed_jagged<>::from_rows(twins.host(), {{"a", {{}}}, {"b", {}}}), true, 0);
    CHECK(twins.same());
  }
  SUBCASE("ids without a row get no gradient") {
    auto const options = tables_of_dims({8, 3}, 20);
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, {{0}, {1}, {0}}, optimizer);
    batch_shape const shape{.id_range = 40, .most_rows = 30, .mean_length = 4, .weighted = false};
    twins.step(random, random_batch(twins.host(), random, 3, shape), false, 0, {.out_of_range = tessera::out_of_range_ids::zero});
    CHECK(twins.same());
  }
  SUBCASE("some keys of a batch, whose values begin behind others'") {
    tessera_tests::serial_host host;
    auto const options = tables_of_dims({8, 20}, 30);
    std::vector<tessera::pooled_feature> const features{{0}, {1}, {0}};
    auto tables = make_tables<tessera::dense_table<>>(host.exec(), options, optimizer);
    auto device_tables = make_device_tables<float>(exec, options, optimizer);
    for (bool const weighted : {false, true}) {
      auto const batch = random_batch(host.exec(), random, 6, {.id_range = 30, .most_rows = 20, .mean_length = 3, .weighted = weighted});
      auto const there = device_batch<Exec>::copy_of(exec, batch);
      auto const part = batch.view().slice_keys(2, 3);
      auto const gradients = random_gradients(random, options, features, part);
      device_matrices<Exec> device_gradients(exec, gradients.out(), 0);
      tessera::lookup_saved const saved{part, {}, {}};
      tessera::basic_lookup_saved<Exec> const device_saved{there.view().slice_keys(2, 3), {}, {}};
      tessera::pooled_lookup_backward(host.exec(), tables, features, saved, gradients.in(), optimizer);
      tessera::pooled_lookup_backward(exec, device_tables, features, device_saved, device_gradients.in(), optimizer);
      CHECK(same_tables(exec, tables, device_tables));
    }
  }
  SUBCASE("an optimizer a table; wrong ones are refused") {
    auto const options = tables_of_dims({8, 3}, 20);
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, {{0}, {1}}, optimizer);
    tessera::basic_lookup_saved<Exec> saved;
    std::vector<tessera::pooled_feature> const none;
    std::vector<tessera::matrix_view<float const>> const no_gradients;
    CHECK_THROWS_AS(tessera::pooled_lookup_backward(exec, twins.device_tables(), none, saved, no_gradients, tessera::adam{}),
                    tessera::error);
    std::vector<tessera::rowwise_adagrad> const three(3);
    CHECK_THROWS_AS(tessera::pooled_lookup_backward(exec, twins.device_tables(), none, saved, no_gradients, three), tessera::error);
  }
}

}  // namespace embed_tests
