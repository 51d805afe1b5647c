// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/id_map.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Keeps each group's distinct rows: a batch becomes an IKJT. Source: RecD, Section 4.2.
///
/// Two samples share a row of a group where every key of the group has the same values and weights in both, bit for bit. Rows stand in the
/// order of their first sample. `batch` is a KJT with a row a sample in each key; the result is unnamed. `keys_per_group` (groups,) counts
/// the first keys, in order: `group_keys` orders named keys so. The keys behind the groups are copied. @post expand(result) == batch, bit
/// for bit.
///
/// A row is compared with the one before, and hashed only where they differ. Equal hashes are compared value by value, so a collision costs
/// time alone. On the host all threads share that work, except that one thread looks a group's hashes up, in order. Workspace: 48 bytes a
/// sample and group, 8 a row and key. On a device the call waits once, for the number of rows of each group. @throws tessera::error
/// shape_mismatch naming a key with other rows, invalid_argument for groups that do not fit the keys.
template <execution Exec, class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> deduplicate(Exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                       vector_view<std::int64_t const> keys_per_group,
                                                                       result_room room = {});

/// Keeps distinct rows under the batch's names.
template <execution Exec, class T, class Offset>
inverse_keyed_jagged<T, Offset, Exec> deduplicate(Exec const& exec, keyed_jagged<T, Offset, Exec> const& batch,
                                                  vector_view<std::int64_t const> keys_per_group, result_room room = {});

/// Keeps distinct rows of columns, straight from a reader. `columns` (keys,): views `jagged_view<T const>` of as many rows each, wherever
/// they lie.
template <class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset> deduplicate(host_exec const& exec, vector_view<jagged_view<T, Offset> const> columns,
                                                                 vector_view<std::int64_t const> keys_per_group, result_room room = {});

/// Keeps distinct rows of records. `rows` (samples, keys): each cell is a `vector_view<T const>`.
template <class T>
inverse_keyed_jagged<T, std::int64_t> deduplicate(host_exec const& exec, matrix_view<vector_view<T const> const> rows,
                                                  vector_view<std::int64_t const> keys_per_group, result_room room = {});

namespace detail {

/// Hashes bytes, several multiplications under way at once. Equal bytes have equal hashes; nobody relies on the contrary.
struct slice_hash {
  static std::uint64_t bytes(void const* data, std::size_t size, std::uint64_t seed) noexcept {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
    auto const* at = static_cast<unsigned char const*>(data);
    std::uint64_t lane[4] = {seed ^ size, seed + odd, ~seed, seed - odd};
    std::uint64_t word[4];
    for (; size >= sizeof(word); size -= sizeof(word), at += sizeof(word)) {
      std::memcpy(word, at, sizeof(word));
      for (int l = 0; l < 4; ++l) lane[l] = std::rotl((lane[l] ^ word[l]) * odd, 29);
    }
    for (int l = 0; size > 0; ++l) {
      auto const count = std::min<std::size_t>(size, 8);
      std::uint64_t rest = 0;
      std::memcpy(&rest, at, count);
      lane[l] = std::rotl((lane[l] ^ rest) * odd, 29);
      at += count;
      size -= count;
    }
    return mix_bits(mix_bits(lane[0] + std::rotl(lane[1], 17)) ^ (lane[2] + std::rotl(lane[3], 41)));
  }
};

/// Samples as one list of values a key, wherever each lies.
template <class T, class Offset>
struct column_slices {
  vector_view<jagged_view<T const, Offset> const> columns;  // (keys,)
  float const* const* weights = nullptr;                    // (keys,): of a column's values; or nullptr: unweighted
  std::int64_t samples = 0;

  std::int64_t keys() const noexcept { return columns.size(); }
  bool weighted() const noexcept { return weights != nullptr; }
  vector_view<T const> row(std::int64_t key, std::int64_t sample) const noexcept { return columns[key].row(sample); }
  float const* weights_of(std::int64_t key, std::int64_t sample) const noexcept { return weights[key] + columns[key].begin_of(sample); }
  /// How many values, from those of `sample` on, lie in a row.
  std::int64_t run(std::int64_t key, std::int64_t sample) const noexcept {
    return columns[key].end_of(samples - 1) - columns[key].begin_of(sample);
  }
};

template <class T>
struct row_slices {
  matrix_view<vector_view<T const> const> rows;  // (samples, keys)
  std::int64_t samples = 0;

