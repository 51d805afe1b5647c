// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/hashed_row.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Writes tables into a safetensors file, and returns its size and checksum. All tensors of table n have its rows in one order:
/// - `table.<n>.weight` (rows, dim), in the type of its elements;
/// - `table.<n>.step` (rows,), where a row has a scale: the size of its steps;
/// - `table.<n>.state` (rows, state width);
/// - `table.<n>.ids` (rows,), where the store is hashed;
/// - `table.<n>.clock` (batch, whether the time was set, the time), where it has policies;
/// - `table.<n>.lru`, `.lfu` or `.ttl`, what the eviction policy keeps of each row; rows then are in the order in which they would leave;
/// - `table.<n>.sightings`, what the admission policy keeps of ids without rows.
/// @throws tessera::error io_error.
file_digest write_table_file(host_exec const& exec, std::string const& path, table_parts const& tables);

/// Which of a file's tensors are read.
enum class table_content : std::uint8_t {
  weights,  ///< with the ids: what predictions need
  all,      ///< also what training goes on from, into tables of the same optimizer and policies
};

/// Reads a file of tables into tables that fit it:
///
///     auto parts = parts_of(tables);
///     table_file_reader(path, parts, table_content::all).read(exec);
///
/// A dense table reads what a hashed one wrote, and the other way, where no policy admits or evicts rows. Step counts are not in the file.
/// A part of a table, or a table of other parts, reads the rows and columns that it has from the files of all parts.
class table_file_reader {
 public:
  /// Opens the file and checks it. It refers to the tables, which do not change.
  /// @throws tessera::error io_error, corrupt_file. incompatible naming the tensor that does not fit, or for a table that may hold fewer
  /// rows. invalid_argument for a hashed table that has rows already.
  table_file_reader(std::string const& path, table_parts& tables, table_content content);
  /// Checks what other files hold for each of the tables: one or more lists of rows. It refers to the tables, which do not change.
  /// @throws tessera::error as above. incompatible also for a table with policies whose rows were cut otherwise.
  table_file_reader(std::vector<std::vector<stored_table>> stored, table_parts& tables, table_content content);

  /// Numbers of the tables whose states of rows are of other columns than those in the files.
  std::vector<std::int64_t> averaged_tables() const;

  /// After an exception the tables are half read.
  /// @throws tessera::error corrupt_file, io_error; incompatible where an id comes twice or has no place; invalid_argument for a table
  /// whose clock is past the file's.
  void read(host_exec const& exec) const;

 private:
  void check_table(stored_table const& from, table_part const& table) const;
  static void expect(stored_table const& from, row_plane plane, table_part const& table);
  static table_clock read_clock(stored_table const& from, table_part const& table);
  static void read_sightings(host_exec const& exec, stored_table const& from, table_part& table);
  void read_rows(host_exec const& exec, stored_table const& from, table_part& table, std::vector<bool>& is_read) const;
  void read_planes(host_exec const& exec, stored_table const& from, std::int64_t first, std::int64_t count,
                   vector_view<std::int64_t const> kept, vector_view<std::int64_t const> slots, table_part& table) const;
  template <class F>
  static void restore_from(stored_table const& from, std::string_view tensor, F const& f);

  table_parts* tables_;
  table_content content_;
  std::vector<std::vector<stored_table>> stored_;  // of each table
};

