// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/batch.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera::inline TESSERA_ABI {

/// The dense shape of a DLRM; its tables come separately.
struct dlrm_options {
  std::int64_t dense_features = 0;
  std::vector<std::int64_t> bottom_hidden;  // ReLU layers between the dense features and a last ReLU layer of the tables' dim
  std::vector<std::int64_t> top_hidden;     // ReLU layers between the interaction and the logit
  random_seed seed;

  dlrm_options(std::int64_t dense_features, std::vector<std::int64_t> bottom_hidden, std::vector<std::int64_t> top_hidden,
               random_seed seed = {})
      : dense_features(dense_features), bottom_hidden(std::move(bottom_hidden)), top_hidden(std::move(top_hidden)), seed(seed) {}
};

/// What a DLRM's backward needs of its forward. The caller owns it, any number may be in flight; the batch must outlive it.
struct dlrm_saved {
  mlp_saved bottom, top;
  pooled_lookup_saved lookup;
  buffer<float> vectors;              // (samples, 1 + features, dim): the bottom's output, then the pooled vectors
  buffer<float> interaction;          // (samples, dot_interaction_width)
  buffer<float> logits;               // (samples,)
  buffer<matrix_view<float>> blocks;  // (1 + features,): (samples, dim) each, into `vectors`
};

/// Deep learning recommendation model: bottom MLP over dense features, embedding bags, pairwise dot products, top MLP to one logit.
/// Source: Naumov et al., 2019. Holds parameters only. `Store` and `Gemm` are policies. Move-only.
template <row_store Store, gemm_policy Gemm>
class dlrm {
 public:
  using store = Store;

  /// Takes over the tables, all of one dim; `features` says for each key of a batch which table it reads and how it is pooled.
  /// @throws tessera::error shape_mismatch, invalid_argument.
  dlrm(host_exec const& exec, dlrm_options const& options, std::vector<Store> tables, std::vector<pooled_feature> features,
       Gemm policy = {})
      : gemm_(policy),
        tables_(std::move(tables)),
        features_(std::move(features)),
        bottom_(exec, mlp_options(widths(options.dense_features, options.bottom_hidden, dim_of(tables_, features_)), activation::relu,
                                  options.seed, 0)),
        top_(exec, mlp_options(widths(dot_interaction_width(1 + feature_count(), dim()), options.top_hidden, 1), activation::identity,
                               options.seed, 1)) {}