  std::int64_t keys() const noexcept { return rows.columns(); }
  static constexpr bool weighted() noexcept { return false; }
  vector_view<T const> row(std::int64_t key, std::int64_t sample) const noexcept { return rows(sample, key); }
  static float const* weights_of(std::int64_t, std::int64_t) noexcept { return nullptr; }
  std::int64_t run(std::int64_t key, std::int64_t sample) const noexcept { return rows(sample, key).size(); }
};

struct deduplicate_tag {};

// `rows_of(key)`: how many rows a key has.
template <class RowsOf>
void check_deduplicated(std::int64_t keys, vector_view<std::int64_t const> keys_per_group, RowsOf const& rows_of, std::int64_t samples,
                        std::vector<std::string> const* names) {
  std::int64_t grouped = 0;
  for (std::int64_t g = 0; g < keys_per_group.size(); ++g) {
    if (keys_per_group[g] < 1 || keys_per_group[g] > keys - grouped)
      throw error(errc::invalid_argument, "deduplicate: groups are one key or more each",
                  {{"group", g}, {"keys", keys_per_group[g]}, {"keys before", grouped}, {"keys of all", keys}});
    grouped += keys_per_group[g];
  }
  for (std::int64_t key = 0; key < keys; ++key)
    if (rows_of(key) != samples)
      throw error(errc::shape_mismatch, "deduplicate: a row a sample in every key",
                  {{"key", key_label(names, key)}, {"rows", rows_of(key)}, {"samples", samples}});
}
template <class T, class Offset>
void check_deduplicated(keyed_jagged_view<T, Offset> batch, vector_view<std::int64_t const> keys_per_group,
                        std::vector<std::string> const* names) {
  check_deduplicated(
      batch.keys, keys_per_group, [&](std::int64_t key) { return batch.rows(key); }, batch.keys == 0 ? 0 : batch.rows(0), names);
}

template <>
struct back_end<deduplicate_tag, host_exec> {
  static constexpr std::int64_t samples_per_piece = 256;
  static constexpr std::int64_t rows_per_piece = 2048;

  template <class T, class Offset>
  static inverse_keyed_jagged<std::remove_const_t<T>, Offset> of_batch(host_exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                       vector_view<std::int64_t const> keys_per_group,
                                                                       std::vector<std::string> const* names, result_room room) {
    using value = std::remove_const_t<T>;
    check_rows("deduplicate", "batch", batch);
    check_deduplicated(batch, keys_per_group, names);
    buffer<jagged_view<value const, Offset>> columns(exec, batch.keys);
    buffer<float const*> weights(exec, batch.weighted() ? batch.keys : 0);
    for (std::int64_t key = 0; key < batch.keys; ++key) columns[key] = batch.key(key);
    std::fill(weights.begin(), weights.end(), batch.weights);
    column_slices<value, Offset> const slices{columns.view(), weights.empty() ? nullptr : weights.data(),
                                              batch.keys == 0 ? 0 : batch.rows(0)};
    return run<Offset, slice_hash>(exec, slices, keys_per_group, room);
  }

  /// `Hash`: as slice_hash; a bad one costs time alone.
  template <class Offset, class Hash, class Slices>
  static auto run(host_exec const& exec, Slices const& in, vector_view<std::int64_t const> keys_per_group, result_room room) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(in.row(0, 0).data())>>;
    auto const samples = in.samples, groups = keys_per_group.size();
    buffer<std::int64_t> inverses(exec, groups * samples), firsts(exec, groups * samples), rows(exec, groups);
    find_distinct<Hash>(exec, in, keys_per_group, inverses.view(), firsts.view(), rows.view());

