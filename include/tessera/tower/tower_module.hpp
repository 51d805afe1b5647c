// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/parameters.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A vector that a tower module makes of each sample.
struct tower_output {
  std::int64_t width = 0;     ///< floats
  std::int64_t feature = -1;  ///< the one of the tower's features that it is made of; -1: it is made of several

  friend bool operator==(tower_output const&, tower_output const&) = default;
};

/// What a tower module costs.
struct tower_cost {
  std::int64_t parameters = 0;
  /// Of a sample's forward, in products of matrices and of vectors. What is done once an element is not counted. A backward takes twice as
  /// many.
  std::int64_t multiply_adds = 0;

  friend bool operator==(tower_cost const&, tower_cost const&) = default;
};

/// The dense part of a tower. It turns the vectors of the tower's features into fewer or shorter ones, before they travel to other hosts.
/// A module holds parameters only, perhaps none, in one block. Move-only models keep that block where it is when they move.
///
/// - `outputs()` lists the vectors that it makes of a sample. They lie side by side in `out` (samples, output_width()).
/// - `parameters()` is the block. `blocks(prefix)` names its parts for checkpoints, of the group `replication::tower`. `bytes()` is what it
///   takes.
/// - `forward(exec, gemm, features, out, saved)` reads `features`, a block (samples, width) for each feature, and overwrites `out`. It leaves
///   in `saved`, which the caller owns, what `backward` needs. Any number of forwards may be in flight. The blocks must outlive `saved`, and
///   `out` need not. After a forward that throws, no backward takes `saved`.
/// - `backward(exec, gemm, saved, out_gradient, parameter_gradient, feature_gradients)` reads the gradient of `out`. It overwrites
///   `parameter_gradient`, laid out like `parameters()`, and `feature_gradients`, a block for each feature.
///
/// Matrices have any row stride of a row or more. What is written overlaps nothing else. There may be no samples. The number of threads
/// changes no bit. Calls throw tessera::error shape_mismatch, naming block, rows and columns, before anything is written.
/// Source of the idea: DMT, Section 3.2.
template <class M>
concept tower_module = std::move_constructible<M> &&
    requires(M& own, M const& held, host_exec const& exec, any_gemm const& policy, vector_view<matrix_view<float const> const> features,
             matrix_view<float> out, typename M::saved& saved, matrix_view<float const> out_gradient, vector_view<float> block,
             vector_view<matrix_view<float> const> feature_gradients) {
  { held.outputs() } -> std::same_as<std::vector<tower_output> const&>;
  { held.output_width() } -> std::same_as<std::int64_t>;
  { own.parameters() } -> std::same_as<vector_view<float>>;
  { held.parameters() } -> std::same_as<vector_view<float const>>;
  { own.blocks(std::string_view()) } -> std::same_as<std::vector<parameter_block>>;
  { held.bytes() } -> std::same_as<std::size_t>;
  held.forward(exec, policy, features, out, saved);
  held.backward(exec, policy, saved, out_gradient, block, feature_gradients);
};

/// Options of a tower module, given before it is known which features a tower has. One recipe makes a module for each tower, all of one
/// type.
///
/// - `name` is that of the kind, for checkpoints.
/// - `outputs(widths)` lists what the module of a tower makes whose features have vectors of these `widths` (features,).
/// - `cost(widths)` counts parameters and multiply-adds.
/// - `make(exec, widths, seed, stream)` makes the module. `seed` and `stream` say how its weights start. Modules that share a seed must
///   differ in the stream, from each other and from other networks.
///
/// All three throw tessera::error invalid_argument for options or widths that do not go together, naming the option or the feature.
template <class R>
concept tower_recipe = tower_module<typename R::module> &&
    requires(R const& recipe, host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) {
  { recipe.name } -> std::convertible_to<std::string_view>;
  { recipe.outputs(widths) } -> std::same_as<std::vector<tower_output>>;
  { recipe.cost(widths) } -> std::same_as<tower_cost>;
  { recipe.make(exec, widths, seed, stream) } -> std::same_as<typename R::module>;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
