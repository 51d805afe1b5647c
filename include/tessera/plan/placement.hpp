// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/plan_objective.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/table_replicas.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// A shard on a device: number (column, row) of its kind.
struct placed_shard {
  int kind = 0;
  std::int32_t device = 0;  // or `on_all_devices`
  std::int64_t column = 0, row = 0;

  friend bool operator==(placed_shard const&, placed_shard const&) = default;
};

// The shards of a plan.
inline std::vector<table_shard> table_shards_of(shard_kinds const& kinds, std::vector<placed_shard> const& placed) {
  std::vector<table_shard> shards;
  shards.reserve(placed.size());
  for (auto const& s : placed) shards.push_back(kinds.shard(s.kind, s.column, s.row, s.device));
  return shards;
}

// Sorts shards as a found plan has them: by table, first column and first row.
inline void sort_as_tables(shard_kinds const& kinds, std::vector<placed_shard>& shards) {
  std::sort(shards.begin(), shards.end(), [&](placed_shard const& a, placed_shard const& b) {
    auto const place = [&](placed_shard const& s) {
      auto const of = kinds.shard(s.kind, s.column, s.row, 0);
      return std::tuple(of.table, of.first_column, of.first_row);
    };
    return place(a) < place(b);
  });
}

// How good a plan is: first no device is over its limit, then its objective is small.
struct plan_score {
  std::int64_t overflow = std::numeric_limits<std::int64_t>::max();  // bytes of all devices above their limits
  float value = std::numeric_limits<float>::infinity();
  float mean = 0;  // of all devices' costs: it tells plans apart whose most loaded devices are alike

  bool is_better_than(plan_score const& other) const noexcept {
    return overflow != other.overflow ? overflow < other.overflow : value < other.value;
  }
  float energy() const noexcept { return value + 0.05F * mean; }
};

// Up to two shards leave, up to two come.
struct placement_change {
  int leaving_count = 0, coming_count = 0;
  std::size_t leaving[2] = {};  // places in the list of shards
  placed_shard coming[2] = {};
};

// Shards on devices, with the sums that their costs are computed from.
template <cost_model M>
class placement {
 public:
  placement(shard_kinds const& kinds, M const& model, std::int64_t devices, std::int64_t device_bytes, plan_objective objective)
      : kinds_(&kinds),
        model_(&model),
        devices_(static_cast<std::size_t>(devices)),
        width_(static_cast<std::size_t>(kinds.width())),
        device_bytes_(device_bytes),
        objective_(objective),
        sums_(devices_ * width_),
        columns_(devices_),
        gradient_columns_(devices_),
        bytes_(devices_),
        held_(devices_),
        totals_(devices_),
        costs_(devices),
        is_touched_(devices_) {}

  std::size_t devices() const noexcept { return devices_; }
  std::vector<placed_shard> const& shards() const noexcept { return shards_; }
  // Without those that are on all devices.
  std::vector<std::size_t> const& held(std::size_t device) const noexcept { return held_[device]; }
  std::vector<std::size_t> const& held_by_all() const noexcept { return held_by_all_; }
  plan_score const& score() const noexcept { return score_; }
  // The device that decides the score.
  std::size_t most_loaded() const noexcept {
    if (score_.overflow > 0) return static_cast<std::size_t>(std::max_element(bytes_.begin(), bytes_.end()) - bytes_.begin());
    return static_cast<std::size_t>(std::max_element(totals_.begin(), totals_.end()) - totals_.begin());
  }
  // The device that all others wait for: it is the last to start its forward exchange.
  std::size_t last_to_start() const noexcept {
    if (score_.overflow > 0 || objective_ == plan_objective::compute_balance) return most_loaded();
    return static_cast<std::size_t>(std::max_element(starts_.begin(), starts_.end()) - starts_.begin());
  }
  // The device that sends most.
  std::size_t widest() const noexcept {
    if (score_.overflow > 0 || objective_ == plan_objective::compute_balance) return most_loaded();
    return static_cast<std::size_t>(std::max_element(columns_.begin(), columns_.end()) - columns_.begin());
  }

  // Takes these shards where they are.
  void set(std::vector<placed_shard> shards) {
    shards_ = std::move(shards);
    clear();
    for (std::size_t s = 0; s < shards_.size(); ++s) held_of(shards_[s]).push_back(s);
    for (std::size_t d = 0; d < devices_; ++d) add_up(d);
    model_->compute_ms(matrix_view<float const>(sums_.data(), static_cast<std::int64_t>(devices_), kinds_->width()), costs_.compute);
    keep(evaluate());
  }

