// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

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
#include <tessera/train/group_sequences.hpp>
#include <tessera/train/position_vectors.hpp>
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
             places_.dim(source_.outputs(), options.dim, options.projects), interaction, policy) {
    detail::check_choice("click_model", "rows", options.rows, pooled_rows::expanded);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      poolings_.emplace_back(exec, groups_[g].pooling, places_.vectors[g].width, options.seed,
                             static_cast<std::uint32_t>(first_pooling_stream + g));
      part_names_.push_back("pooling." + std::to_string(g));
    }
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].positions < 0)
        throw error(errc::invalid_argument, "click_model: positions of a group", {{"group", g}, {"positions", groups_[g].positions}});
      positions_.emplace_back();
      if (groups_[g].positions > 0)
        positions_[g] = position_vectors(exec, groups_[g].positions, places_.vectors[g].width, options.seed,
                                         static_cast<std::uint32_t>(first_pooling_stream + g));
      position_names_.push_back("positions." + std::to_string(g));
    }
    for (std::size_t v = 0; v < places_.vectors.size(); ++v) {
      if (places_.vectors[v].width == dim()) continue;
      places_.vectors[v].projection = static_cast<std::int64_t>(projections_.size());
      places_.vectors[v].column = projected_columns_;
      projected_columns_ += places_.vectors[v].width;
      auto const stream = static_cast<std::uint32_t>(first_projection_stream + v);
      projections_.emplace_back(exec, mlp_options{{places_.vectors[v].width, dim()}, activation::identity, options.seed, stream});
      part_names_.push_back("projection." + std::to_string(v));
    }
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
  std::size_t bytes() const noexcept {
    auto sum = net_.bytes() + source_.bytes();
    for (auto const& pooling : poolings_) sum += pooling.bytes();
    for (auto const& positions : positions_) sum += positions.bytes();
    for (auto const& projection : projections_) sum += projection.bytes();
    return sum;
  }

  /// The dense parameters, block after block, in the order of the gradients of `backward`. Some blocks may be empty.
  /// The order is bottom, interaction, top, the pooling of each sequence group, projections, position vectors, then what the source owns.
  std::vector<parameter_group> groups() {
    auto const dense = net_.groups();
    std::vector<parameter_group> all(dense.begin(), dense.end());
    std::size_t part = 0;
    for (auto& pooling : poolings_) all.push_back({part_names_[part++], pooling.parameters()});
    for (auto& projection : projections_) all.push_back({part_names_[part++], projection.parameters()});
    for (std::size_t g = 0; g < positions_.size(); ++g)
      if (positions_[g].count() > 0) all.push_back({position_names_[g], positions_[g].parameters()});
    if constexpr (owns_parameters<Source>)
      for (auto const& group : source_.groups()) all.push_back(group);
    return all;
  }
  /// How many dense parameters all groups have together.
  std::int64_t parameter_count() const {
    auto sum = net_.parameter_count();
    for (auto const& pooling : poolings_) sum += pooling.parameters().size();
    for (auto const& projection : projections_) sum += projection.parameters().size();
    for (auto const& positions : positions_) sum += positions.parameters().size();
    if constexpr (owns_parameters<Source>) sum += source_.parameter_count();
    return sum;
  }
  /// All dense parameters by name and shape, for checkpoints.
  std::vector<parameter_block> blocks() {
    auto all = net_.blocks();
    auto const add = [&](std::vector<parameter_block> some) { std::move(some.begin(), some.end(), std::back_inserter(all)); };
    std::size_t part = 0;
    for (auto& pooling : poolings_) add(pooling.blocks(part_names_[part++]));
    for (auto& projection : projections_) add(projection.blocks(part_names_[part++]));
    for (std::size_t g = 0; g < positions_.size(); ++g)
      if (positions_[g].count() > 0) add(positions_[g].blocks(position_names_[g]));
    if constexpr (owns_parameters<Source>) add(source_.blocks());
    return all;
  }

  /// Refuses a batch that the model was not made for. @throws tessera::error as `forward`, but for what the source throws.
  void check_batch(batch_view const& batch) const {
    detail::check_model_batch("click_model", batch.dense.columns(), net_.dense_features(), batch.sparse.keys, places_.keys);
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

  /// Computes the logits of a batch, (samples,), without changing the model. They live in `saved`, which no backward takes.
  /// @throws as `forward`.
  vector_view<float> predict(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    lay_out(exec, batch, saved);
    source_.predict(exec, batch, saved.out.view());
    put_together(exec, saved);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      poolings_[g].predict(exec, net_.policy(), saved.sequences[g].get(), target(saved, static_cast<std::int64_t>(g)),
                           vector(saved, static_cast<std::int64_t>(g)));
    project(exec, saved);
    return net_.forward(exec, batch.dense, saved);
  }

  /// Computes the gradients of the forward that filled `saved`. No row is updated yet: `update_rows` or `gradients_of_rows` comes next.
  /// `logit_gradient` (samples,) is that of the logits and may be overwritten.
  /// `gradient` (parameter_count(),) is overwritten with those of the dense parameters, in the order of `groups()`.
  /// @throws tessera::error shape_mismatch for blocks of another size; invalid_argument, with sequence groups, for a second backward of one
  /// forward. Nothing has been written then. What the source throws may come later.
  void backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient, vector_view<float> gradient);

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
  static constexpr std::uint32_t first_pooling_stream = 16;  // behind those of bottom, top and interaction
  static constexpr std::uint32_t first_projection_stream = 1 << 16;

  static constexpr std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }

  embedding_output const& output(std::int64_t number) const noexcept { return source_.outputs()[number]; }
  // Where vector v is before its projection, of all vectors or of all their gradients.
  matrix_view<float> block(matrix_view<float> all, buffer<float>& projected, std::int64_t v) const {
    auto const& of = places_.vectors[at(v)];
    if (of.projection < 0) return all.columns_from((net_.first_lookup() + v) * dim(), dim());
    return matrix_view<float>{projected.data(), all.rows(), projected_columns_}.columns_from(of.column, of.width);
  }
  matrix_view<float> vector(saved_type& saved, std::int64_t v) const { return block(net_.vectors(saved), saved.projected_from, v); }
  matrix_view<float> vector_gradient(saved_type& saved, std::int64_t v) const {
    return block(net_.vector_gradients(saved), saved.projected_gradient, v);
  }
  matrix_view<float> target(saved_type& saved, std::int64_t g) const {
    auto const v = places_.groups[at(g)].target;
    return v < 0 ? matrix_view<float>{} : vector(saved, v);
  }

  // Makes room for a batch, and says where each output goes.
  void lay_out(host_exec const& exec, batch_view const& batch, saved_type& saved) const {
    check_batch(batch);
    net_.resize(exec, batch.samples(), saved);
    saved.projected_from.resize(exec, batch.samples() * projected_columns_);
    saved.out.resize(exec, source_.outputs().size());
    saved.gradients.resize(exec, saved.out.size());
    saved.sequences.resize(groups_.size());
    saved.pooled.resize(groups_.size());
    saved.projections.resize(projections_.size());
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
      bool const expands = rows_ == pooled_rows::expanded || output(of.outputs[0]).expanded_gradients;
      buffer<matrix_view<float>> out(exec, keys);
      saved.sequences[g].lay_out(exec, batch.sparse.slice_keys(of.first_key, keys), batch.inverse_keyed().inverse(of.first_key), expands,
                                 places_.vectors[g].width, out.view());
      for (std::int64_t i = 0; i < keys; ++i) saved.out[of.outputs[at(i)]] = out[i];
    }
  }

  template <class Begin>
  vector_view<float> forward(host_exec const& exec, batch_view const& batch, saved_type& saved, Begin const& begin) {
    lay_out(exec, batch, saved);
    stopwatch watch;
    begin();
    source_.finish(exec, saved.source, saved.out.view());
    put_together(exec, saved);
    saved.times.lookup += watch.lap();
    for (std::size_t g = 0; g < groups_.size(); ++g)
      poolings_[g].forward(exec, net_.policy(), saved.sequences[g].get(), target(saved, static_cast<std::int64_t>(g)),
                           vector(saved, static_cast<std::int64_t>(g)), saved.pooled[g]);
    saved.times.pooling += watch.lap();
    project(exec, saved);
    auto const logits = net_.forward(exec, batch.dense, saved);
    saved.times.dense += watch.lap();
    return logits;
  }

  void put_together(host_exec const& exec, saved_type& saved) const {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      saved.sequences[g].put_together(exec);
      if (positions_[g].count() > 0) positions_[g].add(exec, saved.sequences[g].vector_rows());
    }
  }

  void project(host_exec const& exec, saved_type& saved) const {
    auto const all = net_.vectors(saved);
    for (std::int64_t v = 0; v < static_cast<std::int64_t>(places_.vectors.size()); ++v)
      if (auto const p = places_.vectors[at(v)].projection; p >= 0)
        projections_[at(p)].forward(exec, net_.policy(), vector(saved, v), all.columns_from((net_.first_lookup() + v) * dim(), dim()),
                                    saved.projections[at(p)]);
  }

  Source source_;
  std::vector<group_type> groups_;
  pooled_rows rows_;
  detail::vector_places places_;
  click_net<Gemm, Interaction> net_;
  std::vector<Pooling> poolings_;
  std::vector<position_vectors> positions_;  // of each group; without any, of no count
  std::vector<mlp> projections_;
  std::int64_t projected_columns_ = 0;
  std::vector<std::string> part_names_;  // of poolings, then of projections
  std::vector<std::string> position_names_;
};

