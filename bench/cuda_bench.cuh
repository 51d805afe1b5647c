// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <tessera/core/cuda_event.cuh>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/cuda_memory.cuh>

#include "inputs.hpp"

/// Programs that measure on a GPU: their arguments, their clock, and what they print. They need the CUDA Toolkit and nothing else.
namespace tessera_bench {

/// How long to measure. Names and meaning of the options are Google Benchmark's, as far as there are any.
struct cuda_bench_options {
  std::string filter = ".*";
  double least_seconds = 0.2;  // of one measurement
  int repetitions = 9;         // calls of one measurement, at least
  bool json = false, only_list = false;
};

/// Seconds of one call: the median, and the first and the last tenth.
struct call_seconds {
  double median = 0, low = 0, high = 0;
};

/// One GPU, its stream and its memories, and the clock. `exec`: workspace from the device's pool; `lasting`: memory of its own for tables and
/// inputs; `pinned`: the host's, which the GPU reads over the bus.
class gpu {
 public:
  explicit gpu(cuda_bench_options const& options)
      : device(0),
        device_memory(0),
        host_memory(0),
        stream(new_stream()),
        exec(device.on(stream)),
        lasting(exec.with_memory(device_memory)),
        pinned(exec.with_memory(host_memory)),
        options_(options) {}
  gpu(gpu const&) = delete;
  gpu& operator=(gpu const&) = delete;
  ~gpu() { (void)cudaStreamDestroy(stream); }

  tessera::cuda_device device;
  tessera::cuda_memory device_memory;
  tessera::pinned_memory host_memory;
  cudaStream_t stream;
  tessera::cuda_exec exec, lasting, pinned;

  std::int64_t attribute(cudaDeviceAttr which) const {
    int value = 0;
    tessera::check_cuda(cudaDeviceGetAttribute(&value, which, device.ordinal()), "cudaDeviceGetAttribute");
    return value;
  }
  std::int64_t processors() const { return attribute(cudaDevAttrMultiProcessorCount); }
  std::int64_t cache_bytes() const { return attribute(cudaDevAttrL2CacheSize); }

  /// How many inputs to go round so that what they touch exceeds four times the last cache; 64 at most.
  std::int64_t inputs_past_cache(std::int64_t bytes_an_input) const {
    if (smoke()) return 2;
    return std::clamp<std::int64_t>(4 * cache_bytes() / std::max<std::int64_t>(bytes_an_input, 1) + 1, 2, 64);
  }

  /// Seconds of run(i), i = 0, 1, …, each call between two events of the stream, calls enqueued one behind the other; prepare(i) goes before
  /// each and is not counted. @throws tessera::error what kernels found wrong.
  template <class Prepare, class Run>
  call_seconds measure(Prepare const& prepare, Run const& run) {
    std::int64_t next = 0;
    auto const calls = [&](std::int64_t count) {
      std::vector<std::pair<tessera::cuda_event, tessera::cuda_event>> events;
      for (std::int64_t i = 0; i < count; ++i)
        events.emplace_back(tessera::cuda_event(device, {.timed = true}), tessera::cuda_event(device, {.timed = true}));
      for (auto& [begin, end] : events) {
        prepare(next);
        begin.record(exec);
        run(next++);
        end.record(exec);
      }
      exec.synchronize();
      std::vector<double> seconds;
      for (auto const& [begin, end] : events) seconds.push_back(1e-3 * static_cast<double>(end.elapsed_ms(begin)));
      std::sort(seconds.begin(), seconds.end());
      return seconds;
    };
    auto const at_part = [](std::vector<double> const& seconds, std::size_t tenths) { return seconds[(seconds.size() - 1) * tenths / 10]; };
    if (smoke()) {
      auto const seconds = calls(2);
      return {at_part(seconds, 5), at_part(seconds, 1), at_part(seconds, 9)};
    }
    // Clocks rise while the first calls run.
    auto const one = std::max(at_part(calls(3), 5), 1e-6);
    auto const count_for = [&](double least, int calls_at_least) {
      return std::clamp<std::int64_t>(static_cast<std::int64_t>(least / one), calls_at_least, 2000);
    };
    (void)calls(count_for(0.05, 1));
    auto const seconds = calls(count_for(options_.least_seconds, options_.repetitions));
    return {at_part(seconds, 5), at_part(seconds, 1), at_part(seconds, 9)};
  }
  template <class Run>
  call_seconds measure(Run const& run) {
    return measure([](std::int64_t) {}, run);
  }

