// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include <tessera/core/row_formats.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/safetensors.hpp>

namespace {

using namespace tessera;
using namespace tessera_tests;

using store = dense_table<float16>;

template <class Store = store, class Optimizer = rowwise_adam>
std::vector<Store> made(host_exec const& exec, std::int64_t rows, std::int64_t first_column, std::int64_t columns,
                        std::int64_t first_row = 0) {
  std::vector<Store> tables;
  tables.emplace_back(exec,
                      table_options{.id = table_id{0}, .dim = columns, .rows = rows, .first_row = first_row, .first_column = first_column},
                      Optimizer{});
  return tables;
}

stored_block block_of(std::string const& path, std::int64_t first_column, std::int64_t columns, std::int64_t first_row = 0,
                      std::int64_t rows = part_place::all_rows) {
  return {std::make_shared<safetensors_reader const>(path), 0, first_column, columns, first_row, rows};
}

stored_table stored_of(std::vector<stored_block> const& blocks, std::int64_t first_column, std::int64_t columns, std::int64_t first_row = 0,
                       std::int64_t rows = part_place::all_rows, std::int64_t table_rows = part_place::all_rows) {
  return {part_place{7, first_column, columns, first_row, rows}, blocks, row_state_layout::of(rowwise_adam{}), table_rows};
}

// Reads the rows and columns that the table's options say.
template <class Store>
void load(host_exec const& exec, std::vector<Store>& tables, std::vector<stored_block> const& blocks, std::int64_t table_rows) {
  auto parts = parts_of(tables);
  auto const& options = tables[0].options();
  auto const rows = options.rows == table_rows ? part_place::all_rows : options.rows;
  std::vector<std::vector<stored_table>> stored(1);
  stored[0].emplace_back(part_place{0, options.first_column, options.dim, options.first_row, rows}, blocks, tables[0].state_layout(),
                         table_rows);
  table_file_reader(std::move(stored), parts, table_content::all).read(exec);
}

// Rectangles that cover a place.
void cut(std::mt19937_64& random, part_place const& place, std::vector<part_place>& pieces) {
  auto left = place, right = place;
  auto const kind = random() % 5;
  if (kind < 2 && place.rows > 1) {
    left.rows = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(place.rows - 1));
    right.first_row += left.rows;
    right.rows -= left.rows;
  } else if (kind < 4 && place.columns > 4) {
    left.columns = 4 * (1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(place.columns / 4 - 1)));
    right.first_column += left.columns;
    right.columns -= left.columns;
  } else {
    pieces.push_back(place);
    return;
  }
  cut(random, left, pieces);
  cut(random, right, pieces);
}

}  // namespace

TEST_CASE("a table that is cut into rectangles, and again otherwise, comes back from them byte for byte") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 24;
  auto const any_rows = static_cast<std::int64_t>(1 + random() % 300);
  for (auto const rows : {std::int64_t{1}, any_rows, 2 * detail::table_rows_per_piece + 5}) {
    CAPTURE(rows);
    temporary_folder folder;
    auto whole = made(exec, rows, 0, dim);
    for (std::int64_t row = 0; row < rows; ++row) {
      auto const values = random_floats(random, 2 * dim + 1);
      for (std::int64_t c = 0; c < dim; ++c) whole[0].row(row)[c] = row_scale<float16>{}.nearest(values[static_cast<std::size_t>(c)]);
      std::copy(values.begin() + dim, values.end(), whole[0].state(row));
    }
    write_table_file(exec, folder.file("whole"), parts_of(whole));
    std::vector<stored_block> blocks{block_of(folder.file("whole"), 0, dim)};
    for (int const round : {0, 1, 2}) {
      CAPTURE(round);
      std::vector<part_place> pieces;
      cut(random, {0, 0, dim, 0, rows}, pieces);
      std::vector<stored_block> next;
      for (auto const& piece : pieces) {
        auto part = made(exec, piece.rows, piece.first_column, piece.columns, piece.first_row);
        load(exec, part, blocks, rows);
        auto const path = folder.file(std::to_string(round) + "." + std::to_string(next.size()));
        write_table_file(exec, path, parts_of(part));
        bool const has_all = piece.rows == rows;  // which a block need not say
        next.push_back(block_of(path, piece.first_column, piece.columns, piece.first_row, has_all ? part_place::all_rows : piece.rows));
      }
      std::shuffle(next.begin(), next.end(), random);
      blocks = next;
    }
    // All blocks have the state of a row that the whole had, and so has their mean.
    auto back = made(exec, rows, 0, dim);
    load(exec, back, blocks, rows);
    write_table_file(exec, folder.file("back"), parts_of(back));
    CHECK(contents(folder.file("back")) == contents(folder.file("whole")));
  }
}

