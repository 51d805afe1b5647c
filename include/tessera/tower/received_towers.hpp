// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/peer_batch.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_passes.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What a rank does with the samples that its peers brought to its towers: where tables write, what modules read and make, and back. The keys
/// that came are those of `peer_keys::blocks`: of each source what is for modules, then of each source the features. Its memory is kept from
/// batch to batch.
template <tower_recipe Recipe>
class received_towers {
 public:
  /// Makes room for a batch. `features` are the outputs of all features, `here` the numbers of those of this group. The tables see so many
  /// `sources`, of which `peers` came.
  void lay_out(host_exec const& exec, tower_modules<Recipe> const& modules, vector_view<embedding_output const> features,
               std::vector<std::int64_t> const& here, std::int64_t peers, std::int64_t sources, std::int64_t chunk_samples,
               keyed_jagged_view<std::int64_t const> all, flat_exchange_state const& state);

  /// The features of all sources, as the tables' batch. @pre `lay_out` went before
  keyed_jagged_view<std::int64_t const> batch() const noexcept { return batch_; }
  /// Where the tables write them.
  vector_view<matrix_view<float> const> vectors() const noexcept { return vectors_; }

  /// Runs the modules on the vectors.
  void forward(host_exec const& exec, tower_modules<Recipe> const& modules) {
    for (auto const& run : runs_)
      gather_vectors(exec, list_of(run.distinct, distinct_read_), run.inverse, list_of(run.of_samples, of_samples_));
    passes_.forward(exec, modules);
  }

  /// Runs their backward on the gradients that came. `gradients()` then has what the tables need.
  void backward(host_exec const& exec, tower_modules<Recipe> const& modules, flat_exchange_state const& state);
  vector_view<matrix_view<float const> const> gradients() const noexcept { return gradients_; }
  /// Gradients of the modules' parameters: a leaf a chunk, or one a source.
  sum_tree& chunks() noexcept { return chunks_; }

  std::size_t bytes() const noexcept { return passes_.bytes() + distinct_.capacity_bytes() + chunks_.bytes(); }

 private:
  // Features of a module whose samples have the same rows: matrices of distinct rows, and of samples.
  struct shared_rows {
    std::vector<matrix_view<float>> distinct, of_samples, gradients;
    vector_view<std::int64_t const> inverse;
  };
  template <class T>
  static vector_view<matrix_view<T> const> list_of(std::vector<matrix_view<float>> const& matrices, std::vector<matrix_view<T>>& list) {
    list.assign(matrices.begin(), matrices.end());
    return list;
  }

  std::int64_t peers_ = 0, first_ = 0, extras_ = 0;  // keys before features, and how many of them a source has
  keyed_jagged_view<std::int64_t const> batch_;
  tower_passes<Recipe> passes_;
  std::vector<matrix_view<float>> vectors_;
  std::vector<matrix_view<float const>> gradients_;
  std::vector<std::int64_t> from_exchange_;  // features whose gradients come as they are
  std::vector<shared_rows> runs_;
  std::vector<std::int64_t> made_at_;  // of each module: the key of what it makes, among a source's
  buffer<float> distinct_;
  std::vector<matrix_view<float const>> distinct_read_;
  std::vector<matrix_view<float>> of_samples_;
  sum_tree chunks_;
};

