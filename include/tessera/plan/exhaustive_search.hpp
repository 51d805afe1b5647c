// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/feasible_shards.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/plan_objective.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `exhaustive_search`.
struct exhaustive_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = 0;
  counted_memory counted = counted_memory::all;
  /// Whether the model costs a plan the same with devices renumbered. One of such plans is then looked at.
  bool devices_alike = false;
  bool cut_columns = false;       ///< into halves of halves, as `plan_search`
  std::int64_t most_shards = 16;  ///< of all tables together, where they are cut
  plan_objective objective = plan_objective::cost;
};

/// The best plan of all that there are, of whole tables or of their halves of halves too. Shards of one table with as many columns are alike:
/// of plans that exchange them one is looked at. @pre so many plans take a bearable time
/// @throws tessera::error invalid_argument as `plan_of_shards`, and for more than 12 tables or fewer shards than tables. out_of_memory where
/// no plan fits: it names all bytes and the limit of all devices, or the table that is too large. It says so, too, where each plan has a
/// device over its limit.
template <cost_model M>
found_plan exhaustive_search(vector_view<table_profile const> tables, M const& model, exhaustive_search_options const& options);

namespace detail {

template <cost_model M>
class all_placements {
 public:
  all_placements(shard_kinds const& kinds, M const& model, exhaustive_search_options const& options, std::int64_t device_bytes)
      : kinds_(kinds),
        model_(model),
        options_(options),
        devices_(static_cast<std::size_t>(options.devices)),
        width_(static_cast<std::size_t>(kinds.width())),
        device_bytes_(device_bytes),
        ways_(static_cast<std::size_t>(kinds.tables())),
        sums_((ways_.size() + 1) * devices_ * width_),
        columns_(devices_),
        bytes_(devices_),
        now_(ways_.size()),
        costs_(options.devices) {
    for (std::size_t t = 0; t < ways_.size(); ++t)
      ways_[t] = ways_of(kinds.whole(static_cast<std::int64_t>(t)),
                         options.cut_columns ? static_cast<std::size_t>(options.most_shards) - ways_.size() + 1 : 1);
  }

  void run(std::size_t table = 0, std::size_t used = 0, std::size_t shards = 0) {
    auto const* const sums = sums_.data() + table * devices_ * width_;
    if (table == now_.size()) {
      ++evaluations;
      plan_cost(model_, matrix_view<float const>(sums, static_cast<std::int64_t>(devices_), kinds_.width()), columns_, costs_);
      if (auto const value = objective_of(costs_, options_.objective); value < best_value_) {
        best_value_ = value;
        best.clear();
        for (auto const* way : now_) add_shards(*way);
      }
      return;
    }
    for (auto const& way : ways_[table]) {
      auto const with = shards + way.size();
      if (options_.cut_columns && static_cast<std::int64_t>(with + now_.size() - table - 1) > options_.most_shards) continue;
      auto const most = options_.devices_alike ? used_with(way, used) : used;
      if (most > devices_) continue;
      bool fits = true;
      // Each table has sums of its own, so that nothing is taken away again.
      auto* const next = sums_.data() + (table + 1) * devices_ * width_;
      std::copy_n(sums, devices_ * width_, next);
      for (auto const& shard : way) {
        auto const d = static_cast<std::size_t>(shard.device);
        for (std::size_t k = 0; k < width_; ++k) next[d * width_ + k] += kinds_.representation(shard.kind)[k];
        columns_[d] += kinds_[shard.kind].columns;
        bytes_[d] += kinds_[shard.kind].bytes;
      }
      for (auto const bytes : bytes_) fits = fits && bytes <= device_bytes_;
      now_[table] = &way;
      if (fits) run(table + 1, most, with);
      for (auto const& shard : way) {
        columns_[static_cast<std::size_t>(shard.device)] -= kinds_[shard.kind].columns;
        bytes_[static_cast<std::size_t>(shard.device)] -= kinds_[shard.kind].bytes;
      }
    }
  }

  std::int64_t evaluations = 0;
  std::vector<placed_shard> best;

 private:
  // A table's shards, the widest first; those of one kind by device.
  using way_of_table = std::vector<placed_shard>;