    buffer<std::int64_t> rows_per_key(exec, in.keys()), group_of(exec, in.keys());
    std::int64_t key = 0;
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t k = 0; k < keys_per_group[g]; ++k, ++key) {
        rows_per_key[key] = rows[g];
        group_of[key] = g;
      }
    for (; key < in.keys(); ++key) {
      rows_per_key[key] = samples;
      group_of[key] = -1;
    }
    auto distinct = copy_distinct<T, Offset>(exec, in, firsts.view(), rows_per_key.view(), group_of.view(), room);
    return inverse_keyed_jagged<T, Offset>::from_parts(std::move(distinct), keys_per_group, std::move(inverses), samples);
  }

 private:
  static constexpr std::int64_t as_before = -1, to_be_found = -2;

  template <class Slices>
  static bool equal(Slices const& in, std::int64_t first_key, std::int64_t keys, std::int64_t a, std::int64_t b) noexcept {
    for (auto key = first_key; key < first_key + keys; ++key) {
      auto const one = in.row(key, a), other = in.row(key, b);
      if (one.size() != other.size()) return false;
      if (one.empty()) continue;
      if (std::memcmp(one.data(), other.data(), static_cast<std::size_t>(one.size()) * sizeof(*one.data())) != 0) return false;
      if (in.weighted() &&
          std::memcmp(in.weights_of(key, a), in.weights_of(key, b), static_cast<std::size_t>(one.size()) * sizeof(float)) != 0)
        return false;
    }
    return true;
  }

  template <class Hash, class Slices>
  static std::uint64_t hash(Slices const& in, std::int64_t first_key, std::int64_t keys, std::int64_t sample) noexcept {
    std::uint64_t sum = 0;
    for (auto key = first_key; key < first_key + keys; ++key) {
      auto const row = in.row(key, sample);
      sum = Hash::bytes(row.data(), static_cast<std::size_t>(row.size()) * sizeof(*row.data()), sum);
      if (in.weighted()) sum = Hash::bytes(in.weights_of(key, sample), static_cast<std::size_t>(row.size()) * sizeof(float), sum);
    }
    return sum;
  }

  // Of each group: inverses (groups * samples,), the sample in which each distinct row comes first (groups * samples,), and their number.
  // Samples of a session follow each other: most are settled by a look at the one before, and only the others are hashed.
  template <class Hash, class Slices>
  static void find_distinct(host_exec const& exec, Slices const& in, vector_view<std::int64_t const> keys_per_group,
                            vector_view<std::int64_t> inverses, vector_view<std::int64_t> firsts, vector_view<std::int64_t> rows) {
    auto const samples = in.samples, groups = keys_per_group.size();
    if (groups == 0) return;
    buffer<std::int64_t> first_key(exec, groups);
    for (std::int64_t g = 0, key = 0; g < groups; key += keys_per_group[g++]) first_key[g] = key;
    buffer<std::uint64_t> hashes(exec, groups * samples);
    auto const pieces = divide_up(samples, samples_per_piece);
    exec.run(groups * pieces, [&](std::int64_t piece) {
      auto const g = piece / pieces, first = piece % pieces * samples_per_piece;
      for (auto i = first; i < std::min(samples, first + samples_per_piece); ++i) {
        bool const again = i > 0 && equal(in, first_key[g], keys_per_group[g], i - 1, i);
        inverses[g * samples + i] = again ? as_before : to_be_found;
        if (!again) hashes[g * samples + i] = hash<Hash>(in, first_key[g], keys_per_group[g], i);
      }
    });
    auto const places = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * samples + 1)));
    buffer<std::int64_t> tables(exec, groups * places);
    exec.run(groups, [&](std::int64_t g) {
      auto const table = tables.view().slice(g * places, places);
      auto const inverse = inverses.slice(g * samples, samples), first = firsts.slice(g * samples, samples);
      auto const* const hash = hashes.data() + g * samples;
      std::fill(table.begin(), table.end(), std::int64_t{-1});
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < samples; ++i) {
        if (inverse[i] == as_before) {
          inverse[i] = inverse[i - 1];
          continue;
        }
        auto place = static_cast<std::int64_t>(hash[i] & static_cast<std::uint64_t>(places - 1));
        while (table[place] >= 0 &&
               !(hash[first[table[place]]] == hash[i] && equal(in, first_key[g], keys_per_group[g], first[table[place]], i)))
          place = (place + 1) & (places - 1);
        if (table[place] < 0) {
          first[found] = i;
          table[place] = found++;
        }
        inverse[i] = table[place];
      }
      rows[g] = found;
    });
  }

  template <class T, class Offset, class Slices>
  static keyed_jagged<T, Offset> copy_distinct(host_exec const& exec, Slices const& in, vector_view<std::int64_t const> firsts,
                                               vector_view<std::int64_t const> rows_per_key, vector_view<std::int64_t const> group_of,
                                               result_room room) {
    std::int64_t all = 0;
    for (auto const rows : rows_per_key) all += rows;
    auto const sample_of = [&](std::int64_t key, std::int64_t row) {
      return group_of[key] < 0 ? row : firsts[group_of[key] * in.samples + row];
    };
    buffer<Offset> lengths(exec, all);
    buffer<std::int64_t> first_row(exec, in.keys() + 1);
    first_row[0] = 0;
    for (std::int64_t key = 0; key < in.keys(); ++key) first_row[key + 1] = first_row[key] + rows_per_key[key];
    for_each_piece(exec, all, rows_per_piece, [&](std::int64_t row, std::int64_t last) {
      auto key = std::upper_bound(first_row.begin(), first_row.end(), row) - first_row.begin() - 1;
      for (; row < last; ++row) {
        while (row >= first_row[key + 1]) ++key;
        lengths[row] = static_cast<Offset>(in.row(key, sample_of(key, row - first_row[key])).size());
      }
    });
    auto result = keyed_jagged<T, Offset>::with_lengths(exec, lengths.view(), rows_per_key, in.weighted());
    check_room("deduplicate", result.room(), room);
    auto const to = result.view().flat();
    auto* const weights = result.weights().data();
    for_each_piece(exec, to.size(), copied_values_per_piece<T>(in.weighted()), [&](std::int64_t at, std::int64_t last) {
      auto row = std::upper_bound(to.offsets, to.offsets + to.rows, at) - to.offsets - 1;
      auto key = std::upper_bound(first_row.begin(), first_row.end(), row) - first_row.begin() - 1;
      while (at < last) {
        while (row >= first_row[key + 1]) ++key;
        auto const sample = sample_of(key, row - first_row[key]);
        auto const skipped = at - to.begin_of(row);
        // Rows without a group lie side by side, so they are copied so too.
        auto const here = group_of[key] < 0 ? in.run(key, sample) : to.length(row);
        auto const count = std::min(last - at, here - skipped);
        std::copy_n(in.row(key, sample).data() + skipped, count, to.values + at);
        if (in.weighted()) std::copy_n(in.weights_of(key, sample) + skipped, count, weights + at);
        at += count;
        while (at < last && to.end_of(row) <= at) ++row;
      }
    });
    return result;
  }
};

}  // namespace detail

