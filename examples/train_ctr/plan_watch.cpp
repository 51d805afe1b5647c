// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include "../support/plan_watch.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/files/json.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/measuring_clock.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/train/trainer_options.hpp>

#include "../support/optimizer_choice.hpp"

namespace examples {

namespace {

// Of the samples' file; errors name the option.
template <class F>
auto of_samples(F const& f) {
  try {
    return f();
  } catch (tessera::error const& e) {
    throw tessera::error(e.code(), "option --plan-samples: " + std::string(e.sentence()), e.values());
  }
}

// Why the tables that are trained are not those that were predicted; empty: they may be.
std::string other_tables(training_job const& j, tessera::plan_prediction const& found) {
  std::vector<tessera::table_profile> tables;
  for (auto const& name : j.tables()) {
    auto const& of = j.s.of_table(name);
    auto& table = tables.emplace_back();
    table.name = name;
    table.row_format = of.row_format == "fp16"   ? "float16"
                       : of.row_format == "bf16" ? "bfloat16"
                       : of.row_format == "int8" ? "scaled_int8"
                                                 : "float";
    auto const choice = choose_row_optimizer(of);
    table.optimizer =
        tessera::with_optimizer(choice, [](auto const& optimizer) { return std::string(tessera::optimizer_name_of(optimizer)); });
  }
  try {
    tessera::detail::told_of_file(j.plan_name(), [&] { tessera::check_row_kinds(tables, found.optimizer, found.row_format); });
  } catch (tessera::error const& e) {
    return e.what();
  }
  return {};
}

std::string parts_text(char const* name, double predicted, double measured) { return text("%s %.3f / %.3f", name, predicted, measured); }

}  // namespace

std::string plan_watch::samples_path() const { return j_.s.plan_samples.empty() ? j_.plan_name() + ".samples.csv" : j_.s.plan_samples; }

plan_watch::plan_watch(training_job const& j, tessera::any_source& source) : j_(j) {
  auto const& found = j.planned().found;
  if (!found) {
    if (!j.s.plan_samples.empty())
      detail::refuse_option("--plan-samples", "of a --plan that says what was predicted of it", {{"--plan", j.plan_name()}});
    return;
  }
  auto* const tables = source.get_if<tessera::sharded_tables>();
  auto const& shards = j.planned().plan.shards;
  bool const has_copies =
      std::any_of(shards.begin(), shards.end(), [](auto const& s) { return s.rank == tessera::table_shard::all_ranks; });
  if (tables == nullptr || j.s.exchange != "flat" || has_copies || found->batch_samples != j.s.batch_size) {
    j.say(
        "plan: not compared with its prediction, which is of --exchange flat without tower modules, of tables on one rank each and of "
        "--batch-size %lld\n",
        static_cast<long long>(found->batch_samples));
    return;
  }
  if (auto const why = other_tables(j, *found); !why.empty()) {
    j.say("plan: not compared with its prediction: %s\n", why.c_str());
    return;
  }
  if (j.comm.rank() == 0) of_samples([&] { return tessera::plan_sample_log(samples_path()).samples().size(); });
  tables_ = tables;
  now_ = std::make_unique<tessera::embedding_times>();
  last_step_ = std::make_unique<tessera::embedding_times>();
  tables_->add_times_to(now_.get());
}

plan_watch::~plan_watch() {
  if (tables_ != nullptr) tables_->add_times_to(nullptr);
}

void plan_watch::count_step() {
  if (tables_ == nullptr) return;
  tessera::step_costs const costs{1000 * (now_->compute - last_step_->compute), 1000 * (now_->gradients - last_step_->gradients),
                                  1000 * (now_->vectors - last_step_->vectors)};
  *last_step_ = *now_;
  if (count_ < most_steps)
    steps_.push_back(costs);
  else
    steps_[count_ % most_steps] = costs;
  ++count_;
}

void plan_watch::conclude() {
  if (tables_ == nullptr || count_ == 0) return;
  auto const& found = *j_.planned().found;
  auto const median = [&](double tessera::step_costs::*part) {
    std::vector<double> all;
    for (auto const& step : steps_) all.push_back(step.*part);
    return tessera::detail::median_of(std::move(all));
  };
  using tessera::step_costs;
  double const own[3]{median(&step_costs::compute_ms), median(&step_costs::backward_ms), median(&step_costs::forward_ms)};
  auto comm = j_.comm;
  tessera::any_pending pending;
  tessera::plan_sample now{j_.planned().plan.shards,
                           tessera::plan_digest(j_.planned().plan),
                           found.model,
                           j_.s.batch_size,
                           static_cast<std::int64_t>(steps_.size()),
                           found.devices,
                           {}};
  for (auto const& of_rank : tessera::all_gather<double>(j_.exec, comm, {own, 3}, pending, "times of the embeddings"))
    now.measured.push_back({of_rank[0], of_rank[1], of_rank[2]});
  if (comm.rank() != 0) return;

  j_.say("embeddings, ms a step, predicted / measured (medians of %lld steps), by model %s:\n", static_cast<long long>(now.steps),
         found.model.c_str());
  for (std::size_t r = 0; r < now.measured.size(); ++r) {
    auto const &predicted = now.predicted[r], &measured = now.measured[r];
    j_.say("rank %zu: %s, %s, %s, %s\n", r, parts_text("compute", predicted.compute_ms, measured.compute_ms).c_str(),
           parts_text("backward exchange", predicted.backward_ms, measured.backward_ms).c_str(),
           parts_text("forward exchange", predicted.forward_ms, measured.forward_ms).c_str(),
           parts_text("all", predicted.total_ms(), measured.total_ms()).c_str());
  }
  auto const path = samples_path();
  std::optional<double> expected;
  of_samples([&] {
    tessera::plan_sample_log log(path);
    expected = tessera::expected_error(now, log.samples(), found.relative_error);
    log.append(now);
  });
  j_.say("plan: off by %.0f %% at most, added to %s\n", 100 * now.error(), path.c_str());
  if (!expected || !(now.error() > tessera::grown_error * *expected)) return;
  std::fflush(stdout);
  std::fprintf(stderr,
               "train_ctr: predictions of the plan are off by %.0f %%, more than %.0f times the %.0f %% that were expected: measure again "
               "and fit anew\n",
               100 * now.error(), tessera::grown_error, 100 * *expected);
}

}  // namespace examples
