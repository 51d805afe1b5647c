// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/profile_of_keys.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table, and the keys of a batch that read it.
struct table_with_keys {
  table_profile table;             ///< its name, rows, dim, row format, optimizer and tower
  std::vector<std::int64_t> keys;  ///< at least one
};

/// What gives batches, one after the other, until `next` is false: as `sample_reader`.
template <class R>
concept batch_reader = requires(R& reader, host_exec const& exec, batch_view& batch) {
  { reader.next(exec, batch) } -> std::convertible_to<bool>;
};

/// The profiles of tables that a reader's batches read, (tables,): means of up to so many batches, each as `profile_of_keys` has it.
///
/// Batches of fewer samples than the first are left out, as a log's last one may be. Bins are means of the batches that read any row. A
/// table whose keys lie in one group in some batches, and not in others, has group -1. The reader has given the batches that were read.
/// @throws tessera::error invalid_argument for less than one batch, and for a reader that has none; as `profile_of_keys`.
template <batch_reader Reader>
std::vector<table_profile> profile_tables(host_exec const& exec, Reader& reader, vector_view<table_with_keys const> tables,
                                          std::int64_t batches = 8) {
  if (batches < 1) throw error(errc::invalid_argument, "profile_tables: at least one batch", {{"batches", batches}});
  std::vector<table_profile> profiles;
  std::vector<double> reading(static_cast<std::size_t>(tables.size()));  // batches that read any row
  double count = 0;
  std::int64_t samples = 0;
  batch_view batch;
  for (std::int64_t b = 0; b < batches && reader.next(exec, batch); ++b) {
    auto const keys = batch.inverse_keyed();
    if (b == 0) {
      samples = keys.samples;
      for (auto const& one : tables) {
        profiles.push_back(one.table);
        auto& sum = profiles.back();
        sum.bags = sum.distinct_bags = sum.pooling_factor = 0;
        sum.access = {};
      }
    }
    if (keys.samples < samples) continue;
    ++count;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      auto const at = static_cast<std::size_t>(t);
      auto const found = profile_of_keys(tables[t].table, keys, tables[t].keys);
      auto& sum = profiles[at];
      sum.group = b == 0 || sum.group == found.group ? found.group : -1;
      sum.bags += found.bags;
      sum.distinct_bags += found.distinct_bags;
      sum.pooling_factor += found.pooling_factor;
      if (found.pooling_factor > 0) ++reading[at];
      for (std::size_t bin = 0; bin < sum.access.size(); ++bin) sum.access[bin] += found.access[bin];
    }
  }
  if (count == 0) throw error(errc::invalid_argument, "profile_tables: the reader has no batch", {{"batches", 0}});
  for (std::size_t t = 0; t < profiles.size(); ++t) {
    auto& mean = profiles[t];
    mean.bags /= count;
    mean.distinct_bags /= count;
    mean.pooling_factor /= count;
    if (reading[t] > 0)
      for (auto& share : mean.access) share /= reading[t];
  }
  return profiles;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
