// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/nn/calibration.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_folder.hpp>
#include <tessera/train/evaluation.hpp>
#include <tessera/train/feature_interaction.hpp>

#include "optimizer_choice.hpp"
#include "output_files.hpp"
#include "settings.hpp"

// Who multiplies; `-D TESSERA_TRAIN_GEMM=…` trains by another policy.
#ifndef TESSERA_TRAIN_GEMM
#define TESSERA_TRAIN_GEMM tessera::eigen_gemm
#endif

namespace examples {

using nlohmann::json;

/// What a run has beside its data. Of several ranks each has one.
struct any_job {
  settings const& s;
  tessera::host_exec exec;
  std::optional<tessera::open_checkpoint> start;  // of a run that goes on, or is tested
  metrics_file& metrics;
  tessera::any_communicator comm = tessera::self_communicator();

  /// Prints, once for all ranks.
  void say(char const* format, auto... values) const {
    if (comm.rank() == 0) std::printf(format, values...);
  }
};

template <class Interaction>
typename Interaction::options interaction_options(settings const& s) {
  typename Interaction::options options;
  if constexpr (std::is_same_v<Interaction, tessera::cross_layers>) options = {.layers = s.cross_layers, .rank = s.cross_rank};
  return options;
}

/// "dim 16", or the least and the most.
inline std::string dims_of(std::vector<tessera::table_spec> const& tables) {
  if (tables.empty()) return "no dim";
  auto least = tables[0].table.dim, most = least;
  for (auto const& spec : tables) {
    least = std::min(least, spec.table.dim);
    most = std::max(most, spec.table.dim);
  }
  return "dim " + std::to_string(least) + (least == most ? "" : " to " + std::to_string(most));
}

/// All ranks call it.
template <class Model>
void print_model(any_job const& j, Model& model, std::vector<tessera::table_spec> const& tables, std::int64_t dense_features) {
  auto comm = j.comm;
  tessera::any_pending pending;
  std::int64_t own[2] = {static_cast<std::int64_t>(model.source().bytes()), 0};
  std::int64_t bytes = 0, most = 0, parameters = 0;
  for (auto const& group : model.groups())
    (group.replication == tessera::replication::everywhere ? parameters : own[1]) += group.is_copy ? 0 : group.values.size();
  for (auto const& of_rank : tessera::all_gather<std::int64_t>(j.exec, comm, {own, 2}, pending, "sizes of the model")) {
    bytes += of_rank[0];
    most = std::max(most, of_rank[0]);
    parameters += of_rank[1];
  }
  j.say("model: %s, %zu tables of %s (%.2f MB with optimizer state), %lld dense parameters\n",
        dense_features == 0 ? "no dense features, no bottom MLP" : (std::to_string(dense_features) + " dense features").c_str(),
        tables.size(), dims_of(tables).c_str(), static_cast<double>(bytes) / 1e6, static_cast<long long>(parameters));
  if (comm.size() > 1) j.say("%d ranks, with at most %.2f MB of tables each\n", comm.size(), static_cast<double>(most) / 1e6);
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Where all labels are the same, AUC and normalised entropy are NaN: "nan" as text, null as JSON.
inline json to_json(tessera::evaluation const& e, tessera::host_exec const& exec) {
  auto const entropy = e.clicks.normalised_entropy();  // a NaN of either sign
  return {{"auc", e.auc.value(exec)},
          {"logloss", e.clicks.log_loss()},
          {"ne", std::isnan(entropy) ? std::numeric_limits<double>::quiet_NaN() : entropy},
          {"calibration", e.clicks.calibration()}};
}

inline void print_test(any_job const& j, json const& result) {
  auto const figure = [&](char const* name) { return result[name].get<double>(); };
  j.say("test auc=%.4f logloss=%.4f ne=%.4f calibration=%.3f samples_per_second=%.0f\n", figure("auc"), figure("logloss"), figure("ne"),
        figure("calibration"), figure("samples_per_second"));
}

inline void write_test(metrics_file& metrics, json line, std::int64_t step) {
  line.update({{"event", "test"}, {"step", step}});
  metrics.write(line);
}

/// A model that is no longer worth keeping.
struct divergence : tessera::error {
  using error::error;
};

/// @throws divergence where `what`, of a model behind so many steps, is no number: infinite or NaN.
inline void check_converges(settings const& s, std::int64_t step, std::string const& what, bool is_number) {
  if (!is_number)
    throw divergence(tessera::errc::invalid_argument, "training diverged, " + what + " is no number: lower --lr or --embedding-lr",
                     {{"step", step}, {"--lr", shown(s.lr)}, {"--embedding-lr", shown(s.embedding_lr)}});
}
inline void check_predictions(settings const& s, std::int64_t step, tessera::vector_view<float const> logits) {
  check_converges(s, step, "a prediction", std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }));
}