namespace detail {

inline constexpr std::array<row_plane, 4> row_planes{row_plane::weights, row_plane::step, row_plane::state, row_plane::use};

inline std::string_view plane_name(row_plane plane, table_part const& table) {
  switch (plane) {
    case row_plane::weights: return "weight";
    case row_plane::step: return "step";
    case row_plane::state: return "state";
    case row_plane::use: break;
  }
  return table.kind().eviction;
}
inline std::string plane_tensor(std::size_t t, row_plane plane, table_part const& table) {
  return table_tensor(t, plane_name(plane, table));
}

constexpr safetensors_dtype dtype_of(plane_type type) noexcept {
  switch (type) {
    case plane_type::f16: return safetensors_dtype::f16;
    case plane_type::bf16: return safetensors_dtype::bf16;
    case plane_type::f8_e4m3: return safetensors_dtype::f8_e4m3;
    case plane_type::f8_e5m2: return safetensors_dtype::f8_e5m2;
    case plane_type::i8: return safetensors_dtype::i8;
    case plane_type::i64: return safetensors_dtype::i64;
    case plane_type::f32: break;
  }
  return safetensors_dtype::f32;
}

inline std::vector<std::int64_t> tensor_shape(row_plane plane, plane_shape shape, std::int64_t rows) {
  if (plane == row_plane::step) return {rows};
  return {rows, shape.width};
}

inline void declare_table(std::size_t t, table_part const& table, std::vector<safetensors_tensor>& tensors) {
  auto const rows = table.rows();
  for (auto const plane : row_planes) {
    auto const shape = table.shape(plane);
    if (shape.width > 0) tensors.push_back({plane_tensor(t, plane, table), dtype_of(shape.type), tensor_shape(plane, shape, rows)});
  }
  if (!table.slots_are_ids()) tensors.push_back({table_tensor(t, "ids"), safetensors_dtype::i64, {rows}});
  if (table.clock()) tensors.push_back({table_tensor(t, "clock"), safetensors_dtype::i64, {3}});
  if (auto const words = table.sighting_words(); words > 0)
    tensors.push_back({table_tensor(t, table.kind().admission), safetensors_dtype::i64, {table.sightings(), words}});
}

inline void write_table(host_exec const& exec, safetensors_writer& out, std::size_t t, table_part const& table) {
  auto const rows = table.rows();
  buffer<std::int64_t> slots(exec, rows), ids(exec, rows);
  table.list_rows(slots.view(), ids.view());
  for (auto const plane : row_planes) {
    auto const shape = table.shape(plane);
    if (shape.width == 0) continue;
    auto const bytes = shape.width * size_of(shape.type);
    buffer<char> piece(exec, std::min(rows, table_rows_per_piece) * bytes);
    for (std::int64_t first = 0; first < rows; first += table_rows_per_piece) {
      auto const count = std::min(rows - first, table_rows_per_piece);
      table.copy_out(plane, std::as_const(slots).view().slice(first, count), piece.data());
      out.append_bytes(plane_tensor(t, plane, table), {piece.data(), count * bytes});
    }
  }
  if (!table.slots_are_ids()) out.append(table_tensor(t, "ids"), std::as_const(ids).view());
  if (auto const clock = table.clock()) {
    std::array<std::int64_t, 3> const words{clock->batch, clock->time.has_value() ? 1 : 0, clock->time.value_or(0)};
    out.append(table_tensor(t, "clock"), vector_view<std::int64_t const>(words));
  }
  if (auto const words = table.sighting_words(); words > 0) {
    buffer<std::int64_t> sightings(exec, table.sightings() * words);
    table.copy_sightings({sightings.data(), table.sightings(), words});
    out.append(table_tensor(t, table.kind().admission), std::as_const(sightings).view());
  }
}

}  // namespace detail

inline file_digest write_table_file(host_exec const& exec, std::string const& path, table_parts const& tables) {
  std::vector<safetensors_tensor> tensors;
  for (std::size_t t = 0; t < tables.size(); ++t) detail::declare_table(t, *tables[t], tensors);
  safetensors_writer out(path, std::move(tensors));
  for (std::size_t t = 0; t < tables.size(); ++t) detail::write_table(exec, out, t, *tables[t]);
  return out.finish();
}

namespace detail {

// What the file has and the tables lack means that they do not belong together.
[[noreturn]] inline void refuse_table_tensor(std::string const& file, std::string const& tensor) {
  throw error(errc::incompatible, "table file: a tensor that the tables have no place for", {{"file", file}, {"tensor", tensor}});
}

// The tables of a file, which has those and no more.
inline std::vector<std::vector<stored_table>> stored_tables(std::string const& path, table_parts const& tables) {
  auto const in = std::make_shared<safetensors_reader const>(path);
  if (auto const more = table_tensor(tables.size(), "weight"); in->find(more) != nullptr) refuse_table_tensor(path, more);
  std::vector<std::vector<stored_table>> stored;
  for (auto const& table : tables) {
    auto const number = static_cast<std::int64_t>(stored.size());
    auto const columns = table->shape(row_plane::weights).width;
    stored.emplace_back().emplace_back(part_place{.table = number, .columns = columns}, std::vector<stored_block>{{in, number, 0, columns}},
                                       table->state_layout());
  }
  return stored;
}

}  // namespace detail

inline table_file_reader::table_file_reader(std::string const& path, table_parts& tables, table_content content)
    : table_file_reader(detail::stored_tables(path, tables), tables, content) {}

