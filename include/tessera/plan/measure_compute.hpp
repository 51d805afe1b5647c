// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__linux__)
#include <unistd.h>
#endif

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/borrowed_table.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table of floats, or a shard of one, whose step is to be measured, with the ids of a batch.
struct measured_table {
  std::int64_t rows = 0, dim = 0;
  vector_view<std::int64_t const> ids;      ///< of all bags, one after the other, in [0, rows)
  vector_view<std::int64_t const> lengths;  ///< (bags,)
};

/// What a training step of some tables takes, without exchanges. Each is a median, so that the parts need not add up to the whole.
struct compute_times {
  double forward_ms = 0;   ///< lookup and pooling
  double backward_ms = 0;  ///< gradients of rows, and their update
  double step_ms = 0;      ///< both, one after the other

  friend bool operator==(compute_times const&, compute_times const&) = default;
};

namespace detail {

/// The largest cache that Linux lists in a folder of `indexN/size`, as `32768K`; 0 where it lists none.
inline std::int64_t largest_cache(std::string const& folder) {
  std::int64_t most = 0;
  for (int index = 0;; ++index) {
    std::ifstream file(folder + "/index" + std::to_string(index) + "/size");
    std::int64_t size = 0;
    if (!(file >> size)) return most;
    auto const unit = file.get();
    most = std::max(most, size << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0));
  }
}

// What the C library takes for the last level of cache: on some processors the parts of all cores together. 0 where it does not know.
inline std::int64_t system_cache_bytes() noexcept {
  std::int64_t bytes = 0;
#if defined(__linux__) && defined(_SC_LEVEL3_CACHE_SIZE)
  for (int const level : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE})
    bytes = std::max(bytes, static_cast<std::int64_t>(::sysconf(level)));
#endif
  return bytes;
}

}  // namespace detail

/// The bytes of the last level of cache that a processor reaches, not of all sockets; 32 MiB where the system does not tell.
/// @throws std::bad_alloc
inline std::int64_t last_cache_bytes() {
#if defined(__linux__)
  if (auto const bytes = detail::largest_cache("/sys/devices/system/cpu/cpu0/cache"); bytes > 0) return bytes;
#endif
  auto const bytes = detail::system_cache_bytes();
  return bytes > 0 ? bytes : std::int64_t{32} << 20;
}

namespace detail {

// What drives all else out of the caches: twice what one processor reaches, or where there may be several, or a device, twice what all do.
template <execution Exec>
std::int64_t flush_bytes(Exec const& exec) {
  if constexpr (std::same_as<Exec, host_exec>)
    if (exec.threads() == 1) return 2 * last_cache_bytes();
  static_cast<void>(exec);
  return 2 * std::max(last_cache_bytes(), system_cache_bytes());
}

struct compute_bench_tag {};
inline constexpr std::int64_t floats_of_line = 16;  // of a cache

// What the memory of a bench needs of an execution.
template <>
struct back_end<compute_bench_tag, host_exec> {
  static void fill(host_exec const& exec, vector_view<float> floats, float value) {
    for_each_piece(exec, floats.size(), 1 << 20,
                   [&](std::int64_t first, std::int64_t last) { std::fill(floats.begin() + first, floats.begin() + last, value); });
  }
  static void touch_lines(host_exec const& exec, vector_view<float> floats) {
    for_each_piece(exec, floats.size(), 1 << 15, [&](std::int64_t first, std::int64_t last) {
      for (auto i = first; i < last; i += floats_of_line) floats[i] = -floats[i];
    });
  }
  static void wait(host_exec const&) noexcept {}
  static buffer<std::int64_t> copy_of(host_exec const& exec, std::vector<std::int64_t> const& values) {
    buffer<std::int64_t> copy(exec, static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), copy.begin());
    return copy;
  }
};

}  // namespace detail

