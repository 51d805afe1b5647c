// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/profile_tables.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tensor/keyed_jagged.hpp>

#include "hosts.hpp"
#include "temporary_folder.hpp"

namespace profile_tables_test {

using rows = std::vector<std::vector<std::int64_t>>;
using tessera::table_profile;

namespace {

/// Gives batches of two keys.
class listed_batches {
 public:
  struct batch {
    rows a, b;
  };
  listed_batches(tessera::host_exec const& exec, std::vector<batch> const& all) {
    for (auto const& one : all) {
      ids_.push_back(tessera::keyed_jagged<>::from_rows(exec, {{"a", one.a}, {"b", one.b}}));
      samples_.push_back(static_cast<std::int64_t>(one.a.size()));
    }
  }
  bool next(tessera::host_exec const&, tessera::batch_view& out) {
    if (given == ids_.size()) return false;
    out = {};
    out.dense = {nullptr, samples_[given], 0};
    out.sparse = std::as_const(ids_[given++]).view();
    return true;
  }
  std::size_t given = 0;

 private:
  std::vector<tessera::keyed_jagged<>> ids_;
  std::vector<std::int64_t> samples_;
};
static_assert(tessera::batch_reader<listed_batches>);

std::vector<tessera::table_with_keys> const tables{{{.name = "t", .rows = 9, .dim = 4, .tower = 2}, {0}},
                                                   {{.name = "u", .rows = 9, .dim = 8}, {0, 1}},
                                                   {{.name = "v", .rows = 9, .dim = 8}, {1}}};
std::vector<listed_batches::batch> const batches{
    {{{1}, {1, 1, 2}}, {{}, {}}},  // a reads row 1 three times, row 2 once
    {{{5}, {6}}, {{7}, {7, 8}}},
    {{{0}}, {{0}}},  // the last one is short
};

}  // namespace

TEST_CASE("profile_tables: means of the batches, without a short one") {
  tessera_tests::serial_host host;
  listed_batches reader(host.exec(), batches);
  auto const found = tessera::profile_tables(host.exec(), reader, tables, 9);
  CHECK(reader.given == 3);
  REQUIRE(found.size() == 3);
  for (auto const& one : found) tessera::check_table_profile(one);
  CHECK(found[0].name == "t");
  CHECK(found[0].tower == 2);
  CHECK(found[0].bags == 2);
  CHECK(found[0].pooling_factor == doctest::Approx((2 + 1) / 2.0));
  // Rows read once: one of two in the first batch, both in the second; three reads are in bin 2.
  CHECK(found[0].access[0] == doctest::Approx(0.75));
  CHECK(found[0].access[2] == doctest::Approx(0.25));
  CHECK(found[1].bags == 4);
  CHECK(found[1].pooling_factor == doctest::Approx((1 + 1.25) / 2));
  // Key b is empty in the first batch, whose bins do not count.
  CHECK(found[2].access[0] == doctest::Approx(0.5));
  CHECK(found[2].access[1] == doctest::Approx(0.5));
  CHECK(found[2].pooling_factor == doctest::Approx(0.75));
}

TEST_CASE("profile_tables: of one batch they are those of its keys; a limit leaves the others to be read") {
  tessera_tests::serial_host host;
  listed_batches reader(host.exec(), batches);
  auto const found = tessera::profile_tables(host.exec(), reader, tables, 1);
  CHECK(reader.given == 1);
  listed_batches again(host.exec(), batches);
  tessera::batch_view batch;
  REQUIRE(again.next(host.exec(), batch));
  for (std::size_t t = 0; t < tables.size(); ++t)
    CHECK(found[t] == tessera::profile_of_keys(tables[t].table, batch.inverse_keyed(), tables[t].keys));
}

TEST_CASE("profile_tables: no batch, and a key that a batch lacks, are named") {
  tessera_tests::serial_host host;
  auto const error_of = [&](std::vector<listed_batches::batch> const& of, std::int64_t count, std::vector<std::int64_t> const& keys) {
    listed_batches reader(host.exec(), of);
    std::vector<tessera::table_with_keys> const one{{{.name = "t", .rows = 9, .dim = 4}, keys}};
    return std::string(tessera_tests::error_of([&] { tessera::profile_tables(host.exec(), reader, one, count); }).what());
  };
  CHECK(error_of(batches, 0, {0}) == "profile_tables: at least one batch (batches 0)");
  CHECK(error_of({}, 3, {0}) == "profile_tables: the reader has no batch (batches 0)");
  CHECK(error_of(batches, 3, {2}) == "profile_of_keys: no such key (table t, key 2, keys 2)");
}

}  // namespace profile_tables_test
