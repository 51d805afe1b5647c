// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/gathered_predictions.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How well a model predicts a data set, each sample counting once, whatever its weight. It is a `metric`, so parts of a data set merge.
struct evaluation {
  exact_auc auc;         ///< area under the ROC curve
  click_metrics clicks;  ///< log loss, normalised entropy and calibration

  /// Adds samples, with `logits` (n,), finite, and `labels` (n,), 0 or 1.
  /// @throws tessera::error shape_mismatch; invalid_argument naming the first value that is none of these. Then nothing was added.
  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels) {
    detail::check_ranked("evaluation", logits, labels);  // the log loss takes labels between, and the AUC infinite logits
    clicks.add(exec, logits, labels);
    auc.add(logits, labels);
  }
  /// Makes this the evaluation of the samples of both.
  void merge(evaluation const& other) {
    auc.merge(other.auc);
    clicks.merge(other.clicks);
  }
  /// Forgets all samples, and keeps the memory.
  void clear() noexcept {
    auc.clear();
    clicks.clear();
  }
  /// How many samples were added.
  std::int64_t samples() const noexcept { return clicks.samples(); }
};
static_assert(metric<evaluation>);

namespace detail {

// Lets a model predict by chunks, where it can.
template <class Model>
void run_by_chunks(typename Model::saved_type& saved, std::int64_t chunk_samples) {
  if (chunk_samples == 0) return;
  constexpr bool has_chunks = requires { saved.chunk_samples; };
  if (chunk_samples < 0 || !has_chunks)
    throw error(errc::invalid_argument, "evaluate: no such chunks, or a model that does not run by chunks",
                {{"chunk_samples", chunk_samples}});
  if constexpr (has_chunks) saved.chunk_samples = chunk_samples;
}

}  // namespace detail

/// Predicts one epoch of a reader without changing the model, and evaluates the predictions.
/// `seen(batch, logits)`, with `logits` (samples,), is called for each batch before it counts.
/// `Reader` has `next(exec, batch_view&)`, which gives a batch, or returns false where the epoch ends. With `chunk_samples`, the dense net
/// runs by chunks of so many samples, as `trainer_options` say.
/// @throws what the reader, `seen` and `evaluation::add` throw, and what `predict` of the model throws for a batch that does not fit.
template <class Model, class Reader, class Seen>
evaluation evaluate(host_exec const& exec, Model const& model, Reader& reader, Seen const& seen, std::int64_t chunk_samples = 0) {
  evaluation result;
  typename Model::saved_type saved;
  detail::run_by_chunks<Model>(saved, chunk_samples);
  for (batch_view batch; reader.next(exec, batch);) {
    vector_view<float const> const logits = model.predict(exec, batch, saved);
    seen(batch, logits);
    result.add(exec, logits, batch.labels);
  }
  return result;
}
/// Predicts and evaluates one epoch on several ranks, whose readers give a slice of every batch each. All ranks call it, and all have the
/// result, which has the bits of one process with the same predictions. With chunks, predictions have the same bits on any number of ranks,
/// whose slices are of whole chunks. `seen` is called with the labels, ids and logits of all ranks' samples.
/// @throws as above. A rank that throws leaves by `fail`; then the others throw tessera::error rank_failed.
template <class Model, class Reader, class Seen>
evaluation evaluate(host_exec const& exec, any_communicator& comm, Model const& model, Reader& reader, Seen const& seen,
                    std::int64_t chunk_samples = 0) {
  evaluation result;
  typename Model::saved_type saved;
  detail::run_by_chunks<Model>(saved, chunk_samples);
  gathered_predictions all;
  try {
    for (batch_view batch; reader.next(exec, batch);) {
      all.gather(exec, comm, batch, model.predict(exec, batch, saved));
      seen(all.batch(), all.logits());
      result.add(exec, all.logits(), all.batch().labels);
    }
    barrier(exec, comm, "evaluation of all batches");  // so that none goes on where the last batch was another's end
  } catch (std::exception const& e) {
    comm.fail(e.what());
    throw;
  }
  return result;
}
/// Evaluates one epoch of a reader without a call for each batch.
template <class Model, class Reader>
evaluation evaluate(host_exec const& exec, Model const& model, Reader& reader) {
  return evaluate(exec, model, reader, [](batch_view const&, vector_view<float const>) {});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
