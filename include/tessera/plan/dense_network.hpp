// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/register_tiles.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A layer: weight * input + bias.
struct dense_layer {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::vector<float> weight = {};  ///< (outputs, inputs)
  std::vector<float> bias = {};    ///< (outputs,)

  friend bool operator==(dense_layer const&, dense_layer const&) = default;
};

/// A small network that a search calls very often: layers with a ReLU between them. It takes no memory when it is called, and what it
/// computes of a vector depends on that vector alone, bit for bit.
class dense_network {
 public:
  /// The most inputs or outputs of a layer.
  static constexpr std::int64_t most_width = 1024;

  /// These layers, with a ReLU after the last one too where it is wanted.
  /// @throws tessera::error invalid_argument for no layers; for a layer of less than one or more than `most_width` inputs or outputs; for
  /// another number of inputs than the layer before has outputs, or of weights or biases than inputs and outputs say; and for a weight that
  /// is not finite. It names the layer, from 0, and the number.
  explicit dense_network(std::vector<dense_layer> layers, bool relu_after_last = false);

  std::int64_t inputs() const noexcept { return layers_.front().inputs; }
  std::int64_t outputs() const noexcept { return layers_.back().outputs; }
  bool relu_after_last() const noexcept { return relu_after_last_; }
  std::vector<dense_layer> const& layers() const noexcept { return layers_; }

  /// Computes outputs() numbers from inputs() numbers.
  void operator()(float const* input, float* output) const noexcept;

 private:
  // Outputs are done by registers; weights are (inputs, outputs rounded up to whole sixteens), whatever the processor.
  static constexpr std::int64_t whole = 16, unit = detail::register_lanes;
  static_assert(whole % unit == 0);
  struct packed {
    std::int64_t inputs, outputs;
    std::vector<float> weight, bias;
  };

  // Unit is an argument so that sources that are compiled for different processors never share this function. It is never inlined: so all of a
  // program's calls give the same bits, whether or not the compiler joins multiplications and additions where they stand.
  template <int Unit, std::size_t Units>
  [[gnu::noinline]] static void columns_of(packed const& layer, float const* input, std::int64_t first, float floor,
                                           float* output) noexcept;
  static void apply(packed const& layer, float const* input, bool relu, float* output) noexcept;

  std::vector<dense_layer> layers_;
  std::vector<packed> packed_;
  bool relu_after_last_;
};

inline dense_network::dense_network(std::vector<dense_layer> layers, bool relu_after_last)
    : layers_(std::move(layers)), relu_after_last_(relu_after_last) {
  if (layers_.empty()) throw error(errc::invalid_argument, "dense_network: there is at least one layer", {{"layers", 0}});
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    auto const& layer = layers_[l];
    auto const check = [&](char const* what, std::int64_t found, std::int64_t least, std::int64_t most) {
      if (found < least || found > most)
        throw error(errc::invalid_argument, std::string("dense_network: another number of ") + what + " than fits",
                    {{"layer", l}, {"found", found}, {"least", least}, {"most", most}});
    };
    check("inputs", layer.inputs, l == 0 ? 1 : layers_[l - 1].outputs, l == 0 ? most_width : layers_[l - 1].outputs);
    check("outputs", layer.outputs, 1, most_width);
    check("weights", static_cast<std::int64_t>(layer.weight.size()), layer.inputs * layer.outputs, layer.inputs * layer.outputs);
    check("biases", static_cast<std::int64_t>(layer.bias.size()), layer.outputs, layer.outputs);
    for (auto const* numbers : {&layer.weight, &layer.bias})
      for (float const number : *numbers)
        if (!std::isfinite(number))
          throw error(errc::invalid_argument, "dense_network: a weight is not finite", {{"layer", l}, {"weight", number}});
    auto const width = (layer.outputs + whole - 1) / whole * whole;
    packed p{layer.inputs, width, std::vector<float>(static_cast<std::size_t>(layer.inputs * width)), layer.bias};
    p.bias.resize(static_cast<std::size_t>(width));
    for (std::int64_t o = 0; o < layer.outputs; ++o)
      for (std::int64_t i = 0; i < layer.inputs; ++i)
        p.weight[static_cast<std::size_t>(i * width + o)] = layer.weight[static_cast<std::size_t>(o * layer.inputs + i)];
    packed_.push_back(std::move(p));
  }
}

template <int Unit, std::size_t Units>
void dense_network::columns_of(packed const& layer, float const* input, std::int64_t first, float floor, float* output) noexcept {
  // Four units of sums in any case, so that additions wait for each other less: of few columns some are of other inputs.
  constexpr auto units = static_cast<std::int64_t>(Units), ways = 4 / units;
  auto const* weight = layer.weight.data() + first;
  auto const at = [&](std::size_t sum) {  // of the weights
    return detail::load_register<Unit>(weight + static_cast<std::int64_t>(sum / Units) * layer.outputs + sum % Units * Unit);
  };
  using floats = detail::register_floats<Unit>;
  floats sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  std::int64_t i = 0;
  for (; i + ways <= layer.inputs; i += ways, weight += ways * layer.outputs) {
    sum0 += input[i] * at(0);
    sum1 += input[i + 1 / units] * at(1);
    sum2 += input[i + 2 / units] * at(2);
    sum3 += input[i + 3 / units] * at(3);
  }
  for (; i < layer.inputs; ++i, weight += layer.outputs) {
    sum0 += input[i] * at(0);
    if constexpr (Units == 2) sum1 += input[i] * at(1);
  }
  auto const write = [&](floats const& sum, std::size_t column) {
    for (std::size_t k = column * Unit; k < (column + 1) * Unit; ++k) {
      auto const value = sum[k % Unit] + layer.bias[static_cast<std::size_t>(first) + k];
      output[static_cast<std::size_t>(first) + k] = value > floor ? value : floor;
    }
  };
  if constexpr (Units == 4) {
    write(sum0, 0), write(sum1, 1), write(sum2, 2), write(sum3, 3);
  } else if constexpr (Units == 2) {
    write(sum0 + sum2, 0), write(sum1 + sum3, 1);
  } else {
    write((sum0 + sum1) + (sum2 + sum3), 0);
  }
}

inline void dense_network::apply(packed const& layer, float const* input, bool relu, float* output) noexcept {
  auto const floor = relu ? 0.0F : -HUGE_VALF;
  std::int64_t first = 0;
  for (; first + 4 * unit <= layer.outputs; first += 4 * unit) columns_of<unit, 4>(layer, input, first, floor, output);
  for (; first + 2 * unit <= layer.outputs; first += 2 * unit) columns_of<unit, 2>(layer, input, first, floor, output);
  for (; first < layer.outputs; first += unit) columns_of<unit, 1>(layer, input, first, floor, output);
}

inline void dense_network::operator()(float const* input, float* output) const noexcept {
  alignas(64) float between[2][most_width];
  for (std::size_t l = 0; l < packed_.size(); ++l) {
    apply(packed_[l], input, l + 1 < packed_.size() || relu_after_last_, between[l % 2]);
    input = between[l % 2];
  }
  std::copy(input, input + outputs(), output);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