  // Places shards one by one, the costliest or, by bytes, the largest first. A shard goes where the least bytes are over the limit, the
  // columns are within theirs, and the device then costs least, or holds least. Replicas are on all devices before.
  void place(std::vector<placed_shard> shards, bool by_bytes, float most_columns) {
    std::vector<std::size_t> order(shards.size()), near;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      auto const &of_a = (*kinds_)[shards[a].kind], &of_b = (*kinds_)[shards[b].kind];
      return by_bytes ? of_a.bytes > of_b.bytes : of_a.cost > of_b.cost;
    });
    clear();
    for (auto& shard : shards)
      if (kinds_->is_replica(shard.kind)) {
        shard.device = static_cast<std::int32_t>(on_all_devices);
        for (std::size_t d = 0; d < devices_; ++d) add(d, shard.kind, 1);
      }
    model_->compute_ms(matrix_view<float const>(sums_.data(), static_cast<std::int64_t>(devices_), kinds_->width()), costs_.compute);
    constexpr std::size_t most_tried = 16;
    std::vector<float> sums(most_tried * width_), all_costs(most_tried);
    for (auto const s : order) {
      if (kinds_->is_replica(shards[s].kind)) continue;
      auto const& kind = (*kinds_)[shards[s].kind];
      auto const* const more = kinds_->representation(shards[s].kind);
      // Of many devices those alone that have little.
      auto const within = kinds_->devices_of(shards[s].kind, devices_);
      near.resize(static_cast<std::size_t>(within.count));
      std::iota(near.begin(), near.end(), static_cast<std::size_t>(within.first));
      auto const tried = std::min(near.size(), most_tried);
      vector_view<float> const costs(all_costs.data(), static_cast<std::int64_t>(tried));
      if (tried < near.size())
        std::nth_element(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(tried), near.end(), [&](std::size_t a, std::size_t b) {
          return by_bytes ? std::tie(bytes_[a], a) < std::tie(bytes_[b], b)
                          : std::tuple(excess(a, kind), costs_.compute[a], a) < std::tuple(excess(b, kind), costs_.compute[b], b);
        });
      for (std::size_t i = 0; i < tried; ++i)
        for (std::size_t k = 0; k < width_; ++k) sums[i * width_ + k] = sums_[near[i] * width_ + k] + more[k];
      model_->compute_ms(matrix_view<float const>(sums.data(), static_cast<std::int64_t>(tried), kinds_->width()), costs);
      auto const key = [&](std::size_t i) {
        auto const d = near[i];
        auto const held = bytes_[d] + kind.bytes;
        return std::tuple(excess(d, kind), columns_[d] + kind.columns > most_columns, by_bytes ? static_cast<float>(held) : all_costs[i],
                          held, d);
      };
      std::size_t best = 0;
      for (std::size_t i = 1; i < tried; ++i)
        if (key(i) < key(best)) best = i;
      auto const device = near[best];
      shards[s].device = static_cast<std::int32_t>(device);
      std::copy_n(sums.data() + best * width_, width_, sums_.data() + device * width_);
      columns_[device] += kind.columns;
      bytes_[device] += kind.bytes;
      costs_.compute[device] = all_costs[best];
    }
    set(std::move(shards));
  }

  // What the score would be. Either `accept` or `reject` comes next.
  plan_score const& try_change(placement_change const& change) {
    for (auto const d : touched_) is_touched_[d] = false;
    touched_.clear();
    saved_.clear();
    saved_bytes_.clear();
    for (int i = 0; i < change.leaving_count; ++i) apply(shards_[change.leaving[i]], -1);
    for (int i = 0; i < change.coming_count; ++i) apply(change.coming[i], 1);
    compute_touched();
    return tried_ = evaluate();
  }

  void reject() {
    for (std::size_t i = 0; i < touched_.size(); ++i) {
      auto const d = touched_[i];
      auto const* const saved = saved_.data() + i * (width_ + 3);
      std::copy_n(saved, width_, sums_.data() + d * width_);
      columns_[d] = saved[width_];
      gradient_columns_[d] = saved[width_ + 1];
      costs_.compute[d] = saved[width_ + 2];
      bytes_[d] = saved_bytes_[i];
    }
  }

  void accept(placement_change const& change) {
    for (int i = 0; i < change.leaving_count; ++i) forget(change.leaving[i]);
    auto const in_place = std::min(change.leaving_count, change.coming_count);
    for (int i = 0; i < in_place; ++i) hold(change.leaving[i], change.coming[i]);
    for (int i = in_place; i < change.coming_count; ++i) {
      shards_.emplace_back();
      hold(shards_.size() - 1, change.coming[i]);
    }
    for (int i = in_place; i < change.leaving_count; ++i) {
      // The last shard takes the place that is free.
      auto const free = change.leaving[i], last = shards_.size() - 1;
      if (free != last) {
        forget(last);
        hold(free, shards_[last]);
      }
      shards_.pop_back();
    }
    // Sums are added up anew, so that they do not drift.
    for (auto const d : touched_) add_up(d);
    compute_touched();
    keep(tried_);
  }

 private:
  std::int64_t excess(std::size_t device, shard_kind const& kind) const noexcept {
    return std::max<std::int64_t>(bytes_[device] + kind.bytes - device_bytes_, 0);
  }
  // What a device computes depends on its own sums alone, so that all may be asked at once.
  void compute_touched() {
    auto const width = kinds_->width();
    if (touched_.size() == devices_)
      return model_->compute_ms(matrix_view<float const>(sums_.data(), static_cast<std::int64_t>(devices_), width), costs_.compute);
    for (auto const d : touched_)
      model_->compute_ms(matrix_view<float const>(sums_.data() + d * width_, 1, width), vector_view<float>(&costs_.compute[d], 1));
  }

  void clear() {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    std::fill(columns_.begin(), columns_.end(), 0.0F);
    std::fill(gradient_columns_.begin(), gradient_columns_.end(), 0.0F);
    std::fill(bytes_.begin(), bytes_.end(), std::int64_t{0});
    for (auto& of : held_) of.clear();
    held_by_all_.clear();
  }

  void add_up(std::size_t d) {
    std::fill_n(sums_.data() + d * width_, width_, 0.0F);
    columns_[d] = gradient_columns_[d] = 0;
    bytes_[d] = 0;
    for (auto const s : held_by_all_) add(d, shards_[s].kind, 1);
    for (auto const s : held_[d]) add(d, shards_[s].kind, 1);
  }

  void add(std::size_t d, int of, int sign) {
    auto const& kind = (*kinds_)[of];
    auto const* const more = kinds_->representation(of);
    auto* const sum = sums_.data() + d * width_;
    auto const by = static_cast<float>(sign);
    for (std::size_t k = 0; k < width_; ++k) sum[k] += by * more[k];
    columns_[d] += by * kind.columns;
    gradient_columns_[d] += by * kind.gradient_columns;
    bytes_[d] += sign * kind.bytes;
  }

  void apply(placed_shard const& shard, int sign) {
    if (shard.device != on_all_devices) return apply(static_cast<std::size_t>(shard.device), shard.kind, sign);
    for (std::size_t d = 0; d < devices_; ++d) apply(d, shard.kind, sign);
  }
  void apply(std::size_t d, int kind, int sign) {
    if (!is_touched_[d]) {
      auto* const sum = sums_.data() + d * width_;
      is_touched_[d] = true;
      touched_.push_back(d);
      saved_bytes_.push_back(bytes_[d]);
      saved_.insert(saved_.end(), sum, sum + width_);
      saved_.insert(saved_.end(), {columns_[d], gradient_columns_[d], costs_.compute[d]});
    }
    add(d, kind, sign);
  }

  plan_score evaluate() {
    plan_score score{0, 0, 0};
    for (auto const bytes : bytes_) score.overflow += std::max<std::int64_t>(bytes - device_bytes_, 0);
    if (objective_ != plan_objective::compute_balance) plan_cost(*model_, columns_, gradient_columns_, costs_);
    score.value = objective_of(costs_, objective_);
    if (objective_ == plan_objective::compute_balance) return score;
    for (std::size_t d = 0; d < devices_; ++d) score.mean += load_of(costs_, d, objective_);
    score.mean /= static_cast<float>(devices_);
    return score;
  }

  void keep(plan_score const& score) {
    score_ = score;
    starts_ = costs_.starts;
    for (std::size_t d = 0; d < devices_; ++d) totals_[d] = load_of(costs_, d, objective_);
  }

  std::vector<std::size_t>& held_of(placed_shard const& shard) noexcept {
    return shard.device == on_all_devices ? held_by_all_ : held_[static_cast<std::size_t>(shard.device)];
  }
  void forget(std::size_t s) {
    auto& held = held_of(shards_[s]);
    held.erase(std::find(held.begin(), held.end(), s));
  }
  void hold(std::size_t s, placed_shard const& shard) {
    shards_[s] = shard;
    held_of(shard).push_back(s);
  }

  shard_kinds const* kinds_;
  M const* model_;
  std::size_t devices_, width_;
  std::int64_t device_bytes_;
  plan_objective objective_;
  std::vector<placed_shard> shards_;
  std::vector<float> sums_, columns_, gradient_columns_;
  std::vector<std::int64_t> bytes_;
  std::vector<std::vector<std::size_t>> held_;  // shards of each device
  std::vector<std::size_t> held_by_all_;        // and of all
  std::vector<float> totals_, starts_;
  device_costs costs_;
  plan_score score_, tried_;
  std::vector<std::size_t> touched_;
  std::vector<char> is_touched_;           // each device
  std::vector<float> saved_;               // of each touched device: sums, both columns and its compute cost
  std::vector<std::int64_t> saved_bytes_;  // of each
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
