// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

namespace tessera::inline TESSERA_ABI {

namespace detail {

/// Calls f(key, first bag, last bag) for pieces of about 4096 values.
template <class F>
void for_each_bag_piece(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, F const& f) {
  for_each_piece_of(
      exec, batch.keys, [&](std::int64_t key) { return batch.rows(key); },
      [&](std::int64_t key) { return bags_per_piece(batch.rows(key), batch.key(key).size(), 64); }, f);
}

/// Whether a feature has a vector for each id.
template <class Feature>
constexpr bool is_sequence(Feature const& feature) noexcept {
  if constexpr (requires { feature.sequence; })
    return feature.sequence;
  else
    return false;
}

/// What each position of the batch, from its first on, adds to its row's gradient. `gradients` (keys,): of bags, or of the ids of sequences.
/// `maxima`: of each bag of a maximum its gradient, and behind it the rows that have won; lives as long as the contributions.
template <class Feature>
void contribute(host_exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                pooled_argmax const& argmax, vector_view<matrix_view<float const> const> gradients, buffer<float>& maxima,
                vector_view<row_contribution> out) {
  auto const base = first_value(batch);
  maxima.resize(exec, 2 * argmax.size());
  for_each_bag_piece(exec, batch, [&](std::int64_t key, std::int64_t first, std::int64_t last) {
    auto const bags = batch.key(key);
    auto const& feature = features[key];
    auto const gradient = gradients[key];
    if (is_sequence(feature)) {
      for (auto p = bags.begin_of(first); p < bags.end_of(last - 1); ++p) out[p - base] = {gradient.row(p - bags.offsets[0]), 1.0F, -1};
    } else if (feature.is_largest()) {
      auto const* const winners = argmax.of(key);
      auto const dim = gradient.columns();
      auto* const pairs = maxima.data() + 2 * (winners - argmax.of_all());
      for (auto bag = first; bag < last; ++bag) {
        auto* const pair = pairs + 2 * bag * dim;
        std::copy_n(gradient.row(bag), dim, pair);
        std::memcpy(pair + dim, winners + bag * dim, static_cast<std::size_t>(dim) * sizeof(float));
        for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p)
          out[p - base] = {pair, 1.0F, static_cast<std::int32_t>(p - bags.begin_of(bag))};
      }
    } else {
      for (auto bag = first; bag < last; ++bag) {
        auto const scale = pooling_scale(feature.pooling, bags.length(bag));
        auto const* const of_bag = gradient.row(bag);
        for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p)
          out[p - base] = {of_bag, batch.weighted() ? scale * batch.weights[p] : scale, -1};
      }
    }
  });
}

}  // namespace detail

}  // namespace tessera::inline TESSERA_ABI
