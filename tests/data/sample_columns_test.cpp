// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/sample_columns.hpp>

#include <algorithm>
#include <new>
#include <random>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"

using namespace sample_tests;
using tessera_tests::error_of;

TEST_CASE("sample_columns: what was appended, whatever the parts, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    for (table_shape const& shape :
         {table_shape{}, table_shape{70, 0, 4}, table_shape{70, 3, 0}, table_shape{30, 0, 0}, table_shape{1, 1, 1, 500},
          table_shape{.rows = 60, .sparse = 3, .single = 2, .other_labels = 2, .weights = true},
          table_shape{.rows = 20, .sparse = 2, .single = 2}}) {
      CAPTURE(shape.dense);
      CAPTURE(shape.sparse);
      auto const samples = random_samples(random, shape);
      auto const schema = schema_of(shape);
      tessera::sample_columns from, to(schema);
      fill(exec, schema, samples, from);
      CHECK(samples_of(from.view()) == samples);

      // In ranges.
      for (std::int64_t first = 0; first < shape.rows;) {
        auto const count = std::min<std::int64_t>(shape.rows - first, static_cast<std::int64_t>(random() % 20));
        to.append(exec, from.view(), first, count);
        first += count;
        CHECK(to.size() == first);
      }
      CHECK(samples_of(to.view()) == samples);

      // By index, with repeats; behind what is there.
      auto expected = samples;
      auto const indices = tessera_tests::random_integers<std::int64_t>(random, 150, 0, shape.rows - 1);
      to.append(exec, from.view(), indices);
      for (auto const index : indices) expected.push_back(samples[static_cast<std::size_t>(index)]);
      CHECK(samples_of(to.view()) == expected);

      // Of two sources by turns.
      std::vector<tessera::sample_columns_view> const sources{from.view(), to.view()};
      std::vector<tessera::sample_place> places;
      std::vector<sample> merged;
      for (int i = 0; i < 200; ++i) {
        std::int64_t const source = random() % 2,
                           row = static_cast<std::int64_t>(random() %
                                                           static_cast<std::uint64_t>(sources[static_cast<std::size_t>(source)].size()));
        places.push_back({source, row});
        if (row + 1 < sources[static_cast<std::size_t>(source)].size()) places.push_back({source, row + 1});
      }
      for (auto const& place : places) merged.push_back((place.source == 0 ? samples : expected)[static_cast<std::size_t>(place.row)]);
      tessera::sample_columns both(schema);
      both.append(exec, sources, places);
      CHECK(samples_of(both.view()) == merged);
    }
  });
}

TEST_CASE("sorted_by: ascending, and those of one key in their order") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  for (table_shape const& shape : {table_shape{}, table_shape{0}, table_shape{1, 0, 2}, table_shape{50, 2, 0, 3, 3}}) {
    auto samples = random_samples(random, shape);
    tessera::sample_columns columns;
    fill(exec, schema_of(shape), samples, columns);
    auto const sorted = tessera::sorted_by(exec, columns, columns.view().sessions);
    std::stable_sort(samples.begin(), samples.end(), [](sample const& a, sample const& b) { return a.session < b.session; });
    CHECK(samples_of(sorted.view()) == samples);
    CHECK(sorted.has_columns_of(schema_of(shape)));
  }
  tessera::sample_columns const none(schema_of({}, false, false));
  CHECK(tessera::sorted_by(exec, none, none.view().times).has_columns_of(schema_of({}, false, false)));
  std::vector<std::int64_t> const keys(3);
  auto const e = error_of([&] { tessera::sorted_by(exec, none, keys); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("keys") == "3");
}

TEST_CASE("sample_columns: clear keeps the memory, and nothing is allocated again") {
  std::mt19937_64 random(7);
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  auto const samples = random_samples(random, {});
  auto const schema = schema_of({});
  tessera::sample_columns from, to(schema);
  fill(exec, schema, samples, from);
  to.append(exec, from.view(), 0, 100);
  auto const allocations = h.memory().allocations();
  auto const bytes = to.bytes();
  for (int round = 0; round < 3; ++round) {
    to.clear();
    CHECK(to.size() == 0);
    CHECK(to.view().size() == 0);
    CHECK(to.view().sparse[0].size() == 0);
    to.append(exec, from.view(), 50, 50);
    to.append(exec, from.view(), 0, 50);
    CHECK(samples_of(to.view())[50] == samples[0]);
  }
  CHECK(h.memory().allocations() == allocations);
  CHECK(to.bytes() == bytes);
  CHECK(bytes <= h.memory().live_bytes());
}

