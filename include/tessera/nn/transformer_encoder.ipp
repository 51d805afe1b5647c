// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/transformer_encoder.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE transformer_encoder::transformer_encoder(host_exec const& exec, transformer_encoder_options const& options)
    : options_(options) {
  if (options_.hidden == 0 && options_.dim > 0 && options_.dim <= largest_width) options_.hidden = 4 * options_.dim;
  auto const check = [](char const* what, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most)
      throw error(errc::invalid_argument, std::string("transformer_encoder: ") + what, {{what, value}, {"least", least}, {"most", most}});
  };
  check("dim", dim(), 1, largest_width);
  check("hidden", options_.hidden, 1, 4 * largest_width);
  check("max_length", options_.max_length, 0, most_parameters / dim());
  check("layers", options_.layers, 0, most_parameters / layer_size());
  check("heads", options_.heads, 1, dim());
  if (dim() % options_.heads != 0)
    throw error(errc::invalid_argument, "transformer_encoder: heads do not divide the dim", {{"heads", options_.heads}, {"dim", dim()}});
  detail::check_sequence_pooling("transformer_encoder", options_.pooling);
  parameters_.resize(exec, parameter_count());
  initialise(exec);
}

TESSERA_INLINE std::vector<parameter_block> transformer_encoder::blocks(std::string_view prefix) {
  std::vector<parameter_block> result;
  auto const root = std::string(prefix);
  auto const add_linear = [&](std::string const& name, linear_view<float> view) {
    auto const out = view.weight.rows(), in = view.weight.columns();
    result.push_back({name + ".weight", {out, in}, {view.weight.data(), out * in}});
    result.push_back({name + ".bias", {out}, view.bias});
  };
  auto const add_norm = [&](std::string const& name, layer_norm_view<float> view) {
    result.push_back({name + ".gain", {dim()}, view.gain});
    result.push_back({name + ".bias", {dim()}, view.bias});
  };
  auto const places = positions(parameters());
  if (places.rows() > 0) result.push_back({root + ".positions", {places.rows(), dim()}, {places.data(), places.rows() * dim()}});
  for (std::int64_t l = 0; l < layers(); ++l) {
    auto const view = layer(parameters(), l);
    auto const name = root + "." + std::to_string(l);
    add_linear(name + ".project", view.project);
    add_linear(name + ".mix", view.mix);
    add_norm(name + ".attention_norm", view.attention_norm);
    add_linear(name + ".up", view.up);
    add_linear(name + ".down", view.down);
    add_norm(name + ".feed_norm", view.feed_norm);
  }
  if (options_.norm_first) add_norm(root + ".norm", last_norm(parameters()));
  return result;
}

TESSERA_INLINE void transformer_encoder::initialise(host_exec const& exec) {
  auto const fill = [&](matrix_view<float> weight, std::int64_t fan, std::int64_t matrix) {
    detail::initialise_weight(exec, weight, fan, options_.seed, options_.stream, static_cast<std::uint64_t>(matrix));
  };
  std::fill(parameters_.begin(), parameters_.end(), 0.0F);
  fill(positions(parameters()), 5000, 0);  // 6 / 5000 = 3 * 0.02^2
  for (std::int64_t l = 0; l < layers(); ++l) {
    auto const view = layer(parameters(), l);
    fill(view.project.weight, 2 * dim(), 4 * l + 1);
    fill(view.mix.weight, 2 * dim(), 4 * l + 2);
    fill(view.up.weight, dim() + options_.hidden, 4 * l + 3);
    fill(view.down.weight, dim() + options_.hidden, 4 * l + 4);
    std::fill(view.attention_norm.gain.begin(), view.attention_norm.gain.end(), 1.0F);
    std::fill(view.feed_norm.gain.begin(), view.feed_norm.gain.end(), 1.0F);
  }
  auto const last = last_norm(parameters());
  std::fill(last.gain.begin(), last.gain.end(), 1.0F);
}

