// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/sources.hpp"

#include <concepts>
#include <utility>

#include "../support/any_job.hpp"

namespace examples {

namespace {

// Tables as --exchange flat and two-hop have them.
tessera::sharded_tables make_tables(settings const& s, tessera::host_exec const& exec, source_parts const& parts) {
  auto comm = parts.comm;
  if (s.exchange == "two-hop") comm = tessera::two_hop_communicator(comm, parts.where);
  auto const sums = s.dedup_sums == "expanded" ? tessera::shared_gradients::expanded : tessera::shared_gradients::merged;
  return {exec, comm, parts.specs, parts.features, parts.plan, {.codecs = tessera::parse_exchange_codecs(s.codec), .sums = sums}};
}

// Sources with towers: tables that lie in them, or all tables of one process.
template <class Recipe>
tessera::any_source make_towers(settings const& s, tessera::host_exec const& exec, source_parts const& parts, Recipe const& recipe) {
  tessera::tower_options const modules{.seed = tessera::random_seed{s.seed}, .policy = tessera::any_gemm(TESSERA_TRAIN_GEMM{})};
  if constexpr (!std::same_as<Recipe, tessera::pass_through>)
    if (s.exchange != "sptt")
      return tessera::tower_source<tessera::sharded_tables, Recipe>(exec, make_tables(s, exec, parts), *parts.towers, recipe, modules);
  return tessera::sptt_tables<Recipe>(exec, parts.comm, parts.where, parts.specs, parts.features, parts.plan, *parts.towers, recipe,
                                      {.codecs = tessera::parse_exchange_codecs(s.codec), .modules = modules});
}

// `tables_here` of such a source; nullptr where it is none with modules of that kind.
template <class Recipe>
tessera::local_tables* tables_of_towers(tessera::any_source& source) {
  if (auto* const sptt = source.get_if<tessera::sptt_tables<Recipe>>()) return &sptt->inside().here();
  if constexpr (!std::same_as<Recipe, tessera::pass_through>)
    if (auto* const towered = source.get_if<tessera::tower_source<tessera::sharded_tables, Recipe>>()) return &towered->inner().here();
  return nullptr;
}

}  // namespace

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
