// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 3
#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/row_transfer.cuh>

#include "bucket_lookup_device.hpp"
#include "device_tables.hpp"
#include "emulated_verbs.hpp"
#include "hosts.hpp"

using namespace embed_tests;
using tessera_tests::emulated_exec;

namespace {

constexpr tessera::adagrad optimizer{.learning_rate = 0.1F};

/// Shards of one table of 100 rows and 40 columns, or, of hashed tables, of all its rows.
std::vector<tessera::table_options> shards(bool by_rows) {
  std::vector<tessera::table_options> all;
  for (std::int64_t const first_row : {0, 31})
    for (std::int64_t const first_column : {0, 4, 24})
      all.push_back({.id = tessera::table_id(7),
                     .dim = first_column == 0   ? 4
                            : first_column == 4 ? 20
                                                : 15,
                     .rows = first_row == 0 ? 31 : 69,
                     .init_bound = 1,
                     .seed = tessera::random_seed(11),
                     .first_row = by_rows ? first_row : 0,
                     .first_column = first_column});
  return all;
}

/// Three steps of the same batches on the host and on a device.
template <class HostStore, class DeviceStore>
void take_steps(emulated_exec const& exec, std::mt19937_64& random, std::vector<HostStore>& tables, std::vector<DeviceStore>& device_tables,
                std::vector<tessera::table_options> const& options) {
  tessera_tests::serial_host host;
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  for (int step = 0; step < 3; ++step) {
    auto const batch =
        random_batch(host.exec(), random, features.size(), {.id_range = 31, .most_rows = 12, .mean_length = 3, .weighted = false});
    auto const view = std::as_const(batch).view();
    auto const there = device_batch<emulated_exec>::copy_of(exec, batch);
    auto const gradients = random_gradients(random, options, features, view);
    device_matrices<emulated_exec> device_gradients(exec, gradients.out(), 0);
    pooled_matrices out(options, features, view);
    device_matrices<emulated_exec> device_out(exec, out.out(), 0);
    tessera::lookup_saved saved;
    tessera::basic_lookup_saved<emulated_exec> device_saved;
    tessera::pooled_lookup(host.exec(), tables, features, view, out.out(), saved);
    tessera::pooled_lookup(exec, device_tables, features, there.view(), device_out.out(), device_saved);
    CHECK(same_bits(device_out.values(), out.values()));
    tessera::pooled_lookup_backward(host.exec(), tables, features, saved, gradients.in(), optimizer);
    tessera::pooled_lookup_backward(exec, device_tables, features, device_saved, device_gradients.in(), optimizer);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("table cuts: shards on an emulated device have the bits of the host's", Element, tessera::bfloat16,
                   tessera::scaled_int8) {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = shards(true);
  auto tables = make_tables<tessera::dense_table<Element>>(host.exec(), options, optimizer);
  auto device_tables = make_device_tables<Element>(exec, options, optimizer);
  CHECK(same_tables(exec, tables, device_tables));
  take_steps(exec, random, tables, device_tables, options);
  CHECK(same_tables(exec, tables, device_tables));
}

TEST_CASE("table cuts: columns of a bucket table on an emulated device have the bits of a hash table's") {
  using store = tessera::bucket_table<tessera::bfloat16, emulated_exec>;
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = shards(false);
  auto tables = make_tables<tessera::hash_table<tessera::bfloat16>>(host.exec(), options, optimizer);
  std::vector<store> device_tables;
  for (auto const& o : options) device_tables.emplace_back(exec, o, optimizer);

  // Rows that no table has yet.
  std::vector<std::int64_t> const absent{3, 1000};
  auto const absent_there = tessera_tests::put(exec, absent);
  for (std::size_t t = 0; t < options.size(); ++t) {
    auto const dim = options[t].dim;
    std::vector<float> rows(static_cast<std::size_t>(2 * dim));
    auto rows_there = tessera_tests::put(exec, rows);
    tessera::read_rows(host.exec(), tables[t], absent, tessera::matrix_view<float>(rows.data(), 2, dim));
    tessera::read_rows(exec, device_tables[t], absent_there.view(), tessera::matrix_view<float>(rows_there.data(), 2, dim));
    CHECK(same_bits(tessera_tests::get(exec, rows_there), rows));
  }
  take_steps(exec, random, tables, device_tables, options);
  CHECK(same_rows(exec, tables, device_tables));

  auto wrong = options[0];
  wrong.first_row = 5;
  try {
    store const refused(exec, wrong, optimizer);
    FAIL_CHECK("accepted");
  } catch (tessera::error const& e) {
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(e.value("first_row") == "5");
  }
}
