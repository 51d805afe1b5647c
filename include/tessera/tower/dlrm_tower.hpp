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
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class dlrm_tower_module;

/// Towers of two linear maps: `p` vectors of all features together, then `c` vectors of each feature. All are of `dim` elements.
///
/// The first map reads the features' vectors side by side, the second reads one at a time and is the same for all. A tower of |F| features
/// makes p + c |F| vectors. A single feature of `dim` elements that is to give one vector passes through, without parameters. With c above 0
/// all features of a tower have one width. See `tower_recipe`. Source: DMT, listing 1.
struct dlrm_tower {
  std::int64_t dim = 64;  ///< elements of each output
  std::int64_t p = 0;     ///< outputs of the features together
  std::int64_t c = 1;     ///< outputs of each feature

  using module = dlrm_tower_module;
  static constexpr std::string_view name = "dlrm_tower";

  /// Those of all features together, then those of feature 0, of feature 1, … @throws tessera::error invalid_argument.
  std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const;
  /// Both maps, biases included. @throws tessera::error invalid_argument.
  tower_cost cost(vector_view<std::int64_t const> widths) const;
  /// Makes the module. Weights are uniform in ±1 / sqrt(in), biases are 0. @throws tessera::error invalid_argument.
  dlrm_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) const;
};

namespace detail {

/// The two maps of a tower, of which one or both may be missing.
struct dlrm_tower_maps {
  linear_in_block together, each;

  dlrm_tower_maps(dlrm_tower const& options, vector_view<std::int64_t const> widths) {
    auto const columns = check_tower_widths("dlrm_tower", widths);
    auto const dim = options.dim, p = options.p, c = options.c;
    check_tower_option("dlrm_tower", "dim", dim, 1, most_tower_columns);
    check_tower_option("dlrm_tower", "p", p, 0, most_tower_columns / dim);
    check_tower_option("dlrm_tower", "c", c, 0, (most_tower_columns / dim - p) / widths.size());
    if (p == 0 && c == 0) throw error(errc::invalid_argument, "dlrm_tower: p and c are both 0", {{"p", p}, {"c", c}});
    if (c > 0) check_one_width("dlrm_tower", widths);
    if (maps_to_itself(widths, p + c, dim)) return;
    together = {columns, p * dim};
    each = {widths[0], c * dim};
  }
  std::int64_t parameters() const noexcept { return together.parameters() + each.parameters(); }
};

}  // namespace detail

/// The module of a `dlrm_tower`. See `tower_module`.
class dlrm_tower_module {
 public:
  /// What `backward` needs of `forward`.
  using saved = detail::tower_saved;

  /// @throws tessera::error invalid_argument as the recipe.
  dlrm_tower_module(host_exec const& exec, dlrm_tower const& options, vector_view<std::int64_t const> widths, random_seed seed,
                    std::uint32_t stream)
      : layout_("dlrm_tower", widths, options.outputs(widths)), maps_(options, widths), parameters_(exec, maps_.parameters()) {
    together().initialise(exec, of_together(parameters_.view()), seed, stream, 0);
    each().initialise(exec, of_each(parameters_.view()), seed, stream, 1);
  }

  std::vector<tower_output> const& outputs() const noexcept { return layout_.outputs(); }
  std::int64_t output_width() const noexcept { return layout_.output_width(); }
  /// Weight and bias of the map of all features, then of the map of each.
  vector_view<float> parameters() noexcept { return parameters_.view(); }
  vector_view<float const> parameters() const noexcept { return parameters_.view(); }
  /// "<prefix>.together.weight" (p dim, elements of all features), "<prefix>.together.bias", "<prefix>.each.weight" (c dim, elements of a
  /// feature), "<prefix>.each.bias"; those that there are.
  std::vector<parameter_block> blocks(std::string_view prefix) {
    std::vector<parameter_block> all;
    together().add_blocks(all, std::string(prefix) + ".together", of_together(parameters()));
    each().add_blocks(all, std::string(prefix) + ".each", of_each(parameters()));
    return all;
  }
  std::size_t bytes() const noexcept { return parameters_.capacity_bytes(); }

