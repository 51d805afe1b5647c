// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/nn/target_attention.hpp>
#include <tessera/nn/transformer_encoder.hpp>
#include <tessera/tensor/gather_vectors.hpp>
#include <tessera/tensor/jagged_vectors.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The sequences of a sequence group, and which of them each sample has.
struct shared_sequences {
  jagged_vectors_view<float const> rows;      ///< a row is a sequence: the vectors of the group's features, one feature after the other
  vector_view<std::int64_t const> inverse{};  ///< (samples,): the row of each sample; empty: sample i has row i

  /// How many samples have a sequence.
  std::int64_t samples() const noexcept { return inverse.empty() ? rows.rows : inverse.size(); }
};

/// How a model makes one vector a sample of a group's sequences. A pooling holds parameters, perhaps none.
/// - `P(exec, options, dim, seed, stream)` makes the parameters for vectors of `dim` elements; `seed` and `stream` say how they start.
/// - `name` is that of the kind, and `uses_target` says whether the kind reads a target, a vector of the sample's own.
/// - `reads_target(options)`, if there is one, says the same where options decide.
/// - `describe(options)` gives a checkpoint the kind, and whatever no tensor's shape tells of it.
/// - `parameters()` is the block of all parameters, `blocks(prefix)` names its parts for checkpoints, `bytes()` is what it takes.
/// - `forward(exec, policy, sequences, targets, out, saved)` writes one vector a sample into `out` (samples, dim). It reads `targets`
///   (samples, dim) where `uses_target`. It leaves in `saved`, which the caller owns, what `backward` needs.
///   The vectors must outlive `saved`. After a forward that throws, no backward takes `saved`.
/// - `predict(exec, policy, sequences, targets, out)` writes the same `out` and saves nothing.
/// - `backward(exec, policy, saved, out_gradient, parameter_gradient, vector_gradient, target_gradient)` reads `out_gradient`
///   (samples, dim). It overwrites `parameter_gradient`, laid out like `parameters()`, and `vector_gradient` (vectors, dim).
///   It adds to `target_gradient` (samples, dim) where `uses_target`.
///
/// All run on the threads of `exec` and return when their work is done.
template <class P>
concept sequence_pooler = requires(P& pooling, P const& constant, host_exec const& exec, any_gemm const& policy, shared_sequences sequences,
                                   matrix_view<float const> in, matrix_view<float> out, vector_view<float> parameters,
                                   typename P::saved& saved, typename P::options const& options, std::int64_t dim, random_seed seed) {
  P(exec, options, dim, seed, std::uint32_t{});
  { P::name } -> std::convertible_to<std::string_view>;
  { P::uses_target } -> std::convertible_to<bool>;
  { P::describe(options) } -> std::same_as<std::string>;
  { pooling.parameters() } -> std::same_as<vector_view<float>>;
  { pooling.blocks(std::string_view()) } -> std::same_as<std::vector<parameter_block>>;
  { constant.bytes() } -> std::convertible_to<std::size_t>;
  constant.forward(exec, policy, sequences, in, out, saved);
  constant.predict(exec, policy, sequences, in, out);
  constant.backward(exec, policy, saved, in, parameters, out, out);
};

namespace detail {

/// Whether a pooling with these options reads a target.
template <sequence_pooler P>
bool reads_target(typename P::options const& options) {
  if constexpr (requires { P::reads_target(options); })
    return P::reads_target(options);
  else
    return P::uses_target;
}

/// Options of a pooling with the dim, seed and stream that the model sets.
template <class Options>
Options with_dim(Options options, std::int64_t dim, random_seed seed, std::uint32_t stream) noexcept {
  options.dim = dim;
  options.seed = seed;
  options.stream = stream;
  return options;
}

}  // namespace detail

/// Pools nothing, and stands in models without sequence groups.
class no_pooling {
 public:
  struct options {};
  struct saved {};
  static constexpr std::string_view name = "none";
  static constexpr bool uses_target = false;

  /// Refuses to be made. @throws tessera::error invalid_argument, always.
  no_pooling(host_exec const&, options const&, std::int64_t, random_seed, std::uint32_t) {
    throw error(errc::invalid_argument, "no_pooling: a model without poolings has no groups of sequences");
  }

  /// The kind alone.
  static std::string describe(options const&) { return "none"; }
  vector_view<float> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// Does nothing.
  template <gemm_policy Gemm>
  void forward(host_exec const&, Gemm const&, shared_sequences, matrix_view<float const>, matrix_view<float>, saved&) const {}
  /// Does nothing.
  template <gemm_policy Gemm>
  void predict(host_exec const&, Gemm const&, shared_sequences, matrix_view<float const>, matrix_view<float>) const {}
  /// Does nothing.
  template <gemm_policy Gemm>
  void backward(host_exec const&, Gemm const&, saved&, matrix_view<float const>, vector_view<float>, matrix_view<float>,
                matrix_view<float>) const {}
};
static_assert(sequence_pooler<no_pooling>);

/// Pools each distinct sequence by a transformer encoder, then expands the pooled vectors to samples. See `sequence_pooler`.
/// Source: RecD, Section 5 (deduplicated compute).
class encoder_pooling {
 public:
  using options = transformer_encoder_options;  ///< the model sets dim, seed and stream
  /// What `backward` needs of `forward`.
  struct saved {
    transformer_saved encoder;                ///< what the encoder saved
    vector_view<std::int64_t const> inverse;  ///< of the sequences
    std::int64_t rows = 0;                    ///< how many distinct sequences there were
  };
  static constexpr std::string_view name = "transformer";
  static constexpr bool uses_target = false;

