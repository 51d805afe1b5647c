// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/measuring_clock.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// An exchange of pooled vectors, to be measured.
struct exchange_case {
  std::vector<std::int64_t> dims;       ///< (ranks,): the sum of the dims of each rank's tables
  std::vector<double> start_ms;         ///< (ranks,): how much later than the first each rank begins its forward
  std::int64_t batch_samples = 65'536;  ///< of all ranks together; each has its share of them

  friend bool operator==(exchange_case const&, exchange_case const&) = default;
};

/// What an exchange cost each rank, (ranks,) each.
struct exchange_times {
  std::vector<double> forward_ms, backward_ms;

  friend bool operator==(exchange_times const&, exchange_times const&) = default;
};

/// Measures an exchange between all ranks, forward and backward, and tells all ranks the same times. All ranks call it, alike.
///
/// In the forward each rank sends every rank, itself too, the vectors of its share of the samples: floats (samples of the receiver, dims of
/// the sender). In the backward the same matrices go back. A barrier comes before each run, then every rank waits for its start; backwards
/// start together. The cost of a rank is the time from its own start until all that it awaits has arrived, by its own clock. So it has in it
/// the waiting for ranks that start later, and start + cost is when the rank goes on; no barrier is part of it. Of each rank the median of
/// the runs counts. Samples that do not divide go to the first ranks.
///
/// @throws tessera::error shape_mismatch for other than one dim and one start a rank; invalid_argument for a negative dim, a negative
/// number of samples, a start that is negative or not finite, and options that cannot be; and as `communicator` says.
template <communicator C, measuring_clock Clock>
exchange_times measure_exchange(host_exec const& exec, C& comm, Clock& clock, exchange_case const& of, repetition const& repeat = {});

/// As above between devices: vectors go by `comm`; barriers and times by `host`, of the same ranks. The clock is read when the device has
/// done its work. @throws tessera::error also as `device` says; incompatible on each rank that `host` numbers otherwise than `comm`, and then
/// rank_failed on the others.
template <communicator H, communicator C, measuring_clock Clock>
exchange_times measure_exchange(host_exec const& exec, H& host, typename C::execution_type const& device, C& comm, Clock& clock,
                                exchange_case const& of, repetition const& repeat = {});

namespace detail {

inline void check_exchange_case(exchange_case const& of, std::int64_t ranks) {
  auto const expect = [&](char const* what, std::size_t found) {
    if (static_cast<std::int64_t>(found) != ranks)
      throw error(errc::shape_mismatch, std::string("measure_exchange: one number a rank of ") + what, {{what, found}, {"ranks", ranks}});
  };
  expect("dims", of.dims.size());
  expect("start_ms", of.start_ms.size());
  if (of.batch_samples < 0)
    throw error(errc::invalid_argument, "measure_exchange: a negative number of samples", {{"batch_samples", of.batch_samples}});
  for (std::size_t r = 0; r < of.dims.size(); ++r) {
    if (of.dims[r] < 0) throw error(errc::invalid_argument, "measure_exchange: a negative dim", {{"rank", r}, {"dim", of.dims[r]}});
    if (!(of.start_ms[r] >= 0) || !std::isfinite(of.start_ms[r]))
      throw error(errc::invalid_argument, "measure_exchange: a start that is negative or not finite",
                  {{"rank", r}, {"start_ms", of.start_ms[r]}});
  }
}

// What one rank sends and awaits in an exchange: a number of floats from and to each rank.
template <execution Exec>
class measured_messages {
 public:
  measured_messages(Exec const& exec, std::vector<std::int64_t> const& sent, std::vector<std::int64_t> const& awaited) {
    std::int64_t most = 0;
    for (auto const floats : sent) most = std::max(most, floats);
    floats_.resize(exec, most);
    if constexpr (!device_execution<Exec>) std::fill(floats_.begin(), floats_.end(), 1.0F);
    for (std::size_t r = 0; r < sent.size(); ++r) {
      send_.push_back({static_cast<int>(r), message_bytes(floats_.view().slice(0, sent[r]))});
      receive_.push_back({static_cast<int>(r), awaited[r] * static_cast<std::int64_t>(sizeof(float))});
    }
  }
  exchange_messages messages(char const* operation) const noexcept { return {send_, receive_, operation}; }

