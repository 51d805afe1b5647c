// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The summed gradients of the rows that a batch names, each row once: table by table, slots ascending. They take the place of an update,
/// to be clipped, sent, or added up over micro-batches. Slots are valid as long as the store keeps the rows. On a device the host knows the
/// numbers of rows; slots, ids and values lie in the device's memory. Move-only.
template <execution Exec>
class basic_row_gradients {
  using counts = std::conditional_t<device_execution<Exec>, detail::host_numbers, buffer<std::int64_t>>;

 public:
  /// The number of tables of the call.
  std::int64_t tables() const noexcept { return first_row_.empty() ? 0 : first_row_.size() - 1; }
  std::int64_t rows(std::int64_t table) const noexcept(!checks_indices) {
    if constexpr (checks_indices) detail::check_index("row_gradients table", table, tables());
    return first_row_[table + 1] - first_row_[table];
  }
  /// The slots of a table's rows, ascending, (rows(table),); `ids` are of the same rows.
  vector_view<std::int64_t const> slots(std::int64_t table) const noexcept(!checks_indices) {
    auto const count = rows(table);
    return slots_.view().slice(first_row_[table], count);
  }
  /// The ids of a table's rows, (rows(table),), in the order of their slots.
  vector_view<std::int64_t const> ids(std::int64_t table) const noexcept(!checks_indices) {
    auto const count = rows(table);
    return ids_.view().slice(first_row_[table], count);
  }
  /// The summed gradients of a table's rows, (rows(table), dim(table)).
  matrix_view<float> values(std::int64_t table) noexcept(!checks_indices) {
    auto const count = rows(table);
    return {values_.data() + first_value_[table], count, dims_[table]};
  }
  /// As above, to read.
  matrix_view<float const> values(std::int64_t table) const noexcept(!checks_indices) {
    auto const count = rows(table);
    return {values_.data() + first_value_[table], count, dims_[table]};
  }
  /// The summed gradients of all tables, one table after the other.
  vector_view<float> values() noexcept { return values_.view(); }
  /// As above, to read.
  vector_view<float const> values() const noexcept { return values_.view(); }

  std::size_t bytes() const noexcept {
    return slots_.capacity_bytes() + ids_.capacity_bytes() + values_.capacity_bytes() + first_row_.capacity_bytes() +
           first_value_.capacity_bytes() + dims_.capacity_bytes();
  }

  /// The elements of each of a table's rows.
  std::int64_t dim(std::int64_t table) const noexcept(!checks_indices) { return dims_[table]; }
  /// @private Allocates `rows(t)` rows of `dim(t)` for each table, which the calls below then fill.
  template <class Rows, class Dim>
  void resize(Exec const& exec, std::int64_t tables, Rows const& rows, Dim const& dim) {
    first_row_.resize(exec, tables + 1);
    first_value_.resize(exec, tables + 1);
    dims_.resize(exec, tables);
    first_row_[0] = first_value_[0] = 0;
    for (std::int64_t t = 0; t < tables; ++t) {
      dims_[t] = dim(t);
      first_row_[t + 1] = first_row_[t] + rows(t);
      first_value_[t + 1] = first_value_[t] + rows(t) * dim(t);
    }
    slots_.resize(exec, first_row_[tables]);
    ids_.resize(exec, first_row_[tables]);
    values_.resize(exec, first_value_[tables]);
  }
  /// @private Of a table's rows, to be written.
  std::int64_t* slots_to_write(std::int64_t table) noexcept { return slots_.data() + first_row_[table]; }
  /// @private The ids of a table's rows, to be written.
  std::int64_t* ids_to_write(std::int64_t table) noexcept { return ids_.data() + first_row_[table]; }
  /// @private
  void set_row(std::int64_t table, std::int64_t row, std::int64_t slot, std::int64_t id) noexcept(!checks_indices) {
    slots_[first_row_[table] + row] = slot;
    ids_[first_row_[table] + row] = id;
  }

 private:
  counts first_row_;    // (tables + 1,)
  counts first_value_;  // (tables + 1,)
  counts dims_;         // (tables,)
  buffer<std::int64_t, Exec> slots_, ids_;
  buffer<float, Exec> values_;
};
/// Summed gradients on the host.
using row_gradients = basic_row_gradients<host_exec>;

