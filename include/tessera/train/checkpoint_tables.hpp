// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/files/byte_view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>

/// The embedding tables of a checkpoint: `tables.safetensors`. Of table n, the rows it holds, in one order throughout:
/// `table.<n>.weight` (rows, dim) in the type of its elements, `.step` (rows,) where a row shares a scale: the size of its steps, `.state`
/// (rows, state width), and where the store is hashed `.ids` (rows,). Where it has policies, also `.clock` (batch, whether the time was set, the time), and what they remember under their names: of each row
/// (`.lru`, `.lfu`, `.ttl`), which then stand in the order in which they would leave, and of ids without rows (`.sightings`).
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::int64_t rows_per_write = 4096;

inline std::string table_tensor(std::size_t table, char const* part) { return "table." + std::to_string(table) + "." + part; }

template <row_element E>
constexpr safetensors_dtype row_dtype() noexcept {
  if constexpr (std::is_same_v<E, float16>) return safetensors_dtype::f16;
  if constexpr (std::is_same_v<E, bfloat16>) return safetensors_dtype::bf16;
  if constexpr (std::is_same_v<E, float8_e4m3>) return safetensors_dtype::f8_e4m3;
  if constexpr (std::is_same_v<E, float8_e5m2>) return safetensors_dtype::f8_e5m2;
  if constexpr (std::is_same_v<E, scaled_int8>) return safetensors_dtype::i8;
  return safetensors_dtype::f32;
}

template <class Store>
constexpr bool shares_scale = row_scale<typename Store::element>::lead > 0;

template <class Store>
constexpr bool has_policies() noexcept {
  if constexpr (requires { Store::has_policies; }) return Store::has_policies;
  return false;
}

// A store without policies gives every id its row and keeps it.
template <class Store>
constexpr char const* admission_name() noexcept {
  if constexpr (requires { typename Store::admission_policy; })
    return Store::admission_policy::name;
  else
    return admit_all::name;
}
template <class Store>
constexpr char const* eviction_name() noexcept {
  if constexpr (requires { typename Store::eviction_policy; })
    return Store::eviction_policy::name;
  else
    return keep_all::name;
}

// Appends (rows, width) values; `write(i, to)` writes row i.
template <class T, class Write>
void append_rows(host_exec const& exec, safetensors_writer& out, std::string const& tensor, std::int64_t rows, std::int64_t width,
                 Write const& write) {
  buffer<T> piece(exec, std::min(rows, rows_per_write) * width);
  for (std::int64_t first = 0; first < rows; first += rows_per_write) {
    auto const count = std::min(rows - first, rows_per_write);
    for (std::int64_t i = 0; i < count; ++i) write(first + i, piece.data() + i * width);
    out.append_bytes(tensor, as_bytes(vector_view<T const>{piece.data(), count * width}));
  }
}

template <class Store>
void declare_table(std::size_t t, Store const& table, std::vector<safetensors_tensor>& tensors) {
  auto const rows = table.rows(), width = table.state_layout().width(table.dim());
  tensors.push_back({table_tensor(t, "weight"), row_dtype<typename Store::element>(), {rows, table.dim()}});
  if (shares_scale<Store>) tensors.push_back({table_tensor(t, "step"), safetensors_dtype::f32, {rows}});
  if (width > 0) tensors.push_back({table_tensor(t, "state"), safetensors_dtype::f32, {rows, width}});
  if (!Store::slots_are_ids) tensors.push_back({table_tensor(t, "ids"), safetensors_dtype::i64, {rows}});
  if constexpr (has_policies<Store>()) {
    using eviction = typename Store::eviction_policy;
    using admission = typename Store::admission_policy;
    tensors.push_back({table_tensor(t, "clock"), safetensors_dtype::i64, {3}});
    if (eviction::saved_width > 0)
      tensors.push_back({table_tensor(t, eviction::name), safetensors_dtype::i64, {rows, eviction::saved_width}});
    if (admission::saved_width > 0)
      tensors.push_back({table_tensor(t, admission::name), safetensors_dtype::i64, {table.saved_sightings(), admission::saved_width}});
  }
}

