// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/execution.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/row_order.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Sorts the ids of batches that a `prefetching_reader` reads ahead, so that reading, sorting and the step of the batch before run at once:
///
///     prefetching_reader ahead(reader_exec, reader, {}, sort_ahead(model));
///     for (batch_view batch; ahead.next(exec, batch);) run.step(exec, batch, ahead.prepared());
///
/// The bits are those of the plain loop. Where slots are not ids there is nothing to sort before the batch's turn: rows appear in the order of
/// the steps, so such models only read ahead. The model outlives it; the memory of `reader_exec` outlives the trainer, which keeps pieces
/// of it and gives them back on its own thread.
template <class Model>
class sort_ahead {
 public:
  /// What `trainer::step` takes beside the batch.
  using state = row_order;

  explicit sort_ahead(Model const& model) noexcept : model_(&model) {}

  void operator()(host_exec const& exec, batch_view const& batch, row_order& order) const {
    order.clear();
    if constexpr (Model::store::slots_are_ids) {
      if (!batch.groups.empty() && model_->sums() == shared_gradients::expanded) return;  // it sorts what the step expands
      prepare_backward(exec, model_->tables(), model_->features(), batch.sparse, order);
    }
  }

 private:
  Model const* model_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
