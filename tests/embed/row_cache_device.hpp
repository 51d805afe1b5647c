// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/row_cache.cuh>
#include <tessera/embed/sequence_lookup.cuh>

#include "device_tables.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// Training through a cache is training of the table behind it, bit for bit, whatever the size of the cache. `behind_exec`: whose memory the
/// tables behind lie in.
template <class Element, class Eviction, class Exec>
void row_cache_device_suite(Exec const& exec, Exec const& behind_exec) {
  using table = tessera::dense_table<Element, Exec>;
  using cache = tessera::row_cache<table, Eviction>;
  static_assert(tessera::row_store<cache>);
  tessera_tests::serial_host host;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  auto options = tables_of_dims({16, 3, 130}, 300);
  auto const tables_behind = [&] { return make_device_tables<Element>(behind_exec, options, optimizer); };

  SUBCASE("steps over a cache of one set, of a few, of more lines than rows") {
    auto const features = features_over(3);
    for (std::int64_t const lines : {1, 96, 1000})
      for (std::int64_t const in_flight : {1, 3}) {
        CAPTURE(lines);
        CAPTURE(in_flight);
        for (auto& o : options) o.batches_in_flight = in_flight;
        auto tables = make_tables<tessera::dense_table<Element>>(host.exec(), options, optimizer);
        auto behind = tables_behind();
        std::vector<cache> caches;
        for (auto& t : behind) caches.emplace_back(exec, t, lines);
        for (int step = 0; step < 5; ++step) {
          CAPTURE(step);
          auto const batch = random_batch(host.exec(), random, features.size(),
                                          {.id_range = step < 3 ? 300 : 30, .most_rows = 12, .mean_length = 4, .weighted = step == 1});
          auto const there = device_batch<Exec>::copy_of(exec, batch);
          auto const gradients = random_gradients(random, options, features, batch.view());
          pooled_matrices out(options, features, batch.view());
          device_matrices<Exec> device_out(exec, out.out(), 0), evaluated(exec, out.out(), 0), device_gradients(exec, gradients.out(), 0);
          tessera::lookup_saved saved;
          tessera::basic_lookup_saved<Exec> device_saved;
          tessera::pooled_lookup(exec, std::as_const(caches), features, there.view(), evaluated.out());
          tessera::pooled_lookup(host.exec(), tables, features, std::as_const(batch).view(), out.out(), saved);
          tessera::pooled_lookup(exec, caches, features, there.view(), device_out.out(), device_saved);
          CHECK(same_bits(device_out.values(), out.values()));
          CHECK(same_bits(evaluated.values(), out.values()));
          tessera::pooled_lookup_backward(host.exec(), tables, features, saved, gradients.in(), optimizer);
          tessera::pooled_lookup_backward(exec, caches, features, device_saved, device_gradients.in(), optimizer);
        }
        for (auto& c : caches) c.write_back(exec);
        CHECK(same_tables(exec, tables, behind));
      }
  }
  SUBCASE("hits, fetches and rows written back are counted") {
    for (auto& o : options) o.batches_in_flight = 1;
    auto behind = tables_behind();
    cache c(exec, behind[0], 1);
    CHECK(c.lines() == 32);
    auto const locate = [&](std::vector<std::int64_t> const& ids) {
      auto const there = tessera_tests::put(exec, ids);
      tessera::buffer<std::int64_t, Exec> slots(exec, there.size());
      c.begin_batch();
      c.locate(exec, there.view(), slots.view());
      return tessera_tests::get(exec, slots);
    };
    std::vector<std::int64_t> first(32), second(32), all(64);
    for (std::size_t i = 0; i < 32; ++i) {
      first[i] = static_cast<std::int64_t>(i);
      second[i] = static_cast<std::int64_t>(100 + i);
    }
    auto const slots = locate(first);
    CHECK(std::all_of(slots.begin(), slots.end(), [](auto s) { return s >= 0 && s < 32; }));
    CHECK(c.counts().fetched == 32);
    CHECK(c.counts().hits == 0);
    CHECK(locate(first) == slots);
    CHECK(c.counts().hits == 32);
    locate(second);  // every line for another
    CHECK(c.counts().fetched == 64);
    CHECK(c.counts().written == 32);
    std::copy(first.begin(), first.end(), all.begin());
    std::copy(second.begin(), second.end(), all.begin() + 32);
    auto const both = locate(all);  // the second half is found, and locked, so the first half is used where it is
    for (std::size_t i = 0; i < 32; ++i) CHECK(both[i] == 32 + first[i]);
    CHECK(c.counts().uncached == 32);
    CHECK(c.counts().hits == 64);
    CHECK(locate({-1, 300, 5})[0] == -1);
    CHECK(c.counts().fetched == 65);
  }
  SUBCASE("what was prefetched hits") {
    auto behind = tables_behind();
    cache c(exec, behind[0], 64);
    auto const ids = tessera_tests::put(exec, std::vector<std::int64_t>{7, 8, 9, 7});
    c.prefetch(exec, ids.view());
    CHECK(c.counts().fetched == 3);
    auto const before = c.counts().hits;
    tessera::buffer<std::int64_t, Exec> slots(exec, 4);
    c.begin_batch();
    c.locate(exec, ids.view(), slots.view());
    CHECK(c.counts().hits == before + 4);
    CHECK(c.counts().fetched == 3);
  }
  SUBCASE("ids out of range are told, and read as zeros") {
    auto behind = tables_behind();
    std::vector<cache> caches;
    for (auto& t : behind) caches.emplace_back(exec, t, 64);
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 300}, {-1}}}});
    auto const there = device_batch<Exec>::copy_of(exec, batch);
    std::vector<tessera::pooled_feature> const one{{0}};
    pooled_matrices out(options, one, batch.view());
    device_matrices<Exec> device_out(exec, out.out(), 0);
    tessera::basic_lookup_saved<Exec> saved;
    tessera::pooled_lookup(exec, caches, one, there.view(), device_out.out(), saved);
    CHECK(std::string(tessera_tests::error_of([&] { exec.synchronize(); }).what()) ==
          "pooled_lookup: id out of range (feature 0, table 100, row 0, position 1, id 300, rows 300)");
    auto const values = device_out.values();
    for (std::size_t c = 16; c < 32; ++c) CHECK(values[c] == 0);
  }
  SUBCASE("a cache without lines is refused") {
    auto behind = tables_behind();
    CHECK_THROWS_AS(cache(exec, behind[0], 0), tessera::error);
  }
}

}  // namespace embed_tests
