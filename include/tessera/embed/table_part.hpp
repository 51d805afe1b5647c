// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The type of the numbers in a plane of rows.
enum class plane_type : std::uint8_t { f32, f16, bf16, f8_e4m3, f8_e5m2, i8, i64 };

/// The bytes of a number.
constexpr std::int64_t size_of(plane_type type) noexcept {
  switch (type) {
    case plane_type::f32: return 4;
    case plane_type::f16:
    case plane_type::bf16: return 2;
    case plane_type::i64: return 8;
    default: return 1;
  }
}

/// A plane: one kind of what a table keeps of each row.
enum class row_plane : std::uint8_t {
  weights,  ///< (dim,), as they are stored
  step,     ///< what one step of a weight is worth, where a row shares a scale
  state,    ///< the optimizer's
  use,      ///< what decides which row leaves
};

/// The width and the type of a plane.
struct plane_shape {
  plane_type type = plane_type::f32;
  std::int64_t width = 0;  ///< of a row; 0: the table has none of it
};

/// The names of the policies that decide about a table's rows; empty where they are not known.
struct table_kind {
  std::string_view optimizer, admission, eviction;
};

/// The part of one table that lies here, of whatever kind: all that a checkpoint keeps, a copy needs, or a check looks at. Rows are named
/// by slots, and their bytes are those of the store. Calls must not overlap each other or a step. After each step, call `list_rows` or
/// `find_rows` before rows are read, and `place_rows` before rows are written.
class table_part {
 public:
  table_part() = default;
  table_part(table_part const&) = delete;
  table_part& operator=(table_part const&) = delete;
  virtual ~table_part() = default;

  virtual table_options const& options() const noexcept = 0;
  /// The policies of the table, by name.
  virtual table_kind kind() const noexcept = 0;
  /// Whether a row's slot is its id.
  virtual bool slots_are_ids() const noexcept = 0;
  virtual std::int64_t rows() const = 0;  // of a table on a device, counted there
  /// The shape of a plane, of width 0 where the table has none such.
  virtual plane_shape shape(row_plane plane) const noexcept = 0;
  /// Which floats of a row's state are those of the row, and which those of its elements.
  virtual row_state_layout state_layout() const noexcept = 0;
  virtual step_count steps() const noexcept = 0;
  virtual void set_steps(step_count steps) noexcept = 0;

  /// Writes the slots and ids of all rows, (rows(),) each, in the order in which rows would leave.
  virtual void list_rows(vector_view<std::int64_t> slots, vector_view<std::int64_t> ids) const = 0;
  /// Writes the slots of ids, -1 of an id without a row. Changes nothing, and takes the place of `list_rows` before rows are read.
  virtual void find_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const = 0;
  /// Writes the slots of ids. An id without a row gets one where the table has room, without asking its admission policy; else -1.
  virtual void place_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) = 0;
  /// Copies a plane of these rows, one row after the other, to (slots * width * size_of(type),) bytes; `copy_in` copies it back.
  /// @throws tessera::error out_of_range for a use that no row can have.
  virtual void copy_out(row_plane plane, vector_view<std::int64_t const> slots, char* to) const = 0;
  /// Copies a plane of these rows from such bytes. @throws tessera::error as `copy_out`.
  virtual void copy_in(host_exec const& exec, row_plane plane, vector_view<std::int64_t const> slots, char const* from) = 0;

  /// The clock of a table whose policies look at time. @throws tessera::error invalid_argument, by `set_clock`, for a clock that goes back.
  virtual std::optional<table_clock> clock() const noexcept = 0;
  /// Sets the clock. @throws tessera::error invalid_argument for a clock that goes back.
  virtual void set_clock(table_clock clock) = 0;
  /// How often ids without rows were seen, (sightings(), sighting_words()), where admission counts that; else no words.
  virtual std::int64_t sighting_words() const noexcept = 0;
  /// How many ids without rows admission knows.
  virtual std::int64_t sightings() const noexcept = 0;
  /// Copies how often ids without rows were seen, (sightings(), sighting_words()).
  virtual void copy_sightings(matrix_view<std::int64_t> to) const = 0;
  /// Restores how often ids without rows were seen.
  virtual void restore_sightings(host_exec const& exec, matrix_view<std::int64_t const> from) = 0;
};

