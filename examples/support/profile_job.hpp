// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/data/column_profile.hpp>
#include <tessera/data/columns_file.hpp>

namespace examples {

/// What the command line says of a profile.
struct profile_settings {
  std::string json{};  ///< the file that gets the profile as JSON; empty: none
  tessera::profile_options options{};
};

/// Reads files once and prints what their columns hold; how far it is, where stderr is a terminal. In train_ctr/profile.cpp.
/// @return the program's exit status. @throws tessera::error as the source, source_profile and the file do.
int run_profile(std::vector<std::string> const& files, tessera::data_description const& data, tessera::host_exec const& exec,
                profile_settings const& s);

}  // namespace examples
