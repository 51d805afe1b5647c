// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Keys [first_key, first_key + keys) of a batch, of which only distinct rows are kept.
///
/// Two samples share a row where they have the same values in every key of the group. Source: RecD, Section 4.2 (grouped IKJTs).
struct row_group {
  std::int64_t first_key = 0;
  std::int64_t keys = 0;
  std::int64_t const* inverse = nullptr;  // (samples,): which of the group's rows sample i has, the same in each key
};

/// A batch of sparse features that keeps each repeated row once (IKJT). It has a KJT of the distinct rows of each group, and an inverse a
/// group.
///
/// Groups cover the first keys in order. A key behind the groups has a row a sample. What works on a KJT works on `distinct`, once a
/// distinct row. Of a batch on a device, `groups` lies in the host's memory, and the inverses in the device's. Trivially copyable.
template <class T, class Offset = std::int64_t>
struct inverse_keyed_jagged_view {
  keyed_jagged_view<T, Offset> distinct;
  vector_view<row_group const> groups;
  std::int64_t samples = 0;

  /// How many keys there are, in groups and behind them.
  TESSERA_HOST_DEVICE constexpr std::int64_t keys() const noexcept { return distinct.keys; }
  /// How many keys belong to groups; the keys behind them have a row a sample.
  TESSERA_HOST_DEVICE constexpr std::int64_t grouped_keys() const noexcept {
    if (groups.empty()) return 0;
    auto const& last = groups.data()[groups.size() - 1];
    return last.first_key + last.keys;
  }
  /// How many distinct rows a group has.
  TESSERA_HOST_DEVICE constexpr std::int64_t rows(row_group const& group) const noexcept { return distinct.rows(group.first_key); }
  /// The distinct rows of a group's keys, in place.
  TESSERA_HOST_DEVICE constexpr keyed_jagged_view<T, Offset> rows_of(row_group const& group) const noexcept(!checks_indices) {
    return distinct.slice_keys(group.first_key, group.keys);
  }
  /// The keys without a group, in place.
  TESSERA_HOST_DEVICE constexpr keyed_jagged_view<T, Offset> ungrouped() const noexcept(!checks_indices) {
    return distinct.slice_keys(grouped_keys(), keys() - grouped_keys());
  }
  /// Which row of a key each sample has, (samples,). For a key without a group the view is empty: sample i has row i.
  TESSERA_HOST_DEVICE constexpr vector_view<std::int64_t const> inverse(std::int64_t key) const noexcept {
    for (std::int64_t g = 0; g < groups.size(); ++g)
      if (auto const& group = groups.data()[g]; key < group.first_key + group.keys) return {group.inverse, samples};
    return {};
  }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator inverse_keyed_jagged_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {distinct, groups, samples};
  }
};

static_assert(std::is_trivially_copyable_v<inverse_keyed_jagged_view<std::int64_t>>);

namespace detail {

// What shapes show, of any execution.
template <class T, class Offset>
void check_groups(char const* call, inverse_keyed_jagged_view<T, Offset> view) {
  if (view.samples < 0) throw error(errc::invalid_argument, std::string(call) + ": samples", {{"samples", view.samples}, {"least", 0}});
  if (!is_countable(view.samples, view.keys()))
    throw error(errc::invalid_argument, std::string(call) + ": samples", {{"samples", view.samples}, {"keys", view.keys()}});
  std::int64_t key = 0;
  for (auto const& group : view.groups) {
    if (group.first_key != key || group.keys < 1 || group.keys > view.keys() - key)
      throw error(
          errc::invalid_argument, std::string(call) + ": groups are one key or more each, in order",
          {{"group", &group - view.groups.data()}, {"first key", group.first_key}, {"keys", group.keys}, {"keys of all", view.keys()}});
    if (group.inverse == nullptr && view.samples > 0)
      throw error(errc::invalid_argument, std::string(call) + ": a group without an inverse", {{"group", &group - view.groups.data()}});
    for (; key < group.first_key + group.keys; ++key)
      if (view.distinct.rows(key) != view.rows(group))
        throw error(
            errc::shape_mismatch, std::string(call) + ": keys of one group have as many rows",
            {{"group", &group - view.groups.data()}, {"key", key}, {"rows", view.distinct.rows(key)}, {"expected", view.rows(group)}});
  }
  for (; key < view.keys(); ++key)
    if (view.distinct.rows(key) != view.samples)
      throw error(errc::shape_mismatch, std::string(call) + ": a key without a group has a row a sample",
                  {{"key", key}, {"rows", view.distinct.rows(key)}, {"samples", view.samples}});
}

// And what inverses show. Reads all of them.
template <class T, class Offset>
void check_inverses(char const* call, inverse_keyed_jagged_view<T, Offset> view) {
  for (auto const& group : view.groups)
    for (std::int64_t i = 0; i < view.samples; ++i)
      if (group.inverse[i] < 0 || group.inverse[i] >= view.rows(group))
        throw error(errc::out_of_range, std::string(call) + ": no such row",
                    {{"group", &group - view.groups.data()}, {"sample", i}, {"row", group.inverse[i]}, {"rows", view.rows(group)}});
}

}  // namespace detail