/// Memory that is larger than the caches, to drive everything else out of them.
template <execution Exec = host_exec>
class cache_flush {
 public:
  /// Makes so many bytes; without a number as many as flush, as `compute_bench`. @throws tessera::error as `buffer`.
  explicit cache_flush(Exec const& exec) : cache_flush(exec, detail::flush_bytes(exec)) {}
  cache_flush(Exec const& exec, std::int64_t bytes) : floats_(exec, bytes / 4) { back_end::fill(exec, floats_.view(), 1.0F); }
  /// Reads and writes each line of it, on all threads.
  void operator()(Exec const& exec) noexcept(!checks_indices && !device_execution<Exec>) { back_end::touch_lines(exec, floats_.view()); }
  std::size_t bytes() const noexcept { return floats_.capacity_bytes(); }

 private:
  using back_end = detail::back_end<detail::compute_bench_tag, Exec>;
  buffer<float, Exec> floats_;
};

/// Measures training steps of combinations of tables, which lie in one arena from measurement to measurement. On a device, it waits for all
/// work before it reads the clock.
template <execution Exec = host_exec>
class compute_bench {
 public:
  /// Makes an arena of so many bytes, all of whose pages are there. `flush_bytes` are more than the execution's caches
  /// hold; the default is twice the cache that a processor of the host reaches, where there is one thread, else twice all of the host's.
  /// @throws tessera::error invalid_argument for a negative number; out_of_memory.
  compute_bench(Exec const& exec, std::int64_t arena_bytes) : compute_bench(exec, arena_bytes, detail::flush_bytes(exec)) {}
  compute_bench(Exec const& exec, std::int64_t arena_bytes, std::int64_t flush_bytes)
      : arena_(exec, arena_bytes < 0 ? arena_bytes : arena_bytes / static_cast<std::int64_t>(sizeof(float))), flush_(exec, flush_bytes) {
    back_end::fill(exec, arena_.view(), 1.0F);
  }

  std::size_t bytes() const noexcept { return arena_.capacity_bytes() + flush_.bytes(); }
  /// All of the arena, in the execution's memory: ones, except where states were.
  vector_view<float const> arena() const noexcept { return arena_.view(); }

  /// The bytes of the arena that tables of these shapes take, with the states of this optimizer.
  template <row_optimizer Optimizer>
  static std::int64_t bytes_for(vector_view<measured_table const> tables, Optimizer const& optimizer) noexcept(!checks_indices) {
    auto const layout = row_state_layout::of(optimizer);
    std::int64_t floats = 0;
    for (auto const& t : tables) floats += rounded(t.rows * t.dim) + rounded(t.rows * layout.width(t.dim));
    return floats * static_cast<std::int64_t>(sizeof(float));
  }

