// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/dot_interaction.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class dot_tower_module;

/// Towers of dot products: a linear map reads the features' vectors and the products of all pairs, and makes `vectors` vectors of `dim`
/// elements.
///
/// The map reads the vectors too, as products alone would forget what a feature says by itself. All features of a tower have one width. A
/// single feature of `dim` elements that is to give one vector passes through, without parameters. See `tower_recipe`.
/// Source of the products: DMT, Sections 3.2 and 4.
struct dot_tower {
  std::int64_t dim = 64;     ///< elements of each output
  std::int64_t vectors = 1;  ///< outputs; 0: as many as the tower has features

  using module = dot_tower_module;
  static constexpr std::string_view name = "dot_tower";

  /// Each is made of all features. @throws tessera::error invalid_argument.
  std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const;
  /// The products, and the map with its bias. @throws tessera::error invalid_argument.
  tower_cost cost(vector_view<std::int64_t const> widths) const;
  /// Makes the module. Weights are uniform in ±1 / sqrt(in), biases are 0. @throws tessera::error invalid_argument.
  dot_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) const;
};

namespace detail {

/// The map of a tower, which may be missing.
struct dot_tower_map {
  std::int64_t vectors;
  linear_in_block map{};

  dot_tower_map(dot_tower const& options, vector_view<std::int64_t const> widths) {
    auto const columns = check_tower_widths("dot_tower", widths);
    check_one_width("dot_tower", widths);
    check_tower_option("dot_tower", "dim", options.dim, 1, most_tower_columns);
    check_tower_option("dot_tower", "vectors", options.vectors, 0, most_tower_columns / options.dim);
    check_tower_option("dot_tower", "features", widths.size(), 1, 1 << 14);  // of which pairs are fewer than `most_tower_columns`
    vectors = options.vectors > 0 ? options.vectors : widths.size();
    check_tower_option("dot_tower", "vectors", vectors, 1, most_tower_columns / options.dim);
    if (!maps_to_itself(widths, vectors, options.dim))
      map = {columns - widths[0] + dot_interaction_width(widths.size(), widths[0]), vectors * options.dim};
  }
};

}  // namespace detail

/// The module of a `dot_tower`. See `tower_module`.
class dot_tower_module {
 public:
  /// What `backward` needs of `forward`.
  struct saved : detail::tower_saved {
    buffer<float> map_input;  ///< (samples, inputs of the map): feature 0, the products, the other features
  };

  /// @throws tessera::error invalid_argument as the recipe.
  dot_tower_module(host_exec const& exec, dot_tower const& options, vector_view<std::int64_t const> widths, random_seed seed,
                   std::uint32_t stream)
      : layout_("dot_tower", widths, options.outputs(widths)),
        map_(detail::dot_tower_map(options, widths).map),
        parameters_(exec, map_.parameters()) {
    map_.initialise(exec, parameters_.view(), seed, stream, 0);
  }

  std::vector<tower_output> const& outputs() const noexcept { return layout_.outputs(); }
  std::int64_t output_width() const noexcept { return layout_.output_width(); }
  /// Weight and bias of the map. It reads feature 0, then the products (1,0) (2,0) (2,1) (3,0) …, then features 1, 2, …
  vector_view<float> parameters() noexcept { return parameters_.view(); }
  vector_view<float const> parameters() const noexcept { return parameters_.view(); }
  /// "<prefix>.map.weight" (vectors dim, inputs of the map), "<prefix>.map.bias"; none where a single feature passes through.
  std::vector<parameter_block> blocks(std::string_view prefix) {
    std::vector<parameter_block> all;
    map_.add_blocks(all, std::string(prefix) + ".map", parameters());
    return all;
  }
  std::size_t bytes() const noexcept { return parameters_.capacity_bytes(); }

  /// @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               saved& saved) const {
    saved.samples = -1;
    layout_.check_forward(features, out);
    detail::save_features(exec, layout_, features, false, saved);
    if (map_.out == 0) {
      detail::copy_blocks(exec, features, detail::columns_of_features<float>{out, layout_.widths()});
    } else {
      saved.map_input.resize(exec, out.rows() * map_.in);
      matrix_view<float> const input{saved.map_input.data(), out.rows(), map_.in};
      dot_interaction(exec, features, products(input));
      if (layout_.features() > 1) detail::copy_blocks(exec, others(features), other_columns(input));
      linear_forward(exec, policy, input, map_.view(parameters()), activation::identity, out);
    }
    saved.samples = out.rows();
  }

  /// @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved const& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    layout_.check_backward(saved.samples, out_gradient, parameter_gradient, parameters_.size(), feature_gradients);
    if (map_.out == 0) return detail::copy_blocks(exec, vector_view(&out_gradient, 1), feature_gradients);
    auto const samples = saved.samples;
    matrix_view<float const> const input{saved.map_input.data(), samples, map_.in};
    linear_backward_parameters(exec, policy, input, out_gradient, map_.view(parameter_gradient));
    buffer<float> room(exec, samples * map_.in);
    matrix_view<float> const of_input{room.data(), samples, map_.in};
    linear_backward_input(exec, policy, out_gradient, map_.view(parameters()), activation::identity, {}, of_input);
    dot_interaction_backward(exec, saved.features.view(), products(of_input), feature_gradients);
    auto const through_map = other_columns(of_input);
    for_each_piece(exec, samples, detail::tower_rows_per_piece, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t f = 1; f < layout_.features(); ++f)
        detail::add_tile_to{feature_gradients[f]}(through_map[f - 1].rows_from(first, last - first), first, 0);
    });
  }

 private:
  std::int64_t products_width() const noexcept { return dot_interaction_width(layout_.features(), layout_.widths()[0]); }
  // Feature 0 and the products.
  matrix_view<float> products(matrix_view<float> input) const noexcept(!checks_indices) { return input.columns_from(0, products_width()); }
  // Features 1, 2, …
  detail::columns_of_features<float> other_columns(matrix_view<float> input) const noexcept(!checks_indices) {
    return {input.columns_from(products_width(), map_.in - products_width()), others(layout_.widths())};
  }
  template <class T>
  static vector_view<T> others(vector_view<T> all) noexcept(!checks_indices) {
    return all.slice(1, all.size() - 1);
  }

  detail::tower_layout layout_;
  detail::linear_in_block map_;
  buffer<float> parameters_;
};

inline std::vector<tower_output> dot_tower::outputs(vector_view<std::int64_t const> widths) const {
  return detail::mixed_outputs(widths, detail::dot_tower_map(*this, widths).vectors, dim);
}

inline tower_cost dot_tower::cost(vector_view<std::int64_t const> widths) const {
  auto const map = detail::dot_tower_map(*this, widths).map;
  auto const of_products = widths.size() * (widths.size() - 1) / 2 * widths[0];
  return {map.parameters(), map.multiply_adds() + of_products};
}

inline dot_tower_module dot_tower::make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed,
                                        std::uint32_t stream) const {
  return dot_tower_module(exec, *this, widths, seed, stream);
}

static_assert(tower_recipe<dot_tower>);

}  // namespace TESSERA_ABI
}  // namespace tessera
