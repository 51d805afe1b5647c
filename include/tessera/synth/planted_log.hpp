// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_writer.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/synth/planted_clicks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// `out` becomes planted samples as they stand in a log of `criteo_schema`: thousandths as numbers, ids as categories, other columns
/// missing. The call allocates only when `out` grows. @throws tessera::error invalid_argument for more features than the log has columns, a
/// bag without exactly one id, or an id of more than 32 bits.
inline void to_criteo_columns(host_exec const& exec, planted_samples const& samples, sample_columns& out) {
  auto const batch = samples.view();
  auto const schema = criteo_schema();
  auto const numbers = static_cast<std::int64_t>(schema.dense.size()), categories = static_cast<std::int64_t>(schema.sparse.size());
  if (batch.dense.columns() > numbers || batch.sparse.keys > categories)
    throw error(errc::invalid_argument, "to_criteo_columns: more features than columns",
                {{"dense features", batch.dense.columns()}, {"sparse features", batch.sparse.keys}});
  if (!out.has_columns_of(schema)) out = sample_columns(schema);
  out.clear();
  out.resize(exec, samples.size());
  auto const labels = out.labels();
  auto const dense = out.dense();
  exec.run(1 + categories, [&](std::int64_t chunk) {
    if (chunk == 0) {
      std::copy(batch.labels.begin(), batch.labels.end(), labels.begin());
      for (std::int64_t k = 0; k < numbers; ++k)
        for (std::int64_t i = 0; i < labels.size(); ++i)
          dense(k, i) = k >= batch.dense.columns() ? std::numeric_limits<float>::quiet_NaN()
                                                   : static_cast<float>(std::lround(batch.dense(i, k) / planted_clicks::dense_unit));
      return;
    }
    auto const f = chunk - 1;
    auto const ids = out.single_ids(f);
    for (std::int64_t i = 0; i < labels.size(); ++i) {
      ids[i] = missing_id;
      if (f >= batch.sparse.keys) continue;
      auto const bag = batch.sparse.key(f).row(i);
      if (bag.size() != 1 || bag[0] >> 32 != 0)
        throw error(errc::invalid_argument, "to_criteo_columns: one id of 32 bits a bag",
                    {{"sample", batch.sample_ids[i]}, {"feature", f}, {"ids", bag.size()}, {"id", bag.size() > 0 ? bag[0] : -1}});
      ids[i] = bag[0];
    }
  });
}

/// Writes planted samples first … first + count - 1 as a file in the layout of Criteo's click logs. Memory holds some thousand samples at
/// once. The call gives each part in its order to `seen(samples)`, for instance to keep its logits. @throws tessera::error as
/// `to_criteo_columns`, `planted_clicks::generate` and `delimited_writer`.
template <class Seen>
void write_planted_log(host_exec const& exec, planted_clicks const& clicks, std::int64_t first, std::int64_t count, std::string const& path,
                       Seen const& seen) {
  constexpr std::int64_t part = 1 << 14;
  if (count < 0) throw error(errc::invalid_argument, "write_planted_log: samples", {{"first", first}, {"count", count}});
  planted_samples samples;
  sample_columns rows;
  delimited_writer file(path, criteo_schema(), criteo_layout());
  for (std::int64_t done = 0; done < count; done += part) {
    clicks.generate(exec, first + done, std::min(part, count - done), samples);
    to_criteo_columns(exec, samples, rows);
    file.append(exec, rows.view());
    seen(samples);
  }
  file.close();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