 private:
  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    tessera::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }

  cuda_bench_options options_;
};

/// What one benchmark found: seconds of a call; the bytes that it must move and the seconds that they, and what else it must do, cost at the
/// rates measured in this process; the rate of a copy, by which a busy GPU is told from a quiet one; and other numbers by name.
struct cuda_report {
  call_seconds seconds;
  double bytes = 0, seconds_at_ceiling = 0, machine = 0;
  std::vector<std::pair<std::string, double>> counters;
};

namespace detail {

// Cycles and nanoseconds of a few milliseconds of work on one processor.
__global__ void count_cycles(long long* cycles, unsigned long long* nanoseconds) {
  unsigned long long start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  auto const first = clock64();
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < 5'000'000);
  *cycles = clock64() - first;
  *nanoseconds = now - start;
}

/// Megahertz of the processors as they run now.
inline double clock_as_found(gpu& on) {
  tessera::buffer<long long, tessera::cuda_exec> cycles(on.exec, 1);
  tessera::buffer<unsigned long long, tessera::cuda_exec> nanoseconds(on.exec, 1);
  for (int warm = 0; warm < 4; ++warm) count_cycles<<<1, 1, 0, on.exec.stream()>>>(cycles.data(), nanoseconds.data());
  tessera::check_cuda(cudaGetLastError(), "count_cycles");
  auto const counted = static_cast<double>(tessera::read_one(on.exec, cycles.data()));
  return 1e3 * counted / static_cast<double>(tessera::read_one(on.exec, nanoseconds.data()));
}

inline std::string quoted(std::string const& text) {
  std::string result = "\"";
  for (char const c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return value == value && value < 1e300 && value > -1e300 ? text : "null";
}

}  // namespace detail

