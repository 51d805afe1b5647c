// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/feasible_shards.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/halving_search.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/plan_objective.hpp>
#include <tessera/plan/shard_changes.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/tower_devices.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Options of `plan_search`.
struct plan_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = 0;
  counted_memory counted = counted_memory::all;
  std::int64_t evaluations = 200'000;  ///< how many plans it may compare
  double deadline_ms = 0;              ///< after its call, when it stops; 0: none. A plan that it stopped depends on the machine's speed
  bool cut_columns = true;             ///< into halves of halves, each a multiple of 4
  bool cut_rows = false;               ///< too; the table's shards of rows then return partial sums
  bool replicas = false;               ///< whole tables may be on all devices too, where `may_be_on_all_devices`
  std::int64_t towers = 0;             ///< a table's shards then lie on its tower's devices, as `devices_of_tables` has it; 0: anywhere
  std::int64_t devices_of_host = 1;    ///< of which towers are made
  plan_objective objective = plan_objective::cost;
  random_seed seed{};
};

/// Searches for the plan of least cost: which tables are cut into which halves, and which device holds which shard.
///
/// Without towers it begins with the plans of `published_search`. It halves large shards where whole tables do not fit. Then four walks
/// change plans by moves, swaps, halvings and joins of halves, in rounds that begin with large steps and end with small ones. While no plan
/// fits, fewer bytes over the limits are better than a lower cost.
///
/// With replicas, another beginning, which takes four evaluations, has all tables on all devices that may be there. Walks put tables on all
/// devices, and take them away. A table of a tower stays on the tower's devices.
///
/// @post one set of options finds one plan, bit for bit, on any number of threads, without a deadline. More evaluations never cost more.
/// Where they suffice for all that `published_search` compares, its plan costs no less, if the objective is cost and there are no towers.
/// Each halving of the largest shards takes four of them. With towers too, exchanges cost what the model says of all devices.
/// No device has two shards of a table that is cut by columns and by rows, so that `found_plan::plan` is a plan of sharded tables.
/// @throws tessera::error invalid_argument, naming the option, as `plan_of_shards`, and for less than one evaluation or a negative
/// deadline; as `devices_of_tables` with towers; where tables may be on all devices, and the model does not know how many bags a table has.
/// out_of_memory where no plan can be: it names all bytes and the limit of all devices, or those of a tower's devices, or the table whose
/// smallest shard is too large. out_of_memory too where none was found, naming the evaluations.
template <cost_model M>
found_plan plan_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model, plan_search_options const& options);

namespace detail {

// The best plan so far. Plans are judged by sums that are added up in the order of `plan_of_shards`, so that scores have the bits of costs.
template <cost_model M>
struct judged_plan {
  placement<M> judge;
  plan_score score = {};
  std::vector<placed_shard> shards = {};

  void take(shard_kinds const& kinds, std::vector<placed_shard> other) {
    sort_as_tables(kinds, other);
    judge.set(std::move(other));
    if (!judge.score().is_better_than(score) && !shards.empty()) return;
    score = judge.score();
    shards = judge.shards();
  }
  void copy(judged_plan const& other) {
    score = other.score;
    shards = other.shards;
  }
};

template <cost_model M>
class plan_walks {
 public:
  using clock = std::chrono::steady_clock;

  plan_walks(host_exec const& exec, shard_kinds const& kinds, M const& model, std::int64_t device_bytes, plan_search_options const& options,
             clock::time_point started)
      : exec_(exec),
        kinds_(kinds),
        model_(model),
        device_bytes_(device_bytes),
        options_(options),
        round_evaluations_(std::clamp<std::int64_t>(64 * kinds.tables(), 128, 2048)),
        started_(started),
        best_{empty()} {}

  // The best plan's shards; `best().overflow` says whether they fit.
  std::vector<placed_shard> run() {
    begin();
    if (!is_done() && kinds_.lies_anywhere()) {
      halving_search<M> published(exec_, kinds_, model_, options_.devices, device_bytes_, {});
      evaluations_ += published.run(
          options_.evaluations - evaluations_, [&] { return is_late(); },
          [&](std::vector<placed_shard> shards) { take(std::move(shards)); });
    }
    if (kinds_.has_replicas() && evaluations_ + 4 <= options_.evaluations && !is_late()) {
      std::vector<placed_shard> shards;
      for (std::int64_t t = 0; t < kinds_.tables(); ++t) shards.push_back({kinds_.replica(t) >= 0 ? kinds_.replica(t) : kinds_.whole(t)});
      place(shards);
    }
    walk();
    return std::move(best_.shards);
  }
  plan_score const& best() const noexcept { return best_.score; }
  std::int64_t evaluations() const noexcept { return evaluations_; }
  bool stopped() const noexcept { return stopped_ || evaluations_ < options_.evaluations; }

