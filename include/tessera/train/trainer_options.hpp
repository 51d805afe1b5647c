// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/nn/dense_optimizer.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class O>
using is_dense_optimizer = std::bool_constant<dense_optimizer<O>>;

// The one that is judged for a choice, so that a compiler can say what it lacks: of a variant the first that does not fit, else the last.
template <template <class> class Fits, class O>
struct judged {
  using type = O;
};
template <template <class> class Fits, class First, class Second, class... Rest>
struct judged<Fits, std::variant<First, Second, Rest...>> : judged<Fits, std::variant<Second, Rest...>> {};
template <template <class> class Fits, class First, class Second, class... Rest>
  requires(!Fits<First>::value)
struct judged<Fits, std::variant<First, Second, Rest...>> {
  using type = First;
};
template <template <class> class Fits, class Last>
struct judged<Fits, std::variant<Last>> {
  using type = Last;
};

}  // namespace detail

/// An optimizer of dense parameters, or a std::variant of some.
template <class O>
concept dense_optimizer_choice = dense_optimizer<typename detail::judged<detail::is_dense_optimizer, O>::type>;

/// Calls `f` with the optimizer that `choice` is, or holds, and returns what `f` returns.
template <class Choice, class F>
decltype(auto) with_optimizer(Choice& choice, F const& f) {
  if constexpr (requires { choice.index(); })
    return std::visit(f, choice);
  else
    return f(choice);
}

/// What a trainer does with gradients before it updates.
struct trainer_options {
  /// The largest norm of all gradients together, those of dense parameters and of rows. Larger ones are scaled down to it; 0: none are.
  /// The norm is summed by table and slot, so where the same rows have other slots, the last bits of a clipped step may differ.
  /// Slots differ in another kind of store, and in a resumed run where rows had left their table or may leave it.
  float clip_norm = 0;
  /// The ranks that train together, each with a part of every batch. All of them make the same calls. None: this process trains alone.
  ///
  /// The mean loss is that of all ranks' samples by their weights, and `step` returns it on each rank. Gradients of dense parameters are
  /// summed over the ranks that hold them, in the order of `rank_sums`; a norm is that of all ranks' gradients. The source takes the
  /// gradients of this rank's samples: what rows are shared is its own affair. A rank's part of a batch may be empty.
  ///
  /// Where ranks disagree about a batch before any of them changes, all throw: those whose data were good errc::rank_failed.
  std::optional<any_communicator> comm = {};
  /// How these ranks lie. Gradients are then summed level by level, as `split_by_levels` says: hosts with several ranks send less to others.
  /// None: in the order of ranks. All ranks give the same.
  std::optional<topology> levels = {};
  /// The dense net and the pooling of sequences run by chunks of so many samples of all ranks' batch, whose gradients, weights and losses a `sum_tree` adds. So the bits
  /// are those of any number of ranks, one without a `comm` included, over a source that keeps them as well. Every rank's samples begin with
  /// a whole chunk (`batch_slice::chunk_samples`). A `clip_norm` still depends on ranks in its last bits. 0: no chunks.
  std::int64_t chunk_samples = 0;
  /// Sums over ranks begin, while `step` goes backward, with parts of the gradient of so many bytes at least. The bits are the same.
  /// Over MPI it wants an `mpi_progress_thread`. 0: when the backward is done. With chunks, a `clip_norm` or accumulated gradients it does nothing.
  std::int64_t bucket_bytes = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
