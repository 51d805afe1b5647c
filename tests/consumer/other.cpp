// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <tessera/tessera.hpp>

// A second translation unit with the same headers: what is not inline would be defined twice.
double other(tessera::host_exec const& exec) {
  std::vector<double> const values{1, 2};
  std::vector<double> sums(2);
  return tessera::exclusive_scan(exec, tessera::vector_view(values), tessera::vector_view(sums));
}
