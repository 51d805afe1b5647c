// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/codec.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/topology.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/embedding_source.hpp>
#include <tessera/embed/lookup_options.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/agreed_shards.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/pass_through.hpp>
#include <tessera/tower/plan_towers.hpp>
#include <tessera/tower/tower_module.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_ranks.hpp>
#include <tessera/tower/tower_shapes.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `sptt_tables`.
struct sptt_options {
  out_of_range_ids out_of_range = out_of_range_ids::refuse;  ///< ids that a dense table has no row for
  exchange_codecs codecs = {};  ///< how vectors and gradients travel between peers; inside a tower they are floats
  tower_options modules = {};   ///< how modules start and multiply
};

namespace detail {

/// What the ranks of `sptt_tables` agree on before they part.
struct agreed_towers {
  tower_ranks ranks;
  std::vector<embedding_output> of_features;  ///< of the tables, one a feature
  std::vector<tower_shape> shapes;            ///< of all towers
  tower_part part;                            ///< what this rank's group holds
};

/// @throws tessera::error as the constructor of `sptt_tables`, on all ranks
template <tower_recipe Recipe>
agreed_towers agree_on_towers(host_exec const& exec, any_communicator& comm, topology const& where, std::vector<table_spec> const& specs,
                              std::vector<table_feature> const& features, sharding_plan const& plan, tower_partition const& towers,
                              Recipe const& recipe, sptt_options const& options) {
  std::vector<agreed_towers> made;
  std::string mine;
  std::exception_ptr failure;
  auto const add = [&](auto const&... values) { ((mine += ' ' + std::to_string(values)), ...); };
  try {
    check_topology(where, comm.size());
    tower_ranks const ranks(where, static_cast<std::int64_t>(towers.towers.size()));
    std::vector<embedding_output> of_features;
    auto part = part_of_group(specs, features, plan, towers, ranks, ranks.group_of(comm.rank()));
    for (std::size_t f = 0; f < features.size(); ++f) {
      auto const& feature = features[f];
      of_features.push_back({feature.name, specs[static_cast<std::size_t>(feature.table)].table.dim, static_cast<std::int64_t>(f),
                             feature.sequence, false, feature.table, feature.pooling});
    }
    check_choice("sptt_tables", "codec", options.codecs.forward, codec::fp8_e5m2);
    check_choice("sptt_tables", "codec", options.codecs.backward, codec::fp8_e5m2);
    auto shapes = shapes_of(recipe, towers, vector_view<embedding_output const>(of_features));
    if (!std::same_as<Recipe, pass_through> && !options.modules.policy)
      throw error(errc::invalid_argument, "sptt_tables: modules need tower_options::policy", {{"modules", std::string(recipe.name)}});
    mine = "modules " + std::string(recipe.name) + ": seed";
    add(options.modules.seed.value);
    for (std::int64_t r = 0; r < where.ranks(); ++r) {
      mine += "\nrank, group, index";
      add(r, ranks.group_of(r), ranks.index_of(r));
    }
    for (auto const& shape : shapes) {
      std::vector<std::int64_t> widths;
      for (auto const f : shape.pooled) widths.push_back(of_features[static_cast<std::size_t>(f)].width);
      mine += "\ntower, width, parameters, features";
      add(shape.tower, shape.width, widths.empty() ? 0 : recipe.cost(widths).parameters);
      for (auto const* const list : {&shape.pooled, &shape.sequences})
        for (auto const f : *list) add(f);
    }
    made.push_back({ranks, std::move(of_features), std::move(shapes), std::move(part)});
  } catch (...) {
    failure = std::current_exception();
  }
  check_same_tables(exec, comm, specs, features, plan, {.out_of_range = options.out_of_range, .codecs = options.codecs}, failure);
  check_same_text(exec, comm, mine, "sptt_tables: the same towers");
  return std::move(made.front());
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