template <execution Exec, class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> deduplicate(Exec const& exec, keyed_jagged_view<T, Offset> batch,
                                                                       vector_view<std::int64_t const> keys_per_group, result_room room) {
  return detail::back_end<detail::deduplicate_tag, Exec>::of_batch(exec, batch, keys_per_group, nullptr, room);
}

template <execution Exec, class T, class Offset>
inverse_keyed_jagged<T, Offset, Exec> deduplicate(Exec const& exec, keyed_jagged<T, Offset, Exec> const& batch,
                                                  vector_view<std::int64_t const> keys_per_group, result_room room) {
  return detail::back_end<detail::deduplicate_tag, Exec>::of_batch(exec, batch.view(), keys_per_group, &batch.keys(), room)
      .named(batch.keys());
}

template <class T, class Offset>
inverse_keyed_jagged<std::remove_const_t<T>, Offset> deduplicate(host_exec const& exec, vector_view<jagged_view<T, Offset> const> columns,
                                                                 vector_view<std::int64_t const> keys_per_group, result_room room) {
  static_assert(std::is_const_v<T>, "deduplicate: columns are views of what is not written: jagged_view<T const>");
  std::int64_t const samples = columns.empty() ? 0 : columns[0].rows;
  detail::check_deduplicated(
      columns.size(), keys_per_group, [&](std::int64_t key) { return columns[key].rows; }, samples, nullptr);
  for (auto const& column : columns) detail::check_rows("deduplicate", "column", column);
  detail::column_slices<std::remove_const_t<T>, Offset> const slices{columns, nullptr, samples};
  return detail::back_end<detail::deduplicate_tag, host_exec>::run<Offset, detail::slice_hash>(exec, slices, keys_per_group, room);
}

template <class T>
inverse_keyed_jagged<T, std::int64_t> deduplicate(host_exec const& exec, matrix_view<vector_view<T const> const> rows,
                                                  vector_view<std::int64_t const> keys_per_group, result_room room) {
  detail::check_deduplicated(
      rows.columns(), keys_per_group, [&](std::int64_t) { return rows.rows(); }, rows.rows(), nullptr);
  detail::row_slices<T> const slices{rows, rows.rows()};
  return detail::back_end<detail::deduplicate_tag, host_exec>::run<std::int64_t, detail::slice_hash>(exec, slices, keys_per_group, room);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
