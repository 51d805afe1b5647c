// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/shard/device_split_ids.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

template <communicator Comm>
class device_exchange;

/// What a `device_exchange` keeps of a batch. Its memory is kept from batch to batch.
template <communicator Comm>
class device_exchange_state {
  using exec_type = typename Comm::execution_type;
  static_assert(device_execution<exec_type>, "of ranks on the host, flat_exchange_state");

 public:
  /// Of the device, without what the communicator holds.
  std::size_t bytes() const noexcept {
    return ids_.capacity_bytes() + wire_.capacity_bytes() + offsets_.capacity_bytes() + values_.capacity_bytes() +
           weights_.capacity_bytes() + vectors_.capacity_bytes() + gradients_.capacity_bytes() + split_.bytes() + apart_.capacity_bytes();
  }
  /// Where the vectors of the keys of the batch that came go, or their gradients are.
  std::vector<matrix_view<float>> const& out() const noexcept { return out_; }
  /// The gradients of these vectors, after `finish_gradients`.
  std::vector<matrix_view<float const>> const& gradients() const noexcept { return gradients_here_; }
  /// None: gradients are of whole bags, or of single ids whose vectors go to the caller.
  vector_view<float const> scales() const noexcept { return {}; }

 private:
  friend class device_exchange<Comm>;

  // A message to each rank, one after the other.
  template <class T>
  struct messages {
    buffer<T, exec_type> memory;
    std::vector<std::int64_t> starts;  // (ranks + 1,); or none: a failure is sent

    std::size_t capacity_bytes() const noexcept { return memory.capacity_bytes(); }
    T* to(std::size_t r) noexcept { return memory.data() + starts[r]; }
    vector_view<T const> view(std::size_t r) const noexcept {
      if (starts.empty()) return {};
      return {memory.data() + starts[r], starts[r + 1] - starts[r]};
    }
  };

  messages<std::byte> ids_;
  detail::device_split_ids<exec_type> split_;    // of keys that are cut by rows
  buffer<float, exec_type> apart_;               // of such keys: sums behind a codec, and gradients of means
  std::vector<std::vector<std::int64_t>> rows_;  // of each rank's blocks: vectors that come back
  std::vector<std::int64_t> first_row_;          // what all ranks sent, as one batch; the host's
  buffer<std::int64_t, exec_type> values_, offsets_;
  buffer<float, exec_type> weights_;
  messages<float> vectors_;             // as they are looked up
  messages<std::byte> wire_;            // encoded vectors, then encoded gradients
  buffer<float, exec_type> gradients_;  // of all ranks, as they are decoded
  std::vector<matrix_view<float>> out_;
  std::vector<matrix_view<float const>> gradients_here_;
  std::vector<vector_view<std::byte const>> received_;  // ids of each rank, in the communicator's memory
  typename Comm::pending_type pending_;                 // of ids, of vectors, then of gradients; it ends before what it sends
};

}  // namespace TESSERA_ABI
}  // namespace tessera
