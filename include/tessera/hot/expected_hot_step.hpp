// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/comm/link_model.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A training step whose tables lie on ranks apart from the workers, as it was counted and measured without hot rows.
struct hot_step_work {
  double compute_seconds = 0;      ///< of a worker's batch, without exchanges
  std::int64_t lookups = 0;        ///< of a worker's batch, each of one id, with a vector of its own
  std::int64_t distinct_rows = 0;  ///< that the batches of all workers look up together
  std::int64_t dim = 0;            ///< elements of a row
  std::int64_t vector_bytes = 0;   ///< of a vector or gradient as it travels
  int workers = 1;
  std::int64_t table_level = 0;   ///< of the links between workers and tables, as `link_model::predict` counts them
  std::int64_t worker_level = 0;  ///< of the links among workers
  std::int64_t moved_bytes = 0;   ///< of the rows that a swap moves, in the mean
  double batches_of_run = 0;      ///< from swap to swap, in the mean; 0: rows do not move
};

/// What a step may be expected to take with hot rows.
struct expected_hot_step {
  std::int64_t cold_bytes = 0, hot_bytes = 0;  ///< that a worker exchanges in a batch
  double cold_seconds = 0, hot_seconds = 0;    ///< of a batch
  double swap_seconds = 0;                     ///< of swaps, shared out to all batches
  double seconds = 0;                          ///< of a batch in the mean, with swaps
  double speedup = 0;                          ///< the seconds of a cold batch over `seconds`
};

/// Returns what steps take where a share of the samples is hot, by counted bytes and a model of the links.
///
///     auto const expected = expected_step(work, links, hot_input_shares(…)[i]);
///
/// A cold batch exchanges lookups * (4 + 2 * vector_bytes). A hot one sends nothing to the tables; of W workers, each exchanges (W - 1) / W of
/// lookups * (4 + vector_bytes) + distinct_rows * (8 + 4 * dim). That is too low for bags of several ids, and for hashed tables, whose ids may
/// take 8 bytes. Exchanges do not overlap.
/// Source: FAE, Section 3, for one worker; the joined gradients are those of tables on all ranks (`sharded_tables`).
/// @throws tessera::error invalid_argument naming a number that is negative or not finite, fewer workers than one, or a share outside [0, 1];
/// out_of_range for a level without a link.
expected_hot_step expected_step(hot_step_work const& work, link_model const& links, double hot_share);

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/hot/expected_hot_step.ipp>
#endif
