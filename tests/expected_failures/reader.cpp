// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/prefetching_reader.hpp>

struct my_reader {
#if CASE == 1  // says: r.next\(exec, batch\)
  void next(tessera::host_exec const&, tessera::batch_view&) {}
#else
  bool next(tessera::host_exec const&, tessera::batch_view&) { return false; }
#endif
  tessera::reader_position position() const { return {}; }
  std::int64_t epoch_samples() const { return 0; }
#if CASE != 2  // says: r.seek\(constant.position\(\)\)
  void seek(tessera::reader_position) {}
#endif
};

void use(tessera::prefetching_reader<my_reader>&);
