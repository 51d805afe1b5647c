// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
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

/// Neighbouring values of a run: [begin, begin + length) of the values that all runs lie in.
template <class Offset = std::int64_t>
struct run_slice {
  Offset begin = 0;
  Offset length = 0;

  friend constexpr bool operator==(run_slice const&, run_slice const&) = default;
};

/// A batch of sparse features whose samples share parts of their lists (partial IKJT): a sample's list is a slice of a run, in which lists that
/// grow and shift overlap. The runs of each key are the rows of a KJT: what changes or looks up ids one by one works on `runs`, once an id,
/// however many slices have it; what moves, drops or repeats them does not. Source: RecD, Section 7. Trivially copyable.
template <class T, class Offset = std::int64_t>
struct partial_inverse_keyed_jagged_view {
  keyed_jagged_view<T, Offset> runs;
  run_slice<Offset> const* slices = nullptr;  // (keys, samples): of `runs.values`, each within a run of its key; an empty one anywhere
  std::int64_t samples = 0;

  TESSERA_HOST_DEVICE constexpr std::int64_t keys() const noexcept { return runs.keys; }
  /// (samples,): of one key.
  TESSERA_HOST_DEVICE constexpr vector_view<run_slice<Offset> const> slices_of(std::int64_t key) const noexcept {
    return {slices == nullptr ? nullptr : slices + key * samples, samples};
  }
  TESSERA_HOST_DEVICE constexpr vector_view<T> row(std::int64_t key, std::int64_t sample) const noexcept {
    auto const& slice = slices[key * samples + sample];
    return {runs.values + (slice.length == 0 ? 0 : slice.begin), static_cast<std::int64_t>(slice.length)};
  }
  /// @pre runs.weighted().
  TESSERA_HOST_DEVICE constexpr vector_view<float const> row_weights(std::int64_t key, std::int64_t sample) const noexcept {
    auto const& slice = slices[key * samples + sample];
    return {runs.weights + (slice.length == 0 ? 0 : slice.begin), static_cast<std::int64_t>(slice.length)};
  }
  /// Keys [first, first + count), in place.
  TESSERA_HOST_DEVICE constexpr partial_inverse_keyed_jagged_view slice_keys(std::int64_t first, std::int64_t count) const
      noexcept(!checks_indices) {
    return {runs.slice_keys(first, count), slices == nullptr ? nullptr : slices + first * samples, samples};
  }

  template <class U>
    requires(std::same_as<U, T const> && !std::is_const_v<T>)
  TESSERA_HOST_DEVICE constexpr operator partial_inverse_keyed_jagged_view<U, Offset>() const noexcept {  // NOLINT: implicit, to const
    return {runs, slices, samples};
  }
};

static_assert(std::is_trivially_copyable_v<partial_inverse_keyed_jagged_view<std::int64_t>>);

namespace detail {

/// That there are slices, and not more than can be counted; reads none.
template <class T, class Offset>
void check_has_slices(char const* call, partial_inverse_keyed_jagged_view<T, Offset> view) {
  if (view.samples < 0 || !is_countable(view.samples, view.keys()) || (view.slices == nullptr && view.samples > 0 && view.keys() > 0))
    throw error(errc::invalid_argument, std::string(call) + ": no slices", {{"samples", view.samples}, {"keys", view.keys()}});
}

/// That each slice lies within a run of its key.
template <class T, class Offset>
void check_slices(char const* call, partial_inverse_keyed_jagged_view<T, Offset> view, std::vector<std::string> const* names = nullptr) {
  check_has_slices(call, view);
  for (std::int64_t key = 0; key < view.keys(); ++key) {
    auto const runs = view.runs.key(key);
    for (std::int64_t sample = 0; sample < view.samples; ++sample) {
      auto const slice = view.slices_of(key)[sample];
      if (slice.length == 0) continue;
      auto const* const end = runs.rows == 0 ? nullptr : std::upper_bound(runs.offsets, runs.offsets + runs.rows + 1, slice.begin);
      bool const is_within = runs.rows > 0 && slice.length > 0 && end != runs.offsets && end != runs.offsets + runs.rows + 1 &&
                             slice.length <= *end - slice.begin;
      if (!is_within)
        throw error(
            errc::out_of_range, std::string(call) + ": a slice that no run holds",
            {{"key", key_label(names, key)}, {"sample", sample}, {"begin", slice.begin}, {"length", slice.length}, {"runs", runs.rows}});
    }
  }
}

}  // namespace detail

