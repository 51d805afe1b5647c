// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/measure_compute.hpp>
#include <tessera/plan/measure_exchange.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/sample_log_file.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A measured combination of tables.
struct compute_sample {
  std::int64_t number = 0;
  bool is_repeat = false;  ///< measured a second time, for the noise
  table_combination combination;
  compute_times times;

  friend bool operator==(compute_sample const&, compute_sample const&) = default;
};

/// A measured exchange.
struct exchange_sample {
  std::int64_t number = 0;
  bool is_repeat = false;
  exchange_case exchange;
  exchange_times times;

  friend bool operator==(exchange_sample const&, exchange_sample const&) = default;
};

/// How many samples there are to one that is measured twice: the first of so many is measured again after the last of them.
inline constexpr std::int64_t samples_per_repeat = 20;

namespace detail {

// What a kind of sample has in a line of its log, behind its number and whether it is a repeat.
struct compute_columns {
  using sample = compute_sample;
  static constexpr char const* format = "tessera compute samples 1";
  static std::vector<std::string> names() { return {"sample", "repeat", "batch", "tables", "forward_ms", "backward_ms", "step_ms"}; }
  static std::vector<std::string> drawn(table_combination const& of) {
    std::vector<std::string> tables;
    for (auto const& one : of.tables) tables.push_back(std::to_string(one.table) + ":" + std::to_string(one.dim));
    return {std::to_string(of.batch_samples), joined_text(tables, ' ')};
  }
  static std::vector<std::string> measured(compute_times const& times) {
    return {exact_text(times.forward_ms), exact_text(times.backward_ms), exact_text(times.step_ms)};
  }
  static compute_times read(log_line const& line, table_combination const&) {
    return {line.times(4, 1)[0], line.times(5, 1)[0], line.times(6, 1)[0]};
  }
  static sample made(std::int64_t number, bool is_repeat, table_combination of, compute_times times) {
    return {number, is_repeat, std::move(of), times};
  }
};

struct exchange_columns {
  using sample = exchange_sample;
  static constexpr char const* format = "tessera exchange samples 1";
  static std::vector<std::string> names() { return {"sample", "repeat", "batch", "dims", "start_ms", "forward_ms", "backward_ms"}; }
  template <class T>
  static std::string list(std::vector<T> const& values) {
    std::vector<std::string> texts;
    for (auto const value : values) {
      if constexpr (std::floating_point<T>)
        texts.push_back(exact_text(value));
      else
        texts.push_back(std::to_string(value));
    }
    return joined_text(texts, ' ');
  }
  static std::vector<std::string> drawn(exchange_case const& of) {
    return {std::to_string(of.batch_samples), list(of.dims), list(of.start_ms)};
  }
  static std::vector<std::string> measured(exchange_times const& times) { return {list(times.forward_ms), list(times.backward_ms)}; }
  static exchange_times read(log_line const& line, exchange_case const& of) {
    return {line.times(5, of.dims.size()), line.times(6, of.dims.size())};
  }
  static sample made(std::int64_t number, bool is_repeat, exchange_case of, exchange_times times) {
    return {number, is_repeat, std::move(of), std::move(times)};
  }
};

// The order of lines: samples, and after every `samples_per_repeat` of them the first of these again.
struct line_order {
  std::int64_t number = 0;
  bool is_repeat = false;

  void advance() noexcept {
    if (is_repeat) {
      is_repeat = false;
      number += samples_per_repeat;
    } else if (number % samples_per_repeat == samples_per_repeat - 1) {
      is_repeat = true;
      number -= samples_per_repeat - 1;
    } else {
      ++number;
    }
  }
  bool is_within(std::int64_t count) const noexcept { return number < count && (!is_repeat || number + samples_per_repeat <= count); }
};

template <class Columns, class Draw, class Measure>
std::vector<typename Columns::sample> collect_samples(std::string const& path, std::string const& about, std::int64_t count,
                                                      Draw const& draw, Measure const& measure) {
  if (about.find('\n') != about.npos) throw error(errc::invalid_argument, "samples: a description of one line", {{"about", about}});
  std::vector<typename Columns::sample> samples;
  line_order next;
  auto const head_of = [](line_order const& at, auto const& drawn) {
    std::vector<std::string> fields{std::to_string(at.number), at.is_repeat ? "1" : "0"};
    for (auto& field : Columns::drawn(drawn)) fields.push_back(std::move(field));
    return fields;
  };
  sample_log log(path, std::string(Columns::format) + "; " + about, Columns::names(), [&](log_line const& line) {
    auto drawn = draw(next.number);
    auto const expected = head_of(next, drawn);
    for (std::size_t f = 0; f < expected.size(); ++f) line.expect(f, expected[f]);
    auto times = Columns::read(line, drawn);
    samples.push_back(Columns::made(next.number, next.is_repeat, std::move(drawn), std::move(times)));
    next.advance();
  });
  for (; next.is_within(count); next.advance()) {
    auto drawn = draw(next.number);
    auto times = measure(drawn);
    auto fields = head_of(next, drawn);
    for (auto& field : Columns::measured(times)) fields.push_back(std::move(field));
    log.append(fields);
    samples.push_back(Columns::made(next.number, next.is_repeat, std::move(drawn), std::move(times)));
  }
  return samples;
}

}  // namespace detail

