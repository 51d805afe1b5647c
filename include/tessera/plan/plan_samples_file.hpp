// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/learned_compute.hpp>
#include <tessera/plan/learned_exchange.hpp>
#include <tessera/plan/plan_prediction.hpp>
#include <tessera/plan/sample_log_file.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a training run measured of a plan, beside what was predicted of it.
struct plan_sample {
  std::vector<table_shard> shards;  ///< of the plan, none of them on all ranks
  std::string plan_digest;          ///< as `tessera::plan_digest`
  std::string model;                ///< the digest of the model that predicted
  std::int64_t batch_samples = 0;
  std::int64_t steps = 0;             ///< of which medians were taken
  std::vector<step_costs> predicted;  ///< (ranks,)
  std::vector<step_costs> measured;   ///< (ranks,)

  double error() const { return prediction_error(predicted, measured); }
  friend bool operator==(plan_sample const&, plan_sample const&) = default;
};

namespace detail {

inline constexpr char const* plan_samples_format = "tessera plan samples 1";

inline std::vector<std::string> plan_sample_names() {
  return {"run",
          "plan",
          "model",
          "batch",
          "steps",
          "shards",
          "compute_ms",
          "backward_ms",
          "forward_ms",
          "measured_compute_ms",
          "measured_backward_ms",
          "measured_forward_ms"};
}

using step_cost = double step_costs::*;
inline constexpr step_cost plan_sample_costs[] = {&step_costs::compute_ms, &step_costs::backward_ms, &step_costs::forward_ms};

inline void check_plan_sample(plan_sample const& of) {
  auto const refuse = [](char const* why, char const* field, error_value value) {
    throw error(errc::invalid_argument, std::string("plan samples: ") + why, {{"field", field}, std::move(value)});
  };
  if (of.predicted.empty()) refuse("a plan of no ranks", "compute_ms", {"ranks", 0});
  if (of.measured.size() != of.predicted.size())
    refuse("one measurement a rank", "measured_compute_ms", {"measurements", of.measured.size()});
  if (!is_digest(of.plan_digest)) refuse("not a digest", "plan", {"value", of.plan_digest});
  if (!is_digest(of.model)) refuse("not a digest", "model", {"value", of.model});
  if (of.batch_samples < 1) refuse("a batch without samples", "batch", {"value", of.batch_samples});
  if (of.steps < 1) refuse("no steps", "steps", {"value", of.steps});
  for (auto const& shard : of.shards)
    if (shard.rank < 0 || static_cast<std::size_t>(shard.rank) >= of.predicted.size() || shard.table < 0 || shard.rows < 1 ||
        shard.columns < 1 || shard.first_row < 0 || shard.first_column < 0)
      refuse("a shard that no rank of these has alone", "shards", {"rank", shard.rank});
  for (auto const* const costs : {&of.predicted, &of.measured})
    for (auto const& one : *costs)
      for (auto const part : plan_sample_costs)
        if (!(one.*part >= 0) || !std::isfinite(one.*part)) refuse("a number is finite and not negative", "ms", {"value", one.*part});
}

inline std::vector<std::string> plan_sample_fields(plan_sample const& of, std::size_t run) {
  std::vector<std::string> shards;
  for (auto const& s : of.shards) {
    std::vector<std::string> numbers;
    for (auto const number : {s.table, std::int64_t{s.rank}, s.first_row, s.rows, s.first_column, s.columns})
      numbers.push_back(std::to_string(number));
    shards.push_back(joined_text(numbers, ':'));
  }
  std::vector<std::string> fields{std::to_string(run),      of.plan_digest,          of.model, std::to_string(of.batch_samples),
                                  std::to_string(of.steps), joined_text(shards, ' ')};
  for (auto const* const costs : {&of.predicted, &of.measured})
    for (auto const part : plan_sample_costs) {
      std::vector<std::string> of_ranks;
      for (auto const& one : *costs) of_ranks.push_back(exact_text(one.*part));
      fields.push_back(joined_text(of_ranks, ' '));
    }
  return fields;
}

inline std::int64_t plan_sample_number(log_line const& line, std::size_t field, std::string const& text, std::int64_t most = most_counted) {
  std::int64_t value = 0;
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < 0 || value > most)
    line.refuse(errc::parse_error, "samples: not a number", field, "an integer from 0");
  return value;
}

inline plan_sample plan_sample_of(log_line const& line, std::size_t run) {
  line.expect(0, std::to_string(run));
  plan_sample result;
  result.plan_digest = line.fields[1];
  result.model = line.fields[2];
  result.batch_samples = plan_sample_number(line, 3, line.fields[3]);
  result.steps = plan_sample_number(line, 4, line.fields[4]);
  for (auto const& text : split_text(line.fields[5], ' ')) {
    auto const parts = split_text(text, ':');
    if (parts.size() != 6) line.refuse(errc::parse_error, "samples: not a shard", 5, "6 numbers with ':' between them");
    std::int64_t numbers[6];
    for (std::size_t i = 0; i < 6; ++i)
      numbers[i] = plan_sample_number(line, 5, parts[i], i == 1 ? std::numeric_limits<int>::max() : most_counted);
    result.shards.push_back({numbers[0], static_cast<int>(numbers[1]), numbers[2], numbers[3], numbers[4], numbers[5]});
  }
  auto const ranks = split_text(line.fields[6], ' ').size();
  std::size_t field = 6;
  for (auto* const costs : {&result.predicted, &result.measured}) {
    costs->resize(ranks);
    for (auto const part : plan_sample_costs) {
      auto const times = line.times(field++, ranks);
      for (std::size_t r = 0; r < ranks; ++r) (*costs)[r].*part = times[r];
    }
  }
  return told_of_file(line.file, [&] {
    check_plan_sample(result);
    return result;
  });
}

}  // namespace detail

