// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/call_list.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The keys of a batch whose distinct bags are pooled once for several samples, with memory for the vectors of those bags.
template <execution Exec>
class shared_bags {
 public:
  /// `width_of(key)`: the floats of a vector.
  template <class Feature, class WidthOf>
  shared_bags(Exec const& exec, inverse_keyed_jagged_view<std::int64_t const> batch, vector_view<Feature const> features,
              WidthOf const& width_of)
      : keys_(exec, batch.grouped_keys()), groups_(exec, batch.groups.size()), vectors_(exec, batch.grouped_keys()) {
    std::int64_t floats = 0;
    for (auto const& group : batch.groups) {
      auto const first = count_;
      for (auto key = group.first_key; key < group.first_key + group.keys; ++key) {
        if (is_sequence(features[key])) continue;
        keys_[count_++] = key;
        floats += room_of(batch.rows(group), width_of(key));
      }
      if (count_ > first) groups_[group_count_++] = {first, count_ - first, group.inverse};
    }
    memory_.resize(exec, floats);
    floats = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      auto const rows = batch.distinct.rows(keys_[i]), width = width_of(keys_[i]);
      vectors_[i] = {memory_.data() + floats, rows, width};
      floats += room_of(rows, width);
    }
  }

  /// Replaces blocks[key] by the memory here, for each of these keys.
  template <class Matrix>
  void put_into(vector_view<Matrix> blocks) const noexcept {
    for (std::int64_t i = 0; i < count_; ++i) blocks[keys_[i]] = vectors_[i];
  }

  /// Copies the vectors of distinct bags to all samples. @pre inverses name rows
  void expand(Exec const& exec, std::int64_t samples, vector_view<matrix_view<float> const> of_samples) const {
    if (count_ == 0) return;
    call_list<matrix_view<float const>, Exec> from(exec, count_);
    call_list<matrix_view<float>, Exec> to(exec, count_);
    for (std::int64_t i = 0; i < count_; ++i) {
      from[i] = vectors_[i];
      to[i] = of_samples[keys_[i]];
    }
    gather_vectors(exec, groups(), samples, from.view(), to.view());
  }

  /// Sums gradients of all samples into those of the distinct bags.
  void merge(Exec const& exec, std::int64_t samples, vector_view<matrix_view<float const> const> of_samples) const {
    if (count_ == 0) return;
    call_list<matrix_view<float const>, Exec> from(exec, count_);
    for (std::int64_t i = 0; i < count_; ++i) from[i] = of_samples[keys_[i]];
    gather_vectors_backward(exec, groups(), samples, from.view(), vectors_.view().slice(0, count_));
  }

 private:
  // Each begins on a cache line.
  static constexpr std::int64_t room_of(std::int64_t rows, std::int64_t width) noexcept { return divide_up(rows * width, 16) * 16; }

  vector_view<row_group const> groups() const noexcept { return groups_.view().slice(0, group_count_); }

  std::int64_t count_ = 0, group_count_ = 0;
  call_list<std::int64_t, Exec> keys_;           // (count,)
  call_list<row_group, Exec> groups_;            // (group_count,), of these keys
  call_list<matrix_view<float>, Exec> vectors_;  // (count,)
  buffer<float, Exec> memory_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
