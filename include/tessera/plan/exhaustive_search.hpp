// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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

/// Options of `exhaustive_search`.
struct exhaustive_search_options {
  std::int64_t devices = 0;
  std::int64_t bytes_per_device = 0;
  counted_memory counted = counted_memory::all;
  /// Whether the model costs a plan the same with devices renumbered. One of such plans is then looked at.
  bool devices_alike = false;
};

/// The plan of least cost of whole tables, of all that there are. @pre devices^tables plans take a bearable time
/// @throws tessera::error invalid_argument as `plan_of_shards`, and for more than 12 tables; out_of_memory where no plan fits.
template <cost_model M>
found_plan exhaustive_search(vector_view<table_profile const> tables, M const& model, exhaustive_search_options const& options);

namespace detail {

template <cost_model M>
class all_placements {
 public:
  all_placements(shard_kinds const& kinds, M const& model, exhaustive_search_options const& options, std::int64_t device_bytes)
      : kinds_(kinds),
        model_(model),
        alike_(options.devices_alike),
        devices_(static_cast<std::size_t>(options.devices)),
        width_(static_cast<std::size_t>(kinds.width())),
        device_bytes_(device_bytes),
        sums_(static_cast<std::size_t>(kinds.tables() + 1) * devices_ * width_),
        columns_(devices_),
        bytes_(devices_),
        now_(static_cast<std::size_t>(kinds.tables())),
        costs_(options.devices) {}

  void run(std::size_t table = 0, std::size_t used = 0) {
    auto const* const sums = sums_.data() + table * devices_ * width_;
    if (table == now_.size()) {
      ++evaluations;
      auto const cost =
          plan_cost(model_, matrix_view<float const>(sums, static_cast<std::int64_t>(devices_), kinds_.width()), columns_, costs_);
      if (cost < best_cost) {
        best_cost = cost;
        best = now_;
      }
      return;
    }
    auto const number = kinds_.whole(static_cast<std::int64_t>(table));
    auto const& kind = kinds_[number];
    for (std::size_t d = 0; d < (alike_ ? std::min(used + 1, devices_) : devices_); ++d) {
      if (bytes_[d] + kind.bytes > device_bytes_) continue;
      // Each table has sums of its own, so that nothing is taken away again.
      auto* const next = sums_.data() + (table + 1) * devices_ * width_;
      std::copy_n(sums, devices_ * width_, next);
      for (std::size_t k = 0; k < width_; ++k) next[d * width_ + k] += kinds_.representation(number)[k];
      columns_[d] += kind.columns;
      bytes_[d] += kind.bytes;
      now_[table] = static_cast<std::int64_t>(d);
      run(table + 1, std::max(used, d + 1));
      columns_[d] -= kind.columns;
      bytes_[d] -= kind.bytes;
    }
  }

  std::int64_t evaluations = 0;
  float best_cost = std::numeric_limits<float>::infinity();
  std::vector<std::int64_t> best;

 private:
  shard_kinds const& kinds_;
  M const& model_;
  bool alike_;
  std::size_t devices_, width_;
  std::int64_t device_bytes_;
  std::vector<float> sums_, columns_;
  std::vector<std::int64_t> bytes_, now_;
  device_costs costs_;
};

}  // namespace detail

template <cost_model M>
found_plan exhaustive_search(vector_view<table_profile const> tables, M const& model, exhaustive_search_options const& options) {
  device_limits const limits{options.devices, options.bytes_per_device, options.counted};
  detail::check_search("exhaustive_search", tables, model, limits);
  if (tables.size() > 12)
    throw error(errc::invalid_argument, "exhaustive_search: at most 12 tables", {{"tables", tables.size()}, {"most", 12}});
  detail::shard_kinds const kinds(tables, model, options.counted, false, false);
  detail::all_placements<M> all(kinds, model, options, options.bytes_per_device - received_bytes(tables, options.devices, options.counted));
  all.run();
  if (all.best.empty())
    throw error(errc::out_of_memory, "exhaustive_search: no plan of whole tables fits",
                {{"tables", tables.size()}, {"devices", options.devices}, {"bytes_per_device", options.bytes_per_device}});
  auto found = plan_of_tables(tables, model, limits, all.best);
  found.evaluations = all.evaluations;
  return found;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