/// Checks what the type cannot: the distinct rows, that groups stand in order, and that each inverse names rows that exist.
///
/// `values`: how many values `view.distinct` has. Reads all offsets and inverses; host memory only. @throws tessera::error naming what is
/// wrong.
template <class T, class Offset>
void validate(inverse_keyed_jagged_view<T, Offset> view, std::int64_t values) {
  validate(view.distinct, values);
  detail::check_groups("inverse_keyed_jagged", view);
  detail::check_inverses("inverse_keyed_jagged", view);
}

/// Owns an IKJT, and the names of its keys unless the IKJT is unnamed. Move-only.
template <class T = std::int64_t, class Offset = std::int64_t, execution Exec = host_exec>
class inverse_keyed_jagged {
 public:
  inverse_keyed_jagged() = default;

  /// Takes over distinct rows and inverses, and reads none of the inverses.
  ///
  /// `keys_per_group` (groups,) counts the first keys, in order; `inverses` (groups * samples,), group after group. @throws tessera::error
  /// shape_mismatch, invalid_argument.
  static inverse_keyed_jagged from_parts(keyed_jagged<T, Offset, Exec> distinct, vector_view<std::int64_t const> keys_per_group,
                                         buffer<std::int64_t, Exec> inverses, std::int64_t samples) {
    inverse_keyed_jagged result;
    result.distinct_ = std::move(distinct);
    result.inverses_ = std::move(inverses);
    result.samples_ = samples;
    if (samples < 0 || !detail::is_countable(samples, keys_per_group.size()) || result.inverses_.size() != samples * keys_per_group.size())
      throw error(errc::shape_mismatch, "inverse_keyed_jagged: one inverse a group and sample",
                  {{"inverses", result.inverses_.size()}, {"groups", keys_per_group.size()}, {"samples", samples}});
    std::int64_t key = 0;
    for (std::int64_t g = 0; g < keys_per_group.size(); ++g) {
      result.groups_.push_back({key, keys_per_group[g], result.inverses_.data() + g * samples});
      key += keys_per_group[g];
    }
    detail::check_groups("inverse_keyed_jagged", std::as_const(result).view());
    return result;
  }

  /// Copies a batch of the host to the device, as `keyed_jagged::copy_of` does.
  static inverse_keyed_jagged copy_of(Exec const& exec, inverse_keyed_jagged<T, Offset> const& batch) requires device_execution<Exec> {
    buffer<std::int64_t, Exec> inverses(exec, batch.inverses_.size());
    exec.copy_in(inverses.data(), batch.inverses_.data(), static_cast<std::size_t>(inverses.size()) * sizeof(std::int64_t));
    std::vector<std::int64_t> keys_per_group;
    for (auto const& group : batch.groups_) keys_per_group.push_back(group.keys);
    return from_parts(keyed_jagged<T, Offset, Exec>::copy_of(exec, batch.distinct_), keys_per_group, std::move(inverses), batch.samples_);
  }

  /// Gives the batch these names; none leave it unnamed. @throws tessera::error as `keyed_jagged::named`.
  inverse_keyed_jagged named(std::vector<std::string> keys) && {
    distinct_ = std::move(distinct_).named(std::move(keys));
    return std::move(*this);
  }
  /// The names, one a key, or none of an unnamed batch.
  std::vector<std::string> const& keys() const noexcept { return distinct_.keys(); }
  std::int64_t samples() const noexcept { return samples_; }
  /// The distinct rows.
  keyed_jagged<T, Offset, Exec> const& distinct() const noexcept { return distinct_; }
  /// Bytes of memory, without the names.
  std::size_t bytes() const noexcept { return distinct_.bytes() + inverses_.capacity_bytes() + groups_.capacity() * sizeof(row_group); }

  inverse_keyed_jagged_view<T, Offset> view() noexcept { return {distinct_.view(), groups_, samples_}; }
  inverse_keyed_jagged_view<T const, Offset> view() const noexcept { return {distinct_.view(), groups_, samples_}; }

 private:
  template <class, class, execution>
  friend class inverse_keyed_jagged;

  keyed_jagged<T, Offset, Exec> distinct_;
  buffer<std::int64_t, Exec> inverses_;  // (groups, samples)
  std::vector<row_group> groups_;
  std::int64_t samples_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
