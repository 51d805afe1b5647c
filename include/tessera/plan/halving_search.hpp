// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/shard_changes.hpp>
#include <tessera/plan/shard_kinds.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// Bounds of NeuroShard's search; defaults are those of the paper.
struct halving_bounds {
  std::int64_t candidates = 10, beams = 3, steps = 10, grid = 11;
  bool keep_sums = true;
};

// The best of the greedy placements of some shards under each limit of a grid.
struct grid_result {
  float cost = std::numeric_limits<float>::infinity();  // infinite where each limit leaves a shard
  std::int64_t evaluations = 0;                         // placements that differ, of all shards
  std::vector<std::int32_t> devices;                    // (shards,), in the order of placing
};

// Places shards greedily under the limits of a grid. Limits that lead to one placement share it, and what comes before they part.
template <cost_model M>
class grid_placement {
 public:
  grid_placement(shard_kinds const& kinds, M const& model, std::int64_t devices, std::int64_t device_bytes, halving_bounds const& bounds)
      : kinds_(kinds),
        model_(model),
        device_bytes_(device_bytes),
        limits_(static_cast<std::size_t>(std::max<std::int64_t>(bounds.grid, 1))),
        is_bounded_(bounds.grid > 0),
        keep_sums_(bounds.keep_sums),
        costs_(devices) {
    auto const n = static_cast<std::size_t>(devices), width = static_cast<std::size_t>(kinds.width());
    empty_.sums.resize(n * width);
    empty_.columns.resize(n);
    empty_.bytes.resize(n);
    empty_.by_cost.resize(n);
    std::iota(empty_.by_cost.begin(), empty_.by_cost.end(), 0);
    empty_.compute.resize(n);
    model.compute_ms(matrix_view<float const>(empty_.sums.data(), devices, kinds.width()), empty_.compute);
  }

  // `order`: the kinds of all shards, in the order of placing.
  grid_result operator()(std::vector<int> const& order) {
    double all = 0;
    for (int const kind : order) all += static_cast<double>(kinds_[kind].columns);
    auto const mean = all / static_cast<double>(empty_.columns.size());
    for (std::size_t i = 0; i < limits_.size(); ++i)
      limits_[i] = limits_.size() == 1 ? mean : (1.0 + 0.5 / static_cast<double>(limits_.size() - 1) * static_cast<double>(i)) * mean;
    if (!is_bounded_) limits_[0] = std::numeric_limits<double>::infinity();
    grid_result best;
    waiting_.resize(1);
    waiting_[0] = empty_;
    waiting_[0].last = limits_.size();
    // The largest limits first; of equal costs that of the smaller limit stays.
    while (!waiting_.empty()) {
      auto now = std::move(waiting_.back());
      waiting_.pop_back();
      if (!place(order, now)) continue;
      ++best.evaluations;
      costs_.compute = now.compute;
      auto const cost = plan_cost(model_, now.columns, costs_);
      if (cost > best.cost || cost == std::numeric_limits<float>::infinity()) continue;
      best.cost = cost;
      best.devices = std::move(now.chosen);
    }
    return best;
  }

 private:
  // Shards that were placed alike under limits first … last - 1.
  struct group {
    std::size_t first = 0, last = 0;
    std::vector<float> sums, columns, compute;
    std::vector<std::int64_t> bytes;
    std::vector<int> by_cost;  // devices by cost, then bytes, then number
    std::vector<std::int32_t> chosen;
  };