template <class Store>
void write_policies(host_exec const& exec, safetensors_writer& out, std::size_t t, Store const& table, std::int64_t const* slots) {
  using eviction = typename Store::eviction_policy;
  using admission = typename Store::admission_policy;
  auto const clock = table.clock();
  std::array<std::int64_t, 3> const words{clock.batch, clock.time.has_value() ? 1 : 0, clock.time.value_or(0)};
  out.append(table_tensor(t, "clock"), vector_view<std::int64_t const>(words));
  if constexpr (eviction::saved_width > 0)
    append_rows<std::int64_t>(exec, out, table_tensor(t, eviction::name), table.rows(), eviction::saved_width,
                              [&](std::int64_t i, std::int64_t* to) { table.save_use(slots[i], to); });
  if constexpr (admission::saved_width > 0) {
    buffer<std::int64_t> sightings(exec, table.saved_sightings() * admission::saved_width);
    table.save_sightings({sightings.data(), table.saved_sightings(), admission::saved_width});
    out.append(table_tensor(t, admission::name), std::as_const(sightings).view());
  }
}

template <class Store>
void write_table(host_exec const& exec, safetensors_writer& out, std::size_t t, Store const& table) {
  using element = typename Store::element;
  auto const rows = table.rows(), dim = table.dim(), width = table.state_layout().width(dim);
  buffer<std::int64_t> slots(exec, rows), ids(exec, rows);
  std::int64_t count = 0;
  table.for_each_row([&](std::int64_t slot, std::int64_t id) {
    slots[count] = slot;
    ids[count++] = id;
  });
  append_rows<element>(exec, out, table_tensor(t, "weight"), rows, dim,
                       [&](std::int64_t i, element* to) { std::copy_n(table.row(slots[i]), dim, to); });
  if constexpr (shares_scale<Store>)
    append_rows<float>(exec, out, table_tensor(t, "step"), rows, 1,
                       [&](std::int64_t i, float* to) { *to = row_scale<element>::of(table.row(slots[i])).step; });
  if (width > 0)
    append_rows<float>(exec, out, table_tensor(t, "state"), rows, width,
                       [&](std::int64_t i, float* to) { std::copy_n(table.state(slots[i]), width, to); });
  if (!Store::slots_are_ids) out.append(table_tensor(t, "ids"), std::as_const(ids).view());
  if constexpr (has_policies<Store>()) write_policies(exec, out, t, table, slots.data());
}

template <class Store>
manifest_section write_tables(host_exec const& exec, std::string const& folder, std::vector<Store> const& tables) {
  std::vector<safetensors_tensor> tensors;
  for (std::size_t t = 0; t < tables.size(); ++t) declare_table(t, tables[t], tensors);
  safetensors_writer out(folder + "/tables.safetensors", std::move(tensors));
  for (std::size_t t = 0; t < tables.size(); ++t) write_table(exec, out, t, tables[t]);
  return {"tables.safetensors", out.finish()};
}

// What the checkpoint has and the model lacks means that they do not belong together.
inline void refuse_tensor(safetensors_reader const& in, std::string const& tensor) {
  if (in.find(tensor) != nullptr)
    throw error(errc::incompatible, "checkpoint: a tensor that the model has no place for", {{"file", in.path()}, {"tensor", tensor}});
}

// What is in a table's part of the file, found to fit the table.
struct table_section {
  std::size_t table;
  std::int64_t rows;
  bool has_ids;
  bool has_state;  // and the table has use for it
  bool has_use;    // the same, of the rows' use
};

inline std::array<std::int64_t, 3> read_clock(safetensors_reader const& in, std::size_t t) {
  auto const name = table_tensor(t, "clock");
  std::array<std::int64_t, 3> words{};
  in.expect(name, safetensors_dtype::i64, {3});
  in.read(name, 0, vector_view<std::int64_t>(words));
  if (words[0] < 0 || words[0] > most_counted || words[1] < 0 || words[1] > 1)
    throw error(errc::corrupt_file, "checkpoint: a clock that no table has",
                {{"file", in.path()}, {"tensor", name}, {"batch", words[0]}, {"most", most_counted}, {"time was set", words[1]}});
  return words;
}