/// Checks what the type cannot: as of its runs, and that each slice lies within a run of its key. `values`: how many there are.
/// @throws tessera::error naming what is wrong. Reads all offsets and slices.
template <class T, class Offset>
void validate(partial_inverse_keyed_jagged_view<T, Offset> view, std::int64_t values) {
  validate(view.runs, values);
  detail::check_slices("partial_inverse_keyed_jagged", view);
}

/// Owns a partial IKJT, and the names of its keys unless it is unnamed. Move-only.
template <class T = std::int64_t, class Offset = std::int64_t, execution Exec = host_exec>
class partial_inverse_keyed_jagged {
 public:
  partial_inverse_keyed_jagged() = default;

  /// Takes over runs and slices, (keys * samples,), which are not read here. @throws tessera::error shape_mismatch.
  static partial_inverse_keyed_jagged from_parts(keyed_jagged<T, Offset, Exec> runs, buffer<run_slice<Offset>, Exec> slices,
                                                 std::int64_t samples) {
    partial_inverse_keyed_jagged result;
    result.runs_ = std::move(runs);
    result.slices_ = std::move(slices);
    result.samples_ = samples;
    if (auto const keys = result.runs_.view().keys;
        samples < 0 || !detail::is_countable(samples, keys) || result.slices_.size() != keys * samples)
      throw error(errc::shape_mismatch, "partial_inverse_keyed_jagged: one slice a key and sample",
                  {{"slices", result.slices_.size()}, {"keys", keys}, {"samples", samples}});
    return result;
  }

  /// A copy on the device of a batch of the host, as `keyed_jagged::copy_of`.
  static partial_inverse_keyed_jagged copy_of(Exec const& exec,
                                              partial_inverse_keyed_jagged<T, Offset> const& batch) requires device_execution<Exec> {
    buffer<run_slice<Offset>, Exec> slices(exec, batch.slices_.size());
    exec.copy_in(slices.data(), batch.slices_.data(), static_cast<std::size_t>(slices.size()) * sizeof(run_slice<Offset>));
    return from_parts(keyed_jagged<T, Offset, Exec>::copy_of(exec, batch.runs_), std::move(slices), batch.samples_);
  }

  /// The same batch under these names; none: unnamed. @throws tessera::error as `keyed_jagged::named`.
  partial_inverse_keyed_jagged named(std::vector<std::string> keys) && {
    runs_ = std::move(runs_).named(std::move(keys));
    return std::move(*this);
  }
  std::vector<std::string> const& keys() const noexcept { return runs_.keys(); }
  std::int64_t samples() const noexcept { return samples_; }
  keyed_jagged<T, Offset, Exec> const& runs() const noexcept { return runs_; }
  /// Without the names.
  std::size_t bytes() const noexcept { return runs_.bytes() + slices_.capacity_bytes(); }

  partial_inverse_keyed_jagged_view<T, Offset> view() noexcept { return {runs_.view(), slices_.data(), samples_}; }
  partial_inverse_keyed_jagged_view<T const, Offset> view() const noexcept { return {runs_.view(), slices_.data(), samples_}; }

 private:
  template <class, class, execution>
  friend class partial_inverse_keyed_jagged;

  keyed_jagged<T, Offset, Exec> runs_;
  buffer<run_slice<Offset>, Exec> slices_;  // (keys, samples)
  std::int64_t samples_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
