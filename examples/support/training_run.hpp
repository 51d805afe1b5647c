// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/background_thread.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/data/dealt_reader.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/files/json.hpp>
#include <tessera/nn/calibration.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tower/feature_affinity.hpp>
#include <tessera/tower/tower_partition.hpp>
#include <tessera/tower/tower_partition_file.hpp>
#include <tessera/train/any_source.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/gathered_predictions.hpp>
#include <tessera/train/progress.hpp>
#include <tessera/train/sort_ahead.hpp>
#include <tessera/train/trainer.hpp>
#include <tessera/train/trainer_options.hpp>

#include "any_job.hpp"
#include "hot_batches.hpp"
#include "plan_watch.hpp"
#include "report_page.hpp"
#include "running_figures.hpp"
#include "sources.hpp"
#include "training_job.hpp"
#include "training_reader.hpp"

namespace examples {

/// The model that is trained, by what lets vectors meet.
template <class Interaction>
using trained_model = tessera::click_model<tessera::any_source, TESSERA_TRAIN_GEMM, Interaction, any_pooling>;

/// What a checkpoint says of the ranks that wrote it, by option. Others may go on from it.
inline json ranks_of(training_job const& j) {
  return {{"ranks", std::to_string(j.comm.size())},
          {"plan", j.plan_name()},
          {"codec", j.s.codec},
          {"exchange", j.s.exchange},
          {"hot-budget", std::to_string(j.s.hot_budget)},
          {"hot-schedule", j.s.hot_schedule},
          {"hot-batches", j.s.hot_batches}};
}

template <class Trainer>
void save(training_job const& j, Trainer& run, run_position const& p) {
  json options;
  for_each_kept(j.s, [&](char const* name, auto const& value, bool) { options[name] = value; });
  options["data"] = j.description_json();
  options["on"] = ranks_of(j);
  if (j.is_planned_by_file()) options["planned"] = tessera::predicted_plan_json(j.planned());
  if (j.towers()) options["towers"] = tessera::towers_json(*j.towers(), j.tower_features());
  json position{{"epoch", p.epoch},          {"block", p.block},          {"offset", p.offset},
                {"batch", p.batch},          {"samples", j.train_rows()}, {"fingerprint", j.train_fingerprint()},
                {"epoch-samples", p.samples}};
  if (p.classes) position["classes"] = class_json(j.s, *j.hot(), *p.classes);
  for (auto const& deal : p.deals)
    position["deals"].push_back({{"ranks", deal.ranks}, {"batch-size", deal.batch_size}, {"batches", deal.batches}});
  tessera::save_checkpoint(j.exec, j.s.checkpoint, run, {p.batch, options, position}, 2,
                           [&](std::string const& folder) { return j.save_data(folder); });
}

/// What ranks took of the epoch's blocks, as a checkpoint has it; nothing of a run that read slices.
inline std::vector<tessera::block_deal> deals_of(json const& position, std::string const& file) {
  std::vector<tessera::block_deal> deals;
  if (!position.contains("deals")) return deals;
  for (auto const& deal : tessera::json_array(position, "deals", file)) {
    auto const ranks = tessera::json_count(deal, "ranks", file);
    if (ranks > std::numeric_limits<int>::max())
      throw tessera::error(tessera::errc::parse_error, "the checkpoint's position: so many ranks are none",
                           {{"file", file}, {"ranks", ranks}});
    deals.push_back({static_cast<int>(ranks), tessera::json_count(deal, "batch-size", file), tessera::json_count(deal, "batches", file)});
  }
  return deals;
}

/// Where the checkpoint was saved that a run goes on from. Behind an epoch's last batch, batches of another kind may come.
class saved_place {
 public:
  explicit saved_place(training_job const& j) : j_(j), position_(j.start->state.position), file_(j.start->folder + "/manifest.json") {}

  std::int64_t count(char const* name) const { return tessera::json_count(position_, name, file_); }