 private:
  static constexpr std::int64_t walks = 4;

  bool is_late() const {
    return options_.deadline_ms > 0 && std::chrono::duration<double, std::milli>(clock::now() - started_).count() >= options_.deadline_ms;
  }
  bool is_done() const { return evaluations_ >= options_.evaluations || is_late(); }

  placement<M> empty() const { return {kinds_, model_, options_.devices, device_bytes_, options_.objective}; }

  void take(std::vector<placed_shard> shards) { best_.take(kinds_, std::move(shards)); }

  // Places shards by cost under several limits of columns, and by bytes where they then do not fit. It counts as four evaluations.
  void place(std::vector<placed_shard> const& shards) {
    double columns = 0;
    for (auto const& s : shards) columns += static_cast<double>(kinds_[s.kind].columns);
    auto const mean = columns / static_cast<double>(options_.devices);
    auto here = empty();
    for (double const most : {1.02, 1.15, 1e9}) {
      here.place(shards, false, static_cast<float>(most * mean));
      take(here.shards());
    }
    if (best_.score.overflow > 0) {
      here.place(shards, true, HUGE_VALF);
      take(here.shards());
    }
    evaluations_ = std::min(evaluations_ + 4, options_.evaluations);
  }

  // The halves of a shard of a table that is evenly cut one way, and stays so: by columns as far as they are halved, else by rows. Where
  // columns are halved no further, its shard i of columns makes way for shards 2 i and 2 i + 1 of rows, if these have fewer bytes.
  bool halve(placed_shard const& shard, placed_shard (&halves)[2]) const {
    auto const& kind = kinds_[shard.kind];
    if (kind.row_halvings == 0 && halves_of(kinds_, shard, false, halves)) return true;
    if (kind.column_halvings == 0) return halves_of(kinds_, shard, true, halves);
    auto rows = kinds_.whole(kind.table);
    for (int i = 0; i <= kind.column_halvings && rows >= 0; ++i) rows = kinds_[rows].half_rows;
    if (rows < 0 || kinds_[rows].bytes >= kind.bytes) return false;
    for (int i = 0; i < 2; ++i) halves[i] = {rows, shard.device, 0, 2 * shard.column + i};
    return true;
  }

  // Whole tables. Where they do not fit, all of the largest shards are halved, again and again.
  void begin() {
    std::vector<placed_shard> shards;
    for (std::int64_t t = 0; t < kinds_.tables(); ++t) shards.push_back({kinds_.whole(t)});
    place(shards);
    while (best_.score.overflow > 0 && evaluations_ + 4 <= options_.evaluations && !is_late()) {
      std::int64_t largest = 0;
      placed_shard halves[2];
      for (auto const& s : shards)
        if (halve(s, halves)) largest = std::max(largest, kinds_[s.kind].bytes);
      if (largest == 0) break;
      for (std::size_t s = 0, count = shards.size(); s < count; ++s) {
        if (static_cast<double>(kinds_[shards[s].kind].bytes) < 0.75 * static_cast<double>(largest) || !halve(shards[s], halves)) continue;
        shards[s] = halves[0];
        shards.push_back(halves[1]);
      }
      place(shards);
    }
  }

  struct walker {
    placement<M> here;
    judged_plan<M> best;
  };

  void walk() {
    std::vector<walker> all;
    for (std::int64_t w = 0; w < walks; ++w) all.push_back({empty(), {empty()}});
    for (auto& walker : all) walker.best.copy(best_);
    for (std::int64_t round = 0; !is_done(); ++round) {
      auto const each = std::min(round_evaluations_, (options_.evaluations - evaluations_) / walks);
      if (each == 0) {
        evaluations_ = options_.evaluations;
        break;
      }
      // In each second round all walks begin with the best plan, else each with its own, after a few changes at any cost.
      exec_.run(walks, [&](std::int64_t w) {
        auto& walker = all[static_cast<std::size_t>(w)];
        if (round % 2 == 0 || w == 0) walker.best.copy(best_);
        run_round(walker, round, w, each);
      });
      evaluations_ += each * walks;
      stopped_ = stopped_ || is_late();  // then a walk may have ended early
      for (auto const& walker : all)
        if (walker.best.score.is_better_than(best_.score)) best_.copy(walker.best);
    }
  }

