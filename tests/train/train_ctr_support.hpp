// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "run_program.hpp"
#include "temporary_folder.hpp"

namespace tessera_tests {

using arguments = std::vector<std::string>;

/// The last line without the speed.
inline std::string figures(program_result const& result) {
  auto const line = result.last_line();
  return line.substr(0, line.find(" samples_per_second="));
}

/// The tensors of the newest checkpoint, as bytes.
inline std::string tensors_of(std::string const& checkpoints) {
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(!steps.empty());
  auto const& folder = steps.back().path;
  auto all = contents(folder + "/dense.safetensors") + contents(folder + "/tables.safetensors");
  if (auto const file = folder + "/preprocessing.safetensors"; std::filesystem::exists(file)) all += contents(file);
  return all;
}

inline void check_refused(program_result const& result, std::vector<std::string> const& parts) {
  CAPTURE(result.output);
  CHECK(result.status > 0);
  CHECK(result.output.size() < 2000);
  for (auto const& part : parts) {
    CAPTURE(part);
    CHECK(result.says(part));
  }
}

}  // namespace tessera_tests
