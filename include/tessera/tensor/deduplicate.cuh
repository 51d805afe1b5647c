// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/distinct_rows.cuh>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

// A group's rows meet in a table of open addressing by the hash of their values. Who finds a place taken compares value by value, and either
// lowers the number of the sample that stands there, or goes on; so the one that remains is the first, whoever came when.
//
// Bytes: each grouped value is read once to be hashed and, of a row that comes again, twice to be compared.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The bytes of a value as words, for bits to be compared and hashed.
template <class T>
struct value_words {
  static constexpr int count = static_cast<int>((sizeof(T) + 7) / 8);

  TESSERA_HOST_DEVICE static std::uint64_t word(T const& value, int i) noexcept {
    std::uint64_t result = 0;
    auto const* const bytes = reinterpret_cast<unsigned char const*>(&value) + 8 * i;
    constexpr auto rest = sizeof(T) % 8;
    if (rest != 0 && i + 1 == count) {
      __builtin_memcpy(&result, bytes, rest);
    } else {
      __builtin_memcpy(&result, bytes, 8);
    }
    return result;
  }
};

/// A word's share in the hash of a group's row: the shares are added up, in any order.
struct word_hash {
  TESSERA_HOST_DEVICE static constexpr std::uint64_t share(std::uint64_t word, std::uint64_t key, std::uint64_t position) noexcept {
    return mix_bits(word ^ (0x9E3779B97F4A7C15 * (key + 1) + 0xD1B54A32D192ED03 * (position + 1)));
  }
};

/// What a group's keys hold of each sample.
template <class T, class Offset>
struct group_rows {
  T const* values;
  float const* weights;  // or nullptr
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,)
  std::int64_t const* first_keys;  // (groups + 1,)
  std::int64_t samples;

  struct row {
    std::int64_t begin, length;
  };
  TESSERA_HOST_DEVICE row at(std::int64_t key, std::int64_t sample) const {
    auto const* const own = offsets + first_rows[key] + sample;
    auto const begin = static_cast<std::int64_t>(own[0]), length = static_cast<std::int64_t>(own[1]) - begin;
    return {begin, length < 0 ? 0 : length};  // a fault
  }
};

inline constexpr int distinct_lanes = 8;  // threads a row

template <class T, class Offset, class Hash>
struct hash_rows {
  static constexpr int threads = 256;
  static constexpr std::int64_t shared_bytes = threads * sizeof(std::uint64_t);
  group_rows<T, Offset> in;
  std::int64_t all;  // groups * samples
  std::uint64_t* hashes;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const lane = block.thread() % distinct_lanes;
    auto* const shares = block.template shared<std::uint64_t>() + (block.thread() - lane);
    for_each_unit(block, all, threads / distinct_lanes, block.thread() / distinct_lanes, [&](std::int64_t i) {
      block.sync_group(distinct_lanes);  // what stood there is read
      shares[lane] = own_share(i / in.samples, i % in.samples, lane);
      block.sync_group(distinct_lanes);
      if (lane != 0) return;
      std::uint64_t sum = 0;
      for (int l = 0; l < distinct_lanes; ++l) sum += shares[l];
      hashes[i] = sum;
    });
  }

 private:
  TESSERA_DEVICE std::uint64_t own_share(std::int64_t group, std::int64_t sample, int lane) const {
    using words = value_words<T>;
    std::uint64_t sum = 0;
    for (auto key = in.first_keys[group]; key < in.first_keys[group + 1]; ++key) {
      auto const number = static_cast<std::uint64_t>(key - in.first_keys[group]);
      auto const row = in.at(key, sample);
      for (std::int64_t p = lane; p < row.length; p += distinct_lanes) {
        for (int w = 0; w < words::count; ++w)
          sum += Hash::share(words::word(in.values[row.begin + p], w), number, static_cast<std::uint64_t>(words::count * p + w));
        if (in.weights != nullptr)
          sum += Hash::share(~value_words<float>::word(in.weights[row.begin + p], 0), number, static_cast<std::uint64_t>(p));
      }
    }
    return sum;
  }
};

inline constexpr std::int64_t no_sample_yet = -1;

