// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/estimate_hot_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void check_sampling(hot_row_sampling const& sampling) {
  auto const refuse = [](char const* option, auto value) {
    throw error(errc::invalid_argument, "estimate_hot_rows: an option that cannot be", {{option, value}});
  };
  if (sampling.chunks < 2) refuse("chunks", sampling.chunks);
  if (sampling.chunk_entries < 1) refuse("chunk_entries", sampling.chunk_entries);
  if (!(sampling.confidence > 0 && sampling.confidence < 1)) refuse("confidence", sampling.confidence);
  if (!(sampling.half_width > 0)) refuse("half_width", sampling.half_width);
}

}  // namespace detail

TESSERA_INLINE hot_row_estimate estimate_hot_rows(table_accesses const& accesses, std::int64_t cutoff, hot_row_sampling const& sampling) {
  detail::check_sampling(sampling);
  auto const all = accesses.size(), m = sampling.chunk_entries;
  detail::random_order const order(sampling.seed, all);
  std::int64_t read = 0, chunks = 0;
  double sum = 0, squares = 0;  // of the chunks' hot rows
  for (auto wanted = sampling.chunks;; wanted *= 2) {
    if (wanted > all / m) {  // to read all costs no more, and is exact
      std::int64_t hot = 0;
      for (std::int64_t i = 0; i < all; ++i) hot += accesses.count(i) >= cutoff ? 1 : 0;
      return {static_cast<double>(hot), 0, all, true};
    }
    for (; chunks < wanted; ++chunks) {
      double hot = 0;
      for (auto const last = read + m; read < last; ++read) hot += accesses.count(order[read]) >= cutoff ? 1 : 0;
      sum += hot;
      squares += hot * hot;
    }
    auto const n = static_cast<double>(chunks), population = static_cast<double>(all) / static_cast<double>(m);
    auto const mean = sum / n, variance = std::max(0.0, (squares - n * mean * mean) / (n - 1));
    auto const half = detail::student_t_bound(sampling.confidence, n - 1) * std::sqrt((population - n) / population * variance / n);
    // Chunks that are alike by chance, without a hot row say, tell nothing of their spread.
    if (variance > 0 ? half <= sampling.half_width * mean : std::isinf(sampling.half_width))
      return {mean * population, half * population, read, read == all};
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