  // Places all shards that are left under the group's largest limit. Smaller limits that choose another device wait as a group of their own.
  bool place(std::vector<int> const& order, group& now) {
    auto const width = static_cast<std::size_t>(kinds_.width());
    while (now.chosen.size() < order.size()) {
      auto const number = order[now.chosen.size()];
      auto const& kind = kinds_[number];
      auto const columns_with = [&](int d) { return static_cast<double>(now.columns[static_cast<std::size_t>(d)] + kind.columns); };
      auto const at = std::find_if(now.by_cost.begin(), now.by_cost.end(), [&](int d) {
        return now.bytes[static_cast<std::size_t>(d)] + kind.bytes <= device_bytes_ && columns_with(d) <= limits_[now.last - 1];
      });
      if (at == now.by_cost.end()) return false;
      auto const fits = [&](std::size_t limit) { return columns_with(*at) <= limits_[limit]; };
      if (!fits(now.first)) {
        auto& other = waiting_.emplace_back(now);
        while (!fits(now.first)) ++now.first;
        other.last = now.first;
      }
      auto const d = static_cast<std::size_t>(*at);
      now.chosen.push_back(static_cast<std::int32_t>(d));
      now.columns[d] += kind.columns;
      now.bytes[d] += kind.bytes;
      auto* const sum = now.sums.data() + d * width;
      if (keep_sums_) {
        auto const* const more = kinds_.representation(number);
        for (std::size_t i = 0; i < width; ++i) sum[i] += more[i];
      } else {
        sum_anew(order, now, *at, sum);
      }
      model_.compute_ms(matrix_view<float const>(sum, 1, kinds_.width()), vector_view<float>(&now.compute[d], 1));
      sort_in(now, at);
    }
    return true;
  }

  // The sum of what a device holds, from the profiles of its shards, to the bit that of kept sums.
  void sum_anew(std::vector<int> const& order, group const& now, int device, float* sum) {
    auto const width = static_cast<std::size_t>(kinds_.width());
    anew_.resize(width);
    std::fill_n(sum, width, 0.0F);
    for (std::size_t s = 0; s < now.chosen.size(); ++s) {
      if (now.chosen[s] != device) continue;
      auto const profile = kinds_.profile(order[s]);
      model_.represent(vector_view<table_profile const>(&profile, 1), matrix_view<float>(anew_.data(), 1, kinds_.width()));
      for (std::size_t i = 0; i < width; ++i) sum[i] += anew_[i];
    }
  }

  // Moves a device whose cost changed to its place.
  static void sort_in(group& now, std::vector<int>::iterator at) {
    auto const before = [&](int a, int b) {
      auto const i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
      if (now.compute[i] != now.compute[j]) return now.compute[i] < now.compute[j];
      return now.bytes[i] != now.bytes[j] ? now.bytes[i] < now.bytes[j] : a < b;
    };
    for (; at + 1 != now.by_cost.end() && before(at[1], at[0]); ++at) std::swap(at[0], at[1]);
    for (; at != now.by_cost.begin() && before(at[0], at[-1]); --at) std::swap(at[0], at[-1]);
  }

  shard_kinds const& kinds_;
  M const& model_;
  std::int64_t device_bytes_;
  std::vector<double> limits_;
  bool is_bounded_, keep_sums_;
  std::vector<float> anew_;  // a representation
  group empty_;
  std::vector<group> waiting_;
  device_costs costs_;
};

// The largest shards and the costliest ones, so many of each, of equal ones the later; in their order.
inline std::vector<std::size_t> halving_candidates(shard_kinds const& kinds, std::vector<placed_shard> const& shards, std::int64_t most) {
  auto const count = static_cast<std::ptrdiff_t>(std::min(shards.size(), static_cast<std::size_t>(most)));
  std::vector<std::size_t> order(shards.size()), chosen;
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const add_first = [&](auto shard_kind::*key) {
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::size_t a, std::size_t b) {
      auto const of_a = kinds[shards[a].kind].*key, of_b = kinds[shards[b].kind].*key;
      return of_a != of_b ? of_a > of_b : a > b;
    });
    chosen.insert(chosen.end(), order.begin(), order.begin() + count);
  };
  add_first(&shard_kind::bytes);
  add_first(&shard_kind::cost);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// NeuroShard's beam search over halvings of columns, with a greedy placement under each limit of a grid for each of its plans.
template <cost_model M>
class halving_search {
 public:
  halving_search(host_exec const& exec, shard_kinds const& kinds, M const& model, std::int64_t devices, std::int64_t device_bytes,
                 halving_bounds const& bounds)
      : exec_(exec), kinds_(kinds), model_(model), devices_(devices), device_bytes_(device_bytes), bounds_(bounds) {}

