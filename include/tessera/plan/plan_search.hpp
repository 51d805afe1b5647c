// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/shard_changes.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `plan_search`.
struct plan_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = 0;
  counted_memory counted = counted_memory::all;
  std::int64_t evaluations = 200'000;  ///< how many plans it may compare
  double deadline_ms = 0;              ///< after which it stops; 0: none. A plan that it stopped depends on the machine's speed
  bool cut_columns = true;             ///< into halves of halves, each a multiple of 4
  bool cut_rows = false;               ///< too; the table's shards of rows then return partial sums
  plan_objective objective = plan_objective::cost;
  random_seed seed{};
};

/// Searches for the plan of least cost: which tables are cut into which halves, and which device holds which shard.
///
/// It begins with placements that put each shard where the device costs least with it, and halves large and costly shards while that
/// helps. Then four walks change plans by moves, swaps, halvings and joins of halves, in rounds that begin with large steps and end with
/// small ones. While no plan fits, fewer bytes over the limits are better than a lower cost.
///
/// @post one set of options finds one plan, bit for bit, on any number of threads, without a deadline. More evaluations never cost more.
/// @throws tessera::error invalid_argument, naming the option, as `plan_of_shards`, and for less than one evaluation or a negative deadline.
/// out_of_memory where no plan can be: it names all bytes and the limit of all devices, or the table whose smallest shard is too large.
/// out_of_memory too where none was found, naming the evaluations.
template <cost_model M>
found_plan plan_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model, plan_search_options const& options);

namespace detail {

// Proves that no plan fits, or says nothing. `device_bytes`: for shards.
inline void check_feasible(shard_kinds const& kinds, std::int64_t device_bytes, plan_search_options const& options) {
  double all = 0;
  for (std::int64_t t = 0; t < kinds.tables(); ++t) {
    all += static_cast<double>(kinds[kinds.whole(t)].bytes);
    auto smallest = kinds.whole(t);
    while (kinds[smallest].half_columns >= 0) smallest = kinds[smallest].half_columns;
    while (kinds[smallest].half_rows >= 0) smallest = kinds[smallest].half_rows;
    if (kinds[smallest].bytes <= device_bytes) continue;
    auto const& table = kinds.table(t);
    throw error(errc::out_of_memory,
                options.cut_rows
                    ? "plan_search: the smallest shard of a table is too large for a device"
                    : "plan_search: a table is too large for a device, and its columns are cut no further; cut_rows cuts its rows",
                {{"table", table.name},
                 {"rows", table.rows},
                 {"dim", table.dim},
                 {"bytes of the smallest shard", kinds[smallest].bytes},
                 {"bytes_per_device", options.bytes_per_device},
                 {"bytes for shards", device_bytes}});
  }
  if (all > static_cast<double>(device_bytes) * static_cast<double>(options.devices))
    throw error(
        errc::out_of_memory, "plan_search: all devices together are too small",
        {{"bytes", all}, {"devices", options.devices}, {"bytes_per_device", options.bytes_per_device}, {"bytes for shards", device_bytes}});
}

template <cost_model M>
class plan_searcher {
 public:
  plan_searcher(host_exec const& exec, shard_kinds const& kinds, M const& model, std::int64_t device_bytes,
                plan_search_options const& options)
      : exec_(exec), kinds_(kinds), model_(model), device_bytes_(device_bytes), options_(options), started_(clock::now()) {}

  // The best plan's shards; `best().overflow` says whether they fit.
  std::vector<placed_shard> run() {
    begin();
    walk();
    return std::move(best_shards_);
  }
  plan_score const& best() const noexcept { return best_; }
  std::int64_t evaluations() const noexcept { return evaluations_; }
  bool stopped() const noexcept { return stopped_; }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::int64_t walks = 4, round_evaluations = 2048, most_beam_devices = 64;

  bool is_late() {
    if (options_.deadline_ms > 0 && std::chrono::duration<double, std::milli>(clock::now() - started_).count() >= options_.deadline_ms)
      stopped_ = true;
    return stopped_;
  }
  bool is_done() { return evaluations_ >= options_.evaluations || is_late(); }

  placement<M> empty() const { return {kinds_, model_, options_.devices, device_bytes_, options_.objective}; }

  void take(plan_score const& score, std::vector<placed_shard> const& shards) {
    if (!score.is_better_than(best_) && !best_shards_.empty()) return;
    best_ = score;
    best_shards_ = shards;
  }

  // Shards, and the best of their first placements.
  struct start {
    std::vector<placed_shard> shards;
    plan_score score;
  };
  static constexpr std::int64_t placements_of_start = 4;

