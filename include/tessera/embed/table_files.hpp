// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
#include <tessera/embed/table_part.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/safetensors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {
inline constexpr std::int64_t table_rows_per_piece = 4096;  // of a file, read or written at once
}  // namespace detail

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
class table_file_reader {
 public:
  /// Opens the file and checks it. It refers to the tables, which do not change.
  /// @throws tessera::error io_error, corrupt_file. incompatible naming the tensor that does not fit, or for a table that may hold fewer
  /// rows. invalid_argument for a hashed table that has rows already.
  table_file_reader(std::string const& path, table_parts& tables, table_content content);

  /// After an exception the tables are half read.
  /// @throws tessera::error corrupt_file, io_error; incompatible where an id comes twice or has no place; invalid_argument for a table
  /// whose clock is past the file's.
  void read(host_exec const& exec) const;

 private:
  // What is in a table's part of the file, found to fit the table.
  struct section {
    std::size_t table;
    std::int64_t rows;
    bool has_ids;
  };

  section check_table(std::size_t t) const;
  void expect(std::size_t t, row_plane plane, std::int64_t rows) const;
  void refuse(std::string const& tensor) const;
  table_clock read_clock(std::size_t t) const;
  void read_sightings(host_exec const& exec, std::size_t t) const;
  void read_rows(host_exec const& exec, section const& from) const;
  template <class F>
  void restore_from(std::string const& tensor, F const& f) const;

  safetensors_reader in_;
  table_parts* tables_;
  table_content content_;
  std::vector<section> sections_;
};

