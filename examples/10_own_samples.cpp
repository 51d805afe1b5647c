// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Samples of one's own under our reader: an array of structs, read in shuffled batches, a part of it for each of two processes.

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_reader.hpp>
#include <tessera/data/sample_reader_options.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/tensor/batch.hpp>

struct visit {
  bool bought;
  float age;  // NaN: unknown
  std::int64_t item;
  std::vector<std::int64_t> history;
};

class visit_log {
 public:
  explicit visit_log(std::vector<visit> const& visits) : visits_(&visits) {}

  tessera::sample_schema const& schema() const { return schema_; }
  std::int64_t rows() const { return static_cast<std::int64_t>(visits_->size()); }
  std::int64_t block_count() const { return tessera::divide_up(rows(), block_rows); }
  std::int64_t rows(std::int64_t block) const { return std::min(block_rows, rows() - first_row(block)); }
  std::int64_t first_row(std::int64_t block) const { return block * block_rows; }

  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    out = tessera::sample_columns(schema_);
    out.resize(exec, rows(block));
    auto const* const visits = visits_->data() + first_row(block);
    out.offsets(0)[0] = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) {
      out.labels()[i] = visits[i].bought ? 1.0F : 0.0F;
      out.dense()(0, i) = visits[i].age;
      out.single_ids(1)[i] = visits[i].item;
      out.offsets(0)[i + 1] = out.offsets(0)[i] + static_cast<std::int64_t>(visits[i].history.size());
    }
    auto* id = out.ids(exec, 0).data();
    for (std::int64_t i = 0; i < out.size(); ++i) id = std::copy(visits[i].history.begin(), visits[i].history.end(), id);
  }

 private:
  static constexpr std::int64_t block_rows = 100;  // what is in memory at once

  tessera::sample_schema schema_{.label = "bought", .dense = {"age"}, .sparse = {"history", "item"}, .single = {"item"}};
  std::vector<visit> const* visits_;
};
static_assert(tessera::sample_source<visit_log>);

int main() {
  // Who has seen the item before buys it.
  std::vector<visit> visits;
  for (std::int64_t i = 0; i < 1000; ++i) {
    visit v{false, i % 7 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(20 + i % 50), i * 7 % 20, {}};
    for (std::int64_t seen = 0; seen < i % 4; ++seen) v.history.push_back((i * 7 + (seen + 1) * (i % 5)) % 20);
    v.bought = std::find(v.history.begin(), v.history.end(), v.item) != v.history.end();
    visits.push_back(v);
  }
  visit_log const log(visits);

  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  for (std::int64_t process = 0; process < 2; ++process) {
    tessera::sample_reader reader(exec, log,
                                  {.batch_size = 64,
                                   .order = tessera::sample_order::samples,
                                   .blocks = tessera::part_of(log, process, 2),
                                   .last_batch = tessera::short_batch::drop});
    double bought = 0, ids = 0;
    std::int64_t batches = 0;
    for (tessera::batch_view batch; reader.next(exec, batch); ++batches) {
      for (auto const label : batch.labels) bought += static_cast<double>(label);
      ids += static_cast<double>(batch.sparse.size());
    }
    auto const samples = static_cast<double>(64 * batches);
    std::printf("process %d: %d batches of %d, %.2f ids a sample, %.0f%% bought\n", static_cast<int>(process), static_cast<int>(batches),
                static_cast<int>(reader.epoch_batches()), ids / samples, 100 * bought / samples);
  }
}
