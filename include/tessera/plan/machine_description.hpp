// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/plan/measure_compute.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The machine that costs were measured on, as far as costs depend on it.
struct machine_description {
  std::string processor;     ///< its model, as the system names it
  std::int64_t threads = 0;  ///< that a step ran on
  std::int64_t last_cache_bytes = 0;

  friend bool operator==(machine_description const&, machine_description const&) = default;
};

/// Describes this machine, and the threads of an execution. A processor that the system does not name is "unknown".
inline machine_description describe_machine(host_exec const& exec) {
  machine_description result{"unknown", exec.threads(), last_cache_bytes()};
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    auto const colon = line.find(':');
    if (!line.starts_with("model name") || colon == line.npos || colon + 2 > line.size()) continue;
    result.processor = line.substr(colon + 2);
    break;
  }
  return result;
}

/// Refuses costs that were measured elsewhere. @throws tessera::error incompatible naming the first field that differs, and both values.
inline void check_machine(machine_description const& measured_on, machine_description const& here) {
  auto const compare = [](char const* field, auto const& measured, auto const& found) {
    if (measured != found)
      throw error(errc::incompatible, "learned costs: they were measured on another machine",
                  {{"field", field}, {"measured on", measured}, {"here", found}});
  };
  compare("processor", measured_on.processor, here.processor);
  compare("threads", measured_on.threads, here.threads);
  compare("last_cache_bytes", measured_on.last_cache_bytes, here.last_cache_bytes);
}

}  // namespace TESSERA_ABI
}  // namespace tessera