/// Measures combinations 0 … count - 1, and appends each to a file as soon as it is measured; what is in the file is not measured again.
/// Returns all that is in the file then, in the order of its lines.
///
/// `draw(number)` gives a combination, always the same for a number: as `draw_combination`. `measure(combination)` gives its compute_times.
/// `about` says on one line what else the times depend on: the machine, the pool, the options. After every `samples_per_repeat` samples the
/// first of them is measured again. A process that is killed loses the measurement that it was in.
/// @post interrupted and called again, it leaves what a call without interruption leaves, up to what `measure` gives
/// @throws tessera::error as the samples' file: incompatible, naming line, field, expected and found, for a file of other samples;
/// corrupt_file, naming the line, for one that was altered; parse_error for a time that is none; io_error. The file has not changed then.
/// Also what `draw` and `measure` throw; what was measured stays.
template <class Draw, class Measure>
std::vector<compute_sample> collect_compute_samples(std::string const& path, std::string const& about, std::int64_t count, Draw const& draw,
                                                    Measure const& measure) {
  return detail::collect_samples<detail::compute_columns>(path, about, count, draw, measure);
}

/// Does the same for exchanges: `draw(number)` as `draw_placement`, `measure(exchange)` gives its exchange_times. Where ranks measure
/// together, one of them has the file, and tells the others which exchange is next.
template <class Draw, class Measure>
std::vector<exchange_sample> collect_exchange_samples(std::string const& path, std::string const& about, std::int64_t count,
                                                      Draw const& draw, Measure const& measure) {
  return detail::collect_samples<detail::exchange_columns>(path, about, count, draw, measure);
}

/// The noise of a measurement, in parts of the cost: the root mean square of the differences between two measurements of the same, over
/// their mean and the square root of 2. `first` and `second` (pairs,). 0 for no pairs.
inline double relative_noise(vector_view<double const> first, vector_view<double const> second) {
  double squares = 0;
  for (std::int64_t i = 0; i < first.size(); ++i)
    if (auto const mean = (first[i] + second[i]) / 2; mean > 0) squares += std::pow((first[i] - second[i]) / mean, 2) / 2;
  return first.empty() ? 0 : std::sqrt(squares / static_cast<double>(first.size()));
}

/// The noise of the steps' times of samples that were measured twice.
inline double relative_noise(vector_view<compute_sample const> samples) {
  std::vector<double> first, second;
  for (auto const& again : samples)
    if (again.is_repeat)
      for (auto const& sample : samples)
        if (!sample.is_repeat && sample.number == again.number) {
          first.push_back(sample.times.step_ms);
          second.push_back(again.times.step_ms);
        }
  return relative_noise(vector_view<double const>(first), vector_view<double const>(second));
}

namespace detail {

// Each time, in ms, as `pick` makes it of those that all collections have.
template <class Pick>
std::vector<compute_sample> samples_of_all(char const* call, std::vector<std::vector<compute_sample>> const& collections,
                                           Pick const& pick) {
  std::vector<compute_sample> result;
  if (collections.empty()) return result;
  std::vector<std::vector<compute_sample const*>> others(collections.size());
  for (auto const& sample : collections[0])
    if (!sample.is_repeat) result.push_back(sample);
  for (std::size_t c = 0; c < collections.size(); ++c) {
    for (auto const& sample : collections[c])
      if (!sample.is_repeat) others[c].push_back(&sample);
    auto const count = std::max(others[c].size(), result.size());
    for (std::size_t i = 0; i < count; ++i) {
      auto const is_there = i < others[c].size() && i < result.size();
      if (is_there && others[c][i]->number == result[i].number && others[c][i]->combination == result[i].combination) continue;
      throw error(errc::incompatible, std::string(call) + ": collections of other samples",
                  {{"collection", c}, {"sample", i < result.size() ? result[i].number : others[c][i]->number}});
    }
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    using time_of_step = double compute_times::*;
    auto const picked = [&](time_of_step time) {
      std::vector<double> values(others.size());
      for (std::size_t c = 0; c < others.size(); ++c) values[c] = others[c][i]->times.*time;
      return pick(std::move(values));
    };
    result[i].times = {picked(&compute_times::forward_ms), picked(&compute_times::backward_ms), picked(&compute_times::step_ms)};
  }
  return result;
}

}  // namespace detail

/// The median of each time, in ms, over several collections of the same steps. It is for machines that others use: what slows one down for a
/// while slows neighbouring samples of a collection alike. Each collection has the same samples in the same order; repeats are left out.
/// @throws tessera::error incompatible, naming collection and sample, for a sample that a collection lacks, or has of another combination.
inline std::vector<compute_sample> median_samples(std::vector<std::vector<compute_sample>> const& collections) {
  return detail::samples_of_all("median_samples", collections,
                                [](std::vector<double> values) { return detail::median_of(std::move(values)); });
}

/// The least of each time instead: what steps take while nobody slows the machine down. @throws tessera::error as `median_samples`.
inline std::vector<compute_sample> fastest_samples(std::vector<std::vector<compute_sample>> const& collections) {
  return detail::samples_of_all("fastest_samples", collections,
                                [](std::vector<double> const& values) { return *std::min_element(values.begin(), values.end()); });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
