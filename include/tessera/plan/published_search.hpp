// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `published_search`; defaults are those of the paper.
struct published_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = std::int64_t{4} << 30;
  counted_memory counted = counted_memory::float_weights;
  std::int64_t candidates = 10;  ///< tables by size, and as many by cost, that each beam tries to halve: N
  std::int64_t beams = 3;        ///< that go on to the next step: K
  std::int64_t steps = 10;       ///< halvings of one plan: L
  std::int64_t grid = 11;        ///< limits on the columns of a device, from 1 to 1.5 times their mean: M
};

/// NeuroShard's search: a beam search over halvings of columns, and for each of its plans a greedy placement under each limit of a grid.
///
/// It finds the plans of the authors' code: tables go by falling predicted cost, of equal ones the later first. Each goes to the device
/// that costs least before it comes, of equal ones to that with fewer bytes. Tables that are not placed make a plan infinite. Sums of
/// representations are kept, and limits that lead to one placement are tried once.
/// Source: "Pre-train and Search: Efficient Embedding Table Sharding with Pre-trained Neural Cost Models", Algorithms 1 and 2.
/// @throws tessera::error invalid_argument as `plan_of_shards`, and for an option that is too small, naming it; out_of_memory, naming how many plans
/// were compared, where no plan was found. There may be one all the same.
template <cost_model M>
found_plan published_search(vector_view<table_profile const> tables, M const& model, published_search_options const& options);

namespace detail {

// Shards in the order in which halving made them: a half stays at its place, the other one goes to the end.
struct halved_tables {
  struct entry {
    int kind;
    std::int64_t column;  // which of the shards of its kind
  };
  std::vector<entry> entries;
  float cost = std::numeric_limits<float>::infinity();
};

template <cost_model M>
class grid_placement {
 public:
  grid_placement(shard_kinds const& kinds, M const& model, published_search_options const& options)
      : kinds_(kinds),
        model_(model),
        options_(options),
        devices_(static_cast<std::size_t>(options.devices)),
        none_(static_cast<std::size_t>(kinds.width())),
        sums_(devices_ * none_.size()),
        columns_(devices_),
        bytes_(devices_),
        costs_(options.devices) {
    model.compute_ms(matrix_view<float const>(none_.data(), 1, kinds.width()), vector_view<float>(&empty_ms_, 1));
  }

  // The least cost under any limit of the grid, infinite where each leaves a shard; `devices` (entries,) are the placement's.
  float operator()(halved_tables const& state, std::vector<std::int64_t>& devices) {
    auto const& entries = state.entries;
    order_.resize(entries.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      auto const of_a = kinds_[entries[a].kind].cost, of_b = kinds_[entries[b].kind].cost;
      return of_a != of_b ? of_a > of_b : a > b;
    });
    double all = 0;
    for (auto const& e : entries) all += static_cast<double>(kinds_[e.kind].columns);
    auto best = std::numeric_limits<float>::infinity();
    // From the largest limit down. A placement that keeps a smaller one too is that one's: the same devices are chosen of fewer.
    double kept = std::numeric_limits<double>::infinity();
    for (auto i = options_.grid - 1; i >= 0; --i) {
      auto const scale = options_.grid == 1 ? 1.0 : 1.0 + 0.5 / static_cast<double>(options_.grid - 1) * static_cast<double>(i);
      auto const limit = scale * (all / static_cast<double>(options_.devices));
      if (kept <= limit) continue;
      kept = std::numeric_limits<double>::infinity();
      if (!place(entries, limit)) continue;
      ++evaluations_;
      auto const cost = plan_cost(model_, columns_, costs_);
      kept = static_cast<double>(*std::max_element(columns_.begin(), columns_.end()));
      // Of equal costs the smaller limit's stays, which comes later here.
      if (cost <= best && cost < std::numeric_limits<float>::infinity()) {
        best = cost;
        devices = chosen_;
      }
    }
    return best;
  }

  std::int64_t evaluations() const noexcept { return evaluations_; }

