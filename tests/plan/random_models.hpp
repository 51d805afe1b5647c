// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <tessera/plan/published_cost.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera_tests {

/// A layer of normal weights that keep the size of numbers; biases are a tenth as large.
inline tessera::dense_layer random_layer(std::mt19937_64& random, std::int64_t inputs, std::int64_t outputs) {
  tessera::dense_layer layer{inputs, outputs};
  std::normal_distribution<float> draw(0, std::sqrt(2.0F / static_cast<float>(inputs)));
  for (std::int64_t i = 0; i < inputs * outputs; ++i) layer.weight.push_back(draw(random));
  for (std::int64_t o = 0; o < outputs; ++o) layer.bias.push_back(0.1F * draw(random));
  return layer;
}

inline tessera::dense_network random_network(std::mt19937_64& random, std::vector<std::int64_t> const& widths, bool relu_after_last) {
  std::vector<tessera::dense_layer> layers;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) layers.push_back(random_layer(random, widths[l], widths[l + 1]));
  return tessera::dense_network(std::move(layers), relu_after_last);
}

/// NeuroShard's networks with random weights, of the published widths or a tenth of them.
inline tessera::published_cost random_published_cost(std::mt19937_64& random, std::int64_t devices, bool small = false) {
  tessera::feature_scaling features, backward, forward;
  for (std::int64_t i = 0; i < tessera::published_features::count; ++i) {
    bool const share = i < tessera::table_profile::bins;
    features.means.push_back(share ? 0.06 : i == 17 ? 42 : i == 18 ? 15 : 4e6);
    features.stds.push_back(share ? 0.1 : i == 17 ? 43 : i == 18 ? 25 : 3.5e6);
  }
  backward.means.assign(static_cast<std::size_t>(devices), 300);
  backward.stds.assign(static_cast<std::size_t>(devices), 200);
  forward = backward;
  forward.means.resize(static_cast<std::size_t>(2 * devices), 9);
  forward.stds.resize(static_cast<std::size_t>(2 * devices), 5);
  auto const network = [&](std::int64_t in, std::vector<std::int64_t> widths, std::int64_t out, bool relu_after_last) {
    if (small) widths = {12};
    widths.insert(widths.begin(), in);
    widths.push_back(out);
    return random_network(random, widths, relu_after_last);
  };
  std::int64_t const width = small ? 6 : 32;
  auto table = network(20, {128}, width, true), sum = network(width, {64}, 1, false);
  auto to_all = network(devices, {128, 64, 32, 16}, devices, false), from_all = network(2 * devices, {128, 64, 32, 16}, devices, false);
  return {{features, std::move(table), std::move(sum)}, {backward, std::move(to_all)}, {forward, std::move(from_all)}};
}

/// A table of so many bytes at most as float, of a dim that is one of 4, 8, 16, …, most_dim.
inline tessera::table_profile random_profile(std::mt19937_64& random, std::int64_t most_rows, std::int64_t most_dim) {
  tessera::table_profile profile;
  auto const uniform = [&](double least, double most) { return std::uniform_real_distribution<double>(least, most)(random); };
  profile.rows = static_cast<std::int64_t>(std::exp(uniform(std::log(100.0), std::log(static_cast<double>(most_rows)))));
  std::int64_t choices = 0;
  while ((std::int64_t{4} << choices) < most_dim) ++choices;
  profile.dim = std::int64_t{4} << std::uniform_int_distribution<std::int64_t>(0, choices)(random);
  profile.pooling_factor = std::exp(uniform(-2, 4));
  double sum = 0;
  for (std::size_t bin = 0; bin < profile.access.size(); ++bin)
    sum += profile.access[bin] = std::exp(-uniform(0.2, 1) * static_cast<double>(bin));
  for (auto& share : profile.access) share /= sum;
  profile.name = std::to_string(random() % 1000);
  return profile;
}

}  // namespace tessera_tests
