// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// A small MLP for one row at a time, as a search evaluates it: no call allocates, and threads may share one. The bits are the same on every
/// call, but not those of `mlp::forward`.
class layer_evaluator {
 public:
  static constexpr std::int64_t most_width = 1024;

  /// Copies the parameters. @throws tessera::error invalid_argument for a layer that is too wide.
  layer_evaluator(mlp const& network, activation last) : last_(last), widths_(network.widths()) {
    for (auto const width : widths_)
      if (width > most_width)
        throw error(errc::invalid_argument, "layer_evaluator: a layer is too wide", {{"width", width}, {"most", most_width}});
    for (std::int64_t l = 0; l < network.layers(); ++l) {
      auto const layer = network.layer(network.parameters(), l);
      parameters_.insert(parameters_.end(), layer.bias.begin(), layer.bias.end());
      // An input's weights side by side, so that the inner loop is over outputs.
      for (std::int64_t i = 0; i < layer.weight.columns(); ++i)
        for (std::int64_t o = 0; o < layer.weight.rows(); ++o) parameters_.push_back(layer.weight(o, i));
    }
  }

  std::int64_t input_width() const noexcept { return widths_.front(); }
  std::int64_t output_width() const noexcept { return widths_.back(); }

  /// y = network(x): x (input_width(),), y (output_width(),).
  void operator()(float const* x, float* y) const noexcept {
    float hidden[2][most_width];
    auto const* p = parameters_.data();
    auto const layers = widths_.size() - 1;
    for (std::size_t l = 0; l < layers; ++l) {
      auto const in = widths_[l], out = widths_[l + 1];
      float* const to = l + 1 == layers ? y : hidden[l % 2];
      std::copy_n(p, out, to);
      p += out;
      for (std::int64_t i = 0; i < in; ++i, p += out) add_scaled(to, p, x[i], out);
      if (l + 1 < layers || last_ == activation::relu)
        for (std::int64_t o = 0; o < out; ++o) to[o] = relu(to[o]);
      x = to;
    }
  }

 private:
  static void add_scaled(float* __restrict to, float const* __restrict weights, float x, std::int64_t count) noexcept {
    for (std::int64_t o = 0; o < count; ++o) to[o] += x * weights[o];
  }

  activation last_;
  std::vector<std::int64_t> widths_;
  std::vector<float> parameters_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
