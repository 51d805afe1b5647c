// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Embedding tables on a GPU: the caller's stream, the caller's kernel between lookup and step. The pooled vectors of 512 samples are pulled
// towards a target, by rows of three kinds of table: a dense one, one of int8 rows for ids that nobody has numbered, and lines of a cache over
// a table of bf16 rows in the host's memory. Prints how far the vectors are from the target. Without a GPU it says so and exits with 77.

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

using device_batch = tessera::keyed_jagged<std::int64_t, std::int64_t, tessera::cuda_exec>;

// `spread`: what the ids, below 1000, are multiplied by.
device_batch read_batch(tessera::cuda_exec const& exec, std::int64_t spread) {
  tessera::serial_team team;
  tessera::system_memory memory;
  std::vector<std::vector<std::int64_t>> rows;
  for (std::int64_t s = 0; s < samples; ++s)
    rows.push_back({s % table_rows * spread, 7 * s % table_rows * spread, 31 * s % table_rows * spread});
  return device_batch::copy_of(exec, tessera::keyed_jagged<>::from_rows(tessera::host_exec(team, memory), {{"visited", rows}}));
}

double squared_distance(tessera::cuda_exec const& exec, float const* pooled) {
  std::vector<float> values(samples * dim);
  exec.copy_out(values.data(), pooled, values.size() * sizeof(float));
  double sum = 0;
  for (auto const x : values) sum += (static_cast<double>(x) - 1) * (static_cast<double>(x) - 1);
  return sum / static_cast<double>(values.size());
}

constexpr tessera::rowwise_adagrad adagrad{.learning_rate = 0.1F};

template <class Table>
void train(tessera::cuda_exec const& exec, char const* kind, std::vector<Table>& tables, device_batch const& batch) {
  std::vector<tessera::pooled_feature> const features{{.table = 0}};
  tessera::buffer<float, tessera::cuda_exec> pooled(exec, samples * dim), gradient(exec, samples * dim);
  std::vector<tessera::matrix_view<float>> const out{{pooled.data(), samples, dim}};
  std::vector<tessera::matrix_view<float const>> const gradients{{gradient.data(), samples, dim}};
  std::printf("%s\n", kind);

  tessera::basic_lookup_saved<tessera::cuda_exec> saved;
  for (int step = 0; step <= 100; ++step) {
    tessera::pooled_lookup(exec, tables, features, batch.view(), out, saved);
    tessera::for_each_index(exec, pooled.size(), 1, pull_towards_one{pooled.data(), gradient.data()});
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients, adagrad);
    if (step % 50 == 0) std::printf("step %d: squared distance %.4f\n", step, squared_distance(exec, pooled.data()));
  }
  exec.synchronize();  // waits, and throws what kernels found wrong
}

// The first element of the rows of these ids.
template <class Table>
void print_rows(tessera::cuda_exec const& exec, Table const& table, std::vector<std::int64_t> const& ids) {
  auto const there = tessera::to_device(exec, ids);
  tessera::buffer<float, tessera::cuda_exec> rows(exec, there.size() * dim);
  tessera::read_rows(exec, table, there.view(), {rows.data(), there.size(), dim});
  for (std::int64_t i = 0; i < there.size(); ++i)
    std::printf("row of id %lld: %.4f …\n", static_cast<long long>(ids[static_cast<std::size_t>(i)]),
                static_cast<double>(tessera::read_one(exec, rows.data() + i * dim)));
}

void train_all(cudaStream_t stream) {
  tessera::cuda_device gpu(0);
  auto const exec = gpu.on(stream);
  {
    std::vector<tessera::dense_table<float, tessera::cuda_exec>> tables;
    tables.emplace_back(exec, tessera::table_options{.dim = dim, .rows = table_rows}, adagrad);
    train(exec, "dense, fp32", tables, read_batch(exec, 1));
  }
  {
    constexpr std::int64_t spread = 1'000'000'007;
    std::vector<tessera::bucket_table<tessera::scaled_int8, tessera::cuda_exec, tessera::evict_lru>> tables;
    tables.emplace_back(exec, tessera::table_options{.dim = dim, .rows = 2 * table_rows}, adagrad);
    train(exec, "ids up to 10^12, int8", tables, read_batch(exec, spread));
    print_rows(exec, tables[0], {0, 7 * spread});
  }
  {
    tessera::pinned_memory pinned(0);
    std::vector<tessera::dense_table<tessera::bfloat16, tessera::cuda_exec>> behind;
    behind.emplace_back(exec.with_memory(pinned), tessera::table_options{.dim = dim, .rows = table_rows}, adagrad);
    std::vector<tessera::row_cache<tessera::dense_table<tessera::bfloat16, tessera::cuda_exec>>> caches;
    caches.emplace_back(exec, behind[0], 256);
    train(exec, "256 lines over bf16 rows of the host", caches, read_batch(exec, 1));
    caches[0].write_back(exec);
    print_rows(exec, behind[0], {0, 7});
  }
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
  train_all(stream);
  tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return 0;
}
