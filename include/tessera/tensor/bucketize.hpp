// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/fixed_divisor.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/streamed_copy.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Where an id goes, and what it is called there.
struct placed_id {
  std::int64_t bucket;  // in [0, buckets); negative: the id is refused
  std::int64_t id;
};

/// A policy spreads ids over buckets: `place(key, id, buckets)` says where an id goes, on host and device. Plain data.
///
/// A policy may have `check(keys, buckets)`, which throws where the policy does not fit. A policy may have `of_key(key, buckets)`, which
/// returns a function of the id alone. That function places as `place` does, but faster, and goes to the device in place of the policy. The
/// host calls both.
template <class P>
concept bucket_policy = std::is_trivially_copyable_v<P> &&
    requires(P const& policy, std::int64_t key, std::int64_t id, std::int64_t buckets) {
  { policy.place(key, id, buckets) } -> std::same_as<placed_id>;
};

/// Sends ids to shards: each row is cut into one row a bucket, in which the ids keep their order and their weights.
///
/// The result has buckets * keys keys, unnamed: first all keys of bucket 0, then those of bucket 1, and so on. Bucket b is `slice_keys(b *
/// keys, keys)` of the result. The result's memory is `exec`'s. On a device the result has the input's room. The call waits for the number
/// of values where neither the input nor `room` gives one.
///
/// `positions` (values,), or none: positions[i] becomes the place of the input's value i, counted from the view's first, among the result's
/// values. On a device `positions` may be longer. @post result.values[positions[i]] is the placed id of value i; out[i] =
/// back[positions[i]] puts back what comes in the result's order.
///
/// @throws tessera::error invalid_argument, shape_mismatch. out_of_range naming key, row, position and id of the first id without a bucket.
/// The same for a placed id that T cannot hold. On a device errors number the keys.
template <execution Exec, class T, class Offset, bucket_policy Policy>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> bucketize(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets,
                                                             Policy const& policy, vector_view<std::int64_t> positions = {},
                                                             result_room room = {});
/// Sends the ids of an owner to shards; errors name its keys.
template <execution Exec, class T, class Offset, bucket_policy Policy>
keyed_jagged<T, Offset, Exec> bucketize(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t buckets,
                                        Policy const& policy, vector_view<std::int64_t> positions = {}, result_room room = {});

/// What becomes of ids that are negative or at least buckets * block size.
enum class outside_blocks {
  refuse,  ///< an error names the first
  /// Read as an unsigned 64-bit integer, id goes to bucket id % buckets as id / buckets. No block holds that id: the lookup there decides.
  /// Where the type of the ids cannot hold it, as with negative 32-bit ids, an error names the first.
  spread,
};

/// Blocks of neighbouring ids, as of row-wise shards: id goes to bucket id / block size as id % block size. With `spread` the policy is
/// that of FBGEMM's block_bucketize_sparse_features.
struct block_buckets {
  std::int64_t block_size = 0;                       // ids a bucket, at least 1
  vector_view<std::int64_t const> block_sizes = {};  // (keys,): one a key in place of that
  outside_blocks outside = outside_blocks::refuse;

  void check(std::int64_t keys, std::int64_t) const {
    detail::check_choice("block_buckets", "outside", outside, outside_blocks::spread);
    if (!block_sizes.empty() && block_sizes.size() != keys)
      throw error(errc::shape_mismatch, "block_buckets: one block size a key", {{"keys", keys}, {"block sizes", block_sizes.size()}});
    if (block_sizes.empty() && block_size < 1)
      throw error(errc::invalid_argument, "block_buckets: block size", {{"block size", block_size}});
    for (std::int64_t key = 0; key < block_sizes.size(); ++key)
      if (block_sizes[key] < 1)
        throw error(errc::invalid_argument, "block_buckets: block size", {{"key", key}, {"block size", block_sizes[key]}});
  }
  TESSERA_HOST_DEVICE constexpr placed_id place(std::int64_t key, std::int64_t id, std::int64_t buckets) const noexcept(!checks_indices) {
    auto const size = size_of(key);
    auto const bits = static_cast<std::uint64_t>(id);
    return placed(bits, bits / size, size, end_of(size, buckets), static_cast<std::uint64_t>(buckets), outside);
  }

  /// `place` for the ids of one key, without a division.
  struct blocks_of_key {
    std::uint64_t size, end, buckets;
    fixed_divisor divisor;
    outside_blocks outside;

