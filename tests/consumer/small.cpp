// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>

#include <tessera/core/thread_team.hpp>

// What a consumer gets from CMake, in little: the headers, the standard, Eigen, a library of threads.
int main() {
  tessera::thread_pool pool(2);
  Eigen::Vector2i numbers(0, 0);
  auto const number = [&](std::int64_t i) noexcept { numbers[i] = 1; };
  pool.run(2, tessera::chunk_function(number));
  return numbers.sum() - 2;
}
