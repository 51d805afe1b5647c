// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/radix_sort.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

// The result is the input in the order of a stable sort by bucket. So each value gets its bucket, values are sorted by the few bits that a
// bucket has, and a row of the result begins at the first of its bucket's values that stands in the row or behind it, found by search.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind no_bucket{
    errc::out_of_range, "bucketize: no bucket for an id", {"key", "row", "position", "id", "buckets", "id in the bucket"}};
inline constexpr fault_kind no_room_for_id{errc::out_of_range,
                                           "bucketize: what an id is called in its bucket does not fit its type",
                                           {"key", "row", "position", "id", "buckets", "id in the bucket"}};
inline constexpr fault_kind too_few_positions{errc::shape_mismatch, "bucketize: one position a value", {"values", "positions"}};

// Where an id goes, on a device: by its key's function, or by the policy itself.
template <class OfKey>
struct place_by_key {
  OfKey const* of_key;  // (keys,)
  TESSERA_HOST_DEVICE placed_id operator()(std::int64_t key, std::int64_t id) const { return of_key[key](id); }
};
template <class Policy>
struct place_by_policy {
  Policy policy;
  std::int64_t buckets;
  TESSERA_HOST_DEVICE placed_id operator()(std::int64_t key, std::int64_t id) const { return policy.place(key, id, buckets); }
};

/// Writes with how many values before it a key begins; says of the sum of all where there is too little room for it.
template <class Offset>
struct start_key {
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,), from 0
  std::int64_t keys, room, positions;
  std::int64_t* starts;  // (keys + 1,)
  fault_reporter too_many_for_room, too_many_for_positions;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t key) const {
    auto const before = static_cast<std::int64_t>(offsets[first_rows[key]]) - static_cast<std::int64_t>(offsets[0]);
    starts[key] = before;
    if (key < keys) return;
    if (before > room) too_many_for_room(block, 0, before, room);
    if (positions >= 0 && before > positions) too_many_for_positions(block, 0, before, positions);
  }
};

inline constexpr std::uint32_t in_no_bucket = ~std::uint32_t{0};  // sorts behind all that are buckets

// As a part of tiles over the keys: bucket and id there of each value, and its number.
template <class T, class Offset, class Place>
struct place_values {
  T const* values;
  Offset const* offsets;
  Place place;
  std::int64_t buckets;
  std::uint32_t* bucket;
  T* id;
  Offset* number;
  std::int64_t* first_wrong;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t key, std::int64_t, std::int64_t at, std::int64_t count) const {
    for (auto i = at; i < at + count; ++i) {
      auto const placed = place(key, static_cast<std::int64_t>(values[offsets[0] + i]));
      bool const right = has_bucket(placed, buckets) && static_cast<std::int64_t>(static_cast<T>(placed.id)) == placed.id;
      bucket[i] = right ? static_cast<std::uint32_t>(placed.bucket) : in_no_bucket;
      id[i] = static_cast<T>(placed.id);
      number[i] = static_cast<Offset>(i);
      if (!right) block.minimum(first_wrong, i);
    }
  }
};

// What there is room for behind the values.
template <class Offset>
struct place_nothing {
  std::int64_t const* values;
  std::uint32_t* bucket;
  Offset* number;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (i < *values) return;
    bucket[i] = in_no_bucket;
    number[i] = static_cast<Offset>(i);
  }
};

template <class T, class Offset, class Place>
struct report_wrong_id {
  place_values<T, Offset, Place> placing;
  std::int64_t const* key_starts;
  std::int64_t const* first_rows;
  std::int64_t keys, rows, values;
  fault_reporter none, unfit;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t) const {
    auto const wrong = *placing.first_wrong;
    if (wrong >= values) return;
    auto const* const offsets = placing.offsets;
    auto const at = static_cast<std::int64_t>(offsets[0]) + wrong;
    auto const key = range_of(key_starts, keys, wrong), row = range_of(offsets, rows, at);
    auto const id = static_cast<std::int64_t>(placing.values[at]);
    auto const placed = placing.place(key, id);
    auto const& report = has_bucket(placed, placing.buckets) ? unfit : none;
    report(block, wrong, key, row - first_rows[key], at - static_cast<std::int64_t>(offsets[row]), id, placing.buckets, placed.id);
  }
};

struct start_bucket {
  std::uint32_t const* sorted;
  std::int64_t values;
  std::int64_t* starts;

  TESSERA_DEVICE void operator()(std::int64_t bucket) const {
    starts[bucket] = count_below(sorted, values, static_cast<std::uint32_t>(bucket));
  }
};

template <class Offset>
struct start_bucket_row {
  Offset const* in;
  std::int64_t rows;
  std::int64_t buckets;
  std::int64_t const* bucket_starts;
  Offset const* sorted;
  Offset* out;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const bucket = rows == 0 ? buckets : i / rows;
    auto const begin = bucket_starts[bucket];
    auto const before = bucket == buckets ? std::int64_t{0}
                                          : count_below(sorted + begin, bucket_starts[bucket + 1] - begin,
                                                        static_cast<Offset>(in[i - bucket * rows] - in[0]));
    out[i] = static_cast<Offset>(begin + before);
  }
};

