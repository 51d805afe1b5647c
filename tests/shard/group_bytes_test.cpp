// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace group_bytes_test {

using tessera::counting_communicator;
using tessera::sent_by;

constexpr int ranks = 4;
constexpr std::int64_t dim = 64, rows = 10'000, factor = 8, samples = 1024, bag = 20;

// Two features of a session, of which each has `factor` samples in a row, with the same bags.
tessera::keyed_jagged<> session_ids(tessera::host_exec const& exec, int rank) {
  std::vector<tessera::feature_rows<>> all;
  for (std::int64_t key = 0; key < 2; ++key) {
    std::vector<std::vector<std::int64_t>> bags;
    for (std::int64_t s = 0; s < samples; ++s) {
      auto& ids = bags.emplace_back();
      for (std::int64_t i = 0; i < bag; ++i) ids.push_back(((s / factor) * 977 + i * 131 + key * 17 + rank * 5) % rows);
    }
    all.emplace_back(std::string(1, static_cast<char>('a' + key)), std::move(bags));
  }
  return tessera::keyed_jagged<>::from_rows(exec, all);
}

// Each table on two ranks, by columns.
tessera::sharding_plan const halves{
    {{0, 0, 0, rows, 0, dim / 2}, {0, 1, 0, rows, dim / 2, dim / 2}, {1, 2, 0, rows, 0, dim / 2}, {1, 3, 0, rows, dim / 2, dim / 2}}};

// What rank 0 sends in a step, by operation.
tessera::sent_counts sent_in_a_step(bool grouped, tessera::sharding_plan const& plan = halves,
                                    tessera::shared_gradients sums = tessera::shared_gradients::merged) {
  std::vector<tessera::sent_counts> sent(ranks);
  std::vector<tessera_tests::serial_host> hosts(ranks);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const exec = hosts[r].exec();
    std::vector<tessera::table_spec> specs;
    for (std::int64_t t = 0; t < 2; ++t)
      specs.push_back(tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{t}, .dim = dim, .rows = rows, .init_bound = 0.1F},
                                                               tessera::sgd{.learning_rate = 0.1F}));
    tessera::sharded_tables tables(exec, tessera::any_communicator(counting_communicator(comm, sent[r])), specs,
                                   {{.name = "a", .table = 0}, {.name = "b", .table = 1}}, plan, {.sums = sums});
    auto const ids = session_ids(exec, comm.rank());
    auto const distinct = tessera::deduplicate(exec, ids.view(), std::vector<std::int64_t>{2});
    tessera::batch_view batch;
    batch.dense = {nullptr, samples, 0};
    batch.sparse = ids.view();
    if (grouped) {
      batch.sparse = distinct.view().distinct;
      batch.groups = distinct.view().groups;
    }
    std::vector<float> vectors(static_cast<std::size_t>(2 * samples * dim)), slopes(vectors.size(), 0.01F);
    std::vector<tessera::matrix_view<float>> out;
    std::vector<tessera::matrix_view<float const>> gradients;
    for (std::int64_t key = 0; key < 2; ++key) {
      out.push_back({vectors.data() + key * samples * dim, samples, dim});
      gradients.push_back({slopes.data() + key * samples * dim, samples, dim});
    }
    sent[r].clear();
    tessera::sharded_saved saved;
    tables.begin(exec, batch, saved);
    tables.finish(exec, saved, out);
    tables.begin_backward(exec, saved, gradients);
    tables.finish_backward(exec, saved);
  });
  return sent[0];
}

TEST_CASE("sharded_tables: of rows that repeat eight times, an eighth of ids, vectors and gradients travels") {
  auto const whole = sent_in_a_step(false), distinct = sent_in_a_step(true);
  REQUIRE(whole.size() == 3);
  REQUIRE(distinct.size() == 3);
  for (auto const& entry : whole) {
    auto const& operation = entry.first;
    CAPTURE(operation);
    auto const of = sent_by(whole, operation), found = sent_by(distinct, operation);
    CHECK(found.messages == of.messages);
    auto const least = operation.find("ids") != std::string::npos ? 7.0 : 7.5;
    CHECK(static_cast<double>(found.bytes) * least <= static_cast<double>(of.bytes));
    CHECK(static_cast<double>(found.bytes) * 8.1 >= static_cast<double>(of.bytes));
  }
}

TEST_CASE(
    "sharded_tables: of expanded sums, rows travel once, gradients for each sample, and an inverse once a group and rank with tables") {
  // Rank 1 has two tables of the group, rank 2 one block, and rank 3 none.
  tessera::sharding_plan const uneven{{{0, 1, 0, rows, 0, dim}, {1, 1, 0, rows, 0, dim / 2}, {1, 2, 0, rows, dim / 2, dim / 2}}};
  constexpr std::int64_t header_of_a_key = 32, inverse = 4 * samples;
  for (bool const is_uneven : {false, true}) {
    CAPTURE(is_uneven);
    auto const& plan = is_uneven ? uneven : halves;
    auto const whole = sent_in_a_step(false, plan), merged = sent_in_a_step(true, plan);
    auto const expanded = sent_in_a_step(true, plan, tessera::shared_gradients::expanded);
    auto const bytes = [](tessera::sent_counts const& of, char const* operation) { return tessera::sent_by(of, operation).bytes; };
    auto const more = is_uneven ? 2 * inverse + 3 * header_of_a_key : 3 * (inverse + header_of_a_key);
    CHECK(bytes(expanded, "ids to their tables") == bytes(merged, "ids to their tables") + more);
    CHECK(bytes(expanded, "vectors to their samples") == bytes(merged, "vectors to their samples"));
    CHECK(bytes(expanded, "gradients to their tables") == bytes(whole, "gradients to their tables"));
    for (auto const& entry : expanded)
      CHECK(tessera::sent_by(expanded, entry.first).messages == tessera::sent_by(merged, entry.first).messages);
  }
}

}  // namespace group_bytes_test
