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
  metrics_file& metrics;
};

/// Trains or tests what the settings ask for on Parquet files. In train_ctr/sessions.cpp, where that is built with Apache Arrow.
void run_sessions(any_job base);

/// A table number `tables.size()` more, with room for this optimizer's state beside each row.
/// @throws tessera::error naming the options of its size where there is no memory for it.
template <class Store>
void add_table(any_job const& j, std::vector<Store>& tables, std::int64_t dim, std::int64_t rows, row_optimizer_choice const& choice) {
  auto bound = 1 / std::sqrt(static_cast<float>(rows));
  if (j.s.embedding_init != "rows") parse_number(j.s.embedding_init, bound);
  tessera::table_id const id{static_cast<std::int64_t>(tables.size())};
  tessera::with_optimizer(choice, [&](auto const& optimizer) {
    tessera::check_optimizer(optimizer);  // so that nothing but the size is refused below
    try {
      tables.emplace_back(j.exec, tessera::table_options{id, dim, rows, bound, tessera::random_seed{j.s.seed}}, optimizer);
    } catch (tessera::error const& e) {
      throw tessera::error(e.code(), "option --hash-size, --vocabulary-limit or --embedding-dim: no memory for a table",
                           {{"table", id.value}, {"rows", rows}, {"dim", dim}, {"reason", e.sentence()}});
    }
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
  std::printf("model: %s, %lld tables of dim %lld (%.2f MB with optimizer state), %lld dense parameters\n",
              dense_features == 0 ? "no dense features, no bottom MLP" : (std::to_string(dense_features) + " dense features").c_str(),
              static_cast<long long>(model.tables().size()), static_cast<long long>(model.dim()), static_cast<double>(bytes) / 1e6,
              static_cast<long long>(model.parameter_count()));
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

/// Whether `value(row, column)` is a number for all of so many rows and columns.
template <class Value>
bool all_finite(tessera::host_exec const& exec, std::int64_t rows, std::int64_t columns, Value const& value) {
  auto const rows_per_piece = std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, columns));
  std::atomic<bool> all = true;
  tessera::for_each_index(exec, rows, rows_per_piece, [&](std::int64_t row) {
    bool finite = true;
    for (std::int64_t c = 0; c < columns; ++c) finite &= tessera::is_finite(value(row, c));
    if (!finite) all = false;
  });
  return all;
}

/// Checks all that a checkpoint keeps of a training run: a batch's predictions show neither rows of other ids nor optimizer states.
/// @throws divergence as `check_converges`.
template <class Job, class Trainer>
void check_state(Job const& j, Trainer& run, std::int64_t step) {
  auto const check = [&](std::string const& what, std::int64_t rows, std::int64_t columns, auto const& value) {
    check_converges(j.s, step, what, all_finite(j.exec, rows, columns, value));
  };
  auto const& tables = std::as_const(run).model().tables();
  for (std::size_t t = 0; t < tables.size(); ++t) {
    auto const& table = tables[t];
    auto const of_table = " of table " + j.table_name(static_cast<std::int64_t>(t));
    using scale = tessera::row_scale<typename std::decay_t<decltype(table)>::element>;
    check("a weight" + of_table, table.rows(), table.dim(), [&](std::int64_t slot, std::int64_t c) {
      auto const* const row = table.row(slot);
      return scale::of(row).value(row[c]);
    });
    auto const states = table.states();
    check("an optimizer state" + of_table, states.rows(), states.columns(), [=](std::int64_t r, std::int64_t c) { return states(r, c); });
  }
  auto const check_dense = [&](std::string const& what, tessera::vector_view<float const> values) {
    check(what, values.size(), 1, [=](std::int64_t i, std::int64_t) { return values[i]; });
  };
  for (auto const& group : run.model().groups()) check_dense("a dense parameter", group.values);
  for (auto const& named : run.dense_states()) check_dense("an optimizer state of the dense parameters", named.state->planes());
}

/// Tests the model as it is behind so many steps; the last time also writes predictions. `calibration`, where wanted, is that of this test.
template <class Model, class Job>
json test(Job const& j, Model const& model, std::int64_t step, bool last, tessera::calibration_curve* calibration = nullptr) {
  auto const started = std::chrono::steady_clock::now();
  auto reader = j.test_reader();
  std::optional<whole_file> csv;
  if (calibration != nullptr) calibration->clear();
  if (last && !j.s.predict.empty()) csv.emplace("--predict", j.s.predict).text << "sample,label,probability\n";
  auto const result =
      tessera::evaluate(j.exec, model, reader, [&](tessera::batch_view const& batch, tessera::vector_view<float const> logits) {
        check_predictions(j.s, step, logits);
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
  j.metrics.begin();
  auto const result = test(j, model, j.start->state.step, true);
  write_test(j.metrics, result, j.start->state.step);
  print_test(result);
}

}  // namespace examples
