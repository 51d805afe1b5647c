// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Training lookups through caches of tables in pinned memory of the host: 8 tables of 2^20 rows of 128 floats, bags of 20 ids.
// `cache_hits`: 16,384 samples, all rows in lines. Time at the ceiling: that of the same lookup of tables on the GPU.
// `cache_misses`: 4,096 samples, no row in a line, each line taken from a row that goes back; `cache_fills`: the same into empty lines. Time at
// the ceiling: rows and states fetched, and those written back, at the bus's rates, each the better of a copy's and a kernel's.

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/embed/row_cache.cuh>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"
#include "cuda_lookups.cuh"

namespace {

using namespace tessera_bench;

using behind_table = tessera::dense_table<float, tessera::cuda_exec>;
using cache = tessera::row_cache<behind_table>;

constexpr std::int64_t rows = std::int64_t{1} << 20, batches_apart = 12;
constexpr tessera::rowwise_adagrad optimizer{.learning_rate = 0.01F};

std::vector<cache> caches_of(gpu& on, std::vector<behind_table>& behind, std::int64_t lines) {
  std::vector<cache> caches;
  for (auto& table : behind) caches.emplace_back(on.lasting, table, lines);
  return caches;
}

tessera::cache_counts sum_of_counts(std::vector<cache> const& caches) {
  tessera::cache_counts sum;
  for (auto const& c : caches) {
    auto const counts = c.counts();
    sum.hits += counts.hits;
    sum.fetched += counts.fetched;
    sum.written += counts.written;
    sum.uncached += counts.uncached;
  }
  return sum;
}

cuda_report hits(gpu& on) {
  gpu_lookup_shape const shape{.rows = rows};
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate();
  gpu_lookups lookups(on, shape);
  double uncached = 0;
  {
    auto tables = gpu_tables<float>(on.lasting, shape, optimizer);
    uncached = on.measure([&](std::int64_t i) { lookups.forward(tables, i); }).median;
  }
  auto behind = gpu_tables<float>(on.pinned, shape, optimizer);
  auto caches = caches_of(on, behind, 2 * sized(rows));
  std::vector<std::int64_t> every;
  for (std::int64_t id = 0; id < sized(rows); ++id) every.push_back(id);
  auto const every_there = tessera::to_device(on.lasting, every);
  for (auto& c : caches) c.prefetch(on.exec, every_there.view());
  on.exec.synchronize();
  auto const before = sum_of_counts(caches);
  std::int64_t calls = 0;
  auto const seconds = on.measure([&](std::int64_t i) { lookups.forward(caches, i), ++calls; });
  auto const hit = static_cast<double>(sum_of_counts(caches).hits - before.hits);
  return {seconds,
          lookups.row_bytes(shape.dim * 4) + lookups.stream_bytes(),
          uncached,
          copy,
          {{"uncached_seconds", uncached}, {"hit_fraction", hit / static_cast<double>(calls * shape.ids_a_batch())}}};
}

// Each id of `batches_apart` batches once: multiples of an odd number, modulo the rows, a power of two.
gpu_lookups disjoint_batches(gpu& on, gpu_lookup_shape const& shape) {
  auto const n = shape.ids_a_table(), mask = sized(rows) - 1;
  std::vector<gpu_buffer<std::int64_t>> lists;
  for (std::int64_t b = 0; b < batches_apart; ++b) {
    std::vector<std::int64_t> ids;
    for (std::int64_t t = 0; t < shape.tables; ++t)
      for (std::int64_t i = 0; i < n; ++i) ids.push_back(((b * n + i) * 0x9E3779B1 + t) & mask);
    lists.push_back(tessera::to_device(on.lasting, ids));
  }
  return gpu_lookups(on, shape, std::move(lists));
}

cuda_report misses(gpu& on, bool into_empty_lines) {
  gpu_lookup_shape const shape{.rows = rows, .samples = 4096};
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate();
  auto const bus = ceilings.bus();
  auto behind = gpu_tables<float>(on.pinned, shape, optimizer);
  auto lookups = disjoint_batches(on, shape);
  auto const gather = gather_rate_of(ceilings, behind, lookups);
  auto caches = caches_of(on, behind, 2 * shape.ids_a_table());
  std::int64_t calls = 0;
  auto const forget = [&](std::int64_t) {
    if (!into_empty_lines) return;
    for (auto& c : caches) c.forget(on.exec);
  };
  auto const forward = [&](std::int64_t i) { lookups.forward(caches, i), ++calls; };
  for (std::int64_t i = 0; i < batches_apart; ++i) forward(i);
  auto const before = sum_of_counts(caches);
  calls = 0;
  auto const seconds = on.measure(forget, forward);
  auto const after = sum_of_counts(caches);
  auto const each = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(calls); };
  auto const row = static_cast<double>(shape.dim * 4 + behind[0].state_layout().width(shape.dim) * 4);
  auto const fetched = each(after.fetched - before.fetched) * row, written = each(after.written - before.written) * row;
  return {seconds,
          fetched + written,
          fetched / bus.read() + written / bus.written(),
          copy,
          {{"miss_fraction", each(after.fetched - before.fetched) / static_cast<double>(shape.ids_a_batch())},
           {"uncached_fraction", each(after.uncached - before.uncached) / static_cast<double>(shape.ids_a_batch())},
           {"bus_read_by_copy", bus.read_by_copy},
           {"bus_read_by_kernel", bus.read_by_kernel},
           {"bus_written_by_copy", bus.written_by_copy},
           {"bus_written_by_kernel", bus.written_by_kernel},
           {"bus_gather_rate", gather}}};
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  program.add("cache_hits", hits);
  program.add("cache_misses", [](gpu& on) { return misses(on, false); });
  program.add("cache_fills", [](gpu& on) { return misses(on, true); });
  return program.run();
}
