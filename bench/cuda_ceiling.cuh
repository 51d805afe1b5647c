// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>
#include <cub/device/device_radix_sort.cuh>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cub_workspace.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/philox.hpp>

#include "cuda_bench.cuh"

/// What the GPU can do at best, measured in the process that is being judged. Each rate is that of the median call of the best variant; what is
/// touched is many times the last cache.
namespace tessera_bench {

template <class T>
using gpu_buffer = tessera::buffer<T, tessera::cuda_exec>;

namespace detail {

inline constexpr int ceiling_threads = 256;

__device__ inline std::int64_t thread_number() { return static_cast<std::int64_t>(blockIdx.x) * ceiling_threads + threadIdx.x; }
__device__ inline std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * ceiling_threads; }

__device__ inline void join(uint4& sum, uint4 const& more) {
  sum.x ^= more.x;
  sum.y ^= more.y;
  sum.z ^= more.z;
  sum.w ^= more.w;
}
// What was read must be of use to somebody, or it would not be read.
__device__ inline void use(uint4 const& sum, unsigned* never) {
  if ((sum.x & sum.y & sum.z & sum.w) == 0xDEADBEEF) *never = 1;
}

/// `n` pieces of 16 bytes, `Ahead` under way at once.
template <int Ahead>
__global__ void __launch_bounds__(ceiling_threads) copy_kernel(uint4 const* from, uint4* to, std::int64_t n) {
  for (auto first = thread_number(); first < n; first += Ahead * thread_count()) {
    uint4 piece[Ahead];
    for (int k = 0; k < Ahead; ++k)
      if (first + k * thread_count() < n) piece[k] = from[first + k * thread_count()];
    for (int k = 0; k < Ahead; ++k)
      if (first + k * thread_count() < n) to[first + k * thread_count()] = piece[k];
  }
}

template <int Ahead>
__global__ void __launch_bounds__(ceiling_threads) read_kernel(uint4 const* from, std::int64_t n, unsigned* never) {
  uint4 sum{};
  for (auto first = thread_number(); first < n; first += Ahead * thread_count()) {
    uint4 piece[Ahead]{};
    for (int k = 0; k < Ahead; ++k)
      if (first + k * thread_count() < n) piece[k] = from[first + k * thread_count()];
    for (int k = 0; k < Ahead; ++k) join(sum, piece[k]);
  }
  use(sum, never);
}

/// Rows of some tables, each of `lanes` · `steps` pieces of 16 bytes: those of ids[i], whose table is number i / ids_a_table.
struct gathered_rows {
  static constexpr int most_tables = 32;
  uint4 const* tables[most_tables];
  std::int64_t const* ids;
  std::int64_t count, ids_a_table;
  int lanes, steps;
};

template <int Ahead>
__global__ void __launch_bounds__(ceiling_threads) gather_kernel(__grid_constant__ gathered_rows const rows, unsigned* never) {
  uint4 sum{};
  auto const lane = thread_number() % rows.lanes, groups = thread_count() / rows.lanes;
  for (auto first = thread_number() / rows.lanes; first < rows.count; first += Ahead * groups)
    for (int step = 0; step < rows.steps; ++step) {
      uint4 piece[Ahead]{};
      for (int k = 0; k < Ahead; ++k) {
        auto const i = first + k * groups;
        if (i < rows.count) piece[k] = rows.tables[i / rows.ids_a_table][(rows.ids[i] * rows.steps + step) * rows.lanes + lane];
      }
      for (int k = 0; k < Ahead; ++k) join(sum, piece[k]);
    }
  use(sum, never);
}

/// `n` sectors of 32 bytes anywhere among `sectors`, half of each read.
template <int Ahead>
__global__ void __launch_bounds__(ceiling_threads)
    sector_kernel(uint4 const* from, std::int64_t sectors, std::int64_t n, std::uint64_t salt, unsigned* never) {
  uint4 sum{};
  for (auto first = thread_number(); first < n; first += Ahead * thread_count()) {
    uint4 piece[Ahead]{};
    for (int k = 0; k < Ahead; ++k) {
      auto hash = (static_cast<std::uint64_t>(first + k * thread_count()) + salt) * 0x9E3779B97F4A7C15U;
      hash = (hash ^ (hash >> 32)) * 0xD6E8FEB86659FD93U;
      hash ^= hash >> 32;
      piece[k] = from[2 * static_cast<std::int64_t>(__umul64hi(hash * 0x9E3779B97F4A7C15U, static_cast<std::uint64_t>(sectors)))];
    }
    for (int k = 0; k < Ahead; ++k) join(sum, piece[k]);
  }
  use(sum, never);
}

template <class T>
__global__ void __launch_bounds__(ceiling_threads) draw_kernel(T* values, std::int64_t n, std::int64_t below, std::uint64_t seed) {
  for (auto i = thread_number(); i < n; i += thread_count()) {
    auto const words = tessera::philox(tessera::random_seed{seed}, static_cast<std::uint64_t>(i), 0, 0);
    if constexpr (std::is_same_v<T, float>)
      values[i] = tessera::uniform_symmetric(words[0], 0.005F);
    else
      values[i] = static_cast<T>(tessera::uniform_below(words[0], words[1], static_cast<std::uint64_t>(below)));
  }
}

/// Blocks that fill the GPU `times` eighths over, as all the kernels above go on by strides.
inline unsigned full_grid(gpu const& on, std::int64_t times) { return static_cast<unsigned>(on.processors() * times); }

}  // namespace detail

