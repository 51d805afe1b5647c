// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
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
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/feature_interaction.hpp>

namespace tessera::inline TESSERA_ABI {

/// The dense shape of a click model; its tables and its interaction's options come separately.
struct click_model_options {
  std::int64_t dense_features = 0;
  std::vector<std::int64_t> bottom_hidden;  // ReLU layers between the dense features and a last ReLU layer of the tables' dim
  std::vector<std::int64_t> top_hidden;     // ReLU layers between the interaction and the logit
  random_seed seed;

  click_model_options(std::int64_t dense_features, std::vector<std::int64_t> bottom_hidden, std::vector<std::int64_t> top_hidden,
                      random_seed seed = {})
      : dense_features(dense_features), bottom_hidden(std::move(bottom_hidden)), top_hidden(std::move(top_hidden)), seed(seed) {}
};

/// What a click model's backward needs of its forward. The caller owns it, any number may be in flight; the batch must outlive it.
template <feature_interaction Interaction>
struct click_model_saved {
  mlp_saved bottom, top;
  typename Interaction::saved interaction;
  lookup_saved lookup;
  buffer<float> vectors;           // (samples, (1 + features) * dim): the bottom's output, then the pooled vectors
  buffer<float> interacted;        // (samples, the interaction's output width)
  buffer<float> logits;            // (samples,)
  buffer<float> vector_gradients;  // as `vectors`, after the backward
};

/// Dense parameters that live in one block.
struct parameter_group {
  std::string_view name;
  vector_view<float> values;
};

/// A model that predicts clicks: a bottom MLP makes a vector of the dense features, embedding bags make one of each sparse feature, the
/// interaction lets them meet, and a top MLP makes one logit of that. Holds parameters only. `Store`, `Gemm` and `Interaction` are
/// policies. Move-only.
template <row_store Store, gemm_policy Gemm, feature_interaction Interaction>
class click_model {
 public:
  using store = Store;
  using interaction_type = Interaction;
  using saved_type = click_model_saved<Interaction>;

  /// Takes over the tables, all of one dim; `features` says for each key of a batch which table it reads and how it is pooled.
  /// @throws tessera::error shape_mismatch, invalid_argument, out_of_range.
  click_model(host_exec const& exec, click_model_options const& options, std::vector<Store> tables, std::vector<pooled_feature> features,
              typename Interaction::options const& interaction = {}, Gemm policy = {})
      : gemm_(policy),
        tables_(std::move(tables)),
        features_(std::move(features)),
        bottom_(exec, mlp_options(widths(options.dense_features, options.bottom_hidden, dim_of(tables_, features_)), activation::relu,
                                  options.seed, 0)),
        interaction_(exec, interaction, 1 + feature_count(), dim(), options.seed),
        top_(exec, mlp_options(widths(interaction_.output_width(), options.top_hidden, 1), activation::identity, options.seed, 1)) {}

  std::int64_t dim() const noexcept { return bottom_.output_width(); }
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(features_.size()); }
  /// Of the tables with their optimizer states and of the dense parameters.
  std::size_t bytes() const noexcept {
    auto sum = bottom_.bytes() + interaction_.bytes() + top_.bytes();
    for (auto const& table : tables_) sum += table.bytes();
    return sum;
  }
  std::vector<Store>& tables() noexcept { return tables_; }
  std::vector<Store> const& tables() const noexcept { return tables_; }
  std::vector<pooled_feature> const& features() const noexcept { return features_; }
  mlp& bottom() noexcept { return bottom_; }
  mlp const& bottom() const noexcept { return bottom_; }
  Interaction& interaction() noexcept { return interaction_; }
  Interaction const& interaction() const noexcept { return interaction_; }
  mlp& top() noexcept { return top_; }
  mlp const& top() const noexcept { return top_; }

