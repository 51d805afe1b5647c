// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// A linear layer followed by a ReLU: forward, and backward: gradients of weight, bias and input, that of an input which a ReLU made. Time at the
// ceiling: the layer's products alone, at the rate of large ones.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/nn/linear.hpp>

#include "../gemm_ceiling.hpp"
#include "../gemms.hpp"
#include "../inputs.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

struct layer_shape {
  std::int64_t in, out, samples;
};

// A layer and its gradients, and batches of its input that no cache holds, as far as `batches_past_cache` goes.
template <class Gemm>
class layer_work {
 public:
  explicit layer_work(layer_shape const& s) : in_(sized(s.in)), out_(s.out), samples_(sized(s.samples)) {
    products = gemm_ceiling(host.exec, Gemm{});
    for (std::int64_t b = 0; b < batches_past_cache(4 * samples_ * (in_ + out_)); ++b) x_.push_back(drawn(samples_ * in_));
    weight_ = drawn(out_ * in_);
    bias_ = drawn(out_);
    y_ = drawn(samples_ * out_);
    y_gradient_ = drawn(samples_ * out_);
    x_gradient_ = drawn(samples_ * in_);
    weight_gradient_ = drawn(out_ * in_);
    bias_gradient_ = drawn(out_);
  }

  void forward(std::int64_t i) {
    tessera::linear_forward(host.step, Gemm{}, x(i), layer(), tessera::activation::relu, {y_.data(), samples_, out_});
  }
  void backward(std::int64_t i) {
    tessera::matrix_view<float const> const gradient(y_gradient_.data(), samples_, out_);
    tessera::linear_backward_parameters(host.step, Gemm{}, x(i), gradient, {{weight_gradient_.data(), out_, in_}, bias_gradient_.view()});
    tessera::linear_backward_input(host.step, Gemm{}, gradient, layer(), tessera::activation::relu, x(i),
                                   {x_gradient_.data(), samples_, in_});
  }

  double flop() const { return 2 * static_cast<double>(samples_ * in_ * out_); }

  machine host;
  ceiling products;

 private:
  // Half of them negative, as where a ReLU follows.
  tessera::buffer<float> drawn(std::int64_t n) {
    tessera::buffer<float> values(host.exec, n);
    for (auto& v : values) v = static_cast<float>(draw_.bits() >> 8) * 0x1p-24F - 0.5F;
    return values;
  }
  tessera::matrix_view<float const> x(std::int64_t i) const { return {x_[static_cast<std::size_t>(i) % x_.size()].data(), samples_, in_}; }
  tessera::linear_view<float const> layer() const { return {{weight_.data(), out_, in_}, bias_.view()}; }

  std::int64_t in_, out_, samples_;
  draws draw_{5};
  std::vector<tessera::buffer<float>> x_;
  tessera::buffer<float> weight_, bias_, y_, y_gradient_, x_gradient_, weight_gradient_, bias_gradient_;
};

template <class Gemm>
void run(benchmark::State& state, std::string const& sizes, layer_shape const& shape, bool backward) {
  auto& work = kept<layer_work<Gemm>>(sizes, [&] { return std::make_shared<layer_work<Gemm>>(shape); });
  auto& next = next_input();
  for (auto _ : state) backward ? work.backward(next++) : work.forward(next++);
  auto const flop = work.flop() * (backward ? 2 : 1);
  report_machine(state, work.products);
  report(state, flop, flop / work.products.rate(), static_cast<double>(work.host.workspace.reserved_bytes()), "flop_per_second");
}

}  // namespace

int main(int argc, char** argv) {
  for (std::int64_t const samples : {128, 2048})
    for (layer_shape const shape : {layer_shape{512, 256, samples}, {1024, 1024, samples}, {479, 1024, samples}})
      for_each_gemm(std::to_string(shape.in) + "_" + std::to_string(shape.out) + "_b" + std::to_string(samples),
                    [=](std::string const& sizes, auto gemm) {
                      for (bool const backward : {false, true})
                        benchmark::RegisterBenchmark((std::string("linear_") + (backward ? "backward_" : "forward_") + sizes).c_str(),
                                                     [=](benchmark::State& state) { run<decltype(gemm)>(state, sizes, shape, backward); })
                            ->UseRealTime()
                            ->Unit(benchmark::kMicrosecond);
                    });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
