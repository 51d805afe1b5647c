// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/piece_list.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/bag_reader.hpp>
#include <tessera/embed/host_rows.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/pooled_argmax.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The vectors of the single ids of some keys, to be pooled as `pooled_lookup` pools rows: with its bits. Then the gradients of these
/// vectors. Its memory is kept from batch to batch.
class pooled_ids {
 public:
  /// Makes room. `features` say how keys are pooled; `is_here(key)`: whether the key is one of them; `dim_of(key)`: the floats of a vector.
  template <class Feature, class IsHere, class DimOf>
  void resize(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, vector_view<Feature const> features,
              IsHere const& is_here, DimOf const& dim_of) {
    keys_.clear();
    features_.assign(static_cast<std::size_t>(batch.keys), pooled_feature{});
    std::int64_t floats = 0, most = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (!is_here(key)) continue;
      features_[static_cast<std::size_t>(key)].pooling = features[key].pooling;
      auto const ids = batch.key(key).size();
      keys_.push_back({key, floats, ids, dim_of(key)});
      floats += divide_up(ids * dim_of(key), line_floats) * line_floats;
      most = std::max(most, ids);
    }
    memory_.resize(exec, floats);
    if (slots_.size() < most) {
      slots_.resize(exec, most);
      std::iota(slots_.begin(), slots_.end(), std::int64_t{0});
    }
    argmax_.resize(exec, vector_view<pooled_feature const>(features_), batch, dim_of);
  }

  /// Replaces blocks[key] by the memory here, (ids of the key, dim), for each of these keys.
  template <class Matrix>
  void put_into(vector_view<Matrix> blocks) noexcept {
    for (auto const& of : keys_) blocks[of.key] = vectors(of);
  }

  /// Pools the vectors here into out[key], (rows of the key, dim), and remembers which have the maxima.
  void pool(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float> const> out) {
    lookup_options const options;
    for_each_piece(exec, batch, [&](vectors_of_key const& of, std::int64_t first, std::int64_t last) {
      auto const bags = batch.key(of.key);
      host_rows<float> rows;
      rows.places = {.rows = memory_.data() + of.first, .row_bytes = of.dim * std::int64_t{sizeof(float)}, .dim = of.dim};
      rows.slot_bound = of.ids;
      bag_request const request{of.key,   bags,  slots_.data(),      bags.offsets[0], batch.weights,
                                mode(of), false, argmax_.of(of.key), &options,        out[of.key]};
      pool_bags(rows, request, first, last);
    });
  }

  /// Writes the gradient of each id's vector in place of the vector. `gradients` are of the pooled vectors, as `out` above. Scales and
  /// weights are not multiplied in. A maximum's gradient is zero where another id has won. @pre `pool` went before
  void spread(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, vector_view<matrix_view<float const> const> gradients) {
    for_each_piece(exec, batch, [&](vectors_of_key const& of, std::int64_t first, std::int64_t last) {
      auto const bags = batch.key(of.key);
      auto const to = vectors(of);
      auto const* const winners = argmax_.of(of.key);
      for (auto bag = first; bag < last; ++bag) {
        auto const* const gradient = gradients[of.key].row(bag);
        for (std::int64_t place = 0; place < bags.length(bag); ++place) {
          auto* const vector = to.row(bags.begin_of(bag) - bags.offsets[0] + place);
          if (winners == nullptr)
            std::copy_n(gradient, of.dim, vector);
          else
            for (std::int64_t c = 0; c < of.dim; ++c) vector[c] = winners[bag * of.dim + c] == place ? gradient[c] : 0.0F;
        }
      }
    });
  }

  std::size_t bytes() const noexcept { return memory_.capacity_bytes() + slots_.capacity_bytes() + argmax_.bytes(); }

 private:
  struct vectors_of_key {
    std::int64_t key, first, ids, dim;
  };

  matrix_view<float> vectors(vectors_of_key const& of) noexcept { return {memory_.data() + of.first, of.ids, of.dim}; }
  pooling mode(vectors_of_key const& of) const noexcept { return features_[static_cast<std::size_t>(of.key)].pooling; }

  // Calls f(key, first bag, last bag).
  template <class F>
  void for_each_piece(host_exec const& exec, keyed_jagged_view<std::int64_t const> batch, F const& f) const {
    auto const of = [&](std::int64_t i) -> vectors_of_key const& { return keys_[static_cast<std::size_t>(i)]; };
    for_each_piece_of(
        exec, static_cast<std::int64_t>(keys_.size()), [&](std::int64_t i) { return batch.rows(of(i).key); },
        [&](std::int64_t i) {
          return bags_per_piece(batch.rows(of(i).key), of(i).ids, of(i).dim * static_cast<std::int64_t>(sizeof(float)));
        },
        [&](std::int64_t i, std::int64_t first, std::int64_t last) { f(of(i), first, last); });
  }

  static constexpr std::int64_t line_floats = 16;

  std::vector<vectors_of_key> keys_;
  std::vector<pooled_feature> features_;  // of the batch's keys
  buffer<float> memory_;
  buffer<std::int64_t> slots_;  // 0, 1, 2, …: vectors lie in the order of their ids
  pooled_argmax argmax_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
