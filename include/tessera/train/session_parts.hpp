// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/session_pooling.hpp>
#include <tessera/train/session_sequences.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Features whose sequences are pooled together, to one vector a sample.
template <session_pooling Pooling>
struct sequence_group {
  std::vector<std::int64_t> tables;  // of each of its keys
  typename Pooling::options pooling;
  std::int64_t target = -1;  // where the pooling uses one: which of the pooled features

  sequence_group(std::vector<std::int64_t> tables, typename Pooling::options pooling, std::int64_t target = -1)
      : tables(std::move(tables)), pooling(std::move(pooling)), target(target) {}
};

/// Which sequences of a batch whose repeated rows are there once are pooled.
enum class pooled_rows : std::uint8_t {
  distinct,  ///< each distinct one once; what it pools to is expanded
  expanded,  ///< one a sample: lookups alone are shared. Where gradients are summed in the order of the expanded batch, always
};

/// Seconds that a model's steps took so far, by stage, forward and backward together.
struct session_times {
  double sequence_lookup = 0;  ///< of single ids, and putting their vectors together
  double pooling = 0;          ///< of sequences
  double pooled_lookup = 0;    ///< of bags
  double dense = 0;            ///< bottom, interaction and top
  double sequence_update = 0;  ///< of the rows of sequences; of all rows where a table is of sequences and of bags
  double pooled_update = 0;    ///< of the rows of bags
};

/// What a session model's backward needs of its forward. The caller owns it, any number may be in flight; the batch must outlive it.
template <feature_interaction Interaction, session_pooling Pooling>
struct session_model_saved : click_net_saved<Interaction> {  // its vectors: the bottom's, if any, the groups', the pooled features'
  deduplicated_saved lookup;                                 // of the pooled features
  std::vector<row_group> pooled_groups;                      // those of the batch behind the sequences, counted from the first pooled key
  lookup_saved sequence_lookup;                              // of the sequences' distinct rows
  vector_view<row_group const> sequence_groups;              // those of the batch that are sequences, or none
  std::vector<detail::group_sequences> sequences;            // of each group: its vectors, and after the backward their gradients
  std::vector<typename Pooling::saved> pooled;               // of each group
  row_gradients rows;                                        // where a table is of sequences and of bags: what its update takes
  session_times times;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
