// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/fixed_divisor.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/transform_ids.hpp>
#include <tessera/tensor/truncate_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The key that a transform makes a function for.
struct transformed_key {
  std::int64_t number = 0;  // among the keys that the transform is applied to
  std::uint64_t salt = 0;   // of its name
};

/// Bits that a name has wherever its key stands, so that one id hashes apart in different features.
inline std::uint64_t salt_of(std::string_view name) noexcept {
  std::uint64_t sum = name.size();
  for (auto const c : name) sum = mix_bits(sum ^ static_cast<unsigned char>(c)) + 0x9E3779B97F4A7C15;
  return sum;
}

/// A transform makes the function of each key's ids: `of_key(key)`, called where the batch lies. On a device the function is plain data.
///
/// A transform whose functions read memory has `place(exec)` instead. It returns an owner of that memory, of `exec`; the owner has
/// `of_key`. A transform may have `check(keys)`, which throws where the options do not fit so many keys.
template <class Transform, class Exec = host_exec>
concept id_transform = requires(Transform const& transform, transformed_key key) {
  { transform.of_key(key) } -> id_function;
}
|| requires(Transform const& transform, Exec const& exec, transformed_key key) {
  { transform.place(exec).of_key(key) } -> id_function;
};

namespace detail {

/// One number for all keys, or one a key.
inline std::int64_t number_of(std::int64_t one, std::vector<std::int64_t> const& per_key, std::int64_t key) {
  return per_key.empty() ? one : per_key[static_cast<std::size_t>(key)];
}
inline void check_numbers(char const* transform, char const* what, std::int64_t one, std::vector<std::int64_t> const& per_key,
                          std::int64_t least, std::int64_t keys) {
  if (!per_key.empty() && static_cast<std::int64_t>(per_key.size()) != keys)
    throw error(errc::shape_mismatch, std::string(transform) + ": one number a key", {{"keys", keys}, {"numbers", per_key.size()}});
  for (std::int64_t key = 0; key < keys; ++key)
    if (auto const number = number_of(one, per_key, key); number < least)
      throw error(errc::invalid_argument, std::string(transform) + ": " + what, {{"key", key}, {what, number}, {"least", least}});
}

inline buffer<std::int64_t> placed_copy(host_exec const& exec, std::vector<std::int64_t> const& numbers) {
  buffer<std::int64_t> result(exec, static_cast<std::int64_t>(numbers.size()));
  std::copy(numbers.begin(), numbers.end(), result.begin());
  return result;
}
template <device_execution Exec>
buffer<std::int64_t, Exec> placed_copy(Exec const& exec, std::vector<std::int64_t> const& numbers) {
  return to_device(exec, numbers);
}

__extension__ typedef unsigned __int128 wide_product;

}  // namespace detail

/// Maps any id to a row of a table: the id's mixed bits, salted by the key's name and the seed, scaled to [0, size).
///
/// Keys that share a table hash under one name, so that an id has one row. A history of items and the item itself are such keys:
///
///     on_keys({"history", "item"}, hash_ids{.size = 1'000'000, .as_key = "item"})
///
/// hashes both keys as the key "item" is hashed without `as_key`.
struct hash_ids {
  std::int64_t size = 0;                        // rows of the table, at least 1
  std::vector<std::int64_t> size_per_key = {};  // (keys,): in place of that
  std::uint64_t seed = 0;
  std::string as_key = {};  // the name that salts all keys; empty: each by its own

  /// The function of one key: an id's row.
  struct function {
    std::uint64_t salt, size;

    TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept { return scaled(mixed(id)); }
    /// The first half of the function: the id's bits, salted and mixed. Compilers turn loops of it into vectors.
    TESSERA_HOST_DEVICE constexpr std::uint64_t mixed(std::int64_t id) const noexcept {
      return mix_bits(static_cast<std::uint64_t>(id) ^ salt);
    }
    /// The second half: mixed bits scaled to [0, size).
    TESSERA_HOST_DEVICE constexpr std::int64_t scaled(std::uint64_t bits) const noexcept {
      return static_cast<std::int64_t>(detail::wide_product{bits} * size >> 64);
    }
  };
  friend bool operator==(hash_ids const&, hash_ids const&) = default;
  void check(std::int64_t keys) const { detail::check_numbers("hash_ids", "size", size, size_per_key, 1, keys); }
  function of_key(transformed_key key) const {
    auto const salt = as_key.empty() ? key.salt : salt_of(as_key);
    return {mix_bits(salt ^ mix_bits(seed)), static_cast<std::uint64_t>(detail::number_of(size, size_per_key, key.number))};
  }
};

/// Maps an id to its remainder in [0, size), also a negative id: -1 becomes size - 1.
struct modulo_ids {
  std::int64_t size = 0;                        // at least 1
  std::vector<std::int64_t> size_per_key = {};  // (keys,): in place of that

  /// The function of one key: an id's remainder.
  struct function {
    fixed_divisor divisor;
    std::uint64_t size;

    TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept {
      auto const bits = static_cast<std::uint64_t>(id < 0 ? ~id : id);
      auto const rest = bits - divisor.quotient(bits) * size;
      return static_cast<std::int64_t>(id < 0 ? size - 1 - rest : rest);
    }
  };
  friend bool operator==(modulo_ids const&, modulo_ids const&) = default;
  void check(std::int64_t keys) const { detail::check_numbers("modulo_ids", "size", size, size_per_key, 1, keys); }
  function of_key(transformed_key key) const {
    auto const own = static_cast<std::uint64_t>(detail::number_of(size, size_per_key, key.number));
    return {fixed_divisor(own), own};
  }
};

/// Keeps an id within bounds: an id past a bound becomes the bound.
struct clip_ids {
  std::int64_t least = 0, most = 0;  // least <= most

  /// The function of all keys: the id within the bounds.
  struct function {
    std::int64_t least, most;

    TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept {
      return id < least ? least : id > most ? most : id;
    }
  };
  friend bool operator==(clip_ids const&, clip_ids const&) = default;
  void check(std::int64_t) const {
    if (least > most) throw error(errc::invalid_argument, "clip_ids: bounds out of order", {{"least", least}, {"most", most}});
  }
  function of_key(transformed_key) const noexcept { return {least, most}; }
};

/// Maps an id to its bin: the number of boundaries that are at most the id. Bin i holds the ids of [boundaries[i - 1], boundaries[i]). As
/// torch.bucketize with `right`.
struct bin_ids {
  std::vector<std::int64_t> boundaries;  // ascending

  /// The function of all keys: an id's bin, by search.
  struct function {
    std::int64_t const* boundaries;
    std::int64_t count;

    TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept {
      std::int64_t low = 0;
      for (auto left = count; left > 0;) {  // as many steps for any id
        auto const half = left - left / 2;
        low += boundaries[low + half - 1] <= id ? half : 0;
        left -= half;
      }
      return low;
    }
  };
  /// Owns the boundaries where a batch lies.
  template <execution Exec>
  struct placed {
    buffer<std::int64_t, Exec> boundaries;
    function of_key(transformed_key) const noexcept { return {boundaries.data(), boundaries.size()}; }
  };
  friend bool operator==(bin_ids const&, bin_ids const&) = default;
  void check(std::int64_t) const {
    for (std::size_t i = 1; i < boundaries.size(); ++i)
      if (boundaries[i] <= boundaries[i - 1])
        throw error(errc::invalid_argument, "bin_ids: boundaries do not ascend", {{"position", i}, {"boundary", boundaries[i]}});
  }
  template <execution Exec>
  placed<Exec> place(Exec const& exec) const {
    return {detail::placed_copy(exec, boundaries)};
  }
};

