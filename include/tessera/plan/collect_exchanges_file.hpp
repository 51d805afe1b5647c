// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/measuring_clock.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Measures exchanges 0 … count - 1 between all ranks, as `collect_exchange_samples` and `measure_exchange` say. All ranks call it, with the
/// same `count` and `repeat`. Rank 0 alone has the file, calls `draw`, and gets the samples; other ranks return none.
/// @throws tessera::error as those; where rank 0 refuses its file, all ranks throw: others rank_failed.
template <communicator C, measuring_clock Clock, class Draw>
std::vector<exchange_sample> collect_exchanges(host_exec const& exec, C& comm, Clock& clock, std::string const& path,
                                               std::string const& about, std::int64_t count, Draw const& draw,
                                               repetition const& repeat = {});
/// As above between devices, as `measure_exchange` has them: `host` is of the same ranks, on the host.
template <communicator H, communicator C, measuring_clock Clock, class Draw>
std::vector<exchange_sample> collect_exchanges(host_exec const& exec, H& host, typename C::execution_type const& device, C& comm,
                                               Clock& clock, std::string const& path, std::string const& about, std::int64_t count,
                                               Draw const& draw, repetition const& repeat = {});

namespace detail {

// `measure(exchange)` is called by all ranks of `comm`.
template <communicator C, class Draw, class Measure>
std::vector<exchange_sample> collect_from_ranks(host_exec const& exec, C& comm, std::string const& path, std::string const& about,
                                                std::int64_t count, Draw const& draw, Measure const& measure) {
  auto const ranks = static_cast<std::size_t>(comm.size());
  // Whether there is an exchange, its samples, dims and starts.
  std::vector<double> next(2 + 2 * ranks);
  auto const tell = [&] { broadcast(exec, comm, vector_view<double>(next), 0); };
  std::vector<exchange_sample> samples;
  std::exception_ptr failure;
  if (comm.rank() != 0) {
    for (tell(); next[0] != 0; tell()) {
      exchange_case of;
      of.batch_samples = static_cast<std::int64_t>(next[1]);
      for (std::size_t r = 0; r < ranks; ++r) {
        of.dims.push_back(static_cast<std::int64_t>(next[2 + r]));
        of.start_ms.push_back(next[2 + ranks + r]);
      }
      measure(of);
    }
  } else {
    bool ranks_are_told = false;
    try {
      samples = collect_exchange_samples(path, about, count, draw, [&](exchange_case const& of) {
        check_exchange_case(of, comm.size());
        next[0] = 1, next[1] = static_cast<double>(of.batch_samples);
        for (std::size_t r = 0; r < ranks; ++r) next[2 + r] = static_cast<double>(of.dims[r]), next[2 + ranks + r] = of.start_ms[r];
        ranks_are_told = true;
        tell();
        auto times = measure(of);
        ranks_are_told = false;
        return times;
      });
    } catch (...) {
      if (ranks_are_told) throw;  // between two messages: ranks are out of step
      failure = std::current_exception();
    }
    next[0] = 0;
    tell();
  }
  barrier(exec, comm, "collect_exchanges: the end", failure);
  return samples;
}

}  // namespace detail

template <communicator C, measuring_clock Clock, class Draw>
std::vector<exchange_sample> collect_exchanges(host_exec const& exec, C& comm, Clock& clock, std::string const& path,
                                               std::string const& about, std::int64_t count, Draw const& draw, repetition const& repeat) {
  return detail::collect_from_ranks(exec, comm, path, about, count, draw,
                                    [&](exchange_case const& of) { return measure_exchange(exec, comm, clock, of, repeat); });
}

template <communicator H, communicator C, measuring_clock Clock, class Draw>
std::vector<exchange_sample> collect_exchanges(host_exec const& exec, H& host, typename C::execution_type const& device, C& comm,
                                               Clock& clock, std::string const& path, std::string const& about, std::int64_t count,
                                               Draw const& draw, repetition const& repeat) {
  return detail::collect_from_ranks(exec, host, path, about, count, draw,
                                    [&](exchange_case const& of) { return measure_exchange(exec, host, device, comm, clock, of, repeat); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