/// Uniform in [0, below), or gradients within 0.005 of 0, on the device.
template <class T>
gpu_buffer<T> drawn(gpu& on, std::int64_t n, std::int64_t below, std::uint64_t seed) {
  gpu_buffer<T> result(on.lasting, n);
  detail::draw_kernel<<<detail::full_grid(on, 8), detail::ceiling_threads, 0, on.exec.stream()>>>(result.data(), n, below, seed);
  tessera::check_cuda(cudaGetLastError(), "draw_kernel");
  return result;
}

/// The rates of one GPU. Measured when first asked for, then kept.
class gpu_ceilings {
 public:
  explicit gpu_ceilings(gpu& on) : on_(on), never_(on.lasting, 1) {}

  /// Bytes a second of a copy within the device, those read and those written counted: CUDA's own, or a kernel's.
  double copy_rate() {
    return kept(copy_, [&] {
      auto const bytes = sized(std::int64_t{1} << 31);
      auto const from = filled(bytes);
      gpu_buffer<unsigned char> to(on_.lasting, bytes);
      auto const n = bytes / 16;
      return 2 * static_cast<double>(bytes) /
             least({[&](std::int64_t) { on_.exec.copy(to.data(), from.data(), static_cast<std::size_t>(bytes)); },
                    [&](std::int64_t) { launch(detail::copy_kernel<4>, 8, pieces(from), pieces(to), n); },
                    [&](std::int64_t) { launch(detail::copy_kernel<8>, 8, pieces(from), pieces(to), n); },
                    [&](std::int64_t) {
                      launch(detail::copy_kernel<1>, n / detail::ceiling_threads / on_.processors() + 1, pieces(from), pieces(to), n);
                    }});
    });
  }

  /// Bytes a second of reading memory of the device from one end to the other.
  double read_rate() {
    return kept(read_, [&] {
      auto const bytes = sized(std::int64_t{1} << 31);
      auto const from = filled(bytes);
      return static_cast<double>(bytes) /
             least({[&](std::int64_t) { launch(detail::read_kernel<4>, 8, pieces(from), bytes / 16, never_.data()); },
                    [&](std::int64_t) { launch(detail::read_kernel<8>, 8, pieces(from), bytes / 16, never_.data()); }});
    });
  }

  /// Sectors of 32 bytes a second, read anywhere in an array of so many bytes.
  double sector_rate(std::int64_t bytes) {
    auto const from = filled(bytes);
    auto const n = sized(std::int64_t{1} << 25);
    auto const salt = [n](std::int64_t i) { return static_cast<std::uint64_t>(i * n); };
    return static_cast<double>(n) /
           least({[&](std::int64_t i) { launch(detail::sector_kernel<4>, 8, pieces(from), bytes / 32, n, salt(i), never_.data()); },
                  [&](std::int64_t i) { launch(detail::sector_kernel<8>, 8, pieces(from), bytes / 32, n, salt(i), never_.data()); },
                  [&](std::int64_t i) { launch(detail::sector_kernel<16>, 8, pieces(from), bytes / 32, n, salt(i), never_.data()); }});
  }

  /// Bytes a second of reading whole rows by ids and adding nothing up. `tables`: their first rows; `ids`: lists, in turn, of as many for each
  /// table, one table after the other. @pre a row is a multiple of 16 bytes, by a power of two up to 512 or a multiple of 512.
  double gather_rate(std::vector<void const*> const& tables, std::vector<gpu_buffer<std::int64_t>> const& ids, std::int64_t row_bytes) {
    if (tables.size() > detail::gathered_rows::most_tables || row_bytes % 16 != 0 || (row_bytes > 512 && row_bytes % 512 != 0)) return 0;
    std::vector<detail::gathered_rows> inputs;
    for (auto const& list : ids) {
      auto& rows = inputs.emplace_back();
      for (std::size_t t = 0; t < tables.size(); ++t) rows.tables[t] = static_cast<uint4 const*>(tables[t]);
      rows.ids = list.data();
      rows.count = list.size();
      rows.ids_a_table = list.size() / static_cast<std::int64_t>(tables.size());
      rows.lanes = static_cast<int>(std::min<std::int64_t>(row_bytes / 16, 32));
      rows.steps = static_cast<int>(row_bytes / 16) / rows.lanes;
    }
    auto const input = [&](std::int64_t i) -> detail::gathered_rows const& { return inputs[static_cast<std::size_t>(i) % inputs.size()]; };
    return static_cast<double>(inputs[0].count * row_bytes) /
           least({[&](std::int64_t i) { launch(detail::gather_kernel<4>, 8, input(i), never_.data()); },
                  [&](std::int64_t i) { launch(detail::gather_kernel<8>, 8, input(i), never_.data()); },
                  [&](std::int64_t i) { launch(detail::gather_kernel<4>, 64, input(i), never_.data()); }});
  }

