// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tower/peer_batch.hpp>
#include <tessera/tower/received_towers.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <tower_recipe Recipe>
class sptt_tables;

/// What `sptt_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
template <tower_recipe Recipe>
class sptt_saved {
 public:
  std::int64_t chunk_samples = 0;  ///< modules run by chunks of so many samples; 0: by source. It is set before `begin`, as the next
  std::int64_t first_chunk = 0;    ///< number of this rank's first chunk among those of all ranks

  /// Without what communicators hold.
  std::size_t bytes() const noexcept {
    return peers_.bytes() + exchanged_.bytes() + inner_.bytes() + received_.bytes() + made_.capacity_bytes();
  }

 private:
  friend class sptt_tables<Recipe>;

  enum class stage : std::uint8_t { none, begun, finished, gradients_sent, gradients_here };

  inverse_keyed_jagged_view<std::int64_t const> batch_;  // of this rank
  // What arrives changes nothing that a caller sees.
  mutable stage at_ = stage::none;
  mutable detail::peer_batch peers_;
  mutable flat_exchange_state exchanged_;
  mutable sharded_saved inner_;
  mutable detail::received_towers<Recipe> received_;
  // What towers made of this rank's samples, where the caller's blocks do not lie side by side; then its gradients.
  mutable buffer<float> made_;
  mutable vector_view<float> of_parameters_;
  mutable pending_sum<any_communicator> sum_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
