// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/stopwatch.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/click_model_saved.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/group_poolings.hpp>
#include <tessera/train/group_sequences.hpp>
#include <tessera/train/projected_vectors.hpp>
#include <tessera/train/sequence_pooler.hpp>
#include <tessera/train/vector_places.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A model that predicts clicks. It owns its source and its dense parameters. Move-only.
/// - A bottom MLP makes a vector of the dense features, if there are any.
/// - The source makes vectors of the sparse features. Each sequence group pools its sequences to one vector a sample.
/// - The interaction lets the vectors meet, first the bottom's, then those of sequence groups, then those of the other outputs.
/// - A top MLP makes one logit of what the interaction writes.
///
/// Without sequence groups the model is DLRM, DCN or DeepFM, by its interaction.
/// With them it is RecD's model, which pools a distinct row once.
/// All calls run on the threads of `exec` and return when their work is done.
template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling = no_pooling>
class click_model {
  static_assert(std::same_as<typename Source::execution_type, host_exec>, "click_model: models run on the host, and so does their source");

 public:
  using source_type = Source;
  using interaction_type = Interaction;
  using pooling_type = Pooling;
  using group_type = sequence_group<Pooling>;
  using saved_type = click_model_saved<Source, Interaction, Pooling>;

  /// Takes over `source` and makes the dense parameters, which start as `options.seed` says. `groups` are the sequence groups.
  /// @throws tessera::error out_of_range for a name that no output has. shape_mismatch for widths that differ and are not projected.
  /// invalid_argument for a sequence that no group pools, and for an output that is named twice or not at all.
  /// invalid_argument also for positions below 0, and for keys of a group that do not follow one another.
  /// The call also throws what the constructors of the parts throw.
  click_model(host_exec const& exec, click_model_options const& options, Source source,
              typename Interaction::options const& interaction = {}, std::vector<group_type> groups = {}, Gemm policy = {})
      : source_(std::move(source)),
        groups_(std::move(groups)),
        rows_(options.rows),
        places_(source_.outputs(), groups_, options.pooled),
        net_(exec, options, static_cast<std::int64_t>(places_.vectors.size()),
             places_.dim(source_.outputs(), options.dim, options.projects), interaction, policy),
        poolings_(exec, groups_, places_.vectors, options.seed),
        projections_(exec, places_.vectors, dim(), options.seed) {
    detail::check_choice("click_model", "rows", options.rows, pooled_rows::expanded);
  }
  /// Where the vectors come from.
  Source& source() noexcept { return source_; }
  /// As above, to read.
  Source const& source() const noexcept { return source_; }
  /// Elements of each vector that meets the others.
  std::int64_t dim() const noexcept { return net_.dim(); }
  /// How many vectors meet, that of the bottom included.
  std::int64_t vector_count() const noexcept { return net_.vector_count(); }
  /// The sequence groups, in the order that the constructor got.
  std::vector<group_type> const& sequence_groups() const noexcept { return groups_; }
  /// The numbers of the outputs that have a vector a sample, in the order in which these meet.
  std::vector<std::int64_t> pooled_outputs() const {
    std::vector<std::int64_t> all;
    for (auto v = groups_.size(); v < places_.vectors.size(); ++v) all.push_back(places_.vectors[v].output);
    return all;
  }
  /// The MLP of the dense features. @pre There are dense features.
  mlp& bottom() noexcept { return net_.bottom(); }
  /// As above, to read.
  mlp const& bottom() const noexcept { return net_.bottom(); }
  /// What lets the vectors meet.
  Interaction& interaction() noexcept { return net_.interaction(); }
  /// As above, to read.
  Interaction const& interaction() const noexcept { return net_.interaction(); }
  /// The MLP that makes the logit.
  mlp& top() noexcept { return net_.top(); }
  /// As above, to read.
  mlp const& top() const noexcept { return net_.top(); }
  /// Bytes of the source and of the dense parameters.
  std::size_t bytes() const noexcept { return net_.bytes() + source_.bytes() + poolings_.bytes() + projections_.bytes(); }

