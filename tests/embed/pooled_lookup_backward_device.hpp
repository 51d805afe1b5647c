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
#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/prepare_backward.hpp>

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
  /// A backward on the device alone, of a forward that is not run.
  void step_there(std::mt19937_64& random, tessera::keyed_jagged<> const& batch) {
    auto const there = device_batch<Exec>::copy_of(exec_, batch);
    auto const gradients = random_gradients(random, options_, features_, batch.view());
    device_matrices<Exec> const device_gradients(exec_, gradients.out(), 0);
    tessera::basic_lookup_saved<Exec> const saved{there.view(), {}, {}};
    tessera::pooled_lookup_backward(exec_, device_tables_, features_, saved, device_gradients.in(), optimizer_);
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

/// Backwards refuse an order and slots of a batch with another number of values; nothing has changed then. The table of dim 4 is new.
template <class Exec, class Store, class Optimizer>
void refuses_other_batches(Exec const& exec, std::vector<Store>& tables, Optimizer const& optimizer) {
  using tessera_tests::error_of;
  using rows_of_key = std::vector<std::vector<std::int64_t>>;
  tessera_tests::serial_host host;
  std::vector<tessera::pooled_feature> const one{{0}};
  tessera::vector_view<tessera::pooled_feature const> const features(one);
  auto const batch_of = [&](rows_of_key const& rows) {
    return device_batch<Exec>::copy_of(exec, tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", rows}}));
  };
  auto const three = batch_of({{1, 2}, {3}}), four = batch_of({{1, 2}, {3, 4}}), two = batch_of({{1}, {4}}), one_row = batch_of({{5}}),
             none = batch_of({});
  std::vector<float> storage(8, 0.5F);
  device_matrices<Exec> const vectors(exec, {{storage.data(), 2, 4}}, 0), gradients(exec, {{storage.data(), 2, 4}}, 0),
      no_rows(exec, {{storage.data(), 0, 4}}, 0);
  auto const forward = [&](device_batch<Exec> const& batch) {
    tessera::basic_lookup_saved<Exec> saved;
    tessera::pooled_lookup(exec, tables, one, batch.view(), vectors.out(), saved);
    return saved;
  };
  auto const backward = [&](tessera::basic_lookup_saved<Exec> const& saved) {
    tessera::pooled_lookup_backward(exec, tables, one, saved, saved.batch.rows() == 0 ? no_rows.in() : gradients.in(), optimizer);
  };
  auto const refusal = [&](auto const& call) {
    auto const refused = error_of(call);
    CHECK(refused.code() == tessera::errc::shape_mismatch);
    return std::string(refused.what());
  };
  auto const held = [&] {  // the vectors of every row
    tessera::pooled_lookup(exec, std::as_const(tables), one, four.view(), vectors.out());
    auto values = vectors.values();
    tessera::pooled_lookup(exec, std::as_const(tables), one, two.view(), vectors.out());
    auto const more = vectors.values();
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };

  forward(four);
  auto const before = held();
  auto saved = forward(three);
  tessera::prepare_backward(exec, tables, features, saved);
  for (auto const* const other : {&four, &two, &none}) {
    saved.batch = other->view();
    auto const values = std::to_string(other->room());
    CAPTURE(values);
    if constexpr (Store::slots_are_ids) {
      auto const told = ": the order was prepared for another batch (values " + values + ", values of the order 3)";
      CHECK(refusal([&] { backward(saved); }) == "pooled_lookup_backward" + told);
      CHECK(refusal([&] { tessera::prepare_backward(exec, tables, features, saved); }) == "prepare_backward" + told);
    } else {
      auto const told = ": one slot a value; was it saved by a lookup in such tables? (values " + values + ", slots 3)";
      CHECK(refusal([&] { backward(saved); }) == "pooled_lookup_backward" + told);
      CHECK(refusal([&] { tessera::prepare_backward(exec, tables, features, saved); }) == "prepare_backward" + told);
    }
  }
  auto mixed = forward(four);  // slots of its own, the order of another
  mixed.order = std::move(saved.order);
  CHECK(refusal([&] { backward(mixed); }) ==
        "pooled_lookup_backward: the order was prepared for another batch (values 4, values of the order 3)");
  if constexpr (Store::slots_are_ids) {  // of a batch that does not say its room, the rows at least are known
    auto unsaid = forward(three);
    tessera::prepare_backward(exec, tables, features, unsaid);
    unsaid.batch = one_row.view();
    unsaid.batch.room = -1;
    CHECK(refusal([&] { backward(unsaid); }) ==
          "pooled_lookup_backward: the order was prepared for another batch (rows 1, rows of the order 2)");
  }
  CHECK(tables[0].steps() == tessera::step_count(0));
  CHECK(same_bits(held(), before));

  backward(forward(four));
  CHECK(tables[0].steps() == tessera::step_count(1));
  CHECK_FALSE(same_bits(held(), before));
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
  SUBCASE("what was saved or prepared for another batch is refused before anything changes") {
    auto const options = tables_of_dims({4}, 32);
    {
      std::vector<tessera::dense_table<float, Exec>> tables;
      tables.emplace_back(exec, options[0], optimizer);
      refuses_other_batches(exec, tables, optimizer);
    }
    std::vector<tessera::bucket_table<float, Exec>> tables;
    tables.emplace_back(exec, options[0], optimizer);
    refuses_other_batches(exec, tables, optimizer);
  }
  SUBCASE("the widest rows that are updated, and wider ones") {
    CHECK(tessera::detail::most_updated_columns == 4096);
    auto const options = tables_of_dims({4095, 4096}, 3);
    trained_twins<float, Exec, tessera::rowwise_adagrad> twins(exec, options, {{0}, {1, tessera::pooling::mean}}, optimizer);
    auto const batch = tessera::keyed_jagged<>::from_rows(twins.host(), {{"a", {{0, 2}, {0}}}, {"b", {{1}, {}, {2, 1, 1}}}});
    twins.step(random, batch, false, 0);
    CHECK(twins.same());
    std::vector<std::vector<std::int64_t>> rows(2);  // more values than one chunk sums
    rows[0].assign(static_cast<std::size_t>(tessera::canonical_sum_chunk), 1);
    rows[1] = {1, 0};
    twins.step(random, tessera::keyed_jagged<>::from_rows(twins.host(), {{"a", {{1}}}, {"b", rows}}), true, 1);
    CHECK(twins.same());

    auto const wider = tables_of_dims({8, 4097}, 3);
    trained_twins<float, Exec, tessera::rowwise_adagrad> wide(exec, wider, {{0}, {1}}, optimizer);
    auto const refusal = tessera_tests::error_of([&] { wide.step_there(random, batch); });
    CHECK(refusal.code() == tessera::errc::invalid_argument);
    CHECK(std::string(refusal.what()) == "pooled_lookup_backward: more columns than a device updates (table 1, dim 4097, most 4096)");
    CHECK(wide.same());  // none has taken a step
  }
}

}  // namespace embed_tests
