// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/core/types.hpp>
#include <tessera/synth/planted_clicks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of clicks of 26 features in 8 blocks of 3 or 4 features that follow one another: 0 to 3, 4 to 6, 7 to 9, … Pairs of ids of a block
/// decide most clicks; ids are independent. The set shows whether towers keep what features say together.
inline planted_clicks_options planted_pairs(random_seed seed = {}) {
  constexpr std::int64_t features = 26, blocks = 8;
  planted_clicks_options options;
  for (std::int64_t f = 0; f < features; ++f) options.features.push_back({.ids = 20, .exponent = 0.8, .block = f * blocks / features});
  options.latent_dim = 2;
  options.dense_signal = options.linear_signal = 0.3;
  options.interaction_signal = 2;
  options.head_ids = 20;
  options.seed = seed;
  return options;
}

/// Options of the same clicks, but that ids and vectors follow, by 0.9, one of 5 classes of their block.
inline planted_clicks_options planted_classes(random_seed seed = {}) {
  auto options = planted_pairs(seed);
  options.classes = options.latent_dim = 5;
  return options;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
