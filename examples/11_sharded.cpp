// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A DLRM whose tables lie on four ranks, each of which reads a quarter of every batch. Here the ranks are threads. With an mpi_communicator in
// the place of theirs they are processes: the lines from `plan` on stay as they are.

#include <array>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/local_model.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>

namespace {

constexpr std::int64_t samples = 256, numbers = 4, users = 1000, tags = 5000;

/// This rank's samples of a batch. Whether a user clicks depends on the user and the first number together; tags say nothing.
class clicks {
 public:
  explicit clicks(int rank) : random_(static_cast<std::uint32_t>(rank)) {}

  tessera::batch_view next(tessera::host_exec const& exec) {
    for (auto& number : x_) number = static_cast<float>(below(2001)) / 1000 - 1;
    std::vector<std::int64_t> ids, lengths(2 * samples, 1);
    for (std::size_t s = 0; s < samples; ++s) {
      ids.push_back(below(users));
      labels_[s] = (ids[s] % 2 == 0) == (x_[s * numbers] > 0) ? 1.0F : 0.0F;
    }
    for (std::size_t s = samples; s < 2 * samples; ++s) {
      lengths[s] = below(4);
      for (std::int64_t i = 0; i < lengths[s]; ++i) ids.push_back(below(tags));
    }
    ids_ = tessera::keyed_jagged<>::from_lengths(exec, {"user", "tags"}, ids, lengths, std::vector<std::int64_t>{samples, samples});
    return {.dense = {x_.data(), samples, numbers}, .labels = labels_, .sparse = std::as_const(ids_).view(), .sample_ids = {}};
  }

 private:
  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_()) % bound; }

  std::mt19937 random_;
  std::vector<float> x_ = std::vector<float>(samples * numbers), labels_ = std::vector<float>(samples);
  tessera::keyed_jagged<> ids_;
};

}  // namespace

int main() {
  constexpr int ranks = 4;
  std::array<std::size_t, ranks> table_bytes{};
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    tessera::serial_team team;
    tessera::system_memory memory;
    tessera::host_exec const exec(team, memory);

    tessera::rowwise_adagrad const by_row{.learning_rate = 0.1F};
    std::vector<tessera::table_spec> const specs{
        tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{0}, .dim = 16, .rows = users, .init_bound = 0.1F}, by_row),
        tessera::spec_of<tessera::hash_table<>>({.id = tessera::table_id{1}, .dim = 16, .rows = tags, .init_bound = 0.1F}, by_row)};
    // Users to ranks 0 and 1, eight columns each; tags, whole, to rank 2. Rank 3 has samples alone. A shard is table, rank, first row, rows,
    // first column, columns.
    tessera::sharding_plan const plan{{{0, 0, 0, users, 0, 8}, {0, 1, 0, users, 8, 8}, {1, 2, 0, tags, 0, 16}}};
    tessera::sharded_tables tables(exec, comm, specs, {{.name = "user", .table = 0}, {.name = "tags", .table = 1}}, plan);
    tessera::dlrm<tessera::sharded_tables, tessera::eigen_gemm> model(
        exec, {.dense_features = numbers, .bottom_hidden = {16}, .top_hidden = {16}, .seed = tessera::random_seed{1}}, std::move(tables));
    tessera::trainer run(exec, model, tessera::adam{.learning_rate = 0.01F}, {.comm = comm});

    clicks source(comm.rank());
    double loss = 0;
    for (int step = 1; step <= 200; ++step) {
      loss += run.step(exec, source.next(exec));  // of all ranks' samples
      if (step % 50 == 0 && comm.rank() == 0) std::printf("steps %d to %d: mean loss %.4f\n", step - 49, step, loss / 50);
      if (step % 50 == 0) loss = 0;
    }
    table_bytes[static_cast<std::size_t>(comm.rank())] = model.source().bytes();
  });
  for (auto const bytes : table_bytes) std::printf("%zu bytes of tables on a rank\n", bytes);
}
