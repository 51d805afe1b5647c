// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace plan_tables {

/// What each device was measured to take under a plan, (devices,) each, in ms; NaN where it was not measured.
struct measured_costs {
  std::vector<double> compute, backward, forward;

  explicit measured_costs(std::int64_t devices)
      : compute(static_cast<std::size_t>(devices), std::nan("")), backward(compute), forward(compute) {}
  double total(std::size_t device) const { return compute[device] + backward[device] + forward[device]; }
  /// Whether exchanges were measured, of all devices.
  bool has_exchanges() const;
};

/// Writes a line of plan, rank, compute_ms, backward_ms, forward_ms and its checksum for each plan and device; fields of what was not measured
/// are empty.
/// @throws tessera::error naming the file that cannot be written.
void write_measured(std::string const& path, std::vector<std::string> const& plans, std::vector<measured_costs> const& costs);

/// Reads the lines of one plan. @throws tessera::error naming file, line and field: corrupt_file for a line that was altered; and for a plan
/// that has no line, or not each device once.
measured_costs read_measured(std::string const& path, std::string const& plan, std::int64_t devices);

}  // namespace plan_tables
