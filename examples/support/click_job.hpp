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

/// The data of a run, its preprocessing, and the checkpoint it starts from, if any.
struct job {
  settings const& s;
  tessera::host_exec exec;
  std::optional<tessera::open_checkpoint> start;
  std::optional<tessera::click_log> train, test;
  std::optional<tessera::preprocessing> preprocess;

  tessera::batch_reader test_reader() const { return {exec, *test, *preprocess, {.batch_size = 2048, .shuffle = false}}; }
};

/// Trains or tests the model that the settings ask for, its rows made of `Element`. Instantiated in train_ctr/, a file each.
template <class Element>
void run_job(job const& j);
extern template void run_job<float>(job const&);
extern template void run_job<tessera::float16>(job const&);
extern template void run_job<tessera::bfloat16>(job const&);
extern template void run_job<tessera::scaled_int8>(job const&);

/// A model of the kind that the settings ask for, with room for this optimizer's state beside each row.
template <class Model>
Model make_model(job const& j, row_optimizer_choice const& choice) {
  using interaction = typename Model::interaction_type;
  bool const has_weights = std::is_same_v<interaction, tessera::factorization>;  // of first order, behind the factors
  auto const dim = j.s.embedding_dim + (has_weights ? 1 : 0);
  std::vector<typename Model::store> tables;
  std::vector<tessera::pooled_feature> features;
  std::size_t bytes = 0;
  tessera::random_seed const seed{j.s.seed};
  for (std::int64_t f = 0; f < j.preprocess->sparse_features(); ++f) {
    auto const rows = j.preprocess->id_count(f);
    auto const bound =
        j.s.embedding_init == "rows" ? 1 / std::sqrt(static_cast<float>(rows)) : std::strtof(j.s.embedding_init.c_str(), nullptr);
    tessera::with_optimizer(choice, [&](auto const& optimizer) {
      tables.emplace_back(j.exec, tessera::table_options{tessera::table_id{f}, dim, rows, bound, seed}, optimizer);
    });
    features.push_back({.table = f});
    bytes += tables.back().bytes();
  }
  typename interaction::options options;
  if constexpr (std::is_same_v<interaction, tessera::cross_layers>) options = {.layers = j.s.cross_layers, .rank = j.s.cross_rank};
  Model model(j.exec, tessera::click_model_options(j.preprocess->dense_features(), j.s.bottom, j.s.top, seed), std::move(tables),
              std::move(features), options);
  std::printf("model: %lld dense features, %lld tables of dim %lld (%.2f MB with optimizer state), %lld dense parameters\n",
              static_cast<long long>(j.preprocess->dense_features()), static_cast<long long>(model.feature_count()),
              static_cast<long long>(model.dim()), static_cast<double>(bytes) / 1e6, static_cast<long long>(model.parameter_count()));
  return model;
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
template <class Model>
json test(job const& j, Model const& model, bool last, tessera::calibration_curve* calibration = nullptr) {
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
  line["samples_per_second"] = static_cast<double>(j.test->rows()) / seconds_since(started);
  return line;
}

template <class Model>
void evaluate_only(job const& j) {
  auto model = make_model<Model>(j, decaying<tessera::sgd>{});
  tessera::load_model(j.exec, *j.start, model);
  metrics_file metrics(j.s.metrics, true);
  auto const result = test(j, model, true);
  write_test(metrics, result, j.start->state.step);
  print_test(result);
}

}  // namespace examples