/// A program of benchmarks, run one after the other: its arguments, and what it prints. One that fails is told, and the others run.
class cuda_program {
 public:
  cuda_program(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) read(argv[i]);
  }

  void add(std::string name, std::function<cuda_report(gpu&)> run) { benchmarks_.emplace_back(std::move(name), std::move(run)); }

  /// What main returns: 0; 1 where one failed; 2 for arguments that are none; 77, and says so, where there is no GPU.
  int run() {
    if (!unknown_.empty()) {
      std::cerr << "no such option: " << unknown_
                << "; there are --benchmark_filter=REGEX --benchmark_format=console|json --benchmark_min_time=SECONDS "
                   "--benchmark_repetitions=N --benchmark_list_tests --smoke\n";
      return 2;
    }
    if (options_.only_list) {
      for (auto const& [name, run] : benchmarks_) std::cout << name << '\n';
      return 0;
    }
    int devices = 0;
    if (auto const status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
      std::cerr << "SKIPPED: there is no GPU: " << cudaGetErrorString(status) << '\n';
      return 77;
    }
    try {
      return run_on_gpu();
    } catch (std::exception const& failure) {
      std::cerr << "failed: " << failure.what() << '\n';
      return 1;
    }
  }

 private:
  void read(std::string const& argument) {
    auto const is = [&](std::string const& option) { return argument.rfind(option, 0) == 0; };
    auto const value = argument.substr(std::min(argument.size(), argument.find('=') + 1));
    if (is("--benchmark_filter="))
      options_.filter = value;
    else if (is("--benchmark_format="))
      options_.json = value == "json";
    else if (is("--benchmark_min_time="))
      options_.least_seconds = std::strtod(value.c_str(), nullptr);
    else if (is("--benchmark_repetitions="))
      options_.repetitions = std::max(1, std::atoi(value.c_str()));
    else if (argument == "--benchmark_list_tests" || argument == "--benchmark_list_tests=true")
      options_.only_list = true;
    else if (argument == "--smoke")
      (void)setenv("TESSERA_BENCH_SMOKE", "1", 1);
    else
      unknown_ = argument;
  }

  int run_on_gpu() {
    gpu on(options_);
    std::regex const wanted(options_.filter);
    std::string records;
    int failed = 0;
    auto const context = describe(on);
    if (!options_.json) std::cout << context << std::endl;
    for (auto const& [name, run] : benchmarks_) {
      if (!std::regex_search(name, wanted)) continue;
      std::string record;
      try {
        auto const found = run(on);
        record = json_of(name, found);
        if (!options_.json) print(name, found);
      } catch (std::exception const& failure) {
        ++failed;
        record = "{\"name\": " + detail::quoted(name) + ", \"run_name\": " + detail::quoted(name) +
                 ", \"error_occurred\": true, \"error_message\": " + detail::quoted(failure.what()) + "}";
        std::cerr << name << ": failed: " << failure.what() << std::endl;
      }
      records += (records.empty() ? "" : ",\n  ") + record;
    }
    if (options_.json) std::cout << "{\"context\": " << context << ",\n \"benchmarks\": [\n  " << records << "\n ]}" << std::endl;
    return failed == 0 ? 0 : 1;
  }

  static std::string describe(gpu& on) {
    cudaDeviceProp properties{};
    tessera::check_cuda(cudaGetDeviceProperties(&properties, on.device.ordinal()), "cudaGetDeviceProperties");
    int driver = 0, runtime = 0;
    tessera::check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    tessera::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    auto const as_number = [](auto value) { return detail::number(static_cast<double>(value)); };
    return "{\"gpu\": " + detail::quoted(properties.name) + ", \"memory_bytes\": " + as_number(properties.totalGlobalMem) +
           ", \"processors\": " + as_number(on.processors()) + ", \"cache_bytes\": " + as_number(on.cache_bytes()) +
           ", \"most_mhz\": " + as_number(on.attribute(cudaDevAttrClockRate) / 1000) +
           ", \"memory_mhz\": " + as_number(on.attribute(cudaDevAttrMemoryClockRate) / 1000) +
           ", \"mhz_as_found\": " + detail::number(detail::clock_as_found(on)) + ", \"cuda_of_driver\": " + as_number(driver) +
           ", \"cuda_runtime\": " + as_number(runtime) + ", \"smoke\": " + (smoke() ? "true" : "false") + "}";
  }

  static std::string json_of(std::string const& name, cuda_report const& r) {
    std::string text = "{\"name\": " + detail::quoted(name + "_median") + ", \"run_name\": " + detail::quoted(name) +
                       ", \"aggregate_name\": \"median\", \"time_unit\": \"ms\"";
    auto const field = [&](std::string const& key, double value) { text += ", " + detail::quoted(key) + ": " + detail::number(value); };
    field("real_time", 1e3 * r.seconds.median);
    field("low", 1e3 * r.seconds.low);
    field("high", 1e3 * r.seconds.high);
    field("bytes", r.bytes);
    field("bytes_per_second", r.bytes / r.seconds.median);
    field("seconds_at_ceiling", r.seconds_at_ceiling);
    field("ceiling_fraction", r.seconds_at_ceiling / r.seconds.median);
    field("machine", r.machine);
    for (auto const& [key, value] : r.counters) field(key, value);
    return text + "}";
  }

  static void print(std::string const& name, cuda_report const& r) {
    std::printf("%-34s %10.4f ms [%.4f, %.4f]  %8.1f GB/s  %5.2f of the ceiling  machine %.1f GB/s", name.c_str(), 1e3 * r.seconds.median,
                1e3 * r.seconds.low, 1e3 * r.seconds.high, 1e-9 * r.bytes / r.seconds.median, r.seconds_at_ceiling / r.seconds.median,
                1e-9 * r.machine);
    for (auto const& [key, value] : r.counters) std::printf("  %s %.4g", key.c_str(), value);
    std::printf("\n");
    std::fflush(stdout);
  }

  cuda_bench_options options_;
  std::string unknown_;
  std::vector<std::pair<std::string, std::function<cuda_report(gpu&)>>> benchmarks_;
};

}  // namespace tessera_bench