template <class T, class Offset>
struct meet_rows {
  static constexpr int threads = 256;
  struct scratch {
    std::int64_t found;
    std::uint32_t differ[distinct_lanes];
  };
  static constexpr std::int64_t shared_bytes = threads / distinct_lanes * static_cast<std::int64_t>(sizeof(scratch));
  group_rows<T, Offset> in;
  std::int64_t all;
  std::uint64_t const* hashes;
  std::int64_t* table;  // (groups, places)
  std::int64_t places;  // a power of two
  std::int64_t* place_of;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const lane = block.thread() % distinct_lanes, within = block.thread() / distinct_lanes;
    auto& own = block.template shared<scratch>()[within];
    for_each_unit(block, all, threads / distinct_lanes, within, [&](std::int64_t i) {
      auto const group = i / in.samples, sample = i % in.samples;
      auto place = static_cast<std::int64_t>(hashes[i] & static_cast<std::uint64_t>(places - 1));
      for (;; place = (place + 1) & (places - 1)) {
        auto const found = stand(block, own, table + group * places + place, sample, lane);
        if (found == no_sample_yet) break;
        if (hashes[group * in.samples + found] != hashes[i] || differ(block, own, group, found, sample, lane)) continue;
        if (lane == 0) block.minimum(table + group * places + place, sample);
        break;
      }
      if (lane == 0) place_of[i] = group * places + place;
    });
  }

 private:
  // Who stands at a place, seen by all lanes alike; where nobody does, the sample now.
  template <class Block>
  TESSERA_DEVICE static std::int64_t stand(Block& block, scratch& own, std::int64_t* place, std::int64_t sample, int lane) {
    block.sync_group(distinct_lanes);  // what stood there is read
    if (lane == 0) {
      auto found = block.load(place);
      if (found == no_sample_yet) found = block.compare_exchange(place, no_sample_yet, sample);
      own.found = found;
    }
    block.sync_group(distinct_lanes);
    return own.found;
  }

  template <class Block>
  TESSERA_DEVICE bool differ(Block& block, scratch& own, std::int64_t group, std::int64_t a, std::int64_t b, int lane) const {
    for (auto key = in.first_keys[group]; key < in.first_keys[group + 1]; ++key) {
      auto const one = in.at(key, a), other = in.at(key, b);
      if (one.length != other.length) return true;
      std::uint32_t differs = 0;
      for (std::int64_t p = lane; p < one.length && differs == 0; p += distinct_lanes)
        differs = values_differ(one.begin + p, other.begin + p);
      if (largest_of_group(block, own.differ, differs, distinct_lanes, lane) != 0) return true;
    }
    return false;
  }
  TESSERA_DEVICE std::uint32_t values_differ(std::int64_t a, std::int64_t b) const {
    using words = value_words<T>;
    for (int w = 0; w < words::count; ++w)
      if (words::word(in.values[a], w) != words::word(in.values[b], w)) return 1;
    return in.weights != nullptr && value_words<float>::word(in.weights[a], 0) != value_words<float>::word(in.weights[b], 0) ? 1 : 0;
  }
};

/// Who stands at a sample's place in the end: the first.
struct take_leaders {
  std::int64_t const* table;
  std::int64_t* leaders;  // places, first

  TESSERA_DEVICE void operator()(std::int64_t i) const { leaders[i] = table[leaders[i]]; }
};

template <device_execution Exec>
struct back_end<deduplicate_tag, Exec> {
  template <class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> of_batch(Exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                             vector_view<std::int64_t const> keys_per_group,
                                                                             std::vector<std::string> const* names, result_room room) {
    check_deduplicated(batch, keys_per_group, names);
    return run(exec, batch, keys_per_group, room);
  }

  /// `Hash`: as word_hash; a bad one costs time alone.
  template <class Hash = word_hash, class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in,
                                                                        vector_view<std::int64_t const> keys_per_group, result_room room) {
    using value = std::remove_const_t<T>;
    auto const samples = in.keys == 0 ? 0 : in.rows(0), groups = keys_per_group.size(), all = groups * samples;
    std::vector<std::int64_t> first_keys{0};
    for (auto const keys : keys_per_group) first_keys.push_back(first_keys.back() + keys);
    buffer<std::int64_t, Exec> leaders(exec, all);
    if (all > 0) {
      auto const device_first_keys = to_device(exec, first_keys);
      auto const first_rows = to_device(exec, first_rows_of(in));
      group_rows<value, Offset> const rows{in.values, in.weights, in.flat().offsets, first_rows.data(), device_first_keys.data(), samples};
      auto const places = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * samples)));
      buffer<std::uint64_t, Exec> hashes(exec, all);
      buffer<std::int64_t, Exec> table(exec, groups * places);
      exec.fill(table.data(), 0xFF, static_cast<std::size_t>(table.size()) * sizeof(std::int64_t));
      using hashing = hash_rows<value, Offset, Hash>;
      using meeting = meet_rows<value, Offset>;
      auto const blocks = blocks_for(all, hashing::threads / distinct_lanes);
      exec.launch({.blocks = blocks, .shared_bytes = hashing::shared_bytes}, hashing{rows, all, hashes.data()});
      exec.launch({.blocks = blocks, .shared_bytes = meeting::shared_bytes},
                  meeting{rows, all, hashes.data(), table.data(), places, leaders.data()});
      launch_for_each(exec, all, take_leaders{table.data(), leaders.data()});
    }
    return distinct_batch(exec, "deduplicate", in, samples, keys_per_group, sample_sources{leaders.data(), nullptr, nullptr},
                          fault_reporter(), room);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
