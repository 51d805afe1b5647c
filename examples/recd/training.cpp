// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/data/sample_schema.hpp>
#include <tessera/synth/session_clicks.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/synth/session_sets.hpp>
#include <tessera/train/click_net.hpp>

#include "ladder.hpp"
#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;

// The first samples of a log.
sample_columns first_samples(host_exec const& exec, parquet_log const& log, std::int64_t count) {
  sample_columns samples(log.schema()), block(log.schema());
  for (std::int64_t b = 0; b < log.block_count() && samples.size() < count; ++b) {
    log.read(exec, b, block);
    samples.append(exec, block.view(), 0, std::min(block.size(), count - samples.size()));
  }
  return samples;
}

/// The same samples in two orders: of inference is that of their times, as if these were all that there are.
struct two_orders {
  memory_log inference, clustered;

  two_orders(host_exec const& exec, sample_schema const& schema, sample_columns samples)
      : inference(schema, sorted_by(exec, samples, samples.view().times)), clustered(schema, std::move(samples)) {}
};

}  // namespace

session_clicks_options log_options(plan const& plan, session_clicks_options options, std::int64_t rows) {
  options = scaled_down(std::move(options), plan.scale);
  options.window_sessions = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rows) / options.mean_samples));
  options.windows = 1;
  return options;
}

session_clicks_options fitted_sessions() { return scaled_down(paper_sessions(), 11); }

session_clicks_options stored_set(plan const& plan) {
  return log_options(plan, plan.fitted ? fitted_sessions() : rm1_sessions(), plan.rows);
}

namespace {

std::size_t groups_of_sequences(session_clicks_options const& options) {
  std::set<std::int64_t> groups;
  for (auto const& feature : options.features)
    if (feature.kind == session_feature_kind::sequence) groups.insert(feature.group);
  return groups.size();
}

/// What RM1-like trains on: whole sessions, the first ones of the clustered file.
struct rm1_logs {
  session_clicks_options options;
  sample_schema schema;
  parquet_log clustered;
  two_orders logs;

  rm1_logs(host_exec const& exec, plan const& plan, storage_result const& stored)
      : options(stored_set(plan)),
        schema(session_clicks(exec, options).schema()),
        clustered({stored.clustered}, schema),
        logs(exec, schema, first_samples(exec, clustered, plan.batches() * plan.batch)) {}

  trainer_result result(std::size_t transformers) const {
    trainer_result of;
    of.set = "RM1-like";
    of.groups = groups_of_sequences(options);
    of.transformers = transformers;
    return of;
  }
};

}  // namespace

trainer_result train_rm1(host_exec const& exec, plan const& plan, storage_result const& stored) {
  rm1_logs const from(exec, plan, stored);
  auto result = from.result(groups_of_sequences(from.options));
  ladder<float_products> steps(exec, plan, from.options, result);
  auto const& [inference, clustered] = from.logs;
  std::optional<memory_log> larger;
  std::int64_t const most_samples = stored.rows / plan.batches();
  std::int64_t batch = 0;
  for (std::int64_t round = 0; round < plan.rounds; ++round) {  // in turn, so that a machine's moods fall on all
    auto const most = steps.add("baseline", round, inference, false, pooled_rows::distinct, plan.batch).peak;
    steps.add("clustered", round, clustered, false, pooled_rows::distinct, plan.batch);
    steps.add("+ O5, O6", round, clustered, true, pooled_rows::expanded, plan.batch);
    auto const shared = steps.add("+ O7", round, clustered, true, pooled_rows::distinct, plan.batch).peak;
    if (round == 0) {
      result.predicted_bytes = steps.foretell(inference, plan.batch, most, shared.ids);
      // The batch grows to the baseline's peak, in which memory is nearly linear, or to what the log has.
      auto bytes = shared.bytes;
      auto size = batch = plan.batch;
      for (int tries = 0; tries < 3 && size < most_samples && (bytes > most.bytes || bytes < 0.95 * most.bytes); ++tries) {
        size = std::min(most_samples, static_cast<std::int64_t>(0.98 * most.bytes / bytes * static_cast<double>(size)));
        larger.emplace(from.schema, first_samples(exec, from.clustered, plan.batches() * size));
        bytes = steps.shared_peak(*larger, size);
        if (bytes <= most.bytes) batch = size;
      }
      larger.emplace(from.schema, first_samples(exec, from.clustered, plan.batches() * batch));
    }
    auto const largest = steps.add("+ batch", round, *larger, true, pooled_rows::distinct, batch).peak;
    if (largest.bytes > most.bytes)
      throw error(errc::incompatible, "the larger batch takes more memory than the baseline's",
                  {{"bytes", largest.bytes}, {"bytes of the baseline", most.bytes}, {"batch", batch}});
  }
  result.check_losses({"clustered", "+ O5, O6", "+ O7"});
  return result;
}

