// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/nn/any_gemm.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_shapes.hpp>

#include "../embed/embedding_source_suite.hpp"

/// What the suite of sources needs to run over sources with towers.
namespace tower_tests {

/// The features of a `source_problem` in two towers, out of order, with sequences in both.
inline tessera::tower_partition const suite_towers{{{2, 3, 0}, {4, 6, 1, 5}}};

/// Modules that map each feature. All features of a tower have their width, and so have outputs.
inline constexpr std::int64_t suite_dim = 16;
inline constexpr tessera::dlrm_tower suite_recipe{.dim = suite_dim, .p = 0, .c = 1};
inline void widen(embed_tests::source_problem& problem) {
  for (auto const& feature : problem.features)
    if (!feature.sequence) problem.tables[static_cast<std::size_t>(feature.table)].dim = suite_dim;
}
inline tessera::tower_options suite_modules() { return {.policy = tessera::any_gemm(tessera::eigen_gemm{})}; }

/// Makes the maps give what they get.
template <class Source>
Source with_identities(Source source) {
  for (auto const& block : source.blocks()) {
    std::fill(block.values.begin(), block.values.end(), 0.0F);
    if (block.shape.size() == 2)
      for (std::int64_t i = 0; i < suite_dim; ++i) block.values[i * (suite_dim + 1)] = 1;
  }
  return source;
}

}  // namespace tower_tests
