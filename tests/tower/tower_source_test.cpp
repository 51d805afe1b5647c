// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tower/tower_source.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
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

TEST_CASE("tower_source: modules over tables that several ranks share are refused, and towers that pass through are not") {
  std::vector<tessera::table_spec> specs;
  std::vector<tessera::table_feature> features;
  for (std::int64_t t = 0; t < 2; ++t) {
    specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{t}, .dim = 4, .rows = 8, .init_bound = 0.1F},
                                                             tessera::sgd{.learning_rate = 0.1F}));
    features.push_back({.name = std::to_string(t), .table = t});
  }
  tessera::tower_partition const towers{{{0}, {1}}};
  tessera::dlrm_tower const recipe{.dim = 2, .c = 1};
  auto const sharded = [&](host_exec const& exec, tessera::any_communicator comm) {
    auto const ranks = comm.size();
    return tessera::sharded_tables(exec, std::move(comm), specs, features,
                                   tessera::plan_round_robin(tessera::options_of(specs), static_cast<int>(ranks)));
  };
  std::vector<tessera_tests::serial_host> hosts(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
    auto const e = tessera_tests::error_of([&] { tessera::tower_source(exec, sharded(exec, comm), towers, recipe, suite_modules()); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(std::string(e.sentence()).find("sptt_tables") != std::string::npos);
    CHECK(e.value("ranks") == "2");
    // Around an adaptor, too.
    CHECK_THROWS_AS(tessera::tower_source(exec, tessera::source_adaptor(sharded(exec, comm)), towers, recipe, suite_modules()),
                    tessera::error);
    CHECK(tessera::tower_source(exec, sharded(exec, comm), towers, tessera::pass_through{}).outputs().size() == 2);
  });
  auto const exec = hosts[0].exec();
  CHECK(tessera::tower_source(exec, sharded(exec, tessera::self_communicator()), towers, recipe, suite_modules()).parameter_count() > 0);
}

TEST_CASE("tower_source: gradients of parameters of another size are refused, and then given again") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_list list;
  tessera::sgd const optimizer{.learning_rate = 0.1F};
  list.add(tessera::dense_table<>(exec, {.id = tessera::table_id{0}, .dim = 4, .rows = 8, .init_bound = 0.1F}, optimizer), optimizer);
  tessera::tower_source source(exec, local_tables(std::move(list), {{.name = "a"}}), {{{0}}}, tessera::dlrm_tower{.dim = 2},
                               suite_modules());
  auto const ids = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}}}});
  tessera::batch_view batch;
  batch.dense = {nullptr, 2, 0};
  batch.sparse = ids.view();
  std::vector<float> memory(4);
  std::vector<tessera::matrix_view<float>> const out{{memory.data(), 2, 2}};
  std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
  decltype(source)::saved_type saved;
  source.begin(exec, batch, saved);
  source.finish(exec, saved, out);
  auto const count = source.parameter_count();
  for (auto const other : {count - 1, count + 1, std::int64_t{0}}) {
    std::vector<float> wrong(static_cast<std::size_t>(other));
    auto const e = tessera_tests::error_of([&] { source.begin_backward(exec, saved, gradients, wrong); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("parameters") == std::to_string(count));
    CHECK(e.value("gradients") == std::to_string(other));
  }
  std::vector<float> right(static_cast<std::size_t>(count));
  source.begin_backward(exec, saved, gradients, right);
  source.finish_backward(exec, saved);
}

}  // namespace tower_source_test
