// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// The ids of some keys, as a rank sends them to the one that holds their tables:
//
//   header       int64 keys, int64 weighted (0 or 1): whether the batch is
//   of each key  int64 rows, int64 values, int32 bytes of a length (0: each row has one value; -1: all is as the key before has it, and does
//                not travel again), int32 bytes of an id, int64 weighted (0 or 1)
//   of each key  lengths, ids, weights, each to the next multiple of 8 bytes
//
// An id of 4 bytes whose bits are all set stands for one that its table has no row for.

inline constexpr std::uint32_t no_id = std::numeric_limits<std::uint32_t>::max();

struct id_message_key {
  std::int64_t rows = 0, values = 0;
  std::int32_t length_bytes = 0, id_bytes = 8;
  std::int64_t weighted = 0;  // 0 or 1

  static constexpr std::int32_t as_before = -1;  // for `length_bytes`

  static constexpr std::int64_t padded(std::int64_t bytes) noexcept { return divide_up(bytes, 8) * 8; }
  constexpr std::int64_t lengths_size() const noexcept { return padded(rows * length_bytes); }
  constexpr std::int64_t ids_size() const noexcept { return padded(values * id_bytes); }
  constexpr std::int64_t weights_size() const noexcept { return weighted != 0 ? padded(values * 4) : 0; }
  constexpr bool is_as_before() const noexcept { return length_bytes == as_before; }
  constexpr std::int64_t size() const noexcept { return is_as_before() ? 0 : lengths_size() + ids_size() + weights_size(); }
};
static_assert(sizeof(id_message_key) == 32);

inline std::int32_t id_bytes_below(std::int64_t bound) noexcept { return bound > 0 && bound < std::int64_t{no_id} ? 4 : 8; }

// What a key's rows take. `table_rows`: ids are below it; 0: there is no bound.
id_message_key measure_key(jagged_view<std::int64_t const> bags, std::int64_t table_rows, bool weighted);

// Whether all rows have the same values in the same order.
inline bool have_equal_rows(jagged_view<std::int64_t const> a, jagged_view<std::int64_t const> b) noexcept {
  if (a.rows != b.rows || a.size() != b.size()) return false;
  for (std::int64_t row = 0; row < a.rows; ++row)
    if (a.length(row) != b.length(row)) return false;
  return a.size() == 0 || std::equal(a.values + a.offsets[0], a.values + a.offsets[a.rows], b.values + b.offsets[0]);
}

template <class F>
void with_unsigned(std::int64_t bytes, F const& f) {
  switch (bytes) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

std::int64_t id_message_size(std::vector<id_message_key> const& keys);

// Writes a message of `id_message_size`. `rows_of(i)`: the rows of key i; `weights_of(i)`: its weights, where the key is weighted; `bound(i)`:
// its table's rows, or 0.
template <class RowsOf, class WeightsOf, class Bound>
void write_id_message(std::vector<id_message_key> const& keys, bool weighted, RowsOf const& rows_of, WeightsOf const& weights_of,
                      Bound const& bound, std::byte* to) {
  std::int64_t const header[] = {static_cast<std::int64_t>(keys.size()), weighted};
  std::memcpy(to, header, sizeof header);
  to += sizeof header;
  if (!keys.empty()) std::memcpy(to, keys.data(), keys.size() * sizeof(id_message_key));
  to += keys.size() * sizeof(id_message_key);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto const& key = keys[i];
    if (key.is_as_before()) continue;
    jagged_view<std::int64_t const> const bags = rows_of(i);
    if (key.length_bytes > 0)
      with_unsigned(key.length_bytes, [&](auto zero) {
        auto* const lengths = reinterpret_cast<decltype(zero)*>(to);
        for (std::int64_t row = 0; row < key.rows; ++row) lengths[row] = static_cast<decltype(zero)>(bags.length(row));
      });
    to += key.lengths_size();
    auto const* const ids = key.values == 0 ? nullptr : bags.values + bags.offsets[0];
    if (key.id_bytes == 4) {
      auto const rows = static_cast<std::uint64_t>(bound(i));
      auto* const narrow = reinterpret_cast<std::uint32_t*>(to);
      for (std::int64_t p = 0; p < key.values; ++p)
        narrow[p] = static_cast<std::uint64_t>(ids[p]) < rows ? static_cast<std::uint32_t>(ids[p]) : no_id;
    } else if (key.values > 0) {
      std::memcpy(to, ids, static_cast<std::size_t>(key.values) * sizeof *ids);
    }
    to += key.ids_size();
    if (key.weighted != 0 && key.values > 0) std::memcpy(to, weights_of(i), static_cast<std::size_t>(key.values) * sizeof(float));
    to += key.weights_size();
  }
}

// A message that arrived, checked: nothing in it reaches past its end.
class id_message {
 public:
  // @throws tessera::error incompatible naming the rank that sent it, for bytes that are no message of so many keys
  id_message(vector_view<std::byte const> bytes, std::int64_t keys, int from);

  // Whether the batch that was sent is weighted.
  bool weighted() const noexcept { return weighted_; }
  bool has_weights() const noexcept {
    return std::any_of(keys_.begin(), keys_.end(), [](auto const& key) { return key.weighted != 0; });
  }
  std::int64_t rows(std::size_t key) const noexcept { return keys_[key].rows; }
  std::int64_t values(std::size_t key) const noexcept { return keys_[key].values; }

  // Writes a key's offsets behind the first, which is `first_value`: (rows,); its ids and weights, (values,) each; weights of 1 where it has none.
  // @throws tessera::error as the constructor, for lengths that are not those of the values
  void read(std::size_t i, int from, std::int64_t first_value, std::int64_t* offsets, std::int64_t* ids, float* weights) const;

 private:
  [[noreturn]] void refuse_lengths(std::size_t key, int from) const {
    throw error(errc::incompatible, "sharded_tables: lengths that are not those of the ids",
                {{"from rank", from}, {"key", key}, {"ids", keys_[key].values}});
  }

  bool weighted_ = false;
  std::vector<id_message_key> keys_;
  std::vector<std::byte const*> first_;  // where each key's bytes are
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/id_message.ipp>
#endif
