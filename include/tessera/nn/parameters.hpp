// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The ranks that hold the same copy of a dense parameter and sum its gradients.
enum class replication : std::uint8_t { everywhere, tower, one_rank };

/// A named dense parameter, as checkpoints and gradient exchanges see it.
struct parameter_block {
  std::string name;                 ///< "bottom.0.weight"
  std::vector<std::int64_t> shape;  ///< row-major
  vector_view<float> values;        ///< (product of shape,)
  replication group = replication::everywhere;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
