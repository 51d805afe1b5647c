// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

// Memory that Arrow's own allocator hands from thread to thread is beyond the thread sanitizer.
[[maybe_unused]] inline int const arrow_heap = ::setenv("ARROW_DEFAULT_MEMORY_POOL", "system", 1);
