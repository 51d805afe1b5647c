// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/row_store.hpp>

/// What the tests of this folder share.
namespace embed_tests {

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

/// Each float as the nearest element of this kind.
template <tessera::row_element E>
std::vector<E> rounded(std::vector<float> const& values) {
  std::vector<E> result;
  for (auto const value : values) result.push_back(tessera::round_to<E>(value));
  return result;
}
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<std::int64_t>(a.size()));
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
    if (!same_bits(store.row(slots[i]), rounded<typename Store::element>(initial_row(store.options(), ids[i])).data(), store.dim()))
      return false;
    if (!same_bits(store.state(slots[i]), state.data(), width)) return false;
  }
  return true;
}

}  // namespace embed_tests
