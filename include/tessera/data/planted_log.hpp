// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/criteo_writer.hpp>
#include <tessera/data/planted_clicks.hpp>
#include <tessera/data/raw_rows.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Planted samples as they stand in a log: thousandths as integers, ids as categories, other columns missing. Allocates only when `out`
/// grows. @throws tessera::error invalid_argument for more features than the layout has columns, a bag of other than one id, an id of
/// more than 32 bits.
inline void to_raw_rows(host_exec const& exec, planted_samples const& samples, raw_rows& out) {
  auto const batch = samples.view();
  if (batch.dense.columns() > click_layout::integers || batch.sparse.keys > click_layout::categories)
    throw error(errc::invalid_argument, "to_raw_rows: more features than columns",
                {{"dense features", batch.dense.columns()}, {"sparse features", batch.sparse.keys}});
  out.resize(exec, samples.size());
  auto const labels = out.labels();
  auto const integers = out.integers();
  auto const categories = out.categories();
  exec.run(1 + click_layout::categories, [&](std::int64_t chunk) {
    if (chunk == 0) {
      std::copy(batch.labels.begin(), batch.labels.end(), labels.begin());
      for (std::int64_t k = 0; k < click_layout::integers; ++k)
        for (std::int64_t i = 0; i < labels.size(); ++i)
          integers(k, i) = k >= batch.dense.columns()
                               ? click_layout::missing_integer
                               : static_cast<std::int32_t>(std::lround(batch.dense(i, k) / planted_clicks::dense_unit));
      return;
    }
    auto const f = chunk - 1;
    for (std::int64_t i = 0; i < labels.size(); ++i) {
      categories(f, i) = click_layout::missing_category;
      if (f >= batch.sparse.keys) continue;
      auto const bag = batch.sparse.key(f).row(i);
      if (bag.size() != 1 || bag[0] >> 32 != 0)
        throw error(errc::invalid_argument, "to_raw_rows: one id of 32 bits a bag",
                    {{"sample", batch.sample_ids[i]}, {"feature", f}, {"ids", bag.size()}, {"id", bag.size() > 0 ? bag[0] : -1}});
      categories(f, i) = bag[0];
    }
  });
}

/// Writes planted samples first … first + count - 1 as a file in the layout of Criteo's click logs, in memory for some thousand samples.
/// Calls `seen(samples)` for each part in its order, for instance to keep its logits. @throws tessera::error as `to_raw_rows`,
/// `planted_clicks::generate` and `criteo_writer`.
template <class Seen>
void write_planted_log(host_exec const& exec, planted_clicks const& clicks, std::int64_t first, std::int64_t count, std::string const& path,
                       Seen const& seen) {
  constexpr std::int64_t part = 1 << 14;
  if (count < 0) throw error(errc::invalid_argument, "write_planted_log: samples", {{"first", first}, {"count", count}});
  planted_samples samples;
  raw_rows rows;
  criteo_writer file(path);
  for (std::int64_t done = 0; done < count; done += part) {
    clicks.generate(exec, first + done, std::min(part, count - done), samples);
    to_raw_rows(exec, samples, rows);
    file.append(exec, rows.view());
    seen(samples);
  }
  file.close();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
