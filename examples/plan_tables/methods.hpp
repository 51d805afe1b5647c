// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/plan/any_cost_model.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/table_profile.hpp>

#include "commands.hpp"

namespace plan_tables {

/// A way to find a plan of tables.
struct search_method {
  std::string name;  ///< on the command line
  /// @throws tessera::error out_of_memory where it finds none
  std::function<tessera::found_plan(tessera::host_exec const&, std::vector<tessera::table_profile> const&, tessera::any_cost_model const&,
                                    search_options const&)>
      find;
  bool knows_towers = false;    ///< whether it keeps tables on the devices of their towers
  bool has_objectives = false;  ///< whether what it makes small may be chosen
  bool cuts_tables = false;     ///< whether it may cut tables by rows, and put them on all devices
};

/// All of them: placements that ask no model, then searches of whole tables, then searches that cut tables, and all plans of few tables.
std::vector<search_method> const& search_methods();

/// The method of this name. @throws tessera::error invalid_argument naming it and those that there are.
search_method const& search_method_of(std::string const& name);

/// Refuses towers, cuts of rows, replicas, and another objective than cost, with a method that does not know them.
/// @throws tessera::error invalid_argument naming the option, its value and the method.
void check_method(search_method const& method, search_options const& options);

}  // namespace plan_tables
