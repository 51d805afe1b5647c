// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/shard/id_message.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE id_message_key measure_key(jagged_view<std::int64_t const> bags, std::int64_t table_rows, bool weighted) {
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

TESSERA_INLINE std::int64_t id_message_size(std::vector<id_message_key> const& keys) {
  auto size = static_cast<std::int64_t>(16 + keys.size() * sizeof(id_message_key));
  for (auto const& key : keys) size += key.size();
  return size;
}

TESSERA_INLINE id_message::id_message(vector_view<std::byte const> bytes, std::int64_t keys, int from) {
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

TESSERA_INLINE void id_message::read(std::size_t i, int from, std::int64_t first_value, std::int64_t* offsets, std::int64_t* ids,
                                     float* weights) const {
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

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
