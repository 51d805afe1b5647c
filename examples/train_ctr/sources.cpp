// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/sources.hpp"

#include "../support/tower_sources.hpp"

namespace examples {

extern template tessera::any_source make_towers(settings const&, tessera::host_exec const&, source_parts const&,
                                                tessera::pass_through const&);
extern template tessera::any_source make_towers(settings const&, tessera::host_exec const&, source_parts const&,
                                                tessera::dlrm_tower const&);
extern template tessera::any_source make_towers(settings const&, tessera::host_exec const&, source_parts const&, tessera::dcn_tower const&);
extern template tessera::any_source make_towers(settings const&, tessera::host_exec const&, source_parts const&, tessera::dot_tower const&);
extern template tessera::local_tables* tables_of_towers<tessera::pass_through>(tessera::any_source&);
extern template tessera::local_tables* tables_of_towers<tessera::dlrm_tower>(tessera::any_source&);
extern template tessera::local_tables* tables_of_towers<tessera::dcn_tower>(tessera::any_source&);
extern template tessera::local_tables* tables_of_towers<tessera::dot_tower>(tessera::any_source&);

tessera::any_source make_source(settings const& s, tessera::host_exec const& exec, source_parts parts) {
  if (parts.split) {
    auto const split = *std::exchange(parts.split, std::nullopt);
    return tessera::split_source<tessera::any_source>(make_source(s, exec, std::move(parts)), split);
  }
  if (!parts.towers) return make_tables(s, exec, parts);
  auto const dim = s.tower_width(), p = s.tower_p;
  if (s.tower_module == "dlrm") return make_towers(s, exec, parts, tessera::dlrm_tower{.dim = dim, .p = p, .c = s.tower_c});
  if (s.tower_module == "dcn") return make_towers(s, exec, parts, tessera::dcn_tower{.dim = dim, .vectors = p, .rank = s.cross_rank});
  if (s.tower_module == "dot") return make_towers(s, exec, parts, tessera::dot_tower{.dim = dim, .vectors = p});
  return make_towers(s, exec, parts, tessera::pass_through{});
}

tessera::local_tables& tables_here(tessera::any_source& source) {
  if (auto* const split = source.get_if<tessera::split_source<tessera::any_source>>()) return tables_here(split->inner());
  if (auto* const tables = source.get_if<tessera::sharded_tables>()) return tables->here();
  for (auto* const tables : {tables_of_towers<tessera::pass_through>(source), tables_of_towers<tessera::dlrm_tower>(source),
                             tables_of_towers<tessera::dcn_tower>(source), tables_of_towers<tessera::dot_tower>(source)})
    if (tables != nullptr) return *tables;
  throw tessera::error(tessera::errc::invalid_argument, "tables_here: a source of another kind");
}

}  // namespace examples
