// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace tessera_tests {

/// How a process of its own ends, as waitpid says it, that does `work` and exits with what it returns; with 99 where it throws.
template <class F>
int forked(F const& work) {
  auto const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      ::_exit(work());
    } catch (...) {
      ::_exit(99);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace tessera_tests
