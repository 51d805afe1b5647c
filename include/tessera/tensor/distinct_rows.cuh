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
#include <tessera/tensor/rows_from.cuh>

// From "which samples have one row" to an IKJT, in the order of the rows' first samples. The host waits once: for how many rows each group
// keeps, and how many values they have.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Where the rows of a result come from, (groups, samples). `leaders` is the first sample with the same row. `rows` is the row of the input
/// that they take; a negative number means a row of no values. `ungrouped` (samples,) is the row taken in keys without a group; nullptr
/// means row i.
struct sample_sources {
  std::int64_t const* leaders;
  std::int64_t const* rows;
  std::int64_t const* ungrouped;
};

struct flag_leaders {
  std::int64_t const* leaders;
  std::int64_t samples, all;
  std::uint8_t* flags;  // (all + 1,)

  TESSERA_DEVICE void operator()(std::int64_t i) const { flags[i] = i < all && leaders[i] == i % samples; }
};

struct number_rows {
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
  key_ranges<Offset> in;
  std::int64_t const* group_of;  // (keys,), negative: none
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
};

template <class Offset>
struct measure_kept {
  source_rows<Offset> from;
  std::int64_t all;       // keys * samples
  std::int64_t* lengths;  // (all + 1,)

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    std::int64_t length = 0;
    if (i < all) {
      auto const key = i / from.samples, sample = i % from.samples;
      if (auto const row = from.row(key, sample); from.is_kept(key, sample) && from.in.has(key, row)) length = from.in(key, row).length;
    }
    lengths[i] = length < 0 ? 0 : length;  // a fault
  }
};

/// The rows of each group, then the values of all.
struct sum_up_kept {
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

/// Writes of each group's distinct rows the first sample: (groups, samples), as many of a group as it has rows.
struct list_leaders {
  std::int64_t const* leaders;
  std::int64_t const* inverses;
  std::int64_t samples;
  std::int64_t* first_samples;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const sample = i % samples;
    if (leaders[i] == sample) first_samples[i - sample + inverses[i]] = sample;
  }
};

/// As a source of rows of the result.
template <class Offset>
struct kept_row {
  source_rows<Offset> from;
  std::int64_t const* first_samples;
  fault_reporter missing;  // of keys without a group

  template <class Block>
  TESSERA_DEVICE value_range<> operator()(Block& block, std::int64_t key, std::int64_t i) const {
    auto const group = from.group_of[key], sample = group < 0 ? i : first_samples[group * from.samples + i], row = from.row(key, sample);
    if (from.in.has(key, row)) return from.in(key, row);
    if (group < 0) missing(block, key * from.samples + sample, key, sample, row, from.in.rows(key));
    return {};
  }
};

/// The IKJT of these sources, of which `keys_per_group` are the host's. `missing`: what is wrong with an ungrouped key's row that is not
/// there.
template <class T, class Offset, device_execution Exec>
inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec> distinct_batch(Exec const& exec, char const* call,
                                                                          keyed_jagged_view<T, Offset> in, std::int64_t samples,
                                                                          vector_view<std::int64_t const> keys_per_group,
                                                                          sample_sources const& sources, fault_reporter missing,
                                                                          result_room requested) {
  auto const groups = keys_per_group.size(), all = groups * samples;
  std::vector<std::int64_t> group_of;
  for (std::int64_t g = 0; g < groups; ++g) group_of.insert(group_of.end(), static_cast<std::size_t>(keys_per_group[g]), g);
  group_of.resize(static_cast<std::size_t>(in.keys), -1);
  auto const device_groups = to_device(exec, group_of);
  auto const first_rows = to_device(exec, first_rows_of(in));
  source_rows<Offset> const from{{in.flat().offsets, first_rows.data()}, device_groups.data(), samples, sources};

  buffer<std::int64_t, Exec> inverses(exec, all), kept(exec, groups + 1), before(exec, all + 1);
  {
    buffer<std::uint8_t, Exec> flags(exec, all + 1);
    buffer<std::int64_t, Exec> sums(exec, requested.most_values < 0 ? in.keys * samples + 1 : 0);
    launch_for_each(exec, all + 1, flag_leaders{sources.leaders, samples, all, flags.data()});
    exclusive_scan(exec, flags.view(), before.view());
    launch_for_each(exec, all, number_rows{sources.leaders, before.data(), samples, inverses.data()});
    if (!sums.empty()) {
      buffer<std::int64_t, Exec> lengths(exec, sums.size());
      launch_for_each(exec, sums.size(), measure_kept<Offset>{from, sums.size() - 1, lengths.data()});
      exclusive_scan(exec, lengths.view(), sums.view());
    }
    launch_for_each(exec, groups + 1,
                    sum_up_kept{before.data(), sums.empty() ? nullptr : sums.data() + sums.size() - 1, samples, groups, kept.data()});
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(groups) + 1, -1);
  if (groups > 0 || requested.most_values < 0) exec.copy_out(counts.data(), kept.data(), counts.size() * sizeof(std::int64_t));

  std::vector<std::int64_t> rows_per_key;
  for (auto const group : group_of) rows_per_key.push_back(group < 0 ? samples : counts[static_cast<std::size_t>(group)]);
  launch_for_each(exec, all, list_leaders{sources.leaders, inverses.data(), samples, before.data()});
  if (requested.most_values < 0) requested.most_values = counts.back();
  return inverse_keyed_jagged<std::remove_const_t<T>, Offset, Exec>::from_parts(
      rows_from(exec, in, rows_per_key, kept_row<Offset>{from, before.data(), missing}, {requested, call}), keys_per_group,
      std::move(inverses), samples);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
