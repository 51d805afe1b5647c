// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include "../support/sources.hpp"

#include <cstdint>
#include <optional>
#include <utility>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/two_hop_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/hot/hot_source.hpp>
#include <tessera/nn/any_gemm.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tower/any_tower.hpp>
#include <tessera/tower/dcn_tower.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/dot_tower.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/split_source.hpp>
#include <tessera/tower/sptt_tables.hpp>
#include <tessera/tower/tower_shapes.hpp>
#include <tessera/tower/tower_source.hpp>

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

using tables_with_hot_rows = tessera::hot_source<tessera::sharded_tables>;

// The same with hot rows on every rank.
tessera::any_source make_hot(settings const& s, tessera::host_exec const& exec, source_parts const& parts) {
  auto rows = parts.hot->choose_rows(exec, parts.specs);
  auto const sums = s.dedup_sums == "expanded" ? tessera::shared_gradients::expanded : tessera::shared_gradients::merged;
  return tables_with_hot_rows(exec, make_tables(s, exec, parts), parts.hot->copied, std::move(rows),
                              {.workers = parts.comm,
                               .moves = s.hot_batches == "stay" ? tessera::hot_row_moves::stay : tessera::hot_row_moves::swap,
                               .codecs = tessera::parse_exchange_codecs(s.codec),
                               .sums = sums});
}

using towered_tables = tessera::tower_source<tessera::sharded_tables, tessera::any_tower_recipe>;

template <class Recipe>
tessera::any_source make_sptt(settings const& s, tessera::host_exec const& exec, source_parts const& parts, Recipe const& recipe,
                              tessera::tower_options const& modules) {
  return tessera::sptt_tables<Recipe>(exec, parts.comm, parts.where, parts.specs, parts.features, parts.plan, *parts.towers, recipe,
                                      {.codecs = tessera::parse_exchange_codecs(s.codec), .modules = modules});
}

// The modules that --tower-module asks for; none of vectors that travel as they are.
std::optional<tessera::any_tower_recipe> choose_recipe(settings const& s) {
  auto const dim = s.tower_width(), p = s.tower_p;
  if (s.tower_module == "dlrm") return tessera::dlrm_tower{.dim = dim, .p = p, .c = s.tower_c};
  if (s.tower_module == "dcn") return tessera::dcn_tower{.dim = dim, .vectors = p, .rank = s.cross_rank};
  if (s.tower_module == "dot") return tessera::dot_tower{.dim = dim, .vectors = p};
  return std::nullopt;
}

// Sources with towers: tables that lie in them, or all tables of one process.
tessera::any_source make_towers(settings const& s, tessera::host_exec const& exec, source_parts const& parts) {
  tessera::tower_options const modules{.seed = tessera::random_seed{s.seed}, .policy = tessera::any_gemm(TESSERA_TRAIN_GEMM{})};
  auto const recipe = choose_recipe(s);
  if (!recipe) return make_sptt(s, exec, parts, tessera::pass_through{}, modules);
  if (s.exchange == "sptt") return make_sptt(s, exec, parts, *recipe, modules);
  return towered_tables(exec, make_tables(s, exec, parts), *parts.towers, *recipe, modules);
}

}  // namespace

tessera::any_source make_source(settings const& s, tessera::host_exec const& exec, source_parts parts) {
  if (parts.split) {
    auto const split = *std::exchange(parts.split, std::nullopt);
    return tessera::split_source<tessera::any_source>(make_source(s, exec, std::move(parts)), split);
  }
  if (parts.hot != nullptr) return make_hot(s, exec, parts);
  if (!parts.towers) return make_tables(s, exec, parts);
  return make_towers(s, exec, parts);
}

tessera::local_tables& tables_here(tessera::any_source& source) {
  if (auto* const split = source.get_if<tessera::split_source<tessera::any_source>>()) return tables_here(split->inner());
  if (auto* const tables = source.get_if<tessera::sharded_tables>()) return tables->here();
  if (auto* const hot = source.get_if<tables_with_hot_rows>()) return hot->inner().here();
  if (auto* const sptt = source.get_if<tessera::sptt_tables<tessera::pass_through>>()) return sptt->inside().here();
  if (auto* const sptt = source.get_if<tessera::sptt_tables<tessera::any_tower_recipe>>()) return sptt->inside().here();
  if (auto* const towered = source.get_if<towered_tables>()) return towered->inner().here();
  throw tessera::error(tessera::errc::invalid_argument, "tables_here: a source of another kind");
}

tessera::local_tables* hot_tables_here(tessera::any_source& source) {
  auto* const hot = source.get_if<tables_with_hot_rows>();
  return hot != nullptr && hot->twins() != nullptr ? &hot->twins()->here() : nullptr;
}

std::optional<std::pair<std::int64_t, std::int64_t>> swaps_of(tessera::any_source& source) {
  auto* const hot = source.get_if<tables_with_hot_rows>();
  if (hot == nullptr) return std::nullopt;
  return std::pair(hot->swaps(), hot->moved_rows());
}

}  // namespace examples
