// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/synth/zipf.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "neighbours.hpp"

/// What is judged runs on these: all cores, memory that is kept between calls, ids drawn from a seed.
namespace tessera_bench {

namespace detail {
inline std::string kept_name;
inline std::shared_ptr<void> kept_inputs;
inline std::int64_t next_input = 0;
inline neighbour_watch kept_watch;
}  // namespace detail

/// Whether only to show that the programs run (`bootstrap.sh bench --smoke` says so): shapes are then a small part of the real ones.
inline bool smoke() {
  static bool const is_set = std::getenv("TESSERA_BENCH_SMOKE") != nullptr;
  return is_set;
}
/// A size of the real shape, or a small part of it when only smoke is asked for.
inline std::int64_t sized(std::int64_t n) { return smoke() ? std::max<std::int64_t>(n / 64, 1) : n; }

/// The inputs of the benchmark that runs, made when it first asks and gone when another does: Google Benchmark calls a function several times.
template <class Inputs, class Make>
Inputs& kept(std::string const& name, Make const& make) {
  static_assert(std::is_same_v<std::shared_ptr<Inputs>, decltype(make())>, "make() returns a std::shared_ptr<Inputs>");
  if (detail::kept_name != name) {
    detail::kept_inputs.reset();
    detail::kept_inputs = make();
    detail::kept_name = name;
    detail::next_input = 0;
    detail::kept_watch = {};
  }
  return *static_cast<Inputs*>(detail::kept_inputs.get());
}

/// Which of the kept inputs is next; to be counted up, so that a call goes on where the one before it stopped.
inline std::int64_t& next_input() { return detail::next_input; }

/// How many cores have worked for others since the inputs were made, or since this was last asked.
inline double cores_of_others() { return std::exchange(detail::kept_watch, neighbour_watch()).cores(); }

inline int all_threads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

/// Threads, memory, and an execution whose workspace is taken once and kept.
class machine {
 public:
  explicit machine(int threads = all_threads()) : team(threads), exec(team, memory), workspace(memory), step(exec.with_memory(workspace)) {}

  tessera::thread_pool team;
  tessera::system_memory memory;
  tessera::host_exec exec;
  tessera::arena<tessera::system_memory> workspace;
  tessera::host_exec step;
};

/// Bytes that the last level of cache may have: what the system says, but 256 MiB at least, since it may say less or more than there is.
inline std::int64_t cache_bytes() { return std::max(static_cast<std::int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE)), std::int64_t{1} << 28); }

/// How many batches to go round so that the rows they touch, repeated ones counted again, exceed four times the cache; 512 at most.
inline std::int64_t batches_past_cache(std::int64_t bytes_a_batch) {
  if (smoke()) return 2;
  return std::clamp<std::int64_t>(4 * cache_bytes() / std::max<std::int64_t>(bytes_a_batch, 1) + 1, 2, 512);
}

/// Independent numbers of a seed.
class draws {
 public:
  explicit draws(std::uint64_t seed) : seed_{seed} {}
  std::uint64_t bits() {
    auto const i = static_cast<int>(drawn_++ % 4);
    if (i == 0) block_ = tessera::philox(seed_, block_number_++, 0, 0);
    return block_[i];
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>((((bits() << 32) | bits()) >> 1) % static_cast<std::uint64_t>(n)); }
  double unit() { return static_cast<double>(((bits() << 32) | bits()) >> 11) * 0x1p-53; }

 private:
  tessera::random_seed seed_;
  std::uint64_t drawn_ = 0, block_number_ = 0;
  tessera::random_block block_{};
};

/// A batch of `keys` features of `samples` bags of `length` ids below `rows`; exponent 0: uniform, else Zipf with id 0 the most frequent.
struct id_batch {
  std::vector<std::int64_t> ids, offsets, first_row;

  id_batch(std::int64_t keys, std::int64_t samples, std::int64_t length, std::int64_t rows, double exponent, std::uint64_t seed) {
    draws draw(seed);
    tessera::zipf_distribution const zipf(rows, exponent);
    ids.reserve(static_cast<std::size_t>(keys * samples * length));
    for (std::int64_t i = 0; i < keys * samples * length; ++i)
      ids.push_back(exponent == 0 ? draw.below(rows) : zipf([&] { return draw.unit(); }));
    for (std::int64_t i = 0; i <= keys * samples; ++i) offsets.push_back(i * length);
    for (std::int64_t k = 0; k <= keys; ++k) first_row.push_back(k * samples);
  }

  tessera::keyed_jagged_view<std::int64_t const> view() const {
    return {ids.data(), nullptr, offsets.data(), first_row.data(), static_cast<std::int64_t>(first_row.size()) - 1};
  }
};

}  // namespace tessera_bench
