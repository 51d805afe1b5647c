// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/files/safetensors.hpp>

namespace {

using namespace tessera;
using namespace tessera_tests;

using store = dense_table<float16>;

std::vector<store> made(host_exec const& exec, std::int64_t rows, std::int64_t first_column, std::int64_t columns) {
  std::vector<store> tables;
  tables.emplace_back(exec, table_options{.id = table_id{0}, .dim = columns, .rows = rows, .first_column = first_column}, rowwise_adam{});
  return tables;
}

stored_block block_of(std::string const& path, std::int64_t first_column, std::int64_t columns) {
  return {std::make_shared<safetensors_reader const>(path), 0, first_column, columns};
}

void load(host_exec const& exec, std::vector<store>& tables, std::vector<stored_block> const& blocks) {
  auto parts = parts_of(tables);
  auto const& options = tables[0].options();
  std::vector<stored_table> stored;
  stored.emplace_back(0, blocks, options.first_column, options.dim, tables[0].state_layout());
  table_file_reader(std::move(stored), parts, table_content::all).read(exec);
}

}  // namespace

TEST_CASE("a table that is cut into blocks of columns, and again otherwise, comes back from them byte for byte") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 24;
  auto const any_rows = static_cast<std::int64_t>(random() % 300);
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
      std::vector<std::int64_t> cuts{0};
      for (std::int64_t c = 4; c < dim; c += 4)
        if (random() % 2 == 0) cuts.push_back(c);
      cuts.push_back(dim);
      std::vector<stored_block> next;
      for (std::size_t i = 1; i < cuts.size(); ++i) {
        auto part = made(exec, rows, cuts[i - 1], cuts[i] - cuts[i - 1]);
        load(exec, part, blocks);
        auto const path = folder.file(std::to_string(round) + "." + std::to_string(i));
        write_table_file(exec, path, parts_of(part));
        next.push_back(block_of(path, cuts[i - 1], cuts[i] - cuts[i - 1]));
      }
      std::shuffle(next.begin(), next.end(), random);
      blocks = next;
    }
    // All blocks have the state of a row that the whole had, and so has their mean.
    auto back = made(exec, rows, 0, dim);
    load(exec, back, blocks);
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
  auto const layout = row_state_layout::of(rowwise_adam{});
  auto const refusal = [&](std::vector<stored_block> const& blocks, std::int64_t first, std::int64_t columns) {
    return error_of([&] { stored_table(7, blocks, first, columns, layout); });
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
  CHECK(stored_table(7, {left, longer}, 0, 8, layout).is_one_block());
  CHECK(stored_table(7, {left, right}, 0, 16, layout).averages_states());
  CHECK(stored_table(7, {left, right}, 0, 4, layout).averages_states());
  CHECK_FALSE(stored_table(7, {right, left}, 8, 8, layout).averages_states());
  auto const other = error_of([&] {
    stored_table(7, {block_of(folder.file("left"), 0, 12)}, 0, 12, layout).expect("weight", safetensors_dtype::f16, {5, 12});
  });
  CHECK(other.code() == errc::incompatible);
  CHECK(other.value("found") == "F16 [5, 8]");
}
