// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The place of a call in the source, taken by a defaulted last argument: `call_site site = call_site::here()`.
struct call_site {
  char const* file = "";
  int line = 0;

  /// The place of the call whose argument it is.
  static constexpr call_site here(char const* file = __builtin_FILE(), int line = __builtin_LINE()) noexcept { return {file, line}; }
};

}  // namespace TESSERA_ABI
}  // namespace tessera
