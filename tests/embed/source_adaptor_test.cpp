// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 4
#include <tessera/embed/source_adaptor.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>

#include "embedding_source_suite.hpp"

using namespace embed_tests;
using tessera::host_exec;
using tessera::local_tables;
using tessera::matrix_view;
using tessera::vector_view;

namespace {

void negate(vector_view<matrix_view<float> const> blocks) {
  for (auto const block : blocks)
    for (std::int64_t i = 0; i < block.rows(); ++i)
      for (std::int64_t c = 0; c < block.columns(); ++c) block(i, c) = -block(i, c);
}

// As the header shows it.
template <tessera::embedding_source Inner>
struct negated : tessera::source_adaptor<Inner> {
  using base = tessera::source_adaptor<Inner>;
  using base::base;

  struct saved_type : Inner::saved_type {
    std::vector<std::vector<float>> memory;
    std::vector<matrix_view<float const>> gradients;
  };

  void finish(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float> const> out) {
    base::finish(exec, saved, out);
    negate(out);
  }
  void predict(host_exec const& exec, tessera::batch_view const& batch, vector_view<matrix_view<float> const> out) const {
    base::predict(exec, batch, out);
    negate(out);
  }
  void begin_backward(host_exec const& exec, saved_type& saved, vector_view<matrix_view<float const> const> gradients) {
    saved.memory.clear();
    saved.gradients.clear();
    for (auto const block : gradients) {
      auto& copy = saved.memory.emplace_back();
      for (std::int64_t i = 0; i < block.rows(); ++i)
        for (std::int64_t c = 0; c < block.columns(); ++c) copy.push_back(-block(i, c));
      saved.gradients.push_back({copy.data(), block.rows(), block.columns()});
    }
    base::begin_backward(exec, saved, saved.gradients);
  }
};
static_assert(tessera::embedding_source<tessera::source_adaptor<local_tables>> && tessera::embedding_source<negated<local_tables>>);

local_tables tables_of(host_exec const& exec, source_problem const& problem) {
  tessera::table_list tables;
  for (std::size_t t = 0; t < problem.tables.size(); ++t)
    tables.add(tessera::dense_table<>(exec, problem.tables[t], tessera::sgd{}), tessera::sgd{.learning_rate = problem.rates[t]});
  return {std::move(tables), problem.features, {.sums = problem.sums}};
}

struct adaptor_maker {
  using source_type = tessera::source_adaptor<local_tables>;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) { return source_type(tables_of(exec, problem)); }
};

// Vectors turned twice are those of the tables: what an adaptor changes goes both ways.
struct twice_negated_maker {
  using source_type = negated<negated<local_tables>>;
  static constexpr bool refuses_ids = true;
  static source_type make(host_exec const& exec, source_problem const& problem) {
    return source_type(negated<local_tables>(tables_of(exec, problem)));
  }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("source_adaptor", adaptor_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("an adaptor of an adaptor", twice_negated_maker)

TEST_CASE("an adaptor that turns vectors turns the gradients of their rows") {
  with_random_host([](host_exec const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    auto const problem = usual_problem();
    auto plain = adaptor_maker::make(exec, problem);
    negated<local_tables> turned(tables_of(exec, problem));
    auto const before = all_rows(exec, problem, plain);
    source_batch const batch(exec, problem, draw_source_rows(random, 20), false);
    batch.fill_gradients([&] { return draw(random); });
    adaptor_maker::source_type::saved_type of_plain;
    negated<local_tables>::saved_type of_turned;
    forward(exec, plain, batch, of_plain);
    backward(exec, plain, batch, of_plain);
    forward(exec, turned, batch, of_turned);
    backward(exec, turned, batch, of_turned);
    auto const added = all_rows(exec, problem, plain), taken = all_rows(exec, problem, turned);
    for (std::size_t i = 0; i < before.size(); ++i) CHECK(-taken[i] - before[i] == doctest::Approx(before[i] - added[i]).epsilon(1e-4));
  });
}
