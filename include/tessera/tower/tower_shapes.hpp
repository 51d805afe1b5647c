// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_partition.hpp>

/// What sources with towers share.
namespace tessera {
inline namespace TESSERA_ABI {

/// How tower modules start and multiply.
struct tower_options {
  random_seed seed{};                   ///< how the modules' parameters start
  std::optional<any_gemm> policy = {};  ///< who multiplies matrices; `pass_through` needs none
};

namespace detail {

/// One tower of a partition: which features its module reads, and what it makes of them.
struct tower_shape {
  std::int64_t tower = 0;               ///< its number
  std::vector<std::int64_t> pooled;     ///< features whose vectors the module reads, in the tower's order
  std::vector<std::int64_t> sequences;  ///< features that pass it by
  std::vector<tower_output> outputs;    ///< of the module; none without pooled features
  std::int64_t width = 0;               ///< elements of all of them
  std::int64_t first_output = 0;        ///< of the source: the number of the module's first vector; sequences follow the last one
};

/// The shapes of all towers. `features` are the outputs of the tables, one a feature.
template <tower_recipe Recipe>
std::vector<tower_shape> shapes_of(Recipe const& recipe, tower_partition const& towers, vector_view<embedding_output const> features) {
  check_towers(towers, features.size());
  std::vector<tower_shape> shapes;
  std::int64_t next = 0;
  for (auto const& tower : towers.towers) {
    auto& shape = shapes.emplace_back();
    shape.tower = static_cast<std::int64_t>(shapes.size()) - 1;
    std::vector<std::int64_t> widths;
    for (auto const f : tower) {
      (features[f].sequence ? shape.sequences : shape.pooled).push_back(f);
      if (!features[f].sequence) widths.push_back(features[f].width);
    }
    if (!widths.empty()) shape.outputs = recipe.outputs(widths);
    shape.width = output_width(shape.outputs);
    shape.first_output = next;
    next += static_cast<std::int64_t>(shape.outputs.size() + shape.sequences.size());
  }
  return shapes;
}

/// What a source with these towers gives: of each tower the vectors that its module makes, then its sequences. Without modules the features
/// are as they were.
template <tower_recipe Recipe>
std::vector<embedding_output> outputs_of(std::vector<tower_shape> const& shapes, vector_view<embedding_output const> features) {
  if constexpr (std::same_as<Recipe, pass_through>) return {features.begin(), features.end()};
  std::vector<embedding_output> all;
  for (auto const& shape : shapes) {
    for (std::size_t v = 0; v < shape.outputs.size(); ++v) {
      auto const& made = shape.outputs[v];
      auto& output = all.emplace_back();
      output.width = made.width;
      if (made.feature < 0) {
        output.name = "tower " + std::to_string(shape.tower) + "." + std::to_string(v);
        continue;
      }
      auto const& feature = features[shape.pooled[static_cast<std::size_t>(made.feature)]];
      std::int64_t before = 0, all_of_it = 0;
      for (std::size_t w = 0; w < shape.outputs.size(); ++w)
        if (shape.outputs[w].feature == made.feature) before += w < v ? 1 : 0, ++all_of_it;
      output.name = feature.name + (all_of_it > 1 ? "." + std::to_string(before) : "");
      if (all_of_it == 1) output.key = feature.key;  // several have names of their own, which batches do not know
    }
    for (auto const f : shape.sequences) all.push_back(features[f]);
  }
  return all;
}

/// The modules' kind and each tower's features, for checkpoints: "dlrm_tower: 0 1, 2".
inline std::string text_of(std::string_view kind, std::vector<tower_shape> const& shapes) {
  std::string text(kind);
  for (auto const& shape : shapes) {
    text += shape.tower == 0 ? ":" : ",";
    for (auto const* const list : {&shape.pooled, &shape.sequences})
      for (auto const f : *list) text += " " + std::to_string(f);
  }
  return text;
}

/// Each output's columns of a matrix in which a module's outputs lie side by side.
template <class T>
struct columns_of_outputs {
  matrix_view<T> all;
  std::vector<tower_output> const& outputs;

  matrix_view<T> operator[](std::int64_t output) const noexcept(!checks_indices) {
    std::int64_t first = 0;
    for (std::int64_t v = 0; v < output; ++v) first += outputs[static_cast<std::size_t>(v)].width;
    return all.columns_from(first, outputs[static_cast<std::size_t>(output)].width);
  }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(outputs.size()); }
};

/// The modules of some towers. Gradients of their parameters lie in one block, tower after tower. Move-only.
template <tower_recipe Recipe>
class tower_modules {
 public:
  using module_type = typename Recipe::module;

  /// `widths_of(shape)`: those of the module's features. A rank that is not the first of its group holds copies.
  tower_modules(host_exec const& exec, Recipe const& recipe, std::vector<tower_shape> shapes, vector_view<embedding_output const> features,
                tower_options const& options, bool is_copy)
      : kind_(recipe.name), policy_(options.policy), is_copy_(is_copy) {
    for (auto& shape : shapes) {
      if (shape.pooled.empty()) continue;
      std::vector<std::int64_t> widths;
      for (auto const f : shape.pooled) widths.push_back(features[f].width);
      modules_.push_back(recipe.make(exec, widths, options.seed, first_stream + static_cast<std::uint32_t>(shape.tower)));
      names_.push_back("tower " + std::to_string(shape.tower));
      shapes_.push_back(std::move(shape));
    }
    if (!policy_ && !std::same_as<Recipe, pass_through>)
      throw error(errc::invalid_argument, "towers: modules need tower_options::policy", {{"modules", kind_}});
  }

  /// The recipe's name.
  std::string const& kind() const noexcept { return kind_; }
  std::int64_t size() const noexcept { return static_cast<std::int64_t>(modules_.size()); }
  tower_shape const& shape(std::int64_t m) const noexcept { return shapes_[static_cast<std::size_t>(m)]; }
  module_type const& module(std::int64_t m) const noexcept { return modules_[static_cast<std::size_t>(m)]; }

  std::vector<parameter_group> groups() {
    std::vector<parameter_group> all;
    for (std::size_t m = 0; m < modules_.size(); ++m) all.push_back({names_[m], modules_[m].parameters(), replication::tower, is_copy_});
    return all;
  }
  std::vector<parameter_block> blocks() {
    std::vector<parameter_block> all;
    for (std::size_t m = 0; m < modules_.size(); ++m)
      for (auto& block : modules_[m].blocks(names_[m])) all.push_back(std::move(block));
    return all;
  }
  std::int64_t parameter_count() const noexcept {
    std::int64_t sum = 0;
    for (auto const& module : modules_) sum += module.parameters().size();
    return sum;
  }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& module : modules_) sum += module.bytes();
    return sum;
  }

  /// Module m of some samples. `features` are the blocks of its pooled features.
  void forward(host_exec const& exec, std::int64_t m, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               typename module_type::saved& saved) const {
    if (policy_) module(m).forward(exec, *policy_, features, out, saved);
  }
  /// Its backward. It overwrites its part of `gradient` (parameter_count(),).
  void backward(host_exec const& exec, std::int64_t m, typename module_type::saved& saved, matrix_view<float const> out_gradient,
                vector_view<float> gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    std::int64_t first = 0;
    for (std::int64_t before = 0; before < m; ++before) first += module(before).parameters().size();
    if (policy_)
      this->module(m).backward(exec, *policy_, saved, out_gradient, gradient.slice(first, module(m).parameters().size()),
                               feature_gradients);
  }

 private:
  static constexpr std::uint32_t first_stream = 1U << 16;  // streams of other networks are below

  std::string kind_;
  std::optional<any_gemm> policy_;
  bool is_copy_;
  std::vector<tower_shape> shapes_;
  std::vector<module_type> modules_;
  std::vector<std::string> names_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