  /// The dense parameters, block after block, in the order of the gradients of `backward`. Some blocks may be empty.
  /// The order is bottom, interaction, top, the pooling of each sequence group, projections, position vectors, then what the source owns.
  std::vector<parameter_group> groups() {
    auto const dense = net_.groups();
    std::vector<parameter_group> all(dense.begin(), dense.end());
    poolings_.add_groups(all);
    projections_.add_groups(all);
    poolings_.add_position_groups(all);
    if constexpr (owns_parameters<Source>)
      for (auto const& group : source_.groups()) all.push_back(group);
    return all;
  }
  /// How many dense parameters all groups have together.
  std::int64_t parameter_count() const {
    auto sum = chunked_parameters();
    if constexpr (owns_parameters<Source>) sum += source_.parameter_count();
    return sum;
  }
  /// All dense parameters by name and shape, for checkpoints.
  std::vector<parameter_block> blocks() {
    auto all = net_.blocks();
    poolings_.add_blocks(all);
    projections_.add_blocks(all);
    poolings_.add_position_blocks(all);
    if constexpr (owns_parameters<Source>)
      for (auto& block : source_.blocks()) all.push_back(std::move(block));
    return all;
  }

  /// Refuses a batch that the model was not made for. @throws tessera::error as `forward`, but for what the source throws.
  void check_batch(batch_view const& batch) const {
    auto const keys = places_.are_all_keys ? places_.keys : std::max(places_.keys, batch.sparse.keys);
    detail::check_model_batch("click_model", batch.dense.columns(), net_.dense_features(), batch.sparse.keys, keys);
    places_.check_keys(batch);
    detail::check_groups("click_model", batch.inverse_keyed());
  }

  /// Computes the logits of a batch, (samples,), for training. They live in `saved` until its next forward.
  /// @post `saved` is what `backward` needs. After a forward that throws, no backward takes `saved`.
  /// @throws tessera::error shape_mismatch for a batch of other dense features, or of other keys or names of keys.
  /// shape_mismatch also where row groups of the batch part the keys of a sequence group. invalid_argument for row groups out of order.
  /// The call also throws what the source throws.
  vector_view<float> forward(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    return forward(exec, batch, saved, [&] { source_.begin(exec, batch, saved.source); });
  }
  /// Computes the same with what `source().prepare` made of the batch. A `prepared` of no batch is taken, too.
  /// @post The logits have the bits of the call without `prepared`, and `prepared` is of no batch.
  vector_view<float> forward(host_exec const& exec, batch_view const& batch, saved_type& saved, typename Source::prepared_type& prepared) {
    return forward(exec, batch, saved, [&] { source_.begin(exec, batch, saved.source, prepared); });
  }

  /// Begins a forward: the source begins with the batch, whose ids may so travel while other batches are trained. `finish_forward` follows.
  /// @throws as `forward`, but for what the source's `finish` throws.
  void begin_forward(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    lay_out(exec, batch, saved);
    source_.begin(exec, batch, saved.source);
  }
  /// Ends the forward that `begin_forward` began, of the same batch. @post The logits are those of `forward`. @throws as `forward`.
  vector_view<float> finish_forward(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    stopwatch const watch;
    return compute(exec, batch, saved, watch);
  }

  /// Computes the logits of a batch, (samples,), without changing the model. They live in `saved`, which no backward takes.
  /// @throws as `forward`.
  vector_view<float> predict(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    lay_out(exec, batch, saved);
    if constexpr (requires { source_.predict(exec, batch, saved.out.view(), saved.chunk_samples); })
      source_.predict(exec, batch, saved.out.view(), saved.chunk_samples);
    else
      source_.predict(exec, batch, saved.out.view());
    poolings_.put_together(exec, saved.sequences);
    for_each_chunk(saved, [&](std::int64_t, std::int64_t first, std::int64_t last) {
      poolings_.predict(exec, net_.policy(), saved.sequences, first, last, targets(saved), vectors(saved));
    });
    project(exec, saved);
    return net_.forward(exec, batch.dense, saved);
  }

