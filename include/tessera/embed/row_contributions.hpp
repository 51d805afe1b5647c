// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/canonical_sums.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Calls f(key, first bag, last bag) for pieces of about 4096 values.
template <class F>
void for_each_bag_piece(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, F const& f) {
  for_each_piece_of(
      exec, batch.keys, [&](std::int64_t key) { return batch.rows(key); },
      [&](std::int64_t key) { return bags_per_piece(batch.rows(key), batch.key(key).size(), 64); }, f);
}

/// Writes what positions add to the gradients of their rows, for one call of `contribute`.
template <class Feature>
class contribution_writer {
 public:
  contribution_writer(vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch, pooled_argmax const& argmax,
                      vector_view<matrix_view<float const> const> gradients, float* maxima, vector_view<row_contribution> out,
                      float const* scales) noexcept
      : features_(features), batch_(batch), argmax_(argmax), gradients_(gradients), maxima_(maxima), out_(out), scales_(scales) {}

  void write(host_exec const& exec) const {
    for_each_piece_of(
        exec, batch_.keys,
        [&](std::int64_t key) {
          if (!learns(features_[key])) return std::int64_t{0};
          return is_sequence(features_[key]) ? batch_.key(key).size() : batch_.rows(key);
        },
        [&](std::int64_t key) {
          return is_sequence(features_[key]) ? values_per_piece : bags_per_piece(batch_.rows(key), batch_.key(key).size(), 64);
        },
        [&](std::int64_t key, std::int64_t first, std::int64_t last) {
          if (is_sequence(features_[key])) return write_values(key, first, last);
          if constexpr (!std::integral<Feature>) {
            if (features_[key].is_largest())
              write_maxima(key, first, last);
            else
              write_bags(key, first, last);
          }
        });
  }

 private:
  static constexpr std::int64_t values_per_piece = 4096;

  // What does not is left out of a row's sum (`batch_slots`).
  static bool learns(Feature const& feature) noexcept {
    if constexpr (requires { feature.learns; })
      return feature.learns;
    else
      return true;
  }

  void write_values(std::int64_t key, std::int64_t first, std::int64_t last) const {
    auto const before = batch_.key(key).offsets[0] - first_value(batch_);
    for (auto i = first; i < last; ++i) out_[before + i] = {gradients_[key].row(i), scales_ == nullptr ? 1.0F : scales_[before + i], -1};
  }
  void write_maxima(std::int64_t key, std::int64_t first, std::int64_t last) const {
    auto const bags = batch_.key(key);
    auto const base = first_value(batch_), dim = gradients_[key].columns();
    auto const* const winners = argmax_.of(key);
    auto* const pairs = maxima_ + 2 * (winners - argmax_.of_all());
    for (auto bag = first; bag < last; ++bag) {
      auto* const pair = pairs + 2 * bag * dim;
      std::copy_n(gradients_[key].row(bag), dim, pair);
      std::memcpy(pair + dim, winners + bag * dim, static_cast<std::size_t>(dim) * sizeof(float));
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p)
        out_[p - base] = {pair, 1.0F, static_cast<std::int32_t>(p - bags.begin_of(bag))};
    }
  }
  void write_bags(std::int64_t key, std::int64_t first, std::int64_t last) const {
    auto const bags = batch_.key(key);
    auto const base = first_value(batch_);
    for (auto bag = first; bag < last; ++bag) {
      auto const scale = pooling_scale(features_[key].pooling, bags.length(bag));
      auto const* const gradient = gradients_[key].row(bag);
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p)
        out_[p - base] = {gradient, batch_.weighted() ? scale * batch_.weights[p] : scale, -1};
    }
  }

  vector_view<Feature const> features_;
  keyed_jagged_view<std::int64_t const> batch_;
  pooled_argmax const& argmax_;
  vector_view<matrix_view<float const> const> gradients_;
  float* maxima_;  // (2, dim) a bag of a maximum
  vector_view<row_contribution> out_;
  float const* scales_;
};

/// Writes what each position of the batch, its first value first, adds to its row's gradient. `gradients` (keys,): of bags, or of the ids
/// of sequences. `maxima` gets the gradient of each bag of a maximum, then the rows that have won; it must outlive the contributions.
/// `scales` (values,), where given, multiply the gradients of sequences' values, as weights do those of bags.
template <class Feature>
void contribute(host_exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                pooled_argmax const& argmax, vector_view<matrix_view<float const> const> gradients, buffer<float>& maxima,
                vector_view<row_contribution> out, float const* scales = nullptr) {
  maxima.resize(exec, 2 * argmax.size());
  contribution_writer<Feature>(features, batch, argmax, gradients, maxima.data(), out, scales).write(exec);
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