    TESSERA_HOST_DEVICE constexpr placed_id operator()(std::int64_t id) const noexcept {
      auto const bits = static_cast<std::uint64_t>(id);
      return placed(bits, divisor.quotient(bits), size, end, buckets, outside);
    }
  };
  blocks_of_key of_key(std::int64_t key, std::int64_t buckets) const noexcept(!checks_indices) {
    auto const size = size_of(key);
    return {size, end_of(size, buckets), static_cast<std::uint64_t>(buckets), fixed_divisor(size), outside};
  }

 private:
  TESSERA_HOST_DEVICE constexpr std::uint64_t size_of(std::int64_t key) const noexcept(!checks_indices) {
    return static_cast<std::uint64_t>(block_sizes.empty() ? block_size : block_sizes[key]);
  }
  // Of the ids that blocks hold: none is negative.
  TESSERA_HOST_DEVICE static constexpr std::uint64_t end_of(std::uint64_t size, std::int64_t buckets) noexcept {
    constexpr auto most = std::uint64_t{1} << 63;
    auto const count = static_cast<std::uint64_t>(buckets);
    return size > most / count ? most : size * count;
  }
  TESSERA_HOST_DEVICE static constexpr placed_id placed(std::uint64_t bits, std::uint64_t block, std::uint64_t size, std::uint64_t end,
                                                        std::uint64_t buckets, outside_blocks outside) noexcept {
    if (bits < end) return {static_cast<std::int64_t>(block), static_cast<std::int64_t>(bits - block * size)};
    if (outside == outside_blocks::refuse) return {-1, static_cast<std::int64_t>(bits)};
    return {static_cast<std::int64_t>(bits % buckets), static_cast<std::int64_t>(bits / buckets)};
  }
};
static_assert(bucket_policy<block_buckets>);

/// Sends any int64 id, unchanged, to a bucket. The upper bits of the id's mix draw the bucket; a hash table within the bucket goes by the
/// lower bits.
struct hashed_buckets {
  TESSERA_HOST_DEVICE constexpr placed_id place(std::int64_t, std::int64_t id, std::int64_t buckets) const noexcept {
    auto const upper = mix_bits(static_cast<std::uint64_t>(id)) >> 32;
    return {static_cast<std::int64_t>(upper * static_cast<std::uint64_t>(buckets) >> 32), id};
  }
};
static_assert(bucket_policy<hashed_buckets>);

namespace detail {

struct bucketize_tag {};

inline constexpr std::int64_t bucketized_rows_per_piece = 1024;
inline constexpr std::int64_t bucketize_offsets = 4096;
// Bytes: a page, at whose end the processor stops to read ahead by itself, and what a bucket's next row or two may write.
inline constexpr std::uintptr_t bucketize_read_ahead = 4096, bucketize_written_ahead = 256;

TESSERA_HOST_DEVICE constexpr bool has_bucket(placed_id placed, std::int64_t buckets) noexcept {
  return static_cast<std::uint64_t>(placed.bucket) < static_cast<std::uint64_t>(buckets);
}

template <class T, class Offset, class Policy>
void check_buckets(keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy) {
  static_assert(std::is_integral_v<T>, "bucketize: ids are integers");
  if (buckets < 1 || buckets > std::numeric_limits<std::int32_t>::max())
    throw error(errc::invalid_argument, "bucketize: number of buckets", {{"buckets", buckets}});
  if (!is_countable(buckets, in.keys) || !is_countable(buckets, in.rows()))
    throw error(errc::invalid_argument, "bucketize: more rows than can be counted",
                {{"buckets", buckets}, {"keys", in.keys}, {"rows", in.rows()}});
  if constexpr (requires { policy.check(in.keys, buckets); }) policy.check(in.keys, buckets);
}

template <>
struct back_end<bucketize_tag, host_exec> {
  // A bucket's rows follow each other in the result. So a piece of rows writes its ids of a bucket side by side, from where those of the
  // pieces before it end; where a row of the bucket begins is where the next id goes when the piece comes to that row.
  template <class T, class Offset, class Policy>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets,
                                                          Policy const& policy, vector_view<std::int64_t> positions,
                                                          std::vector<std::string> const* names, result_room room) {
    check_rows("bucketize", "in", in);
    check_buckets(in, buckets, policy);
    check_room("bucketize", in.size(), room);
    if (!positions.empty() && positions.size() != in.size())
      throw error(errc::shape_mismatch, "bucketize: one position a value", {{"values", in.size()}, {"positions", positions.size()}});
    auto const rows = in.rows();
    buffer<Offset> next(exec, divide_up(rows, bucketized_rows_per_piece) * buckets);  // (pieces, buckets)
    for_each_piece(exec, rows, bucketized_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      auto* const counts = next.data() + first / bucketized_rows_per_piece * buckets;
      std::fill_n(counts, buckets, Offset{});
      count(in, buckets, policy, first, last, names, counts);
    });
    Offset sum = 0;
    for (std::int64_t b = 0; b < buckets; ++b)
      for (auto i = b; i < next.size(); i += buckets) sum = static_cast<Offset>(sum + std::exchange(next[i], sum));