  /// Seconds in which CUB sorts n pairs by the lower bits of keys below 2^bits. Workspace is taken once, and the keys come anew each time.
  template <class Key, class Value>
  double sort_seconds(std::int64_t n, int bits) {
    auto const drawn_keys = drawn<Key>(on_, n, std::int64_t{1} << bits, 5);
    gpu_buffer<Key> keys(on_.lasting, n), other_keys(on_.lasting, n);
    gpu_buffer<Value> values(on_.lasting, n), other_values(on_.lasting, n);
    on_.exec.fill(values.data(), 0, static_cast<std::size_t>(n) * sizeof(Value));
    auto const sort = [&](void* workspace, std::size_t& bytes) {
      cub::DoubleBuffer<Key> both_keys(keys.data(), other_keys.data());
      cub::DoubleBuffer<Value> both_values(values.data(), other_values.data());
      tessera::check_cuda(cub::DeviceRadixSort::SortPairs(workspace, bytes, both_keys, both_values, n, 0, bits, on_.exec.stream()),
                          "cub::DeviceRadixSort");
    };
    std::size_t bytes = 0;
    sort(nullptr, bytes);
    gpu_buffer<unsigned char> workspace(on_.lasting, static_cast<std::int64_t>(bytes) + 1);
    return on_
        .measure([&](std::int64_t) { on_.exec.copy(keys.data(), drawn_keys.data(), static_cast<std::size_t>(n) * sizeof(Key)); },
                 [&](std::int64_t) { sort(workspace.data(), bytes); })
        .median;
  }

  /// Bytes a second over the bus between pinned memory of the host and the device, by copies and by kernels.
  struct bus_rates {
    double read_by_copy = 0, read_by_kernel = 0, written_by_copy = 0, written_by_kernel = 0;
    double read() const { return std::max(read_by_copy, read_by_kernel); }
    double written() const { return std::max(written_by_copy, written_by_kernel); }
  };
  bus_rates bus() {
    auto const bytes = sized(std::int64_t{1} << 29);
    auto const size = static_cast<std::size_t>(bytes);
    gpu_buffer<unsigned char> there(on_.pinned, bytes), here(on_.lasting, bytes);
    on_.exec.fill(here.data(), 1, size);
    copy(there.data(), here.data(), size, cudaMemcpyDeviceToHost);
    auto const rate = [&](call const& run) { return static_cast<double>(bytes) / on_.measure(run).median; };
    return {rate([&](std::int64_t) { copy(here.data(), there.data(), size, cudaMemcpyHostToDevice); }),
            rate([&](std::int64_t) { launch(detail::read_kernel<4>, 8, pieces(there), bytes / 16, never_.data()); }),
            rate([&](std::int64_t) { copy(there.data(), here.data(), size, cudaMemcpyDeviceToHost); }),
            rate([&](std::int64_t) { launch(detail::copy_kernel<4>, 8, pieces(here), pieces(there), bytes / 16); })};
  }

 private:
  using call = std::function<void(std::int64_t)>;

  template <class Measure>
  static double kept(double& rate, Measure const& measure) {
    if (rate == 0) rate = measure();
    return rate;
  }
  double least(std::vector<call> const& variants) {
    double result = 1e300;
    for (auto const& variant : variants) result = std::min(result, on_.measure(variant).median);
    return result;
  }
  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, std::int64_t blocks_a_processor, Arguments... arguments) {
    kernel<<<detail::full_grid(on_, blocks_a_processor), detail::ceiling_threads, 0, on_.exec.stream()>>>(arguments...);
    tessera::check_cuda(cudaGetLastError(), "kernel launch");
  }
  void copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    tessera::check_cuda(cudaMemcpyAsync(to, from, bytes, kind, on_.exec.stream()), "cudaMemcpyAsync");
  }
  // Random contents: zeros can be faster.
  gpu_buffer<unsigned char> filled(std::int64_t bytes) {
    gpu_buffer<unsigned char> result(on_.lasting, bytes);
    auto* const words = reinterpret_cast<std::uint32_t*>(result.data());
    launch(detail::draw_kernel<std::uint32_t>, 8, words, bytes / 4, std::int64_t{1} << 32, std::uint64_t{3});
    return result;
  }
  static uint4 const* pieces(gpu_buffer<unsigned char> const& bytes) { return reinterpret_cast<uint4 const*>(bytes.data()); }
  static uint4* pieces(gpu_buffer<unsigned char>& bytes) { return reinterpret_cast<uint4*>(bytes.data()); }

  gpu& on_;
  gpu_buffer<unsigned> never_;
  double copy_ = 0, read_ = 0;
};

}  // namespace tessera_bench
