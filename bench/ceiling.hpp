// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>

#include "inputs.hpp"

/// What the machine can do at best, measured in the process that is being judged, on the threads and the memory that are judged.
namespace tessera_bench {

/// Seconds of the fastest of `rounds` calls.
template <class F>
double fastest(int rounds, F const& f) {
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) {
    auto const start = std::chrono::steady_clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// FLOP/s of square products of 1,024 by the policy, each thread one of its own at a time.
template <tessera::gemm_policy Gemm>
double gemm_rate(tessera::host_exec const& exec, Gemm const& gemm) {
  auto const n = smoke() ? std::int64_t{64} : std::int64_t{1024};
  auto const threads = static_cast<std::int64_t>(exec.threads());
  std::vector<float> const a(static_cast<std::size_t>(n * n), 0.5F), b(static_cast<std::size_t>(n * n), 0.25F);
  std::vector<float> c(static_cast<std::size_t>(threads * n * n));
  auto const workspace = tessera::divide_up(gemm.workspace(n, n, n), 16) * 16;
  tessera::buffer<float> workspaces(exec, threads * workspace);
  auto const seconds = fastest(5, [&] {
    exec.run(threads, [&](std::int64_t t) {
      gemm.multiply(tessera::matrix_view<float const>{a.data(), n, n}, tessera::matrix_view<float const>{b.data(), n, n},
                    {c.data() + t * n * n, n, n}, workspaces.data() + t * workspace);
    });
  });
  return 2.0 * static_cast<double>(n * n * n * threads) / seconds;
}

/// What products can reach: the better of the policy's rate and Eigen's.
template <tessera::gemm_policy Gemm>
double gemm_ceiling(tessera::host_exec const& exec, Gemm const& gemm) {
  return std::max(gemm_rate(exec, gemm), gemm_rate(exec, tessera::eigen_gemm{}));
}

/// Runs f(first, last) on equal parts of 0 … count, one a thread.
template <class F>
void split_evenly(tessera::host_exec const& exec, std::int64_t count, F const& f) {
  auto const threads = static_cast<std::int64_t>(exec.threads());
  exec.run(threads, [&](std::int64_t t) { f(count * t / threads, count * (t + 1) / threads); });
}

/// Bytes a second of memcpy between two arrays of 256 MiB, those read and those written counted.
inline double copy_ceiling(tessera::host_exec const& exec) {
  auto const bytes = sized(std::int64_t{1} << 28);
  tessera::buffer<char> from(exec, bytes), to(exec, bytes);
  split_evenly(exec, bytes, [&](std::int64_t first, std::int64_t last) {
    std::memset(from.data() + first, 1, static_cast<std::size_t>(last - first));
    std::memset(to.data() + first, 2, static_cast<std::size_t>(last - first));
  });
  auto const seconds = fastest(5, [&] {
    split_evenly(exec, bytes, [&](std::int64_t first, std::int64_t last) {
      std::memcpy(to.data() + first, from.data() + first, static_cast<std::size_t>(last - first));
      benchmark::DoNotOptimize(to.data());
      benchmark::ClobberMemory();
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

namespace detail {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // that other flags pass the sums otherwise: all who call are in one program
#endif

// What the sums cost beside reading the rows is hidden under the reading: 16 of them, over all rows, passed by value to stay in registers.
using sums_of_16 [[gnu::vector_size(64)]] = float;

inline sums_of_16 add_to_sums(float const* row, std::int64_t dim, sums_of_16 sums) {
  std::int64_t c = 0;
  for (; c + 16 <= dim; c += 16) {
    sums_of_16 some;
    std::memcpy(&some, row + c, sizeof some);
    sums += some;
  }
  for (; c < dim; ++c) sums[0] += row[c];
  return sums;
}

inline sums_of_16 add_to_row(float* row, std::int64_t dim, sums_of_16 sums) {
  for (std::int64_t c = 0; c < dim; ++c) row[c] += 1e-9F;
  return sums;
}

// Seconds of one visit of all rows, asked for so far ahead into the first level of cache (3) or the second (2).
template <int Level, class Visit>
double visit_seconds(tessera::host_exec const& exec, std::vector<float*> const& rows, std::int64_t dim, std::int64_t distance,
                     Visit const& visit) {
  return fastest(3, [&] {
    split_evenly(exec, static_cast<std::int64_t>(rows.size()), [&](std::int64_t first, std::int64_t last) {
      sums_of_16 sums{};
      for (auto r = first; r < last; ++r) {
        if (distance > 0 && r + distance < last) {
          auto const* const ahead = reinterpret_cast<char const*>(rows[static_cast<std::size_t>(r + distance)]);
          for (std::int64_t byte = 0; byte < dim * 4; byte += 64) __builtin_prefetch(ahead + byte, 0, Level);
        }
        sums = visit(rows[static_cast<std::size_t>(r)], dim, sums);
      }
      float result = 0;  // of the sums themselves the address is never known, or a row might hold them
      for (int i = 0; i < 16; ++i) result += sums[i];
      benchmark::DoNotOptimize(result);
    });
  });
}

// The best of the prefetch distances and levels, in bytes a second of `bytes_a_row` for each of the rows.
template <class Visit>
double best_distance(tessera::host_exec const& exec, std::vector<float*> const& rows, std::int64_t dim, std::int64_t bytes_a_row,
                     Visit const& visit) {
  auto least = visit_seconds<3>(exec, rows, dim, 0, visit);
  for (std::int64_t const distance : {4, 8, 16, 32})
    least = std::min({least, visit_seconds<3>(exec, rows, dim, distance, visit), visit_seconds<2>(exec, rows, dim, distance, visit)});
  return static_cast<double>(rows.size()) * static_cast<double>(bytes_a_row) / least;
}

}  // namespace detail

/// Bytes a second of reading rows of `dim` floats wherever they are, at the prefetch distance that suits this machine best.
/// `rows`: their addresses, in the order in which they are read; those of the tables that are judged.
inline double gather_ceiling(tessera::host_exec const& exec, std::vector<float*> const& rows, std::int64_t dim) {
  return detail::best_distance(exec, rows, dim, dim * 4,
                               [](float const* row, std::int64_t d, auto sums) { return detail::add_to_sums(row, d, sums); });
}

/// Bytes a second of reading 256 MiB from one end to the other.
inline double read_ceiling(tessera::host_exec const& exec) {
  constexpr std::int64_t dim = 1024;
  tessera::buffer<float> values(exec, sized(std::int64_t{1} << 26) / dim * dim);
  for_each_piece(exec, values.size(), dim,
                 [&](std::int64_t first, std::int64_t last) { std::fill(&values[first], &values[last - 1] + 1, 1.0F); });
  std::vector<float*> rows;
  for (std::int64_t first = 0; first < values.size(); first += dim) rows.push_back(&values[first]);
  return gather_ceiling(exec, rows, dim);
}

/// The same for rows that are read and written: both are counted. No row may stand in `rows` twice. Adds a billionth to each element.
inline double update_ceiling(tessera::host_exec const& exec, std::vector<float*> const& rows, std::int64_t dim) {
  return detail::best_distance(exec, rows, dim, dim * 8,
                               [](float* row, std::int64_t d, auto sums) { return detail::add_to_row(row, d, sums); });
}

/// What each benchmark reports beside its time: `bytes` an iteration, the seconds they cost at the machine's ceilings over those that the
/// iteration took (`ceiling_fraction`), and what it took from its workspace. Another `rate` than that of bytes where other work is counted.
inline void report(benchmark::State& state, double bytes, double seconds_at_ceiling, double workspace_bytes,
                   char const* rate = "bytes_per_second") {
  auto const iterations = static_cast<double>(state.iterations());
  state.counters[rate] = benchmark::Counter(bytes * iterations, benchmark::Counter::kIsRate);
  state.counters["ceiling_fraction"] = benchmark::Counter(seconds_at_ceiling * iterations, benchmark::Counter::kIsRate);
  state.counters["workspace_bytes"] = workspace_bytes;
}

/// The rate by which a reader tells a quiet machine from a busy one: that of a copy, unless what is judged does arithmetic.
inline void report_machine(benchmark::State& state, double rate) { state.counters["machine"] = rate; }

}  // namespace tessera_bench
