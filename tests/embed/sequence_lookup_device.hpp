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
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/sequence_lookup_backward.cuh>

#include "device_tables.hpp"
#include "hosts.hpp"
#include "sequence_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// Sequence lookups and their backward on a device have the bits of the host's.
template <class Element, class Exec>
void sequence_lookup_device_suite(Exec const& exec) {
  using tessera_tests::error_of;
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  auto const options = tables_of_dims(all_dims, 60);
  auto const features = sequence_features(static_cast<std::int64_t>(options.size()));
  auto tables = make_tables<tessera::dense_table<Element>>(host.exec(), options, optimizer);
  auto device_tables = make_device_tables<Element>(exec, options, optimizer);

  SUBCASE("vectors, then steps, of a whole batch and of some of its keys") {
    for (bool const whole : {true, false})
      for (bool const prepared : {false, true}) {
        CAPTURE(whole);
        auto const batch =
            random_batch(host.exec(), random, features.size(), {.id_range = 60, .most_rows = 12, .mean_length = 4, .weighted = prepared});
        auto const there = device_batch<Exec>::copy_of(exec, batch);
        std::int64_t const first = whole ? 0 : 2, keys = whole ? static_cast<std::int64_t>(features.size()) : 5;
        auto const part = std::as_const(batch).view().slice_keys(first, keys);
        auto const device_part = std::as_const(there).view().slice_keys(first, keys);
        std::vector<std::int64_t> const some(features.begin() + first, features.begin() + first + keys);
        value_matrices out(options, some, part), gradients(options, some, part);
        std::normal_distribution<float> draw;
        gradients.fill([&] { return draw(random); });
        device_matrices<Exec> device_out(exec, out.out(), whole ? 0 : 3), device_gradients(exec, gradients.out(), whole ? 3 : 0);
        tessera::lookup_saved saved;
        tessera::basic_lookup_saved<Exec> device_saved;
        tessera::sequence_lookup(host.exec(), tables, some, part, out.out(), saved);
        tessera::sequence_lookup(exec, device_tables, some, device_part, device_out.out(), device_saved);
        CHECK(same_bits(device_out.values(), out.values()));
        if (prepared) tessera::prepare_backward(exec, device_tables, some, device_saved);
        tessera::row_gradients sum;
        tessera::basic_row_gradients<Exec> device_sum;
        tessera::sequence_lookup_gradients(host.exec(), tables, some, saved, gradients.in(), sum);
        tessera::sequence_lookup_gradients(exec, device_tables, some, device_saved, device_gradients.in(), device_sum);
        check_same_gradients(exec, device_sum, sum);
        tessera::sequence_lookup_backward(host.exec(), tables, some, saved, gradients.in(), optimizer);
        tessera::sequence_lookup_backward(exec, device_tables, some, device_saved, device_gradients.in(), optimizer);
        CHECK(same_tables(exec, tables, device_tables));
      }
  }
  SUBCASE("ids out of range are told as on the host, or zeros and counted") {
    auto const batch =
        random_batch(host.exec(), random, features.size(), {.id_range = 90, .most_rows = 12, .mean_length = 4, .weighted = false});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    auto const view = std::as_const(batch).view();
    value_matrices out(options, features, view);
    device_matrices<Exec> device_out(exec, out.out(), 0);
    auto const refusal = error_of([&] { tessera::sequence_lookup(host.exec(), std::as_const(tables), features, view, out.out()); });
    tessera::sequence_lookup(exec, std::as_const(device_tables), features, there.view(), device_out.out());
    CHECK(std::string(error_of([&] { exec.synchronize(); }).what()) == std::string(refusal.what()));
    std::int64_t count = 0;
    auto device_count = tessera_tests::put(exec, std::vector<std::int64_t>{0});
    tessera::sequence_lookup(host.exec(), std::as_const(tables), features, view, out.out(),
                             {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count});
    tessera::sequence_lookup(exec, std::as_const(device_tables), features, there.view(), device_out.out(),
                             {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = device_count.data()});
    CHECK(same_bits(device_out.values(), out.values()));
    CHECK(tessera::read_one(exec, device_count.data()) == count);
  }
  SUBCASE("a matrix may have more rows than its key has values; fewer are told, and nothing is written past them") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {3}}}, {"b", {{4, 5, 6}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    std::vector<std::int64_t> const two{3, 4};  // of dims 8 and 16
    std::vector<float> storage(1000, -1.0F);
    device_matrices<Exec> roomy(exec, {{storage.data(), 5, 8}, {storage.data(), 3, 16}}, 1);
    tessera::sequence_lookup(exec, std::as_const(device_tables), two, there.view(), roomy.out());
    auto const values = roomy.values();
    for (std::size_t i = 24; i < 40; ++i) CHECK(values[i] == -1);
    for (std::int64_t const rows : {0, 2}) {
      device_matrices<Exec> tight(exec, {{storage.data(), 3, 8}, {storage.data(), rows, 16}}, 1);
      tessera::sequence_lookup(exec, std::as_const(device_tables), two, there.view(), tight.out());
      CHECK(std::string(error_of([&] { exec.synchronize(); }).what()) ==
            "sequence_lookup: a matrix does not fit its feature (feature 1, rows " + std::to_string(rows) + ", rows expected 3)");
      tight.values();
      tessera::basic_lookup_saved<Exec> const saved{there.view(), {}, {}};
      tessera::sequence_lookup_backward(exec, device_tables, two, saved, tight.in(), optimizer);  // reads nothing past the matrix
      CHECK(std::string(error_of([&] { exec.synchronize(); }).what()) ==
            "sequence lookup: gradients do not fit their feature (feature 1, rows " + std::to_string(rows) + ", rows expected 3)");
    }
  }
  SUBCASE("an order of another batch is refused before anything changes, and so are rows of too many columns") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {3}}}});
    auto const other = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {3, 4}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch), other_there = device_batch<Exec>::copy_of(exec, other);
    std::vector<std::int64_t> const one{3};  // of dim 8
    std::vector<float> storage(4 * 4097, 0.5F);
    device_matrices<Exec> const gradients(exec, {{storage.data(), 4, 8}}, 0);
    tessera::basic_lookup_saved<Exec> saved{there.view(), {}, {}};
    tessera::prepare_backward(exec, device_tables, tessera::vector_view<std::int64_t const>(one), saved);
    saved.batch = other_there.view();
    auto const refusal = error_of([&] { tessera::sequence_lookup_backward(exec, device_tables, one, saved, gradients.in(), optimizer); });
    CHECK(refusal.code() == tessera::errc::shape_mismatch);
    CHECK(std::string(refusal.what()) ==
          "sequence_lookup_backward: the order was prepared for another batch (values 4, values of the order 3)");
    CHECK(same_tables(exec, tables, device_tables));

    auto const wide_options = tables_of_dims({4097}, 5);
    auto const wide = make_tables<tessera::dense_table<Element>>(host.exec(), wide_options, optimizer);
    auto wide_there = make_device_tables<Element>(exec, wide_options, optimizer);
    device_matrices<Exec> const wide_gradients(exec, {{storage.data(), 4, 4097}}, 0);
    std::vector<std::int64_t> const first{0};
    saved.order.clear();
    auto const too_wide =
        error_of([&] { tessera::sequence_lookup_backward(exec, wide_there, first, saved, wide_gradients.in(), optimizer); });
    CHECK(too_wide.code() == tessera::errc::invalid_argument);
    CHECK(std::string(too_wide.what()) == "sequence_lookup_backward: more columns than a device updates (table 0, dim 4097, most 4096)");
    CHECK(same_tables(exec, wide, wide_there));
  }
}

}  // namespace embed_tests
