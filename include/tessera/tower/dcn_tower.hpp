// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/cross_net.hpp>
#include <tessera/nn/gemm.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tower/tower_blocks.hpp>
#include <tessera/tower/tower_module.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

class dcn_tower_module;

/// Towers of a cross network over the features' vectors side by side, then a linear map to `vectors` vectors of `dim` elements.
///
/// Features may have different widths. A single feature of `dim` elements that is to give one vector has the cross network without the map.
/// See `tower_recipe`. Source: DMT, listing 2, which makes as many vectors as there are features; its Table 4 has one a tower.
struct dcn_tower {
  std::int64_t dim = 128;    ///< elements of each output
  std::int64_t vectors = 1;  ///< outputs; 0: as many as the tower has features
  std::int64_t layers = 1;   ///< cross layers; 0: the map alone
  /// Of each cross layer's matrix. 0, or a rank that is not below the elements of all features: one full matrix.
  std::int64_t rank = 0;

  using module = dcn_tower_module;
  static constexpr std::string_view name = "dcn_tower";

  /// Each is made of all features. @throws tessera::error invalid_argument.
  std::vector<tower_output> outputs(vector_view<std::int64_t const> widths) const;
  /// Cross network and map, biases included. @throws tessera::error invalid_argument.
  tower_cost cost(vector_view<std::int64_t const> widths) const;
  /// Makes the module. The map's weights are uniform in ±1 / sqrt(in), its bias is 0; the cross network starts as `cross_net`.
  /// @throws tessera::error invalid_argument.
  dcn_tower_module make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed, std::uint32_t stream) const;
};

namespace detail {

/// The parts of a tower; the map may be missing.
struct dcn_tower_parts {
  cross_net_options cross;
  std::int64_t of_cross;  ///< parameters
  std::int64_t vectors;
  linear_in_block map{};

  dcn_tower_parts(dcn_tower const& options, vector_view<std::int64_t const> widths, random_seed seed = {}, std::uint32_t stream = 0) {
    auto const columns = check_tower_widths("dcn_tower", widths);
    check_tower_option("dcn_tower", "dim", options.dim, 1, most_tower_columns);
    check_tower_option("dcn_tower", "vectors", options.vectors, 0, most_tower_columns / options.dim);
    check_tower_option("dcn_tower", "layers", options.layers, 0, 1 << 30);
    check_tower_option("dcn_tower", "rank", options.rank, 0, most_tower_columns);
    vectors = options.vectors > 0 ? options.vectors : widths.size();
    check_tower_option("dcn_tower", "vectors", vectors, 1, most_tower_columns / options.dim);
    cross = {.width = columns, .layers = options.layers, .rank = options.rank < columns ? options.rank : 0, .seed = seed, .stream = stream};
    of_cross = cross_net::parameter_count(cross);
    if (!maps_to_itself(widths, vectors, options.dim)) map = {columns, vectors * options.dim};
  }
  std::int64_t parameters() const noexcept { return of_cross + map.parameters(); }
};

}  // namespace detail

/// The module of a `dcn_tower`. See `tower_module`.
class dcn_tower_module {
 public:
  /// What `backward` needs of `forward`.
  struct saved : detail::tower_saved {
    cross_saved cross;
    buffer<float> crossed;  ///< (samples, elements of all features): what the map reads, if there is one
  };

  /// @throws tessera::error invalid_argument as the recipe.
  dcn_tower_module(host_exec const& exec, dcn_tower const& options, vector_view<std::int64_t const> widths, random_seed seed,
                   std::uint32_t stream)
      : dcn_tower_module(exec, detail::dcn_tower_parts(options, widths, seed, stream),
                         detail::tower_layout("dcn_tower", widths, options.outputs(widths))) {}

  std::vector<tower_output> const& outputs() const noexcept { return layout_.outputs(); }
  std::int64_t output_width() const noexcept { return layout_.output_width(); }
  /// The cross network's, then weight and bias of the map.
  vector_view<float> parameters() noexcept { return parameters_.view(); }
  vector_view<float const> parameters() const noexcept { return parameters_.view(); }
  /// "<prefix>.cross.0.…" as `cross_net::blocks`, "<prefix>.map.weight" (vectors dim, elements of all features), "<prefix>.map.bias".
  std::vector<parameter_block> blocks(std::string_view prefix) {
    auto all = net_.blocks(std::string(prefix) + ".cross");
    for (auto& block : all) block.group = replication::tower;
    map_.add_blocks(all, std::string(prefix) + ".map", of_map(parameters()));
    return all;
  }
  std::size_t bytes() const noexcept { return parameters_.capacity_bytes(); }
  /// The cross network.
  cross_net const& net() const noexcept { return net_; }

