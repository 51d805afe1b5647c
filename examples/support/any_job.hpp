// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/tessera_files.hpp>

#include "optimizer_choice.hpp"
#include "output_files.hpp"
#include "settings.hpp"

namespace examples {

using nlohmann::json;

/// What every run has. One of a kind of data also has
/// - `train_rows()`, `test_rows()`, `train_fingerprint()`, `table_name(t)`;
/// - `train_reader()`, `test_reader()`, and `ahead(model)`: what is prepared of a batch that is read ahead;
/// - `make_model<Model>(row optimizer)`; `save_data(folder)`: what of the data a checkpoint keeps.
struct any_job {
  settings const& s;
  tessera::host_exec exec;
  std::optional<tessera::open_checkpoint> start;  // of a run that goes on, or is tested
};

/// Trains or tests what the settings ask for on Parquet files. In train_ctr/sessions.cpp, where that is built with Apache Arrow.
void run_sessions(any_job base);

/// A table number `tables.size()` more, with room for this optimizer's state beside each row.
template <class Store>
void add_table(any_job const& j, std::vector<Store>& tables, std::int64_t dim, std::int64_t rows, row_optimizer_choice const& choice) {
  auto const bound =
      j.s.embedding_init == "rows" ? 1 / std::sqrt(static_cast<float>(rows)) : std::strtof(j.s.embedding_init.c_str(), nullptr);
  tessera::table_id const id{static_cast<std::int64_t>(tables.size())};
  tessera::with_optimizer(choice, [&](auto const& optimizer) {
    tables.emplace_back(j.exec, tessera::table_options{id, dim, rows, bound, tessera::random_seed{j.s.seed}}, optimizer);
  });
}

template <class Interaction>
typename Interaction::options interaction_options(settings const& s) {
  typename Interaction::options options;
  if constexpr (std::is_same_v<Interaction, tessera::cross_layers>) options = {.layers = s.cross_layers, .rank = s.cross_rank};
  return options;
}

template <class Model>
void print_model(Model const& model, std::int64_t dense_features) {
  std::size_t bytes = 0;
  for (auto const& table : model.tables()) bytes += table.bytes();
  std::printf("model: %lld dense features, %lld tables of dim %lld (%.2f MB with optimizer state), %lld dense parameters\n",
              static_cast<long long>(dense_features), static_cast<long long>(model.tables().size()), static_cast<long long>(model.dim()),
              static_cast<double>(bytes) / 1e6, static_cast<long long>(model.parameter_count()));
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

inline void print_test(json const& result) {
  auto const figure = [&](char const* name) { return result[name].get<double>(); };
  std::printf("test auc=%.4f logloss=%.4f ne=%.4f calibration=%.3f samples_per_second=%.0f\n", figure("auc"), figure("logloss"),
              figure("ne"), figure("calibration"), figure("samples_per_second"));
}

inline void write_test(metrics_file& metrics, json line, std::int64_t step) {
  line.update({{"event", "test"}, {"step", step}});
  metrics.write(line);
}

/// Tests the model; the last time also writes predictions. `calibration`, where wanted, is that of this test.
template <class Model, class Job>
json test(Job const& j, Model const& model, bool last, tessera::calibration_curve* calibration = nullptr) {
  auto const started = std::chrono::steady_clock::now();
  auto reader = j.test_reader();
  std::optional<whole_file> csv;
  if (calibration != nullptr) calibration->clear();
  if (last && !j.s.predict.empty()) csv.emplace("--predict", j.s.predict).text << "sample,label,probability\n";
  auto const result =
      tessera::evaluate(j.exec, model, reader, [&](tessera::batch_view const& batch, tessera::vector_view<float const> logits) {
        if (calibration != nullptr) calibration->add(logits, batch.labels);
        if (!csv) return;
        for (std::int64_t i = 0; i < logits.size(); ++i)
          csv->text << batch.sample_ids[i] << ',' << batch.labels[i] << ','
                    << text("%.9g", static_cast<double>(tessera::sigmoid(logits[i]))) << '\n';
      });
  if (csv) csv->commit();
  auto line = to_json(result, j.exec);
  line["samples_per_second"] = static_cast<double>(j.test_rows()) / seconds_since(started);
  return line;
}

template <class Model, class Job>
void evaluate_only(Job const& j) {
  auto model = j.template make_model<Model>(decaying<tessera::sgd>{});
  tessera::load_model(j.exec, *j.start, model);
  metrics_file metrics(j.s.metrics, true);
  auto const result = test(j, model, true);
  write_test(metrics, result, j.start->state.step);
  print_test(result);
}

}  // namespace examples
