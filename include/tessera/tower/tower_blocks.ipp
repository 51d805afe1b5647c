// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/tower_blocks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::int64_t check_tower_widths(char const* kind, vector_view<std::int64_t const> widths) {
  if (widths.empty()) throw error(errc::invalid_argument, std::string(kind) + ": a tower has a feature", {{"features", 0}});
  std::int64_t sum = 0;
  for (std::int64_t f = 0; f < widths.size(); ++f) {
    if (widths[f] < 1 || widths[f] > most_tower_columns - sum)
      throw error(errc::invalid_argument, std::string(kind) + ": width of a feature's vectors",
                  {{"feature", f}, {"width", widths[f]}, {"least", 1}, {"most", most_tower_columns - sum}});
    sum += widths[f];
  }
  return sum;
}

TESSERA_INLINE void check_one_width(char const* kind, vector_view<std::int64_t const> widths) {
  for (std::int64_t f = 1; f < widths.size(); ++f)
    if (widths[f] != widths[0])
      throw error(errc::invalid_argument, std::string(kind) + ": features of different widths",
                  {{"feature", f}, {"width", widths[f]}, {"width of feature 0", widths[0]}});
}

TESSERA_INLINE tower_layout::tower_layout(char const* kind, vector_view<std::int64_t const> widths, std::vector<tower_output> outputs)
    : kind_(kind),
      widths_(widths.begin(), widths.end()),
      outputs_(std::move(outputs)),
      columns_(check_tower_widths(kind, widths)),
      output_width_(tessera::output_width(outputs_)) {}

TESSERA_INLINE void tower_layout::check_backward(std::int64_t samples, matrix_view<float const> out_gradient,
                                                 vector_view<float const> parameter_gradient, std::int64_t parameters,
                                                 vector_view<matrix_view<float> const> feature_gradients) const {
  if (samples < 0) throw error(errc::shape_mismatch, kind_ + ": saved by no forward, or by one of another shape");
  if (parameter_gradient.size() != parameters)
    throw error(errc::shape_mismatch, kind_ + ": gradient block", {{"size", parameter_gradient.size()}, {"parameters", parameters}});
  check_matrix("output's gradient", out_gradient, samples, output_width_);
  check_blocks("feature gradients", feature_gradients, samples);
}

TESSERA_INLINE void tower_layout::check_matrix(std::string const& what, matrix_view<float const> m, std::int64_t rows, std::int64_t columns,
                                               std::int64_t feature) const {
  if (m.rows() == rows && m.columns() == columns && (rows <= 1 || m.stride() >= columns)) return;
  std::vector<error_value> values{
      {"rows", m.rows()}, {"expected rows", rows}, {"columns", m.columns()}, {"expected columns", columns}, {"stride", m.stride()}};
  if (feature >= 0) values.insert(values.begin(), {"feature", feature});
  throw error(errc::shape_mismatch, kind_ + ": shape of the " + what, std::move(values));
}

TESSERA_INLINE void save_features(host_exec const& exec, tower_layout const& layout, vector_view<matrix_view<float const> const> features,
                                  bool joined, tower_saved& saved) {
  saved.features.resize(exec, features.size());
  std::copy(features.begin(), features.end(), saved.features.begin());
  if (!joined) return;
  saved.side_by_side = side_by_side(features, layout.columns());
  if (saved.side_by_side.data() != nullptr) return;
  auto const rows = features[0].rows();
  saved.copied.resize(exec, rows * layout.columns());
  matrix_view<float> const copy{saved.copied.data(), rows, layout.columns()};
  copy_blocks(exec, features, columns_of_features<float>{copy, layout.widths()});
  saved.side_by_side = copy;
}

TESSERA_INLINE void linear_in_block::initialise(host_exec const& exec, vector_view<float> block, random_seed seed, std::uint32_t stream,
                                                std::uint64_t matrix) const {
  auto const v = view(block);
  if (out > 0) initialise_weight(exec, v.weight, 6 * in, seed, stream, matrix);
  std::fill(v.bias.begin(), v.bias.end(), 0.0F);
}

TESSERA_INLINE void linear_in_block::add_blocks(std::vector<parameter_block>& all, std::string const& name,
                                                vector_view<float> block) const {
  if (out == 0) return;
  auto const v = view(block);
  all.push_back({name + ".weight", {out, in}, {v.weight.data(), out * in}, replication::tower});
  all.push_back({name + ".bias", {out}, v.bias, replication::tower});
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