/// Adds up gradients over micro-batches: `into` becomes the sum of `into` and `more`. It holds the rows of both, slots ascending; for a row
/// of both, the gradient of `into` comes first in the sum. `into` may be empty. `spare` is scratch: its memory becomes that of the sum, and
/// it gets the memory of `into`. On a device the call synchronises and reports faults.
/// @throws tessera::error shape_mismatch; out_of_range where a slot has another id in `more`: the store evicted the row between the two
/// lookups (table_options::batches_in_flight). `into` is then as before, also when memory runs out.
template <execution Exec>
void add_row_gradients(Exec const& exec, basic_row_gradients<Exec>& into, basic_row_gradients<Exec> const& more,
                       basic_row_gradients<Exec>& spare);

/// As above, without `spare`: the sum takes new memory.
template <execution Exec>
void add_row_gradients(Exec const& exec, basic_row_gradients<Exec>& into, basic_row_gradients<Exec> const& more);

namespace detail {

struct add_row_gradients_tag {};

template <>
struct back_end<add_row_gradients_tag, host_exec> {
  static void run(host_exec const& exec, row_gradients const& into, row_gradients const& more, row_gradients& sum) {
    auto const tables = more.tables();
    bool const first = into.tables() == 0;
    buffer<std::int64_t> rows(exec, tables);
    for (std::int64_t t = 0; t < tables; ++t) {
      rows[t] = 0;
      merge(slots(into, first, t), more.slots(t), [&](std::int64_t a, std::int64_t b) {
        if (a >= 0 && b >= 0 && into.ids(t)[a] != more.ids(t)[b])
          throw error(errc::out_of_range, "add_row_gradients: a row has gone to another id",
                      {{"table", t}, {"slot", more.slots(t)[b]}, {"id", into.ids(t)[a]}, {"id now", more.ids(t)[b]}});
        ++rows[t];
      });
    }
    sum.resize(
        exec, tables, [&](std::int64_t t) { return rows[t]; }, [&](std::int64_t t) { return more.dim(t); });
    exec.run(tables, [&](std::int64_t t) {
      std::int64_t row = 0;
      auto const dim = more.dim(t);
      merge(slots(into, first, t), more.slots(t), [&](std::int64_t a, std::int64_t b) {
        auto const& from = a >= 0 ? into : more;
        sum.set_row(t, row, from.slots(t)[a >= 0 ? a : b], from.ids(t)[a >= 0 ? a : b]);
        float* const to = sum.values(t).row(row++);
        std::copy_n(from.values(t).row(a >= 0 ? a : b), dim, to);
        if (a < 0 || b < 0) return;
        auto const* const other = more.values(t).row(b);
        for (std::int64_t c = 0; c < dim; ++c) to[c] += other[c];
      });
    });
  }

 private:
  static vector_view<std::int64_t const> slots(row_gradients const& of, bool none, std::int64_t table) {
    return none ? vector_view<std::int64_t const>{} : of.slots(table);
  }
  // Calls f(position in a or -1, position in b or -1) for each slot that either has.
  template <class F>
  static void merge(vector_view<std::int64_t const> a, vector_view<std::int64_t const> b, F const& f) {
    std::int64_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      bool const from_a = j == b.size() || (i < a.size() && a[i] <= b[j]), from_b = i == a.size() || (j < b.size() && b[j] <= a[i]);
      f(from_a ? i : -1, from_b ? j : -1);
      i += from_a;
      j += from_b;
    }
  }
};

}  // namespace detail

template <execution Exec>
void add_row_gradients(Exec const& exec, basic_row_gradients<Exec>& into, basic_row_gradients<Exec> const& more,
                       basic_row_gradients<Exec>& spare) {
  auto const tables = more.tables();
  if (into.tables() != 0 && into.tables() != tables)
    throw error(errc::shape_mismatch, "add_row_gradients: gradients of other tables", {{"tables", into.tables()}, {"more", tables}});
  bool const first = into.tables() == 0;
  for (std::int64_t t = 0; t < tables && !first; ++t)
    if (into.dim(t) != more.dim(t))
      throw error(errc::shape_mismatch, "add_row_gradients: gradients of another dim",
                  {{"table", t}, {"dim", into.dim(t)}, {"more", more.dim(t)}});
  detail::back_end<detail::add_row_gradients_tag, Exec>::run(exec, into, more, spare);
  std::swap(into, spare);
}

template <execution Exec>
void add_row_gradients(Exec const& exec, basic_row_gradients<Exec>& into, basic_row_gradients<Exec> const& more) {
  basic_row_gradients<Exec> spare;
  add_row_gradients(exec, into, more, spare);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