  /// Computes the gradients of the forward that filled `saved`. No row is updated yet: `update_rows` or `gradients_of_rows` comes next.
  /// `logit_gradient` (samples,) is that of the logits and may be overwritten.
  /// `gradient` (parameter_count(),) is overwritten with those of the dense parameters, in the order of `groups()`.
  /// `finished` hears of its parts, in an order that the model fixes; not of those that the source owns.
  /// @throws tessera::error shape_mismatch for blocks of another size; invalid_argument, with sequence groups, for a second backward of one
  /// forward, and for a forward by chunks. Nothing has been written then. What the source throws may come later.
  void backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient,
                gradient_listener const& finished = {});

  /// Computes the same for a forward by chunks (`saved.chunk_samples`). The gradients of each chunk become a leaf of `chunks`, which was
  /// started at the first one's number. Leaves are (chunked_parameters(),), the first ones of `gradient`, of which the others are written.
  /// @throws tessera::error as `backward`; invalid_argument for a forward that was not by chunks.
  void backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient, sum_tree& chunks);
  /// How many parameters have gradients by chunks: all but those that the source owns.
  std::int64_t chunked_parameters() const noexcept {
    return net_.parameter_count() + poolings_.parameter_count() + projections_.parameter_count() + poolings_.position_count();
  }

  /// Lets the source update its rows with the gradients that `backward` left: one optimizer step.
  /// @pre `backward` has returned for `saved`. @throws what `finish_backward` of the source throws.
  void update_rows(host_exec const& exec, saved_type& saved) {
    stopwatch watch;
    source_.finish_backward(exec, saved.source);
    saved.times.update += watch.lap();
  }
  /// Writes the gradients of rows into `sum`, in place of `update_rows`, so that they can be clipped, added up or sent.
  /// @pre `backward` has returned for `saved`. @throws what `gradients` of the source throws.
  /// @post `source().apply(exec, sum)` gives the rows of `update_rows`, bit for bit, where nothing has changed `sum`.
  void gradients_of_rows(host_exec const& exec, saved_type& saved, typename Source::gradients_type& sum) const {
    source_.gradients(exec, saved.source, sum);
  }

 private:
  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  embedding_output const& output(std::int64_t number) const noexcept { return source_.outputs()[number]; }
  // Where vector v is before its projection, of all vectors or of all their gradients.
  matrix_view<float> block(matrix_view<float> all, matrix_view<float> projected, std::int64_t v) const {
    auto const& of = places_.vectors[at(v)];
    return of.projection < 0 ? all.columns_from((net_.first_lookup() + v) * dim(), dim()) : projected.columns_from(of.column, of.width);
  }
  matrix_view<float> vector(saved_type& saved, std::int64_t v) const {
    return block(net_.vectors(saved), projections_.from(saved.projected, 0, saved.logits.size()), v);
  }
  matrix_view<float> vector_gradient(saved_type& saved, std::int64_t v) const {
    return block(net_.vector_gradients(saved), projections_.gradient(saved.projected, 0, saved.logits.size()), v);
  }
  // As `group_poolings` asks for them.
  auto vectors(saved_type& saved) const {
    return [&](std::int64_t g) { return vector(saved, g); };
  }
  auto targets(saved_type& saved) const {
    return [&](std::int64_t g) {
      auto const v = places_.groups[at(g)].target;
      return v < 0 ? matrix_view<float>{} : vector(saved, v);
    };
  }

  // Makes room for a batch, and says where each output goes.
  void lay_out(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    check_batch(batch);
    if constexpr (requires { saved.source.chunk_samples = saved.source.first_chunk; }) {
      saved.source.chunk_samples = saved.chunk_samples;
      saved.source.first_chunk = saved.first_chunk;
    }
    net_.resize(exec, batch.samples(), saved);
    projections_.resize(exec, batch.samples(), saved.chunk_count(), saved.projected);
    saved.out.resize(exec, source_.outputs().size());
    saved.gradients.resize(exec, saved.out.size());
    saved.sequences.resize(groups_.size());
    saved.pooled.resize(groups_.size() * at(saved.chunk_count()));
    for (std::int64_t v = 0; v < static_cast<std::int64_t>(places_.vectors.size()); ++v)
      if (places_.vectors[at(v)].output >= 0) saved.out[places_.vectors[at(v)].output] = vector(saved, v);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto const& of = places_.groups[g];
      auto const keys = static_cast<std::int64_t>(of.outputs.size());
      for (auto const& group : batch.groups)
        if (group.first_key < of.first_key + keys && of.first_key < group.first_key + group.keys &&
            (group.first_key != of.first_key || group.keys != keys))
          throw error(errc::shape_mismatch, "click_model: the keys of a group are one group of the batch, or have a row a sample",
                      {{"group", g}, {"first key", of.first_key}, {"keys", keys}});
      // Samples of different chunks share no row: what chunks share would depend on who has them.
      bool const expands = rows_ == pooled_rows::expanded || output(of.outputs[0]).expanded_gradients || saved.chunk_samples > 0;
      buffer<matrix_view<float>> out(exec, keys);
      saved.sequences[g].lay_out(exec, batch.sparse.slice_keys(of.first_key, keys), batch.inverse_keyed().inverse(of.first_key), expands,
                                 places_.vectors[g].width, out.view());
      for (std::int64_t i = 0; i < keys; ++i) saved.out[of.outputs[at(i)]] = out[i];
    }
  }

  template <class Begin>
  vector_view<float> forward(host_exec const& exec, batch_view const& batch, saved_type& saved, Begin const& begin) {
    lay_out(exec, batch, saved);
    stopwatch const watch;
    begin();
    return compute(exec, batch, saved, watch);
  }
  vector_view<float> compute(host_exec const& exec, batch_view const& batch, saved_type& saved, stopwatch watch) {
    source_.finish(exec, saved.source, saved.out.view());
    poolings_.put_together(exec, saved.sequences);
    saved.times.lookup += watch.lap();
    for_each_chunk(saved, [&](std::int64_t chunk, std::int64_t first, std::int64_t last) {
      poolings_.forward(exec, net_.policy(), saved.sequences, chunk, first, last, targets(saved), vectors(saved), saved.pooled);
    });
    saved.times.pooling += watch.lap();
    project(exec, saved);
    auto const logits = net_.forward(exec, batch.dense, saved);
    saved.times.dense += watch.lap();
    return logits;
  }

  // Calls f(chunk, first sample, behind the last).
  template <class F>
  static void for_each_chunk(saved_type& saved, F const& f) {
    for (std::int64_t c = 0; c < saved.chunk_count(); ++c) {
      auto const [first, last] = saved.chunk(c);
      f(c, first, last);
    }
  }
  void project(host_exec const& exec, saved_type& saved) const {
    for_each_chunk(saved, [&](std::int64_t chunk, std::int64_t first, std::int64_t last) {
      projections_.forward(exec, net_.policy(), places_.vectors, chunk, {first, last}, net_.vectors(saved).rows_from(first, last - first),
                           net_.first_lookup(), saved.projected);
    });
  }

  void check_backward(saved_type const& saved, bool by_chunks, std::int64_t logit_gradients, std::int64_t gradient) const {
    detail::check_model_backward("click_model", saved.logits.size(), logit_gradients, gradient, parameter_count());
    if ((saved.chunk_samples > 0) != by_chunks)
      throw error(errc::invalid_argument, "click_model: a backward by chunks is of a forward by chunks",
                  {{"chunk samples", saved.chunk_samples}});
    for (auto const& sequences : saved.sequences)
      if (!sequences.has_vectors)
        throw error(errc::invalid_argument, "click_model: gradients took the place of the sequences' vectors; another forward comes first",
                    {{"group", &sequences - saved.sequences.data()}});
  }
  // Makes room for the gradients of vectors and of sequences. `chunk_backward` of each chunk follows.
  void begin_backward(host_exec const& exec, saved_type& saved) const {
    net_.begin_backward(exec, saved);
    for (auto& sequences : saved.sequences) sequences.make_gradients(exec);
  }
  // By a chunk's samples: of net, projections and sequence groups. `gradient` (chunked_parameters(),).
  void chunk_backward(host_exec const& exec, saved_type& saved, std::int64_t chunk, vector_view<float> logit_gradient,
                      vector_view<float> gradient, gradient_listener const& finished) const;
  // The gradients of all vectors go to the source.
  void source_backward(host_exec const& exec, saved_type& saved, vector_view<float> of_source);

  Source source_;
  std::vector<group_type> groups_;
  pooled_rows rows_;
  detail::vector_places places_;
  click_net<Gemm, Interaction> net_;
  detail::group_poolings<Pooling> poolings_;
  detail::projected_vectors projections_;
};