  // Worse plans are kept with a chance that falls with what they cost more, and with time.
  void run_round(walker& walker, std::int64_t round, std::int64_t w, std::int64_t evaluations) const {
    constexpr float heats[walks] = {0.001F, 0.004F, 0.012F, 0.03F};
    shard_changes changes(kinds_, options_.seed, static_cast<std::uint64_t>(round * walks + w));
    auto& here = walker.here;
    here.set(walker.best.shards);
    auto const at_any_cost = round % 2 * 3 * w;
    // The fewer tables, the more a change of one of them costs.
    auto const heat = std::abs(here.score().value) * heats[w] * std::max(1.0F, 16 / static_cast<float>(kinds_.tables()));
    for (std::int64_t i = 0; i < evaluations && (i % 64 != 63 || !is_late()); ++i) {
      placement_change change;
      if (!changes.draw(here, change)) continue;
      auto const before = here.score();
      auto const after = here.try_change(change);
      auto const warmth = heat * std::exp(-6.0F * static_cast<float>(i) / static_cast<float>(round_evaluations_));
      bool const is_kept = after.overflow != before.overflow
                               ? after.overflow < before.overflow
                               : i < at_any_cost || after.energy() <= before.energy() - warmth * std::log(changes.uniform());
      if (!is_kept) {
        here.reject();
        continue;
      }
      here.accept(change);
      if (after.is_better_than(walker.best.score)) walker.best.take(kinds_, here.shards());
    }
  }

  host_exec const& exec_;
  shard_kinds const& kinds_;
  M const& model_;
  std::int64_t device_bytes_;
  plan_search_options const& options_;
  std::int64_t round_evaluations_;  // of a walk
  clock::time_point started_;
  judged_plan<M> best_;
  std::int64_t evaluations_ = 0;
  bool stopped_ = false;
};

}  // namespace detail

template <cost_model M>
found_plan plan_search(host_exec const& exec, vector_view<table_profile const> tables, M const& model, plan_search_options const& options) {
  auto const started = std::chrono::steady_clock::now();
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("plan_search", tables, model, limits);
  if (options.evaluations < 1)
    throw error(errc::invalid_argument, "plan_search: at least one plan is looked at", {{"evaluations", options.evaluations}});
  if (!(options.deadline_ms >= 0))
    throw error(errc::invalid_argument, "plan_search: a deadline is not negative", {{"deadline_ms", options.deadline_ms}});
  detail::check_choice("plan_search", "objective", options.objective, plan_objective::slowest_stage);
  if (options.towers < 0)
    throw error(errc::invalid_argument, "plan_search: a number of towers, or 0 for none", {{"towers", options.towers}});
  detail::shard_kinds const kinds(tables, model, options.counted, options.cut_columns, options.cut_rows,
                                  options.towers > 0 ? devices_of_tables(tables, options.devices, options.devices_of_host, options.towers)
                                                     : std::vector<device_range>{},
                                  options.replicas ? options.devices : 0);
  auto const device_bytes = options.bytes_per_device - received_bytes(tables, options.devices, options.counted);
  detail::check_feasible("plan_search", kinds, limits, device_bytes,
                         options.cut_rows ? "the smallest shard of a table is too large for a device"
                         : options.cut_columns
                             ? "a table is too large for a device, and its columns are cut no further; cut_rows cuts its rows"
                             : "a table is too large for a device, and tables are not to be cut");
  if (kinds.has_replicas()) detail::check_knows_bags(model, kinds.replicas());
  detail::plan_walks<M> walks(exec, kinds, model, device_bytes, options, started);
  auto const placed = walks.run();
  if (walks.best().overflow > 0)
    throw error(errc::out_of_memory, "plan_search: no plan was found that fits; there may be one",
                {{"evaluations", walks.evaluations()},
                 {"bytes over the limits", walks.best().overflow},
                 {"bytes_per_device", options.bytes_per_device}});
  auto found = plan_of_shards(tables, model, limits, detail::table_shards_of(kinds, placed));
  found.evaluations = walks.evaluations();
  found.stopped_by_deadline = walks.stopped();
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