template <class Store>
table_section check_table(safetensors_reader const& in, std::size_t t, Store const& table, bool with_state) {
  auto const dim = table.dim(), width = table.state_layout().width(dim);
  if (!Store::slots_are_ids && table.rows() > 0)
    throw error(errc::invalid_argument, "checkpoint: the table has rows already",
                {{"file", in.path()}, {"table", t}, {"rows", table.rows()}});
  auto const& shape = in.at(table_tensor(t, "weight")).shape;
  table_section found{t, shape.empty() ? 0 : shape[0], in.find(table_tensor(t, "ids")) != nullptr, with_state && width > 0, false};
  in.expect(table_tensor(t, "weight"), row_dtype<typename Store::element>(), {found.rows, dim});
  if (shares_scale<Store>) in.expect(table_tensor(t, "step"), safetensors_dtype::f32, {found.rows});
  if (with_state && !found.has_state) refuse_tensor(in, table_tensor(t, "state"));
  if (found.has_state) in.expect(table_tensor(t, "state"), safetensors_dtype::f32, {found.rows, width});
  if (found.has_ids) in.expect(table_tensor(t, "ids"), safetensors_dtype::i64, {found.rows});
  if (Store::slots_are_ids && !found.has_ids && found.rows != table.rows())
    throw error(errc::incompatible, "checkpoint: a table of another size",
                {{"file", in.path()}, {"table", t}, {"rows", found.rows}, {"expected", table.rows()}});
  if (!Store::slots_are_ids && found.rows > table.options().most_rows)
    throw error(errc::incompatible, "checkpoint: more rows than the table may hold",
                {{"file", in.path()}, {"table", t}, {"rows", found.rows}, {"most_rows", table.options().most_rows}});
  if constexpr (has_policies<Store>()) {
    using eviction = typename Store::eviction_policy;
    if (with_state) read_clock(in, t);
    found.has_use = with_state && eviction::saved_width > 0;
    if (found.has_use) in.expect(table_tensor(t, eviction::name), safetensors_dtype::i64, {found.rows, eviction::saved_width});
  }
  return found;
}

template <class Store>
void set_clock(std::array<std::int64_t, 3> const& words, Store& table) {
  auto clock = table.clock();
  clock.batch = words[0];
  if (words[1] != 0) clock.time = words[2];
  table.set_clock(clock);
}

// What a policy finds wrong, it finds in this tensor.
template <class F>
void restore_from(safetensors_reader const& in, std::string const& tensor, F const& f) {
  try {
    f();
  } catch (error const& e) {
    auto values = e.values();
    values.insert(values.begin(), {{"file", in.path()}, {"tensor", tensor}});
    throw error(e.code(), e.sentence(), std::move(values));
  }
}

template <class Store>
void read_sightings(host_exec const& exec, safetensors_reader const& in, std::size_t t, Store& table) {
  constexpr std::int64_t width = Store::admission_policy::saved_width;
  auto const name = table_tensor(t, Store::admission_policy::name);
  if (width == 0) return;
  auto const& shape = in.at(name).shape;
  auto const rows = shape.empty() ? 0 : shape[0];
  in.expect(name, safetensors_dtype::i64, {rows, width});
  buffer<std::int64_t> words(exec, rows * width);
  in.read(name, 0, words.view());
  restore_from(in, name, [&] { table.restore_sightings(exec, {words.data(), rows, width}); });
}

template <class Store>
void read_use(host_exec const& exec, safetensors_reader const& in, table_section const& section, Store& table, std::int64_t first,
              vector_view<std::int64_t const> slots) {
  constexpr std::int64_t width = Store::eviction_policy::saved_width;
  buffer<std::int64_t> words(exec, slots.size() * width);
  auto const name = table_tensor(section.table, Store::eviction_policy::name);
  in.read(name, first * width, words.view());
  restore_from(in, name, [&] {
    for (std::int64_t i = 0; i < slots.size(); ++i) table.restore_use(exec, slots[i], words.data() + i * width);
  });
}

