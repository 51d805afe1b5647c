// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/expected_hot_step.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE expected_hot_step expected_step(hot_step_work const& work, link_model const& links, double hot_share) {
  auto const check = [](char const* name, double value, double least) {
    if (!(value >= least && std::isfinite(value))) throw error(errc::invalid_argument, "expected_step: what cannot be", {{name, value}});
  };
  check("compute_seconds", work.compute_seconds, 0);
  check("lookups", static_cast<double>(work.lookups), 0);
  check("distinct_rows", static_cast<double>(work.distinct_rows), 0);
  check("dim", static_cast<double>(work.dim), 0);
  check("vector_bytes", static_cast<double>(work.vector_bytes), 0);
  check("workers", work.workers, 1);
  check("moved_bytes", static_cast<double>(work.moved_bytes), 0);
  check("batches_of_run", work.batches_of_run, 0);
  check("hot_share", hot_share, 0);
  if (hot_share > 1) throw error(errc::invalid_argument, "expected_step: a share above one", {{"hot_share", hot_share}});

  expected_hot_step expected;
  expected.cold_bytes = work.lookups * (4 + 2 * work.vector_bytes);
  auto const joined = work.lookups * (4 + work.vector_bytes) + work.distinct_rows * (8 + 4 * work.dim);
  expected.hot_bytes = joined * (work.workers - 1) / work.workers;
  expected.cold_seconds = work.compute_seconds + links.predict(expected.cold_bytes, work.table_level);
  expected.hot_seconds = work.compute_seconds + (expected.hot_bytes > 0 ? links.predict(expected.hot_bytes, work.worker_level) : 0);
  if (work.batches_of_run > 0) expected.swap_seconds = links.predict(work.moved_bytes, work.table_level) / work.batches_of_run;
  expected.seconds = (1 - hot_share) * expected.cold_seconds + hot_share * expected.hot_seconds + expected.swap_seconds;
  expected.speedup = expected.seconds > 0 ? expected.cold_seconds / expected.seconds : 1;
  return expected;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
