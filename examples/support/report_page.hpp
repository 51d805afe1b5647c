// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/embed/table_part.hpp>
#include <tessera/nn/calibration.hpp>
#include <tessera/tensor/batch.hpp>

#include "any_job.hpp"
#include "html_page.hpp"
#include "running_figures.hpp"

namespace examples {

/// How often each row of each table was read in training; of a batch whose repeated lists are there once, once a list. Ranks count the reads of
/// their samples.
class access_counts {
 public:
  template <class Job, class Model>
  access_counts(Job const& j, Model& model) {
    for (auto const& feature : j.table_features()) tables_.push_back(feature.table);  // one a key
    for (std::size_t t = 0; t < j.tables().size(); ++t) {
      bool const has_all = j.s.of_table(j.tables()[t]).hash_table == 0;
      auto const rows = has_all ? model.source().places().tables[t].rows : 0;
      counts_.push_back({has_all, std::vector<std::int64_t>(static_cast<std::size_t>(rows)), {}});
    }
  }

  void add(tessera::batch_view const& batch) {
    for (std::int64_t key = 0; key < batch.sparse.keys; ++key) {
      auto& counts = counts_[static_cast<std::size_t>(tables_[static_cast<std::size_t>(key)])];
      for (auto const id : batch.sparse.key(key).all_values())
        ++(counts.has_all ? counts.all[static_cast<std::size_t>(id)] : counts.seen[id]);
    }
  }

  /// Adds up the reads of all ranks, which all call it. @post the first one has them all
  void gather(tessera::host_exec const& exec, tessera::any_communicator comm) {
    if (comm.size() == 1) return;
    std::vector<std::int64_t> own;  // table, id, count
    for (std::size_t t = 0; t < counts_.size(); ++t) {
      auto& [has_all, all, seen] = counts_[t];
      for (std::size_t id = 0; id < all.size(); ++id)
        if (auto const count = std::exchange(all[id], 0); count > 0)
          own.insert(own.end(), {static_cast<std::int64_t>(t), static_cast<std::int64_t>(id), count});
      for (auto const& [id, count] : std::exchange(seen, {})) own.insert(own.end(), {static_cast<std::int64_t>(t), id, count});
    }
    tessera::any_pending pending;
    for (auto const& one : tessera::all_gather<std::int64_t>(exec, comm, own, pending, "reads of rows"))
      for (std::int64_t i = 0; i < one.size() && comm.rank() == 0; i += 3) {
        auto& counts = counts_[static_cast<std::size_t>(one[i])];
        (counts.has_all ? counts.all[static_cast<std::size_t>(one[i + 1])] : counts.seen[one[i + 1]]) += one[i + 2];
      }
  }

  /// The counts of a table, most read first; of a hashed one, those of the ids that came.
  std::vector<std::int64_t> sorted(std::size_t table) const {
    auto counts = counts_[table].all;
    for (auto const& [id, count] : counts_[table].seen) counts.push_back(count);
    std::sort(counts.begin(), counts.end(), std::greater<>());
    return counts;
  }

 private:
  std::vector<std::int64_t> tables_;
  struct counts_of_table {
    bool has_all;  // ids
    std::vector<std::int64_t> all;
    std::unordered_map<std::int64_t, std::int64_t> seen;
  };
  std::vector<counts_of_table> counts_;
};

/// The page that --report asks for: curves, calibration, options, and the tables with how unevenly their rows are read.
template <class Job, class Model>
class report_page {
 public:
  report_page(Job const& j, Model& model) : j_(j), model_(model) {
    if (wanted()) accesses_.emplace(j, model);
  }

  bool wanted() const { return !j_.s.report.empty(); }

  void add(tessera::batch_view const& batch, double loss) {
    if (!wanted()) return;
    accesses_->add(batch);
    mean_loss_.add(loss);
    run_loss_.add(loss);
  }
  /// Whether a point of the training curves is due: a few hundred over the whole run.
  bool due(std::int64_t step) const {
    auto const steps = j_.s.epochs * tessera::divide_up(j_.train_rows(), j_.s.batch_size);
    return wanted() && step % std::max<std::int64_t>(1, steps / 300) == 0;
  }
  void add_point(std::int64_t step, double auc) {
    train_loss_.add(step, mean_loss_.take());
    train_auc_.add(step, auc);
  }
  /// A run of batches of one class has ended.
  void end_run(std::int64_t step, tessera::batch_class kind) {
    if (wanted()) (kind == tessera::batch_class::hot ? hot_runs_ : cold_runs_).add(step, run_loss_.take());
  }
  void add_test(std::int64_t step, json const& result) {
    test_loss_.add(step, result["logloss"].get<double>());
    test_auc_.add(step, result["auc"].get<double>());
    last_ = result;
  }