TESSERA_INLINE detail::transformer_layer::memory transformer_encoder::memory(float* values, std::int64_t vectors, std::int64_t l,
                                                                             float* hidden) const noexcept {
  auto* next = values + vectors * (position_floats() + l * layer_floats());
  auto m = layer_memory(next, vectors);
  next += 6 * vectors * dim();
  auto const statistics = [&] {
    auto* const mean = std::exchange(next, next + 2 * vectors);
    return row_statistics<float>{{mean, vectors}, {mean + vectors, vectors}};
  };
  m.attention_statistics = statistics();
  m.feed_statistics = statistics();
  m.log_sums = {next, options_.heads, vectors};
  next += options_.heads * vectors;
  m.hidden = {options_.recomputes_hidden ? hidden : next, vectors, options_.hidden};
  return m;
}

TESSERA_INLINE void transformer_encoder::add_positions(host_exec const& exec, jagged_vectors_view<float const> x,
                                                       matrix_view<float> to) const {
  auto const places = positions(parameters());
  for_each_index(exec, x.rows, std::int64_t{16}, [=](std::int64_t row) {
    for (auto i = x.begin_of(row); i < x.end_of(row); ++i) {
      auto const* const place = places.row(i - x.begin_of(row));
      for (std::int64_t c = 0; c < to.columns(); ++c) to(i, c) = x.values(i, c) + place[c];
    }
  });
}

TESSERA_INLINE void transformer_encoder::sum_positions(host_exec const& exec, jagged_vectors_view<float const> gradient,
                                                       matrix_view<float> places) {
  for_each_index(exec, places.rows(), std::int64_t{1}, [=](std::int64_t place) {
    auto* const sum = places.row(place);
    std::fill_n(sum, places.columns(), 0.0F);
    for (std::int64_t row = 0; row < gradient.rows; ++row) {
      if (gradient.length(row) <= place) continue;
      auto const* const from = gradient.values.row(gradient.begin_of(row) + place);
      for (std::int64_t c = 0; c < places.columns(); ++c) sum[c] += from[c];
    }
  });
}

TESSERA_INLINE void transformer_encoder::check_backward(transformer_saved const& saved, matrix_view<float const> gradient,
                                                        vector_view<float const> parameter_gradient,
                                                        matrix_view<float const> x_gradient) const {
  if (parameter_gradient.size() != parameters_.size())
    throw error(errc::shape_mismatch, "transformer_encoder: gradient block",
                {{"size", parameter_gradient.size()}, {"parameters", parameters_.size()}});
  auto const vectors = saved.x.rows();
  if (saved.x.columns() != dim() || saved.values.size() != vectors * saved_floats() || saved.offsets.empty())
    throw error(errc::shape_mismatch, "transformer_encoder: saved by no forward, or by that of another shape",
                {{"vectors", vectors},
                 {"columns", saved.x.columns()},
                 {"saved floats", saved.values.size()},
                 {"expected", vectors * saved_floats()}});
  if (gradient.rows() != saved.offsets.size() - 1 || gradient.columns() != dim() || gradient.stride() < dim())
    throw error(errc::shape_mismatch, "transformer_encoder: shape of the gradient",
                {{"rows", gradient.rows()},
                 {"expected rows", saved.offsets.size() - 1},
                 {"columns", gradient.columns()},
                 {"expected columns", dim()},
                 {"stride", gradient.stride()}});
  if (x_gradient.rows() > 0 && (x_gradient.rows() != vectors || x_gradient.columns() != dim() || x_gradient.stride() < dim()))
    throw error(errc::shape_mismatch, "transformer_encoder: shape of the input's gradient",
                {{"rows", x_gradient.rows()},
                 {"expected rows", vectors},
                 {"columns", x_gradient.columns()},
                 {"expected columns", dim()},
                 {"stride", x_gradient.stride()}});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
