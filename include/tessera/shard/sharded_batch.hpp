// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Refuses a batch that cannot be looked up in tables on several ranks, before any of it travels. `features` are those of all sources. Errors
/// are told of `source`.
/// @throws tessera::error shape_mismatch and invalid_argument as `local_tables::begin`; out_of_range for an id that a dense table has no row
/// for, naming rank, feature, table, row, position and id.
inline void check_sharded_batch(host_exec const& exec, int rank, std::vector<table_spec> const& specs,
                                std::vector<table_feature> const& features, sharded_tables_options const& options, batch_view const& batch,
                                char const* source = "sharded_tables") {
  auto const call = std::string(source) + "::begin";
  check_keys(call.c_str(), vector_view<table_feature const>(features), batch.inverse_keyed(), options.sources);
  validate_batch(exec, batch.sparse);
  if (!batch.groups.empty()) check_inverse_rows(exec, batch.inverse_keyed());
  for (std::int64_t key = 0; key < batch.sparse.keys; ++key) {
    auto const& feature = features[static_cast<std::size_t>(key)];
    auto const& spec = specs[static_cast<std::size_t>(feature.table)];
    if (feature.is_largest() && batch.sparse.weighted())
      throw error(errc::invalid_argument, call + ": a maximum is of an unweighted batch", {{"feature", key}});
    if (!spec.slots_are_ids || options.out_of_range != out_of_range_ids::refuse) continue;
    auto const bags = batch.sparse.key(key);
    auto const rows = static_cast<std::uint64_t>(spec.table.rows);
    for (std::int64_t row = 0; row < bags.rows; ++row)
      for (auto p = bags.begin_of(row); p < bags.end_of(row); ++p)
        if (static_cast<std::uint64_t>(bags.values[p]) >= rows)
          throw error(errc::out_of_range, std::string(source) + ": id out of range",
                      {{"rank", rank},
                       {"feature", key},
                       {"table", spec.table.id.value},
                       {"row", row},
                       {"position", p - bags.begin_of(row)},
                       {"id", bags.values[p]},
                       {"rows", spec.table.rows}});
  }
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