template <class T, class Offset>
struct move_sorted {
  Offset const* sorted;
  T const* ids;
  float const* in_weights;
  Offset const* in_offsets;
  std::int64_t const* count;  // of the values that have a bucket
  T* values;
  float* weights;           // or nullptr
  std::int64_t* positions;  // or nullptr
  std::int64_t position_count;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    if (i >= *count) return;
    auto const from = static_cast<std::int64_t>(sorted[i]);
    values[i] = ids[from];
    if (weights != nullptr) weights[i] = in_weights[in_offsets[0] + from];
    if (from < position_count) positions[from] = i;
  }
};

template <device_execution Exec>
struct back_end<bucketize_tag, Exec> {
  template <class T, class Offset, class Policy>
  static keyed_jagged<std::remove_const_t<T>, Offset, Exec> run(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets,
                                                                Policy const& policy, vector_view<std::int64_t> positions,
                                                                std::vector<std::string> const*, result_room requested) {
    check_buckets(in, buckets, policy);
    auto const bound = requested.most_values >= 0 ? requested.most_values : value_bound(exec, in.flat());
    auto const room = std::min(bound, static_cast<std::int64_t>(std::numeric_limits<Offset>::max()));
    auto const rows = in.rows();
    auto result =
        keyed_jagged<std::remove_const_t<T>, Offset, Exec>::with_room(exec, buckets * in.keys, buckets * rows, room, in.weighted());
    for (std::int64_t i = 0; i < buckets * in.keys; ++i)
      result.first_row()[i] = i / in.keys * rows + in.first_row[i % in.keys] - in.first_row[0];
    result.first_row()[buckets * in.keys] = buckets * rows;
    if (rows == 0) return exec.fill(result.offsets().data(), 0, sizeof(Offset)), std::move(result);

    auto const fill = [&](auto const& place) {
      fill_result(exec, keyed_jagged_view<std::remove_const_t<T> const, Offset>(in), buckets, place, positions, room, result);
    };
    if constexpr (requires { policy.of_key(std::int64_t{}, buckets); }) {
      std::vector<decltype(policy.of_key(std::int64_t{}, buckets))> of_keys;
      for (std::int64_t key = 0; key < in.keys; ++key) of_keys.push_back(policy.of_key(key, buckets));
      auto const device_numbers = to_device(exec, of_keys);
      fill(place_by_key<typename decltype(of_keys)::value_type>{device_numbers.data()});
    } else {
      fill(place_by_policy<Policy>{policy, buckets});
    }
    return result;
  }

 private:
  template <class T, class Offset, class Place>
  static void fill_result(Exec const& exec, keyed_jagged_view<T const, Offset> in, std::int64_t buckets, Place const& place,
                          vector_view<std::int64_t> positions, std::int64_t room, keyed_jagged<T, Offset, Exec>& result) {
    auto const flat = in.flat();
    auto const first_rows = to_device(exec, first_rows_of(in));
    buffer<std::int64_t, Exec> key_starts(exec, in.keys + 1), bucket_starts(exec, buckets + 1), first_wrong(exec, 1);
    buffer<std::uint32_t, Exec> bucket(exec, room);
    buffer<Offset, Exec> number(exec, room);
    buffer<T, Exec> id(exec, room);
    exec.fill(first_wrong.data(), 0x7F, sizeof(std::int64_t));

    launch_for_each(exec, in.keys + 1,
                    start_key<Offset>{flat.offsets, first_rows.data(), in.keys, room, positions.empty() ? -1 : positions.size(),
                                      key_starts.data(), exec.faults(past_room).of("bucketize", nullptr), exec.faults(too_few_positions)});
    place_values<T, Offset, Place> const placing{in.values,     flat.offsets, place,         buckets,
                                                 bucket.data(), id.data(),    number.data(), first_wrong.data()};
    launch_tiles<1>(exec, key_starts.data(), in.keys, room, placing);
    launch_for_each(exec, room, place_nothing<Offset>{key_starts.data() + in.keys, bucket.data(), number.data()});
    launch_for_each(exec, 1,
                    report_wrong_id<T, Offset, Place>{placing, key_starts.data(), first_rows.data(), in.keys, flat.rows, room,
                                                      exec.faults(no_bucket), exec.faults(no_room_for_id)});

    auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(buckets)));
    radix_sort_pairs(exec, bucket, number, {0, bits});
    launch_for_each(exec, buckets + 1, start_bucket{bucket.data(), room, bucket_starts.data()});
    launch_for_each(
        exec, buckets * flat.rows + 1,
        start_bucket_row<Offset>{flat.offsets, flat.rows, buckets, bucket_starts.data(), number.data(), result.offsets().data()});
    launch_for_each(exec, room,
                    move_sorted<T, Offset>{number.data(), id.data(), in.weights, flat.offsets, bucket_starts.data() + buckets,
                                           result.view().values, result.weights().data(), positions.data(), positions.size()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
