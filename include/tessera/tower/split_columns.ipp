// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/split_columns.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE split_tables split_columns(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                          std::vector<std::int64_t> const& pieces) {
  if (pieces.size() != specs.size())
    throw error(errc::invalid_argument, "split_columns: one number of pieces a table",
                {{"tables", specs.size()}, {"numbers", pieces.size()}});
  split_tables split;
  split.tables = options_of(specs);
  split.whole = features;
  std::vector<std::vector<std::int64_t>> pieces_of(specs.size());
  for (std::size_t t = 0; t < specs.size(); ++t) {
    auto const fours = divide_up(specs[t].table.dim, std::int64_t{4});
    if (pieces[t] < 1 || pieces[t] > fours)
      throw error(errc::invalid_argument, "split_columns: from one piece to as many as a table has columns by 4",
                  {{"table", t}, {"id", specs[t].table.id.value}, {"pieces", pieces[t]}, {"columns", specs[t].table.dim}});
    for (auto const& [first_four, count] : detail::even_pieces(fours, pieces[t])) {
      auto const first = 4 * first_four, columns = std::min(specs[t].table.dim - first, 4 * count);
      pieces_of[t].push_back(static_cast<std::int64_t>(split.specs.size()));
      split.of_tables.push_back({static_cast<std::int64_t>(t), first, columns});
      auto& spec = split.specs.emplace_back(specs[t]);
      if (pieces[t] == 1) continue;
      spec.table.dim = columns;
      spec.add = [add = specs[t].add, first = first](host_exec const& exec, table_options const& part, basic_table_list<host_exec>& list) {
        auto shifted = part;
        shifted.first_column += first;
        add(exec, shifted, list);
      };
    }
  }
  for (std::size_t f = 0; f < features.size(); ++f) {
    auto const table = features[f].table;
    if (table < 0 || table >= static_cast<std::int64_t>(specs.size()))
      throw error(errc::out_of_range, "split_columns: no such table", {{"feature", f}, {"table", table}, {"tables", specs.size()}});
    auto const& own = pieces_of[static_cast<std::size_t>(table)];
    for (std::size_t p = 0; p < own.size(); ++p) {
      auto const& piece = split.of_tables[static_cast<std::size_t>(own[p])];
      auto& feature = split.features.emplace_back(features[f]);
      feature.table = own[p];
      if (own.size() > 1) feature.name += "." + std::to_string(p);
      split.of_features.push_back({static_cast<std::int64_t>(f), piece.first_column, piece.columns});
    }
  }
  return split;
}

TESSERA_INLINE split_tables split_for_towers(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                             std::int64_t towers) {
  std::vector<std::int64_t> pieces(specs.size(), 1), readers(specs.size(), 0);
  for (auto const& feature : features)
    if (feature.table >= 0 && feature.table < static_cast<std::int64_t>(specs.size())) ++readers[static_cast<std::size_t>(feature.table)];
  auto const fours = [&](std::size_t t) { return divide_up(specs[t].table.dim, std::int64_t{4}); };
  for (auto made = static_cast<std::int64_t>(features.size()); made < towers;) {
    std::size_t widest = specs.size();
    for (std::size_t t = 0; t < specs.size(); ++t)
      if (readers[t] > 0 && pieces[t] < fours(t) &&
          (widest == specs.size() || divide_up(fours(t), pieces[t]) > divide_up(fours(widest), pieces[widest])))
        widest = t;
    if (widest == specs.size())
      throw error(errc::invalid_argument, "split_for_towers: more towers than features have columns by 4",
                  {{"towers", towers}, {"features", features.size()}, {"pieces", made}});
    ++pieces[widest];
    made += readers[widest];
  }
  if (towers < 1) throw error(errc::invalid_argument, "split_for_towers: towers", {{"towers", towers}, {"features", features.size()}});
  return split_columns(specs, features, pieces);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