  // Places these shards by cost under several limits of columns, and by bytes where they then do not fit.
  start placed(std::vector<placed_shard> const& shards) const {
    double columns = 0;
    for (auto const& s : shards) columns += static_cast<double>(kinds_[s.kind].columns);
    auto const mean = columns / static_cast<double>(options_.devices);
    start best;
    auto here = empty();
    for (double const most : {1.02, 1.15, 1e9}) {
      here.place(shards, false, static_cast<float>(most * mean));
      if (here.score().is_better_than(best.score) || best.shards.empty()) best = {here.shards(), here.score()};
    }
    if (best.score.overflow > 0) {
      here.place(shards, true, HUGE_VALF);
      if (here.score().is_better_than(best.score)) best = {here.shards(), here.score()};
    }
    return best;
  }

  // Places several lists of shards, as far as evaluations are left; the first in any case.
  std::vector<start> placed(std::vector<std::vector<placed_shard>> const& lists) {
    auto const left = std::max<std::int64_t>(options_.evaluations - evaluations_, 0) / placements_of_start;
    auto const count = std::min(static_cast<std::int64_t>(lists.size()), std::max<std::int64_t>(left, evaluations_ == 0 ? 1 : 0));
    std::vector<start> starts(static_cast<std::size_t>(count));
    exec_.run(count, [&](std::int64_t i) { starts[static_cast<std::size_t>(i)] = placed(lists[static_cast<std::size_t>(i)]); });
    evaluations_ += count == static_cast<std::int64_t>(lists.size()) ? count * placements_of_start : options_.evaluations - evaluations_;
    for (auto const& s : starts) take(s.score, s.shards);
    return starts;
  }

  // The halves of a shard, by columns where it can be.
  bool halve(std::vector<placed_shard>& shards, std::size_t s) const {
    placed_shard halves[2];
    if (!halves_of(kinds_, shards[s], false, halves) && !halves_of(kinds_, shards[s], true, halves)) return false;
    shards[s] = halves[0];
    shards.push_back(halves[1]);
    return true;
  }

  void begin() {
    std::vector<placed_shard> whole;
    for (std::int64_t t = 0; t < kinds_.tables(); ++t) whole.push_back({kinds_.whole(t)});
    auto now = placed(std::vector<std::vector<placed_shard>>{whole}).front();
    if (options_.devices <= most_beam_devices) beam_search(now);
    now = {best_shards_, best_};
    // Where that found no plan that fits, all of the largest shards are halved, again and again.
    while (now.score.overflow > 0 && !is_done()) {
      std::int64_t largest = 0;
      auto const can_be_halved = [&](placed_shard const& s) { return kinds_[s.kind].half_columns >= 0 || kinds_[s.kind].half_rows >= 0; };
      for (auto const& s : now.shards)
        if (can_be_halved(s)) largest = std::max(largest, kinds_[s.kind].bytes);
      if (largest == 0) break;
      auto shards = now.shards;
      for (std::size_t s = 0; s < now.shards.size(); ++s)
        if (can_be_halved(shards[s]) && static_cast<double>(kinds_[shards[s].kind].bytes) >= 0.75 * static_cast<double>(largest))
          halve(shards, s);
      auto next = placed(std::vector<std::vector<placed_shard>>{std::move(shards)});
      if (next.empty()) break;
      now = std::move(next.front());
    }
  }

  // Halves the largest and costliest shards of the best plans, as long as plans get better. Plans of the same shards are one.
  void beam_search(start const& first) {
    std::vector<start> beams{first};
    std::set<std::vector<int>> seen;
    for (int step = 0, without_gain = 0; step < 16 && without_gain < 2 && !beams.empty() && !is_done(); ++step) {
      std::vector<std::vector<placed_shard>> lists;
      for (auto const& beam : beams)
        for (auto const s : candidates(beam.shards, 4)) {
          auto shards = beam.shards;
          if (!halve(shards, s)) continue;
          std::vector<int> key;
          for (auto const& one : shards) key.push_back(one.kind);
          std::sort(key.begin(), key.end());
          if (seen.insert(std::move(key)).second) lists.push_back(std::move(shards));
        }
      auto const before = best_;
      beams = placed(lists);
      std::stable_sort(beams.begin(), beams.end(), [](auto const& a, auto const& b) { return a.score.is_better_than(b.score); });
      if (beams.size() > 3) beams.resize(3);
      without_gain = best_.is_better_than(before) ? 0 : without_gain + 1;
    }
  }