template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling>
void click_model<Source, Gemm, Interaction, Pooling>::backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient,
                                                               vector_view<float> gradient, gradient_listener const& finished) {
  check_backward(saved, false, logit_gradient.size(), gradient.size());
  auto const size = chunked_parameters();
  begin_backward(exec, saved);
  chunk_backward(exec, saved, 0, logit_gradient, gradient.slice(0, size), finished);
  source_backward(exec, saved, gradient.slice(size, gradient.size() - size));
}

template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling>
void click_model<Source, Gemm, Interaction, Pooling>::backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient,
                                                               vector_view<float> gradient, sum_tree& chunks) {
  check_backward(saved, true, logit_gradient.size(), gradient.size());
  auto const size = chunked_parameters();
  begin_backward(exec, saved);
  for (std::int64_t c = 0; c < saved.chunk_count(); ++c) {
    chunk_backward(exec, saved, c, logit_gradient, chunks.next(exec, size), {});
    chunks.add(exec);
  }
  source_backward(exec, saved, gradient.slice(size, gradient.size() - size));
}

template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling>
void click_model<Source, Gemm, Interaction, Pooling>::chunk_backward(host_exec const& exec, saved_type& saved, std::int64_t chunk,
                                                                     vector_view<float> logit_gradient, vector_view<float> gradient,
                                                                     gradient_listener const& finished) const {
  std::int64_t next = 0;
  auto const take = [&](std::int64_t size) { return gradient.slice(std::exchange(next, next + size), size); };
  auto const of_net = take(net_.parameter_count()), of_poolings = take(poolings_.parameter_count()),
             of_projections = take(projections_.parameter_count()), of_positions = take(poolings_.position_count());
  stopwatch watch;
  net_.backward(exec, saved, chunk, logit_gradient, of_net, finished);
  auto const samples = saved.chunk(chunk);
  auto const first = samples.first, last = samples.second;
  projections_.backward(exec, net_.policy(), places_.vectors, chunk, samples, net_.vector_gradients(saved).rows_from(first, last - first),
                        net_.first_lookup(), of_projections, saved.projected, finished);
  saved.times.dense += watch.lap();
  auto const of_vector = [&](std::int64_t g) { return vector_gradient(saved, g); };
  auto const of_target = [&](std::int64_t g) {
    auto const v = places_.groups[at(g)].target;
    return v < 0 ? matrix_view<float>{} : vector_gradient(saved, v);
  };
  poolings_.backward(exec, net_.policy(), saved.sequences, chunk, first, last, of_target, of_vector, saved.pooled, of_poolings,
                     of_positions, finished);
  saved.times.pooling += watch.lap();
}

