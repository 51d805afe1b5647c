// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/row_transfer.cuh>
#include <tessera/embed/update_rows.hpp>

#include "device_tables.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// Gradients handed out on a device, steps by them, gradients of weights, and rows that enter and leave a table there: the host's bits.
template <class Element, class Exec>
void row_gradients_device_suite(Exec const& exec) {
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  auto const options = tables_of_dims({16, 1, 130, 3, 64, 1027}, 60);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  auto tables = make_tables<tessera::dense_table<Element>>(host.exec(), options, optimizer);
  auto device_tables = make_device_tables<Element>(exec, options, optimizer);

  SUBCASE("summed gradients, and a step by them") {
    for (bool const weighted : {false, true})
      for (std::int64_t const most_rows : {12, 2500}) {  // some rows are named by more values than one chunk sums
        auto const few = most_rows > 100;
        auto const batch =
            random_batch(host.exec(), random, features.size(),
                         {.id_range = few ? 3 : 60, .most_rows = most_rows, .mean_length = few ? 2.0 : 4, .weighted = weighted});
        auto const there = device_batch<Exec>::copy_of(exec, batch);
        auto const gradients = random_gradients(random, options, features, batch.view());
        device_matrices<Exec> device_gradients(exec, gradients.out(), 0);
        tessera::lookup_saved const saved{std::as_const(batch).view(), {}, {}};
        tessera::basic_lookup_saved<Exec> const device_saved{there.view(), {}, {}};
        tessera::row_gradients summed;
        tessera::basic_row_gradients<Exec> device_summed;
        tessera::pooled_lookup_gradients(host.exec(), tables, features, saved, gradients.in(), summed);
        tessera::pooled_lookup_gradients(exec, device_tables, features, device_saved, device_gradients.in(), device_summed);
        check_same_gradients(exec, device_summed, summed);
        tessera::update_rows(host.exec(), tables, summed, optimizer);
        tessera::update_rows(exec, device_tables, device_summed, optimizer);
        CHECK(same_tables(exec, tables, device_tables));
      }
  }
  SUBCASE("gradients of batches added up") {
    tessera::row_gradients sum, spare;
    tessera::basic_row_gradients<Exec> device_sum, device_spare;
    for (int step = 0; step < 4; ++step) {
      CAPTURE(step);
      auto const batch = random_batch(host.exec(), random, features.size(),
                                      {.id_range = 60, .most_rows = step == 1 ? 1 : 6, .mean_length = 2, .weighted = false});
      auto const there = device_batch<Exec>::copy_of(exec, batch);
      auto const gradients = random_gradients(random, options, features, batch.view());
      device_matrices<Exec> device_gradients(exec, gradients.out(), 0);
      tessera::lookup_saved const saved{std::as_const(batch).view(), {}, {}};
      tessera::basic_lookup_saved<Exec> const device_saved{there.view(), {}, {}};
      tessera::row_gradients more;
      tessera::basic_row_gradients<Exec> device_more;
      tessera::pooled_lookup_gradients(host.exec(), tables, features, saved, gradients.in(), more);
      tessera::pooled_lookup_gradients(exec, device_tables, features, device_saved, device_gradients.in(), device_more);
      tessera::add_row_gradients(host.exec(), sum, more, spare);
      tessera::add_row_gradients(exec, device_sum, device_more, device_spare);
      check_same_gradients(exec, device_sum, sum);
    }
  }
  SUBCASE("gradients of weights") {
    auto const batch =
        random_batch(host.exec(), random, features.size() + 2, {.id_range = 60, .most_rows = 12, .mean_length = 4, .weighted = true});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    auto const keys = static_cast<std::int64_t>(features.size());
    auto const part = std::as_const(batch).view().slice_keys(2, keys);
    auto const gradients = random_gradients(random, options, features, part);
    device_matrices<Exec> device_gradients(exec, gradients.out(), 3);
    tessera::lookup_saved const saved{part, {}, {}};
    tessera::basic_lookup_saved<Exec> const device_saved{std::as_const(there).view().slice_keys(2, keys), {}, {}};
    std::vector<float> expected(static_cast<std::size_t>(part.size()));
    auto out = tessera_tests::put(exec, expected);
    tessera::pooled_lookup_weight_gradient(host.exec(), tables, features, saved, gradients.in(), tessera::vector_view<float>(expected));
    tessera::pooled_lookup_weight_gradient(exec, device_tables, features, device_saved, device_gradients.in(), out.view());
    CHECK(same_bits(tessera_tests::get(exec, out), expected));
  }
  SUBCASE("rows enter with their states, the last of two of one id stays, and leave as they are") {
    for (std::size_t const t : {0U, 1U, 2U}) {
      auto const dim = options[t].dim, width = tables[t].state_layout().width(dim);
      std::vector<std::int64_t> const ids{5, 59, 0, 5, 60, -1, 7};
      auto const count = static_cast<std::int64_t>(ids.size());
      auto weights = tessera_tests::random_floats(random, static_cast<std::size_t>(count * dim));
      auto states = tessera_tests::random_floats(random, static_cast<std::size_t>(count * width));
      tessera::write_rows(host.exec(), tables[t], ids, tessera::matrix_view<float const>(weights.data(), count, dim),
                          tessera::matrix_view<float const>(states.data(), count, width));
      auto const ids_there = tessera_tests::put(exec, ids);
      auto weights_there = tessera_tests::put(exec, weights), states_there = tessera_tests::put(exec, states);
      tessera::write_rows(exec, device_tables[t], ids_there.view(), tessera::matrix_view<float const>(weights_there.data(), count, dim),
                          tessera::matrix_view<float const>(states_there.data(), count, width));
      CHECK(same_tables(exec, tables, device_tables));
      std::vector<tessera::row_status> statuses(ids.size());
      auto statuses_there = tessera_tests::put(exec, statuses);
      tessera::read_rows(host.exec(), tables[t], ids, tessera::matrix_view<float>(weights.data(), count, dim),
                         tessera::matrix_view<float>(states.data(), count, width), tessera::vector_view<tessera::row_status>(statuses));
      tessera::read_rows(exec, device_tables[t], ids_there.view(), tessera::matrix_view<float>(weights_there.data(), count, dim),
                         tessera::matrix_view<float>(states_there.data(), count, width), statuses_there.view());
      CHECK(same_bits(tessera_tests::get(exec, weights_there), weights));
      CHECK(same_bits(tessera_tests::get(exec, states_there), states));
      CHECK(tessera_tests::get(exec, statuses_there) == statuses);
    }
  }
  SUBCASE("slots that a table has not are told, and nothing is written there") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 59}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    std::vector<tessera::pooled_feature> const one{{0}};
    auto const gradients = random_gradients(random, options, one, batch.view());
    device_matrices<Exec> device_gradients(exec, gradients.out(), 0);
    tessera::basic_lookup_saved<Exec> const saved{there.view(), {}, {}};
    tessera::basic_row_gradients<Exec> summed;
    std::vector<tessera::table_options> const larger{options[0]};
    auto some = make_device_tables<Element>(exec, {options[0]}, optimizer);
    tessera::pooled_lookup_gradients(exec, some, one, saved, device_gradients.in(), summed);
    auto smaller = larger;
    smaller[0].rows = 59;
    auto small_tables = make_device_tables<Element>(exec, smaller, optimizer);
    tessera::update_rows(exec, small_tables, summed, optimizer);
    CHECK(std::string(tessera_tests::error_of([&] { exec.synchronize(); }).what()) ==
          "update_rows: no such slot (table 0, slot 59, bound 59)");
  }
}

}  // namespace embed_tests
