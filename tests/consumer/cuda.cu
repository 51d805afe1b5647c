// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/tessera.cuh>

double other(tessera::host_exec const& exec);
std::vector<std::int64_t> offsets_of(tessera::cuda_exec const& exec, std::vector<std::int64_t> const& lengths);

struct add_one {
  std::int64_t* values;
  TESSERA_DEVICE void operator()(std::int64_t i) const { values[i] += 1; }
};

// Work of one's own and of the library, on a stream, between sources compiled by nvcc and by the C++ compiler.
int main() {
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const host(team, memory);
  std::vector<std::int64_t> lengths{1, 0, 2};
  int status = other(host) == 3 ? 0 : 1;

  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("there is no GPU");
    return status == 0 ? 77 : status;
  }
  tessera::cuda_device device(0);
  cudaStream_t stream = nullptr;
  tessera::check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  auto const exec = device.on(stream);
  {
    auto longer = tessera::to_device(exec, lengths);
    tessera::for_each_index(exec, longer.size(), 1, add_one{longer.data()});
    exec.copy_out(lengths.data(), longer.data(), lengths.size() * sizeof(std::int64_t));
    exec.synchronize();
  }
  if (offsets_of(exec, lengths) != std::vector<std::int64_t>{0, 2, 3, 6}) status = 1;
  tessera::check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return status;
}
