// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/session_statistics.hpp>
#include <tessera/synth/session_options.hpp>

#include "results.hpp"

namespace recd {

/// What ids would take one by one at the entropy of their feature's frequencies: all of them, and those that no list of the session had
/// before. An estimate, no bound: a code that sees past single ids may do better, and lengths and places of lists are not in it.
class entropies {
 public:
  entropies(tessera::session_clicks_options const& options, tessera::session_statistics_options how)
      : statistics_(static_cast<std::int64_t>(options.features.size()), how) {
    for (auto const& feature : options.features) counts_.emplace_back(static_cast<std::size_t>(feature.ids));
  }

  void add(tessera::host_exec const& exec, tessera::sample_columns_view samples) {
    statistics_.add(exec, samples);
    exec.run(samples.sparse.size(), [&](std::int64_t f) {
      for (auto const id : samples.sparse[f].all_values()) ++counts_[static_cast<std::size_t>(f)][static_cast<std::size_t>(id)];
    });
  }

  void write(storage_result& result) const {
    for (std::size_t f = 0; f < counts_.size(); ++f) {
      double ids = 0, bits = 0;
      for (auto const count : counts_[f]) ids += static_cast<double>(count);
      for (auto const count : counts_[f])
        if (count > 0) bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / ids);
      result.entropy_bytes += bits / 8;
      result.distinct_entropy_bytes += bits / 8 * (1 - statistics_.feature(static_cast<std::int64_t>(f)).partial());
    }
  }

  tessera::session_statistics const& statistics() const { return statistics_; }

 private:
  tessera::session_statistics statistics_;
  std::vector<std::vector<std::int64_t>> counts_;
};

}  // namespace recd
