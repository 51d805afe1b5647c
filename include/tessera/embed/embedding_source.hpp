// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A block of vectors that a source makes of a batch.
struct embedding_output {
  std::string name;                 ///< of the key that it is made of, as batches name it; or of what several were made into
  std::int64_t width = 0;           ///< floats of a vector
  std::int64_t key = -1;            ///< of the batch, of which it is made; -1: of several
  bool sequence = false;            ///< a vector for each id of the key's rows, one row after the other; else one for each sample
  bool expanded_gradients = false;  ///< of a sequence whose repeated rows are there once: gradients are those of each sample's row
  std::int64_t table = -1;          ///< number of the whole table that it is read from, for checkpoints; -1: not known
  tessera::pooling pooling = tessera::pooling::sum;
};

/// A source with dense parameters of its own, which a trainer updates with the model's. `groups()` is a std::vector<parameter_group>.
/// `blocks()` is a std::vector<parameter_block>, whose memory stays where it is when the source moves. `parameter_count()` is the sum over
/// all groups. `begin_backward` has one more argument, `of_parameters` (parameter_count(),): the backward overwrites them with gradients, group
/// after group, which are final when `finish_backward` or `gradients` returns. Those of `replication::tower` are then sums over the tower's
/// ranks. A source that runs by chunks of samples has `chunk_samples` and `first_chunk` in its `saved`, which the model sets before `begin`.
template <class S>
concept owns_parameters = requires(S& source, S const& held) {
  source.groups();
  source.blocks();
  { held.parameter_count() } -> std::same_as<std::int64_t>;
};

/// A source that reads hot rows from replicas of them on every rank, and only the others where its tables lie. It says so by
/// `static constexpr bool has_hot_replicas = true`, which an adaptor passes on.
template <class S>
concept reads_hot_replicas = requires {
  requires S::has_hot_replicas;
};

namespace detail {

template <class S>
concept takes_gradients = requires(S& source, typename S::execution_type const& exec, typename S::saved_type& saved,
                                   vector_view<matrix_view<float const> const> gradients) {
  source.begin_backward(exec, saved, gradients);
};
template <class S>
concept takes_gradients_of_parameters = requires(S& source, typename S::execution_type const& exec, typename S::saved_type& saved,
                                                 vector_view<matrix_view<float const> const> gradients, vector_view<float> of_parameters) {
  source.begin_backward(exec, saved, gradients, of_parameters);
};

}  // namespace detail

/// Where a model gets its vectors from. A source owns rows, wherever they are, and updates them by its own optimizers. A model knows only
/// the source's outputs. Tables of this process are a source (`local_tables`, on a device `device_tables`). Tables elsewhere are one, too,
/// and so is an adaptor of another source (`source_adaptor`).
///
/// A training step of a batch, with what the caller keeps in `saved`:
///
///     source.begin(exec, batch, saved);                    // what may start before the rest of the step: locate, send
///     source.finish(exec, saved, out);                     // each output into its block
///     source.begin_backward(exec, saved, gradients);       // a gradient for each vector
///     source.finish_backward(exec, saved);                 // rows are updated: one optimizer step
///
/// - `outputs()` lists the blocks. `out` and `gradients` are (outputs,) matrices of any row stride: (samples; width), or (ids of the key's
///   rows; width) for a sequence. The batch, the list of gradients and the matrices must stay until `finish_backward`.
/// - Any number of batches may be between their `begin` and their last call, each with its own `saved`. A `saved` may be used again.
/// - `gradients(exec, saved, sum)` replaces `finish_backward`: it gives the gradients of rows, to be clipped, sent, or added up.
/// - `apply(exec, sum)` then makes the step. @post the same bits as `finish_backward`, where nothing changed `sum` in between.
/// - `predict(exec, batch, out)` writes the same vectors and changes nothing.
/// - `prepare(exec, batch, prepared)` does ahead what depends on nothing that steps change; another thread may call it. The step is then
///   `begin(exec, batch, saved, prepared)`, which takes the content of `prepared` and leaves the memory. A default-made `prepared`, or one
///   that was taken, is of no batch; `begin` then does the work itself.
/// - `parts()` lists what of its tables lies here, for checkpoints and checks (embed/table_part.hpp). Part t is table t, unless `places()`
///   says otherwise (embed/table_places.hpp).
/// - `bytes()` is the memory of all that it holds here.
///
/// After an exception the source is as before the call, unless its own contract says otherwise.
template <class S>
concept embedding_source = requires(S& source, S const& held, typename S::execution_type const& exec, batch_view const& batch,
                                    typename S::saved_type& saved, typename S::saved_type const& kept, typename S::prepared_type& prepared,
                                    typename S::gradients_type& sum, typename S::gradients_type const& summed,
                                    vector_view<matrix_view<float> const> out) {
  { held.outputs() } -> std::convertible_to<vector_view<embedding_output const>>;
  source.begin(exec, batch, saved);
  source.begin(exec, batch, saved, prepared);
  source.finish(exec, saved, out);
  held.predict(exec, batch, out);
  source.finish_backward(exec, saved);
  held.gradients(exec, kept, sum);
  source.apply(exec, summed);
  held.prepare(exec, batch, prepared);
  { source.parts() } -> std::same_as<table_parts>;
  { held.bytes() } -> std::same_as<std::size_t>;
}
&&((owns_parameters<S> && detail::takes_gradients_of_parameters<S>) || (!owns_parameters<S> && detail::takes_gradients<S>));

}  // namespace TESSERA_ABI
}  // namespace tessera