  /// Makes the encoder. @throws tessera::error as `transformer_encoder`.
  encoder_pooling(host_exec const& exec, options const& shape, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : encoder_(exec, detail::with_dim(shape, dim, seed, stream)) {}

  /// The kind, and the options that no tensor shows.
  static std::string describe(options const& o) {
    return "transformer heads=" + std::to_string(o.heads) + " causal=" + std::to_string(o.causal) +
           " norm_first=" + std::to_string(o.norm_first) + " pooling=" + std::to_string(static_cast<int>(o.pooling));
  }
  /// The encoder, which owns the parameters.
  transformer_encoder const& encoder() const noexcept { return encoder_; }
  vector_view<float> parameters() noexcept { return encoder_.parameters(); }
  vector_view<float const> parameters() const noexcept { return encoder_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return encoder_.blocks(prefix); }
  std::size_t bytes() const noexcept { return encoder_.bytes(); }

  /// Encodes each distinct sequence once; `targets` are not read. @throws tessera::error as `transformer_encoder::forward`.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const>, matrix_view<float> out,
               saved& saved) const {
    with_pooled(exec, sequences, out,
                [&](matrix_view<float> pooled) { encoder_.forward(exec, policy, sequences.rows, pooled, saved.encoder); });
    saved.inverse = sequences.inverse;
    saved.rows = sequences.rows.rows;
  }

  /// Writes the same `out`, to the bit, and saves nothing. @throws as `forward`.
  template <gemm_policy Gemm>
  void predict(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const>,
               matrix_view<float> out) const {
    with_pooled(exec, sequences, out, [&](matrix_view<float> pooled) { encoder_.forward(exec, policy, sequences.rows, pooled); });
  }

  /// Sums `out_gradient` over the samples of each distinct sequence, in their order, then goes back through the encoder.
  /// @throws tessera::error as `transformer_encoder::backward`.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, matrix_view<float> vector_gradient, matrix_view<float>) const {
    if (saved.inverse.empty()) return encoder_.backward(exec, policy, saved.encoder, out_gradient, parameter_gradient, vector_gradient);
    buffer<float> of_rows(exec, saved.rows * encoder_.dim());
    matrix_view<float> const gradient{of_rows.data(), saved.rows, encoder_.dim()};
    gather_vectors_backward(exec, out_gradient, saved.inverse, gradient);
    encoder_.backward(exec, policy, saved.encoder, gradient, parameter_gradient, vector_gradient);
  }

 private:
  template <class Pool>
  void with_pooled(host_exec const& exec, shared_sequences sequences, matrix_view<float> out, Pool const& pool) const {
    if (sequences.inverse.empty()) return pool(out);
    auto const rows = sequences.rows.rows;
    buffer<float> of_rows(exec, rows * encoder_.dim());
    matrix_view<float> const pooled{of_rows.data(), rows, encoder_.dim()};
    pool(pooled);
    gather_vectors(exec, pooled, sequences.inverse, out);
  }

  transformer_encoder encoder_;
};
static_assert(sequence_pooler<encoder_pooling>);

/// Pools by the attention of a sample's target to the sample's sequence, as in a deep interest network. See `sequence_pooler`.
/// Samples that share a sequence share its vectors, but each has a target and a sum of its own. Source: Zhou et al., KDD 2018.
class target_pooling {
 public:
  using options = target_attention_options;  ///< the model sets dim, seed and stream
  using saved = target_attention_saved;
  static constexpr std::string_view name = "attention";
  static constexpr bool uses_target = true;

  /// Makes the attention's network. @throws tessera::error as `target_attention`.
  target_pooling(host_exec const& exec, options const& shape, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : attention_(exec, detail::with_dim(shape, dim, seed, stream)) {}

  /// The kind, and the options that no tensor shows.
  static std::string describe(options const& o) { return "attention softmax=" + std::to_string(o.softmax); }

  /// The attention, which owns the parameters.
  target_attention const& attention() const noexcept { return attention_; }
  vector_view<float> parameters() noexcept { return attention_.parameters(); }
  vector_view<float const> parameters() const noexcept { return attention_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return attention_.blocks(prefix); }
  std::size_t bytes() const noexcept { return attention_.bytes(); }

  /// Writes the sum of each sample's sequence, weighted by its target. @throws tessera::error as `target_attention::forward`.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out, saved& saved) const {
    attention_.forward(exec, policy, sequences.rows, sequences.inverse, targets, out, saved);
  }
  /// Writes the same `out` and keeps nothing. @throws as `forward`.
  template <gemm_policy Gemm>
  void predict(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out) const {
    saved unused;
    forward(exec, policy, sequences, targets, out, unused);
  }
  /// Goes back through the attention, and adds to `target_gradient`. @throws tessera::error as `target_attention::backward`.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, matrix_view<float> vector_gradient, matrix_view<float> target_gradient) const {
    auto const samples = target_gradient.rows(), dim = attention_.dim();
    buffer<float> own(exec, samples * dim);
    matrix_view<float> const gradient{own.data(), samples, dim};
    attention_.backward(exec, policy, saved, out_gradient, parameter_gradient, gradient, vector_gradient);
    for_each_index(exec, samples, samples_per_piece, [=](std::int64_t i) {
      for (std::int64_t c = 0; c < dim; ++c) target_gradient(i, c) += gradient(i, c);
    });
  }

 private:
  static constexpr std::int64_t samples_per_piece = 256;

  target_attention attention_;
};
static_assert(sequence_pooler<target_pooling>);

}  // namespace TESSERA_ABI
}  // namespace tessera
