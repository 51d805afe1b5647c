// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tower/tower_ranks.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// What peers tell each other of a batch: its keys. For modules they also tell which of a key's rows each sample has, how many samples there
/// are, and the number of the first chunk. All of it are keys of one batch, in sections: what is for modules, then features.
struct peer_keys {
  std::int64_t features = 0, towers = 0;
  bool has_modules = false;

  /// The numbers of keys: of a feature itself, of the rows that samples have of it, of what a tower makes, of the first chunk.
  std::int64_t rows_of(std::int64_t feature) const noexcept { return features + feature; }
  std::int64_t made_by(std::int64_t tower) const noexcept { return 2 * features + tower; }
  std::int64_t chunk() const noexcept { return 2 * features + towers; }
  std::int64_t size() const noexcept { return has_modules ? chunk() + 1 : features; }

  /// The places of a module's features in the order in which they say their rows: the last number first. So those of a group are neighbours,
  /// behind those of no group.
  static std::vector<std::size_t> last_first(tower_shape const& shape);

  /// What an exchange does with them.
  std::vector<exchanged_key> keys(std::vector<table_spec> const& specs, std::vector<table_feature> const& of) const;

  /// What the ranks of each group make of a peer's batch. `of` are the outputs of all features.
  std::vector<std::vector<exchanged_block>> blocks(std::vector<tower_shape> const& shapes, tower_ranks const& ranks,
                                                   std::vector<embedding_output> const& of) const;
};

/// A batch of such keys. Its memory is kept from batch to batch.
class peer_batch {
 public:
  /// The batch itself without modules, else a copy with further keys. It lives until the next call.
  keyed_jagged_view<std::int64_t const> make(host_exec const& exec, peer_keys const& keys, std::vector<tower_shape> const& shapes,
                                             batch_view const& batch, std::int64_t first_chunk);

  std::size_t bytes() const noexcept { return values_.capacity_bytes() + offsets_.capacity_bytes() + weights_.capacity_bytes(); }

 private:
  std::vector<std::int64_t> first_row_;
  buffer<std::int64_t> values_, offsets_;
  buffer<float> weights_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/peer_batch.ipp>
#endif
