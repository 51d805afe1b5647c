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
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_passes.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How far a `tower_source` is with a batch.
enum class tower_stage : std::uint8_t {
  none,      ///< nothing is saved
  begun,     ///< `finish` is next
  finished,  ///< `begin_backward` may follow
};

/// What a `tower_source` keeps of a batch, beside what the inner source keeps.
template <embedding_source Inner, tower_recipe Recipe>
struct tower_saved : Inner::saved_type {
  /// Modules run by chunks of so many samples, whose gradients a `sum_tree` adds; 0: by the whole batch. It is set before `begin`.
  std::int64_t chunk_samples = 0;
  std::int64_t first_chunk = 0;                ///< number of the first one among those of all ranks; as above
  std::int64_t samples = 0;                    ///< of the batch
  tower_stage at = tower_stage::none;          ///< what was done with it last
  detail::tower_passes<Recipe> passes;         ///< what the modules keep
  buffer<float> made;                          ///< what they make, and then its gradients
  buffer<matrix_view<float>> of_features;      ///< (features,): where the tables write
  buffer<matrix_view<float const>> gradients;  ///< (features,)
  sum_tree chunks;                             ///< of gradients of the modules' parameters
};

/// A source whose vectors pass through tower modules: what a model sees of each tower is what its module makes. The source owns the modules'
/// parameters, which a trainer updates with the model's. Sequences of a tower pass its module by.
///
///     tower_source towered(exec, std::move(tables), towers, dlrm_tower{.dim = 64, .c = 1}, {.policy = eigen_gemm{}});
///     click_model model(exec, options, std::move(towered), dot_products{});
///
/// One process so trains what `sptt_tables` trains on many ranks. With chunks, gradients of parameters have the bits of those. Modules over
/// tables that several ranks share are refused, as nobody would sum the gradients of their parameters. `sptt_tables` do it.
/// See `embedding_source`. Source: DMT, Section 3.2.
template <embedding_source Inner, tower_recipe Recipe>
class tower_source : public source_adaptor<Inner> {
  static_assert(!owns_parameters<Inner>, "tower_source: towers of a source that owns dense parameters, which nobody would update");
  static_assert(std::same_as<Recipe, pass_through> || !reads_hot_replicas<Inner>,
                "tower_source: a module over hot replicas. A module turns the vectors of all features of its tower into others where the "
                "tower's tables lie; vectors of hot rows are read on the ranks of their samples and would miss it. Use pass_through, or "
                "towers over tables without replicas");
  using base = source_adaptor<Inner>;

 public:
  using saved_type = tower_saved<Inner, Recipe>;
  /// Whether vectors are those of the inner source.
  static constexpr bool passes_through = std::same_as<Recipe, pass_through>;

  /// `towers` are of the inner source's outputs, by number.
  /// @throws tessera::error as `check_towers` and the recipe; invalid_argument for modules without `options.policy`, and for modules over an
  /// inner source whose `comm()` has several ranks.
  tower_source(host_exec const& exec, Inner inner, tower_partition const& towers, Recipe const& recipe, tower_options const& options = {})
      : base(refuse_ranks(std::move(inner), recipe)),
        shapes_(detail::shapes_of(recipe, towers, this->inner().outputs())),
        outputs_(detail::outputs_of<Recipe>(shapes_, this->inner().outputs())),
        modules_(exec, recipe, passes_through ? std::vector<detail::tower_shape>() : shapes_, this->inner().outputs(), options, false) {}

  vector_view<embedding_output const> outputs() const noexcept { return outputs_; }
  std::size_t bytes() const noexcept { return base::bytes() + modules_.bytes(); }

