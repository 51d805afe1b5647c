// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Batches made distinct, and expanded again: 16 sequences in 5 groups as of an RM1-like set, sorted by session. Time at the ceiling: all ids are
// read, at the rate of reading; of the expansion, all ids written, at that of a copy.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t longest = 200;
constexpr double mean_length = 50, mean_samples = 16.5;
std::vector<std::int64_t> const group_sizes{4, 4, 3, 3, 2};

// A list is as long as a geometric law of mean 50 says, 200 at most; it stays from one sample of a session to the next with probability `stays`.
tessera::keyed_jagged<> session_batch(tessera::host_exec const& exec, std::int64_t samples, double stays, std::uint64_t seed) {
  draws draw(seed);
  std::vector<std::vector<std::int64_t>> values(16), lengths(16), list(16);
  for (std::int64_t i = 0; i < samples; ++i) {
    bool const is_new = i == 0 || draw.unit() < 1 / mean_samples;
    std::size_t key = 0;
    for (auto const keys : group_sizes) {
      bool const changes = is_new || draw.unit() >= stays;
      auto const length = std::min(longest, 1 + static_cast<std::int64_t>(std::log1p(-draw.unit()) / std::log1p(-1 / mean_length)));
      for (auto const last = key + static_cast<std::size_t>(keys); key < last; ++key) {
        if (changes) {
          list[key].clear();
          for (std::int64_t p = 0; p < length; ++p) list[key].push_back(draw.below(100'000));
        }
        values[key].insert(values[key].end(), list[key].begin(), list[key].end());
        lengths[key].push_back(static_cast<std::int64_t>(list[key].size()));
      }
    }
  }
  std::vector<std::int64_t> all, all_lengths, rows(16, samples);
  for (std::size_t key = 0; key < 16; ++key) {
    all.insert(all.end(), values[key].begin(), values[key].end());
    all_lengths.insert(all_lengths.end(), lengths[key].begin(), lengths[key].end());
  }
  return tessera::keyed_jagged<>::from_lengths(exec, {}, all, all_lengths, rows);
}

struct inputs {
  explicit inputs(double stays) {
    for (std::int64_t b = 0; b < batches_past_cache(8 * 16 * 50 * sized(2048)); ++b) {
      batches.push_back(session_batch(host.exec, sized(2048), stays, static_cast<std::uint64_t>(b)));
      distinct.push_back(tessera::deduplicate(host.exec, batches.back(), group_sizes));
      bytes += 8.0 * static_cast<double>(batches.back().view().size());
    }
    bytes /= static_cast<double>(batches.size());
    read = read_ceiling(host.exec);
    copy = copy_ceiling(host.exec);
  }

  machine host;
  std::vector<tessera::keyed_jagged<>> batches;
  std::vector<tessera::inverse_keyed_jagged<>> distinct;
  double bytes = 0;
  ceiling read, copy;
};

// `stays`: how probably a list stays from one sample of a session to the next.
inputs& inputs_of(std::string const& name, double stays) {
  return kept<inputs>(name, [&] { return std::make_shared<inputs>(stays); });
}

void run_deduplicate(benchmark::State& state, inputs& in) {
  for (auto _ : state) {
    auto const& batch = in.batches[static_cast<std::size_t>(next_input()++) % in.batches.size()];
    benchmark::DoNotOptimize(tessera::deduplicate(in.host.step, batch.view(), group_sizes));
  }
  auto const calls = static_cast<double>(state.iterations());
  state.counters["bytes_per_second"] = benchmark::Counter(in.bytes * calls, benchmark::Counter::kIsRate);
  report_machine(state, in.read);
  state.counters["ceiling_fraction"] = benchmark::Counter(in.bytes * calls / in.read.rate(), benchmark::Counter::kIsRate);
}

void deduplicate(benchmark::State& state) { run_deduplicate(state, inputs_of("deduplicate", 0.95)); }
void deduplicate_no_repeats(benchmark::State& state) { run_deduplicate(state, inputs_of("deduplicate_no_repeats", 0)); }

void expand(benchmark::State& state) {
  auto& in = inputs_of("expand", 0.95);
  for (auto _ : state) {
    auto const& batch = in.distinct[static_cast<std::size_t>(next_input()++) % in.distinct.size()];
    benchmark::DoNotOptimize(tessera::expand(in.host.step, batch.view()));
  }
  auto const calls = static_cast<double>(state.iterations());
  state.counters["bytes_per_second"] = benchmark::Counter(in.bytes * calls, benchmark::Counter::kIsRate);
  report_machine(state, in.copy);
  state.counters["ceiling_fraction"] = benchmark::Counter(2 * in.bytes * calls / in.copy.rate(), benchmark::Counter::kIsRate);
}

BENCHMARK(deduplicate)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(deduplicate_no_repeats)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(expand)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