// Row r of the file goes to the row of its id, so either kind of store reads what either wrote.
template <class Store>
void read_rows_of(host_exec const& exec, safetensors_reader const& in, table_section const& section, Store& table) {
  using element = typename Store::element;
  auto const t = section.table;
  auto const& weights = in.at(table_tensor(t, "weight"));
  auto const dim = table.dim(), width = table.state_layout().width(dim), most = std::min(section.rows, rows_per_write);
  buffer<std::int64_t> ids(exec, most), slots(exec, most);
  buffer<element> values(exec, most * dim);
  buffer<float> states(exec, section.has_state ? most * width : 0), steps(exec, shares_scale<Store> ? most : 0);
  std::vector<bool> is_read;  // by slot
  for (std::int64_t first = 0; first < section.rows; first += rows_per_write) {
    auto const count = std::min(section.rows - first, rows_per_write);
    auto const here = std::as_const(ids).view().slice(0, count);
    for (std::int64_t i = 0; i < count; ++i) ids[i] = first + i;
    if (section.has_ids) in.read(table_tensor(t, "ids"), first, ids.view().slice(0, count));
    if constexpr (requires { table.insert(exec, here, slots.view()); })
      table.insert(exec, here, slots.view().slice(0, count));
    else
      table.locate(exec, here, slots.view().slice(0, count));
    for (std::int64_t i = 0; i < count; ++i) {
      if (slots[i] < 0)
        throw error(errc::incompatible, "checkpoint: the table has no row for an id",
                    {{"file", in.path()}, {"table", t}, {"id", ids[i]}, {"rows", table.rows()}});
      if (!section.has_ids) continue;
      auto const slot = static_cast<std::size_t>(slots[i]);
      if (slot >= is_read.size()) is_read.resize(slot + 1);
      if (is_read[slot])
        throw error(errc::corrupt_file, "checkpoint: an id twice",
                    {{"file", in.path()}, {"tensor", table_tensor(t, "ids")}, {"table", t}, {"id", ids[i]}});
      is_read[slot] = true;
    }
    in.read_bytes(weights, first * dim * static_cast<std::int64_t>(sizeof(element)),
                  as_writable_bytes(values.view().slice(0, count * dim)));
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(values.data() + i * dim, dim, table.row(slots[i]));
    if constexpr (shares_scale<Store>) {
      in.read(table_tensor(t, "step"), first, steps.view().slice(0, count));
      for (std::int64_t i = 0; i < count; ++i) row_scale<element>{steps[i]}.write_to(table.row(slots[i]));
    }
    if constexpr (has_policies<Store>())
      if (section.has_use) read_use(exec, in, section, table, first, slots.view().slice(0, count));
    if (!section.has_state) continue;
    in.read(table_tensor(t, "state"), first * width, states.view().slice(0, count * width));
    for (std::int64_t i = 0; i < count; ++i) std::copy_n(states.data() + i * width, width, table.state(slots[i]));
  }
}

// Reads a checkpoint's tables into these, which fit: the constructor refuses what does not, before anything has changed. `with_state`: with
// all that training goes on from, into tables of the same optimizer and policies.
template <class Store>
class tables_reader {
 public:
  tables_reader(std::string const& folder, std::vector<Store>& tables, bool with_state)
      : in_(folder + "/tables.safetensors"), tables_(&tables), with_state_(with_state) {
    refuse_tensor(in_, table_tensor(tables.size(), "weight"));
    for (std::size_t t = 0; t < tables.size(); ++t) sections_.push_back(check_table(in_, t, tables[t], with_state));
  }

  void read(host_exec const& exec) const {
    for (auto const& section : sections_) {
      auto& table = (*tables_)[section.table];
      if constexpr (has_policies<Store>())
        if (with_state_) set_clock(read_clock(in_, section.table), table);
      read_rows_of(exec, in_, section, table);
      if constexpr (has_policies<Store>())
        if (with_state_) read_sightings(exec, in_, section.table, table);
    }
  }

 private:
  safetensors_reader in_;
  std::vector<Store>* tables_;
  bool with_state_;
  std::vector<table_section> sections_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
