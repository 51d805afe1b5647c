// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

/// Dense parameters that lie in one block.
struct parameter_group {
  std::string_view name;                                                ///< name of the group, in the owner's memory
  vector_view<float> values;                                            ///< (parameters,), in the owner's memory
  tessera::replication replication = tessera::replication::everywhere;  ///< which ranks hold the same, and sum their gradients
  bool is_copy = false;  ///< of what not all ranks hold: another rank counts it in what is summed over ranks
};

/// Hears of parts of a parameter gradient as soon as they are final, while a backward goes on. Each part is told once, and lies in one
/// group; of a group all parts are told, or none. An empty listener hears nothing.
using gradient_listener = std::function<void(vector_view<float> part)>;

}  // namespace TESSERA_ABI
}  // namespace tessera
