// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/table_ids.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A cost model without networks: it measures the step of each shard, once, in the runs of a `repetition`. A device's computation is the sum of
/// its shards' times. Exchanges are those of another model.
///
/// A sum leaves out what steps of several shards share: measured together they may take less. A shard's ids are drawn from its profile, of
/// its distinct bags. `represent` measures the shards that it has not seen, one at a time, whichever threads call it, and remembers them,
/// which takes memory. Copies of a model remember together.
///
/// ```cpp
/// tessera::compute_bench bench(exec, std::int64_t{1} << 30);  // as large as the largest shard
/// tessera::machine_clock clock;
/// tessera::measured_cost const cost(exec, clock, bench, tessera::roofline_cost(rates), tessera::rowwise_adagrad{});
/// auto const found = tessera::plan_search(exec, tables, cost, {.devices = 8, .bytes_per_device = limit});
/// ```
template <cost_model Exchange, row_optimizer Optimizer, measuring_clock Clock, execution Exec = host_exec>
class measured_cost {
 public:
  /// @pre clock, bench and what exec stands on outlive it and its copies, and nobody else measures on the bench
  /// @throws tessera::error invalid_argument for a repetition that cannot be.
  measured_cost(Exec const& exec, Clock& clock, compute_bench<Exec>& bench, Exchange exchange, Optimizer const& optimizer,
                random_seed seed = {}, repetition const& repeat = {})
      : exchange_(std::move(exchange)), seen_(std::make_shared<measurements>(exec, clock, bench, optimizer, seed, repeat)) {
    repeat.check("measured_cost");
  }

  static constexpr std::int64_t width() noexcept { return 1; }
  std::int64_t devices() const { return static_cast<std::int64_t>(exchange_.devices()); }
  /// How many shards were measured.
  std::int64_t measured() const { return seen_->count(); }

  /// See `cost_model`, here and below; (shards, 1).
  /// @throws tessera::error out_of_memory for a shard that the bench has no room for; incompatible for one of another optimizer
  /// or of rows that are no floats, as `check_row_kinds`; as `draw_table_ids` and `compute_bench::measure`.
  void represent(vector_view<table_profile const> shards, matrix_view<float> representations) const {
    check_row_kinds(shards, Optimizer::name, measured_row_format);
    for (std::int64_t s = 0; s < shards.size(); ++s) representations(s, 0) = seen_->step_ms(shards[s]);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = sums(d, 0);
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const { exchange_.backward_ms(columns, ms); }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const {
    exchange_.forward_ms(columns, starts_ms, ms);
  }

 private:
  class measurements {
   public:
    measurements(Exec const& exec, Clock& clock, compute_bench<Exec>& bench, Optimizer const& optimizer, random_seed seed,
                 repetition const& repeat)
        : exec_(exec), clock_(&clock), bench_(&bench), optimizer_(optimizer), seed_(seed), repeat_(repeat) {}

    float step_ms(table_profile const& shard) {
      std::lock_guard const one_at_a_time(mutex_);
      for (auto const& [seen, ms] : all_)
        if (is_alike(seen, shard)) return ms;
      auto const ids = draw_table_ids(shard, static_cast<std::int64_t>(shard.distinct_bags), seed_);
      std::vector<measured_table> const table{{shard.rows, shard.dim, ids.ids, ids.lengths}};
      auto const ms = static_cast<float>(bench_->measure(exec_, *clock_, table, optimizer_, repeat_).step_ms);
      all_.emplace_back(shard, ms);
      return ms;
    }
    std::int64_t count() {
      std::lock_guard const one_at_a_time(mutex_);
      return static_cast<std::int64_t>(all_.size());
    }

   private:
    // What a step depends on.
    static bool is_alike(table_profile const& a, table_profile const& b) {
      return a.rows == b.rows && a.dim == b.dim && a.pooling_factor == b.pooling_factor && a.bags == b.bags &&
             a.distinct_bags == b.distinct_bags && a.access == b.access;
    }

    Exec exec_;
    Clock* clock_;
    compute_bench<Exec>* bench_;
    Optimizer optimizer_;
    random_seed seed_;
    repetition repeat_;
    std::mutex mutex_;
    std::vector<std::pair<table_profile, float>> all_;
  };

  Exchange exchange_;
  std::shared_ptr<measurements> seen_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
