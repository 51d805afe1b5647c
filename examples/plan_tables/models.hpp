// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/plan/any_cost_model.hpp>
#include <tessera/plan/learned_cost.hpp>
#include <tessera/plan/table_profile.hpp>

#include "commands.hpp"

namespace plan_tables {

/// The files of published networks in a folder.
struct network_files {
  std::string computation, backward, forward;
};
inline network_files published_files(std::string const& folder, std::int64_t devices) {
  auto const of = std::to_string(devices);
  return {folder + "/computation.json", folder + "/backward_" + of + ".json", folder + "/forward_" + of + ".json"};
}

/// What a command reckons with.
struct loaded_model {
  tessera::any_cost_model cost;
  std::string digest;                                      ///< a plan names its model by it; "roofline" for counted bytes
  std::string machine;                                     ///< on which it was measured; empty: it does not say
  double relative_error = 0;                               ///< that it states of itself; 0: none
  std::string optimizer{};                                 ///< with which a learned model's steps were measured; empty: it does not say
  std::shared_ptr<tessera::learned_cost const> learned{};  ///< what a cautious cost refers to
  std::optional<double> lower_bound_ms{};                  ///< below which no plan of the tables costs, where that is proven

  /// Refuses tables whose steps a learned model says nothing of. @throws tessera::error incompatible naming the model's folder, the table, the
  /// field, and what is expected and found.
  void check(std::string const& folder, std::vector<tessera::table_profile> const& tables) const;
};

/// The tables of a file, of row formats and optimizers that the library has. @throws tessera::error as `read_table_profiles`, and naming
/// file, table, field and value.
std::vector<tessera::table_profile> read_tables(std::string const& file);

/// The costs for so many devices, and the batch of these tables. @throws tessera::error naming the file and what is wrong in it; for a model of
/// another machine, or of tables of another kind; and for published networks of other numbers of devices, naming these.
loaded_model load_model(tessera::host_exec const& exec, model_options const& options, std::vector<tessera::table_profile> const& tables,
                        std::int64_t devices);

}  // namespace plan_tables
