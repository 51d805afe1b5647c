// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/learned_cost.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A learned cost with `beta` standard deviations over its networks added to each mean. A search by it avoids plans that networks disagree
/// about: those far from what was measured, which a mean may take for cheap. Costs of devices take memory, for what each network says.
class cautious_cost {
 public:
  /// Refers to the model, which outlives it. @throws tessera::error invalid_argument for a beta that is negative or not finite.
  cautious_cost(learned_cost const& model, double beta) : model_(&model), beta_(beta) {
    if (!(beta >= 0) || !std::isfinite(beta))
      throw error(errc::invalid_argument, "cautious_cost: beta is finite and not negative", {{"beta", beta}});
  }

  std::int64_t width() const noexcept { return model_->width(); }
  std::int64_t devices() const noexcept { return model_->devices(); }
  /// See `cost_model`, here and below.
  void represent(vector_view<table_profile const> shards, matrix_view<float> to) const noexcept(!checks_indices) {
    model_->represent(shards, to);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = cautious(model_->compute.predict_sum({sums.row(d), sums.columns()}));
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const { exchange(model_->backward, columns, {}, ms); }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
    exchange(model_->forward, columns, starts_ms, ms);
  }

 private:
  float cautious(predicted_cost const& cost) const noexcept { return static_cast<float>(cost.mean + beta_ * cost.spread); }
  void exchange(learned_exchange const& by, vector_view<float const> columns, vector_view<float const> starts_ms,
                vector_view<float> ms) const {
    auto const costs = by.predict(columns, starts_ms, model_->batch_samples);
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = cautious(costs[static_cast<std::size_t>(d)]);
  }

  learned_cost const* model_;
  double beta_;
};
static_assert(cost_model<cautious_cost>);

}  // namespace TESSERA_ABI
}  // namespace tessera
