// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/machine_description.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/table_profile.hpp>

#include "commands.hpp"

namespace plan_tables {

/// What a folder of samples is of. It holds pool.json, collected.json with the rest, steps.csv, and exchanges_D.csv of D devices.
struct collected {
  std::string folder;
  std::vector<tessera::table_profile> pool;
  tessera::machine_description machine;
  std::string optimizer;
  tessera::combination_options combinations;
  tessera::placement_options placements;  ///< `devices` are for whoever draws to say
  tessera::repetition repeat;

  /// All of the above on one line: a file of samples that were drawn otherwise is refused by it.
  std::string about() const;
  std::string steps_file() const { return folder + "/steps.csv"; }
  std::string exchanges_file(std::int64_t devices) const { return folder + "/exchanges_" + std::to_string(devices) + ".csv"; }
  /// What exchanges between these ranks are of.
  std::string about_exchanges(std::int64_t devices, std::string const& between) const {
    return about() + "; " + std::to_string(devices) + " ranks, " + between;
  }
  /// The numbers of devices whose exchanges there are, in order.
  std::vector<std::int64_t> devices() const;
};

/// Reads a folder. @throws tessera::error naming file and field.
collected read_collected(std::string const& folder);
/// Reads a folder, or makes it of what is asked for. @throws tessera::error incompatible, naming an option that the folder has another value
/// of; and for a folder of another machine.
collected open_collected(collect_options const& options, tessera::machine_description const& here);

/// Who exchanged, as the first line of a file says: "threads" or "processes".
std::string between_of(collected const& folder, std::int64_t devices);

/// All steps of a folder, and its exchanges of so many devices. @throws tessera::error naming file and line.
std::vector<tessera::compute_sample> read_steps(collected const& folder);
std::vector<tessera::exchange_sample> read_exchanges(collected const& folder, std::int64_t devices);

}  // namespace plan_tables
