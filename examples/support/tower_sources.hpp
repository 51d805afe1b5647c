// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <utility>

#include <tessera/tessera.hpp>

#include "any_job.hpp"
#include "sources.hpp"

namespace examples {

/// Tables as --exchange flat and two-hop have them.
inline tessera::sharded_tables make_tables(settings const& s, tessera::host_exec const& exec, source_parts const& parts) {
  auto comm = parts.comm;
  if (s.exchange == "two-hop") comm = tessera::two_hop_communicator(comm, parts.where);
  auto const sums = s.dedup_sums == "expanded" ? tessera::shared_gradients::expanded : tessera::shared_gradients::merged;
  return {exec, comm, parts.specs, parts.features, parts.plan, {.codecs = tessera::parse_exchange_codecs(s.codec), .sums = sums}};
}

/// Sources with towers: tables that lie in them, or all tables of one process. Compiled once a kind of modules: train_ctr/towers_dlrm.cpp and
/// others.
template <class Recipe>
tessera::any_source make_towers(settings const& s, tessera::host_exec const& exec, source_parts const& parts, Recipe const& recipe) {
  tessera::tower_options const modules{.seed = tessera::random_seed{s.seed}, .policy = tessera::any_gemm(TESSERA_TRAIN_GEMM{})};
  if constexpr (!std::same_as<Recipe, tessera::pass_through>)
    if (s.exchange != "sptt")
      return tessera::tower_source<tessera::sharded_tables, Recipe>(exec, make_tables(s, exec, parts), *parts.towers, recipe, modules);
  return tessera::sptt_tables<Recipe>(exec, parts.comm, parts.where, parts.specs, parts.features, parts.plan, *parts.towers, recipe,
                                      {.codecs = tessera::parse_exchange_codecs(s.codec), .modules = modules});
}

/// `tables_here` of such a source; nullptr where it is none with modules of that kind.
template <class Recipe>
tessera::local_tables* tables_of_towers(tessera::any_source& source) {
  if (auto* const sptt = source.get_if<tessera::sptt_tables<Recipe>>()) return &sptt->inside().here();
  if constexpr (!std::same_as<Recipe, tessera::pass_through>)
    if (auto* const towered = source.get_if<tessera::tower_source<tessera::sharded_tables, Recipe>>()) return &towered->inner().here();
  return nullptr;
}

}  // namespace examples
