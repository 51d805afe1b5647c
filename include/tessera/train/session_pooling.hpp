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

/// The distinct sequences of a group of features, and which of them each sample has.
struct shared_sequences {
  jagged_vectors_view<float const> rows;      // a row a distinct sequence, the vectors of all features of the group one after the other
  vector_view<std::int64_t const> inverse{};  // (samples,): the row of each sample; empty: sample i has row i

  std::int64_t samples() const noexcept { return inverse.empty() ? rows.rows : inverse.size(); }
};

/// How a session model makes one vector a sample of a group's sequences. Holds parameters, perhaps none; what `backward` needs of a `forward`
/// is in a `saved` of the caller's.
/// - `P(exec, options, dim, seed, stream)`; `name`: of the kind; `uses_target`: whether it reads a vector of the sample's own.
/// - `describe(options)`: the kind and what no tensor's shape tells of it, for checkpoints. Optionally `reads_target(options)`: `uses_target`
///   where options decide that.
/// - `forward(exec, policy, sequences, targets, out, saved)`: `targets` (samples, dim), read where `uses_target`; `out` (samples, dim). The
///   vectors must outlive `saved`. Of a forward that throws, no backward takes `saved`.
/// - `predict(exec, policy, sequences, targets, out)`: the same out, nothing saved.
/// - `backward(exec, policy, saved, out_gradient, parameter_gradient, vector_gradient, target_gradient)`: overwrites `parameter_gradient`, laid
///   out like `parameters()`, and `vector_gradient` (vectors, dim); adds to `target_gradient` where `uses_target`.
template <class P>
concept session_pooling = requires(P& pooling, P const& constant, host_exec const& exec, any_gemm const& policy, shared_sequences sequences,
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

template <session_pooling P>
bool reads_target(typename P::options const& options) {
  if constexpr (requires { P::reads_target(options); })
    return P::reads_target(options);
  else
    return P::uses_target;
}

/// Options of a pooling with what is the model's.
template <class Options>
Options with_dim(Options options, std::int64_t dim, random_seed seed, std::uint32_t stream) noexcept {
  options.dim = dim;
  options.seed = seed;
  options.stream = stream;
  return options;
}

}  // namespace detail

/// Pools nothing: of models without groups of sequences.
class no_pooling {
 public:
  struct options {};
  struct saved {};
  static constexpr std::string_view name = "none";
  static constexpr bool uses_target = false;

  /// @throws tessera::error invalid_argument, always.
  no_pooling(host_exec const&, options const&, std::int64_t, random_seed, std::uint32_t) {
    throw error(errc::invalid_argument, "no_pooling: a model without poolings has no groups of sequences");
  }

  static std::string describe(options const&) { return "none"; }
  vector_view<float> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  template <gemm_policy Gemm>
  void forward(host_exec const&, Gemm const&, shared_sequences, matrix_view<float const>, matrix_view<float>, saved&) const {}
  template <gemm_policy Gemm>
  void predict(host_exec const&, Gemm const&, shared_sequences, matrix_view<float const>, matrix_view<float>) const {}
  template <gemm_policy Gemm>
  void backward(host_exec const&, Gemm const&, saved&, matrix_view<float const>, vector_view<float>, matrix_view<float>,
                matrix_view<float>) const {}
};
static_assert(session_pooling<no_pooling>);

/// A transformer encoder over each distinct sequence; what it pools is expanded. Source: RecD, Section 5 (deduplicated compute).
class encoder_pooling {
 public:
  using options = transformer_encoder_options;  // dim, seed and stream are the model's
  struct saved {
    transformer_saved encoder;
    vector_view<std::int64_t const> inverse;
    std::int64_t rows = 0;
  };
  static constexpr std::string_view name = "transformer";
  static constexpr bool uses_target = false;

  encoder_pooling(host_exec const& exec, options const& shape, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : encoder_(exec, detail::with_dim(shape, dim, seed, stream)) {}

  static std::string describe(options const& o) {
    return "transformer heads=" + std::to_string(o.heads) + " causal=" + std::to_string(o.causal) +
           " norm_first=" + std::to_string(o.norm_first) + " pooling=" + std::to_string(static_cast<int>(o.pooling));
  }
  transformer_encoder const& encoder() const noexcept { return encoder_; }
  vector_view<float> parameters() noexcept { return encoder_.parameters(); }
  vector_view<float const> parameters() const noexcept { return encoder_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return encoder_.blocks(prefix); }
  std::size_t bytes() const noexcept { return encoder_.bytes(); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const>, matrix_view<float> out,
               saved& saved) const {
    with_pooled(exec, sequences, out,
                [&](matrix_view<float> pooled) { encoder_.forward(exec, policy, sequences.rows, pooled, saved.encoder); });
    saved.inverse = sequences.inverse;
    saved.rows = sequences.rows.rows;
  }

  template <gemm_policy Gemm>
  void predict(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const>,
               matrix_view<float> out) const {
    with_pooled(exec, sequences, out, [&](matrix_view<float> pooled) { encoder_.forward(exec, policy, sequences.rows, pooled); });
  }

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
static_assert(session_pooling<encoder_pooling>);

/// Attention of a sample's target to its sequence, as in a deep interest network. Samples that share a sequence have targets of their own, so
/// the sequences are there once and their sums a sample each. Source: Zhou et al., KDD 2018.
class target_pooling {
 public:
  using options = target_attention_options;  // dim, seed and stream are the model's
  using saved = target_attention_saved;
  static constexpr std::string_view name = "attention";
  static constexpr bool uses_target = true;

  target_pooling(host_exec const& exec, options const& shape, std::int64_t dim, random_seed seed, std::uint32_t stream)
      : attention_(exec, detail::with_dim(shape, dim, seed, stream)) {}

  static std::string describe(options const& o) { return "attention softmax=" + std::to_string(o.softmax); }

  target_attention const& attention() const noexcept { return attention_; }
  vector_view<float> parameters() noexcept { return attention_.parameters(); }
  vector_view<float const> parameters() const noexcept { return attention_.parameters(); }
  std::vector<parameter_block> blocks(std::string_view prefix) { return attention_.blocks(prefix); }
  std::size_t bytes() const noexcept { return attention_.bytes(); }

  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out, saved& saved) const {
    attention_.forward(exec, policy, sequences.rows, sequences.inverse, targets, out, saved);
  }
  template <gemm_policy Gemm>
  void predict(host_exec const& exec, Gemm const& policy, shared_sequences sequences, matrix_view<float const> targets,
               matrix_view<float> out) const {
    saved unused;
    forward(exec, policy, sequences, targets, out, unused);
  }
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
static_assert(session_pooling<target_pooling>);

}  // namespace TESSERA_ABI
}  // namespace tessera