  /// All ranks call it; the first one writes.
  void write(tessera::calibration_curve const& calibration) {
    if (!wanted()) return;
    accesses_->gather(j_.exec, j_.comm);
    auto const sizes = table_sizes();
    if (j_.comm.rank() != 0) return;
    html_page page("Training of a " + j_.s.model + ": test AUC " + text("%.4f", last_["auc"].get<double>()));
    page.table(
        {"test", "AUC", "log loss", "normalised entropy", "predicted / seen clicks", "samples"},
        {{all_of(j_.s.test), figure("auc"), figure("logloss"), figure("ne"), figure("calibration"), std::to_string(j_.test_rows())}});
    page.heading("Curves");
    page.paragraph(
        "Training: before each batch is learned from; the AUC is that of the last 32,768 to 65,536 samples. Test: after each epoch.");
    if (j_.start)
      page.paragraph("The run went on from step " + std::to_string(j_.start->state.step) +
                     ": training curves and reads of tables begin there.");
    std::vector<chart_series> losses{train_loss_.line("training"), test_loss_.line("test", true)};
    if (!hot_runs_.x.empty() || !cold_runs_.x.empty()) {
      page.paragraph(
          "A run of hot or of cold batches ends at its dot, with the mean loss of the run. Where they swap, hot rows then move.");
      losses.push_back(hot_runs_.line("hot runs", true));
      losses.push_back(cold_runs_.line("cold runs", true));
    }
    page.charts({{"Log loss", "step", "nats", std::move(losses)},
                 {"AUC", "step", "AUC", {train_auc_.line("training"), test_auc_.line("test", true)}}});
    page.heading("Calibration on the test data");
    page.paragraph(text("Samples in %zu bins of the predicted probability. Expected calibration error: %.4f.", calibration.bins().size(),
                        calibration.expected_error()));
    page.charts({calibration_chart(calibration), histogram(calibration)});
    write_tables(page, sizes);
    write_hot(page);
    page.heading("Options");
    page.table({"option", "value"}, options());
    whole_file file("--report", j_.s.report);
    file.text << page.text();
    file.commit();
  }

 private:
  struct curve {
    std::vector<double> x, y;

    void add(std::int64_t step, double value) {
      x.push_back(static_cast<double>(step));
      y.push_back(value);
    }
    chart_series line(char const* name, bool points = false) const { return {name, x, y, points}; }
  };

  static std::string all_of(std::vector<std::string> const& files) {
    std::string all;
    for (auto const& file : files) all += (all.empty() ? "" : ", ") + file;
    return all;
  }
  std::string figure(char const* name) const { return last_[name].is_number() ? text("%.4f", last_[name].get<double>()) : "-"; }

  static line_chart calibration_chart(tessera::calibration_curve const& calibration) {
    curve seen;
    for (auto const& bin : calibration.bins()) {
      if (bin.samples == 0) continue;
      seen.x.push_back(bin.mean_predicted());
      seen.y.push_back(bin.mean_clicks());
    }
    line_chart chart("Calibration", "predicted probability", "share of clicks",
                     {seen.line("model", true), {"perfect", {0, 1}, {0, 1}, false, true}});
    chart.y_least = 0;
    chart.y_most = 1;
    return chart;
  }
  static line_chart histogram(tessera::calibration_curve const& calibration) {
    curve share;
    auto const bins = static_cast<double>(calibration.bins().size());
    for (std::size_t b = 0; b < calibration.bins().size(); ++b) {
      share.x.push_back((static_cast<double>(b) + 0.5) / bins);
      share.y.push_back(static_cast<double>(calibration.bins()[b].samples) / static_cast<double>(calibration.samples()));
    }
    line_chart chart("Predictions", "predicted probability", "share of samples", {share.line("samples", true)});
    chart.y_least = 0;
    return chart;
  }

  struct table_size {
    std::int64_t rows = 0, weights = 0, state = 0;  // the last two in bytes
  };
  // Of each table, the shards of all ranks together.
  std::vector<table_size> table_sizes() const {
    std::vector<std::int64_t> own;  // table, rows, weights, state
    auto const parts = model_.source().parts();
    auto const places = model_.source().places();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      auto const bytes_of = [&](tessera::row_plane plane) {
        auto const shape = parts[p]->shape(plane);
        return parts[p]->rows() * shape.width * tessera::size_of(shape.type);
      };
      // Blocks of columns have the same rows, and so have copies.
      own.insert(own.end(),
                 {places.parts[p].table, places.parts[p].first_column == 0 && !places.parts[p].is_copy ? parts[p]->rows() : 0,
                  bytes_of(tessera::row_plane::weights) + bytes_of(tessera::row_plane::step), bytes_of(tessera::row_plane::state)});
    }
    std::vector<table_size> all(j_.tables().size());
    tessera::any_pending pending;
    auto comm = j_.comm;
    for (auto const& one : tessera::all_gather<std::int64_t>(j_.exec, comm, own, pending, "sizes of tables"))
      for (std::int64_t i = 0; i < one.size(); i += 4) {
        auto& of = all[static_cast<std::size_t>(one[i])];
        of = {of.rows + one[i + 1], of.weights + one[i + 2], of.state + one[i + 3]};
      }
    return all;
  }

