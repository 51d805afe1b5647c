// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tower/tower_source.hpp>

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/tower/dlrm_tower.hpp>
#include <tessera/tower/pass_through.hpp>

#include "tower_source_suite.hpp"

namespace tower_source_test {

using namespace embed_tests;
using namespace tower_tests;
using tessera::host_exec;
using tessera::local_tables;

namespace {

local_tables tables_of(host_exec const& exec, source_problem const& problem) {
  tessera::table_list list;
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    tessera::sgd const optimizer{.learning_rate = problem.rates[t]};
    list.add(tessera::dense_table<>(exec, problem.tables[t], optimizer), optimizer);
  }
  return {std::move(list), problem.features, {.sums = problem.sums}};
}

struct pass_through_maker {
  using source_type = tessera::tower_source<local_tables, tessera::pass_through>;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    return {exec, tables_of(exec, problem), suite_towers, {}};
  }
};

struct modules_maker {
  using source_type = tessera::tower_source<local_tables, tessera::dlrm_tower>;
  static constexpr bool refuses_ids = true;
  static void change(source_problem& problem) { widen(problem); }
  static source_type make(host_exec const& exec, source_problem const& problem) {
    return with_identities(source_type(exec, tables_of(exec, problem), suite_towers, suite_recipe, suite_modules()));
  }
};

// An adaptor of a source that owns parameters.
struct adapted_maker {
  using source_type = tessera::source_adaptor<modules_maker::source_type>;
  static constexpr bool refuses_ids = true;
  static void change(source_problem& problem) { widen(problem); }
  static source_type make(host_exec const& exec, source_problem const& problem) { return source_type(modules_maker::make(exec, problem)); }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("tower_source that passes through", pass_through_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("tower_source with modules", modules_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("an adaptor of a tower_source", adapted_maker)

}  // namespace tower_source_test
