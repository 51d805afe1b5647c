// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/dedupe_model.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/session_clicks.hpp>

#include "ladder.hpp"
#include "results.hpp"

namespace recd {

namespace {

using namespace tessera;

constexpr int short_rounds = 4;  // of sets whose steps take less than a second

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

trainer_result train_rm1(host_exec const& exec, plan const& plan, storage_result const& stored) {
  auto const options = log_options(plan, rm1_sessions(), plan.rows);
  auto const schema = session_clicks(exec, options).schema();
  parquet_log const clustered({stored.clustered}, schema);
  if (stored.rows < plan.steps * plan.batch)
    throw error(errc::invalid_argument, "fewer samples than the steps take",
                {{"samples", stored.rows}, {"steps", plan.steps}, {"batch", plan.batch}});
  two_orders const logs(exec, schema, first_samples(exec, clustered, plan.steps * plan.batch));
  trainer_result result;
  result.set = "RM1-like";
  ladder<float_products> steps(exec, options, true, result);
  std::optional<memory_log> larger;
  std::int64_t const most_samples = stored.rows / plan.steps;
  std::int64_t batch = 0;
  for (int round = 0; round < 2; ++round) {  // in turn, so that a machine's moods fall on all; the faster of each
    auto const most = steps.add("baseline", logs.inference, false, pooled_rows::distinct, plan.batch).peak;
    steps.add("clustered", logs.clustered, false, pooled_rows::distinct, plan.batch);
    steps.add("+ O5, O6", logs.clustered, true, pooled_rows::expanded, plan.batch);
    auto const shared = steps.add("+ O7", logs.clustered, true, pooled_rows::distinct, plan.batch).peak;
    if (round == 0) {
      result.predicted_bytes = steps.foretell(logs.inference, plan.batch, most, shared.ids);
      // The batch grows to the baseline's peak, in which memory is nearly linear, or to what the log has.
      auto bytes = shared.bytes;
      auto size = batch = plan.batch;
      for (int tries = 0; tries < 3 && size < most_samples && (bytes > most.bytes || bytes < 0.95 * most.bytes); ++tries) {
        size = std::min(most_samples, static_cast<std::int64_t>(0.98 * most.bytes / bytes * static_cast<double>(size)));
        larger.emplace(schema, first_samples(exec, clustered, plan.steps * size));
        bytes = steps.shared_peak(*larger, size);
        if (bytes <= most.bytes) batch = size;
      }
      larger.emplace(schema, first_samples(exec, clustered, plan.steps * batch));
    }
    auto const largest = steps.add("+ batch", *larger, true, pooled_rows::distinct, batch).peak;
    if (largest.bytes > most.bytes)
      throw error(errc::incompatible, "the larger batch takes more memory than the baseline's",
                  {{"bytes", largest.bytes}, {"bytes of the baseline", most.bytes}, {"batch", batch}});
  }
  result.check_losses({"clustered", "+ O5, O6", "+ O7"});
  return result;
}

namespace {

template <class Gemm>
trainer_result train_by(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  auto const options = log_options(plan, std::move(set), plan.steps * plan.batch);
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema);
  clicks.next(exec, 4 * plan.steps * plan.batch, log);
  two_orders const logs(exec, schema, sorted_by(exec, log, log.view().sessions));
  trainer_result result;
  result.set = name;
  ladder<Gemm> steps(exec, options, false, result);
  for (int round = 0; round < short_rounds; ++round) {
    steps.add("baseline", logs.inference, false, pooled_rows::distinct, plan.batch);
    steps.add("RecD", logs.clustered, true, pooled_rows::distinct, plan.batch);
  }
  return result;
}

}  // namespace

trainer_result train_set(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  return train_by<float_products>(exec, plan, name, std::move(set));
}

#ifdef TESSERA_RECD_DNNL
trainer_result train_set_by_bf16(host_exec const& exec, plan const& plan, std::string const& name, session_clicks_options set) {
  return train_by<dnnl_bf16_gemm>(exec, plan, name, std::move(set));
}
#endif

trainer_result train_without_repeats(host_exec const& exec, plan const& plan) {
  auto options = no_repeats();
  options.window_sessions = plan.steps * plan.batch;
  options.windows = 1;
  session_clicks clicks(exec, options);
  auto const schema = clicks.schema();
  sample_columns log(schema);
  clicks.next(exec, plan.steps * plan.batch, log);
  auto const advice = recommend_groups(exec, log.view());
  memory_log const stored(schema, std::move(log));
  trainer_result result;
  result.set = "no repeats";
  ladder<float_products> steps(exec, options, false, result);
  result.recommended_groups = advice.groups.size();
  for (int round = 0; round < short_rounds; ++round) {
    steps.add("baseline", stored, false, pooled_rows::distinct, plan.batch);
    // As recommended: the batches as they are, where nothing is; and every feature of users and sequences forced into groups.
    steps.add("auto", stored, !advice.groups.empty(), pooled_rows::distinct, plan.batch);
    steps.add("forced", stored, true, pooled_rows::distinct, plan.batch);
  }
  result.check_losses({"baseline", "auto", "forced"});
  return result;
}

}  // namespace recd