/// Whether all of some numbers are finite.
bool all_finite(tessera::host_exec const& exec, tessera::vector_view<float const> values);
bool all_finite(tessera::host_exec const& exec, tessera::table_part const& table, tessera::row_plane plane);

/// Checks all that a checkpoint keeps of a training run: a batch's predictions show neither rows of other ids nor optimizer states.
/// @throws divergence as `check_converges`.
template <class Job, class Trainer>
void check_state(Job const& j, Trainer& run, std::int64_t step) {
  using tessera::row_plane;
  auto const parts = run.model().source().parts();
  auto const places = run.model().source().places().parts;
  for (std::size_t t = 0; t < parts.size(); ++t) {
    auto const of_table = " of table " + j.tables()[static_cast<std::size_t>(places[t].table)];
    auto const& part = *parts[t];
    check_converges(j.s, step, "a weight" + of_table,
                    all_finite(j.exec, part, row_plane::step) && all_finite(j.exec, part, row_plane::weights));
    check_converges(j.s, step, "an optimizer state" + of_table, all_finite(j.exec, part, row_plane::state));
  }
  for (auto const& group : run.model().groups()) check_converges(j.s, step, "a dense parameter", all_finite(j.exec, group.values));
  for (auto const& named : run.dense_states())
    check_converges(j.s, step, "an optimizer state of the dense parameters", all_finite(j.exec, named.state->planes()));
}

/// Tests the model as it is behind so many steps; the last time also writes predictions. `calibration`, where wanted, is that of this test.
/// All ranks call it, and have the same result.
template <class Model, class Job>
json test(Job const& j, Model const& model, std::int64_t step, bool last, tessera::calibration_curve* calibration = nullptr) {
  auto const started = std::chrono::steady_clock::now();
  auto reader = j.test_reader();
  std::optional<whole_file> csv;
  if (calibration != nullptr) calibration->clear();
  auto comm = j.comm;
  if (last && !j.s.predict.empty() && comm.rank() == 0) csv.emplace("--predict", j.s.predict).text << "sample,label,probability\n";
  auto const seen = [&](tessera::batch_view const& batch, tessera::vector_view<float const> logits) {
    check_predictions(j.s, step, logits);
    if (calibration != nullptr) calibration->add(logits, batch.labels);
    if (!csv) return;
    for (std::int64_t i = 0; i < logits.size(); ++i)
      csv->text << batch.sample_ids[i] << ',' << batch.labels[i] << ',' << text("%.9g", static_cast<double>(tessera::sigmoid(logits[i])))
                << '\n';
  };
  auto const result = comm.size() == 1 ? tessera::evaluate(j.exec, model, reader, seen, j.s.chunks())
                                       : tessera::evaluate(j.exec, comm, model, reader, seen, j.s.chunks());
  if (csv) csv->commit();
  auto line = to_json(result, j.exec);
  line["samples_per_second"] = static_cast<double>(j.test_rows()) / seconds_since(started);
  return line;
}

template <class Model, class Job>
void evaluate_only(Job const& j) {
  auto model = j.template make_model<Model>();
  tessera::load_model(j.exec, *j.start, model);
  j.metrics.begin();
  auto const result = test(j, model, j.start->state.step, true);
  write_test(j.metrics, result, j.start->state.step);
  print_test(j, result);
}

}  // namespace examples
