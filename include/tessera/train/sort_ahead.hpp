// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/execution.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Lets a model's source prepare the batches that a `prefetching_reader` reads ahead. Reading and sorting run while the step before runs.
///
///     background_thread thread;
///     prefetching_reader ahead(reader_exec, thread, reader, {}, sort_ahead(model));
///     for (batch_view batch; ahead.next(exec, batch);) run.step(exec, batch, ahead.prepared());
///
/// The bits are those of the plain loop. The model must outlive the reader. The memory of `reader_exec` must outlive the trainer,
/// which keeps pieces of that memory and gives them back on its own thread.
template <class Model>
class sort_ahead {
 public:
  /// What `trainer::step` takes beside the batch.
  using state = typename Model::source_type::prepared_type;

  /// Refers to `model`.
  explicit sort_ahead(Model const& model) noexcept : model_(&model) {}

  /// Prepares a batch on the thread that calls, beside steps of the model on another. @throws what `prepare` of the source throws.
  void operator()(host_exec const& exec, batch_view const& batch, state& prepared) const {
    model_->source().prepare(exec, batch, prepared);
  }

 private:
  Model const* model_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
