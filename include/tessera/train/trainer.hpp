// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/batch.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/train/dlrm.hpp>

namespace tessera::inline TESSERA_ABI {

/// Everything beside the model that a training run carries from step to step: gradients, dense optimizer state, what a forward saves.
/// What grows with the batch comes from the memory of the execution of the step, which outlives the trainer; with an `arena` there a step
/// allocates nothing once batches have stopped growing.
template <class Model, row_optimizer RowOptimizer, dense_optimizer DenseOptimizer>
class trainer {
 public:
  /// Refers to the model. Its tables were built for this kind of row optimizer.
  trainer(host_exec const& exec, Model& model, RowOptimizer const& row_optimizer, DenseOptimizer const& dense_optimizer)
      : model_(&model),
        row_optimizer_(row_optimizer),
        dense_optimizer_(dense_optimizer),
        bottom_gradient_(exec, model.bottom().parameters().size()),
        top_gradient_(exec, model.top().parameters().size()),
        bottom_state_(exec, model.bottom().parameters().size(), dense_optimizer),
        top_state_(exec, model.top().parameters().size(), dense_optimizer) {}

  /// Beside the model: gradients and dense optimizer states, without what a step saves.
  std::size_t bytes() const noexcept {
    return bottom_gradient_.capacity_bytes() + top_gradient_.capacity_bytes() + bottom_state_.bytes() + top_state_.bytes();
  }

  Model& model() noexcept { return *model_; }
  Model const& model() const noexcept { return *model_; }
  /// May be exchanged between steps, for a schedule.
  RowOptimizer& row_optimizer() noexcept { return row_optimizer_; }
  DenseOptimizer& dense_optimizer() noexcept { return dense_optimizer_; }
  /// Of the bottom and of the top MLP, in this order.
  std::array<dense_optimizer_state*, 2> dense_states() noexcept { return {&bottom_state_, &top_state_}; }

  /// One step of binary cross entropy: forward, loss, backward, update. Returns the batch's mean loss before the update; `logits()` are
  /// those the loss was computed from.
  template <execution Exec>
  double step(Exec const& exec, batch_view const& batch) {
    auto const logits = model_->forward(exec, batch, saved_);
    logit_gradient_.resize(exec, logits.size());
    auto const loss = bce_with_logits(exec, logits, batch.labels, logit_gradient_.view());
    model_->backward(exec, saved_, logit_gradient_.view(), bottom_gradient_.view(), top_gradient_.view(), row_optimizer_);
    dense_update(exec, model_->bottom().parameters(), bottom_gradient_.view(), bottom_state_, dense_optimizer_);
    dense_update(exec, model_->top().parameters(), top_gradient_.view(), top_state_, dense_optimizer_);
    return loss;
  }

  vector_view<float const> logits() const noexcept { return saved_.logits.view(); }

 private:
  Model* model_;
  RowOptimizer row_optimizer_;
  DenseOptimizer dense_optimizer_;
  buffer<float> bottom_gradient_, top_gradient_;
  dense_optimizer_state bottom_state_, top_state_;
  dlrm_saved saved_;
  buffer<float> logit_gradient_;
};

}  // namespace tessera::inline TESSERA_ABI