  std::int64_t dim() const noexcept { return bottom_.output_width(); }
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(features_.size()); }
  /// Of the tables with their optimizer states and of the dense parameters.
  std::size_t bytes() const noexcept {
    auto sum = bottom_.bytes() + top_.bytes();
    for (auto const& table : tables_) sum += table.bytes();
    return sum;
  }
  std::vector<Store>& tables() noexcept { return tables_; }
  std::vector<Store> const& tables() const noexcept { return tables_; }
  std::vector<pooled_feature> const& features() const noexcept { return features_; }
  mlp& bottom() noexcept { return bottom_; }
  mlp const& bottom() const noexcept { return bottom_; }
  mlp& top() noexcept { return top_; }
  mlp const& top() const noexcept { return top_; }
  /// All dense parameters by name, for checkpoints.
  std::vector<parameter_block> blocks() {
    auto all = bottom_.blocks("bottom");
    for (auto& block : top_.blocks("top")) all.push_back(std::move(block));
    return all;
  }

  /// Logits of a batch, (samples,), for training: hashed tables give new ids a row. They live in `saved`.
  template <execution Exec>
  vector_view<float> forward(Exec const& exec, batch_view const& batch, dlrm_saved& saved) {
    lay_out(exec, batch, saved);
    pooled_lookup(exec, tables_, features_, batch.sparse, saved.blocks.view().slice(1, feature_count()), saved.lookup);
    return dense_forward(exec, batch, saved);
  }

  /// The same without changing the model: an id without a row reads as the row it would get.
  template <execution Exec>
  vector_view<float> predict(Exec const& exec, batch_view const& batch, dlrm_saved& saved) const {
    lay_out(exec, batch, saved);
    pooled_lookup(exec, tables_, features_, batch.sparse, saved.blocks.view().slice(1, feature_count()));
    return dense_forward(exec, batch, saved);
  }

  /// Gradients of the forward that filled `saved`: writes those of the MLPs (laid out like their parameters), updates the tables.
  /// `logit_gradient` (samples,) may be overwritten.
  template <execution Exec, row_optimizer RowOptimizer>
  void backward(Exec const& exec, dlrm_saved& saved, vector_view<float> logit_gradient, vector_view<float> bottom_gradient,
                vector_view<float> top_gradient, RowOptimizer const& row_optimizer) {
    auto const samples = logit_gradient.size(), vectors = 1 + feature_count();
    if (samples != saved.logits.size())
      throw error(errc::shape_mismatch, "dlrm: one gradient a logit", {{"logits", saved.logits.size()}, {"gradients", samples}});
    buffer<float> interaction_gradient(exec, saved.interaction.size());
    matrix_view<float> const into_interaction{interaction_gradient.data(), samples, top_.input_width()};
    top_.backward(exec, gemm_, saved.top, {logit_gradient.data(), samples, 1}, top_gradient, into_interaction);
    buffer<float> vector_gradients(exec, saved.vectors.size());
    buffer<matrix_view<float>> gradients(exec, vectors);
    buffer<matrix_view<float const>> inputs(exec, vectors), pooled_gradients(exec, feature_count());
    for (std::int64_t v = 0; v < vectors; ++v) {
      inputs[v] = saved.blocks[v];
      gradients[v] = block(vector_gradients.data(), samples, v);
      if (v > 0) pooled_gradients[v - 1] = gradients[v];
    }
    dot_interaction_backward(exec, std::as_const(inputs).view(), into_interaction, std::as_const(gradients).view());
    bottom_.backward(exec, gemm_, saved.bottom, gradients[0], bottom_gradient);
    pooled_lookup_backward(exec, tables_, features_, saved.lookup, std::as_const(pooled_gradients).view(), row_optimizer);
  }

 private:
  static std::int64_t dim_of(std::vector<Store> const& tables, std::vector<pooled_feature> const& features) {
    if (tables.empty()) throw error(errc::invalid_argument, "dlrm: no tables");
    for (auto table = tables.begin(); table != tables.end(); ++table) {
      if (table->dim() != tables[0].dim())
        throw error(errc::shape_mismatch, "dlrm: tables of different dims",
                    {{"table", table->options().id.value}, {"dim", table->dim()}, {"first table's dim", tables[0].dim()}});
      if (std::any_of(tables.begin(), table, [&](Store const& other) { return other.options().id == table->options().id; }))
        throw error(errc::invalid_argument, "dlrm: two tables of one id would start with the same rows",
                    {{"id", table->options().id.value}});
    }
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(tables.size()))
        throw error(errc::out_of_range, "dlrm: no such table", {{"feature", f}, {"table", features[f].table}, {"tables", tables.size()}});
    return tables[0].dim();
  }
  static std::vector<std::int64_t> widths(std::int64_t in, std::vector<std::int64_t> const& hidden, std::int64_t out) {
    std::vector<std::int64_t> result{in};
    result.insert(result.end(), hidden.begin(), hidden.end());
    result.push_back(out);
    return result;
  }

  matrix_view<float> block(float* vectors, std::int64_t samples, std::int64_t v) const noexcept {
    return {samples == 0 ? nullptr : vectors + v * dim(), samples, dim(), (1 + feature_count()) * dim()};
  }

  void lay_out(host_exec const& exec, batch_view const& batch, dlrm_saved& saved) const {
    auto const samples = batch.samples(), vectors = 1 + feature_count();
    if (batch.dense.columns() != bottom_.input_width() || batch.sparse.keys != feature_count())
      throw error(errc::shape_mismatch, "dlrm: the batch does not fit the model",
                  {{"dense features", batch.dense.columns()},
                   {"expected dense features", bottom_.input_width()},
                   {"keys", batch.sparse.keys},
                   {"expected keys", feature_count()}});
    saved.vectors.resize(exec, samples * vectors * dim());
    saved.interaction.resize(exec, samples * top_.input_width());
    saved.logits.resize(exec, samples);
    saved.blocks.resize(exec, vectors);
    for (std::int64_t v = 0; v < vectors; ++v) saved.blocks[v] = block(saved.vectors.data(), samples, v);
  }

  template <execution Exec>
  vector_view<float> dense_forward(Exec const& exec, batch_view const& batch, dlrm_saved& saved) const {
    auto const samples = batch.samples();
    bottom_.forward(exec, gemm_, batch.dense, saved.blocks[0], saved.bottom);
    buffer<matrix_view<float const>> vectors(exec, 1 + feature_count());
    for (std::int64_t v = 0; v < vectors.size(); ++v) vectors[v] = saved.blocks[v];
    matrix_view<float> const interaction{saved.interaction.data(), samples, top_.input_width()};
    dot_interaction(exec, std::as_const(vectors).view(), interaction);
    top_.forward(exec, gemm_, interaction, {saved.logits.data(), samples, 1}, saved.top);
    return saved.logits.view();
  }

  [[no_unique_address]] Gemm gemm_;
  std::vector<Store> tables_;
  std::vector<pooled_feature> features_;
  mlp bottom_;
  mlp top_;
};

}  // namespace tessera::inline TESSERA_ABI
