// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/plan/plan_prediction.hpp>
#include <tessera/shard/embedding_times.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/train/any_source.hpp>

#include "training_job.hpp"

namespace examples {

/// Measures what was predicted of a plan, in a run that executes it; of other plans nothing. In train_ctr/plan_watch.cpp.
class plan_watch {
 public:
  /// Finds out whether the samples could be written. All ranks make one. `source`: of the model that is trained.
  plan_watch(training_job const& j, tessera::any_source& source);
  plan_watch(plan_watch const&) = delete;
  ~plan_watch();

  /// A step has ended.
  void count_step();
  /// Prints predicted and measured times of each rank, adds them to the samples, and warns where predictions have become worse. All ranks call it.
  void conclude();

 private:
  // Medians are of so many steps, the last ones.
  static constexpr std::size_t most_steps = 4096;

  std::string samples_path() const;

  training_job const& j_;
  tessera::sharded_tables* tables_ = nullptr;  // that are measured; none where nothing was predicted
  std::unique_ptr<tessera::embedding_times> now_, last_step_;
  std::vector<tessera::step_costs> steps_;  // a ring
  std::size_t count_ = 0;                   // of all steps
};

}  // namespace examples