  /// The modules' parameters, a group a tower.
  std::vector<parameter_group> groups() { return modules_.groups(); }
  /// By name and shape: "tower 0.together.weight".
  std::vector<parameter_block> blocks() { return modules_.blocks(); }
  std::int64_t parameter_count() const noexcept { return modules_.parameter_count(); }
  /// The modules' kind and each tower's features, which a checkpoint keeps.
  std::string towers_text() const requires(!passes_through) { return detail::text_of(modules_.kind(), shapes_); }

  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved) {
    saved.at = tower_stage::none;
    base::begin(exec, batch, saved);
    begun(batch, saved);
  }
  void begin(host_exec const& exec, batch_view const& batch, saved_type& saved, typename Inner::prepared_type& prepared) {
    saved.at = tower_stage::none;
    base::begin(exec, batch, saved, prepared);
    begun(batch, saved);
  }
  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    if constexpr (passes_through) return base::finish(exec, saved, out);
    if (saved.at != tower_stage::begun)
      throw error(errc::invalid_argument, "tower_source::finish: nothing is saved: no begin went before, or it threw");
    lay_out(exec, saved, out);
    saved.at = tower_stage::none;
    base::finish(exec, saved, std::as_const(saved.of_features).view());
    run(exec, saved, out);
    saved.at = tower_stage::finished;
  }
  /// As above, with modules that run by chunks of so many samples; 0: by the whole batch.
  void predict(host_exec const& exec, batch_view const& batch, vector_view<matrix_view<float> const> out,
               std::int64_t chunk_samples = 0) const {
    if constexpr (passes_through) return base::predict(exec, batch, out);
    saved_type saved;
    saved.samples = batch.samples();
    saved.chunk_samples = chunk_samples;
    lay_out(exec, saved, out);
    base::predict(exec, batch, std::as_const(saved.of_features).view());
    run(exec, saved, out);
  }
  /// `of_parameters`, (parameter_count(),), is written here. @throws tessera::error shape_mismatch for another size of it or of blocks.
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients,
                      vector_view<float> of_parameters) {
    if constexpr (passes_through) return base::begin_backward(exec, saved, gradients);
    if (saved.at != tower_stage::finished) throw error(errc::invalid_argument, "tower_source::begin_backward: the forward is not finished");
    check_blocks("tower_source::begin_backward", saved.samples, gradients);
    if (of_parameters.size() != parameter_count())
      throw error(errc::shape_mismatch, "tower_source::begin_backward: one gradient a parameter",
                  {{"parameters", parameter_count()}, {"gradients", of_parameters.size()}});
    saved.gradients.resize(exec, base::outputs().size());
    for (auto const& shape : shapes_)
      for (std::size_t q = 0; q < shape.sequences.size(); ++q)
        saved.gradients[shape.sequences[q]] = gradients[shape.first_output + static_cast<std::int64_t>(shape.outputs.size() + q)];
    std::vector<matrix_view<float const>> of_made;
    auto* made = saved.made.data();
    for (std::int64_t m = 0; m < modules_.size(); ++m) {
      auto const& shape = modules_.shape(m);
      auto const blocks = blocks_of(shape, gradients);
      of_made.push_back(detail::side_by_side(blocks, shape.width));
      if (of_made.back().data() == nullptr) {
        matrix_view<float> const copy{made, saved.samples, shape.width};
        detail::copy_blocks(exec, blocks, detail::columns_of_outputs<float>{copy, shape.outputs});
        of_made.back() = copy;
      }
      made += saved.samples * shape.width;
      auto const of_features = saved.passes.gradients(0, m);
      for (std::int64_t i = 0; i < of_features.size(); ++i) saved.gradients[shape.pooled[at(i)]] = of_features[i];
    }
    saved.chunks.start(saved.first_chunk);
    saved.passes.backward(
        exec, modules_, [&](std::int64_t, std::int64_t m) { return of_made[at(m)]; }, saved.chunks);
    saved.chunks.join(exec, of_parameters);
    base::begin_backward(exec, saved, std::as_const(saved.gradients).view());
  }

 private:
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  static Inner refuse_ranks(Inner inner, [[maybe_unused]] Recipe const& recipe) {
    if constexpr (!passes_through && requires { inner.comm(); })
      if (auto const ranks = inner.comm().size(); ranks > 1)
        throw error(errc::invalid_argument,
                    "tower_source: modules over tables of several ranks, whose gradients nobody would sum; sptt_tables train them",
                    {{"modules", std::string(recipe.name)}, {"ranks", ranks}});
    return inner;
  }
  static void begun(batch_view const& batch, saved_type& saved) {
    saved.samples = batch.samples();
    saved.at = tower_stage::begun;
  }
  // The inner source looks at blocks of sequences.
  template <class T>
  void check_blocks(char const* call, std::int64_t samples, vector_view<matrix_view<T> const> blocks) const {
    if (blocks.size() != outputs().size())
      throw error(errc::shape_mismatch, std::string(call) + ": one block an output",
                  {{"outputs", outputs().size()}, {"blocks", blocks.size()}});
    for (std::int64_t o = 0; o < blocks.size(); ++o)
      if (!outputs()[o].sequence) detail::check_lookup_matrix(call, o, samples, outputs()[o].width, blocks[o]);
  }
  // The vectors that a module makes of all samples, and the caller's blocks of them.
  template <class T>
  static vector_view<matrix_view<T> const> blocks_of(detail::tower_shape const& shape, vector_view<matrix_view<T> const> blocks) {
    return blocks.slice(shape.first_output, static_cast<std::int64_t>(shape.outputs.size()));
  }

  // Makes room for what the modules read and make. The tables write into it, and into the caller's blocks of sequences.
  void lay_out(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) const {
    check_blocks("tower_source::finish", saved.samples, out);
    saved.passes.resize(exec, modules_, {{saved.samples, saved.first_chunk}}, saved.chunk_samples, base::outputs());
    saved.of_features.resize(exec, base::outputs().size());
    std::int64_t width = 0;
    for (auto const& shape : shapes_) width += shape.width;
    saved.made.resize(exec, saved.samples * width);
    for (auto const& shape : shapes_)
      for (std::size_t q = 0; q < shape.sequences.size(); ++q)
        saved.of_features[shape.sequences[q]] = out[shape.first_output + static_cast<std::int64_t>(shape.outputs.size() + q)];
    auto* made = saved.made.data();
    for (std::int64_t m = 0; m < modules_.size(); ++m) {
      auto const& shape = modules_.shape(m);
      auto const vectors = saved.passes.vectors(0, m);
      for (std::int64_t i = 0; i < vectors.size(); ++i) saved.of_features[shape.pooled[at(i)]] = vectors[i];
      saved.passes.output(0, m) = detail::side_by_side(blocks_of(shape, out), shape.width);
      if (saved.passes.output(0, m).data() == nullptr) saved.passes.output(0, m) = {made, saved.samples, shape.width};
      made += saved.samples * shape.width;
    }
  }
  void run(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) const {
    saved.passes.forward(exec, modules_);
    for (std::int64_t m = 0; m < modules_.size(); ++m) {
      auto const made = saved.passes.output(0, m);
      auto const blocks = blocks_of(modules_.shape(m), out);
      if (made.data() != blocks[0].data())
        detail::copy_blocks(exec, detail::columns_of_outputs<float const>{made, modules_.shape(m).outputs}, blocks);
    }
  }

  std::vector<detail::tower_shape> shapes_;
  std::vector<embedding_output> outputs_;
  detail::tower_modules<Recipe> modules_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
