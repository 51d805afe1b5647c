// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/execution.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Lets a model's source prepare batches that a `prefetching_reader` reads ahead, so that reading, sorting and the step of the batch before run at
/// once:
///
///     prefetching_reader ahead(reader_exec, reader, {}, sort_ahead(model));
///     for (batch_view batch; ahead.next(exec, batch);) run.step(exec, batch, ahead.prepared());
///
/// The bits are those of the plain loop. The model outlives it; the memory of `reader_exec` outlives the trainer, which keeps pieces of it and
/// gives them back on its own thread.
template <class Model>
class sort_ahead {
 public:
  /// What `trainer::step` takes beside the batch.
  using state = typename Model::source_type::prepared_type;

  explicit sort_ahead(Model const& model) noexcept : model_(&model) {}

  void operator()(host_exec const& exec, batch_view const& batch, state& prepared) const {
    model_->source().prepare(exec, batch, prepared);
  }

 private:
  Model const* model_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
