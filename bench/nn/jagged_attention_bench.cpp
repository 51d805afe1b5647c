// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Attention within jagged rows, 2 heads of 32: rows of geometric lengths of mean 50 up to 200, four of these one behind the other, and a few
// rows of thousands. Lengths are quantiles, the same in bench/peers/jagged_attention.py. Time at the ceiling: the multiply-adds of the
// products, those of the probabilities that a backward makes again counted, at the rate of a loop of nothing else.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/nn/jagged_attention.hpp>

#include "../ceiling.hpp"
#include "../inputs.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t heads = 2, dim = 64;

// FLOP/s of multiply-adds in registers: twelve chains a thread, no two of which the compiler can know to be equal.
double multiply_add_rate(tessera::host_exec const& exec, int threads) {
  using floats = tessera::detail::register_floats<>;
  auto const rounds = sized(1 << 21);
  std::vector<float> const starts(14 * tessera::detail::register_lanes, 0.5F);
  auto const seconds = fastest(3, [&] {
    exec.run(threads, [&](std::int64_t) {
      auto const* next = starts.data();
      benchmark::DoNotOptimize(next);
      auto const take = [&] {
        auto const x = tessera::detail::load_register<tessera::detail::register_lanes>(next);
        next += tessera::detail::register_lanes;
        return x;
      };
      floats a = take(), b = take(), c = take(), d = take(), e = take(), f = take();
      floats g = take(), h = take(), i = take(), j = take(), k = take(), l = take();
      floats const x = take(), y = take();
      for (std::int64_t round = 0; round < rounds; ++round) {
        a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;
        g = g * x + y, h = h * x + y, i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;
      }
      auto const sum = a + b + c + d + e + f + g + h + i + j + k + l;
      float first = sum[0];
      benchmark::DoNotOptimize(first);
    });
  });
  return 2.0 * 12 * tessera::detail::register_lanes * static_cast<double>(rounds * threads) / seconds;
}

// Row i of `rows`: the sum of `groups` quantiles of a geometric distribution of mean 50, 200 at most.
std::vector<std::int64_t> geometric_lengths(std::int64_t rows, int groups) {
  constexpr std::int64_t steps[] = {77, 181, 283, 419};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i)
    for (int g = 0; g < groups; ++g) {
      auto const u = (static_cast<double>(i * steps[g] % rows) + 0.5) / static_cast<double>(rows);
      lengths[static_cast<std::size_t>(i)] +=
          std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(std::log1p(-u) / std::log1p(-0.02))), 1, 200);
    }
  return lengths;
}

class attention_work {
 public:
  attention_work(std::vector<std::int64_t> const& lengths, bool causal) : options_{.heads = heads, .causal = causal} {
    rate = ceiling({[exec = host.exec](int threads) { return multiply_add_rate(exec, threads); }}, host.exec.threads());
    offsets_.push_back(0);
    for (auto const length : lengths) {
      offsets_.push_back(offsets_.back() + length);
      products_ += static_cast<double>(causal ? length * (length + 1) / 2 : length * length);
    }
    auto const floats = offsets_.back() * dim;
    for (std::int64_t b = 0; b < batches_past_cache(8 * 4 * floats); ++b) {
      batches_.emplace_back(host.exec, 8 * floats);
      draws draw(static_cast<std::uint64_t>(b));
      for (auto& v : batches_.back()) v = static_cast<float>(2 * draw.unit() - 1);
    }
    log_sums_.resize(host.exec, heads * offsets_.back());
  }

  void forward(std::int64_t i) { tessera::jagged_attention(host.step, part(i, 0), part(i, 1), part(i, 2), options_, to(i, 3), log_sums()); }
  void backward(std::int64_t i) {
    tessera::jagged_attention_backward(host.step, part(i, 0), part(i, 1), part(i, 2), options_, part(i, 3), log_sums(), part(i, 4),
                                       to(i, 5), to(i, 6), to(i, 7));
  }
  // Two products of the forward, five of the backward.
  double flop(int products) const { return 2.0 * products * products_ * static_cast<double>(dim); }

  machine host;
  ceiling rate;

 private:
  using rows = tessera::jagged_vectors_view<float>;

  // q, k, v, out, its gradient, theirs.
  rows to(std::int64_t i, std::int64_t which) {
    auto const n = offsets_.back();
    auto& batch = batches_[static_cast<std::size_t>(i) % batches_.size()];
    return {{batch.data() + which * n * dim, n, dim}, offsets_.data(), static_cast<std::int64_t>(offsets_.size()) - 1};
  }
  tessera::jagged_vectors_view<float const> part(std::int64_t i, std::int64_t which) { return to(i, which); }
  tessera::matrix_view<float> log_sums() { return {log_sums_.data(), heads, offsets_.back()}; }

  tessera::attention_options options_;
  std::vector<std::int64_t> offsets_;
  double products_ = 0;  // of a query and a key
  std::vector<tessera::buffer<float>> batches_;
  tessera::buffer<float> log_sums_;
};

enum class part { forward, backward, step };

void run(benchmark::State& state, std::string const& name, std::vector<std::int64_t> const& lengths, bool causal, part which) {
  auto& work = kept<attention_work>(name, [&] { return std::make_shared<attention_work>(lengths, causal); });
  auto& next = next_input();
  if (which == part::backward) work.forward(next);
  for (auto _ : state) {
    if (which != part::backward) work.forward(next);
    if (which != part::forward) work.backward(next);
    if (which != part::backward) ++next;
  }
  auto const flop = work.flop(which == part::forward ? 2 : which == part::backward ? 5 : 7);
  report_machine(state, work.rate);
  report(state, flop, flop / work.rate.rate(), static_cast<double>(work.host.workspace.reserved_bytes()), "flop_per_second");
}

}  // namespace

int main(int argc, char** argv) {
  struct shape {
    char const* name;
    std::vector<std::int64_t> lengths;
    bool causal;
  };
  for (shape const& s :
       {shape{"m50", geometric_lengths(sized(512), 1), false}, shape{"m200", geometric_lengths(sized(512), 4), false},
        shape{"m200_causal", geometric_lengths(sized(512), 4), true}, shape{"n4096", std::vector<std::int64_t>(2, sized(4096)), false}})
    for (auto const& [which, name] : {std::pair{part::forward, "forward"}, {part::backward, "backward"}, {part::step, "step"}}) {
      auto const full = std::string("jagged_attention_") + name + "_" + s.name;
      benchmark::RegisterBenchmark(full.c_str(),
                                   [=, which = which](benchmark::State& state) { run(state, s.name, s.lengths, s.causal, which); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