  void write_tables(html_page& page, std::vector<table_size> const& sizes) const {
    page.heading("Embedding tables");
    page.paragraph("Share of the reads in training that go to the most read rows, and of the rows that were never read.");
    std::vector<std::vector<std::string>> rows;
    std::vector<chart_series> skew;
    auto const percent = [](double part, double whole) { return whole > 0 ? text("%.1f %%", 100 * part / whole) : std::string("-"); };
    auto const places = model_.source().places();
    auto const& features = j_.tables();
    for (std::size_t t = 0; t < sizes.size(); ++t) {
      auto const counts = accesses_->sorted(t);
      auto const reads = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      auto const of_most_read = [&](double share) {
        auto const most = static_cast<std::int64_t>(share * static_cast<double>(counts.size()) + 0.999);
        return static_cast<double>(std::accumulate(counts.begin(), counts.begin() + most, std::int64_t{0}));
      };
      auto const never = std::count(counts.begin(), counts.end(), 0);
      auto const& name = features[t];
      rows.push_back({name, std::to_string(sizes[t].rows), std::to_string(places.tables[t].dim), megabytes(sizes[t].weights),
                      megabytes(sizes[t].state), std::to_string(reads), percent(of_most_read(0.01), static_cast<double>(reads)),
                      percent(of_most_read(0.1), static_cast<double>(reads)),
                      percent(static_cast<double>(never), static_cast<double>(counts.size()))});
      if (counts.size() >= 100 && reads > 0) skew.push_back(skew_line(name, counts, reads));
    }
    page.table({"feature", "rows", "dim", "weights MB", "optimizer MB", "reads", "top 1 %", "top 10 %", "never"}, rows);
    if (skew.empty()) return;
    if (skew.size() > 6) skew.erase(skew.begin() + 6, skew.end());
    page.charts({{"Access skew (tables of at least 100 rows, the first six)", "share of rows, most read first", "share of reads", skew}});
  }

  void write_hot(html_page& page) const {
    auto const* const hot = j_.hot();
    if (hot == nullptr) return;
    page.heading("Hot rows");
    page.paragraph(text("%lld rows, %.3f MB on each rank, were hot, and %.1f %% of the training samples.",
                        static_cast<long long>(hot->rows), static_cast<double>(hot->bytes) / 1e6,
                        100 * static_cast<double>(hot->classes.hot()) / static_cast<double>(hot->classes.size())));
    page.paragraph(
        "Of a threshold, a share of a table's ids that makes a row hot: what would be hot above it, by a twentieth of the data; the "
        "share of samples is that of others, if there are any.");
    std::vector<std::vector<std::string>> rows;
    auto const percent = [](double share) { return text("%.2f %%", 100 * share); };
    for (std::size_t i = 0; i < hot->thresholds.size(); ++i) {
      auto const& t = hot->thresholds[i];
      rows.push_back({text("%.3g %%%s", t.percent, t.percent == hot->percent ? " (chosen)" : ""), std::to_string(t.rows),
                      megabytes(t.bytes), percent(t.share_of_rows), percent(t.share_of_accesses), percent(hot->shares_of_samples[i])});
    }
    page.table({"threshold", "rows", "MB", "of all rows", "of all ids", "of all samples"}, rows);
  }

  static chart_series skew_line(std::string const& name, std::vector<std::int64_t> const& counts, std::int64_t reads) {
    curve line;
    constexpr std::size_t points = 100;
    std::int64_t sum = 0;
    std::size_t next = 0;
    for (std::size_t point = 0; point <= points; ++point) {
      for (auto const until = counts.size() * point / points; next < until; ++next) sum += counts[next];
      line.x.push_back(static_cast<double>(point) / points);
      line.y.push_back(static_cast<double>(sum) / static_cast<double>(reads));
    }
    return {name, line.x, line.y};
  }

  static std::string megabytes(std::int64_t bytes) { return text("%.3f", static_cast<double>(bytes) / 1e6); }

  std::vector<std::vector<std::string>> options() const {
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"--train", all_of(j_.s.train)});
    rows.push_back({"--test", all_of(j_.s.test)});
    for_each_kept(j_.s, [&](char const* name, auto const& value, bool) { rows.push_back({std::string("--") + name, shown(value)}); });
    rows.push_back({"--threads", std::to_string(j_.s.threads)});
    if (j_.comm.size() > 1) rows.push_back({"ranks", std::to_string(j_.comm.size())});
    return rows;
  }

  Job const& j_;
  Model& model_;
  std::optional<access_counts> accesses_;
  running_mean mean_loss_, run_loss_;
  curve hot_runs_, cold_runs_;
  curve train_loss_, train_auc_, test_loss_, test_auc_;
  json last_;
};

}  // namespace examples