std::vector<trainer_result> train_with_fewer(host_exec const& exec, plan const& plan, storage_result const& stored) {
  rm1_logs const from(exec, plan, stored);
  std::vector<trainer_result> results;
  for (auto const transformers : plan.transformers) {
    if (transformers >= static_cast<std::int64_t>(groups_of_sequences(from.options))) continue;
    auto& result = results.emplace_back(from.result(static_cast<std::size_t>(transformers)));
    ladder<float_products> steps(exec, plan, from.options, result);
    for (std::int64_t round = 0; round < plan.rounds; ++round) {
      steps.add("baseline", round, from.logs.inference, false, pooled_rows::distinct, plan.batch);
      steps.add("RecD", round, from.logs.clustered, true, pooled_rows::distinct, plan.batch);
    }
  }
  return results;
}

namespace {

template <class Gemm>
trainer_result train_by(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  auto const rows = plan.batches() * plan.batch;
  auto const options = log_options(plan, std::move(set), 2 * rows);  // sessions enough, whatever their samples
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema), samples(schema);
  clicks.next(exec, 8 * rows, log);
  auto const sorted = sorted_by(exec, log, log.view().sessions);
  samples.append(exec, sorted.view(), 0, std::min(rows, sorted.size()));
  two_orders const logs(exec, schema, std::move(samples));
  trainer_result result;
  result.set = name;
  ladder<Gemm> steps(exec, plan, options, result);
  for (std::int64_t round = 0; round < plan.rounds; ++round) {
    steps.add("baseline", round, logs.inference, false, pooled_rows::distinct, plan.batch);
    steps.add("RecD", round, logs.clustered, true, pooled_rows::distinct, plan.batch);
  }
  return result;
}

}  // namespace

trainer_result train_set(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  return train_by<float_products>(exec, plan, name, std::move(set));
}

#ifdef TESSERA_RECD_DNNL
bool has_bf16(host_exec const& exec) {
  float const one = 1;
  float product = 0;
  matrix_view<float const> const factor(&one, 1, 1);
  try {
    gemm(exec, dnnl_bf16_gemm{}, {factor}, {factor}, matrix_view<float>(&product, 1, 1));
  } catch (error const&) {
    return false;
  }
  return true;
}

trainer_result train_set_by_bf16(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  return train_by<dnnl_bf16_gemm>(exec, plan, name, std::move(set));
}
#endif

trainer_result train_without_repeats(host_exec const& exec, plan const& plan) {
  auto options = no_repeats();
  options.window_sessions = plan.batches() * plan.batch;
  options.windows = 1;
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema);
  clicks.next(exec, plan.batches() * plan.batch, log);
  auto const advice = recommend_groups(exec, log.view());
  memory_log const stored(schema, std::move(log));
  trainer_result result;
  result.set = "no repeats";
  ladder<float_products> steps(exec, plan, options, result);
  result.recommended_groups = advice.groups.size();
  for (std::int64_t round = 0; round < plan.rounds; ++round) {
    steps.add("baseline", round, stored, false, pooled_rows::distinct, plan.batch);
    // As recommended: the batches as they are, where nothing is; and every feature of users and sequences forced into groups.
    steps.add("auto", round, stored, !advice.groups.empty(), pooled_rows::distinct, plan.batch);
    steps.add("forced", round, stored, true, pooled_rows::distinct, plan.batch);
  }
  result.check_losses({"baseline", "auto", "forced"});
  return result;
}

}  // namespace recd
