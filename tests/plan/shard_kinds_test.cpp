// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: values
#include <tessera/plan/shard_kinds.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "random.hpp"
#include "random_models.hpp"

namespace shard_kinds_test {

using tessera::matrix_view;
using tessera::table_profile;
using tessera::vector_view;
using tessera::detail::shard_kinds;

TEST_CASE("shard_kinds: pieces cover the table once, halves join again, and sums are made of profiles") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 4, true);
  std::vector<table_profile> tables;
  for (int t = 0; t < 6; ++t) tables.push_back(tessera_tests::random_profile(random, 200'000, 64));
  tables[1].rows = tessera::detail::shard_kinds::least_rows;
  tables[2].rows = (std::int64_t{1} << 40) + 12'345;  // a product of rows and pieces would not fit
  for (bool const cut_columns : {false, true})
    for (bool const cut_rows : {false, true}) {
      CAPTURE(cut_columns);
      CAPTURE(cut_rows);
      shard_kinds const kinds(tables, model, tessera::counted_memory::all, cut_columns, cut_rows);
      int count = 0;
      for (std::int64_t t = 0; t < kinds.tables(); ++t) {
        CAPTURE(t);
        auto const& table = tables[static_cast<std::size_t>(t)];
        CHECK(kinds.whole(t) == count);
        int columns_of = 1, rows_of = 1;  // how many widths, and heights, a shard of the table may have
        for (int kind = count; kinds[kind].half_columns >= 0; kind = kinds[kind].half_columns) ++columns_of;
        for (int kind = count; kinds[kind].half_rows >= 0; kind = kinds[kind].half_rows) ++rows_of;
        CHECK((columns_of > 1) == (cut_columns && table.dim >= 8));
        CHECK((rows_of > 1) == (cut_rows && table.rows >= 2 * shard_kinds::least_rows));
        auto const end = count + columns_of * rows_of;
        for (; count < end; ++count) {
          auto const kind = count;
          auto const& of = kinds[kind];
          CHECK(of.table == t);
          CHECK((of.column_halvings == 0 || cut_columns));
          CHECK((of.row_halvings == 0 || cut_rows));
          auto const profile = kinds.profile(kind);
          CHECK(static_cast<float>(profile.dim) == of.columns);
          CHECK((of.column_halvings == 0 || profile.dim % 4 == 0));
          CHECK(of.bytes == tessera::memory_of_shard(profile, tessera::counted_memory::all).total());
          std::vector<float> expected(static_cast<std::size_t>(kinds.width()));
          model.represent(vector_view<table_profile const>(&profile, 1), matrix_view<float>(expected.data(), 1, kinds.width()));
          CHECK(expected == std::vector<float>(kinds.representation(kind), kinds.representation(kind) + kinds.width()));
          if (of.half_columns >= 0) CHECK(kinds.joined(of.half_columns, false) == kind);
          if (of.half_rows >= 0) CHECK(kinds.joined(of.half_rows, true) == kind);
          // All its pieces in the first row and the first column of pieces, of which there may be 2^30.
          std::int64_t columns = 0;
          for (std::int64_t c = 0; c < std::int64_t{1} << of.column_halvings; ++c) {
            auto const shard = kinds.shard(kind, c, 0, 3);
            CHECK(shard.first_column == columns);
            CHECK(shard.rank == 3);
            columns += shard.columns;
          }
          CHECK(columns == table.dim);
          auto const pieces = std::int64_t{1} << of.row_halvings;
          auto const first = kinds.shard(kind, 0, 0, 0), last = kinds.shard(kind, 0, pieces - 1, 0);
          CHECK(first.first_row == 0);
          CHECK(last.first_row + last.rows == table.rows);
          CHECK(profile.rows - last.rows <= 1);
          for (std::int64_t r = 1; r < pieces && r < 100; ++r) {
            auto const before = kinds.shard(kind, 0, r - 1, 0), here = kinds.shard(kind, 0, r, 0);
            CHECK(before.first_row + before.rows == here.first_row);
            CHECK(here.rows <= profile.rows);
            CHECK(here.rows >= profile.rows - 1);
          }
        }
      }
    }
}

TEST_CASE("shard_kinds: a table whose halves are no multiples of four has one kind") {
  std::mt19937_64 random(1);
  auto const model = tessera_tests::random_published_cost(random, 2, true);
  table_profile table;
  table.rows = 1000;
  for (std::int64_t const dim : {1, 4, 6, 12, 20}) {
    CAPTURE(dim);
    table.dim = dim;
    shard_kinds const kinds(vector_view<table_profile const>(&table, 1), model, tessera::counted_memory::float_weights, true, true);
    CHECK(kinds[0].half_columns == -1);
    CHECK(kinds[0].half_rows == -1);  // fewer rows than are halved
  }
  table.dim = 8;
  shard_kinds const kinds(vector_view<table_profile const>(&table, 1), model, tessera::counted_memory::float_weights, true, false);
  CHECK(kinds[0].half_columns == 1);
  CHECK(kinds[1].columns == 4);
  CHECK(kinds[1].half_columns == -1);
}

}  // namespace shard_kinds_test