namespace detail {

inline std::string table_tensor(std::size_t table, std::string_view part) {
  return "table." + std::to_string(table) + "." + std::string(part);
}

inline constexpr std::array<row_plane, 4> row_planes{row_plane::weights, row_plane::step, row_plane::state, row_plane::use};

inline std::string plane_tensor(std::size_t t, row_plane plane, table_part const& table) {
  switch (plane) {
    case row_plane::weights: return table_tensor(t, "weight");
    case row_plane::step: return table_tensor(t, "step");
    case row_plane::state: return table_tensor(t, "state");
    case row_plane::use: break;
  }
  return table_tensor(t, table.kind().eviction);
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

inline table_file_reader::table_file_reader(std::string const& path, table_parts& tables, table_content content)
    : in_(path), tables_(&tables), content_(content) {
  refuse(detail::table_tensor(tables.size(), "weight"));
  for (std::size_t t = 0; t < tables.size(); ++t) sections_.push_back(check_table(t));
}

inline void table_file_reader::read(host_exec const& exec) const {
  for (auto const& from : sections_) {
    auto& table = *(*tables_)[from.table];
    bool const has_policies = content_ == table_content::all && table.clock().has_value();
    if (has_policies) table.set_clock(read_clock(from.table));
    read_rows(exec, from);
    if (has_policies) read_sightings(exec, from.table);
  }
}

// What the file has and the tables lack means that they do not belong together.
inline void table_file_reader::refuse(std::string const& tensor) const {
  if (in_.find(tensor) != nullptr)
    throw error(errc::incompatible, "table file: a tensor that the tables have no place for", {{"file", in_.path()}, {"tensor", tensor}});
}

inline void table_file_reader::expect(std::size_t t, row_plane plane, std::int64_t rows) const {
  auto const& table = *(*tables_)[t];
  auto const own = table.shape(plane);
  if (own.width > 0) in_.expect(detail::plane_tensor(t, plane, table), detail::dtype_of(own.type), detail::tensor_shape(plane, own, rows));
}

inline table_file_reader::section table_file_reader::check_table(std::size_t t) const {
  auto const& table = *(*tables_)[t];
  if (!table.slots_are_ids() && table.rows() > 0)
    throw error(errc::invalid_argument, "table file: the table has rows already",
                {{"file", in_.path()}, {"table", t}, {"rows", table.rows()}});
  auto const& shape = in_.at(detail::table_tensor(t, "weight")).shape;
  section const found{t, shape.empty() ? 0 : shape[0], in_.find(detail::table_tensor(t, "ids")) != nullptr};
  bool const all = content_ == table_content::all;
  expect(t, row_plane::weights, found.rows);
  expect(t, row_plane::step, found.rows);
  if (all && table.shape(row_plane::state).width == 0) refuse(detail::table_tensor(t, "state"));
  if (all) expect(t, row_plane::state, found.rows);
  if (found.has_ids) in_.expect(detail::table_tensor(t, "ids"), safetensors_dtype::i64, {found.rows});
  if (table.slots_are_ids() && !found.has_ids && found.rows != table.rows())
    throw error(errc::incompatible, "table file: a table of another size",
                {{"file", in_.path()}, {"table", t}, {"rows", found.rows}, {"expected", table.rows()}});
  if (!table.slots_are_ids() && found.rows > table.options().most_rows)
    throw error(errc::incompatible, "table file: more rows than the table may hold",
                {{"file", in_.path()}, {"table", t}, {"rows", found.rows}, {"most_rows", table.options().most_rows}});
  if (all && table.clock()) read_clock(t);
  if (all) expect(t, row_plane::use, found.rows);
  return found;
}

inline table_clock table_file_reader::read_clock(std::size_t t) const {
  auto const name = detail::table_tensor(t, "clock");
  std::array<std::int64_t, 3> words{};
  in_.expect(name, safetensors_dtype::i64, {3});
  in_.read(name, 0, vector_view<std::int64_t>(words));
  if (words[0] < 0 || words[0] > most_counted || words[1] < 0 || words[1] > 1)
    throw error(errc::corrupt_file, "table file: a clock that no table has",
                {{"file", in_.path()}, {"tensor", name}, {"batch", words[0]}, {"most", most_counted}, {"time was set", words[1]}});
  auto clock = (*tables_)[t]->clock().value();
  clock.batch = words[0];
  if (words[1] != 0) clock.time = words[2];
  return clock;
}

// What a policy finds wrong, it finds in this tensor.
template <class F>
void table_file_reader::restore_from(std::string const& tensor, F const& f) const {
  try {
    f();
  } catch (error const& e) {
    auto values = e.values();
    values.insert(values.begin(), {{"file", in_.path()}, {"tensor", tensor}});
    throw error(e.code(), e.sentence(), std::move(values));
  }
}

inline void table_file_reader::read_sightings(host_exec const& exec, std::size_t t) const {
  auto& table = *(*tables_)[t];
  auto const width = table.sighting_words();
  if (width == 0) return;
  auto const name = detail::table_tensor(t, table.kind().admission);
  auto const& shape = in_.at(name).shape;
  auto const rows = shape.empty() ? 0 : shape[0];
  in_.expect(name, safetensors_dtype::i64, {rows, width});
  buffer<std::int64_t> words(exec, rows * width);
  in_.read(name, 0, words.view());
  restore_from(name, [&] { table.restore_sightings(exec, {words.data(), rows, width}); });
}

// Row r of the file goes to the row of its id, so either kind of store reads what either wrote.
inline void table_file_reader::read_rows(host_exec const& exec, section const& from) const {
  auto const t = from.table;
  auto& table = *(*tables_)[t];
  auto const most = std::min(from.rows, detail::table_rows_per_piece);
  buffer<std::int64_t> ids(exec, most), slots(exec, most);
  buffer<char> bytes;
  std::vector<bool> is_read;  // by slot
  for (std::int64_t first = 0; first < from.rows; first += detail::table_rows_per_piece) {
    auto const count = std::min(from.rows - first, detail::table_rows_per_piece);
    auto const here = std::as_const(slots).view().slice(0, count);
    for (std::int64_t i = 0; i < count; ++i) ids[i] = first + i;
    if (from.has_ids) in_.read(detail::table_tensor(t, "ids"), first, ids.view().slice(0, count));
    table.place_rows(exec, std::as_const(ids).view().slice(0, count), slots.view().slice(0, count));
    for (std::int64_t i = 0; i < count; ++i) {
      if (slots[i] < 0)
        throw error(errc::incompatible, "table file: the table has no row for an id",
                    {{"file", in_.path()}, {"table", t}, {"id", ids[i]}, {"rows", table.rows()}});
      if (!from.has_ids) continue;
      auto const slot = static_cast<std::size_t>(slots[i]);
      if (slot >= is_read.size()) is_read.resize(slot + 1);
      if (is_read[slot])
        throw error(errc::corrupt_file, "table file: an id twice",
                    {{"file", in_.path()}, {"tensor", detail::table_tensor(t, "ids")}, {"table", t}, {"id", ids[i]}});
      is_read[slot] = true;
    }
    for (auto const plane : detail::row_planes) {
      auto const shape = table.shape(plane);
      bool const predicts = plane == row_plane::weights || plane == row_plane::step;
      if (shape.width == 0 || (!predicts && content_ == table_content::weights)) continue;
      auto const tensor = detail::plane_tensor(t, plane, table);
      auto const row_bytes = shape.width * size_of(shape.type);
      bytes.resize(exec, count * row_bytes);
      in_.read_bytes(in_.at(tensor), first * row_bytes, bytes.view());
      restore_from(tensor, [&] { table.copy_in(exec, plane, here, bytes.data()); });
    }
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
