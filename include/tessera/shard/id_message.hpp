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
inline id_message_key measure_key(jagged_view<std::int64_t const> bags, std::int64_t table_rows, bool weighted) {
  id_message_key key{.rows = bags.rows, .values = bags.size(), .id_bytes = id_bytes_below(table_rows), .weighted = weighted ? 1 : 0};
  std::int64_t longest = 0, shortest = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t row = 0; row < bags.rows; ++row) {
    longest = std::max(longest, bags.length(row));
    shortest = std::min(shortest, bags.length(row));
  }
  bool const all_one = longest == 1 && shortest == 1;
  key.length_bytes = all_one || bags.rows == 0 ? 0 : longest < 256 ? 1 : longest < 65'536 ? 2 : longest < (std::int64_t{1} << 32) ? 4 : 8;
  return key;
}

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

inline std::int64_t id_message_size(std::vector<id_message_key> const& keys) {
  auto size = static_cast<std::int64_t>(16 + keys.size() * sizeof(id_message_key));
  for (auto const& key : keys) size += key.size();
  return size;
}

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
  id_message(vector_view<std::byte const> bytes, std::int64_t keys, int from) {
    auto const refuse = [&] {
      throw error(errc::incompatible, "sharded_tables: ids that cannot be read", {{"from rank", from}, {"bytes", bytes.size()}});
    };
    std::int64_t header[2];
    if (bytes.size() < static_cast<std::int64_t>(sizeof header)) refuse();
    std::memcpy(header, bytes.data(), sizeof header);
    auto left = bytes.size() - static_cast<std::int64_t>(sizeof header);
    if (header[0] != keys || left < keys * static_cast<std::int64_t>(sizeof(id_message_key))) refuse();
    weighted_ = header[1] != 0;
    keys_.resize(static_cast<std::size_t>(keys));
    if (keys > 0) std::memcpy(keys_.data(), bytes.data() + sizeof header, keys_.size() * sizeof(id_message_key));
    left -= keys * static_cast<std::int64_t>(sizeof(id_message_key));
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      auto& key = keys_[i];
      if (key.is_as_before()) {
        if (i == 0 || key.rows != keys_[i - 1].rows || key.values != keys_[i - 1].values) refuse();
        key = keys_[i - 1];
        first_.push_back(first_.back());
        continue;
      }
      constexpr std::int64_t most = std::int64_t{1} << 56;
      bool const is_size =
          key.length_bytes == 0 || key.length_bytes == 1 || key.length_bytes == 2 || key.length_bytes == 4 || key.length_bytes == 8;
      if (key.rows < 0 || key.rows > most || key.values < 0 || key.values > most || !is_size || (key.id_bytes != 4 && key.id_bytes != 8) ||
          (key.weighted != 0 && key.weighted != 1) || key.size() > left || (key.length_bytes == 0 && key.values != key.rows))
        refuse();
      first_.push_back(bytes.data() + (bytes.size() - left));
      left -= key.size();
    }
    if (left != 0) refuse();
  }

  // Whether the batch that was sent is weighted.
  bool weighted() const noexcept { return weighted_; }
  bool has_weights() const noexcept {
    return std::any_of(keys_.begin(), keys_.end(), [](auto const& key) { return key.weighted != 0; });
  }
  std::int64_t rows(std::size_t key) const noexcept { return keys_[key].rows; }
  std::int64_t values(std::size_t key) const noexcept { return keys_[key].values; }

  // Writes a key's offsets behind the first, which is `first_value`: (rows,); its ids and weights, (values,) each; weights of 1 where it has none.
  // @throws tessera::error as the constructor, for lengths that are not those of the values
  void read(std::size_t i, int from, std::int64_t first_value, std::int64_t* offsets, std::int64_t* ids, float* weights) const {
    auto const& key = keys_[i];
    auto const* at = first_[i];
    auto end = first_value;
    if (key.length_bytes == 0)
      for (std::int64_t row = 0; row < key.rows; ++row) offsets[row] = ++end;
    else
      with_unsigned(key.length_bytes, [&](auto zero) {
        auto const* const lengths = reinterpret_cast<decltype(zero) const*>(at);
        for (std::int64_t row = 0; row < key.rows; ++row) {
          auto const length = static_cast<std::uint64_t>(lengths[row]), left = static_cast<std::uint64_t>(first_value + key.values - end);
          if (length > left) refuse_lengths(i, from);  // before a sum could be too large
          offsets[row] = end += static_cast<std::int64_t>(length);
        }
      });
    if (end - first_value != key.values) refuse_lengths(i, from);
    at += key.lengths_size();
    if (key.id_bytes == 4) {
      auto const* const narrow = reinterpret_cast<std::uint32_t const*>(at);
      for (std::int64_t p = 0; p < key.values; ++p) ids[p] = narrow[p] == no_id ? -1 : std::int64_t{narrow[p]};
    } else if (key.values > 0) {
      std::memcpy(ids, at, static_cast<std::size_t>(key.values) * sizeof *ids);
    }
    at += key.ids_size();
    if (weights == nullptr) return;
    if (key.weighted != 0 && key.values > 0)
      std::memcpy(weights, at, static_cast<std::size_t>(key.values) * sizeof *weights);
    else
      std::fill_n(weights, key.values, 1.0F);
  }

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