  /// The dense parameters, a block each of the bottom, the interaction and the top; that of the interaction may be empty.
  std::array<parameter_group, 3> groups() noexcept {
    return {{{"bottom", bottom_.parameters()}, {"interaction", interaction_.parameters()}, {"top", top_.parameters()}}};
  }
  /// Of all groups together.
  std::int64_t parameter_count() const noexcept {
    return bottom_.parameters().size() + interaction_.parameters().size() + top_.parameters().size();
  }
  /// All dense parameters by name, for checkpoints.
  std::vector<parameter_block> blocks() {
    auto all = bottom_.blocks("bottom");
    for (auto& block : interaction_.blocks("interaction")) all.push_back(std::move(block));
    for (auto& block : top_.blocks("top")) all.push_back(std::move(block));
    return all;
  }

  /// Logits of a batch, (samples,), for training: hashed tables give new ids a row. They live in `saved`.
  /// @throws tessera::error shape_mismatch for a batch of another shape, and as `pooled_lookup`.
  template <execution Exec>
  vector_view<float> forward(Exec const& exec, batch_view const& batch, saved_type& saved) {
    lay_out(exec, batch, saved);
    auto const pooled = detail::vector_blocks(exec, vectors(saved), 1, feature_count(), dim(), dim());
    pooled_lookup(exec, tables_, features_, batch.sparse, pooled.view(), saved.lookup);
    return dense_forward(exec, batch, saved);
  }

  /// The same without changing the model: an id without a row reads as the row it would get. @throws as `forward`.
  template <execution Exec>
  vector_view<float> predict(Exec const& exec, batch_view const& batch, saved_type& saved) const {
    lay_out(exec, batch, saved);
    auto const pooled = detail::vector_blocks(exec, vectors(saved), 1, feature_count(), dim(), dim());
    pooled_lookup(exec, tables_, features_, batch.sparse, pooled.view());
    return dense_forward(exec, batch, saved);
  }

  /// Gradients of the forward that filled `saved`: of the dense parameters into `gradient` (parameter_count(),), group after group; of the
  /// vectors into `saved`. `logit_gradient` (samples,) may be overwritten. @throws tessera::error shape_mismatch.
  template <execution Exec>
  void backward(Exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient) const {
    auto const samples = logit_gradient.size();
    if (samples != saved.logits.size())
      throw error(errc::shape_mismatch, "click_model: one gradient a logit", {{"logits", saved.logits.size()}, {"gradients", samples}});
    if (gradient.size() != parameter_count())
      throw error(errc::shape_mismatch, "click_model: gradient block", {{"size", gradient.size()}, {"parameters", parameter_count()}});
    auto const bottom_size = bottom_.parameters().size(), interaction_size = interaction_.parameters().size();
    auto const of_bottom = gradient.slice(0, bottom_size), of_interaction = gradient.slice(bottom_size, interaction_size),
               of_top = gradient.slice(bottom_size + interaction_size, top_.parameters().size());
    buffer<float> interacted_gradient(exec, saved.interacted.size());
    matrix_view<float> const interacted{interacted_gradient.data(), samples, top_.input_width()};
    top_.backward(exec, gemm_, saved.top, {logit_gradient.data(), samples, 1}, of_top, interacted);
    saved.vector_gradients.resize(exec, saved.vectors.size());
    auto const of_vectors = vector_gradients(saved);
    // The top's last layer has no activation, so its gradient is still that of the logits.
    interaction_.backward(exec, gemm_, saved.interaction, interacted, logit_gradient, of_interaction, of_vectors);
    bottom_.backward(exec, gemm_, saved.bottom, of_vectors.columns_from(0, dim()), of_bottom);
  }

  /// Updates the rows that the forward read with the gradients that its backward left in `saved`; one optimizer for all tables, or a
  /// container of one a table.
  template <execution Exec, class RowOptimizers>
  void update_rows(Exec const& exec, saved_type& saved, RowOptimizers const& optimizers) {
    auto const gradients = pooled_gradients(exec, saved);
    pooled_lookup_backward(exec, tables_, features_, saved.lookup, gradients.view(), optimizers);
  }

  /// The gradients of these rows instead of the update, to be clipped, added up or sent.
  template <execution Exec>
  void gradients_of_rows(Exec const& exec, saved_type& saved, row_gradients& out) const {
    auto const gradients = pooled_gradients(exec, saved);
    pooled_lookup_gradients(exec, tables_, features_, saved.lookup, gradients.view(), out);
  }