 private:
  bool place(std::vector<halved_tables::entry> const& entries, double limit) {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    std::fill(columns_.begin(), columns_.end(), 0.0F);
    std::fill(bytes_.begin(), bytes_.end(), std::int64_t{0});
    std::fill(costs_.compute.begin(), costs_.compute.end(), empty_ms_);
    chosen_.resize(entries.size());
    auto const width = none_.size();
    for (auto const s : order_) {
      auto const& kind = kinds_[entries[s].kind];
      auto best = devices_;
      for (std::size_t d = 0; d < devices_; ++d) {
        if (bytes_[d] + kind.bytes > options_.bytes_per_device || static_cast<double>(columns_[d] + kind.columns) > limit) continue;
        auto const cost = costs_.compute[d];
        if (best == devices_ || cost < costs_.compute[best] || (cost == costs_.compute[best] && bytes_[d] < bytes_[best])) best = d;
      }
      if (best == devices_) return false;
      chosen_[s] = static_cast<std::int64_t>(best);
      columns_[best] += kind.columns;
      bytes_[best] += kind.bytes;
      auto* const sum = sums_.data() + best * width;
      auto const* const more = kinds_.representation(entries[s].kind);
      for (std::size_t i = 0; i < width; ++i) sum[i] += more[i];
      model_.compute_ms(matrix_view<float const>(sum, 1, kinds_.width()), vector_view<float>(&costs_.compute[best], 1));
    }
    return true;
  }

  shard_kinds const& kinds_;
  M const& model_;
  published_search_options const& options_;
  std::size_t devices_;
  std::vector<float> none_;
  float empty_ms_ = 0;
  std::vector<float> sums_, columns_;
  std::vector<std::int64_t> bytes_, chosen_;
  std::vector<std::size_t> order_;
  device_costs costs_;
  std::int64_t evaluations_ = 0;
};

// The shards that a beam tries to halve: the largest ones and the costliest ones, of equal ones the later, in their order.
inline std::vector<std::size_t> halving_candidates(shard_kinds const& kinds, halved_tables const& state, std::int64_t most) {
  auto const count = std::min(state.entries.size(), static_cast<std::size_t>(most));
  std::vector<std::size_t> order(state.entries.size()), chosen;
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const add_first = [&](auto const& key) {
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), [&](std::size_t a, std::size_t b) {
      auto const of_a = key(kinds[state.entries[a].kind]), of_b = key(kinds[state.entries[b].kind]);
      return of_a != of_b ? of_a > of_b : a > b;
    });
    chosen.insert(chosen.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  };
  add_first([](shard_kind const& kind) { return kind.bytes; });
  add_first([](shard_kind const& kind) { return kind.cost; });
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace detail

template <cost_model M>
found_plan published_search(vector_view<table_profile const> tables, M const& model, published_search_options const& options) {
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("published_search", tables, model, limits);
  for (auto const& [name, value, least] : {std::tuple("candidates", options.candidates, 1), std::tuple("beams", options.beams, 1),
                                           std::tuple("steps", options.steps, 0), std::tuple("grid", options.grid, 1)})
    if (value < least) throw error(errc::invalid_argument, "published_search: an option is too small", {{name, value}, {"least", least}});
  detail::shard_kinds const kinds(tables, model, options.counted, true, false);
  auto inner = options;
  inner.bytes_per_device -= received_bytes(tables, options.devices, options.counted);
  detail::grid_placement<M> place(kinds, model, inner);
  std::vector<detail::halved_tables> beams(1);
  for (std::int64_t t = 0; t < tables.size(); ++t) beams[0].entries.push_back({kinds.whole(t), 0});
  std::vector<std::int64_t> devices, best_devices;
  beams[0].cost = place(beams[0], devices);
  auto best = beams[0];
  best_devices = devices;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    std::vector<detail::halved_tables> next;
    for (auto const& beam : beams)
      for (auto const s : detail::halving_candidates(kinds, beam, options.candidates)) {
        auto const half = kinds[beam.entries[s].kind].half_columns;
        if (half < 0) continue;
        auto& child = next.emplace_back(beam);
        child.entries[s] = {half, 2 * beam.entries[s].column};
        child.entries.push_back({half, 2 * beam.entries[s].column + 1});
        child.cost = place(child, devices);
        if (child.cost < best.cost) {
          best = child;
          best_devices = devices;
        }
      }
    std::stable_sort(next.begin(), next.end(), [](auto const& a, auto const& b) { return a.cost < b.cost; });
    if (static_cast<std::int64_t>(next.size()) > options.beams) next.resize(static_cast<std::size_t>(options.beams));
    beams = std::move(next);
  }
  if (best.cost == std::numeric_limits<float>::infinity())
    throw error(errc::out_of_memory, "published_search: no plan was found", {{"evaluations", place.evaluations()}});
  std::vector<table_shard> shards;
  for (std::size_t s = 0; s < best.entries.size(); ++s)
    shards.push_back(kinds.shard(best.entries[s].kind, best.entries[s].column, 0, best_devices[s]));
  auto found = plan_of_shards(tables, model, limits, std::move(shards));
  found.evaluations = place.evaluations();
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