 private:
  buffer<float, Exec> floats_;  // each message has its first floats
  std::vector<sent_message> send_;
  std::vector<awaited_message> receive_;
};

template <communicator H, communicator C, class Clock>
double measured_ms(host_exec const& exec, H& host, typename C::execution_type const& on, C& comm, Clock& clock,
                   exchange_messages const& messages, typename C::pending_type& pending, double start_ms, repetition const& repeat) {
  std::vector<double> times;
  for (std::int64_t run = -repeat.warm_up; run < repeat.runs; ++run) {
    barrier(exec, host, "measure_exchange: barrier");
    if (start_ms > 0) clock.wait(start_ms / 1000);
    auto const start = clock.now();
    comm.begin(on, messages, pending);
    comm.finish(on, pending);
    if constexpr (device_execution<typename C::execution_type>) on.synchronize();
    auto const took_ms = (clock.now() - start) * 1000;
    if (run >= 0) times.push_back(took_ms);
  }
  return median_of(std::move(times));
}

}  // namespace detail

template <communicator C, measuring_clock Clock>
exchange_times measure_exchange(host_exec const& exec, C& comm, Clock& clock, exchange_case const& of, repetition const& repeat) {
  static_assert(!device_execution<typename C::execution_type>,
                "between devices, barriers and times need a communicator of the host, before the device's execution and communicator");
  return measure_exchange(exec, comm, exec, comm, clock, of, repeat);
}

template <communicator H, communicator C, measuring_clock Clock>
exchange_times measure_exchange(host_exec const& exec, H& host, typename C::execution_type const& device, C& comm, Clock& clock,
                                exchange_case const& of, repetition const& repeat) {
  auto const ranks = std::int64_t{comm.size()}, own = std::int64_t{comm.rank()};
  if constexpr (device_execution<typename C::execution_type>) {
    std::exception_ptr failure;
    if (host.size() != comm.size() || host.rank() != comm.rank())
      failure = std::make_exception_ptr(
          error(errc::incompatible, "measure_exchange: the communicators of host and device number their ranks differently",
                {{"host_rank", host.rank()}, {"host_ranks", host.size()}, {"device_rank", own}, {"device_ranks", ranks}}));
    barrier(exec, host, "measure_exchange: ranks", failure);
  }
  detail::check_exchange_case(of, ranks);
  repeat.check("measure_exchange");
  auto const samples_of = [&](std::int64_t rank) { return of.batch_samples / ranks + (rank < of.batch_samples % ranks); };
  auto const dim_of = [&](std::int64_t rank) { return of.dims[static_cast<std::size_t>(rank)]; };
  std::vector<std::int64_t> vectors, gradients;  // of this rank's tables, and of its samples
  for (std::int64_t r = 0; r < ranks; ++r) {
    vectors.push_back(samples_of(r) * dim_of(own));
    gradients.push_back(samples_of(own) * dim_of(r));
  }
  double times[2] = {};
  {
    detail::measured_messages<typename C::execution_type> const sent(device, vectors, gradients), back(device, gradients, vectors);
    typename C::pending_type pending;
    times[0] = detail::measured_ms(exec, host, device, comm, clock, sent.messages("measure_exchange: forward"), pending,
                                   of.start_ms[static_cast<std::size_t>(own)], repeat);
    times[1] = detail::measured_ms(exec, host, device, comm, clock, back.messages("measure_exchange: backward"), pending, 0, repeat);
  }
  exchange_times result;
  typename H::pending_type pending;
  for (auto const& of_rank : all_gather<double>(exec, host, {times, 2}, pending, "measure_exchange: times")) {
    result.forward_ms.push_back(of_rank[0]);
    result.backward_ms.push_back(of_rank[1]);
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
