// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/cross_net.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::int64_t cross_net::parameter_count(cross_net_options const& options) {
  auto const width = options.width, rank = options.rank;
  if (width < 1 || width > largest_width)
    throw error(errc::invalid_argument, "cross_net: width", {{"width", width}, {"least", 1}, {"most", largest_width}});
  if (rank < 0 || rank > width) throw error(errc::invalid_argument, "cross_net: rank", {{"rank", rank}, {"width", width}});
  auto const size = layer_size(width, rank);
  if (options.layers < 0 || options.layers > most_parameters / size)
    throw error(errc::invalid_argument, "cross_net: layers", {{"layers", options.layers}, {"least", 0}, {"most", most_parameters / size}});
  return options.layers * size;
}

TESSERA_INLINE cross_net::cross_net(host_exec const& exec, cross_net_options const& options)
    : width_(options.width), layers_(options.layers), rank_(options.rank), own_(exec, parameter_count(options)), parameters_(own_.view()) {
  initialise(exec, options);
}

TESSERA_INLINE cross_net::cross_net(host_exec const& exec, cross_net_options const& options, vector_view<float> memory)
    : width_(options.width), layers_(options.layers), rank_(options.rank), parameters_(memory) {
  if (auto const count = parameter_count(options); memory.size() != count)
    throw error(errc::shape_mismatch, "cross_net: memory for the parameters", {{"size", memory.size()}, {"parameters", count}});
  initialise(exec, options);
}

TESSERA_INLINE std::vector<parameter_block> cross_net::blocks(std::string_view prefix) {
  std::vector<parameter_block> result;
  for (std::int64_t l = 0; l < layers_; ++l) {
    auto const view = layer(parameters(), l);
    auto const name = std::string(prefix) + "." + std::to_string(l);
    if (rank_ > 0) result.push_back({name + ".v", {rank_, width_}, {view.down.data(), rank_ * width_}});
    result.push_back({name + (rank_ > 0 ? ".u" : ".weight"), {width_, inner()}, {view.mix.weight.data(), width_ * inner()}});
    result.push_back({name + ".bias", {width_}, view.mix.bias});
  }
  return result;
}

TESSERA_INLINE void cross_net::initialise(host_exec const& exec, cross_net_options const& options) {
  for (std::int64_t l = 0; l < layers_; ++l) {
    auto const view = layer(parameters(), l);
    auto const matrix = 2 * static_cast<std::uint64_t>(l);
    detail::initialise_weight(exec, view.down, width_ + rank_, options.seed, options.stream, matrix + 1);
    detail::initialise_weight(exec, view.mix.weight, width_ + inner(), options.seed, options.stream, matrix);
    std::fill(view.mix.bias.begin(), view.mix.bias.end(), 0.0F);
  }
}

TESSERA_INLINE void cross_net::copy(host_exec const& exec, matrix_view<float const> x, matrix_view<float> y) {
  for_each_index(exec, x.rows(), rows_per_piece, [=](std::int64_t s) {
    for (std::int64_t c = 0; c < x.columns(); ++c) y(s, c) = x(s, c);
  });
}

TESSERA_INLINE void cross_net::backward_product(host_exec const& exec, matrix_view<float const> x, matrix_view<float const> z,
                                                matrix_view<float const> gradient, matrix_view<float> z_gradient,
                                                matrix_view<float> x_gradient, bool is_first) {
  for_each_index(exec, x.rows(), rows_per_piece, [=](std::int64_t s) {
    for (std::int64_t c = 0; c < x.columns(); ++c) z_gradient(s, c) = gradient(s, c) * x(s, c);
    if (x_gradient.rows() == 0) return;
    for (std::int64_t c = 0; c < x.columns(); ++c)
      x_gradient(s, c) = is_first ? gradient(s, c) * z(s, c) : multiply_add(gradient(s, c), z(s, c), x_gradient(s, c));
  });
}

TESSERA_INLINE void cross_net::check(std::int64_t samples, matrix_view<float const> m, char const* what) const {
  if (m.rows() != samples || m.columns() != width_)
    throw error(errc::shape_mismatch, std::string("cross_net: shape of the ") + what,
                {{"rows", m.rows()}, {"expected rows", samples}, {"columns", m.columns()}, {"expected columns", width_}});
}

TESSERA_INLINE void cross_net::check_backward(cross_saved const& saved, matrix_view<float const> gradient,
                                              vector_view<float const> parameter_gradient, matrix_view<float const> x_gradient) const {
  if (parameter_gradient.size() != parameters_.size())
    throw error(errc::shape_mismatch, "cross_net: gradient block",
                {{"size", parameter_gradient.size()}, {"parameters", parameters_.size()}});
  if (saved.x.columns() != width_ || saved.values.size() != saved_size(saved.x.rows()))
    throw error(errc::shape_mismatch, "cross_net: saved by no forward, or by that of another shape",
                {{"samples", saved.x.rows()},
                 {"columns", saved.x.columns()},
                 {"saved floats", saved.values.size()},
                 {"expected", saved_size(saved.x.rows())}});
  check(saved.x.rows(), gradient, "gradient");
  if (x_gradient.rows() > 0) check(saved.x.rows(), x_gradient, "input's gradient");
}

}  // namespace TESSERA_ABI
}  // namespace tessera
