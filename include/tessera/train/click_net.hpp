// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/train/feature_interaction.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What is pooled where a batch holds repeated sequences once.
enum class pooled_rows : std::uint8_t {
  distinct,  ///< each distinct sequence once, whose pooled vector is expanded to samples
  expanded,  ///< one sequence a sample, always so by chunks, and where a source wants the gradients of each sample's row
};

/// The shape of a click model, beside its source, its sequence groups and its interaction.
struct click_model_options {
  std::int64_t dense_features = 0;            ///< columns of a batch's dense matrix; 0: the model has no bottom MLP
  std::vector<std::int64_t> bottom_hidden{};  ///< widths of the bottom's ReLU layers before its last, a ReLU layer of `dim` elements
  std::vector<std::int64_t> top_hidden{};     ///< widths of the ReLU layers between the interaction and the logit
  random_seed seed{};                         ///< how all dense parameters start
  std::vector<std::string> pooled{};          ///< names of outputs of a vector a sample, in their order; empty: the source's order
  std::int64_t dim = 0;                       ///< elements of the vectors that meet; 0: the one width that all vectors have
  bool projects = false;                      ///< whether a linear map brings vectors of another width to `dim`
  pooled_rows rows = pooled_rows::distinct;   ///< what is pooled where a batch holds repeated sequences once
};

/// The samples of a batch by chunks of so many, of which the last one may have fewer. Chunks of 0 samples: one, of the whole batch.
struct sample_chunks {
  std::int64_t samples = 0;        ///< of the batch
  std::int64_t chunk_samples = 0;  ///< of a chunk

  /// How many there are.
  constexpr std::int64_t count() const noexcept { return chunk_samples == 0 ? 1 : divide_up(samples, chunk_samples); }
  /// The samples of a chunk, [first, last).
  constexpr std::pair<std::int64_t, std::int64_t> range(std::int64_t number) const noexcept {
    if (chunk_samples == 0) return {0, samples};
    return {number * chunk_samples, std::min((number + 1) * chunk_samples, samples)};
  }
};

/// What the parts of a `click_net` saved of some samples of a batch.
template <feature_interaction Interaction>
struct click_net_chunk {
  mlp_saved bottom, top;                    ///< what the MLPs saved
  typename Interaction::saved interaction;  ///< what the interaction saved
};

/// What the backward of a `click_net` needs of its forward. The caller owns a `saved`, and any number of them may be in flight.
template <feature_interaction Interaction>
struct click_net_saved {
  /// The net runs, and sequences are pooled, by chunks of so many samples, of which the last one may have fewer; 0: by the whole batch. Each chunk's results have
  /// bits that the other samples of the batch do not change.
  std::int64_t chunk_samples = 0;
  std::int64_t first_chunk = 0;                      ///< number of the first one among those of all ranks, for a source that runs by chunks
  std::vector<click_net_chunk<Interaction>> chunks;  ///< at least as many as there are
  buffer<float> vectors;                             ///< (samples, vectors * dim): that of the bottom, if any, then those of lookups
  buffer<float> interacted;                          ///< (samples, output width of the interaction)
  buffer<float> logits;                              ///< (samples,)
  buffer<float> vector_gradients;                    ///< (samples, vectors * dim), after the backward

  /// How many chunks the batch has.
  std::int64_t chunk_count() const noexcept { return sample_chunks{logits.size(), chunk_samples}.count(); }
  /// The samples of a chunk, [first, last).
  std::pair<std::int64_t, std::int64_t> chunk(std::int64_t number) const noexcept {
    return sample_chunks{logits.size(), chunk_samples}.range(number);
  }
};

/// The dense part of a click model. It holds parameters only. Move-only.
///
/// A bottom MLP makes a vector of the dense features. The interaction lets this vector meet those that the model's lookups write.
/// A top MLP makes one logit of what the interaction writes.
/// Without dense features there is no bottom MLP, and the vectors of lookups meet alone.
/// All calls run on the threads of `exec` and return when their work is done.
template <gemm_policy Gemm, feature_interaction Interaction>
class click_net {
 public:
  using saved_type = click_net_saved<Interaction>;

  /// Makes the parameters for `lookups` vectors of `dim` elements, and that of the bottom MLP where there are dense features.
  /// @throws tessera::error invalid_argument for no vectors at all; what the constructors of the MLPs and the interaction throw.
  click_net(host_exec const& exec, click_model_options const& options, std::int64_t lookups, std::int64_t dim,
            typename Interaction::options const& interaction, Gemm policy)
      : gemm_(policy),
        dim_(dim),
        vectors_(count_vectors(options, lookups)),
        bottom_(make_bottom(exec, options, dim)),
        interaction_(exec, interaction, vectors_, dim, options.seed),
        top_(exec, mlp_options{widths(interaction_.output_width(), options.top_hidden, 1), activation::identity, options.seed, 1}) {}