TEST_CASE("blocks that leave a gap, overlap or have other rows are refused, naming table and column") {
  serial_host host;
  auto const exec = host.exec();
  temporary_folder folder;
  auto const write = [&](std::string const& name, std::int64_t rows, std::int64_t first_column, std::int64_t columns) {
    auto const tables = std::make_unique<std::vector<store>>(made(exec, rows, first_column, columns));
    write_table_file(exec, folder.file(name), parts_of(*tables));
    return block_of(folder.file(name), first_column, columns);
  };
  auto const left = write("left", 5, 0, 8), right = write("right", 5, 8, 8), overlapping = write("overlapping", 5, 4, 12),
             longer = write("longer", 6, 8, 8);
  auto const refusal = [&](std::vector<stored_block> const& blocks, std::int64_t first, std::int64_t columns) {
    return error_of([&] { stored_of(blocks, first, columns); });
  };
  auto const check_column = [](error const& e, char const* column) {
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("table") == "7");
    CHECK(e.value("column") == column);
  };
  check_column(refusal({left}, 0, 16), "8");
  check_column(refusal({right}, 0, 16), "0");
  check_column(refusal({}, 4, 8), "4");
  check_column(refusal({left, overlapping}, 0, 16), "4");
  auto const rows = refusal({left, longer}, 0, 16);
  CHECK(rows.code() == errc::corrupt_file);
  CHECK(rows.value("file") == folder.file("longer"));
  // What is not asked for does not count.
  CHECK(stored_of({left, longer}, 0, 8).keeps_columns());
  CHECK(stored_of({left, right}, 0, 16).averages_states());
  CHECK(stored_of({left, right}, 0, 4).averages_states());
  CHECK_FALSE(stored_of({right, left}, 8, 8).averages_states());
  auto const other = error_of([&] {
    stored_of({block_of(folder.file("left"), 0, 12)}, 0, 12).expect("weight", safetensors_dtype::f16, {5, 12});
  });
  CHECK(other.code() == errc::incompatible);
  CHECK(other.value("found") == "F16 [5, 8]");
}

TEST_CASE("blocks of rows that leave a gap, overlap or have other rows are refused, naming table, row and column") {
  serial_host host;
  auto const exec = host.exec();
  temporary_folder folder;
  auto const write = [&](std::string const& name, std::int64_t first_row, std::int64_t rows, std::int64_t first_column,
                         std::int64_t columns) {
    auto const tables = std::make_unique<std::vector<store>>(made(exec, rows, first_column, columns, first_row));
    write_table_file(exec, folder.file(name), parts_of(*tables));
    return block_of(folder.file(name), first_column, columns, first_row, rows);
  };
  auto const top = write("top", 0, 4, 0, 16), middle = write("middle", 4, 3, 0, 16), left = write("left", 7, 5, 0, 8),
             right = write("right", 7, 5, 8, 8), tall = write("tall", 3, 4, 0, 16), whole = write("whole", 0, 12, 0, 16);
  auto const check_place = [&](std::vector<stored_block> const& blocks, std::int64_t first_row, std::int64_t rows, char const* row,
                               char const* column) {
    auto const e = error_of([&] { stored_of(blocks, 0, 16, first_row, rows, 12); });
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("table") == "7");
    CHECK(e.value("row") == row);
    CHECK(e.value("column") == column);
  };
  check_place({top, left, right}, 0, part_place::all_rows, "4", "0");
  check_place({top, middle, right}, 0, part_place::all_rows, "7", "0");
  check_place({top, middle, left}, 2, 9, "7", "8");
  check_place({middle, left, right}, 2, 6, "2", "0");
  check_place({top, middle}, 5, 4, "7", "0");
  check_place({top, tall, left, right}, 0, part_place::all_rows, "3", "0");
  // Rows that are not asked for do not count.
  CHECK(stored_of({top, left}, 0, 16, 1, 3, 12).rows() == 3);
  CHECK(stored_of({top, middle, left, right}, 0, 16).rows() == 12);
  CHECK(stored_of({top, middle, left, right}, 0, 16).averages_states());
  CHECK_FALSE(stored_of({top, middle, left, right}, 0, 16, 2, 5, 12).averages_states());

  auto said = middle;
  said.rows = 8;
  auto const other = error_of([&] { stored_of({top, said}, 0, 16); });
  CHECK(other.code() == errc::corrupt_file);
  CHECK(other.value("file") == folder.file("middle"));
  CHECK(other.value("first row") == "4");
  CHECK(other.value("rows") == "3");
  whole.file->expect("table.0.weight", safetensors_dtype::f16, {12, 16});
  auto const size = error_of([&] { stored_of({block_of(folder.file("whole"), 0, 16)}, 0, 16, 10, 5, 15); });
  CHECK(size.code() == errc::incompatible);
  CHECK(size.value("table") == "7");
  CHECK(size.value("rows") == "12");
  CHECK(size.value("expected") == "15");
}