  /// Measures a step through `pooled_lookup` and `pooled_lookup_backward`: bags are summed, gradients are 0, so that no weight changes, and
  /// each touched row is written. The caches are flushed before each run. Medians are those of the steadiest round (`repetition`). No tables
  /// take no time.
  /// @throws tessera::error out_of_memory naming the first table that the arena has no room for, its bytes and what is free; invalid_argument
  /// for options that cannot be, and as `borrowed_table`; out_of_range for an id that is not in its table; shape_mismatch for lengths that do
  /// not sum to the number of ids. A device's ids that are out of range are found when it is awaited.
  template <row_optimizer Optimizer, measuring_clock Clock>
  compute_times measure(Exec const& exec, Clock& clock, vector_view<measured_table const> tables, Optimizer const& optimizer,
                        repetition const& repeat = {}) {
    repeat.check("compute_bench::measure");
    if (tables.empty()) return {};
    auto stores = place(exec, tables, optimizer);
    combination const batch(exec, tables);
    basic_lookup_saved<Exec> saved;
    auto const now = [&] {
      back_end::wait(exec);
      return clock.now();
    };
    compute_times best;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t round = 0; round < repeat.most_rounds && least > repeat.steady; ++round) {
      std::vector<double> forward, backward, step;
      for (auto run = round == 0 ? -repeat.warm_up : 0; run < repeat.runs; ++run) {
        flush_(exec);
        auto const start = now();
        pooled_lookup(exec, stores, batch.features, batch.view(), batch.out, saved);
        auto const middle = now();
        pooled_lookup_backward(exec, stores, batch.features, saved, batch.gradients, optimizer);
        auto const end = now();
        if (run < 0) continue;
        forward.push_back((middle - start) * 1000);
        backward.push_back((end - middle) * 1000);
        step.push_back((end - start) * 1000);
      }
      auto const spread = detail::relative_spread(step);
      if (!(spread < least)) continue;
      least = spread;
      best = {detail::median_of(std::move(forward)), detail::median_of(std::move(backward)), detail::median_of(std::move(step))};
    }
    return best;
  }

 private:
  using back_end = detail::back_end<detail::compute_bench_tag, Exec>;

  // To lines of the cache, as tables of their own would lie.
  static constexpr std::int64_t rounded(std::int64_t floats) noexcept {
    return divide_up(floats, detail::floats_of_line) * detail::floats_of_line;
  }

  template <class Optimizer>
  std::vector<borrowed_table<float, Exec>> place(Exec const& exec, vector_view<measured_table const> tables, Optimizer const& optimizer) {
    auto const layout = row_state_layout::of(optimizer);
    std::vector<borrowed_table<float, Exec>> stores;
    std::int64_t used = 0;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      table_options const options{.id = table_id(t), .dim = tables[t].dim, .rows = tables[t].rows};
      detail::check_table_options("compute_bench", options, layout);
      auto const weights = options.rows * options.dim, states = options.rows * layout.width(options.dim);
      if (rounded(weights) + rounded(states) > arena_.size() - used)
        throw error(errc::out_of_memory, "compute_bench: the arena has no room for a table",
                    {{"table", t},
                     {"rows", options.rows},
                     {"dim", options.dim},
                     {"bytes", (rounded(weights) + rounded(states)) * 4},
                     {"free", (arena_.size() - used) * 4}});
      auto const of_states = arena_.view().slice(used + rounded(weights), states);
      // What the states were before is another table's; steps without gradients would let moments fade to numbers that are slow.
      back_end::fill(exec, of_states, layout.initial);
      stores.emplace_back(options, optimizer, arena_.view().slice(used, weights), of_states);
      used += rounded(weights) + rounded(states);
    }
    return stores;
  }

  // The batch of all tables, and where vectors and gradients go.
  struct combination {
    buffer<std::int64_t, Exec> ids, offsets;
    std::vector<std::int64_t> first_row{0};
    std::vector<pooled_feature> features;
    buffer<float, Exec> vectors, zeros;
    std::vector<matrix_view<float>> out;
    std::vector<matrix_view<float const>> gradients;

    combination(Exec const& exec, vector_view<measured_table const> tables) {
      std::vector<std::int64_t> all, ends{0};
      std::int64_t floats = 0;
      for (std::int64_t t = 0; t < tables.size(); ++t) {
        auto const& table = tables[t];
        all.insert(all.end(), table.ids.begin(), table.ids.end());
        for (auto const length : table.lengths) ends.push_back(ends.back() + length);
        if (ends.back() != static_cast<std::int64_t>(all.size()))
          throw error(errc::shape_mismatch, "compute_bench: lengths of bags that do not sum to the number of ids",
                      {{"table", t},
                       {"ids", table.ids.size()},
                       {"lengths", ends.back() - static_cast<std::int64_t>(all.size()) + table.ids.size()}});
        first_row.push_back(first_row.back() + table.lengths.size());
        features.push_back({t, pooling::sum});
        floats += table.lengths.size() * table.dim;
      }
      ids = back_end::copy_of(exec, all);
      offsets = back_end::copy_of(exec, ends);
      vectors.resize(exec, floats);
      zeros.resize(exec, floats);
      back_end::fill(exec, vectors.view(), 0.0F);
      back_end::fill(exec, zeros.view(), 0.0F);
      floats = 0;
      for (auto const& table : tables) {
        out.emplace_back(vectors.data() + floats, table.lengths.size(), table.dim);
        gradients.emplace_back(zeros.data() + floats, table.lengths.size(), table.dim);
        floats += table.lengths.size() * table.dim;
      }
    }
    keyed_jagged_view<std::int64_t const> view() const noexcept {
      return {ids.data(), nullptr, offsets.data(), first_row.data(), static_cast<std::int64_t>(features.size()), ids.size()};
    }
  };

  buffer<float, Exec> arena_;
  cache_flush<Exec> flush_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
