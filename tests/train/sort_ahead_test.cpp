// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 3
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <tessera/core/thread_team.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/synth/planted_clicks.hpp>
#include <tessera/synth/planted_reader.hpp>
#include <tessera/train/sort_ahead.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "trainer_setup.hpp"

using namespace tessera_tests;

namespace sort_ahead_test {

namespace {

tessera::planted_clicks_options clicks_of_shape(small_shape const& shape) {
  std::vector<tessera::planted_feature> features;
  for (std::size_t const table : {0U, 1U, 2U, 0U}) features.push_back({.ids = shape.rows[table], .longest_bag = 4, .more = 0.6});
  tessera::planted_clicks_options options{features};
  options.dense_features = shape.dense_features;
  return options;
}

template <class Store>
struct clipped_run : small_run<Store, tessera::rowwise_adagrad, tessera::adam> {
  explicit clipped_run(tessera::host_exec const& exec, float clip_norm = 0)
      : small_run<Store, tessera::rowwise_adagrad, tessera::adam>(exec, {.learning_rate = 0.1F}, {.learning_rate = 0.01F}, {}, 3,
                                                                  small_shape::features(), {.clip_norm = clip_norm}) {}
};

}  // namespace

TEST_CASE_TEMPLATE("sort_ahead: reading, sorting and training at once give the bits of the plain loop", Store, TESSERA_TEST_STORES) {
  for (float const clip_norm : {0.0F, 0.5F}) {
    CAPTURE(clip_norm);
    pool_host<2> host;
    auto const exec = host.exec();
    small_shape const shape;
    tessera::planted_clicks const clicks(exec, clicks_of_shape(shape));
    tessera::planted_reader_options const options{.samples = 3000, .batch_size = 128};
    clipped_run<Store> plain(exec, clip_norm), piped(exec, clip_norm);
    std::vector<double> losses, losses_ahead;

    tessera::planted_reader reader(clicks, options);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (tessera::batch_view batch; reader.next(exec, batch);) losses.push_back(plain.run.step(exec, batch));

    tessera::planted_reader behind(clicks, options);
    tessera::serial_team alone;
    tessera::system_memory memory;
    tessera::background_thread thread;
    tessera::prefetching_reader ahead(tessera::host_exec(alone, memory), thread, behind, {.depth = 3}, tessera::sort_ahead(piped.model));
    bool sorted = true;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (tessera::batch_view batch; ahead.next(exec, batch);) {
        sorted = sorted && ahead.prepared().ready();
        losses_ahead.push_back(piped.run.step(exec, batch, ahead.prepared()));
        CHECK_FALSE(ahead.prepared().ready());
      }
    CHECK(sorted == Store::slots_are_ids);
    CHECK(losses == losses_ahead);
    CHECK(losses.size() == 48);
    CHECK(plain.predictions(exec) == piped.predictions(exec));
  }
}

TEST_CASE("a step refuses what was sorted for another batch") {
  serial_host host;
  auto const exec = host.exec();
  clipped_run<tessera::dense_table<>> run(exec);
  auto clicks = small_shape().clicks();
  tessera::row_order order;
  tessera::sort_ahead const sort(run.model);
  sort(exec, clicks.next(exec, 20), order);
  auto other = small_shape().clicks(5);
  try {
    run.run.step(exec, other.next(exec, 64), order);
    FAIL("accepted");
  } catch (tessera::error const& e) {
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("values") != e.value("values of the order"));
  }
}

}  // namespace sort_ahead_test