template <embedding_source Source, gemm_policy Gemm, feature_interaction Interaction, sequence_pooler Pooling>
void click_model<Source, Gemm, Interaction, Pooling>::backward(host_exec const& exec, saved_type& saved, vector_view<float> logit_gradient,
                                                               vector_view<float> gradient) {
  detail::check_model_backward("click_model", saved.logits.size(), logit_gradient.size(), gradient.size(), parameter_count());
  for (auto const& sequences : saved.sequences)
    if (!sequences.has_vectors)
      throw error(errc::invalid_argument, "click_model: gradients took the place of the sequences' vectors; another forward comes first",
                  {{"group", &sequences - saved.sequences.data()}});
  stopwatch watch;
  std::int64_t next = 0;
  auto const take = [&](std::int64_t size) { return gradient.slice(std::exchange(next, next + size), size); };
  net_.backward(exec, saved, logit_gradient, take(net_.parameter_count()));
  auto const of_poolings = [&] {
    std::int64_t size = 0;
    for (auto const& pooling : poolings_) size += pooling.parameters().size();
    return take(size);
  }();
  saved.projected_gradient.resize(exec, saved.projected_from.size());
  auto const of_vectors = net_.vector_gradients(saved);
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(places_.vectors.size()); ++v)
    if (auto const p = places_.vectors[at(v)].projection; p >= 0)
      projections_[at(p)].backward(exec, net_.policy(), saved.projections[at(p)],
                                   of_vectors.columns_from((net_.first_lookup() + v) * dim(), dim()),
                                   take(projections_[at(p)].parameters().size()), vector_gradient(saved, v));
  saved.times.dense += watch.lap();
  std::vector<vector_view<float>> of_positions;
  for (auto const& positions : positions_) of_positions.push_back(take(positions.parameters().size()));
  std::int64_t first = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    auto& sequences = saved.sequences[g];
    auto const size = poolings_[g].parameters().size();
    auto const v = places_.groups[g].target;
    poolings_[g].backward(exec, net_.policy(), saved.pooled[g], vector_gradient(saved, static_cast<std::int64_t>(g)),
                          of_poolings.slice(std::exchange(first, first + size), size), sequences.make_gradients(exec),
                          v < 0 ? matrix_view<float>{} : vector_gradient(saved, v));
    if (positions_[g].count() > 0) positions_[g].backward(exec, sequences.gradient_rows(), of_positions[g]);
  }
  saved.times.pooling += watch.lap();
  for (std::int64_t v = 0; v < static_cast<std::int64_t>(places_.vectors.size()); ++v)
    if (places_.vectors[at(v)].output >= 0) saved.gradients[places_.vectors[at(v)].output] = vector_gradient(saved, v);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    auto const& outputs = places_.groups[g].outputs;
    buffer<matrix_view<float const>> of_keys(exec, static_cast<std::int64_t>(outputs.size()));
    saved.sequences[g].hand_out(exec, output(outputs[0]).expanded_gradients, of_keys.view());
    for (std::size_t i = 0; i < outputs.size(); ++i) saved.gradients[outputs[i]] = of_keys[static_cast<std::int64_t>(i)];
  }
  if constexpr (owns_parameters<Source>)
    source_.begin_backward(exec, saved.source, std::as_const(saved.gradients).view(), gradient.slice(next, gradient.size() - next));
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