  /// @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void forward(host_exec const& exec, Gemm const& policy, vector_view<matrix_view<float const> const> features, matrix_view<float> out,
               saved& saved) const {
    saved.samples = -1;
    layout_.check_forward(features, out);
    detail::save_features(exec, layout_, features, true, saved);
    auto crossed = out;
    if (map_.out > 0) {
      saved.crossed.resize(exec, out.rows() * layout_.columns());
      crossed = {saved.crossed.data(), out.rows(), layout_.columns()};
    }
    net_.forward(exec, policy, saved.side_by_side, crossed, saved.cross);
    if (map_.out > 0) linear_forward(exec, policy, crossed, map_.view(of_map(parameters())), activation::identity, out);
    saved.samples = out.rows();
  }

  /// @throws tessera::error shape_mismatch.
  template <gemm_policy Gemm>
  void backward(host_exec const& exec, Gemm const& policy, saved& saved, matrix_view<float const> out_gradient,
                vector_view<float> parameter_gradient, vector_view<matrix_view<float> const> feature_gradients) const {
    layout_.check_backward(saved.samples, out_gradient, parameter_gradient, parameters_.size(), feature_gradients);
    buffer<float> room(exec, saved.samples * layout_.columns());
    matrix_view<float> const of_crossed{room.data(), saved.samples, layout_.columns()};
    if (map_.out > 0) {
      matrix_view<float const> const crossed{saved.crossed.data(), saved.samples, layout_.columns()};
      linear_backward_parameters(exec, policy, crossed, out_gradient, map_.view(of_map(parameter_gradient)));
      linear_backward_input(exec, policy, out_gradient, map_.view(of_map(parameters())), activation::identity, {}, of_crossed);
    } else {
      detail::copy_blocks(exec, vector_view(&out_gradient, 1), vector_view(&of_crossed, 1));
    }
    detail::write_feature_gradients(exec, layout_, feature_gradients, [&](matrix_view<float> side_by_side) {
      net_.backward(exec, policy, saved.cross, of_crossed, parameter_gradient.slice(0, of_cross_), side_by_side);
    });
  }

 private:
  dcn_tower_module(host_exec const& exec, detail::dcn_tower_parts const& parts, detail::tower_layout layout)
      : layout_(std::move(layout)),
        map_(parts.map),
        of_cross_(parts.of_cross),
        parameters_(exec, parts.parameters()),
        net_(exec, parts.cross, parameters_.view().slice(0, of_cross_)) {
    auto const matrix_of_map = 2 * static_cast<std::uint64_t>(parts.cross.layers);  // after the cross network's
    map_.initialise(exec, of_map(parameters_.view()), parts.cross.seed, parts.cross.stream, matrix_of_map);
  }

  template <class T>
  vector_view<T> of_map(vector_view<T> block) const noexcept {
    return block.slice(of_cross_, map_.parameters());
  }

  detail::tower_layout layout_;
  detail::linear_in_block map_;
  std::int64_t of_cross_;
  buffer<float> parameters_;
  cross_net net_;  // with its parameters there
};

inline std::vector<tower_output> dcn_tower::outputs(vector_view<std::int64_t const> widths) const {
  return detail::mixed_outputs(widths, detail::dcn_tower_parts(*this, widths).vectors, dim);
}

inline tower_cost dcn_tower::cost(vector_view<std::int64_t const> widths) const {
  detail::dcn_tower_parts const parts(*this, widths);
  auto const biases = parts.cross.layers * parts.cross.width;
  return {parts.parameters(), parts.of_cross - biases + parts.map.multiply_adds()};
}

inline dcn_tower_module dcn_tower::make(host_exec const& exec, vector_view<std::int64_t const> widths, random_seed seed,
                                        std::uint32_t stream) const {
  return dcn_tower_module(exec, *this, widths, seed, stream);
}

static_assert(tower_recipe<dcn_tower>);

}  // namespace TESSERA_ABI
}  // namespace tessera