  /// @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               saved& saved) const {
    saved.samples = -1;
    layout_.check_forward(features, out);
    detail::save_features(exec, layout_, features, together().out > 0, saved);
    if (passes_through()) detail::copy_blocks(exec, features, detail::columns_of_features<float>{out, layout_.widths()});
    if (together().out > 0)
      linear_forward(exec, policy, saved.side_by_side, together().view(of_together(parameters())), activation::identity,
                     out.columns_from(0, together().out));
    if (each().out > 0)
      for (std::int64_t f = 0; f < layout_.features(); ++f)
        linear_forward(exec, policy, features[f], each().view(of_each(parameters())), activation::identity, of_feature(out, f));
    saved.samples = out.rows();
  }

  /// Sums over features go in their order. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved const& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    layout_.check_backward(saved.samples, out_gradient, parameter_gradient, parameters_.size(), feature_gradients);
    if (passes_through())
      return detail::copy_blocks(exec, detail::columns_of_features<float const>{out_gradient, layout_.widths()}, feature_gradients);
    if (together().out > 0) {
      auto const gradient = out_gradient.columns_from(0, together().out);
      linear_backward_parameters(exec, policy, saved.side_by_side, gradient, together().view(of_together(parameter_gradient)));
      detail::write_feature_gradients(exec, layout_, feature_gradients, [&](matrix_view<float> side_by_side) {
        linear_backward_input(exec, policy, gradient, together().view(of_together(parameters())), activation::identity, {}, side_by_side);
      });
    }
    if (each().out > 0) backward_each(exec, policy, saved, out_gradient, of_each(parameter_gradient), feature_gradients);
  }

 private:
  detail::linear_in_block const& together() const noexcept { return maps_.together; }
  detail::linear_in_block const& each() const noexcept { return maps_.each; }
  bool passes_through() const noexcept { return together().out == 0 && each().out == 0; }
  template <class T>
  vector_view<T> of_together(vector_view<T> block) const noexcept {
    return block.slice(0, together().parameters());
  }
  template <class T>
  vector_view<T> of_each(vector_view<T> block) const noexcept {
    return block.slice(together().parameters(), each().parameters());
  }
  // The columns of `out` that the second map makes of a feature.
  template <class T>
  matrix_view<T> of_feature(matrix_view<T> out, std::int64_t feature) const noexcept {
    return out.columns_from(together().out + feature * each().out, each().out);
  }

  template <class Gemm>
  void backward_each(host_exec const& exec, Gemm const& policy, saved const& saved, matrix_view<float const> out_gradient,
                     vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    auto const own = each().view(of_each(parameters()));
    auto const sum = each().view(parameter_gradient);
    auto const samples = out_gradient.rows();
    bool const adds = together().out > 0;
    buffer<float> of_one_feature(exec, each().parameters()), of_vectors(exec, adds ? samples * each().in : 0);
    auto const part = each().view(of_one_feature.view());
    for (std::int64_t f = 0; f < layout_.features(); ++f) {
      auto const gradient = of_feature(out_gradient, f);
      if (f == 0) {
        linear_backward_parameters(exec, policy, saved.features[f], gradient, sum);
      } else {
        gemm(exec, policy, transposed(gradient), saved.features[f], part.weight, detail::add_tile_to{sum.weight});
        detail::column_sums(exec, gradient, part.bias);
        for (std::int64_t i = 0; i < sum.bias.size(); ++i) sum.bias[i] += part.bias[i];
      }
      if (adds)
        gemm(exec, policy, gradient, own.weight, matrix_view<float>{of_vectors.data(), samples, each().in},
             detail::add_tile_to{feature_gradients[f]});
      else
        linear_backward_input(exec, policy, gradient, own, activation::identity, {}, feature_gradients[f]);
    }
  }

  detail::tower_layout layout_;
  detail::dlrm_tower_maps maps_;
  buffer<float> parameters_;
};

inline std::vector<tower_output> dlrm_tower::outputs(vector_view<std::int64_t const> widths) const {
  detail::dlrm_tower_maps(*this, widths);
  auto all = detail::mixed_outputs(widths, p, dim);
  for (std::int64_t f = 0; f < widths.size(); ++f) all.insert(all.end(), static_cast<std::size_t>(c), tower_output{dim, f});
  return all;
}

inline tower_cost dlrm_tower::cost(vector_view<std::int64_t const> widths) const {
  detail::dlrm_tower_maps const maps(*this, widths);
  return {maps.parameters(), maps.together.multiply_adds() + widths.size() * maps.each.multiply_adds()};
}

inline dlrm_tower_module dlrm_tower::make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed,
                                          std::uint32_t stream) const {
  return dlrm_tower_module(exec, *this, widths, seed, stream);
}

static_assert(tower_recipe<dlrm_tower>);

}  // namespace TESSERA_ABI
}  // namespace tessera