inline table_file_reader::table_file_reader(std::vector<std::vector<stored_table>> stored, table_parts& tables, table_content content)
    : tables_(&tables), content_(content), stored_(std::move(stored)) {
  for (std::size_t t = 0; t < stored_.size(); ++t) {
    bool const is_cut_otherwise = stored_[t].size() > 1 || stored_[t].front().hashed_rows() > 0;
    if (content_ == table_content::all && tables[t]->clock() && is_cut_otherwise)
      throw error(errc::incompatible, "table file: rows of a table with policies were cut otherwise",
                  {{"file", stored_[t].front().path()}, {"table", stored_[t].front().number()}});
    for (auto const& from : stored_[t]) check_table(from, *tables[t]);
  }
}

inline std::vector<std::int64_t> table_file_reader::averaged_tables() const {
  std::vector<std::int64_t> numbers;
  for (auto const& of_table : stored_)
    if (content_ == table_content::all &&
        std::any_of(of_table.begin(), of_table.end(), [](auto const& from) { return from.averages_states(); }))
      numbers.push_back(of_table.front().number());
  return numbers;
}

inline void table_file_reader::read(host_exec const& exec) const {
  for (std::size_t t = 0; t < stored_.size(); ++t) {
    auto& table = *(*tables_)[t];
    std::vector<bool> is_read;  // by slot
    for (auto const& from : stored_[t]) {
      bool const has_policies = content_ == table_content::all && table.clock().has_value();
      if (has_policies) table.set_clock(read_clock(from, table));
      read_rows(exec, from, table, is_read);
      if (has_policies) read_sightings(exec, from, table);
    }
  }
}

inline void table_file_reader::expect(stored_table const& from, row_plane plane, table_part const& table) {
  auto const own = table.shape(plane);
  if (own.width > 0)
    from.expect(detail::plane_name(plane, table), detail::dtype_of(own.type), detail::tensor_shape(plane, own, from.rows()));
}

inline void table_file_reader::check_table(stored_table const& from, table_part const& table) const {
  auto const t = from.number();
  if (!table.slots_are_ids() && table.rows() > 0)
    throw error(errc::invalid_argument, "table file: the table has rows already",
                {{"file", from.path()}, {"table", t}, {"rows", table.rows()}});
  bool const all = content_ == table_content::all;
  expect(from, row_plane::weights, table);
  expect(from, row_plane::step, table);
  if (all && table.shape(row_plane::state).width == 0 && from.has("state")) detail::refuse_table_tensor(from.path(), from.name("state"));
  if (all) expect(from, row_plane::state, table);
  if (from.has("ids")) from.expect("ids", safetensors_dtype::i64, {from.rows()});
  if (table.slots_are_ids() && !from.has("ids") && from.rows() != table.rows())
    throw error(errc::incompatible, "table file: a table of another size",
                {{"file", from.path()}, {"table", t}, {"rows", from.rows()}, {"expected", table.rows()}});
  if (!table.slots_are_ids() && from.hashed_rows() == 0 && from.rows() > table.options().most_rows)
    throw error(errc::incompatible, "table file: more rows than the table may hold",
                {{"file", from.path()}, {"table", t}, {"rows", from.rows()}, {"most_rows", table.options().most_rows}});
  if (all && table.clock()) read_clock(from, table);
  if (all) expect(from, row_plane::use, table);
}

inline table_clock table_file_reader::read_clock(stored_table const& from, table_part const& table) {
  std::array<std::int64_t, 3> words{};
  from.expect("clock", safetensors_dtype::i64, {3});
  from.read_all("clock", as_writable_bytes(vector_view<std::int64_t>(words)));
  if (words[0] < 0 || words[0] > most_counted || words[1] < 0 || words[1] > 1)
    throw error(
        errc::corrupt_file, "table file: a clock that no table has",
        {{"file", from.path()}, {"tensor", from.name("clock")}, {"batch", words[0]}, {"most", most_counted}, {"time was set", words[1]}});
  auto clock = table.clock().value();
  clock.batch = words[0];
  if (words[1] != 0) clock.time = words[2];
  return clock;
}

// What a policy finds wrong, it finds in this tensor.
template <class F>
void table_file_reader::restore_from(stored_table const& from, std::string_view tensor, F const& f) {
  try {
    f();
  } catch (error const& e) {
    auto values = e.values();
    values.insert(values.begin(), {{"file", from.path()}, {"tensor", from.name(tensor)}});
    throw error(e.code(), e.sentence(), std::move(values));
  }
}

