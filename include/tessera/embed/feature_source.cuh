// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/device.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooled_lookup_backward.cuh>
#include <tessera/embed/row_sums.cuh>
#include <tessera/embed/sequence_lookup_backward.cuh>
#include <tessera/tensor/keyed_jagged.hpp>

/// The gradients of values on a device, where some keys are pooled and others are sequences. Tables that both kinds read make one step, and
/// each row's gradient is summed in canonical order over all of its values.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Finds the gradient of a value: by its bag where the batch is unweighted and has no sequences, else by its position.
struct feature_source {
  pooled_source pooled;             // of all keys
  sequence_source sequences;        // of all keys
  std::uint8_t const* is_sequence;  // of each key with rows, or nullptr: none is

  template <class Index>
  TESSERA_DEVICE value_gradient operator()(Index source) const {
    if (is_sequence != nullptr && is_sequence[pooled.key_of(pooled.row_of(static_cast<std::int64_t>(source)))] != 0)
      return sequences(source);
    return pooled(source);
  }
};

/// The source of a call, and the memory that it reads. It waits where a batch with sequences or weights does not say its `room`.
template <class Exec>
class feature_source_on_device {
 public:
  template <class Feature>
  feature_source_on_device(Exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                           vector_view<matrix_view<float const> const> gradients)
      : pooled_(exec, features, batch, gradients) {
    std::vector<std::uint8_t> is_sequence;
    for (std::int64_t key = 0; key < batch.keys; ++key)
      if (batch.rows(key) > 0) is_sequence.push_back(detail::is_sequence(features[key]) ? 1 : 0);
    if (std::count(is_sequence.begin(), is_sequence.end(), 1) == 0) return;
    sequences_.emplace(exec, features, batch, gradients);
    is_sequence_ = to_device(exec, is_sequence);
  }

  feature_source get() const noexcept { return {pooled_.get(), sequences_ ? sequences_->get() : sequence_source{}, is_sequence_.data()}; }

 private:
  pooled_source_on_device<Exec> pooled_;
  std::optional<sequence_source_on_device<Exec>> sequences_;
  buffer<std::uint8_t, Exec> is_sequence_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
