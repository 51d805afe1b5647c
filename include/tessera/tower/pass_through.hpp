// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class pass_through_module;

/// Towers whose vectors travel as they are, of any widths. Training is then the same as without towers. See `tower_recipe`.
/// Source: DMT, Section 5.2.1.
struct pass_through {
  using module = pass_through_module;
  static constexpr std::string_view name = "pass_through";

  /// The features' vectors, in their order.
  std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const {
    detail::check_tower_widths("pass_through", widths);
    std::vector<tower_output> all;
    for (std::int64_t f = 0; f < widths.size(); ++f) all.push_back({widths[f], f});
    return all;
  }
  /// Nothing.
  tower_cost cost(vector_view<std::int64_t const> widths) const {
    detail::check_tower_widths("pass_through", widths);
    return {};
  }
  /// Makes the module, which has no parameters.
  pass_through_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) const;
};

/// Writes the features' vectors side by side, as they are. It has no parameters. See `tower_module`.
class pass_through_module {
 public:
  /// What `backward` needs of `forward`.
  struct saved {
    std::int64_t samples = -1;  ///< of the forward; -1: there was none
  };

  /// Takes the shape.
  pass_through_module(pass_through const& options, vector_view<std::int64_t const> widths)
      : layout_("pass_through", widths, options.outputs(widths)) {}

  std::vector<tower_output> const& outputs() const noexcept { return layout_.outputs(); }
  std::int64_t output_width() const noexcept { return layout_.output_width(); }
  vector_view<float> parameters() noexcept { return {}; }
  vector_view<float const> parameters() const noexcept { return {}; }
  std::vector<parameter_block> blocks(std::string_view) const { return {}; }
  std::size_t bytes() const noexcept { return 0; }

  /// Copies. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const&, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               saved& saved) const {
    saved.samples = -1;
    layout_.check_forward(features, out);
    detail::copy_blocks(exec, features, detail::columns_of_features<float>{out, layout_.widths()});
    saved.samples = out.rows();
  }

  /// Copies back. @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const&, saved const& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    layout_.check_backward(saved.samples, out_gradient, parameter_gradient, 0, feature_gradients);
    detail::copy_blocks(exec, detail::columns_of_features<float const>{out_gradient, layout_.widths()}, feature_gradients);
  }

 private:
  detail::tower_layout layout_;
};

inline pass_through_module pass_through::make(host_exec const&, vector_view<std::int64_t const> widths, random_seed, std::uint32_t) const {
  return pass_through_module(*this, widths);
}

static_assert(tower_recipe<pass_through>);

}  // namespace TESSERA_ABI
}  // namespace tessera