/// Maps an id to its place in a list, from 0; an id that is not in the list becomes `otherwise`.
struct map_ids {
  std::vector<std::int64_t> ids;  // each once
  std::int64_t otherwise = id_map::absent;

  /// The function of all keys on the host, by a hash table.
  struct host_function {
    id_map const* map;
    std::int64_t otherwise;

    std::int64_t operator()(std::int64_t id) const noexcept {
      auto const number = map->find(id);
      return number == id_map::absent ? otherwise : number;
    }
  };
  /// The function of all keys on a device, by search.
  struct function {
    std::int64_t const* sorted;
    std::int64_t const* numbers;
    std::int64_t count, otherwise;

    TESSERA_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t id) const noexcept {
      auto const at = bin_ids::function{sorted, count}(id)-1;
      return at >= 0 && sorted[at] == id ? numbers[at] : otherwise;
    }
  };

  /// Owns the list on the host.
  struct placed_on_host {
    std::unique_ptr<id_map> map;  // whose address stays
    std::int64_t otherwise;
    host_function of_key(transformed_key) const noexcept { return {map.get(), otherwise}; }
  };
  /// Owns the list, sorted, on a device.
  template <device_execution Exec>
  struct placed_on_device {
    buffer<std::int64_t, Exec> sorted, numbers;
    std::int64_t otherwise;
    function of_key(transformed_key) const noexcept { return {sorted.data(), numbers.data(), sorted.size(), otherwise}; }
  };

  placed_on_host place(host_exec const& exec) const {
    placed_on_host result{std::make_unique<id_map>(), otherwise};
    result.map->reserve(exec, static_cast<std::int64_t>(ids.size()));
    for (auto const id : ids)
      if (!result.map->insert(exec, id).second) refuse(id);
    return result;
  }
  template <device_execution Exec>
  placed_on_device<Exec> place(Exec const& exec) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    for (auto const id : ids) pairs.emplace_back(id, static_cast<std::int64_t>(pairs.size()));
    std::sort(pairs.begin(), pairs.end());
    std::vector<std::int64_t> sorted, numbers;
    for (auto const& [id, number] : pairs) {
      if (!sorted.empty() && sorted.back() == id) refuse(id);
      sorted.push_back(id);
      numbers.push_back(number);
    }
    return {to_device(exec, sorted), to_device(exec, numbers), otherwise};
  }

 private:
  [[noreturn]] static void refuse(std::int64_t id) { throw error(errc::invalid_argument, "map_ids: an id twice", {{"id", id}}); }
};

/// Cuts rows to at most `most` ids, the last or the first of each, as `truncate_rows` does: an operation on rows.
struct truncate_ids {
  std::int64_t most = 0;                        // at least 0
  std::vector<std::int64_t> most_per_key = {};  // (keys,): in place of that
  kept_values kept = kept_values::last;
  friend bool operator==(truncate_ids const&, truncate_ids const&) = default;

  void check(std::int64_t keys) const { detail::check_numbers("truncate_ids", "most", most, most_per_key, 0, keys); }
  /// Applies the cut. `numbers` (keys of the batch,) is the place of each key among those that the transform is applied to. A key with a
  /// negative number stays as it is.
  template <execution Exec, class T, class Offset>
  auto operator()(Exec const& exec, keyed_jagged_view<T, Offset> in, vector_view<std::int64_t const> numbers) const {
    std::vector<std::int64_t> limits;
    for (auto const number : numbers)
      limits.push_back(number < 0 ? std::numeric_limits<std::int64_t>::max() : detail::number_of(most, most_per_key, number));
    return truncate_rows(exec, in, limits, kept);
  }
};

static_assert(id_transform<hash_ids> && id_transform<modulo_ids> && id_transform<clip_ids> && id_transform<bin_ids> &&
              id_transform<map_ids>);

}  // namespace TESSERA_ABI
}  // namespace tessera
