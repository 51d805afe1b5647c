// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/shard/average_replicas.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace average_replicas_test {

constexpr std::int64_t dim = 5, rows = 37, samples = 20;

std::vector<tessera::table_spec> specs() {
  return {tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{0}, .dim = dim, .rows = rows, .init_bound = 0.2F},
                                                   tessera::rowwise_adagrad{.learning_rate = 0.3F}),
          tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{1}, .dim = dim, .rows = rows, .init_bound = 0.2F},
                                                   tessera::adagrad{.learning_rate = 0.3F})};
}

// All weights, then all states, of the parts here.
std::vector<float> values_of(tessera::table_parts const& parts) {
  std::vector<float> all;
  for (auto const& part : parts)
    for (auto const plane : {tessera::row_plane::weights, tessera::row_plane::state}) {
      auto const width = part->shape(plane).width;
      if (width == 0) continue;
      std::vector<std::int64_t> slots;
      for (std::int64_t row = 0; row < part->rows(); ++row) slots.push_back(row);
      std::vector<float> values(slots.size() * static_cast<std::size_t>(width));
      part->copy_out(plane, slots, reinterpret_cast<char*>(values.data()));
      all.insert(all.end(), values.begin(), values.end());
    }
  return all;
}

// One step of random ids and slopes.
void train(tessera::host_exec const& exec, tessera::sharded_tables& tables, std::mt19937_64& random) {
  std::vector<tessera::feature_rows<>> features;
  for (char const* const name : {"a", "b"}) {
    std::vector<std::vector<std::int64_t>> bags;
    for (std::int64_t s = 0; s < samples; ++s)
      bags.push_back(tessera_tests::random_integers<std::int64_t>(random, random() % 3, 0, rows - 1));
    features.emplace_back(name, std::move(bags));
  }
  auto const ids = tessera::keyed_jagged<>::from_rows(exec, features);
  tessera::batch_view batch;
  batch.sparse = ids.view();
  batch.dense = {nullptr, samples, 0};
  std::vector<float> out(2 * samples * dim), slopes = tessera_tests::random_floats(random, out.size());
  std::vector<tessera::matrix_view<float>> blocks;
  std::vector<tessera::matrix_view<float const>> gradients;
  for (std::int64_t key = 0; key < 2; ++key) {
    blocks.push_back({out.data() + key * samples * dim, samples, dim});
    gradients.push_back({slopes.data() + key * samples * dim, samples, dim});
  }
  tessera::sharded_saved saved;
  tables.begin(exec, batch, saved);
  tables.finish(exec, saved, blocks);
  tables.begin_backward(exec, saved, gradients);
  tables.finish_backward(exec, saved);
}

TEST_CASE("average_replicas: replicas of a plan that learned apart have the mean of their weights and states") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (int const replicas : {1, 2, 3}) {
    CAPTURE(replicas);
    constexpr int in_replica = 2;
    auto const ranks = static_cast<std::size_t>(replicas * in_replica);
    std::vector<std::vector<float>> before(ranks), after(ranks);
    std::vector<tessera_tests::serial_host> hosts(ranks);
    tessera::run_thread_ranks(static_cast<int>(ranks), [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[r].exec();
      tessera::any_communicator all(comm);
      auto const replica = all.split(exec, comm.rank() / in_replica, comm.rank());
      auto copies = all.split(exec, replica.rank(), comm.rank());
      // One table by rows on both ranks of a replica, the other on the second.
      tessera::sharding_plan const plan{{{0, 0, 0, 20, 0, dim}, {0, 1, 20, rows - 20, 0, dim}, {1, 1, 0, rows, 0, dim}}};
      tessera::sharded_tables tables(exec, replica, specs(), {{.name = "a", .table = 0}, {.name = "b", .table = 1}}, plan);
      std::mt19937_64 random(seed + r);
      for (int step = 0; step < 4; ++step) train(exec, tables, random);
      before[r] = values_of(tables.parts());
      tessera::average_replicas(exec, copies, tables.parts());
      after[r] = values_of(tables.parts());
      train(exec, tables, random);  // goes on
    });
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(after[r] == after[r % in_replica]);
      REQUIRE(after[r].size() == before[r].size());
      for (std::size_t i = 0; i < after[r].size(); ++i) {
        double mean = 0;
        for (auto copy = r % in_replica; copy < ranks; copy += in_replica) mean += static_cast<double>(before[copy][i]) / replicas;
        CHECK(static_cast<double>(after[r][i]) == doctest::Approx(mean).epsilon(1e-5));
      }
      if (replicas > 1) CHECK(before[r] != after[r]);
    }
  }
}

TEST_CASE("average_replicas: hashed tables, rows that are not of float and other tables are refused on all ranks") {
  std::vector<tessera_tests::serial_host> hosts(2);
  auto const said = [&](auto const& spec_of_rank) {
    std::vector<std::string> all(2);
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[r].exec();
      tessera::table_list list;
      auto const spec = spec_of_rank(comm.rank());
      spec.add(exec, spec.table, list);
      tessera::local_tables tables(std::move(list), std::vector<tessera::table_feature>{{.name = "a", .table = 0}});
      tessera::any_communicator copies(comm);
      auto const before = values_of(tables.parts());
      try {
        tessera::average_replicas(exec, copies, tables.parts());
      } catch (tessera::error const& e) {
        all[r] = e.what();
      }
      CHECK(values_of(tables.parts()) == before);
    });
    return all;
  };
  tessera::sgd const sgd{.learning_rate = 0.1F};
  tessera::table_options const options{.id = tessera::table_id{7}, .dim = dim, .rows = rows};
  auto const hashed = said([&](int rank) {
    return rank == 1 ? tessera::spec_of<tessera::hash_table<>>(options, sgd) : tessera::spec_of<tessera::dense_table<>>(options, sgd);
  });
  CHECK(hashed[1].find("a hashed table (table 7") != std::string::npos);
  CHECK(hashed[0].find("another rank failed (rank 1") != std::string::npos);
  auto const half = said([&](int) { return tessera::spec_of<tessera::dense_table<tessera::float16>>(options, sgd); });
  CHECK(half[0].find("rows that are not of float (table 7") != std::string::npos);
  auto const other = said([&](int rank) {
    auto of = options;
    of.rows += rank;
    return tessera::spec_of<tessera::dense_table<>>(of, sgd);
  });
  CHECK(other[1].find("and 38 more") != std::string::npos);
}

}  // namespace average_replicas_test