  // Calls take(shards) for each plan that costs less than those before it. It ends where another plan would be one evaluation too much, or
  // where is_late(), on any thread, says so. @return the evaluations. They and what is taken do not depend on threads.
  template <class IsLate, class Take>
  std::int64_t run(std::int64_t most_evaluations, IsLate const& is_late, Take const& take) {
    std::vector<beam> beams(1);
    for (std::int64_t t = 0; t < kinds_.tables(); ++t) beams[0].shards.push_back({kinds_.whole(t)});
    auto best = std::numeric_limits<float>::infinity();
    std::int64_t evaluations = 0;
    for (std::int64_t step = 0; step <= bounds_.steps && !beams.empty() && !is_late(); ++step) {
      if (step > 0) beams = halved(beams);
      place(beams, is_late);
      for (auto& one : beams) {
        auto const& found = *one.found;
        if (one.is_first) evaluations += found.evaluations;
        if (evaluations > most_evaluations) return most_evaluations;
        if (!(found.cost < best)) continue;
        best = found.cost;
        auto shards = one.shards;
        for (std::size_t i = 0; i < one.order.size(); ++i) shards[one.order[i]].device = found.devices[i];
        take(std::move(shards));
      }
      std::stable_sort(beams.begin(), beams.end(), [](auto const& a, auto const& b) { return a.found->cost < b.found->cost; });
      if (static_cast<std::int64_t>(beams.size()) > bounds_.beams) beams.resize(static_cast<std::size_t>(bounds_.beams));
    }
    return evaluations;
  }

 private:
  // Shards in the order in which halving made them: a half stays at its place, the other one goes to the end.
  struct beam {
    std::vector<placed_shard> shards;
    std::vector<std::size_t> order;  // of placing: by falling cost, of equal ones the later first
    grid_result const* found = nullptr;
    bool is_first = false;  // of the beams with its kinds in its order
  };

  // Beams that reach the same halvings in another order stay: each takes a place among the best, so that dropping some finds other plans.
  std::vector<beam> halved(std::vector<beam> const& beams) const {
    std::vector<beam> next;
    for (auto const& one : beams)
      for (auto const s : halving_candidates(kinds_, one.shards, bounds_.candidates)) {
        placed_shard halves[2];
        if (!halves_of(kinds_, one.shards[s], false, halves)) continue;
        auto& child = next.emplace_back();
        child.shards = one.shards;
        child.shards[s] = halves[0];
        child.shards.push_back(halves[1]);
      }
    return next;
  }

  // What is late stays infinite.
  template <class IsLate>
  void place(std::vector<beam>& beams, IsLate const& is_late) {
    std::vector<std::pair<std::vector<int> const*, grid_result*>> fresh;
    for (auto& one : beams) {
      one.order.resize(one.shards.size());
      std::iota(one.order.begin(), one.order.end(), std::size_t{0});
      std::sort(one.order.begin(), one.order.end(), [&](std::size_t a, std::size_t b) {
        auto const of_a = kinds_[one.shards[a].kind].cost, of_b = kinds_[one.shards[b].kind].cost;
        return of_a != of_b ? of_a > of_b : a > b;
      });
      std::vector<int> key;
      for (auto const s : one.order) key.push_back(one.shards[s].kind);
      auto const [at, is_first] = known_.try_emplace(std::move(key));
      one.found = &at->second;
      one.is_first = is_first;
      if (is_first) fresh.emplace_back(&at->first, &at->second);
    }
    for_each_piece(exec_, static_cast<std::int64_t>(fresh.size()), 4, [&](std::int64_t first, std::int64_t last) {
      grid_placement<M> grid(kinds_, model_, devices_, device_bytes_, bounds_);
      for (auto i = first; i < last && !is_late(); ++i) {
        auto const& [kinds, result] = fresh[static_cast<std::size_t>(i)];
        *result = grid(*kinds);
      }
    });
  }

  host_exec const& exec_;
  shard_kinds const& kinds_;
  M const& model_;
  std::int64_t devices_, device_bytes_;
  halving_bounds bounds_;
  std::map<std::vector<int>, grid_result> known_;  // by the kinds in the order of placing, which decide the placement
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
