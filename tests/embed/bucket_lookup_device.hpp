// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_transfer.cuh>
#include <tessera/embed/sequence_lookup_backward.cuh>

#include "bucket_table_device.hpp"
#include "sequence_problem.hpp"

namespace embed_tests {

/// The rows and states of every id are the same bits. No row has left the host's tables.
template <class Element, class Exec>
bool same_rows(Exec const& exec, std::vector<tessera::hash_table<Element>> const& tables,
               std::vector<tessera::bucket_table<Element, Exec>> const& device_tables) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const host_ids = tables[t].ids();
    id_list const ids(host_ids.begin(), host_ids.end());
    auto const slots = find_there(exec, device_tables[t], ids);
    if (device_tables[t].rows() != tables[t].rows() || device_tables[t].steps() != tables[t].steps()) return false;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (slots[i] < 0) return false;
      auto const row = row_there(exec, device_tables[t], slots[i]);
      auto const slot = static_cast<std::int64_t>(i);
      if (!same_bits(row.first.data(), tables[t].row(slot), tables[t].dim())) return false;
      if (!same_bits(row.second.data(), tables[t].state(slot), static_cast<std::int64_t>(row.second.size()))) return false;
    }
  }
  return true;
}

/// The same tables trained hashed on the host and in buckets on a device: the rows of every id have the same bits.
template <class Element, class Optimizer, class Exec>
void bucket_lookup_suite(Exec const& exec, Optimizer const& optimizer) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const options = tables_of_dims({1, 3, 8, 17, 64, 130}, 200);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  auto tables = make_tables<tessera::hash_table<Element>>(host.exec(), options, optimizer);
  std::vector<tessera::bucket_table<Element, Exec>> device_tables;
  for (auto const& o : options) device_tables.emplace_back(exec, o, optimizer);

  for (int step = 0; step < 4; ++step) {
    CAPTURE(step);
    batch_shape const shape{.id_range = 120 + 20 * step, .most_rows = 20, .mean_length = 4, .weighted = step % 2 == 1};
    auto const batch = random_batch(host.exec(), random, features.size(), shape);
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    bool const whole = step < 3;
    auto const first = whole ? 0 : 2, keys = static_cast<int>(features.size()) - (whole ? 0 : 3);
    auto const part = std::as_const(batch).view().slice_keys(first, keys);
    auto const device_part = std::as_const(there).view().slice_keys(first, keys);
    std::vector<tessera::pooled_feature> const some(features.begin() + first, features.begin() + first + keys);
    pooled_matrices expected(options, some, part);
    device_matrices<Exec> evaluated(exec, expected.out(), 3), trained(exec, expected.out(), 0);

    // Before training, ids without a row read as the row that they would get.
    tessera::pooled_lookup(host.exec(), std::as_const(tables), some, part, expected.out());
    tessera::pooled_lookup(exec, std::as_const(device_tables), some, device_part, evaluated.out());
    CHECK(same_bits(evaluated.values(), expected.values()));

    tessera::lookup_saved saved;
    tessera::basic_lookup_saved<Exec> device_saved;
    auto const gradients = random_gradients(random, options, some, part);
    device_matrices<Exec> device_gradients(exec, gradients.out(), step % 2);
    tessera::pooled_lookup(host.exec(), tables, some, part, expected.out(), saved);
    tessera::pooled_lookup(exec, device_tables, some, device_part, trained.out(), device_saved);
    CHECK(same_bits(trained.values(), expected.values()));
    if (step == 2) tessera::prepare_backward(exec, device_tables, some, device_saved);
    tessera::pooled_lookup_backward(host.exec(), tables, some, saved, gradients.in(), optimizer);
    tessera::pooled_lookup_backward(exec, device_tables, some, device_saved, device_gradients.in(), optimizer);

    CHECK(same_rows(exec, tables, device_tables));
  }
}

