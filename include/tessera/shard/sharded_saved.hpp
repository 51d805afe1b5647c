// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/shard/copied_sums.hpp>
#include <tessera/shard/exchange.hpp>
#include <tessera/shard/pooled_ids.hpp>
#include <tessera/shard/sample_rows.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <exchange Exchange>
class basic_sharded_tables;

/// What `sharded_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
template <exchange Exchange>
class basic_sharded_saved {
 public:
  /// Without what the communicator holds.
  std::size_t bytes() const noexcept {
    return exchanged_.bytes() + inner_.bytes() + pooled_.bytes() + samples_.bytes() + copied_.bytes() + sum_.bytes();
  }

 private:
  friend class basic_sharded_tables<Exchange>;

  enum class stage : std::uint8_t { none, begun, ids_here, finished, gradients_sent, gradients_here };

  inverse_keyed_jagged_view<std::int64_t const> batch_;  // of this rank
  keyed_jagged_view<std::int64_t const> all_;            // of all ranks, for the shards here
  // What arrives changes nothing that a caller sees.
  mutable stage at_ = stage::none;
  mutable typename Exchange::state_type exchanged_;
  mutable local_tables_saved inner_;
  mutable detail::pooled_ids pooled_;    // of keys that are cut by rows, or of tables that all ranks have
  mutable detail::sample_rows samples_;  // where gradients of all samples travel
  mutable detail::copied_sums copied_;   // of tables that all ranks have
  row_gradients sum_;                    // of tables that all ranks have, where there are such
};

}  // namespace TESSERA_ABI
}  // namespace tessera
