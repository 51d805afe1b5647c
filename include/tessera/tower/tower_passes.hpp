// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// The samples of one source, as modules see them.
struct source_samples {
  std::int64_t samples = 0;
  std::int64_t first_chunk = 0;  ///< number of its first chunk among those of all samples
};

/// What modules keep of a batch from forward to backward: the vectors of their features, what they make, and what they saved. Modules run
/// by source, and by chunks of a source's samples. Its memory is kept from batch to batch.
template <tower_recipe Recipe>
class tower_passes {
  using modules_type = tower_modules<Recipe>;

 public:
  /// Makes room. `chunk_samples` 0: a source's samples are one chunk, of the source's number.
  void resize(host_exec const& exec, modules_type const& modules, std::vector<source_samples> sources, std::int64_t chunk_samples,
              vector_view<embedding_output const> features) {
    sources_ = std::move(sources);
    chunk_samples_ = chunk_samples;
    order_.resize(sources_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (chunk_samples > 0)  // peers of a topology whose hosts have ranks that are no neighbours come in another order
      std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return sources_[a].first_chunk < sources_[b].first_chunk; });
    modules_count_ = static_cast<std::size_t>(modules.size());
    vectors_.clear();
    gradients_.clear();
    outputs_.assign(sources_.size() * modules_count_, {});
    first_feature_.assign(modules_count_ + 1, 0);
    for (std::size_t m = 0; m < modules_count_; ++m)
      first_feature_[m + 1] = first_feature_[m] + modules.shape(static_cast<std::int64_t>(m)).pooled.size();
    std::int64_t floats = 0;
    for (auto const& source : sources_)
      for (std::size_t m = 0; m < modules_count_; ++m)
        for (auto const f : modules.shape(static_cast<std::int64_t>(m)).pooled) floats += room_of(source.samples * features[f].width);
    vector_memory_.resize(exec, floats);
    gradient_memory_.resize(exec, floats);
    floats = 0;
    for (auto const& source : sources_)
      for (std::size_t m = 0; m < modules_count_; ++m)
        for (auto const f : modules.shape(static_cast<std::int64_t>(m)).pooled) {
          vectors_.push_back({vector_memory_.data() + floats, source.samples, features[f].width});
          gradients_.push_back({gradient_memory_.data() + floats, source.samples, features[f].width});
          floats += room_of(source.samples * features[f].width);
        }
  }

  /// The vectors of the module's features, and their gradients after the backward: (features of the module,) matrices (samples, width).
  vector_view<matrix_view<float> const> vectors(std::int64_t source, std::int64_t m) const noexcept { return part(vectors_, source, m); }
  vector_view<matrix_view<float> const> gradients(std::int64_t source, std::int64_t m) const noexcept {
    return part(gradients_, source, m);
  }
  /// Where a module writes what it makes of a source's samples, (samples, width). The caller sets it before `forward`.
  matrix_view<float>& output(std::int64_t source, std::int64_t m) noexcept { return outputs_[place(source, m)]; }

  void forward(host_exec const& exec, modules_type const& modules) {
    std::size_t next = 0;
    for_each_chunk([&](std::int64_t s, std::int64_t, std::int64_t first, std::int64_t count) {
      for (std::int64_t m = 0; m < modules.size(); ++m, ++next) {
        if (next == saved_.size()) saved_.emplace_back();
        modules.forward(exec, m, rows_of<float const>(exec, vectors(s, m), first, count), output(s, m).rows_from(first, count),
                        saved_[next]);
      }
    });
  }

  /// `out_gradient(source, m)`: the gradient of what the module made. Adds the gradients of parameters of each chunk to `chunks`, as leaves.
  template <class OutGradient>
  void backward(host_exec const& exec, modules_type const& modules, OutGradient const& out_gradient, sum_tree& chunks) {
    std::size_t next = 0;
    for_each_chunk([&](std::int64_t s, std::int64_t leaf, std::int64_t first, std::int64_t count) {
      chunks.skip_to(leaf);
      auto const gradient = chunks.next(exec, modules.parameter_count());
      for (std::int64_t m = 0; m < modules.size(); ++m, ++next)
        modules.backward(exec, m, saved_[next], matrix_view<float const>(out_gradient(s, m)).rows_from(first, count), gradient,
                         rows_of<float>(exec, gradients(s, m), first, count));
      chunks.add(exec);
    });
  }

  std::size_t bytes() const noexcept { return vector_memory_.capacity_bytes() + gradient_memory_.capacity_bytes(); }

 private:
  // Each matrix begins on a cache line.
  static constexpr std::int64_t room_of(std::int64_t floats) noexcept { return divide_up(floats, 16) * 16; }
  std::size_t place(std::int64_t source, std::int64_t m) const noexcept {
    return static_cast<std::size_t>(source) * modules_count_ + static_cast<std::size_t>(m);
  }
  vector_view<matrix_view<float> const> part(std::vector<matrix_view<float>> const& all, std::int64_t source,
                                             std::int64_t m) const noexcept {
    auto const number = static_cast<std::size_t>(m);
    auto const first = static_cast<std::size_t>(source) * first_feature_[modules_count_] + first_feature_[number];
    return {all.data() + first, static_cast<std::int64_t>(first_feature_[number + 1] - first_feature_[number])};
  }
  // The same rows of all blocks, until the next call.
  template <class T>
  vector_view<matrix_view<T> const> rows_of(host_exec const& exec, vector_view<matrix_view<float> const> blocks, std::int64_t first,
                                            std::int64_t count) {
    auto& rows = [&]() -> auto& {
      if constexpr (std::is_const_v<T>)
        return read_rows_;
      else
        return written_rows_;
    }
    ();
    rows.resize(exec, blocks.size());
    for (std::int64_t b = 0; b < blocks.size(); ++b) rows[b] = blocks[b].rows_from(first, count);
    return std::as_const(rows).view();
  }
  // Calls f(source, leaf, first sample, samples), by ascending leaves.
  template <class F>
  void for_each_chunk(F const& f) const {
    for (auto const s : order_) {
      auto const [samples, first_chunk] = sources_[s];
      if (chunk_samples_ == 0) {
        f(static_cast<std::int64_t>(s), static_cast<std::int64_t>(s), std::int64_t{0}, samples);
        continue;
      }
      for (std::int64_t first = 0, c = first_chunk; first < samples; first += chunk_samples_, ++c)
        f(static_cast<std::int64_t>(s), c, first, std::min(chunk_samples_, samples - first));
    }
  }

  std::vector<source_samples> sources_;
  std::vector<std::size_t> order_;  // of sources, by their first chunks
  std::int64_t chunk_samples_ = 0;
  std::size_t modules_count_ = 0;
  std::vector<std::size_t> first_feature_;  // (modules + 1,), of a source's
  std::vector<matrix_view<float>> vectors_, gradients_, outputs_;
  std::vector<typename Recipe::module::saved> saved_;  // of each chunk and module
  buffer<float> vector_memory_, gradient_memory_;
  buffer<matrix_view<float const>> read_rows_;
  buffer<matrix_view<float>> written_rows_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
