// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/row_copies.cuh>

// From "which samples have one row" to an IKJT, in the order of the rows' first samples. The host waits once: for how many rows each group
// keeps, and how many values they have.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Of each group and sample of the result, (groups, samples): `leaders`, the first sample with the same row; `rows`, which row of the input
/// they take, or a negative number: one of no values. `ungrouped` (samples,): the row taken in keys without a group. nullptr: row i.
struct sample_sources {
  std::int64_t const* leaders;
  std::int64_t const* rows;
  std::int64_t const* ungrouped;
};

struct flag_leaders {  // unproven
  std::int64_t const* leaders;
  std::int64_t samples, all;
  std::uint8_t* flags;  // (all + 1,)

  TESSERA_DEVICE void operator()(std::int64_t i) const { flags[i] = i < all && leaders[i] == i % samples; }
};

struct number_rows {  // unproven
  std::int64_t const* leaders;
  std::int64_t const* before;  // how many rows begin before a group and sample
  std::int64_t samples;
  std::int64_t* inverses;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const first = i - i % samples;
    inverses[i] = before[first + leaders[i]] - before[first];
  }
};

/// Where a key's sample takes its row from.
template <class Offset>
struct source_rows {
  Offset const* offsets;
  std::int64_t const* first_rows;  // (keys + 1,)
  std::int64_t const* group_of;    // (keys,), negative: none
  std::int64_t samples;
  sample_sources sources;

  /// Whether the result has a row for it.
  TESSERA_HOST_DEVICE bool is_kept(std::int64_t key, std::int64_t sample) const {
    return group_of[key] < 0 || sources.leaders[group_of[key] * samples + sample] == sample;
  }
  TESSERA_HOST_DEVICE std::int64_t row(std::int64_t key, std::int64_t sample) const {
    if (group_of[key] < 0) return sources.ungrouped == nullptr ? sample : sources.ungrouped[sample];
    return sources.rows == nullptr ? sample : sources.rows[group_of[key] * samples + sample];
  }
  TESSERA_HOST_DEVICE bool has(std::int64_t key, std::int64_t row) const { return row >= 0 && row < first_rows[key + 1] - first_rows[key]; }
  TESSERA_HOST_DEVICE Offset begin(std::int64_t key, std::int64_t row) const { return offsets[first_rows[key] + row]; }
  TESSERA_HOST_DEVICE std::int64_t length(std::int64_t key, std::int64_t row) const {
    return static_cast<std::int64_t>(offsets[first_rows[key] + row + 1]) - static_cast<std::int64_t>(begin(key, row));
  }
};

template <class Offset>
struct measure_kept {  // unproven
  source_rows<Offset> from;
  std::int64_t all;       // keys * samples
  std::int64_t* lengths;  // (all + 1,)

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    std::int64_t length = 0;
    if (i < all) {
      auto const key = i / from.samples, sample = i % from.samples;
      if (auto const row = from.row(key, sample); from.is_kept(key, sample) && from.has(key, row)) length = from.length(key, row);
    }
    lengths[i] = length < 0 ? 0 : length;  // a fault
  }
};

/// The rows of each group, then the values of all.
struct sum_up_kept {  // unproven
  std::int64_t const* before;
  std::int64_t const* values;  // or nullptr
  std::int64_t samples, groups;
  std::int64_t* out;  // (groups + 1,)

  TESSERA_DEVICE void operator()(std::int64_t group) const {
    if (group < groups)
      out[group] = before[(group + 1) * samples] - before[group * samples];
    else
      out[group] = values == nullptr ? -1 : *values;
  }
};

template <class Offset, class Write>
struct write_kept {  // unproven
  source_rows<Offset> from;
  std::int64_t const* inverses;
  std::int64_t const* result_rows;  // (keys + 1,)
  Write write;
  fault_reporter missing;  // of keys without a group

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const key = i / from.samples, sample = i % from.samples;
    if (!from.is_kept(key, sample)) return;
    auto const group = from.group_of[key], row = from.row(key, sample);
    auto const to = result_rows[key] + (group < 0 ? sample : inverses[group * from.samples + sample]);
    if (from.has(key, row)) return write(block, to, from.begin(key, row), from.length(key, row));
    if (group < 0) missing(block, i, key, sample, row, from.first_rows[key + 1] - from.first_rows[key]);
    write(block, to, Offset{}, 0);
  }
};

/// The IKJT of these sources, of which `keys_per_group` are the host's. `missing`: what is wrong with an ungrouped key's row that is not there.
template <class T, class Offset, device_execution Exec>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> distinct_batch(Exec const& exec, char const* call,
                                                                          keyed_jagged_view<T, Offset> in, std::int64_t samples,
                                                                          vector_view<std::int64_t const> keys_per_group,
                                                                          sample_sources const& sources, fault_reporter missing,
                                                                          result_room told) {
  auto const groups = keys_per_group.size(), all = groups * samples;
  std::vector<std::int64_t> group_of;
  for (std::int64_t g = 0; g < groups; ++g) group_of.insert(group_of.end(), static_cast<std::size_t>(keys_per_group[g]), g);
  group_of.resize(static_cast<std::size_t>(in.keys), -1);
  auto const groups_there = to_device(exec, group_of);
  auto const first_rows = to_device(exec, first_rows_of(in));
  source_rows<Offset> const from{in.flat().offsets, first_rows.data(), groups_there.data(), samples, sources};

  buffer<std::int64_t, Exec> inverses(exec, all), kept(exec, groups + 1);
  {
    buffer<std::uint8_t, Exec> flags(exec, all + 1);
    buffer<std::int64_t, Exec> before(exec, all + 1), sums(exec, told.most_values < 0 ? in.keys * samples + 1 : 0);
    launch_for_each(exec, all + 1, flag_leaders{sources.leaders, samples, all, flags.data()});
    back_end<exclusive_scan_tag, Exec>::run(exec, vector_view<std::uint8_t const>{flags.data(), all + 1}, before.view(), std::int64_t{0});
    launch_for_each(exec, all, number_rows{sources.leaders, before.data(), samples, inverses.data()});
    if (!sums.empty()) {
      buffer<std::int64_t, Exec> lengths(exec, sums.size());
      launch_for_each(exec, sums.size(), measure_kept<Offset>{from, sums.size() - 1, lengths.data()});
      back_end<exclusive_scan_tag, Exec>::run(exec, std::as_const(lengths).view(), sums.view(), std::int64_t{0});
    }
    launch_for_each(exec, groups + 1,
                    sum_up_kept{before.data(), sums.empty() ? nullptr : sums.data() + sums.size() - 1, samples, groups, kept.data()});
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups) + 1, -1);
  if (groups > 0 || told.most_values < 0) exec.copy_out(counts.data(), kept.data(), counts.size() * sizeof(std::int64_t));

  std::vector<std::int64_t> result_rows{0};
  for (auto const group : group_of)
    result_rows.push_back(result_rows.back() + (group < 0 ? samples : counts[static_cast<std::size_t>(group)]));
  auto const result_rows_there = to_device(exec, result_rows);
  device_row_ranges<Offset, Offset, Exec> ranges(exec, result_rows.back());
  auto const write = ranges.write(exec);
  launch_for_each(exec, in.keys * samples,
                  write_kept<Offset, decltype(write)>{from, inverses.data(), result_rows_there.data(), write, missing});
  return inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec>::from_parts(
      batch_of_ranges(exec, call, in, ranges, result_rows, told, counts.back()), keys_per_group, std::move(inverses), samples);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