TEST_CASE("sample_columns: tables without samples, without columns, without sessions") {
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  table_shape const shape{5, 2, 2};
  tessera::sample_columns empty(schema_of(shape)), other(schema_of(shape));
  CHECK(empty.view().size() == 0);
  CHECK(samples_of(empty.view()).empty());
  other.append(exec, empty.view(), 0, 0);
  other.append(exec, empty.view(), std::vector<std::int64_t>{});
  other.append(exec, std::vector<tessera::sample_columns_view>{}, std::vector<tessera::sample_place>{});
  CHECK(other.size() == 0);
  CHECK(other.view().sparse[1].size() == 0);
  other.resize(exec, 0);
  CHECK(other.offsets(0)[0] == 0);
  CHECK(other.ids(exec, 0).size() == 0);

  std::mt19937_64 random(3);
  auto const samples = random_samples(random, shape);
  tessera::sample_columns with, without(schema_of(shape, false, false));
  fill(exec, schema_of(shape), samples, with);
  without.append(exec, with.view(), 1, 3);  // sessions and times are left behind
  CHECK(without.view().sessions.empty());
  CHECK(without.view().times.empty());
  CHECK(samples_of(without.view())[2].sparse == samples[3].sparse);
}

TEST_CASE("sample_columns: what does not fit is refused, and changes nothing") {
  tessera_tests::serial_host h;
  auto const exec = h.exec();
  std::mt19937_64 random(5);
  table_shape const shape{20, 2, 2};
  auto const samples = random_samples(random, shape);
  tessera::sample_columns from, without, to(schema_of(shape));
  fill(exec, schema_of(shape), samples, from);
  fill(exec, schema_of(shape, false), samples, without);
  to.append(exec, from.view(), 0, 5);

  auto const refuse = [&](auto const& call, tessera::errc code) {
    auto const e = error_of(call);
    CHECK(e.code() == code);
    CHECK(samples_of(to.view()) == std::vector<sample>(samples.begin(), samples.begin() + 5));
    return e;
  };
  using indices = std::vector<std::int64_t>;
  for (auto const& range : {std::pair{-1, 2}, std::pair{19, 2}, std::pair{0, -1}, std::pair{21, 0}}) {
    auto const e = refuse([&] { to.append(exec, from.view(), range.first, range.second); }, tessera::errc::out_of_range);
    CHECK(e.value("first") == std::to_string(range.first));
    CHECK(e.value("samples") == "20");
  }
  CHECK(refuse([&] { to.append(exec, from.view(), indices{3, 20}); }, tessera::errc::out_of_range).value("row") == "20");
  CHECK(refuse([&] { to.append(exec, from.view(), indices{-1}); }, tessera::errc::out_of_range).value("row") == "-1");
  std::vector<tessera::sample_columns_view> const sources{from.view()};
  CHECK(refuse(
            [&] {
              to.append(exec, sources, std::vector<tessera::sample_place>{{0, 1}, {1, 0}});
            },
            tessera::errc::out_of_range)
            .value("source") == "1");
  CHECK(refuse(
            [&] {
              to.append(exec, sources, std::vector<tessera::sample_place>{{0, 20}});
            },
            tessera::errc::out_of_range)
            .value("row") == "20");

  tessera::sample_columns other;
  for (table_shape const& wrong : {table_shape{20, 3, 2}, table_shape{20, 2, 1}}) {
    fill(exec, schema_of(wrong), random_samples(random, wrong), other);
    auto const e = refuse([&] { to.append(exec, other.view(), 0, 1); }, tessera::errc::shape_mismatch);
    CHECK(e.value("dense") == std::to_string(wrong.dense));
    CHECK(e.value("dense expected") == "2");
    CHECK(e.value("sparse") == std::to_string(wrong.sparse));
  }
  CHECK(refuse([&] { to.append(exec, without.view(), 0, 1); }, tessera::errc::shape_mismatch).value("sessions") == "0");
  for (table_shape const& wrong : {table_shape{.rows = 20, .dense = 2, .sparse = 2, .single = 1}}) {  // single ids are no lists
    fill(exec, schema_of(wrong), random_samples(random, wrong), other);
    refuse([&] { to.append(exec, other.view(), 0, 1); }, tessera::errc::shape_mismatch);
  }

  // Memory that runs out on the way.
  for (std::int64_t allowed = 0;; ++allowed) {
    h.memory().fail_after(allowed);
    bool failed = false;
    try {
      to.append(exec, from.view(), 0, 20);
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    h.memory().never_fail();
    if (!failed) break;
    CHECK(samples_of(to.view()) == std::vector<sample>(samples.begin(), samples.begin() + 5));
  }
  CHECK(to.size() == 25);
}
