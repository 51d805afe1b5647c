// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/execution.hpp>

struct my_memory {
#if CASE == 1  // says: a memory resource has allocate\(exec, bytes, alignment\) and deallocate\(exec, pointer, bytes, alignment\)
  char* allocate(tessera::host_exec const&, std::size_t, std::size_t) { return nullptr; }
#else
  void* allocate(tessera::host_exec const&, std::size_t, std::size_t) { return nullptr; }
#endif
#if CASE != 2  // says: a memory resource has allocate\(exec, bytes, alignment\) and deallocate\(exec, pointer, bytes, alignment\)
  void deallocate(tessera::host_exec const&, void*, std::size_t, std::size_t) noexcept {}
#endif
};

void use(tessera::serial_team& team, my_memory& memory) { tessera::host_exec const exec(team, memory); }