TEST_CASE("int8 rows are joined by rows, each with its scale, but not by columns") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  temporary_folder folder;
  using scaled_store = dense_table<scaled_int8>;
  auto const fill = [&](std::vector<scaled_store>& tables) {
    auto parts = parts_of(tables);
    for (std::int64_t row = 0; row < tables[0].rows(); ++row) {
      std::int64_t const slot = row;
      auto const step = random_floats(random, 1)[0];
      parts[0]->copy_in(exec, row_plane::step, {&slot, 1}, reinterpret_cast<char const*>(&step));
    }
  };
  auto whole = made<scaled_store, adagrad>(exec, 9, 0, 8);
  fill(whole);
  write_table_file(exec, folder.file("whole"), parts_of(whole));
  std::vector<stored_block> blocks;
  for (auto const& place : {part_place{0, 0, 8, 0, 4}, part_place{0, 0, 8, 4, 5}}) {
    auto part = made<scaled_store, adagrad>(exec, place.rows, 0, 8, place.first_row);
    load(exec, part, {block_of(folder.file("whole"), 0, 8)}, 9);
    auto const path = folder.file(std::to_string(place.first_row));
    write_table_file(exec, path, parts_of(part));
    blocks.push_back(block_of(path, 0, 8, place.first_row, place.rows));
  }
  auto back = made<scaled_store, adagrad>(exec, 9, 0, 8);
  load(exec, back, blocks, 9);
  write_table_file(exec, folder.file("back"), parts_of(back));
  CHECK(contents(folder.file("back")) == contents(folder.file("whole")));
  auto const beside = block_of(folder.file("4"), 8, 8, 4, 5);
  auto const e = error_of([&] { stored_of({blocks[0], blocks[1], beside}, 0, 16, 5, 2, 9); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("table") == "7");
}

TEST_CASE("a part of a dense table reads its rows of a hashed one, and a hashed table reads rows of several parts") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  temporary_folder folder;
  constexpr std::int64_t rows = 2 * detail::table_rows_per_piece, columns = 4;
  using hashed_store = hash_table<float16>;
  auto hashed = made<hashed_store>(exec, 8, 0, columns);
  std::vector<std::int64_t> ids;
  for (std::int64_t id = 0; id < rows; ++id)
    if (random() % 3 > 0) ids.push_back(id);
  std::shuffle(ids.begin(), ids.end(), random);
  auto const count = static_cast<std::int64_t>(ids.size());
  std::vector<std::int64_t> slots(ids.size());
  auto hashed_parts = parts_of(hashed);
  hashed_parts[0]->place_rows(exec, ids, slots);
  for (auto const slot : slots) {
    hashed[0].row(slot)[1] = row_scale<float16>{}.nearest(random_floats(random, 1)[0]);
    hashed[0].state(slot)[0] = random_floats(random, 1)[0];
  }
  write_table_file(exec, folder.file("hashed"), parts_of(hashed));

  std::vector<stored_block> blocks;
  for (auto const& place : {part_place{0, 0, columns, 0, 700}, part_place{0, 0, columns, 700, rows - 700}}) {
    auto part = made(exec, place.rows, 0, columns, place.first_row);
    load(exec, part, {block_of(folder.file("hashed"), 0, columns)}, rows);
    auto const path = folder.file(std::to_string(place.first_row));
    write_table_file(exec, path, parts_of(part));
    blocks.push_back(block_of(path, 0, columns, place.first_row, place.rows));
  }
  auto const check_rows = [&](auto const& table, auto const& slot_of) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto const from = slots[static_cast<std::size_t>(i)], to = slot_of(ids[static_cast<std::size_t>(i)]);
      REQUIRE(std::memcmp(hashed[0].row(from), table.row(to), columns * sizeof(float16)) == 0);
      REQUIRE(std::equal(hashed[0].state(from), hashed[0].state(from) + columns + 1, table.state(to)));
    }
  };
  auto dense = made(exec, rows, 0, columns);
  load(exec, dense, blocks, rows);
  check_rows(dense[0], [](std::int64_t id) { return id; });
  auto fresh = made(exec, rows, 0, columns);
  std::vector<bool> is_hashed(static_cast<std::size_t>(rows));
  for (auto const id : ids) is_hashed[static_cast<std::size_t>(id)] = true;
  for (std::int64_t id = 0; id < rows; ++id)
    if (!is_hashed[static_cast<std::size_t>(id)]) REQUIRE(std::memcmp(dense[0].row(id), fresh[0].row(id), columns * sizeof(float16)) == 0);

  auto again = made<hashed_store>(exec, 8, 0, columns);
  load(exec, again, blocks, 8);
  CHECK(again[0].rows() == rows);
  auto again_parts = parts_of(again);
  std::vector<std::int64_t> found(static_cast<std::size_t>(rows)), all(static_cast<std::size_t>(rows));
  again_parts[0]->list_rows(found, all);
  std::vector<std::int64_t> slot_of(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < all.size(); ++i) slot_of[static_cast<std::size_t>(all[i])] = found[i];
  check_rows(again[0], [&](std::int64_t id) { return slot_of[static_cast<std::size_t>(id)]; });

  // A dense table that ends before the largest id.
  auto part = made(exec, 100, 0, columns);
  auto const e = error_of([&] { load(exec, part, {block_of(folder.file("hashed"), 0, columns)}, 200); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("rows") == "200");
}
