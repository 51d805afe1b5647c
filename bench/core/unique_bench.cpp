// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// The distinct ids of a batch, ascending, and which of them each id is. Time at the ceiling: ids read, distinct ids and numbers written, at the
// rate of a copy.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/unique.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

struct id_lists {
  // `count` ids of [0, bound), some of them again and again; 0: all are drawn.
  explicit id_lists(std::int64_t bound, std::int64_t count) {
    auto const n = sized(std::int64_t{1} << 23);
    for (std::int64_t b = 0; b < batches_past_cache(3 * 8 * n); ++b) {
      draws draw(static_cast<std::uint64_t>(b));
      ids.emplace_back();
      std::vector<std::int64_t> some;
      for (std::int64_t i = 0; i < count; ++i) some.push_back(draw.below(bound));
      for (std::int64_t i = 0; i < n; ++i)
        ids.back().push_back(count == 0 ? draw.below(bound) : some[static_cast<std::size_t>(draw.below(count))]);
    }
    distinct.resize(host.exec, n);
    inverse.resize(host.exec, n);
    copy = copy_ceiling(host.exec);
  }

  std::int64_t run(std::int64_t i) {
    std::vector<std::int64_t> const& list = ids[static_cast<std::size_t>(i) % ids.size()];
    return tessera::unique(host.step, tessera::vector_view<std::int64_t const>(list), distinct.view(), inverse.view());
  }

  machine host;
  std::vector<std::vector<std::int64_t>> ids;
  tessera::buffer<std::int64_t> distinct, inverse;
  ceiling copy;
};

void unique(benchmark::State& state, std::string const& name, std::int64_t bound, std::int64_t count = 0) {
  auto& work = kept<id_lists>(name, [&] { return std::make_shared<id_lists>(bound, count); });
  auto& next = next_input();
  std::int64_t found = 0;
  for (auto _ : state) found += work.run(next++);
  auto const bytes =
      8.0 * (2.0 * static_cast<double>(work.inverse.size()) + static_cast<double>(found) / static_cast<double>(state.iterations()));
  report_machine(state, work.copy);
  report(state, bytes, bytes / work.copy.rate(), static_cast<double>(work.host.workspace.reserved_bytes()));
}

void unique(benchmark::State& state) { unique(state, "unique", std::int64_t{1} << 40); }
void unique_repeated(benchmark::State& state) { unique(state, "unique_repeated", sized(100'000)); }

void unique_repeated_anywhere(benchmark::State& state) { unique(state, "unique_repeated_anywhere", std::int64_t{1} << 40, sized(100'000)); }

}  // namespace

BENCHMARK(unique)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(unique_repeated)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(unique_repeated_anywhere)->UseRealTime()->Unit(benchmark::kMillisecond);
