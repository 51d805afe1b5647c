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
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/pooled_lookup.cuh>

#include "device_tables.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// A pooled lookup on a device has the bits of the host's, whatever the elements.
template <class Element, class Exec>
void pooled_lookup_device_suite(Exec const& exec) {
  using tessera_tests::error_of;
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = tables_of_dims(all_dims, 60);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  auto const tables = make_tables<tessera::dense_table<Element>>(host.exec(), options, tessera::rowwise_adagrad{.initial_state = 0.25F});
  auto device_tables = make_device_tables<Element>(exec, options, tessera::rowwise_adagrad{.initial_state = 0.25F});

  SUBCASE("tables begin with the same rows and states") { CHECK(same_tables(exec, tables, device_tables)); }
  SUBCASE("sums and means of every dim, of a whole batch and of some of its keys") {
    for (bool const weighted : {false, true})
      for (std::int64_t const gap : {0, 3}) {
        CAPTURE(weighted);
        CAPTURE(gap);
        auto const batch =
            random_batch(host.exec(), random, features.size(), {.id_range = 60, .most_rows = 20, .mean_length = 4, .weighted = weighted});
        auto const there = device_batch<Exec>::copy_of(exec, batch);
        for (bool const whole : {true, false}) {
          CAPTURE(whole);
          auto const keys = whole ? batch.view().keys : batch.view().keys - 4;
          auto const first = whole ? 0 : 2;
          auto const part = std::as_const(batch).view().slice_keys(first, keys);
          auto const device_part = std::as_const(there).view().slice_keys(first, keys);
          std::vector<tessera::pooled_feature> const some(features.begin() + first, features.begin() + first + keys);
          pooled_matrices expected(options, some, part);
          device_matrices<Exec> evaluated(exec, expected.out(), gap), trained(exec, expected.out(), gap);
          tessera::pooled_lookup(host.exec(), tables, some, part, expected.out());
          tessera::pooled_lookup(exec, std::as_const(device_tables), some, device_part, evaluated.out());
          tessera::basic_lookup_saved<Exec> saved;
          tessera::pooled_lookup(exec, device_tables, some, device_part, trained.out(), saved);
          CHECK(same_bits(evaluated.values(), expected.values()));
          CHECK(same_bits(trained.values(), expected.values()));
          CHECK(saved.batch.keys == keys);
        }
      }
  }
  SUBCASE("nothing at all, and keys without rows") {
    std::vector<tessera::pooled_feature> const none;
    device_batch<Exec> const empty;
    std::vector<tessera::matrix_view<float>> const no_matrices;
    tessera::pooled_lookup(exec, std::as_const(device_tables), none, empty.view(), no_matrices);
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {}}, {"b", {{}, {}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    std::vector<tessera::pooled_feature> const two{{0}, {5}};
    pooled_matrices expected(options, two, std::as_const(batch).view());
    device_matrices<Exec> out(exec, expected.out(), 1);
    tessera::pooled_lookup(exec, std::as_const(device_tables), two, there.view(), out.out());
    for (auto const value : out.values()) CHECK(value == 0);
  }
  SUBCASE("ids out of range: told as on the host, or zeros and counted") {
    auto const batch =
        random_batch(host.exec(), random, features.size(), {.id_range = 90, .most_rows = 20, .mean_length = 4, .weighted = true});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    auto const view = std::as_const(batch).view();
    pooled_matrices expected(options, features, view);
    device_matrices<Exec> out(exec, expected.out(), 0);
    auto const refusal = error_of([&] { tessera::pooled_lookup(host.exec(), tables, features, view, expected.out()); });
    tessera::pooled_lookup(exec, std::as_const(device_tables), features, there.view(), out.out());
    CHECK(std::string(error_of([&] { exec.synchronize(); }).what()) == std::string(refusal.what()));
    std::int64_t count = 0;
    auto count_there = tessera_tests::put(exec, std::vector<std::int64_t>{0});
    tessera::pooled_lookup(host.exec(), tables, features, view, expected.out(),
                           {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count});
    tessera::pooled_lookup(exec, std::as_const(device_tables), features, there.view(), out.out(),
                           {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = count_there.data()});
    CHECK(same_bits(out.values(), expected.values()));
    CHECK(count > 0);
    CHECK(tessera::read_one(exec, count_there.data()) == count);
  }
  SUBCASE("offsets that decrease are told, and read as empty bags") {
    auto const offsets = tessera_tests::put(exec, std::vector<std::int64_t>{0, 2, 1, 3});
    auto const values = tessera_tests::put(exec, std::vector<std::int64_t>{1, 2, 3});
    std::vector<std::int64_t> const first_row{0, 3};
    tessera::keyed_jagged_view<std::int64_t const> const batch{values.data(), nullptr, offsets.data(), first_row.data(), 1, 3};
    std::vector<float> storage(3 * 16);
    device_matrices<Exec> out(exec, {{storage.data(), 3, 16}}, 0);
    std::vector<tessera::pooled_feature> const one{{4}};
    tessera::pooled_lookup(exec, std::as_const(device_tables), one, batch, out.out());
    CHECK(std::string(error_of([&] { exec.synchronize(); }).what()) == "jagged: offsets decrease (row 1, offset 2, next offset 1)");
    auto const pooled = out.values();
    for (std::size_t c = 16; c < 32; ++c) CHECK(pooled[c] == 0);
  }
  SUBCASE("shapes that do not fit are refused at once") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    std::vector<float> storage(17);
    device_matrices<Exec> wide(exec, {{storage.data(), 1, 17}}, 0);
    std::vector<tessera::pooled_feature> const one{{4}}, unknown{{99}};
    CHECK_THROWS_AS(tessera::pooled_lookup(exec, std::as_const(device_tables), one, there.view(), wide.out()), tessera::error);
    CHECK_THROWS_AS(tessera::pooled_lookup(exec, std::as_const(device_tables), unknown, there.view(), wide.out()), tessera::error);
  }
}

}  // namespace embed_tests