template <class Exec>
void bucket_lookup_edges(Exec const& exec) {
  using cached = tessera::bucket_table<float, Exec, tessera::evict_lru>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.5F};
  auto options = bucket_options;
  options.dim = 4;
  options.rows = 32;
  std::vector<float> storage(64 * 4);
  auto const lookup = [&](std::vector<cached>& tables, id_list const& ids, tessera::basic_lookup_saved<Exec>& saved,
                          device_batch<Exec>& there, tessera::lookup_options const& how = {}) {
    std::vector<id_list> rows;
    for (auto const id : ids) rows.push_back({id});
    there = device_batch<Exec>::copy_of(exec, tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", rows}}));
    device_matrices<Exec> out(exec, {{storage.data(), static_cast<std::int64_t>(ids.size()), 4}}, 0);
    std::vector<tessera::pooled_feature> const one{{0}};
    tessera::pooled_lookup(exec, tables, one, std::as_const(there).view(), out.out(), saved, how);
    return out.values();
  };
  auto const range = [](std::int64_t first, std::int64_t count) {
    id_list ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  };

  SUBCASE("rows of batches in flight stay; what finds no room reads as its initial row and gets no update") {
    options.batches_in_flight = 2;
    std::vector<cached> tables;
    tables.emplace_back(exec, options, optimizer);
    tessera::basic_lookup_saved<Exec> a, b, c;
    device_batch<Exec> in_a, in_b, in_c;
    lookup(tables, range(0, 20), a, in_a);
    auto const values = lookup(tables, range(100, 20), b, in_b);  // 12 find a free slot, the least
    auto const slots = tessera_tests::get(exec, b.slots);
    for (std::size_t i = 0; i < 20; ++i) {
      CHECK((slots[i] >= 0) == (i < 12));
      CHECK(same_bits(values.data() + 4 * i, initial_row(options, 100 + static_cast<std::int64_t>(i)).data(), 4));
    }
    CHECK(find_there(exec, tables[0], range(0, 20)) == tessera_tests::get(exec, a.slots));
    auto const gradients = tessera_tests::put(exec, std::vector<float>(20 * 4, 1.0F));
    std::vector<tessera::pooled_feature> const one{{0}};
    std::vector<tessera::matrix_view<float const>> const in{{gradients.data(), 20, 4}};
    tessera::pooled_lookup_backward(exec, tables, one, b, in, optimizer);
    for (std::size_t i = 0; i < 12; ++i)
      CHECK_FALSE(same_bits(row_there(exec, tables[0], slots[i]).first, initial_row(options, 100 + static_cast<std::int64_t>(i))));
    CHECK(initial_there(exec, tables[0], range(0, 20), tessera_tests::get(exec, a.slots)));
    lookup(tables, range(200, 25), c, in_c);  // the first batch may leave now
    auto const third = tessera_tests::get(exec, c.slots);
    for (std::size_t i = 0; i < 25; ++i) CHECK((third[i] >= 0) == (i < 20));
    CHECK(find_there(exec, tables[0], range(0, 20)) == id_list(20, -1));
    CHECK(find_there(exec, tables[0], range(100, 12)) == id_list(slots.begin(), slots.begin() + 12));
  }
  SUBCASE("an id that another key names keeps its row before new ones come") {
    std::vector<cached> tables;
    tables.emplace_back(exec, options, optimizer);
    tessera::basic_lookup_saved<Exec> saved;
    device_batch<Exec> there;
    lookup(tables, range(0, 32), saved, there);
    std::vector<id_list> fresh;
    for (auto const id : range(500, 40)) fresh.push_back({id});
    there = device_batch<Exec>::copy_of(exec, tessera::keyed_jagged<>::from_rows(host.exec(), {{"new", fresh}, {"old", {{0}, {1}, {2}}}}));
    device_matrices<Exec> out(exec, {{storage.data(), 40, 4}, {storage.data(), 3, 4}}, 0);
    std::vector<tessera::pooled_feature> const both{{0}, {0}};
    tessera::pooled_lookup(exec, tables, both, std::as_const(there).view(), out.out(), saved);
    auto const slots = tessera_tests::get(exec, saved.slots);
    for (std::size_t i = 0; i < 43; ++i) CHECK((slots[i] >= 0) == (i < 29 || i >= 40));
    CHECK(find_there(exec, tables[0], {0, 1, 2}) == id_list(slots.begin() + 40, slots.begin() + 43));
  }
  SUBCASE("ids out of range are told, or read as zeros and are counted") {
    std::vector<cached> tables;
    tables.emplace_back(exec, options, optimizer);
    tessera::basic_lookup_saved<Exec> saved;
    device_batch<Exec> there;
    lookup(tables, {3, -4, -5}, saved, there, {.out_of_range = tessera::out_of_range_ids::zero});
    auto count = tessera_tests::put(exec, id_list{0});
    auto const values =
        lookup(tables, {3, -4, -5}, saved, there, {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = count.data()});
    CHECK(same_bits(values.data(), initial_row(options, 3).data(), 4));
    for (std::size_t c = 4; c < 12; ++c) CHECK(values[c] == 0);
    CHECK(tessera_tests::get(exec, count) == id_list{2});
    CHECK(std::string(tessera_tests::error_of([&] {
                        lookup(tables, {3, -4, -5}, saved, there);
                      }).what()) == "pooled_lookup: id out of range (feature 0, table 5, row 1, position 0, id -4, rows 32)");
  }
  SUBCASE("rows leave with their states, enter another table and come back") {
    cached store(exec, options, optimizer);
    tessera::bucket_table<float, Exec> others(exec, options, optimizer);
    auto const slots = locate_there(exec, store, range(0, 32)).slots;
    for (std::size_t i = 0; i < 32; ++i) {
      auto const row = tessera_tests::random_floats(random, 5);
      exec.copy_in(store.row(slots[i]), row.data(), 4 * sizeof(float));
      exec.copy_in(store.state(slots[i]), row.data() + 4, sizeof(float));
    }
    auto const read = [&](auto const& from, id_list const& ids) {
      auto const n = static_cast<std::int64_t>(ids.size());
      tessera::buffer<float, Exec> weights(exec, n * 4), states(exec, n);
      tessera::read_rows(exec, from, tessera_tests::put(exec, ids).view(), {weights.data(), n, 4}, {states.data(), n, 1});
      auto all = tessera_tests::get(exec, weights);
      auto const more = tessera_tests::get(exec, states);
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    auto const before = read(store, range(0, 20));
    store.begin_batch();
    store.keep_evicted(true);
    locate_there(exec, store, range(100, 7));
    locate_there(exec, store, range(107, 13));
    auto const left = store.evicted();
    CHECK(left.ids.size() == 20);
    CHECK(find_there(exec, store, range(0, 20)) == id_list(20, -1));
    tessera::write_rows(exec, others, left.ids, left.weights, left.states);
    CHECK(same_bits(read(others, range(0, 20)), before));
    store.clear_evicted();
    CHECK(store.evicted().ids.size() == 0);
    store.begin_batch();
    auto const ids = tessera_tests::put(exec, range(0, 20));
    tessera::buffer<float, Exec> weights(exec, 80), states(exec, 20);
    tessera::read_rows(exec, others, ids.view(), {weights.data(), 20, 4}, {states.data(), 20, 1});
    tessera::write_rows(exec, store, ids.view(), {weights.data(), 20, 4}, {states.data(), 20, 1});
    CHECK(same_bits(read(store, range(0, 20)), before));
    CHECK(store.evicted().ids.size() == 20);
  }
  SUBCASE("sequence lookups forward and backward have the bits of the host's hashed tables") {
    auto const all = tables_of_dims({3, 8, 130}, 100);
    auto const features = sequence_features(3);
    auto tables = make_tables<tessera::hash_table<>>(host.exec(), all, optimizer);
    std::vector<tessera::bucket_table<float, Exec>> device_tables;
    for (auto const& o : all) device_tables.emplace_back(exec, o, optimizer);
    for (int step = 0; step < 2; ++step) {
      auto const batch =
          random_batch(host.exec(), random, features.size(), {.id_range = 60, .most_rows = 12, .mean_length = 4, .weighted = false});
      auto const there = device_batch<Exec>::copy_of(exec, batch);
      auto const view = std::as_const(batch).view();
      value_matrices out(all, features, view), gradients(all, features, view);
      std::normal_distribution<float> draw;
      gradients.fill([&] { return draw(random); });
      device_matrices<Exec> evaluated(exec, out.out(), 0), device_out(exec, out.out(), 3), device_gradients(exec, gradients.out(), 0);
      tessera::lookup_saved saved;
      tessera::basic_lookup_saved<Exec> device_saved;
      tessera::sequence_lookup(exec, std::as_const(device_tables), features, there.view(), evaluated.out());
      tessera::sequence_lookup(host.exec(), tables, features, view, out.out(), saved);
      tessera::sequence_lookup(exec, device_tables, features, there.view(), device_out.out(), device_saved);
      CHECK(same_bits(device_out.values(), out.values()));
      CHECK(same_bits(evaluated.values(), out.values()));
      tessera::sequence_lookup_backward(host.exec(), tables, features, saved, gradients.in(), optimizer);
      tessera::sequence_lookup_backward(exec, device_tables, features, device_saved, device_gradients.in(), optimizer);
      CHECK(same_rows(exec, tables, device_tables));
    }
    auto const there = device_batch<Exec>::copy_of(exec, tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{-2}}}}));
    device_matrices<Exec> out(exec, {{storage.data(), 1, 3}}, 0);
    tessera::sequence_lookup(exec, std::as_const(device_tables), std::vector<std::int64_t>{0}, there.view(), out.out());
    CHECK(tessera_tests::error_of([&] { exec.synchronize(); }).value("id") == "-2");
  }
  SUBCASE("nothing at all; offsets that are none locate nothing that is not there") {
    std::vector<cached> tables;
    tables.emplace_back(exec, options, optimizer);
    tessera::basic_lookup_saved<Exec> saved;
    device_batch<Exec> there;
    lookup(tables, {}, saved, there);
    std::vector<tessera::pooled_feature> const one{{0}};
    auto const values = tessera_tests::put(exec, id_list{1, 2, 3});
    std::vector<std::int64_t> const first_row{0, 3};
    for (auto const& wrong : {id_list{0, 2, 1, 3}, id_list{-5, 2, 2, 3}, id_list{0, 1, 2, 1000}, id_list{2, 1, 1, 0}}) {
      auto const offsets = tessera_tests::put(exec, wrong);
      tessera::keyed_jagged_view<std::int64_t const> const batch{values.data(), nullptr, offsets.data(), first_row.data(), 1, 3};
      device_matrices<Exec> out(exec, {{storage.data(), 3, 4}}, 0);
      tessera::pooled_lookup(exec, tables, one, batch, out.out(), saved);
      CHECK(std::string(tessera_tests::error_of([&] { exec.synchronize(); }).what()).find("jagged: offsets decrease") == 0);
    }
    tables[0].find(exec, values.view(), tessera_tests::put(exec, id_list(3)).view());
    CHECK(tables[0].rows() <= 3);
  }
}

}  // namespace embed_tests
