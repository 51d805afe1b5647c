// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/scan.cuh>
#include <tessera/core/view.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/tensor/range_tiles.cuh>
#include <tessera/tensor/row_copies.hpp>

// Runs of whole rows, as on the host, and the tiles that copy them and the ranges of `rows_from`.
//
// Bytes a value: read once, written once. Bytes a row: one offset read and written.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Where a range of the result is copied from.
template <class T>
struct copied_values {
  T const* values;
  float const* weights;  // or nullptr
};

/// As a part of tiles: the values of a range, `source(range)`, and their weights unless there is no place for them.
template <int Width, class T, class Source>
struct copy_part {
  Source source;
  T* to;
  float* to_weights;

  TESSERA_HOST_DEVICE void operator()(std::int64_t range, std::int64_t within, std::int64_t at, std::int64_t count) const {
    copied_values<T> const from = source(range);
    copy_packet<Width>(from.values + within, to + at, count);
    if (to_weights != nullptr) copy_packet<Width>(from.weights + within, to_weights + at, count);
  }
};

template <device_execution Exec, class Start, class T, class Source>
void copy_tiles(Exec const& exec, Start const* starts, std::int64_t ranges, std::int64_t most, Source const& source, T* to,
                float* to_weights) {
  constexpr int width = packet_width<T>;
  launch_tiles<width>(exec, starts, ranges, most, copy_part<width, T, Source>{source, to, to_weights});
}

inline constexpr fault_kind past_offset{
    errc::out_of_range, "the values do not fit into an offset", {"values", "values before", "largest offset"}};
inline constexpr fault_kind past_room{errc::out_of_range, "more values than the result was given room for", {"values", "room"}};

/// The offset that a result of so much room has for a sum: none that leads past the room, whatever was wrong.
template <class Offset>
TESSERA_HOST_DEVICE constexpr Offset offset_within(std::int64_t sum, std::int64_t room) noexcept {
  return static_cast<Offset>(sum < 0 || sum > room ? room : sum);
}

/// How many values a result of `sums[n]` values gets room for: as many as requested, else the bound. Where the bound is negative, it is the
/// sum, which the call waits for.
template <class Offset, device_execution Exec>
std::int64_t room_of(Exec const& exec, result_room requested, std::int64_t bound, std::int64_t const* sum) {
  constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
  if (requested.most_values >= 0) return std::min(requested.most_values, most);
  if (bound >= 0) return std::min(bound, most);
  auto const values = read_one(exec, sum);
  return values < 0 || values > most ? 0 : values;  // a fault
}

/// What a run copies, and the offsets of its rows.
template <class T, class Offset>
struct run_source {
  T const* values;
  float const* weights;
  Offset const* offsets;
};

/// Writes for run `run` how many values it has, and where they begin; for the one past the last that it has none.
template <class T, class Offset>
struct measure_run {
  run_source<T, Offset> const* sources;
  std::int64_t const* first_rows;
  std::int64_t runs;
  std::int64_t* sizes;
  std::int64_t* begins;

  TESSERA_DEVICE void operator()(std::int64_t run) const {
    std::int64_t size = 0, begin = 0;
    if (run < runs)
      if (auto const rows = first_rows[run + 1] - first_rows[run]; rows > 0) {
        begin = static_cast<std::int64_t>(sources[run].offsets[0]);
        size = static_cast<std::int64_t>(sources[run].offsets[rows]) - begin;
      }
    sizes[run] = size;
    begins[run] = begin;
  }
};

/// Says where the values become too many, and writes the last offset.
template <class Offset>
struct check_run {
  static constexpr auto most = static_cast<std::int64_t>(std::numeric_limits<Offset>::max());
  std::int64_t const* sizes;
  std::int64_t const* sums;
  std::int64_t runs;
  std::int64_t room;
  Offset* last;
  fault_reporter too_many, too_many_for_room;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t run) const {
    auto const size = sizes[run], before = sums[run];
    if (run == runs) {
      *last = offset_within<Offset>(before, room);
      if (before > room) too_many_for_room(block, 0, before, room);
    } else if (before >= 0 && before <= most && (size < 0 || size > most - before)) {
      too_many(block, run, size, before, most);
    }
  }
};

/// As a part of tiles: the offsets of a run's rows.
template <class T, class Offset>
struct offsets_part {
  run_source<T, Offset> const* sources;
  std::int64_t const* begins;
  std::int64_t const* sums;
  std::int64_t room;
  Offset* to;