  /// @throws tessera::error naming --hot-budget in the midst of an epoch of batches of another kind.
  void seek(training_reader& reader) const {
    if (!has_classes()) return reader.seek({{count("epoch"), count("block"), count("offset"), count("batch")}, deals_of(position_, file_)});
    check_epoch_ends();
    reader.seek({{count("epoch") + 1, 0, 0, count("batch")}, {}});
  }
  void seek(class_run_reader& reader) const {
    if (has_classes() && reader.seek(position_, file_)) return;
    check_epoch_ends();
    reader.begin_epoch(count("epoch") + 1, count("batch"));
  }

 private:
  bool has_classes() const { return position_.contains("classes"); }
  void check_epoch_ends() const {
    if (position_.contains("epoch-samples") && count("epoch-samples") == j_.train_rows()) return;
    std::string const before = has_classes() ? j_.start->state.options["on"].value("hot-budget", "0") : "0";
    throw tessera::error(tessera::errc::incompatible, "option --hot-budget: the checkpoint is in the midst of an epoch of other batches",
                         {{"--hot-budget", j_.s.hot_budget}, {"of the checkpoint", before}, {"--batch-size", j_.s.batch_size}});
  }

  training_job const& j_;
  json const& position_;
  std::string file_;
};

/// Goes back to where the checkpoint was saved; the training data must be the same.
template <class Trainer, class Reader>
void resume(training_job const& j, Trainer& run, Reader& reader) {
  saved_place const saved(j);
  for (auto const& [name, found] : {std::pair("samples", j.train_rows()), std::pair("fingerprint", std::int64_t{j.train_fingerprint()})})
    if (found != saved.count(name))
      throw tessera::error(tessera::errc::incompatible, "option --train: the checkpoint is of a run on other data",
                           {{name, found}, {"of the checkpoint", saved.count(name)}});
  auto const report = tessera::load_trainer(j.exec, *j.start, run);
  saved.seek(reader);
  j.metrics.drop_behind(reader.position());
  j.say("resumed from %s\n", j.start->folder.c_str());
  json const here = ranks_of(j);  // which outlives its items
  if (j.start->state.options.contains("on"))
    for (auto const& one : here.items()) {
      auto const& now = one.value().template get_ref<std::string const&>();
      // Older ones have neither an exchange nor hot rows.
      if (auto const before = j.start->state.options["on"].value(one.key(), one.key() == "exchange" ? "flat" : now); before != now)
        j.say("%s: %s, and %s before; the bits may be others\n", one.key().c_str(), now.c_str(), before.c_str());
    }
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
template <class Model, class Trainer>
void train_epochs(training_job const& j, tessera::host_exec const& step_exec, Model& model, Trainer& run, run_reader& batches,
                  plan_watch& watch) {
  batches_ahead<Trainer> reader(batches, run, j.comm.size() > 1 ? j.s.ids_ahead : 0);  // of a rank alone, no id travels
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
  bool awaits_loss = false;  // the reader, of the run that has ended
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
        // Which all ranks call. A loss that later runs hang on would never be told.
        if (j.comm.size() == 1 && !awaits_loss) keep();
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
      auto const loss = reader.step(step_exec, batch);
      awaits_loss = reader.class_ends() && reader.follows_loss();
      watch.count_step();
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
      if (reader.class_ends()) {
        page.end_run(step, batch.kind);
        json line{{"event", "run"}, {"step", step}, {"epoch", epoch}, {"class", batch.kind == tessera::batch_class::hot ? "hot" : "cold"}};
        if (awaits_loss)
          or_keep([&] {
            auto const test_started = std::chrono::steady_clock::now();
            line["logloss"] = test(j, model, step, false)["logloss"];
            training_seconds -= seconds_since(test_started);
            reader.tell_loss(line["logloss"].get<double>());
            awaits_loss = false;
          });
        behind = reader.position();
        or_keep([&] { j.metrics.write(line); });
      }
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
  watch.conclude();
  if (auto const swaps = swaps_of(model.source()))
    j.say("hot: rows changed place %lld times, %lld rows in all\n", static_cast<long long>(swaps->first),
          static_cast<long long>(swaps->second));
  print_test(j, result);
}

template <class Model>
void train(training_job const& j) {
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  auto model = j.make_model<Model>();
  plan_watch watch(j, model.source());
  tessera::trainer_options options{.clip_norm = j.s.clip_norm, .chunk_samples = j.s.chunks(), .bucket_bytes = j.s.bucket_bytes};
  if (auto comm = j.comm; comm.size() > 1) {
    options.comm = comm;
    options.levels = j.where();  // hosts add up before they send to others
  }
  tessera::trainer run(j.exec, model, choose_dense_optimizer(j.s), options);
  bool const reads_ahead = j.s.threads >= 2 && j.s.pipeline != "off";
  if (j.hot() != nullptr) {
    auto const batches = j.class_reader(reads_ahead);
    if (j.start) resume(j, run, *batches);
    std::optional<tessera::thread_pool> others;
    if (reads_ahead) others.emplace(j.s.threads - 1);
    return train_epochs(j, others ? tessera::host_exec(*others, workspace) : j.exec.with_memory(workspace), model, run, *batches, watch);
  }
  auto reader = j.train_reader();
  if (j.start) resume(j, run, reader);
  if (!reads_ahead) {
    run_reader_of batches(reader);
    return train_epochs(j, j.exec.with_memory(workspace), model, run, batches, watch);
  }
  tessera::serial_team alone;
  tessera::thread_pool others(j.s.threads - 1);
  tessera::background_thread reading;
  tessera::prefetching_reader ahead(tessera::host_exec(alone, memory), reading, reader, {}, tessera::sort_ahead(model));
  run_reader_of batches(ahead);
  train_epochs(j, tessera::host_exec(others, workspace), model, run, batches, watch);
}

/// Towers of features that are alike in a model without towers, which the first rank trains alone. All ranks call it, and have the same ones.
template <class Model>
tessera::tower_partition learn_towers(training_job const& j) {
  constexpr int batches = 20;  // that are looked up
  std::string text;
  std::exception_ptr failure;
  if (j.comm.rank() == 0) try {
      j.say("towers: learned from a model of one process, trained on %lld batches\n", static_cast<long long>(j.s.tower_probe));
      auto model = j.make_probe<Model>();
      tessera::trainer run(j.exec, model, choose_dense_optimizer(j.s), {.clip_norm = j.s.clip_norm, .chunk_samples = j.s.chunks()});
      auto reader = j.probe_reader();
      tessera::batch_view batch;
      auto const next = [&] {
        while (!reader.next(j.exec, batch)) {  // an epoch has ended
        }
      };
      for (std::int64_t step = 1; step <= j.s.tower_probe; ++step) {
        next();
        auto const loss = run.step(j.exec, batch);
        check_converges(j.s, step, "the loss of the model that towers are learned from", std::isfinite(loss));
      }
      tessera::feature_affinity sum(j.exec, static_cast<std::int64_t>(j.features().size()));
      for (int b = 0; b < batches; ++b) {
        next();
        sum.add_lookups(j.exec, model.source(), batch);
      }
      text = j.partition(sum.result(tessera::affinity_kind::abs_of_mean));
    } catch (tessera::error const& e) {
      failure = std::make_exception_ptr(tessera::error(e.code(), "option --towers: " + std::string(e.sentence()), e.values()));
    } catch (...) {
      failure = std::current_exception();
    }
  auto comm = j.comm;
  tessera::any_pending pending;
  auto const of_ranks = tessera::all_gather<char>(j.exec, comm, text, pending, "towers", failure);
  return tessera::towers_of_json(tessera::parse_json({of_ranks[0].data(), static_cast<std::size_t>(of_ranks[0].size())}, "towers"),
                                 j.features(), "towers");
}

template <class Model>
void run_model(training_job& j) {
  if (j.learns_towers()) j.set_towers(learn_towers<Model>(j));
  j.choose_hot();
  j.choose_plan();
  j.s.eval_only ? evaluate_only<Model>(j) : train<Model>(j);
}

}  // namespace examples
