// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/tessera_files.hpp>

#include "any_job.hpp"
#include "report_page.hpp"
#include "running_figures.hpp"
#include "training_job.hpp"

// Who multiplies; `-D TESSERA_TRAIN_GEMM=…` trains by another policy.
#ifndef TESSERA_TRAIN_GEMM
#define TESSERA_TRAIN_GEMM tessera::eigen_gemm
#endif

namespace examples {

template <class Trainer>
void save(training_job const& j, Trainer& run, tessera::reader_position const& p) {
  json options;
  for_each_kept(j.s, [&](char const* name, auto const& value, bool) { options[name] = value; });
  options["data"] = j.description_json();
  json const position{{"epoch", p.epoch}, {"block", p.block},          {"offset", p.offset},
                      {"batch", p.batch}, {"samples", j.train_rows()}, {"fingerprint", j.train_fingerprint()}};
  tessera::save_checkpoint(j.exec, j.s.checkpoint, run, {p.batch, options, position}, 2,
                           [&](std::string const& folder) { return j.save_data(folder); });
}

/// Goes back to where the checkpoint was saved; the training data must be the same.
template <class Trainer, class Reader>
void resume(training_job const& j, Trainer& run, Reader& reader) {
  auto const saved = [&](char const* name) {
    return tessera::json_count(j.start->state.position, name, j.start->folder + "/manifest.json");
  };
  for (auto const& [name, found] : {std::pair("samples", j.train_rows()), std::pair("fingerprint", std::int64_t{j.train_fingerprint()})})
    if (found != saved(name))
      throw tessera::error(tessera::errc::incompatible, "option --train: the checkpoint is of a run on other data",
                           {{name, found}, {"of the checkpoint", saved(name)}});
  auto const report = tessera::load_trainer(j.exec, *j.start, run);
  reader.seek({saved("epoch"), saved("block"), saved("offset"), saved("batch")});
  j.metrics.drop_behind(reader.position());
  j.say("resumed from %s\n", j.start->folder.c_str());
  for (auto const table : report.averaged_tables)
    j.say("table %s: states of whole rows are means, since its columns are cut otherwise than they were\n",
          j.tables()[static_cast<std::size_t>(table)].c_str());
  auto const done = reader.position().epoch + (reader.epoch_samples() == j.train_rows() ? 1 : 0);
  if (done >= j.s.epochs)
    j.say("nothing to train: the checkpoint has %lld epochs behind it, and --epochs is %lld\n", static_cast<long long>(done),
          static_cast<long long>(j.s.epochs));
}

/// What a run tells a person and its metrics file of the batches it trains on.
class training_report {
 public:
  explicit training_report(any_job const& j) : j_(j), figures_(j.s.progressive) { j.metrics.begin(); }

  double recent_auc() const { return figures_.recent_auc(j_.exec); }
  json progressive() const { return figures_.to_json(j_.exec); }

  void add(double loss, tessera::vector_view<float const> logits, tessera::vector_view<float const> labels) {
    shown_loss_.add(loss);
    written_loss_.add(loss);
    figures_.add(j_.exec, logits, labels);
  }
  void show(tessera::progress& bar, std::int64_t epoch, std::int64_t samples) {
    if (j_.comm.rank() != 0 || !bar.due()) return;
    bar.show(samples, text("epoch %lld/%lld  loss %.4f  auc %.4f", static_cast<long long>(epoch + 1), static_cast<long long>(j_.s.epochs),
                           shown_loss_.take(), recent_auc()));
  }
  /// The same on all ranks, of which the first writes.
  bool writes(std::int64_t step) const { return !j_.s.metrics.empty() && step % 100 == 0; }
  void write(std::int64_t step, std::int64_t epoch, std::int64_t samples) {
    if (!writes(step)) return;
    json line{{"event", "train"},   {"step", step}, {"epoch", epoch}, {"samples", samples}, {"loss", written_loss_.take()},
              {"auc", recent_auc()}};
    if (j_.s.progressive) line.update(progressive());
    j_.metrics.write(line);
  }
  /// After the last batch, where all were tested first.
  void conclude(std::int64_t step, std::int64_t epoch) {
    if (!j_.s.progressive) return;
    auto line = progressive();
    auto const figure = [&](char const* name) { return line[name].get<double>(); };
    j_.say("progressive auc=%.4f logloss=%.4f window_auc=%.4f window_logloss=%.4f samples=%lld\n", figure("progressive_auc"),
           figure("progressive_logloss"), figure("window_auc"), figure("window_logloss"),
           static_cast<long long>(line["tested"].get<std::int64_t>()));
    line.update({{"event", "progressive"}, {"step", step}, {"epoch", epoch}});
    j_.metrics.write(line);
  }