    auto result =
        keyed_jagged<std::remove_const_t<T>, Offset>::with_room(exec, buckets * in.keys, buckets * rows, in.size(), in.weighted());
    for (std::int64_t i = 0; i < buckets * in.keys; ++i)
      result.first_row()[i] = i / in.keys * rows + in.first_row[i % in.keys] - in.first_row[0];
    result.first_row()[buckets * in.keys] = buckets * rows;
    result.offsets()[buckets * rows] = sum;
    outputs<std::remove_const_t<T>, Offset> const out{result.view().values, result.weights().data(), positions.data(),
                                                      result.offsets().data()};
    for_each_piece(exec, rows, bucketized_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      place(in, buckets, policy, first, last, next.data() + first / bucketized_rows_per_piece * buckets, out);
    });
    return result;
  }

 private:
  template <class T, class Offset>
  struct outputs {
    T* values;
    float* weights;           // or nullptr
    std::int64_t* positions;  // or nullptr
    Offset* offsets;
  };

  template <class T, class Offset, class Policy>
  static void count(keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy, std::int64_t first, std::int64_t last,
                    std::vector<std::string> const* names, Offset* counts) {
    auto const rows = in.flat();
    for_each_key_part(in, first, last, [&](std::int64_t key, std::int64_t first_row, std::int64_t last_row) {
      auto const begin = rows.begin_of(first_row), end = rows.begin_of(last_row);
      auto const place_id = placing(policy, key, buckets);
      if (auto const p = begin + count_values(in.values + begin, end - begin, buckets, place_id, counts); p < end) {
        auto const placed = place_id(static_cast<std::int64_t>(in.values[p]));
        auto const row = std::upper_bound(rows.offsets + first_row, rows.offsets + last_row, p) - rows.offsets - 1;
        throw error(errc::out_of_range,
                    has_bucket(placed, buckets) ? "bucketize: what an id is called in its bucket does not fit its type"
                                                : "bucketize: no bucket for an id",
                    {{"key", key_label(names, key)},
                     {"row", row - (in.first_row[key] - in.first_row[0])},
                     {"position", p - rows.begin_of(row)},
                     {"id", in.values[p]},
                     {"buckets", buckets},
                     {"id in the bucket", placed.id}});
      }
    });
  }

  // How many values stand before the first without a place. By value, as in `place_rows_of_key`: what the loop needs stays in registers.
  template <class T, class Offset, class Place>
  static std::int64_t count_values(T* values, std::int64_t size, std::int64_t buckets, Place place_id, Offset* counts) {
    auto const counted = [&](std::int64_t i) {
      auto const placed = place_id(static_cast<std::int64_t>(values[i]));
      if (!has_bucket(placed, buckets) || static_cast<std::int64_t>(static_cast<std::remove_const_t<T>>(placed.id)) != placed.id)
        return false;
      ++counts[placed.bucket];
      return true;
    };
    std::int64_t i = 0;
    for (constexpr std::int64_t line = cache_line_bytes / sizeof(T); i + line <= size; i += line) {
      __builtin_prefetch(ahead(values + i, bucketize_read_ahead));
      for (std::int64_t k = 0; k < line; ++k)
        if (!counted(i + k)) return i + k;
    }
    while (i < size && counted(i)) ++i;
    return i;
  }

  // The offsets of one row lie so far apart, one a bucket, that all may fall into one set of the cache. So those of some rows gather side
  // by side first, unless there are too many buckets for it.
  template <class T, class Offset, class Policy>
  static void place(keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy, std::int64_t first, std::int64_t last,
                    Offset* next, outputs<std::remove_const_t<T>, Offset> const& out) {
    auto const rows = in.rows();
    Offset gathered[bucketize_offsets];
    auto const gathered_rows = bucketize_offsets / buckets;
    if (gathered_rows == 0) return place_rows(in, buckets, policy, first, last, next, out, out.offsets + first, rows);
    for (; first < last; first += gathered_rows) {
      auto const end = std::min(last, first + gathered_rows);
      place_rows(in, buckets, policy, first, end, next, out, gathered, gathered_rows);
      for (std::int64_t b = 0; b < buckets; ++b) std::copy_n(gathered + b * gathered_rows, end - first, out.offsets + b * rows + first);
    }
  }

  // `offsets`: of bucket 0 and the first row; `stride` further on, those of the next bucket.
  template <class T, class Offset, class Policy>
  static void place_rows(keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy, std::int64_t first, std::int64_t last,
                         Offset* next, outputs<std::remove_const_t<T>, Offset> const& out, Offset* offsets, std::int64_t stride) {
    for_each_key_part(in, first, last, [&](std::int64_t key, std::int64_t first_row, std::int64_t last_row) {
      auto const place_id = placing(policy, key, buckets);
      if (in.weighted() || out.positions != nullptr)
        place_rows_of_key<true>(in, buckets, place_id, first_row, last_row, next, out, offsets + (first_row - first), stride);
      else
        place_rows_of_key<false>(in, buckets, place_id, first_row, last_row, next, out, offsets + (first_row - first), stride);
    });
  }

  template <bool MoreThanValues, class T, class Offset, class Place>
  static void place_rows_of_key(keyed_jagged_view<T, Offset> in, std::int64_t buckets, Place place_id, std::int64_t first,
                                std::int64_t last, Offset* next, outputs<std::remove_const_t<T>, Offset> out, Offset* offsets,
                                std::int64_t stride) {
    auto const rows = in.flat();
    auto const first_value = in.first_value();
    constexpr std::int64_t rows_of_line = cache_line_bytes / sizeof(Offset);  // each asks for the line of some of the buckets
    for (auto row = first; row < last; ++row) {
      for (std::int64_t b = 0; b < buckets; ++b) {
        offsets[b * stride + (row - first)] = next[b];
        __builtin_prefetch(ahead(out.values + next[b], bucketize_written_ahead), 1);
      }
      for (auto b = row % rows_of_line; b < buckets; b += rows_of_line) __builtin_prefetch(out.offsets + b * rows.rows + row, 1);
      for (auto p = rows.begin_of(row), end = rows.end_of(row); p < end; ++p) {
        auto const placed = place_id(static_cast<std::int64_t>(in.values[p]));
        auto const at = next[placed.bucket]++;
        out.values[at] = static_cast<std::remove_const_t<T>>(placed.id);
        if constexpr (MoreThanValues) {
          if (in.weighted()) out.weights[at] = in.weights[p];
          if (out.positions != nullptr) out.positions[p - first_value] = at;
        }
      }
    }
  }

  // What lies so many bytes further on, which may be past the end: only to be prefetched.
  static void const* ahead(void const* p, std::uintptr_t bytes) noexcept {
    return reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(p) + bytes);
  }

  // f(key, first_row, last_row) for the keys of rows [first, last), all counted over all keys.
  template <class T, class Offset, class F>
  static void for_each_key_part(keyed_jagged_view<T, Offset> in, std::int64_t first, std::int64_t last, F const& f) {
    for (auto key = key_of_row(in, first); first < last; ++key) {
      auto const end = std::min(last, in.first_row[key + 1] - in.first_row[0]);
      if (first < end) f(key, first, end);
      first = end;
    }
  }

  template <class Policy>
  static auto placing(Policy const& policy, std::int64_t key, std::int64_t buckets) {
    if constexpr (requires { policy.of_key(key, buckets); })
      return policy.of_key(key, buckets);
    else
      return [policy, key, buckets](std::int64_t id) { return policy.place(key, id, buckets); };
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset, bucket_policy Policy>
keyed_jagged<std::remove_const_t<T>, Offset, Exec> bucketize(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets,
                                                             Policy const& policy, vector_view<std::int64_t> positions, result_room room) {
  return detail::back_end<detail::bucketize_tag, Exec>::run(exec, in, buckets, policy, positions, nullptr, room);
}

template <execution Exec, class T, class Offset, bucket_policy Policy>
keyed_jagged<T, Offset, Exec> bucketize(Exec const& exec, keyed_jagged<T, Offset, Exec> const& in, std::int64_t buckets,
                                        Policy const& policy, vector_view<std::int64_t> positions, result_room room) {
  return detail::back_end<detail::bucketize_tag, Exec>::run(exec, in.view(), buckets, policy, positions, &in.keys(), room);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
