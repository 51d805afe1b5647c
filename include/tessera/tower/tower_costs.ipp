// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/tower_costs.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<std::int64_t> widths_of(std::int64_t in, std::vector<std::int64_t> const& hidden, std::int64_t out) {
  std::vector<std::int64_t> widths{in};
  widths.insert(widths.end(), hidden.begin(), hidden.end());
  widths.push_back(out);
  return widths;
}

TESSERA_INLINE void check_towers(char const* call, click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower) {
  check_costed(call, shape.features);
  for (auto const features : features_of_tower) check_costed(call, features);
  auto const sum = std::accumulate(features_of_tower.begin(), features_of_tower.end(), std::int64_t{0});
  if (sum != shape.features)
    throw error(errc::invalid_argument, std::string(call) + ": towers have another number of features than the net",
                {{"features of towers", sum}, {"features", shape.features}});
}

}  // namespace detail

TESSERA_INLINE net_costs linear_costs(std::int64_t in, std::int64_t out) {
  detail::check_costed("linear_costs", in);
  detail::check_costed("linear_costs", out);
  return {in * out, 0, in * out + out, detail::moved_by(in, out)};
}

TESSERA_INLINE net_costs mlp_costs(std::vector<std::int64_t> const& widths, bool of_data) {
  if (widths.size() < 2) throw error(errc::invalid_argument, "mlp_costs: at least two widths", {{"widths", widths.size()}});
  net_costs sum;
  for (std::size_t layer = 0; layer + 1 < widths.size(); ++layer) {
    sum += linear_costs(widths[layer], widths[layer + 1]);
    if (layer + 2 < widths.size()) sum.moved_floats += detail::moved_by(widths[layer + 1], widths[layer + 1]);
  }
  if (of_data) sum.input_macs = widths[0] * widths[1];
  return sum;
}

TESSERA_INLINE net_costs cross_net_costs(std::int64_t width, std::int64_t layers, std::int64_t rank) {
  detail::check_costed("cross_net_costs", width);
  detail::check_costed("cross_net_costs", rank);
  if (layers < 0) throw error(errc::invalid_argument, "cross_net_costs: layers", {{"layers", layers}});
  // V^T x, U of it, its product with x_0, and the sum with x.
  auto const moved = detail::moved_by(width, rank) + detail::moved_by(rank, width) + 2 * detail::moved_by(2 * width, width);
  return {layers * 2 * width * rank, 0, layers * (2 * width * rank + width), layers * moved};
}

TESSERA_INLINE net_costs dot_costs(std::int64_t vectors, std::int64_t dim) {
  detail::check_costed("dot_costs", vectors);
  detail::check_costed("dot_costs", dim);
  return {vectors * vectors * dim, 0, 0, detail::moved_by(vectors * dim, vectors * vectors)};
}

TESSERA_INLINE tower_net_costs dlrm_costs(click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower,
                                          dlrm_tower_shape const& module) {
  detail::check_towers("dlrm_costs", shape, features_of_tower);
  auto const each = module.vectors_of_feature, all = module.vectors_of_tower;
  if (each < 0 || all < 0 || each + all < 1)
    throw error(errc::invalid_argument, "dlrm_costs: a tower makes at least one vector",
                {{"vectors of a feature", each}, {"vectors of a tower", all}});
  tower_net_costs costs;
  for (auto const features : features_of_tower) {
    auto& tower = costs.towers.emplace_back();
    if (features == 1 && each + all == 1 && module.dim == shape.dim) {
      costs.outputs += module.outputs(features);
      continue;
    }
    if (each > 0) {
      auto const map = linear_costs(shape.dim, each * module.dim);  // one map for all features
      tower += {features * map.macs, 0, map.parameters, features * map.moved_floats};
    }
    if (all > 0) tower += linear_costs(features * shape.dim, all * module.dim);
    costs.outputs += module.outputs(features);
  }
  costs.above = detail::dlrm_above(shape, costs.outputs / module.dim + 1, module.dim);
  return costs;
}

TESSERA_INLINE tower_net_costs dcn_costs(click_net_shape const& shape, std::vector<std::int64_t> const& features_of_tower,
                                         dcn_tower_shape const& module) {
  detail::check_towers("dcn_costs", shape, features_of_tower);
  tower_net_costs costs;
  for (auto const features : features_of_tower) {
    auto const width = features * shape.dim;
    auto& tower = costs.towers.emplace_back(cross_net_costs(width, module.layers, module.rank));
    if (features > 1 || module.outputs != shape.dim) tower += linear_costs(width, module.outputs);
    costs.outputs += module.outputs;
  }
  costs.above = detail::dcn_above(shape, costs.outputs + module.outputs, module.outputs);
  return costs;
}

TESSERA_INLINE std::vector<std::int64_t> even_towers(std::int64_t features, std::int64_t towers) {
  if (towers < 1 || towers > features)
    throw error(errc::invalid_argument, "even_towers: at least one tower, and at most one a feature",
                {{"towers", towers}, {"features", features}});
  std::vector<std::int64_t> result;
  for (std::int64_t t = 0; t < towers; ++t) result.push_back(features / towers + (t < features % towers ? 1 : 0));
  return result;
}

TESSERA_INLINE double pair_products(std::int64_t features, std::int64_t towers, double share) {
  if (towers < 1 || towers > features || !(share >= 0) || !std::isfinite(share))
    throw error(errc::invalid_argument, "pair_products: from one tower to one a feature, and a finite share from 0",
                {{"features", features}, {"towers", towers}, {"share", share}});
  auto const pairs = static_cast<double>(features) * static_cast<double>(features);
  return pairs / (static_cast<double>(towers) * static_cast<double>(towers)) + share * share * pairs;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
