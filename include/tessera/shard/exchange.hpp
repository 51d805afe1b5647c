// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/view.hpp>
#include <tessera/shard/flat_exchange_state.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Takes ids to the ranks that hold their rows, and vectors back. It is made of a communicator, a list of `exchanged_key`, the list of
/// `exchanged_block` that each rank makes of them, and codecs. A training step of all ranks, with what the caller keeps in `state`:
///
///     exchange.begin_ids(exec, batch, true, state);          // inputs: to the rows
///     exchange.receive_ids(exec, state);
///     auto const all = exchange.received_ids(exec, state);   // look up `all` into state.out()
///     exchange.begin_vectors(exec, state, nullptr);          // outputs: to the samples
///     exchange.finish_vectors(exec, state, out);
///     exchange.begin_gradients(exec, state, gradients);      // and back
///     exchange.finish_gradients(exec, state);                // update with state.gradients() and state.scales()
///
/// What comes is one batch, with a key for each block here and each rank. Its order is fixed: of each `section` of the blocks, those that
/// rank 0 sent, then those of rank 1. A `begin` takes a failure of this rank in place of what it would send; the next wait then throws on all
/// ranks. Vectors are the same whatever way they travel. `flat_exchange` is a model, on devices `device_exchange`.
template <class X>
concept exchange = requires(X const& x, typename X::execution_type const& exec, typename X::state_type& state,
                            typename X::state_type const& kept, keyed_jagged_view<std::int64_t const> batch, std::exception_ptr failure,
                            vector_view<matrix_view<float> const> out, vector_view<matrix_view<float const> const> gradients) {
  requires communicator<typename X::communicator_type>;
  requires std::constructible_from<X, typename X::communicator_type, std::vector<exchanged_key>, std::vector<std::vector<exchanged_block>>,
                                   exchange_codecs const&>;
  { x.comm() } -> std::convertible_to<typename X::communicator_type const&>;
  { x.rank() } -> std::same_as<std::size_t>;
  { x.ranks() } -> std::same_as<std::size_t>;
  { x.blocks_here() } -> std::convertible_to<std::vector<exchanged_block> const&>;
  x.begin_ids(exec, batch, true, state);
  x.begin_ids(exec, failure, state);
  x.receive_ids(exec, state);
  { x.received_ids(exec, state, std::int64_t{}) } -> std::same_as<keyed_jagged_view<std::int64_t const>>;
  x.begin_vectors(exec, state, failure);
  x.finish_vectors(exec, state, out);
  x.begin_gradients(exec, state, gradients);
  x.begin_gradients(exec, failure, state);
  x.finish_gradients(exec, state);
  { kept.out() } -> std::convertible_to<vector_view<matrix_view<float> const>>;
  { kept.gradients() } -> std::convertible_to<vector_view<matrix_view<float const> const>>;
  { kept.scales() } -> std::same_as<vector_view<float const>>;
  { kept.bytes() } -> std::same_as<std::size_t>;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