  // All ways to hold a shard of this kind in so many shards.
  std::vector<way_of_table> ways_of(int kind, std::size_t most_shards) const {
    std::set<std::vector<std::pair<int, std::int32_t>>> ways;
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(devices_); ++d) ways.insert({{kind, d}});
    if (kinds_[kind].half_columns >= 0 && most_shards >= 2) {
      auto const halves = ways_of(kinds_[kind].half_columns, most_shards - 1);
      for (std::size_t a = 0; a < halves.size(); ++a)
        for (std::size_t b = 0; b <= a; ++b) {
          if (halves[a].size() + halves[b].size() > most_shards) continue;
          std::vector<std::pair<int, std::int32_t>> both;
          for (auto const* half : {&halves[a], &halves[b]})
            for (auto const& shard : *half) both.emplace_back(shard.kind, shard.device);
          std::sort(both.begin(), both.end());
          ways.insert(std::move(both));
        }
    }
    std::vector<way_of_table> result;
    for (auto const& way : ways) {
      auto& shards = result.emplace_back();
      for (auto const& [of, device] : way) shards.push_back({of, device});
    }
    return result;
  }

  // How many devices are used with this way: new ones come in the order of their numbers; more than there are where they do not.
  std::size_t used_with(way_of_table const& way, std::size_t used) const {
    std::size_t fresh = 0, most = used;
    for (std::size_t d = used; d < devices_; ++d)
      if (std::any_of(way.begin(), way.end(), [&](placed_shard const& s) { return static_cast<std::size_t>(s.device) == d; }))
        ++fresh, most = d + 1;
    return most == used + fresh ? most : devices_ + 1;
  }

  // The widest shards of a table come first, so that each begins at a multiple of its columns.
  void add_shards(way_of_table const& way) {
    std::int64_t column = 0;
    for (auto shard : way) {
      auto const columns = static_cast<std::int64_t>(kinds_[shard.kind].columns);
      shard.column = column / columns;
      column += columns;
      best.push_back(shard);
    }
  }

  shard_kinds const& kinds_;
  M const& model_;
  exhaustive_search_options const& options_;
  std::size_t devices_, width_;
  std::int64_t device_bytes_;
  std::vector<std::vector<way_of_table>> ways_;  // of each table
  std::vector<float> sums_, columns_;
  std::vector<std::int64_t> bytes_;
  std::vector<way_of_table const*> now_;
  float best_value_ = std::numeric_limits<float>::infinity();
  device_costs costs_;
};

}  // namespace detail

template <cost_model M>
found_plan exhaustive_search(vector_view<table_profile const> tables, M const& model, exhaustive_search_options const& options) {
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("exhaustive_search", tables, model, limits);
  detail::check_choice("exhaustive_search", "objective", options.objective, plan_objective::slowest_stage);
  if (tables.size() > 12)
    throw error(errc::invalid_argument, "exhaustive_search: at most 12 tables", {{"tables", tables.size()}, {"most", 12}});
  if (options.cut_columns && options.most_shards < tables.size())
    throw error(errc::invalid_argument, "exhaustive_search: fewer shards than tables",
                {{"most_shards", options.most_shards}, {"tables", tables.size()}});
  detail::shard_kinds const kinds(tables, model, options.counted, options.cut_columns, false);
  auto const device_bytes = options.bytes_per_device - received_bytes(tables, options.devices, options.counted);
  detail::check_feasible("exhaustive_search", kinds, limits, device_bytes,
                         options.cut_columns ? "a table is too large for a device, and its columns are cut no further"
                                             : "a table is too large for a device, and tables are not to be cut");
  detail::all_placements<M> all(kinds, model, options, device_bytes);
  all.run();
  if (all.best.empty())
    throw error(errc::out_of_memory, "exhaustive_search: no plan fits: each has a device over its limit",
                {{"tables", tables.size()}, {"devices", options.devices}, {"bytes_per_device", options.bytes_per_device}});
  auto found = plan_of_shards(tables, model, limits, detail::table_shards_of(kinds, all.best));
  found.evaluations = all.evaluations;
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