  // The largest shards and the costliest ones, in their order.
  std::vector<std::size_t> candidates(std::vector<placed_shard> const& shards, std::size_t most) const {
    auto const count = static_cast<std::ptrdiff_t>(std::min(most, shards.size()));
    std::vector<std::size_t> order(shards.size()), chosen;
    for (std::size_t s = 0; s < order.size(); ++s) order[s] = s;
    for (bool const by_bytes : {true, false}) {
      std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::size_t a, std::size_t b) {
        auto const &of_a = kinds_[shards[a].kind], &of_b = kinds_[shards[b].kind];
        if (by_bytes && of_a.bytes != of_b.bytes) return of_a.bytes > of_b.bytes;
        if (!by_bytes && of_a.cost != of_b.cost) return of_a.cost > of_b.cost;
        return a < b;
      });
      chosen.insert(chosen.end(), order.begin(), order.begin() + count);
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    return chosen;
  }

  struct walker {
    placement<M> here;
    plan_score best;
    std::vector<placed_shard> best_shards;
  };

  void walk() {
    std::vector<walker> all;
    for (std::int64_t w = 0; w < walks; ++w) all.push_back({empty(), best_, best_shards_});
    for (std::int64_t round = 0; !is_done(); ++round) {
      auto const each = std::min(round_evaluations, (options_.evaluations - evaluations_) / walks);
      if (each == 0) {
        evaluations_ = options_.evaluations;
        break;
      }
      // In each second round all walks begin with the best plan, else each with its own.
      exec_.run(walks, [&](std::int64_t w) {
        auto& walker = all[static_cast<std::size_t>(w)];
        if (round % 2 == 0 || w == 0) {
          walker.best = best_;
          walker.best_shards = best_shards_;
        }
        run_round(walker, round, w, each);
      });
      evaluations_ += each * walks;
      for (auto const& walker : all) take(walker.best, walker.best_shards);
    }
  }

  // Worse plans are kept with a chance that falls with what they cost more, and with time.
  void run_round(walker& walker, std::int64_t round, std::int64_t w, std::int64_t evaluations) const {
    constexpr float heats[walks] = {0.001F, 0.004F, 0.012F, 0.03F};
    shard_changes changes(kinds_, options_.seed, static_cast<std::uint64_t>(round * walks + w));
    auto& here = walker.here;
    here.set(walker.best_shards);
    auto const heat = std::abs(here.score().value) * heats[w];
    for (std::int64_t i = 0; i < evaluations; ++i) {
      placement_change change;
      if (!changes.draw(here, change)) continue;
      auto const before = here.score();
      auto const after = here.try_change(change);
      auto const warmth = heat * std::exp(-6.0F * static_cast<float>(i) / static_cast<float>(round_evaluations));
      bool const is_kept = after.overflow != before.overflow ? after.overflow < before.overflow
                                                             : after.energy() <= before.energy() - warmth * std::log(changes.uniform());
      if (!is_kept) {
        here.reject();
        continue;
      }
      here.accept(change);
      if (after.is_better_than(walker.best)) {
        walker.best = after;
        walker.best_shards = here.shards();
      }
    }
  }

  host_exec const& exec_;
  shard_kinds const& kinds_;
  M const& model_;
  std::int64_t device_bytes_;
  plan_search_options const& options_;
  clock::time_point started_;
  plan_score best_;
  std::vector<placed_shard> best_shards_;
  std::int64_t evaluations_ = 0;
  bool stopped_ = false;
};

}  // namespace detail

template <cost_model M>
found_plan plan_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model, plan_search_options const& options) {
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("plan_search", tables, model, limits);
  if (options.evaluations < 1)
    throw error(errc::invalid_argument, "plan_search: at least one plan is looked at", {{"evaluations", options.evaluations}});
  if (!(options.deadline_ms >= 0))
    throw error(errc::invalid_argument, "plan_search: a deadline is not negative", {{"deadline_ms", options.deadline_ms}});
  detail::check_choice("plan_search", "objective", options.objective, plan_objective::compute_balance);
  detail::shard_kinds const kinds(tables, model, options.counted, options.cut_columns, options.cut_rows);
  auto const device_bytes = options.bytes_per_device - received_bytes(tables, options.devices, options.counted);
  detail::check_feasible(kinds, device_bytes, options);
  detail::plan_searcher<M> searcher(exec, kinds, model, device_bytes, options);
  auto const placed = searcher.run();
  if (searcher.best().overflow > 0)
    throw error(errc::out_of_memory, "plan_search: no plan was found that fits; there may be one",
                {{"evaluations", searcher.evaluations()},
                 {"bytes over the limits", searcher.best().overflow},
                 {"bytes_per_device", options.bytes_per_device}});
  std::vector<table_shard> shards;
  shards.reserve(placed.size());
  for (auto const& s : placed) shards.push_back(kinds.shard(s.kind, s.column, s.row, s.device));
  auto found = plan_of_shards(tables, model, limits, std::move(shards));
  found.evaluations = searcher.evaluations();
  found.stopped_by_deadline = searcher.stopped();
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
