// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// DLRM's interaction and its backward, F vectors of D floats a sample, side by side as lookups leave them. Time at the ceiling: the multiply-adds
// of all pairs at the rate of a product, or a copy of what must be read and written, whichever takes longer.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/nn/dot_interaction.hpp>

#include "../gemm_ceiling.hpp"
#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

struct interaction_shape {
  std::int64_t vectors, dim, samples;
};

// Samples, and their gradients, for a number of batches that no cache holds.
class interaction_work {
 public:
  explicit interaction_work(interaction_shape const& s)
      : vectors_(s.vectors), dim_(s.dim), samples_(sized(s.samples)), width_(tessera::dot_interaction_width(s.vectors, s.dim)) {
    copy = copy_ceiling(host.exec);
    products = gemm_ceiling(host.exec, tessera::eigen_gemm{});
    for (std::int64_t b = 0; b < batches_past_cache(4 * samples_ * vectors_ * dim_); ++b) {
      inputs_.emplace_back(host.exec, samples_ * vectors_ * dim_);
      fill(inputs_.back(), static_cast<std::uint64_t>(b));
    }
    out_.resize(host.exec, samples_ * width_);
    fill(out_, 1);
    gradients_.resize(host.exec, samples_ * vectors_ * dim_);
    fill(gradients_, 2);
  }

  void forward(std::int64_t i) { tessera::dot_interaction(host.step, blocks<float const>(input(i)), out()); }
  void backward(std::int64_t i) {
    tessera::dot_interaction_backward(host.step, blocks<float const>(input(i)), out(), blocks<float>(gradients_));
  }

  double flop() const { return static_cast<double>(samples_ * vectors_ * (vectors_ - 1) * dim_); }
  double bytes() const { return 4 * static_cast<double>(samples_ * (vectors_ * dim_ + width_)); }
  double gradient_bytes() const { return 4 * static_cast<double>(samples_ * vectors_ * dim_); }

  machine host;
  ceiling copy, products;

 private:
  template <class T, class Buffer>
  std::vector<tessera::matrix_view<T>> blocks(Buffer& samples) const {
    std::vector<tessera::matrix_view<T>> all;
    tessera::matrix_view<T> const block(samples.data(), samples_, vectors_ * dim_);
    for (std::int64_t v = 0; v < vectors_; ++v) all.push_back(block.columns_from(v * dim_, dim_));
    return all;
  }
  static void fill(tessera::buffer<float>& values, std::uint64_t seed) {
    draws draw(seed);
    for (auto& v : values) v = static_cast<float>(draw.bits() >> 8) * 0x1p-24F;
  }
  tessera::buffer<float>& input(std::int64_t i) { return inputs_[static_cast<std::size_t>(i) % inputs_.size()]; }
  tessera::matrix_view<float> out() { return {out_.data(), samples_, width_}; }

  std::int64_t vectors_, dim_, samples_, width_;
  std::vector<tessera::buffer<float>> inputs_;
  tessera::buffer<float> out_, gradients_;
};

void run(benchmark::State& state, std::string const& name, interaction_shape const& shape, bool backward) {
  auto& work = kept<interaction_work>(name, [&] { return std::make_shared<interaction_work>(shape); });
  auto& next = next_input();
  for (auto _ : state) backward ? work.backward(next++) : work.forward(next++);
  auto const flop = work.flop() * (backward ? 2 : 1), bytes = work.bytes() + (backward ? work.gradient_bytes() : 0);
  report_machine(state, work.products, work.copy);
  report(state, flop, std::max(flop / work.products.rate(), bytes / work.copy.rate()),
         static_cast<double>(work.host.workspace.reserved_bytes()), "flop_per_second");
  state.counters["copy_ceiling"] = work.copy.rate();
}

}  // namespace

int main(int argc, char** argv) {
  // The Criteo data with tables of dim 16 and of dim 128; few features in large batches.
  for (interaction_shape const shape : {interaction_shape{27, 16, 2048}, {27, 128, 2048}, {8, 64, 65536}})
    for (bool const backward : {false, true}) {
      auto const sizes = "_f" + std::to_string(shape.vectors) + "_d" + std::to_string(shape.dim);
      auto const name = std::string("dot_interaction_") + (backward ? "backward" : "forward") + sizes;
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, sizes, shape, backward); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
