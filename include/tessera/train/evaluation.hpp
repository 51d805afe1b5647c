// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/auc.hpp>
#include <tessera/nn/metrics.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a model is worth on a data set, each sample counting once. Mergeable, as its parts are.
struct evaluation {
  exact_auc auc;
  click_metrics clicks;

  void add(host_exec const& exec, vector_view<float const> logits, vector_view<float const> labels) {
    auc.add(logits, labels);
    clicks.add(exec, logits, labels);
  }
  void merge(evaluation const& other) {
    auc.merge(other.auc);
    clicks.merge(other.clicks);
  }
  void clear() noexcept {
    auc.clear();
    clicks.clear();
  }
  std::int64_t samples() const noexcept { return clicks.samples(); }
};
static_assert(metric<evaluation>);

/// Predicts one epoch of a reader without changing the model; calls `seen(batch, logits)`, if there is one, for each batch. It may throw
/// for a NaN among the logits, which `evaluation::add` refuses afterwards.
/// `Reader`: `next(exec, batch_view&)` as batch_reader has it. @throws as the reader, and as the model for a batch that does not fit it.
template <class Model, class Reader, class Seen>
evaluation evaluate(host_exec const& exec, Model const& model, Reader& reader, Seen const& seen) {
  evaluation result;
  typename Model::saved_type saved;
  for (batch_view batch; reader.next(exec, batch);) {
    vector_view<float const> const logits = model.predict(exec, batch, saved);
    seen(batch, logits);
    result.add(exec, logits, batch.labels);
  }
  return result;
}
template <class Model, class Reader>
evaluation evaluate(host_exec const& exec, Model const& model, Reader& reader) {
  return evaluate(exec, model, reader, [](batch_view const&, vector_view<float const>) {});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