/// What of a source's tables lies here, table by table.
using table_parts = std::vector<std::unique_ptr<table_part>>;

namespace detail {

template <row_element E>
constexpr plane_type plane_type_of() noexcept {
  if constexpr (std::is_same_v<E, float16>) return plane_type::f16;
  if constexpr (std::is_same_v<E, bfloat16>) return plane_type::bf16;
  if constexpr (std::is_same_v<E, float8_e4m3>) return plane_type::f8_e4m3;
  if constexpr (std::is_same_v<E, float8_e5m2>) return plane_type::f8_e5m2;
  if constexpr (std::is_same_v<E, scaled_int8>) return plane_type::i8;
  return plane_type::f32;
}

template <class Store>
constexpr bool has_policies() noexcept {
  if constexpr (requires { Store::has_policies; }) return Store::has_policies;
  return false;
}

// A store without policies gives every id its row and keeps it.
template <class Store>
struct policies_of {
  using admission = admit_all;
  using eviction = keep_all;
};
template <class Store>
  requires requires {
    typename Store::admission_policy;
    typename Store::eviction_policy;
  }
struct policies_of<Store> {
  using admission = typename Store::admission_policy;
  using eviction = typename Store::eviction_policy;
};

/// A part that is all of a store, for any memory in which rows lie.
template <row_store Store>
class whole_store : public table_part {
 protected:
  using element = typename Store::element;
  using admission = typename policies_of<Store>::admission;
  using eviction = typename policies_of<Store>::eviction;
  using scale = row_scale<element>;
  static constexpr bool remembers_use = has_policies<Store>() && eviction::saved_width > 0;
  static constexpr bool remembers_sightings = has_policies<Store>() && admission::saved_width > 0;

 public:
  table_options const& options() const noexcept override { return store_->options(); }
  table_kind kind() const noexcept override {
    if constexpr (has_policies<Store>())
      return {optimizer_, store_->admission_name(), store_->eviction_name()};
    else
      return {optimizer_, admission::name, eviction::name};
  }
  bool slots_are_ids() const noexcept override { return Store::slots_are_ids; }
  std::int64_t rows() const override { return store_->rows(); }
  step_count steps() const noexcept override { return store_->steps(); }
  void set_steps(step_count steps) noexcept override { store_->set_steps(steps); }

  plane_shape shape(row_plane plane) const noexcept override {
    switch (plane) {
      case row_plane::weights: return {plane_type_of<element>(), store_->dim()};
      case row_plane::step: return {plane_type::f32, scale::lead > 0 ? 1 : 0};
      case row_plane::state: return {plane_type::f32, store_->state_layout().width(store_->dim())};
      case row_plane::use: return {plane_type::i64, use_words()};
    }
    return {};
  }

  row_state_layout state_layout() const noexcept override { return store_->state_layout(); }

  void list_rows(vector_view<std::int64_t> slots, vector_view<std::int64_t> ids) const override {
    std::int64_t i = 0;
    store_->for_each_row([&](std::int64_t slot, std::int64_t id) {
      slots[i] = slot;
      ids[i++] = id;
    });
  }

  std::optional<table_clock> clock() const noexcept override {
    if constexpr (has_policies<Store>())
      return store_->clock();
    else
      return std::nullopt;
  }
  void set_clock([[maybe_unused]] table_clock clock) override {
    if constexpr (has_policies<Store>()) store_->set_clock(clock);
  }
  std::int64_t sighting_words() const noexcept override {
    if constexpr (remembers_sightings)
      return store_->sighting_words();
    else
      return 0;
  }
  std::int64_t sightings() const noexcept override {
    if constexpr (remembers_sightings)
      return store_->saved_sightings();
    else
      return 0;
  }
  void copy_sightings([[maybe_unused]] matrix_view<std::int64_t> to) const override {
    if constexpr (remembers_sightings) std::as_const(*store_).save_sightings(to);
  }
  void restore_sightings([[maybe_unused]] host_exec const& exec, [[maybe_unused]] matrix_view<std::int64_t const> from) override {
    if constexpr (remembers_sightings) store_->restore_sightings(exec, from);
  }

