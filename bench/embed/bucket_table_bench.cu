// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Finding 32 M ids in a bucket table that is 80 % full, all of which it holds: by `locate`, as training does, and by `find`; `_large`: in a table
// of eight times as many. Time at the ceiling: one sector of 32 bytes an id, at the rate at which a kernel reads sectors anywhere in as much
// memory as the entries take.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_table.cuh>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"

namespace {

using namespace tessera_bench;

using table = tessera::bucket_table<float, tessera::cuda_exec>;

// Ids of 62 bits, drawn: hardly any comes twice.
cuda_report look_up(gpu& on, std::int64_t lists, bool inserting) {
  auto const n = sized(std::int64_t{1} << 25), capacity = n * lists / 4 * 5;
  gpu_ceilings ceilings(on);
  auto const copy = ceilings.copy_rate(), sectors = ceilings.sector_rate(capacity * 8);
  table held(on.lasting, {.dim = 1, .rows = capacity}, tessera::sgd{});
  gpu_buffer<std::int64_t> slots(on.lasting, n);
  std::vector<gpu_buffer<std::int64_t>> ids;
  for (std::int64_t b = 0; b < lists; ++b) {
    ids.push_back(drawn<std::int64_t>(on, n, std::int64_t{1} << 62, static_cast<std::uint64_t>(b)));
    held.locate(on.exec, std::as_const(ids.back()).view(), slots.view());
  }
  on.exec.synchronize();
  auto const list = [&](std::int64_t i) { return std::as_const(ids[static_cast<std::size_t>(i % lists)]).view(); };
  auto const seconds = inserting ? on.measure([&](std::int64_t i) { held.locate(on.exec, list(i), slots.view()); })
                                 : on.measure([&](std::int64_t i) { std::as_const(held).find(on.exec, list(i), slots.view()); });
  std::vector<std::int64_t> some(static_cast<std::size_t>(std::min<std::int64_t>(n, 1 << 20)));
  on.exec.copy_out(some.data(), slots.data(), some.size() * sizeof some[0]);
  auto const found = std::count_if(some.begin(), some.end(), [](auto slot) { return slot >= 0; });
  return {seconds,
          static_cast<double>(n * (8 + 32 + 8)),
          static_cast<double>(n) / sectors,
          copy,
          {{"sector_rate", sectors},
           {"ids_per_second", static_cast<double>(n) / seconds.median},
           {"full", static_cast<double>(held.rows()) / static_cast<double>(held.slot_bound())},
           {"found_fraction", static_cast<double>(found) / static_cast<double>(some.size())}}};
}

}  // namespace

int main(int argc, char** argv) {
  cuda_program program(argc, argv);
  program.add("bucket_locate", [](gpu& on) { return look_up(on, 1, true); });
  program.add("bucket_find", [](gpu& on) { return look_up(on, 1, false); });
  program.add("bucket_locate_large", [](gpu& on) { return look_up(on, 8, true); });
  return program.run();
}
