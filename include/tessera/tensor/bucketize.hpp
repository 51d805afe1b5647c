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
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera::inline TESSERA_ABI {

/// Where an id goes, and what it is called there.
struct placed_id {
  std::int64_t bucket;  // in [0, buckets); negative: the id is refused
  std::int64_t id;
};

/// How ids are spread over buckets: `place(key, id, buckets)`, on host and device. Optionally `check(keys, buckets)`, which throws where the
/// policy does not fit.
template <class P>
concept bucket_policy = std::is_trivially_copyable_v<P> &&
    requires(P const& policy, std::int64_t key, std::int64_t id, std::int64_t buckets) {
  { policy.place(key, id, buckets) } -> std::same_as<placed_id>;
};

/// What becomes of ids that are negative or at least buckets * block size.
enum class outside_blocks {
  refuse,  ///< an error names the first
  spread,  ///< read as unsigned, id goes to bucket id % buckets as id / buckets, which no block holds: the lookup there decides
};

/// Blocks of neighbouring ids, as of row-wise shards: id goes to bucket id / block size as id % block size. With `spread`, as FBGEMM's
/// block_bucketize_sparse_features.
struct block_buckets {
  std::int64_t block_size = 0;                       // ids a bucket, at least 1; for every key, unless
  vector_view<std::int64_t const> block_sizes = {};  // (keys,): one a key
  outside_blocks outside = outside_blocks::refuse;

  void check(std::int64_t keys, std::int64_t) const {
    if (!block_sizes.empty() && block_sizes.size() != keys)
      throw error(errc::shape_mismatch, "block_buckets: one block size a key", {{"keys", keys}, {"block sizes", block_sizes.size()}});
    if (block_sizes.empty() && block_size < 1)
      throw error(errc::invalid_argument, "block_buckets: block size", {{"block size", block_size}});
    for (std::int64_t key = 0; key < block_sizes.size(); ++key)
      if (block_sizes[key] < 1)
        throw error(errc::invalid_argument, "block_buckets: block size", {{"key", key}, {"block size", block_sizes[key]}});
  }
  TESSERA_HOST_DEVICE constexpr placed_id place(std::int64_t key, std::int64_t id, std::int64_t buckets) const noexcept(!checks_indices) {
    auto const size = static_cast<std::uint64_t>(block_sizes.empty() ? block_size : block_sizes[key]);
    auto const bits = static_cast<std::uint64_t>(id);
    auto const count = static_cast<std::uint64_t>(buckets);
    if (auto const block = bits / size; block < count)
      return {static_cast<std::int64_t>(block), static_cast<std::int64_t>(bits - block * size)};
    if (outside == outside_blocks::refuse) return {-1, id};
    return {static_cast<std::int64_t>(bits % count), static_cast<std::int64_t>(bits / count)};
  }
};
static_assert(bucket_policy<block_buckets>);

/// Any int64 id, unchanged, to a bucket drawn by its mixed bits: the upper ones, as a hash table within the bucket goes by the lower.
struct hashed_buckets {
  TESSERA_HOST_DEVICE constexpr placed_id place(std::int64_t, std::int64_t id, std::int64_t buckets) const noexcept {
    auto const upper = mix_bits(static_cast<std::uint64_t>(id)) >> 32;
    return {static_cast<std::int64_t>(upper * static_cast<std::uint64_t>(buckets) >> 32), id};
  }
};
static_assert(bucket_policy<hashed_buckets>);

namespace detail {

template <class Exec>
struct bucketize_impl {
  static_assert(dependent_false<Exec>, "bucketize: no back end for this execution; for CUDA include <tessera/tensor/bucketize.cuh>");
};

inline constexpr std::int64_t bucketized_rows_per_piece = 1024;
inline constexpr std::int64_t bucketize_counters = 4096;

// One counter a bucket and row, for a few rows.
template <class Offset>
struct bucketize_tile {
  Offset* counters;          // of bucket 0
  std::int64_t stride;       // from bucket to bucket
  std::int64_t first, last;  // rows, over all keys

  Offset& at(std::int64_t bucket, std::int64_t row) const noexcept { return counters[bucket * stride + (row - first)]; }
};

template <>
struct bucketize_impl<host_exec> {
  template <class T, class Offset, class Policy>
  static keyed_jagged<std::remove_const_t<T>, Offset> run(host_exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets,
                                                          Policy const& policy, vector_view<std::int64_t> positions,
                                                          std::vector<std::string> const* names) {
    check_rows("bucketize", "in", in);
    if (!positions.empty() && positions.size() != in.size())
      throw error(errc::shape_mismatch, "bucketize: one position a value", {{"values", in.size()}, {"positions", positions.size()}});
    auto const rows = in.rows();
    buffer<Offset> lengths(exec, buckets * rows);  // row r of bucket b is row b * rows + r of the result
    for_each_tile(exec, rows, buckets, lengths, [&](bucketize_tile<Offset> tile) {
      for (std::int64_t b = 0; b < buckets; ++b) std::fill_n(&tile.at(b, tile.first), tile.last - tile.first, Offset{});
      for_each_row(in, tile, [&](std::int64_t key, std::int64_t row, std::int64_t begin, std::int64_t end) {
        for (auto p = begin; p < end; ++p) {
          auto const bucket = policy.place(key, static_cast<std::int64_t>(in.values[p]), buckets).bucket;
          if (bucket < 0 || bucket >= buckets)
            throw error(errc::out_of_range, "bucketize: no bucket for an id",
                        {{"key", key_label(names, key)},
                         {"row", row - (in.first_row[key] - in.first_row[0])},
                         {"position", p - begin},
                         {"id", in.values[p]},
                         {"buckets", buckets}});
          ++tile.at(bucket, row);
        }
      });
      for (std::int64_t b = 0; b < buckets; ++b)
        std::copy_n(&tile.at(b, tile.first), tile.last - tile.first, &lengths[b * rows + tile.first]);
    });
    buffer<std::int64_t> rows_per_key(exec, buckets * in.keys);
    for (std::int64_t i = 0; i < rows_per_key.size(); ++i) rows_per_key[i] = in.rows(i % in.keys);
    auto result = keyed_jagged<std::remove_const_t<T>, Offset>::with_lengths(exec, std::as_const(lengths).view(),
                                                                             std::as_const(rows_per_key).view(), in.weighted());
    auto const to = result.view();
    auto const weights = result.weights();
    auto const first_value = in.first_value();
    for_each_tile(exec, rows, buckets, lengths, [&](bucketize_tile<Offset> tile) {
      for (std::int64_t b = 0; b < buckets; ++b)
        std::copy_n(to.offsets + b * rows + tile.first, tile.last - tile.first, &tile.at(b, tile.first));
      for_each_row(in, tile, [&](std::int64_t key, std::int64_t row, std::int64_t begin, std::int64_t end) {
        for (auto p = begin; p < end; ++p) {
          auto const placed = policy.place(key, static_cast<std::int64_t>(in.values[p]), buckets);
          auto const at = tile.at(placed.bucket, row)++;
          to.values[at] = static_cast<std::remove_const_t<T>>(placed.id);
          if (in.weighted()) weights[at] = in.weights[p];
          if (!positions.empty()) positions[p - first_value] = at;
        }
      });
    });
    return result;
  }

 private:
  // In the matrix of all counters, (buckets, rows), those of one row may lie so far apart that all fall into one set of the cache. So a
  // tile has its own, side by side, unless there are too many buckets for it; then it has its part of `all`.
  template <class Offset, class F>
  static void for_each_tile(host_exec const& exec, std::int64_t rows, std::int64_t buckets, buffer<Offset>& all, F const& f) {
    auto const tile_rows = bucketize_counters / buckets;
    for_each_piece(exec, rows, bucketized_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      Offset counters[bucketize_counters];
      if (tile_rows == 0) return f(bucketize_tile<Offset>{all.data() + first, rows, first, last});
      for (; first < last; first += tile_rows) f(bucketize_tile<Offset>{counters, tile_rows, first, std::min(last, first + tile_rows)});
    });
  }

  // f(key, row, begin, end): the row's values are those from begin to end.
  template <class T, class Offset, class F>
  static void for_each_row(keyed_jagged_view<T, Offset> in, bucketize_tile<Offset> tile, F const& f) {
    auto const rows = in.flat();
    auto row = tile.first;
    for (auto key = key_of_row(in, row); row < tile.last; ++key)
      for (auto const end = std::min(tile.last, in.first_row[key + 1] - in.first_row[0]); row < end; ++row)
        f(key, row, rows.begin_of(row), rows.end_of(row));
  }
};

struct bucketize_fn {
  template <execution Exec, class T, class Offset, bucket_policy Policy>
  auto operator()(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy,
                  vector_view<std::int64_t> positions = {}) const {
    return run(exec, in, buckets, policy, positions, nullptr);
  }
  template <execution Exec, class T, class Offset, bucket_policy Policy>
  auto operator()(Exec const& exec, keyed_jagged<T, Offset> const& in, std::int64_t buckets, Policy const& policy,
                  vector_view<std::int64_t> positions = {}) const {
    return run(exec, in.view(), buckets, policy, positions, &in.keys());
  }

 private:
  template <class Exec, class T, class Offset, class Policy>
  static auto run(Exec const& exec, keyed_jagged_view<T, Offset> in, std::int64_t buckets, Policy const& policy,
                  vector_view<std::int64_t> positions, std::vector<std::string> const* names) {
    static_assert(std::is_integral_v<T>, "bucketize: ids are integers");
    if (buckets < 1 || buckets > std::numeric_limits<std::int32_t>::max())
      throw error(errc::invalid_argument, "bucketize: number of buckets", {{"buckets", buckets}});
    if constexpr (requires { policy.check(in.keys, buckets); }) policy.check(in.keys, buckets);
    return bucketize_impl<Exec>::run(exec, in, buckets, policy, positions, names);
  }
};

}  // namespace detail

/// Sends ids to shards: each row is cut into one row a bucket, in which the ids keep their order and their weights.
///
/// `bucketize(exec, keyed_jagged_view | keyed_jagged, buckets, policy, positions) -> keyed_jagged` of buckets * keys keys, unnamed: first
/// all keys of bucket 0, then of bucket 1, …, so bucket b is slice_keys(b * keys, keys). `positions` (values,), or none: where each value of
/// the input, from the view's first on, has gone among the result's values; what comes back in the result's order is put back by
/// out[i] = back[positions[i]]. The result's memory is `exec`'s. @throws tessera::error out_of_range naming key, row, position and id of the
/// first id for which the policy has no bucket; invalid_argument, shape_mismatch.
inline constexpr detail::bucketize_fn bucketize{};

}  // namespace tessera::inline TESSERA_ABI
