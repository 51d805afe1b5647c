// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/local_tables.cuh>
#include <tessera/shard/batch_counts.cuh>
#include <tessera/shard/device_exchange.cuh>
#include <tessera/shard/exchange.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An exchange between devices that sends ids which are counted already, and waits for a stream within the limit of its communicator.
/// `device_exchange` is a model.
template <class X>
concept counted_exchange = exchange<X> && device_execution<typename X::execution_type> &&
    requires(X const& x, typename X::execution_type const& exec, typename X::state_type& state, keyed_jagged_view<std::int64_t const> batch,
             batch_counts const& counts) {
  x.begin_ids(exec, batch, counts, true, state);
  x.wait(exec);
};

template <counted_exchange Exchange>
class basic_device_sharded_tables;

/// What `device_sharded_tables` keeps of a batch from `begin` to the end of its backward. Its memory is kept from batch to batch.
template <counted_exchange Exchange>
class basic_device_sharded_saved {
 public:
  /// Without what the communicator holds.
  std::size_t bytes() const noexcept { return exchanged_.bytes() + inner_.bytes(); }

 private:
  friend class basic_device_sharded_tables<Exchange>;

  enum class stage : std::uint8_t { none, begun, ids_here, finished, gradients_sent, gradients_here };

  inverse_keyed_jagged_view<std::int64_t const> batch_;  // of this rank
  batch_counts counts_;
  keyed_jagged_view<std::int64_t const> all_;  // of all ranks, for the shards here
  // What arrives changes nothing that a caller sees.
  mutable stage at_ = stage::none;
  mutable typename Exchange::state_type exchanged_;
  mutable device_tables_saved<typename Exchange::execution_type> inner_;
};

/// What `device_sharded_tables` keeps of a batch over such a communicator.
template <communicator Comm>
using device_sharded_saved = basic_device_sharded_saved<device_exchange<Comm>>;

}  // namespace TESSERA_ABI
}  // namespace tessera
