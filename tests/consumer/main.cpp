// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/config.hpp>

int other();
#ifdef CONSUMER_FILES
int files();
#endif

int main() {
  int status = other();
#ifdef CONSUMER_FILES
  status += files();
#endif
  return status;
}