 private:
  any_job const& j_;
  progressive_figures figures_;
  running_mean shown_loss_, written_loss_;
};

/// Epochs from where the reader stands; the step of a batch read ahead takes what was sorted for it. All ranks call it, and take the same
/// steps: each knows what all predicted.
template <class Model, class Trainer, class Reader>
void train_epochs(training_job const& j, tessera::host_exec const& step_exec, Model& model, Trainer& run, Reader& reader) {
  training_report report(j);
  report_page page(j, model);
  auto comm = j.comm;
  tessera::gathered_predictions of_all;
  tessera::calibration_curve calibration;
  json result;
  std::int64_t trained = 0;
  auto behind = reader.position();  // the last batch, which at the end of an epoch is before its test
  auto saved_at = j.start ? behind.batch : std::int64_t{-1};
  double training_seconds = 0;
  auto const keep = [&] {
    if (j.s.checkpoint.empty() || saved_at == behind.batch) return;
    check_state(j, run, behind.batch);
    save(j, run, behind);
    saved_at = behind.batch;
  };
  // Lines that cannot be written and tests that fail end a run, and cost it no training: before them, the model is known to be good.
  auto const or_keep = [&](auto const& work) {
    try {
      work();
    } catch (divergence const&) {
      throw;
    } catch (...) {
      try {
        if (j.comm.size() == 1) keep();    // which all ranks call
      } catch (std::exception const& e) {  // what came first ends the run
        std::fprintf(stderr, "train_ctr: the model could not be saved: %s\n", e.what());
      }
      throw;
    }
  };
  while (reader.position().epoch < j.s.epochs) {
    auto const epoch = reader.position().epoch;
    auto const before = reader.epoch_samples();  // not 0 where a run goes on in the midst of an epoch
    auto samples = before;
    tessera::progress bar(stdout, isatty(STDOUT_FILENO) != 0, j.train_rows(), before);
    auto const started = std::chrono::steady_clock::now();
    for (tessera::batch_view batch; reader.next(step_exec, batch);) {
      behind = reader.position();
      auto const step = behind.batch;
      set_learning_rates(j.s, j.tables(), run, tessera::step_count{step});
      double loss = 0;
      if constexpr (requires { run.step(step_exec, batch, reader.prepared()); })
        loss = run.step(step_exec, batch, reader.prepared());
      else
        loss = run.step(step_exec, batch);
      check_converges(j.s, step, "the loss", std::isfinite(loss));
      if (comm.size() > 1) of_all.gather(step_exec, comm, batch, run.logits());
      auto const labels = comm.size() > 1 ? of_all.batch().labels : batch.labels;
      samples += labels.size();
      bool const saves = j.s.checkpoint_every > 0 && step % j.s.checkpoint_every == 0;
      if (saves || report.writes(step) || samples == j.train_rows()) {  // the loss is that before the step
        typename Model::saved_type predicted;
        check_predictions(j.s, step, model.predict(step_exec, batch, predicted));
      }
      report.add(loss, comm.size() > 1 ? of_all.logits() : run.logits(), labels);
      report.show(bar, epoch, samples);
      or_keep([&] { report.write(step, epoch, samples); });
      page.add(batch, loss);
      if (page.due(step)) page.add_point(step, report.recent_auc());
      if (saves) keep();
    }
    training_seconds += seconds_since(started);
    trained += samples - before;
    bar.clear();
    if (trained > 0) or_keep([&] { report.conclude(reader.position().batch, epoch); });
    if (epoch + 1 == j.s.epochs) keep();                              // before the test, whose predictions may be impossible to write
    if (saved_at != behind.batch) check_state(j, run, behind.batch);  // else it was checked then
    or_keep([&] {
      result = test(j, model, reader.position().batch, epoch + 1 == j.s.epochs, &calibration);
      result["epoch"] = epoch;
      if (trained > 0) result["samples_per_second"] = static_cast<double>(trained) / training_seconds;
      if (!j.metrics.has_test_of(epoch)) write_test(j.metrics, result, reader.position().batch);
      page.add_test(reader.position().batch, result);
    });
    j.say("epoch %lld/%lld: %stest auc %.4f logloss %.4f, %.0f samples/s\n", static_cast<long long>(epoch + 1),
          static_cast<long long>(j.s.epochs), trained > 0 ? text("train auc %.4f, ", report.recent_auc()).c_str() : "",
          result["auc"].get<double>(), result["logloss"].get<double>(), result["samples_per_second"].get<double>());
  }
  if (result.is_null()) {  // resumed behind the last epoch
    auto const at = reader.position();
    result = test(j, model, at.batch, true, &calibration);
    if (reader.epoch_samples() == j.train_rows()) result["epoch"] = at.epoch;  // in the midst of one, its own test is still to come
    if (!j.metrics.has_test_of(at.epoch)) write_test(j.metrics, result, at.batch);
    page.add_test(at.batch, result);
  }
  page.write(calibration);
  print_test(j, result);
}

template <class Model>
void train(training_job const& j) {
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  auto model = j.make_model<Model>();
  tessera::trainer_options options{.clip_norm = j.s.clip_norm};
  if (j.comm.size() > 1) options.comm = j.comm;
  tessera::trainer run(j.exec, model, choose_dense_optimizer(j.s), options);
  auto reader = j.train_reader();
  if (j.start) resume(j, run, reader);
  if (j.s.threads < 2 || j.s.pipeline == "off") return train_epochs(j, j.exec.with_memory(workspace), model, run, reader);
  tessera::serial_team alone;
  tessera::thread_pool others(j.s.threads - 1);
  tessera::background_thread reading;
  tessera::prefetching_reader ahead(tessera::host_exec(alone, memory), reading, reader, {}, tessera::sort_ahead(model));
  train_epochs(j, tessera::host_exec(others, workspace), model, run, ahead);
}

template <class Model>
void run_model(training_job const& j) {
  j.s.eval_only ? evaluate_only<Model>(j) : train<Model>(j);
}

}  // namespace examples
