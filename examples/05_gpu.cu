// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Embedding tables on a GPU: the caller's stream, the caller's kernel between lookup and step. The pooled vectors of 512 samples are pulled
// towards a target; prints how far they are from it. Without a GPU it says so and exits with 77.

#include <cstdint>
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/tessera.cuh>

namespace {

constexpr std::int64_t samples = 512, dim = 16, table_rows = 1000;

// The gradient of half the squared distance from 1, by a kernel of one's own.
struct pull_towards_one {
  float const* pooled;
  float* gradient;
  TESSERA_DEVICE void operator()(std::int64_t i) const { gradient[i] = pooled[i] - 1.0F; }
};

tessera::keyed_jagged<> read_batch(tessera::host_exec const& host) {
  std::vector<std::vector<std::int64_t>> rows;
  for (std::int64_t s = 0; s < samples; ++s) rows.push_back({s % table_rows, 7 * s % table_rows, 31 * s % table_rows});
  return tessera::keyed_jagged<>::from_rows(host, {{"visited", rows}});
}

double squared_distance(tessera::cuda_exec const& exec, float const* pooled) {
  std::vector<float> values(samples * dim);
  exec.copy_out(values.data(), pooled, values.size() * sizeof(float));
  double sum = 0;
  for (auto const x : values) sum += (static_cast<double>(x) - 1) * (static_cast<double>(x) - 1);
  return sum / static_cast<double>(values.size());
}

void train(cudaStream_t stream) {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const host(team, memory);

  tessera::cuda_device gpu(0);
  auto const exec = gpu.on(stream);
  tessera::rowwise_adagrad const adagrad{.learning_rate = 0.1F};
  std::vector<tessera::dense_table<float, tessera::cuda_exec>> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = dim, .rows = table_rows}, adagrad);
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  auto const batch = tessera::keyed_jagged<std::int64_t, std::int64_t, tessera::cuda_exec>::copy_of(exec, read_batch(host));
  tessera::buffer<float, tessera::cuda_exec> pooled(exec, samples * dim), gradient(exec, samples * dim);
  std::vector<tessera::matrix_view<float>> const out{{pooled.data(), samples, dim}};
  std::vector<tessera::matrix_view<float const>> const gradients{{gradient.data(), samples, dim}};

  tessera::basic_lookup_saved<tessera::cuda_exec> saved;
  for (int step = 0; step <= 100; ++step) {
    tessera::pooled_lookup(exec, tables, features, batch.view(), out, saved);
    tessera::for_each_index(exec, pooled.size(), 1, pull_towards_one{pooled.data(), gradient.data()});
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients, adagrad);
    if (step % 50 == 0) std::printf("step %d: squared distance %.4f\n", step, squared_distance(exec, pooled.data()));
  }
  exec.synchronize();  // waits, and throws what kernels found wrong
}

}  // namespace

int main() {
  int devices = 0;
  if (auto const status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: there is no GPU: %s\n", cudaGetErrorString(status));
    return 77;
  }
  cudaStream_t stream = nullptr;
  tessera::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  train(stream);
  tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return 0;
}
