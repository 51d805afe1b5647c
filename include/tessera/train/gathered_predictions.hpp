// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What all ranks predicted of their parts of a batch, rank 0's samples first, so that each rank can judge the whole batch. Its memory is
/// kept from batch to batch.
class gathered_predictions {
 public:
  /// Replaces what was gathered. All ranks call it, each with its part of the batch and the logits (samples,) of that.
  /// Samples of a batch without ids have -1. @throws tessera::error shape_mismatch for logits, labels and ids that are not as many; and as
  /// `communicator` says.
  void gather(host_exec const& exec, any_communicator& comm, batch_view const& part, vector_view<float const> logits) {
    own_.clear();
    std::exception_ptr failure;
    bool const has_ids = !part.sample_ids.empty();
    if (part.labels.size() != logits.size() || (has_ids && part.sample_ids.size() != logits.size()))
      failure =
          std::make_exception_ptr(error(errc::shape_mismatch, "gathered_predictions: a logit, a label and an id for each sample",
                                        {{"logits", logits.size()}, {"labels", part.labels.size()}, {"ids", part.sample_ids.size()}}));
    for (std::int64_t i = 0; i < logits.size() && failure == nullptr; ++i)
      own_.push_back({has_ids ? part.sample_ids[i] : -1, part.labels[i], logits[i]});
    logits_.clear();
    labels_.clear();
    ids_.clear();
    for (auto const& of_rank : all_gather<sample>(exec, comm, own_, pending_, "predictions of a batch", failure))
      for (auto const& one : of_rank) {
        ids_.push_back(one.id);
        labels_.push_back(one.label);
        logits_.push_back(one.logit);
      }
  }

  /// The logits of all samples.
  vector_view<float const> logits() const noexcept { return logits_; }
  /// The labels of all samples, and their ids.
  batch_view batch() const noexcept {
    batch_view all;
    all.labels = labels_;
    all.sample_ids = ids_;
    return all;
  }

 private:
  struct sample {
    std::int64_t id;
    float label, logit;
  };

  std::vector<sample> own_;
  std::vector<float> logits_, labels_;
  std::vector<std::int64_t> ids_;
  any_pending pending_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
