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
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a click model's backward needs of its forward. The caller owns it, any number may be in flight; the batch must outlive it.
template <feature_interaction Interaction>
struct click_model_saved : click_net_saved<Interaction> {
  deduplicated_saved lookup;
};

/// A model that predicts clicks. A bottom MLP makes a vector of the dense features, if there are any; embedding bags make one of each sparse
/// feature. The interaction lets them meet, and a top MLP makes one logit of that. Holds parameters only. `Store`, `Gemm` and `Interaction`
/// are policies. Move-only.
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
      : shared_gradients_(options.sums),
        tables_(std::move(tables)),
        features_(std::move(features)),
        net_(exec, options, feature_count(), dim_of(tables_, features_), interaction, policy) {}

  std::int64_t dim() const noexcept { return net_.dim(); }
  std::int64_t feature_count() const noexcept { return static_cast<std::int64_t>(features_.size()); }
  shared_gradients sums() const noexcept { return shared_gradients_; }
  /// Of the tables with their optimizer states and of the dense parameters.
  std::size_t bytes() const noexcept {
    auto sum = net_.bytes();
    for (auto const& table : tables_) sum += table.bytes();
    return sum;
  }
  std::vector<Store>& tables() noexcept { return tables_; }
  std::vector<Store> const& tables() const noexcept { return tables_; }
  std::vector<pooled_feature> const& features() const noexcept { return features_; }
  /// @pre there are dense features.
  mlp& bottom() noexcept { return net_.bottom(); }
  mlp const& bottom() const noexcept { return net_.bottom(); }
  Interaction& interaction() noexcept { return net_.interaction(); }
  Interaction const& interaction() const noexcept { return net_.interaction(); }
  mlp& top() noexcept { return net_.top(); }
  mlp const& top() const noexcept { return net_.top(); }

  /// The dense parameters, a block each of the bottom, the interaction and the top; the first two may be empty.
  std::array<parameter_group, 3> groups() noexcept { return net_.groups(); }
  /// Of all groups together.
  std::int64_t parameter_count() const noexcept { return net_.parameter_count(); }
  /// All dense parameters by name, for checkpoints.
  std::vector<parameter_block> blocks() { return net_.blocks(); }

  /// Logits of a batch, (samples,), for training: hashed tables give new ids a row. They live in `saved`.
  /// @throws tessera::error shape_mismatch for a batch of another shape, and as `pooled_lookup`.
  template <execution Exec>
  vector_view<float> forward(Exec const& exec, batch_view const& batch, saved_type& saved) {
    lay_out(exec, batch, saved);
    auto const pooled = detail::vector_blocks(exec, net_.vectors(saved), net_.first_lookup(), feature_count(), dim(), dim());
    deduplicated_lookup(exec, tables_, features_, batch.inverse_keyed(), pooled.view(), saved.lookup);
    return net_.forward(exec, batch.dense, saved);
  }

  /// The same without changing the model: an id without a row reads as the row it would get. @throws as `forward`.
  template <execution Exec>
  vector_view<float> predict(Exec const& exec, batch_view const& batch, saved_type& saved) const {
    lay_out(exec, batch, saved);
    auto const pooled = detail::vector_blocks(exec, net_.vectors(saved), net_.first_lookup(), feature_count(), dim(), dim());
    deduplicated_lookup(exec, tables_, features_, batch.inverse_keyed(), pooled.view());
    return net_.forward(exec, batch.dense, saved);
  }

  /// Gradients of the forward that filled `saved`: of the dense parameters into `gradient` (parameter_count(),), group after group; of the
  /// vectors into `saved`. `logit_gradient` (samples,) may be overwritten. @throws tessera::error shape_mismatch.
  template <execution Exec>
  void backward(Exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient) const {
    detail::check_model_backward("click_model", saved.logits.size(), logit_gradient.size(), gradient.size(), parameter_count());
    net_.backward(exec, saved, logit_gradient, gradient);
  }

  /// Hands over to `saved` what `sort_ahead` has made for its batch; `sorted` is then of no batch.
  void use_order(saved_type& saved, row_order& sorted) const noexcept {
    std::swap(saved.lookup.lookup.order, sorted);
    sorted.clear();
  }

  /// Updates the rows that the forward read with the gradients that its backward left in `saved`; one optimizer for all tables, or a
  /// container of one a table.
  template <execution Exec, class RowOptimizers>
  void update_rows(Exec const& exec, saved_type& saved, RowOptimizers const& optimizers) {
    auto const gradients = pooled_gradients(exec, saved);
    deduplicated_lookup_backward(exec, tables_, features_, saved.lookup, gradients.view(), optimizers, {shared_gradients_});
  }

  /// The gradients of these rows instead of the update, to be clipped, added up or sent.
  template <execution Exec>
  void gradients_of_rows(Exec const& exec, saved_type& saved, row_gradients& out) const {
    auto const gradients = pooled_gradients(exec, saved);
    deduplicated_lookup_gradients(exec, tables_, features_, saved.lookup, gradients.view(), out, {shared_gradients_});
  }

 private:
  static std::int64_t dim_of(std::vector<Store> const& tables, std::vector<pooled_feature> const& features) {
    auto const dim = detail::dim_of_tables("click_model", tables);
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(tables.size()))
        throw error(errc::out_of_range, "click_model: no such table",
                    {{"feature", f}, {"table", features[f].table}, {"tables", tables.size()}});
    return dim;
  }

  template <execution Exec>
  buffer<matrix_view<float const>> pooled_gradients(Exec const& exec, saved_type& saved) const {
    return detail::vector_blocks(exec, matrix_view<float const>(net_.vector_gradients(saved)), net_.first_lookup(), feature_count(), dim(),
                                 dim());
  }

  void lay_out(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    detail::check_model_batch("click_model", batch.dense.columns(), net_.dense_features(), batch.sparse.keys, feature_count());
    net_.resize(exec, batch.samples(), saved);
  }

  shared_gradients shared_gradients_;
  std::vector<Store> tables_;
  std::vector<pooled_feature> features_;
  click_net<Gemm, Interaction> net_;
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

}  // namespace TESSERA_ABI
}  // namespace tessera