  /// Who multiplies matrices.
  Gemm const& policy() const noexcept { return gemm_; }
  /// Columns of a batch's dense matrix; 0 without a bottom MLP.
  std::int64_t dense_features() const noexcept { return bottom_ ? bottom_->input_width() : 0; }
  /// Elements of each vector that meets the others.
  std::int64_t dim() const noexcept { return dim_; }
  /// How many vectors meet, that of the bottom included.
  std::int64_t vector_count() const noexcept { return vectors_; }
  /// The number of the first vector that a lookup writes: 1 where there is a bottom MLP, else 0.
  std::int64_t first_lookup() const noexcept { return bottom_ ? 1 : 0; }
  /// Bytes of all parameters.
  std::size_t bytes() const noexcept { return (bottom_ ? bottom_->bytes() : 0) + interaction_.bytes() + top_.bytes(); }
  /// The MLP of the dense features. @pre There are dense features.
  mlp& bottom() noexcept { return *bottom_; }
  /// As above, to read.
  mlp const& bottom() const noexcept { return *bottom_; }
  /// What lets the vectors meet.
  Interaction& interaction() noexcept { return interaction_; }
  /// As above, to read.
  Interaction const& interaction() const noexcept { return interaction_; }
  /// The MLP that makes the logit.
  mlp& top() noexcept { return top_; }
  /// As above, to read.
  mlp const& top() const noexcept { return top_; }

  /// The parameters, a block each of bottom, interaction and top. The first two may be empty.
  std::array<parameter_group, 3> groups() noexcept {
    return {{{"bottom", bottom_ ? bottom_->parameters() : vector_view<float>()},
             {"interaction", interaction_.parameters()},
             {"top", top_.parameters()}}};
  }
  /// How many parameters all groups have together.
  std::int64_t parameter_count() const noexcept {
    return bottom_parameter_count() + interaction_.parameters().size() + top_.parameters().size();
  }
  /// All parameters by name and shape, for checkpoints.
  std::vector<parameter_block> blocks() {
    std::vector<parameter_block> all;
    if (bottom_) all = bottom_->blocks("bottom");
    for (auto& block : interaction_.blocks("interaction")) all.push_back(std::move(block));
    for (auto& block : top_.blocks("top")) all.push_back(std::move(block));
    return all;
  }

  /// Makes room in `saved` for a batch of `samples`, so that lookups can write into `vectors(saved)`.
  void resize(host_exec const& exec, std::int64_t samples, saved_type& saved) const {
    saved.vectors.resize(exec, samples * vectors_ * dim());
    saved.interacted.resize(exec, samples * top_.input_width());
    saved.logits.resize(exec, samples);
  }
  /// The vectors of each sample, side by side, (samples, vector_count() * dim()). @pre `resize` has made room.
  matrix_view<float> vectors(saved_type& saved) const noexcept { return {saved.vectors.data(), saved.logits.size(), vectors_ * dim()}; }
  /// The gradients of these vectors, laid out like `vectors`. @pre `backward` has returned.
  matrix_view<float> vector_gradients(saved_type& saved) const noexcept {
    return {saved.vector_gradients.data(), saved.logits.size(), vectors_ * dim()};
  }

  /// Computes the logits, (samples,), which live in `saved`. `dense` (samples, dense_features()) must outlive `saved`.
  /// @pre `resize` was called for these samples, and lookups have written the vectors from `first_lookup()` on.
  /// @post `saved` is what `backward` needs. @throws tessera::error shape_mismatch.
  vector_view<float> forward(host_exec const& exec, matrix_view<float const> dense, saved_type& saved) const {
    saved.chunks.resize(std::max(saved.chunks.size(), static_cast<std::size_t>(saved.chunk_count())));
    for (std::int64_t c = 0; c < saved.chunk_count(); ++c) {
      auto const [first, last] = saved.chunk(c);
      auto const samples = last - first;
      auto& part = saved.chunks[static_cast<std::size_t>(c)];
      auto const all = vectors(saved).rows_from(first, samples);
      if (bottom_) bottom_->forward(exec, gemm_, dense.rows_from(first, samples), all.columns_from(0, dim()), part.bottom);
      auto const interacted = matrix_view<float>{saved.interacted.data(), dense.rows(), top_.input_width()}.rows_from(first, samples);
      auto const logits = saved.logits.view().slice(first, samples);
      interaction_.forward(exec, gemm_, all, interacted, part.interaction);
      top_.forward(exec, gemm_, interacted, {logits.data(), samples, 1}, part.top);
      interaction_.add_to_logits(exec, part.interaction, logits);
    }
    return saved.logits.view();
  }