/// A file of plans' samples, which grows by a line a training run: comma-separated values, each line with its checksum. A line has the number
/// of the run, the digests of plan and model, samples of the batch, steps, and shards: table, rank, first row, rows, first column and columns
/// with ':' between them. Behind them are six lists of milliseconds, a number a rank each. One program at a time adds to a file.
class plan_sample_log {
 public:
  /// Opens a file, or makes it.
  /// @throws tessera::error incompatible for a file of other samples; corrupt_file naming line and field for one that was altered;
  /// parse_error naming line, field and found. The file has not changed then. io_error.
  explicit plan_sample_log(std::string const& path)
      : log_(path, detail::plan_samples_format, detail::plan_sample_names(),
             [this](detail::log_line const& line) { samples_.push_back(detail::plan_sample_of(line, samples_.size())); }) {}

  /// What is in the file, in its order.
  std::vector<plan_sample> const& samples() const noexcept { return samples_; }

  /// Adds a run. @throws tessera::error invalid_argument naming field and value: for no ranks, another number of measurements than
  /// predictions, a cost that is negative or not finite, a shard of none of the ranks, and a digest that is none; io_error.
  void append(plan_sample sample) {
    detail::check_plan_sample(sample);
    log_.append(detail::plan_sample_fields(sample, samples_.size()));
    samples_.push_back(std::move(sample));
  }

 private:
  std::vector<plan_sample> samples_;
  detail::sample_log log_;
};

/// The error that a run's predictions are expected to have: that of the first of `before` of the same plan, model and batch. Where there is
/// none, `stated`, which the model states; none where that is 0.
inline std::optional<double> expected_error(plan_sample const& now, vector_view<plan_sample const> before, double stated) {
  for (auto const& one : before)
    if (one.plan_digest == now.plan_digest && one.model == now.model && one.batch_samples == now.batch_samples) return one.error();
  return stated > 0 ? std::optional<double>(stated) : std::nullopt;
}

/// How many times the error that is expected counts as grown.
inline constexpr double grown_error = 2;

/// Samples as `fit_learned_compute` learns from them, one a run and rank. `tables` are the profiles of the plans' tables, of batches as large as
/// the samples'. A table that k columns read has k bags a sample.
/// @throws tessera::error naming run and table: out_of_range for a table without a profile and for a shard that reaches past it; incompatible
/// for a profile whose bags are no multiple of the batch's samples. incompatible too, naming the run, where all tables have too many bags:
/// where `batch_samples_of` the run's tables are more.
inline std::vector<compute_cost_sample> samples_of_steps(vector_view<plan_sample const> samples, vector_view<table_profile const> tables) {
  std::vector<compute_cost_sample> result;
  for (std::int64_t run = 0; run < samples.size(); ++run) {
    auto const& of = samples[run];
    auto const first = result.size();
    std::vector<table_profile> read;
    for (auto const& costs : of.measured) result.push_back({{}, costs.compute_ms});
    for (auto const& shard : of.shards) {
      auto const refuse = [&](errc code, char const* why, error_value value) {
        throw error(code, std::string("samples_of_steps: ") + why, {{"run", run}, {"table", shard.table}, std::move(value)});
      };
      if (shard.table >= tables.size()) refuse(errc::out_of_range, "a table without a profile", {"tables", tables.size()});
      auto const& table = tables[shard.table];
      if (shard.first_row > table.rows - shard.rows) refuse(errc::out_of_range, "a shard reaches past its table", {"rows", table.rows});
      if (shard.first_column > table.dim - shard.columns) refuse(errc::out_of_range, "a shard reaches past its table", {"dim", table.dim});
      if (auto const bags = std::llround(table.bags); of.batch_samples < 1 || bags < 1 || bags % of.batch_samples != 0)
        throw error(errc::incompatible, "samples_of_steps: a profile of other batches",
                    {{"run", run}, {"table", shard.table}, {"bags", table.bags}, {"samples of the batch", of.batch_samples}});
      read.push_back(table);
      result[first + static_cast<std::size_t>(shard.rank)].shards.push_back(profile_of_shard(table, shard.rows, shard.columns));
    }
    if (auto const fewest = batch_samples_of(read); !read.empty() && fewest != of.batch_samples)
      throw error(errc::incompatible, "samples_of_steps: profiles of larger batches",
                  {{"run", run}, {"fewest bags of a table", fewest}, {"samples of the batch", of.batch_samples}});
  }
  return result;
}

/// Samples as `fit_learned_exchange` learns from them, one a run. A rank starts its forward when it is done with the step before: at its
/// measured compute and backward cost, counted from the first rank's, as in `plan_cost`.
inline std::vector<exchange_cost_sample> samples_of_exchanges(vector_view<plan_sample const> samples, exchange_way way) {
  std::vector<exchange_cost_sample> result;
  for (auto const& of : samples) {
    exchange_cost_sample sample;
    sample.exchange.batch_samples = of.batch_samples;
    sample.exchange.dims.resize(of.measured.size());
    for (auto const& shard : of.shards) sample.exchange.dims[static_cast<std::size_t>(shard.rank)] += shard.columns;
    auto first = std::numeric_limits<double>::infinity();
    for (auto const& costs : of.measured) first = std::min(first, costs.compute_ms + costs.backward_ms);
    for (auto const& costs : of.measured) {
      sample.exchange.start_ms.push_back(costs.compute_ms + costs.backward_ms - first);
      sample.cost_ms.push_back(way == exchange_way::forward ? costs.forward_ms : costs.backward_ms);
    }
    result.push_back(std::move(sample));
  }
  return result;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
