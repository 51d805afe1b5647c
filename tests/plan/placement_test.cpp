// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/plan/placement.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tessera/plan/roofline_cost.hpp>
#include <tessera/plan/shard_changes.hpp>

#include "random.hpp"
#include "random_models.hpp"

namespace placement_test {

using tessera::detail::placed_shard;
using tessera::detail::placement;
using tessera::detail::placement_change;
using tessera::detail::shard_kinds;

namespace {

tessera::roofline_cost const model({.memory_bytes_per_second = 2e10, .exchange_bytes_per_second = 5e9});
using placed = placement<tessera::roofline_cost>;

// What a score is from the beginning: sums of other orders differ by roundings.
void check_score(placed const& here, placed fresh) {
  fresh.set(here.shards());
  CHECK(here.score().overflow == fresh.score().overflow);
  CHECK(here.score().value == doctest::Approx(fresh.score().value).epsilon(1e-4));
  CHECK(here.score().mean == doctest::Approx(fresh.score().mean).epsilon(1e-4));
}

}  // namespace

TEST_CASE("placement: after random changes, taken or not, scores and devices are those of the shards; each table is covered once") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera::table_profile> tables;
  for (int t = 0; t < 8; ++t) tables.push_back(tessera_tests::random_profile(random, 100'000, 64));
  for (int t = 0; t < 2; ++t) tables[static_cast<std::size_t>(t)].rows = 100;  // all devices may have them
  for (auto const& kind : {std::pair(false, 1 << 20), {true, 1 << 20}, {true, 1 << 30}}) {
    auto const has_replicas = kind.first;
    auto const limit = kind.second;
    CAPTURE(has_replicas);
    shard_kinds const kinds(tables, model, tessera::counted_memory::all, true, true, {}, has_replicas ? 3 : 0);
    CHECK(kinds.has_replicas() == has_replicas);
    placed here(kinds, model, 3, limit, tessera::plan_objective::cost);
    std::vector<placed_shard> whole;
    for (std::int64_t t = 0; t < kinds.tables(); ++t) whole.push_back({kinds.whole(t)});
    here.place(whole, false, 1e9F);
    tessera::detail::shard_changes changes(kinds, tessera::random_seed{seed}, 0);
    int taken = 0, rejected = 0, cut = 0, on_all = 0;
    for (int i = 0; i < (has_replicas ? 1000 : 400); ++i) {
      placement_change change;
      if (!changes.draw(here, change)) continue;
      auto const before = here.score();
      auto const shards = here.shards();
      auto const tried = here.try_change(change);
      if (changes.uniform() < 0.5F) {
        here.accept(change);
        CHECK(here.score().value == tried.value);
        ++taken;
      } else {
        here.reject();
        CHECK(here.shards() == shards);
        CHECK(here.score().value == before.value);
        ++rejected;
      }
      check_score(here, placed(kinds, model, 3, limit, tessera::plan_objective::cost));
      std::size_t held = here.held_by_all().size();
      for (auto const s : here.held_by_all()) CHECK(here.shards()[s].device == tessera::on_all_devices);
      on_all += held > 0;
      for (std::size_t d = 0; d < here.devices(); ++d)
        for (auto const s : here.held(d)) {
          CHECK(here.shards()[s].device == static_cast<std::int32_t>(d));
          ++held;
        }
      CHECK(held == here.shards().size());
      cut += here.shards().size() > tables.size();
    }
    CHECK(taken > 20);
    CHECK(rejected > 20);
    CHECK(cut > 0);
    CHECK((on_all > 0) == has_replicas);
    // Halves cover what they are halves of.
    std::vector<double> covered(tables.size());
    for (auto const& s : tessera::detail::table_shards_of(kinds, here.shards()))
      covered[static_cast<std::size_t>(s.table)] += static_cast<double>(s.rows) * static_cast<double>(s.columns);
    for (std::size_t t = 0; t < tables.size(); ++t)
      CHECK(covered[t] == static_cast<double>(tables[t].rows) * static_cast<double>(tables[t].dim));
  }
}

}  // namespace placement_test