  /// Makes room for the gradients of vectors. `backward` of each chunk follows.
  void begin_backward(host_exec const& exec, saved_type& saved) const { saved.vector_gradients.resize(exec, saved.vectors.size()); }

  /// Overwrites `gradient` (parameter_count(),) with the gradients of the parameters by the samples of a chunk, group after group.
  /// `vector_gradients(saved)` then has those of the chunk's vectors. `logit_gradient` (samples,) is that of all logits; the chunk's part may
  /// be overwritten. @pre `forward` has filled `saved`, and `begin_backward` has made room. @throws tessera::error shape_mismatch.
  void backward(host_exec const& exec, saved_type& saved, std::int64_t chunk, vector_view<float> logit_gradient,
                vector_view<float> gradient, gradient_listener const& finished = {}) const {
    auto const [first, last] = saved.chunk(chunk);
    auto const samples = last - first;
    auto& part = saved.chunks[static_cast<std::size_t>(chunk)];
    auto const bottom_size = bottom_parameter_count(), interaction_size = interaction_.parameters().size();
    auto const of_bottom = gradient.slice(0, bottom_size), of_interaction = gradient.slice(bottom_size, interaction_size),
               of_top = gradient.slice(bottom_size + interaction_size, top_.parameters().size());
    auto const of_vectors = vector_gradients(saved).rows_from(first, samples);
    auto const of_logits = logit_gradient.slice(first, samples);
    buffer<float> interacted_gradient(exec, samples * top_.input_width());
    matrix_view<float> const interacted{interacted_gradient.data(), samples, top_.input_width()};
    top_.backward(exec, gemm_, part.top, {of_logits.data(), samples, 1}, of_top, interacted, finished);
    // The top's last layer has no activation, so its gradient is still that of the logits.
    interaction_.backward(exec, gemm_, part.interaction, interacted, of_logits, of_interaction, of_vectors);
    if (finished && !of_interaction.empty()) finished(of_interaction);
    if (bottom_) bottom_->backward(exec, gemm_, part.bottom, of_vectors.columns_from(0, dim()), of_bottom, {}, finished);
  }

 private:
  static std::int64_t count_vectors(click_model_options const& options, std::int64_t lookups) {
    auto const vectors = lookups + (options.dense_features == 0 ? 0 : 1);
    if (vectors == 0) throw error(errc::invalid_argument, "click_net: neither dense features nor lookups");
    return vectors;
  }
  static std::optional<mlp> make_bottom(host_exec const& exec, click_model_options const& options, std::int64_t dim) {
    std::optional<mlp> bottom;
    if (options.dense_features != 0)
      bottom.emplace(exec, mlp_options{widths(options.dense_features, options.bottom_hidden, dim), activation::relu, options.seed, 0});
    return bottom;
  }
  static std::vector<std::int64_t> widths(std::int64_t in, std::vector<std::int64_t> const& hidden, std::int64_t out) {
    std::vector<std::int64_t> result{in};
    result.insert(result.end(), hidden.begin(), hidden.end());
    result.push_back(out);
    return result;
  }

  std::int64_t bottom_parameter_count() const noexcept { return bottom_ ? bottom_->parameters().size() : 0; }

  [[no_unique_address]] Gemm gemm_;
  std::int64_t dim_, vectors_;
  std::optional<mlp> bottom_;
  Interaction interaction_;
  mlp top_;
};

namespace detail {

/// Refuses gradients that do not fit the forward. `logits` and `parameters` are the sizes expected, the others the sizes found.
/// @throws tessera::error shape_mismatch naming both sizes.
inline void check_model_backward(char const* model, std::int64_t logits, std::int64_t logit_gradients, std::int64_t gradient,
                                 std::int64_t parameters) {
  if (logit_gradients != logits)
    throw error(errc::shape_mismatch, std::string(model) + ": one gradient a logit", {{"logits", logits}, {"gradients", logit_gradients}});
  if (gradient != parameters)
    throw error(errc::shape_mismatch, std::string(model) + ": gradient block", {{"size", gradient}, {"parameters", parameters}});
}

/// Refuses a batch of other features. @throws tessera::error shape_mismatch naming found and expected numbers of dense features and keys.
inline void check_model_batch(char const* model, std::int64_t dense, std::int64_t dense_expected, std::int64_t keys,
                              std::int64_t keys_expected) {
  if (dense != dense_expected || keys != keys_expected)
    throw error(errc::shape_mismatch, std::string(model) + ": the batch does not fit the model",
                {{"dense features", dense}, {"expected dense features", dense_expected}, {"keys", keys}, {"expected keys", keys_expected}});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