template <tower_recipe Recipe>
void received_towers<Recipe>::lay_out(host_exec const& exec, tower_modules<Recipe> const& modules,
                                      vector_view<embedding_output const> features, std::vector<std::int64_t> const& here,
                                      std::int64_t peers, std::int64_t sources, std::int64_t chunk_samples,
                                      keyed_jagged_view<std::int64_t const> all, flat_exchange_state const& state) {
  auto const of_source = static_cast<std::int64_t>(here.size());
  first_ = all.keys - sources * of_source;
  extras_ = first_ / peers;
  peers_ = peers;
  batch_ = all.slice_keys(first_, sources * of_source);
  runs_.clear();
  from_exchange_.clear();
  made_at_.clear();
  vectors_.assign(static_cast<std::size_t>(sources * of_source), {});
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    vectors_[i] = state.out()[static_cast<std::size_t>(first_) + i];
    if (vectors_[i].data() == nullptr) vectors_[i] = {nullptr, 0, features[here[i % here.size()]].width};
  }
  gradients_.assign(vectors_.begin(), vectors_.end());

  std::vector<source_samples> samples(static_cast<std::size_t>(peers));
  std::int64_t next = 0;
  for (std::int64_t m = 0; m < modules.size(); ++m) {
    next += static_cast<std::int64_t>(modules.shape(m).pooled.size());
    made_at_.push_back(next++);
  }
  for (std::int64_t s = 0; s < peers && modules.size() > 0; ++s) {
    auto const chunk = all.key(s * extras_ + extras_ - 1);
    samples[static_cast<std::size_t>(s)] = {all.rows(s * extras_ + made_at_[0]), chunk.values[chunk.offsets[0]]};
  }
  passes_.resize(exec, modules, samples, chunk_samples, features);
  std::int64_t floats = 0;
  for (bool const places : {false, true}) {  // first the room for distinct rows, then where they lie
    if (places) distinct_.resize(exec, floats);
    floats = 0;
    for (std::int64_t s = 0; s < peers; ++s)
      for (std::int64_t m = 0; m < modules.size(); ++m) {
        auto const& shape = modules.shape(m);
        auto const of_module = passes_.vectors(s, m), gradients_of_module = passes_.gradients(s, m);
        if (places) passes_.output(s, m) = state.out()[static_cast<std::size_t>(s * extras_ + made_at_[static_cast<std::size_t>(m)])];
        vector_view<std::int64_t const> inverse;
        auto key = s * extras_ + made_at_[static_cast<std::size_t>(m)] - static_cast<std::int64_t>(shape.pooled.size()) - 1;
        for (auto const i : peer_keys::last_first(shape)) {
          ++key;
          bool const is_new = all.rows(key) > 0;
          if (is_new) inverse = {all.values + all.key(key).offsets[0], all.rows(key)};
          auto const k = std::lower_bound(here.begin(), here.end(), shape.pooled[i]) - here.begin();
          auto const at = static_cast<std::size_t>(s * of_source + k);
          auto const rows = batch_.rows(static_cast<std::int64_t>(at)), width = features[shape.pooled[i]].width;
          auto const number = static_cast<std::int64_t>(i);
          if (inverse.empty()) {
            if (places) vectors_[at] = of_module[number], gradients_[at] = gradients_of_module[number];
            continue;
          }
          if (places) {
            if (is_new || runs_.empty()) runs_.push_back({{}, {}, {}, inverse});
            runs_.back().distinct.push_back({distinct_.data() + floats, rows, width});
            runs_.back().of_samples.push_back(of_module[number]);
            runs_.back().gradients.push_back(gradients_of_module[number]);
            vectors_[at] = runs_.back().distinct.back();
            gradients_[at] = vectors_[at];
          }
          floats += divide_up(rows * width, 16) * 16;
        }
      }
  }
  std::vector<bool> in_module(static_cast<std::size_t>(features.size()), false);
  for (std::int64_t m = 0; m < modules.size(); ++m)
    for (auto const f : modules.shape(m).pooled) in_module[static_cast<std::size_t>(f)] = true;
  for (std::int64_t s = 0; s < peers; ++s)
    for (std::int64_t k = 0; k < of_source; ++k)
      if (!in_module[static_cast<std::size_t>(here[static_cast<std::size_t>(k)])]) from_exchange_.push_back(s * of_source + k);
}

template <tower_recipe Recipe>
void received_towers<Recipe>::backward(host_exec const& exec, tower_modules<Recipe> const& modules, flat_exchange_state const& state) {
  for (auto const i : from_exchange_) gradients_[static_cast<std::size_t>(i)] = state.gradients()[static_cast<std::size_t>(first_ + i)];
  chunks_.start(0);
  if (modules.size() == 0) return;
  passes_.backward(
      exec, modules,
      [&](std::int64_t s, std::int64_t m) {
        return state.gradients()[static_cast<std::size_t>(s * extras_ + made_at_[static_cast<std::size_t>(m)])];
      },
      chunks_);
  for (auto const& run : runs_)
    gather_vectors_backward(exec, list_of(run.gradients, distinct_read_), run.inverse, list_of(run.distinct, of_samples_));
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