 protected:
  whole_store(Store& store, std::string_view optimizer) noexcept : store_(&store), optimizer_(optimizer) {}

  Store& store() const noexcept { return *store_; }
  std::int64_t use_words() const noexcept {
    if constexpr (remembers_use)
      return store_->use_words();
    else
      return 0;
  }
  std::size_t row_bytes(row_plane plane) const noexcept {
    auto const has = shape(plane);
    return static_cast<std::size_t>(has.width * size_of(has.type));
  }

 private:
  Store* store_;
  std::string_view optimizer_;
};

/// A part that is all of a store of the host.
template <row_store Store>
class store_part final : public whole_store<Store> {
  using base = whole_store<Store>;
  using base::store;
  using typename base::eviction;
  using typename base::scale;

 public:
  /// Refers to the store. `optimizer` is the optimizer's name.
  explicit store_part(Store& store, std::string_view optimizer = {}) noexcept : base(store, optimizer) {}

  void find_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) const override {
    store().find(exec, ids, slots);
  }
  void place_rows(host_exec const& exec, vector_view<std::int64_t const> ids, vector_view<std::int64_t> slots) override {
    if constexpr (requires(Store & to) { to.insert(exec, ids, slots); })
      store().insert(exec, ids, slots);
    else
      store().locate(exec, ids, slots, {});
  }

  void copy_out(row_plane plane, vector_view<std::int64_t const> slots, char* to) const override {
    auto const& from = store();
    auto const bytes = base::row_bytes(plane);
    if (bytes == 0) return;  // and perhaps no memory
    for (auto const slot : slots) {
      if (plane == row_plane::weights) std::memcpy(to, from.row(slot), bytes);
      if (plane == row_plane::state) std::memcpy(to, from.state(slot), bytes);
      if constexpr (scale::lead > 0)
        if (plane == row_plane::step) {
          auto const step = scale::of(from.row(slot)).step;
          std::memcpy(to, &step, bytes);
        }
      if constexpr (base::remembers_use)
        if (plane == row_plane::use) {
          std::array<std::int64_t, eviction::saved_width> words{};
          from.save_use(slot, words.data());
          std::memcpy(to, words.data(), bytes);
        }
      to += bytes;
    }
  }

  void copy_in(host_exec const& exec, row_plane plane, vector_view<std::int64_t const> slots, char const* from) override {
    auto& to = store();
    auto const bytes = base::row_bytes(plane);
    if (bytes == 0) return;
    for (auto const slot : slots) {
      if (plane == row_plane::weights) std::memcpy(to.row(slot), from, bytes);
      if (plane == row_plane::state) std::memcpy(to.state(slot), from, bytes);
      if constexpr (scale::lead > 0)
        if (plane == row_plane::step) {
          float step = 0;
          std::memcpy(&step, from, bytes);
          scale{step}.write_to(to.row(slot));
        }
      if constexpr (base::remembers_use)
        if (plane == row_plane::use) {
          std::array<std::int64_t, eviction::saved_width> words{};
          std::memcpy(words.data(), from, bytes);
          to.restore_use(exec, slot, words.data());
        }
      from += bytes;
    }
  }
};

}  // namespace detail

/// The parts that are the whole stores of a container, which must outlive the parts.
template <row_stores Tables>
table_parts parts_of(Tables& tables) {
  table_parts parts;
  for (auto& table : vector_view<detail::element_in<Tables>>(tables))
    parts.push_back(std::make_unique<detail::store_part<detail::element_in<Tables>>>(table));
  return parts;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
