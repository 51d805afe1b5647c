// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_store.hpp>

/// What the tests of this folder share.
namespace embed_tests {

inline constexpr auto smallest_id = std::numeric_limits<std::int64_t>::min();
inline constexpr auto largest_id = std::numeric_limits<std::int64_t>::max();

/// The initial row of an id, from the definition alone.
inline std::vector<float> initial_row(tessera::table_options const& table, std::int64_t id) {
  std::vector<float> row;
  for (std::uint32_t block = 0; static_cast<std::int64_t>(row.size()) < table.dim; ++block) {
    auto const words = tessera::philox(table.seed, static_cast<std::uint64_t>(id), static_cast<std::uint32_t>(table.id.value), block);
    for (int k = 0; k < 4 && static_cast<std::int64_t>(row.size()) < table.dim; ++k)
      row.push_back((static_cast<float>(words[k] >> 8) / 8388608.0F - 1.0F) * table.init_bound);
  }
  return row;
}

template <class T>
bool same_bits(T const* a, T const* b, std::int64_t count) {
  return count == 0 || std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(T)) == 0;
}

/// An initial row as the nearest elements of this kind.
template <tessera::row_element E>
std::vector<E> initial_elements(tessera::table_options const& table, std::int64_t id) {
  auto const scale = tessera::row_scale<E>::covering(tessera::detail::float_bits(table.init_bound));
  std::vector<E> result;
  for (auto const value : initial_row(table, id)) result.push_back(scale.nearest(value));
  return result;
}
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<std::int64_t>(a.size()));
}

/// The size of the steps of a row whose largest magnitude this is, from the definition alone.
inline double step_covering(double largest) {
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  double step = 0x1p-126;
  while (127 * step < largest) step *= 2;
  return step;
}
inline double largest_of(std::vector<float> const& values) {
  double largest = 0;
  for (auto const value : values) largest = std::isnan(value) ? HUGE_VAL : std::max(largest, std::fabs(static_cast<double>(value)));
  return largest;
}

/// What a store holds of a row of these values, rounded to nearest. Where elements share a scale, it is that of `largest`.
template <tessera::row_element E>
std::vector<float> stored(std::vector<float> values, double largest) {
  auto const step = step_covering(largest);
  for (auto& value : values)
    if constexpr (std::is_same_v<E, tessera::scaled_int8>)
      value = static_cast<float>(std::nearbyint(static_cast<double>(value) / step) * step + 0);  // without a negative zero
    else
      value = tessera::to_float(tessera::round_to<E>(value));
  return values;
}
template <tessera::row_element E>
std::vector<float> stored(std::vector<float> const& values) {
  return stored<E>(values, largest_of(values));
}

/// What a store first holds of an id.
template <tessera::row_element E>
std::vector<float> stored_initial_row(tessera::table_options const& table, std::int64_t id) {
  return stored<E>(initial_row(table, id), static_cast<double>(table.init_bound));
}

template <class Store>
std::vector<float> values_of_row(Store const& store, std::int64_t slot) {
  auto const* const row = store.row(slot);
  auto const scale = tessera::row_scale<typename Store::element>::of(row);
  std::vector<float> values;
  for (std::int64_t c = 0; c < store.dim(); ++c) values.push_back(scale.value(row[c]));
  return values;
}

/// Sets a row, rounded to nearest.
template <class Store>
void set_row(Store& store, std::int64_t slot, std::vector<float> const& values) {
  auto* const row = store.row(slot);
  auto const scale =
      tessera::row_scale<typename Store::element>::covering(tessera::detail::magnitude_of(static_cast<float>(largest_of(values))));
  std::transform(values.begin(), values.end(), row, [&](float value) { return scale.nearest(value); });
  scale.write_to(row);
}

template <class Store>
std::vector<std::int64_t> locate(tessera::host_exec const& exec, Store& store, std::vector<std::int64_t> const& ids) {
  std::vector<std::int64_t> slots(ids.size(), -7);
  store.locate(exec, ids, slots, {});
  return slots;
}

template <class Store>
std::vector<std::int64_t> find(tessera::host_exec const& exec, Store const& store, std::vector<std::int64_t> const& ids) {
  std::vector<std::int64_t> slots(ids.size(), -7);
  store.find(exec, ids, slots);
  return slots;
}

/// Whether every slot holds the initial row of its id and the initial state.
template <class Store>
bool rows_are_initial(Store const& store, std::vector<std::int64_t> const& ids, std::vector<std::int64_t> const& slots) {
  auto const width = store.state_layout().width(store.dim());
  std::vector<float> const state(static_cast<std::size_t>(width), store.state_layout().initial);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (slots[i] < 0) return false;
    if (!same_bits(values_of_row(store, slots[i]), stored_initial_row<typename Store::element>(store.options(), ids[i]))) return false;
    if constexpr (std::is_same_v<typename Store::element, tessera::scaled_int8>)
      if (static_cast<double>(tessera::row_scale<tessera::scaled_int8>::of(store.row(slots[i])).step) !=
          step_covering(static_cast<double>(store.options().init_bound)))
        return false;
    if (!same_bits(store.state(slots[i]), state.data(), width)) return false;
  }
  return true;
}

}  // namespace embed_tests
