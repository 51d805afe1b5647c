// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/mlp.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::int64_t mlp::parameter_count(std::vector<std::int64_t> const& widths) {
  if (widths.size() < 2) throw error(errc::invalid_argument, "mlp: an input and an output width", {{"widths", widths.size()}});
  std::int64_t count = 0;
  for (std::size_t l = 0; l < widths.size(); ++l) {
    if (widths[l] < 1 || widths[l] > largest_width)
      throw error(errc::invalid_argument, "mlp: a width", {{"position", l}, {"width", widths[l]}, {"least", 1}, {"most", largest_width}});
    if (l > 0 && (count += (widths[l - 1] + 1) * widths[l]) > most_parameters)
      throw error(errc::invalid_argument, "mlp: too many parameters", {{"position", l}, {"parameters", count}, {"most", most_parameters}});
  }
  return count;
}

TESSERA_INLINE mlp::mlp(host_exec const& exec, mlp_options const& options, vector_view<float> memory)
    : widths_(options.widths), last_(options.last), parameters_(memory) {
  if (memory.size() != parameter_count(widths_))
    throw error(errc::shape_mismatch, "mlp: memory for the parameters",
                {{"size", memory.size()}, {"parameters", parameter_count(widths_)}});
  initialise(exec, options);
}

TESSERA_INLINE std::vector<parameter_block> mlp::blocks(std::string_view prefix) {
  std::vector<parameter_block> result;
  for (std::int64_t l = 0; l < layers(); ++l) {
    auto const view = layer(parameters(), l);
    auto const name = std::string(prefix) + "." + std::to_string(l);
    result.push_back({name + ".weight", {out(l), in(l)}, {view.weight.data(), out(l) * in(l)}});
    result.push_back({name + ".bias", {out(l)}, view.bias});
  }
  return result;
}

TESSERA_INLINE void mlp::check_saved(matrix_view<float const> x, matrix_view<float const> y, vector_view<float const> hidden) const {
  if (x.columns() != input_width() || y.columns() != output_width() || y.rows() != x.rows() || hidden.size() != x.rows() * hidden_width())
    throw error(errc::shape_mismatch, "mlp: input, output or what a forward saved of another shape",
                {{"samples", x.rows()},
                 {"input columns", x.columns()},
                 {"output rows", y.rows()},
                 {"output columns", y.columns()},
                 {"hidden floats", hidden.size()},
                 {"expected", x.rows() * hidden_width()}});
}

TESSERA_INLINE void mlp::initialise(host_exec const& exec, mlp_options const& options) {
  detail::check_choice("mlp", "activation", options.last, activation::relu);
  for (std::int64_t l = 0; l < layers(); ++l) {
    auto const view = layer(parameters(), l);
    detail::initialise_weight(exec, view.weight, 6 * in(l), options.seed, options.stream, static_cast<std::uint64_t>(l));
    std::fill(view.bias.begin(), view.bias.end(), 0.0F);
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