template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling>
void click_model<Source, Gemm, Interaction, Pooling>::source_backward(host_exec const& exec, saved_type& saved,
                                                                      [[maybe_unused]] vector_view<float> of_source) {
  stopwatch watch;
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(places_.vectors.size()); ++v)
    if (places_.vectors[at(v)].output >= 0) saved.gradients[places_.vectors[at(v)].output] = vector_gradient(saved, v);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    auto const& outputs = places_.groups[g].outputs;
    buffer<matrix_view<float const>> of_keys(exec, static_cast<std::int64_t>(outputs.size()));
    saved.sequences[g].hand_out(exec, output(outputs[0]).expanded_gradients, of_keys.view());
    for (std::size_t i = 0; i < outputs.size(); ++i) saved.gradients[outputs[i]] = of_keys[static_cast<std::int64_t>(i)];
  }
  if constexpr (owns_parameters<Source>)
    source_.begin_backward(exec, saved.source, std::as_const(saved.gradients).view(), of_source);
  else
    source_.begin_backward(exec, saved.source, std::as_const(saved.gradients).view());
  saved.times.update += watch.lap();
}

/// The deep learning recommendation model, whose vectors meet in dot products. Source: Naumov et al., 2019.
template <embedding_source Source, gemm_policy Gemm>
using dlrm = click_model<Source, Gemm, dot_products>;

/// The deep & cross network, version 2, stacked. Source: Wang et al., WWW 2021.
template <embedding_source Source, gemm_policy Gemm>
using dcn = click_model<Source, Gemm, cross_layers>;

/// DeepFM, whose vectors of D + 1 elements hold D factors and a first-order weight. Source: Guo et al., IJCAI 2017.
template <embedding_source Source, gemm_policy Gemm>
using deepfm = click_model<Source, Gemm, factorization>;

}  // namespace TESSERA_ABI
}  // namespace tessera
