// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What the embeddings of a training step cost on a machine, learned from its own measurements: the tables of a device, and the exchanges of
/// any number of devices either way. Costs are the means over networks.
struct learned_cost {
  machine_description machine;
  std::string optimizer;           ///< name of the row optimizer that was measured
  std::int64_t batch_samples = 0;  ///< of all devices together, in the exchanges; shards say their own number of bags
  learned_compute compute;
  learned_exchange forward, backward;

  std::int64_t width() const noexcept { return compute.representation_width(); }
  std::int64_t devices() const noexcept { return 0; }
  void represent(vector_view<table_profile const> shards, matrix_view<float> to) const noexcept(!checks_indices) {
    compute.represent(shards, to);
  }
  void compute_ms(matrix_view<float const> sums, vector_view<float> ms) const noexcept(!checks_indices) {
    for (std::int64_t d = 0; d < ms.size(); ++d) ms[d] = static_cast<float>(compute.cost_ms({sums.row(d), sums.columns()}));
  }
  void backward_ms(vector_view<float const> columns, vector_view<float> ms) const noexcept(!checks_indices) {
    backward.cost_ms(columns, {}, batch_samples, ms);
  }
  void forward_ms(vector_view<float const> columns, vector_view<float const> starts_ms, vector_view<float> ms) const
      noexcept(!checks_indices) {
    forward.cost_ms(columns, starts_ms, batch_samples, ms);
  }
};
static_assert(cost_model<learned_cost>);

/// Refuses tables whose steps a model says nothing of: those of another optimizer, or of rows that are no floats.
/// @throws tessera::error as `check_row_kinds`.
inline void check_measured_tables(learned_cost const& cost, vector_view<table_profile const> tables) {
  check_row_kinds(tables, cost.optimizer, measured_row_format);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
