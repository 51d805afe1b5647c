// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/group_sequences.hpp>
#include <tessera/train/projected_vectors.hpp>
#include <tessera/train/sequence_pooler.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Seconds that a model's training steps have taken so far, by stage. Forward and backward count together.
struct model_times {
  double lookup = 0;   ///< the source's forward, and joining sequences
  double pooling = 0;  ///< pooling sequences
  double dense = 0;    ///< bottom, interaction, top and projections
  double update = 0;   ///< the source's backward, and its update of rows
};

/// What a click model's backward needs of its forward. The caller owns a `saved`, and any number of them may be in flight.
/// The batch must outlive its `saved`.
template <embedding_source Source, feature_interaction Interaction, sequence_pooler Pooling>
struct click_model_saved : click_net_saved<Interaction> {
  typename Source::saved_type source;              ///< what the source keeps of the batch
  buffer<matrix_view<float>> out;                  ///< (outputs,): where the vectors of each output are
  buffer<matrix_view<float const>> gradients;      ///< (outputs,): gradients of those vectors, after the backward
  std::vector<detail::group_sequences> sequences;  ///< of each sequence group
  std::vector<typename Pooling::saved> pooled;     ///< what the pooling of each sequence group saved
  detail::projected_saved projected;               ///< what the projections keep
  model_times times;                               ///< of all steps with this `saved`
};

}  // namespace TESSERA_ABI
}  // namespace tessera