 private:
  static std::int64_t dim_of(std::vector<Store> const& tables, std::vector<pooled_feature> const& features) {
    if (tables.empty()) throw error(errc::invalid_argument, "click_model: no tables");
    for (auto table = tables.begin(); table != tables.end(); ++table) {
      if (table->dim() != tables[0].dim())
        throw error(errc::shape_mismatch, "click_model: tables of different dims",
                    {{"table", table->options().id.value}, {"dim", table->dim()}, {"first table's dim", tables[0].dim()}});
      if (std::any_of(tables.begin(), table, [&](Store const& other) { return other.options().id == table->options().id; }))
        throw error(errc::invalid_argument, "click_model: two tables of one id would start with the same rows",
                    {{"id", table->options().id.value}});
    }
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(tables.size()))
        throw error(errc::out_of_range, "click_model: no such table",
                    {{"feature", f}, {"table", features[f].table}, {"tables", tables.size()}});
    return tables[0].dim();
  }
  static std::vector<std::int64_t> widths(std::int64_t in, std::vector<std::int64_t> const& hidden, std::int64_t out) {
    std::vector<std::int64_t> result{in};
    result.insert(result.end(), hidden.begin(), hidden.end());
    result.push_back(out);
    return result;
  }

  matrix_view<float> vectors(saved_type& saved) const noexcept {
    return {saved.vectors.data(), saved.logits.size(), (1 + feature_count()) * dim()};
  }
  matrix_view<float> vector_gradients(saved_type& saved) const noexcept {
    return {saved.vector_gradients.data(), saved.logits.size(), (1 + feature_count()) * dim()};
  }
  template <execution Exec>
  buffer<matrix_view<float const>> pooled_gradients(Exec const& exec, saved_type& saved) const {
    return detail::vector_blocks(exec, matrix_view<float const>(vector_gradients(saved)), 1, feature_count(), dim(), dim());
  }

  void lay_out(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    auto const samples = batch.samples();
    if (batch.dense.columns() != bottom_.input_width() || batch.sparse.keys != feature_count())
      throw error(errc::shape_mismatch, "click_model: the batch does not fit the model",
                  {{"dense features", batch.dense.columns()},
                   {"expected dense features", bottom_.input_width()},
                   {"keys", batch.sparse.keys},
                   {"expected keys", feature_count()}});
    saved.vectors.resize(exec, samples * (1 + feature_count()) * dim());
    saved.interacted.resize(exec, samples * top_.input_width());
    saved.logits.resize(exec, samples);
  }

  template <execution Exec>
  vector_view<float> dense_forward(Exec const& exec, batch_view const& batch, saved_type& saved) const {
    auto const samples = batch.samples();
    auto const all = vectors(saved);
    bottom_.forward(exec, gemm_, batch.dense, all.columns_from(0, dim()), saved.bottom);
    matrix_view<float> const interacted{saved.interacted.data(), samples, top_.input_width()};
    interaction_.forward(exec, gemm_, all, interacted, saved.interaction);
    top_.forward(exec, gemm_, interacted, {saved.logits.data(), samples, 1}, saved.top);
    interaction_.add_to_logits(exec, saved.interaction, saved.logits.view());
    return saved.logits.view();
  }

  [[no_unique_address]] Gemm gemm_;
  std::vector<Store> tables_;
  std::vector<pooled_feature> features_;
  mlp bottom_;
  Interaction interaction_;
  mlp top_;
};

/// Deep learning recommendation model. Source: Naumov et al., 2019.
template <row_store Store, gemm_policy Gemm>
using dlrm = click_model<Store, Gemm, dot_products>;

/// Deep & cross network, version 2, stacked. Source: Wang et al., WWW 2021.
template <row_store Store, gemm_policy Gemm>
using dcn = click_model<Store, Gemm, cross_layers>;

/// DeepFM: rows of D + 1 elements hold D factors and a first-order weight. Source: Guo et al., IJCAI 2017.
template <row_store Store, gemm_policy Gemm>
using deepfm = click_model<Store, Gemm, factorization>;

}  // namespace tessera::inline TESSERA_ABI