  TESSERA_HOST_DEVICE void operator()(std::int64_t run, std::int64_t within, std::int64_t at, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      to[at + i] = offset_within<Offset>(sums[run] + (static_cast<std::int64_t>(sources[run].offsets[within + i]) - begins[run]), room);
  }
};

template <class T, class Offset>
struct source_of_run {
  run_source<T, Offset> const* sources;
  std::int64_t const* begins;

  TESSERA_HOST_DEVICE copied_values<T> operator()(std::int64_t run) const {
    auto const& source = sources[run];
    return {source.values + begins[run], source.weights == nullptr ? nullptr : source.weights + begins[run]};
  }
};

/// Runs of rows on a device, one after the other.
template <class T, class Offset, device_execution Exec>
class device_runs {
 public:
  device_runs(Exec const& exec, char const* call, vector_view<row_run<T, Offset> const> runs) : exec_(exec), call_(call) {
    std::vector<run_source<T, Offset>> sources;
    for (auto const& run : runs) {
      sources.push_back({run.rows.values, run.weights, run.rows.offsets});
      first_rows_.push_back(first_rows_.back() + run.rows.rows);
      weighted_ = weighted_ || run.weights != nullptr;
    }
    sources_ = to_device(exec, sources);
    starts_ = to_device(exec, first_rows_);
    auto const count = runs.size();
    for (auto* numbers : {&sizes_, &begins_, &sums_}) numbers->resize(exec, count + 1);
    launch_for_each(exec, count + 1, measure_run<T, Offset>{sources_.data(), starts_.data(), count, sizes_.data(), begins_.data()});
    exclusive_scan(exec, sizes_.view(), sums_.view());
  }

  std::int64_t count() const noexcept { return static_cast<std::int64_t>(first_rows_.size()) - 1; }
  std::int64_t first_row(std::int64_t run) const { return first_rows_[static_cast<std::size_t>(run)]; }
  std::int64_t rows() const noexcept { return first_rows_.back(); }
  bool weighted() const noexcept { return weighted_; }
  std::int64_t room(result_room requested, std::int64_t bound) const {
    return room_of<Offset>(exec_, requested, bound, sums_.data() + count());
  }

  /// `offsets` (rows() + 1,), `values` and, unless nullptr, `weights` (room,).
  void copy(std::int64_t room, Offset* offsets, T* values, float* weights) const {
    auto const runs = count();
    launch_for_each(exec_, runs + 1,
                    check_run<Offset>{sizes_.data(), sums_.data(), runs, room, offsets + rows(),
                                      exec_.faults(past_offset).of(call_, nullptr), exec_.faults(past_room).of(call_, nullptr)});
    launch_tiles<1>(exec_, starts_.data(), runs, rows(),
                    offsets_part<T, Offset>{sources_.data(), begins_.data(), sums_.data(), room, offsets});
    copy_tiles(exec_, sums_.data(), runs, room, source_of_run<T, Offset>{sources_.data(), begins_.data()}, values, weights);
  }

 private:
  Exec exec_;
  char const* call_;
  std::vector<std::int64_t> first_rows_{0};
  bool weighted_ = false;
  buffer<run_source<T, Offset>, Exec> sources_;
  buffer<std::int64_t, Exec> starts_, sizes_, begins_, sums_;  // of rows, then of values
};

/// The batch of these runs, as many a key of the result each, key after key, weighted where any run is. `bound`: values at most, or
/// negative.
template <class T, class Offset, device_execution Exec>
keyed_jagged<T, Offset, Exec> batch_of_runs(Exec const& exec, char const* call, vector_view<row_run<T, Offset> const> runs,
                                            std::int64_t keys, result_room requested, std::int64_t bound) {
  device_runs<T, Offset, Exec> const placed(exec, call, runs);
  auto const room = placed.room(requested, bound);
  auto result = keyed_jagged<T, Offset, Exec>::with_room(exec, keys, placed.rows(), room, placed.weighted());
  auto const runs_per_key = keys == 0 ? 0 : runs.size() / keys;
  for (std::int64_t key = 0; key <= keys; ++key) result.first_row()[key] = placed.first_row(key * runs_per_key);
  placed.copy(room, result.offsets().data(), result.view().values, result.weights().data());
  return result;
}

/// Where each key's rows begin among those of all keys, from 0: (keys + 1,), the host's.
template <class T, class Offset>
std::vector<std::int64_t> first_rows_of(keyed_jagged_view<T, Offset> in) {
  std::vector<std::int64_t> result{0};
  for (std::int64_t key = 0; key < in.keys; ++key) result.push_back(in.first_row[key + 1] - in.first_row[0]);
  return result;
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