inline void table_file_reader::read_sightings(host_exec const& exec, stored_table const& from, table_part& table) {
  auto const width = table.sighting_words();
  if (width == 0) return;
  auto const tensor = table.kind().admission;
  auto const& shape = from.at(tensor).shape;
  auto const rows = shape.empty() ? 0 : shape[0];
  from.expect(tensor, safetensors_dtype::i64, {rows, width});
  buffer<std::int64_t> words(exec, rows * width);
  from.read_all(tensor, as_writable_bytes(words.view()));
  restore_from(from, tensor, [&] { table.restore_sightings(exec, {words.data(), rows, width}); });
}

namespace detail {

// Compacts the ids to those whose rows are asked for, as the table counts them, and lists which of the rows read have them.
inline std::int64_t keep_rows(stored_table const& from, vector_view<std::int64_t> ids, vector_view<std::int64_t> kept) {
  bool const selects = from.has("ids") && from.lacks_rows();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    auto const id = ids[i];
    if (selects && (id < 0 || id >= from.table_rows()))
      throw error(errc::incompatible, "table file: the table has no row for an id",
                  {{"file", from.path()}, {"table", from.number()}, {"id", id}, {"rows", from.table_rows()}});
    if (from.hashed_rows() > 0) {
      auto const row = hashed_row(id, from.hashed_rows());
      if (row < from.first_row() || row - from.first_row() >= from.asked_rows()) continue;
    }
    if (selects && (id < from.first_row() || id - from.first_row() >= from.asked_rows())) continue;
    ids[count] = selects ? id - from.first_row() : id;
    kept[count++] = i;
  }
  return count;
}

}  // namespace detail

// Row r of what is read goes to the row of its id, so either kind of store reads what either wrote.
inline void table_file_reader::read_rows(host_exec const& exec, stored_table const& from, table_part& table,
                                         std::vector<bool>& is_read) const {
  auto const t = from.number(), rows = from.rows();
  bool const has_ids = from.has("ids");
  auto const most = std::min(rows, detail::table_rows_per_piece);
  buffer<std::int64_t> ids(exec, most), slots(exec, most), kept(exec, most);
  for (std::int64_t first = 0; first < rows; first += detail::table_rows_per_piece) {
    auto const piece = std::min(rows - first, detail::table_rows_per_piece);
    for (std::int64_t i = 0; i < piece; ++i) ids[i] = first + i;
    if (has_ids) from.read(exec, "ids", first, piece, as_writable_bytes(ids.view().slice(0, piece)));
    auto const count = detail::keep_rows(from, ids.view().slice(0, piece), kept.view().slice(0, piece));
    if (count == 0) continue;
    table.place_rows(exec, std::as_const(ids).view().slice(0, count), slots.view().slice(0, count));
    for (std::int64_t i = 0; i < count; ++i) {
      if (slots[i] < 0)
        throw error(errc::incompatible, "table file: the table has no row for an id",
                    {{"file", from.path()}, {"table", t}, {"id", ids[i]}, {"rows", table.rows()}});
      if (!has_ids) continue;
      auto const slot = static_cast<std::size_t>(slots[i]);
      if (slot >= is_read.size()) is_read.resize(slot + 1);
      if (is_read[slot])
        throw error(errc::corrupt_file, "table file: an id twice",
                    {{"file", from.path()},
                     {"tensor", from.name("ids")},
                     {"table", t},
                     {"id", ids[i] + (from.lacks_rows() ? from.first_row() : 0)}});
      is_read[slot] = true;
    }
    read_planes(exec, from, first, piece, std::as_const(kept).view().slice(0, count), std::as_const(slots).view().slice(0, count), table);
  }
}

// Reads rows [first, first + count), and copies those that are kept to their slots.
inline void table_file_reader::read_planes(host_exec const& exec, stored_table const& from, std::int64_t first, std::int64_t count,
                                           vector_view<std::int64_t const> kept, vector_view<std::int64_t const> slots,
                                           table_part& table) const {
  buffer<char> bytes;
  for (auto const plane : detail::row_planes) {
    auto const shape = table.shape(plane);
    bool const predicts = plane == row_plane::weights || plane == row_plane::step;
    if (shape.width == 0 || (!predicts && content_ == table_content::weights)) continue;
    auto const tensor = detail::plane_name(plane, table);
    auto const row_bytes = shape.width * size_of(shape.type);
    bytes.resize(exec, count * row_bytes);
    from.read(exec, tensor, first, count, bytes.view());
    for (std::int64_t k = 0; k < kept.size(); ++k)
      if (kept[k] != k) std::memcpy(bytes.data() + k * row_bytes, bytes.data() + kept[k] * row_bytes, static_cast<std::size_t>(row_bytes));
    restore_from(from, tensor, [&] { table.copy_in(exec, plane, slots, bytes.data()); });
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
