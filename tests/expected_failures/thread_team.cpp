// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/execution.hpp>

struct my_team {
#if CASE == 1  // says: team.run\(chunks, f\)
  void run(std::int64_t) {}
#else
  void run(std::int64_t, tessera::chunk_function) {}
#endif
#if CASE != 2  // says: team.size\(\)
  int size() const { return 1; }
#endif
};

void use(my_team& team, tessera::system_memory& memory) { tessera::host_exec const exec(team, memory); }
