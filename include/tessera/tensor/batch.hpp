// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Whether every embedding row of a batch is known to be replicated everywhere (hot), or some are not (cold), or nobody asked (mixed).
enum class batch_class : std::uint8_t { mixed, hot, cold };

/// What a model reads, and who the batch is. Trivially copyable.
struct batch_view {
  // (samples, dense features), preprocessed; without dense features {nullptr, samples, 0}, as its rows are the samples.
  matrix_view<float const> dense;
  vector_view<float const> labels;                // (samples,), 0 or 1
  keyed_jagged_view<std::int64_t const> sparse;   // one key a sparse feature; its rows: a sample each, distinct ones of keys in groups
  vector_view<std::int64_t const> sample_ids;     // (samples,): row number of the sample in its data set; or empty
  vector_view<std::int64_t const> session_ids{};  // (samples,), or empty where samples belong to no session
  std::int64_t id = 0;                            // batches of the run before this one
  std::int64_t epoch = 0;                         // epochs of the run before this one
  batch_class kind = batch_class::mixed;
  vector_view<row_group const> groups{};    // (groups,), of the first keys: repeated rows are there once; none: a row a sample in every key
  vector_view<float const> weights{};       // (samples,): what a sample counts in loss and metrics, finite, not negative; empty: 1 each
  matrix_view<float const> other_labels{};  // (samples, further tasks), or empty
  vector_view<std::string const> key_names{};  // (keys,), on the host: a model refuses keys that it was not made for; or empty

  TESSERA_HOST_DEVICE constexpr std::int64_t samples() const noexcept { return dense.rows(); }
  /// The sparse features with what says which row each sample has.
  TESSERA_HOST_DEVICE constexpr inverse_keyed_jagged_view<std::int64_t const> inverse_keyed() const noexcept {
    return {sparse, groups, samples()};
  }
};
static_assert(std::is_trivially_copyable_v<batch_view>);

}  // namespace TESSERA_ABI
}  // namespace tessera
