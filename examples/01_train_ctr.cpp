// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Trains a DLRM on click logs in Criteo's layout: reading, preprocessing, training, evaluation, checkpoints.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/tessera_files.hpp>

#include "support/output_files.hpp"
#include "support/running_figures.hpp"

namespace {

using nlohmann::json;

std::string text(char const* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

struct settings {
  // What a checkpoint keeps, and a command line that goes on from it cannot change.
  std::string model = "dlrm";
  std::int64_t embedding_dim = 16;
  std::vector<std::int64_t> bottom{64, 32};
  std::vector<std::int64_t> top{128, 64};
  std::int64_t hash_size = 0;
  std::int64_t min_count = 1;
  std::string dense = "standard";
  std::string dense_as_category = "on";
  std::string embedding_init = "0.1";
  std::string embedding_optimizer = "rowwise-adagrad";
  std::string optimizer = "adam";
  std::uint64_t seed = 1;

  // What a checkpoint keeps too, and a command line may change.
  float embedding_lr = 0.03F;
  float lr = 0.003F;
  std::int64_t batch_size = 128;
  std::int64_t epochs = 3;

  // What each call says anew.
  std::vector<std::string> train;
  std::string test;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;
  bool resume = false;
  bool eval_only = false;
  std::string metrics;
  std::string predict;
};

/// Calls f(name of the option, value, whether a later command line may change it) for what a checkpoint keeps.
template <class Settings, class F>
void for_each_kept(Settings& s, F const& f) {
  f("model", s.model, false);
  f("embedding-dim", s.embedding_dim, false);
  f("bottom", s.bottom, false);
  f("top", s.top, false);
  f("hash-size", s.hash_size, false);
  f("min-count", s.min_count, false);
  f("dense", s.dense, false);
  f("dense-as-category", s.dense_as_category, false);
  f("embedding-init", s.embedding_init, false);
  f("embedding-optimizer", s.embedding_optimizer, false);
  f("optimizer", s.optimizer, false);
  f("seed", s.seed, false);
  f("embedding-lr", s.embedding_lr, true);
  f("lr", s.lr, true);
  f("batch-size", s.batch_size, true);
  f("epochs", s.epochs, true);
}

void declare(CLI::App& app, settings& s) {
  CLI::Validator const positive_integer(
      [](std::string& text) -> std::string {
        std::int64_t value = 0;
        auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        bool const whole = failure == std::errc() && end == text.data() + text.size();
        return whole && value > 0 ? std::string() : "not a positive integer: " + text;
      },
      "POSITIVE");
  auto const number = [](std::string const& text) {
    char* end = nullptr;
    auto const value = std::strtof(text.c_str(), &end);
    return !text.empty() && *end == 0 && std::isfinite(value) ? value : -1;
  };
  CLI::Validator const positive([=](std::string& text) { return number(text) > 0 ? std::string() : "not a positive number: " + text; },
                                "POSITIVE");
  auto const init = [=](std::string const& text) {
    return text == "rows" || number(text) >= 0 ? std::string() : "neither a number from 0 on nor 'rows': " + text;
  };
  auto const unsigned_number = [](std::string const& text) { return text.starts_with('-') ? "negative: " + text : std::string(); };
  app.add_option("--train", s.train, "Training data: Criteo-layout TSV files")->type_name("FILE");
  app.add_option("--test", s.test, "Test data, in the same layout")->type_name("FILE");
  app.add_option("--model", s.model, "Model")->check(CLI::IsMember({"dlrm"}))->capture_default_str();
  app.add_option("--embedding-dim", s.embedding_dim, "Elements of an embedding row")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  app.add_option("--bottom", s.bottom, "Hidden layers of the bottom MLP; the embedding dim is appended")
      ->delimiter(',')
      ->check(positive_integer)
      ->capture_default_str();
  app.add_option("--top", s.top, "Hidden layers of the top MLP; 1 is appended")
      ->delimiter(',')
      ->check(positive_integer)
      ->capture_default_str();
  auto* const hash = app.add_option("--hash-size", s.hash_size, "Hash categories to so many rows a table instead of a vocabulary")
                         ->check(positive_integer);
  app.add_option("--min-count", s.min_count, "Values seen fewer times in training share a row")
      ->check(positive_integer)
      ->capture_default_str()
      ->excludes(hash);
  app.add_option("--dense", s.dense, "log: ln(x + 1); standard: mean 0, deviation 1")
      ->check(CLI::IsMember({"log", "standard"}))
      ->capture_default_str();
  app.add_option("--dense-as-category", s.dense_as_category, "Integers are categories too")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option("--embedding-init", s.embedding_init, "Rows start uniform in ±X; rows: X = 1/sqrt(rows of the table)")
      ->check(init)
      ->type_name("X|rows")
      ->capture_default_str();
  app.add_option("--embedding-optimizer", s.embedding_optimizer, "Optimizer of the embedding rows")
      ->check(CLI::IsMember({"sgd", "rowwise-adagrad"}))
      ->capture_default_str();
  app.add_option("--embedding-lr", s.embedding_lr, "Its learning rate")->check(positive)->capture_default_str();
  app.add_option("--optimizer", s.optimizer, "Optimizer of the MLPs")
      ->check(CLI::IsMember({"sgd", "adagrad", "adam"}))
      ->capture_default_str();
  app.add_option("--lr", s.lr, "Its learning rate")->check(positive)->capture_default_str();
  app.add_option("--batch-size", s.batch_size, "Samples a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--epochs", s.epochs, "Passes over the training data")->check(positive_integer)->capture_default_str();
  app.add_option("--threads", s.threads, "Threads; their number changes no result")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of initial weights and shuffling")->check(unsigned_number)->capture_default_str();
  auto* const checkpoint =
      app.add_option("--checkpoint", s.checkpoint, "Folder for checkpoints; the newest two are kept")->type_name("DIR");
  app.add_option("--checkpoint-every", s.checkpoint_every, "Steps from one checkpoint to the next; there is one at the end too")
      ->check(positive_integer)
      ->needs(checkpoint);
  auto* const resume =
      app.add_flag("--resume", s.resume, "Go on from the newest checkpoint with its settings, as if the run had never stopped")
          ->needs(checkpoint);
  app.add_flag("--eval-only", s.eval_only, "Test the newest checkpoint, train nothing")->needs(checkpoint)->excludes(resume);
  app.add_option("--metrics", s.metrics, "Write metrics there, one JSON object a line; --resume and --eval-only add lines")
      ->type_name("FILE.jsonl");
  app.add_option("--predict", s.predict, "Write the test data's predictions there in the end")->type_name("FILE.csv");
  app.set_version_flag("--version", text("train_ctr %d.%d.%d", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH),
                       "Print the version");
  app.footer("Example:\n  train_ctr --train day_0.tsv day_1.tsv --test day_2.tsv --checkpoint run1 --checkpoint-every 10000");
}

/// Settings that the command line does not give become the checkpoint's, checked as if it gave them; those that it gives must agree,
/// unless they may change.
void adopt(CLI::App& app, json const& kept, settings& s, std::string const& file) {
  for_each_kept(s, [&](std::string const& name, auto& value, bool may_change) {
    auto const& of_checkpoint = tessera::json_field(kept, name, file);
    auto* const option = app.get_option("--" + name);
    bool const given = option->count() > 0;
    if (given && may_change) return;
    if (json(value) == of_checkpoint) return;
    if (given)
      throw tessera::error(tessera::errc::incompatible, "option --" + name + ": the checkpoint is of a run with another value",
                           {{"checkpoint", of_checkpoint.dump()}, {"command line", json(value).dump()}});
    try {
      option->add_result(of_checkpoint.is_string() ? of_checkpoint.get<std::string>() : of_checkpoint.dump());
      if (option->count() == 0) throw CLI::RequiredError("--" + name);
      option->run_callback();
    } catch (CLI::Error const& e) {
      throw tessera::error(tessera::errc::incompatible, std::string("the checkpoint's option ") + e.what(), {{"file", file}});
    }
  });
}

using model_type = tessera::dlrm<tessera::dense_table<>, tessera::eigen_gemm>;

/// The data of a run, its preprocessing, and the checkpoint it starts from, if any.
struct job {
  settings const& s;
  tessera::host_exec exec;
  std::optional<tessera::open_checkpoint> start;
  std::optional<tessera::click_log> train, test;
  std::optional<tessera::preprocessing> preprocess;

  tessera::batch_reader test_reader() const { return {exec, *test, *preprocess, {.batch_size = 2048, .shuffle = false}}; }
};

template <class RowOptimizer>
model_type make_model(job const& j, RowOptimizer const& optimizer) {
  std::vector<tessera::dense_table<>> tables;
  std::vector<tessera::pooled_feature> features;
  std::size_t bytes = 0;
  tessera::random_seed const seed{j.s.seed};
  for (std::int64_t f = 0; f < j.preprocess->sparse_features(); ++f) {
    auto const rows = j.preprocess->id_count(f);
    auto const bound =
        j.s.embedding_init == "rows" ? 1 / std::sqrt(static_cast<float>(rows)) : std::strtof(j.s.embedding_init.c_str(), nullptr);
    tables.emplace_back(j.exec, tessera::table_options{tessera::table_id{f}, j.s.embedding_dim, rows, bound, seed}, optimizer);
    features.push_back({.table = f});
    bytes += tables.back().bytes();
  }
  model_type model(j.exec, tessera::dlrm_options(j.preprocess->dense_features(), j.s.bottom, j.s.top, seed), std::move(tables),
                   std::move(features));
  std::printf("model: %lld dense features, %lld tables of dim %lld (%.2f MB with optimizer state), %lld MLP parameters\n",
              static_cast<long long>(j.preprocess->dense_features()), static_cast<long long>(model.feature_count()),
              static_cast<long long>(model.dim()), static_cast<double>(bytes) / 1e6,
              static_cast<long long>(model.bottom().parameters().size() + model.top().parameters().size()));
  return model;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Where all labels are the same, AUC and normalised entropy are NaN: "nan" as text, null as JSON.
json to_json(tessera::evaluation const& e, tessera::host_exec const& exec) {
  auto const entropy = e.clicks.normalised_entropy();  // a NaN of either sign
  return {{"auc", e.auc.value(exec)},
          {"logloss", e.clicks.log_loss()},
          {"ne", std::isnan(entropy) ? std::numeric_limits<double>::quiet_NaN() : entropy},
          {"calibration", e.clicks.calibration()}};
}

void print_test(json const& result) {
  auto const figure = [&](char const* name) { return result[name].get<double>(); };
  std::printf("test auc=%.4f logloss=%.4f ne=%.4f calibration=%.3f samples_per_second=%.0f\n", figure("auc"), figure("logloss"),
              figure("ne"), figure("calibration"), figure("samples_per_second"));
}

void write_test(examples::metrics_file& metrics, json line, std::int64_t step) {
  line.update({{"event", "test"}, {"step", step}});
  metrics.write(line);
}

/// Tests the model; the last time also writes predictions.
json test(job const& j, model_type const& model, bool last) {
  auto const started = std::chrono::steady_clock::now();
  auto reader = j.test_reader();
  std::optional<examples::whole_file> csv;
  if (last && !j.s.predict.empty()) csv.emplace("--predict", j.s.predict).text << "sample,label,probability\n";
  auto const result =
      tessera::evaluate(j.exec, model, reader, [&](tessera::batch_view const& batch, tessera::vector_view<float const> logits) {
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

int evaluate_only(job const& j) {
  auto model = make_model(j, tessera::sgd{});
  tessera::load_model(j.exec, *j.start, model);
  examples::metrics_file metrics(j.s.metrics, true);
  auto const result = test(j, model, true);
  write_test(metrics, result, j.start->state.step);
  print_test(result);
  return 0;
}

template <class Trainer>
void save(job const& j, Trainer& run, tessera::reader_position const& p) {
  json options;
  for_each_kept(j.s, [&](char const* name, auto const& value, bool) { options[name] = value; });
  json const position{{"epoch", p.epoch}, {"block", p.block},           {"offset", p.offset},
                      {"batch", p.batch}, {"samples", j.train->rows()}, {"fingerprint", j.train->fingerprint()}};
  tessera::save_checkpoint(j.exec, j.s.checkpoint, run, {p.batch, options, position}, 2, [&](std::string const& folder) {
    return std::vector<tessera::manifest_section>{tessera::save_preprocessing(folder, *j.preprocess)};
  });
}

/// Goes back to where the checkpoint was saved; the training data must be the same.
template <class Trainer>
void resume(job const& j, Trainer& run, tessera::batch_reader& reader) {
  auto const saved = [&](char const* name) {
    return tessera::json_integer(j.start->state.position, name, j.start->folder + "/manifest.json");
  };
  for (auto const& [name, found] : {std::pair("samples", j.train->rows()), std::pair("fingerprint", std::int64_t{j.train->fingerprint()})})
    if (found != saved(name))
      throw tessera::error(tessera::errc::incompatible, "option --train: the checkpoint is of a run on other data",
                           {{name, found}, {"of the checkpoint", saved(name)}});
  tessera::load_trainer(j.exec, *j.start, run);
  reader.seek({saved("epoch"), saved("block"), saved("offset"), saved("batch")});
  examples::drop_metrics_behind(j.s.metrics, reader.position());
  std::printf("resumed from %s\n", j.start->folder.c_str());
}

template <class RowOptimizer, class DenseOptimizer>
int train(job const& j, RowOptimizer const& rows, DenseOptimizer const& dense) {
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  auto const step_exec = j.exec.with_memory(workspace);
  auto model = make_model(j, rows);
  tessera::trainer run(j.exec, model, rows, dense);
  tessera::batch_reader reader(j.exec, *j.train, *j.preprocess, {.batch_size = j.s.batch_size, .seed = tessera::random_seed{j.s.seed}});
  if (j.start) resume(j, run, reader);
  examples::metrics_file metrics(j.s.metrics, j.s.resume);
  examples::recent_auc auc;
  examples::running_mean shown_loss, written_loss;
  json result;
  std::int64_t trained = 0, saved_at = -1;
  double training_seconds = 0;
  while (reader.position().epoch < j.s.epochs) {
    auto const epoch = reader.position().epoch;
    auto const before = reader.epoch_samples();  // not 0 where a run goes on in the midst of an epoch
    auto samples = before;
    tessera::progress bar(stdout, isatty(STDOUT_FILENO) != 0, j.train->rows(), before);
    auto const started = std::chrono::steady_clock::now();
    for (tessera::batch_view batch; reader.next(step_exec, batch);) {
      auto const loss = run.step(step_exec, batch);
      auto const step = reader.position().batch;
      if (!std::isfinite(loss))
        throw tessera::error(tessera::errc::invalid_argument, "training diverged, the loss is no number: lower --lr or --embedding-lr",
                             {{"step", step}});
      shown_loss.add(loss);
      written_loss.add(loss);
      samples += batch.samples();
      auc.add(run.logits(), batch.labels);
      if (bar.due())
        bar.show(samples, text("epoch %lld/%lld  loss %.4f  auc %.4f", static_cast<long long>(epoch + 1),
                               static_cast<long long>(j.s.epochs), shown_loss.take(), auc.value(j.exec)));
      if (metrics.is_open() && step % 100 == 0)
        metrics.write({{"event", "train"},
                       {"step", step},
                       {"epoch", epoch},
                       {"samples", samples},
                       {"loss", written_loss.take()},
                       {"auc", auc.value(j.exec)}});
      if (j.s.checkpoint_every > 0 && step % j.s.checkpoint_every == 0) {
        save(j, run, reader.position());
        saved_at = step;
      }
    }
    training_seconds += seconds_since(started);
    trained += samples - before;
    bar.clear();
    result = test(j, model, epoch + 1 == j.s.epochs);
    result["epoch"] = epoch;
    if (trained > 0) result["samples_per_second"] = static_cast<double>(trained) / training_seconds;
    write_test(metrics, result, reader.position().batch);
    std::printf("epoch %lld/%lld: %stest auc %.4f logloss %.4f, %.0f samples/s\n", static_cast<long long>(epoch + 1),
                static_cast<long long>(j.s.epochs), trained > 0 ? text("train auc %.4f, ", auc.value(j.exec)).c_str() : "",
                result["auc"].get<double>(), result["logloss"].get<double>(), result["samples_per_second"].get<double>());
  }
  if (!j.s.checkpoint.empty() && saved_at != reader.position().batch) save(j, run, reader.position());
  if (result.is_null()) result = test(j, model, true);  // resumed behind the last epoch
  print_test(result);
  return 0;
}

/// Finds out before the long read of the training data what would fail after it.
void check(settings const& s) {
  if (s.train.empty() && !s.eval_only) throw CLI::RequiredError("--train");
  if (s.test.empty()) throw CLI::RequiredError("--test");
  if (!s.checkpoint.empty() && !s.eval_only) {
    if (!s.resume && !tessera::list_step_folders(s.checkpoint).empty())
      throw CLI::ValidationError("--checkpoint",
                                 s.checkpoint + " holds checkpoints of another run: go on from them with --resume, or name another folder");
    std::error_code ignored;
    if (std::filesystem::exists(s.checkpoint + "/manifest.json", ignored))
      throw CLI::ValidationError("--checkpoint", s.checkpoint +
                                                     " is a single checkpoint: name the folder above it, from whose newest "
                                                     "--resume goes on; where that is damaged, remove that step-... folder");
  }
  if (!s.eval_only)
    for (auto const& path : s.train) tessera::posix_file::open(path);
  tessera::posix_file::open(s.test);
  examples::check_outputs(s.predict, s.metrics, s.eval_only ? std::string() : s.checkpoint);
}

int run(CLI::App& app, settings& s) {
  check(s);
  tessera::thread_pool pool(s.threads);
  tessera::system_memory memory;
  job j{s, tessera::host_exec(pool, memory), {}, {}, {}, {}};
  if (j.s.resume || j.s.eval_only) {
    j.start = tessera::open_newest_checkpoint(j.s.checkpoint);
    adopt(app, j.start->state.options, s, j.start->folder + "/manifest.json");
    j.preprocess = tessera::load_preprocessing(j.exec, j.start->folder);
  }
  if (!j.s.eval_only) {
    tessera::preprocessing_options const options{
        .dense = j.s.dense == "log" ? tessera::dense_scaling::log : tessera::dense_scaling::standard,
        .dense_as_category = j.s.dense_as_category == "on",
        .min_count = j.s.min_count,
        .hash_size = j.s.hash_size};
    if (j.preprocess) {
      j.train.emplace(j.exec, j.s.train);
    } else {
      tessera::click_statistics statistics(tessera::preprocessing::needed_statistics(options));
      j.train.emplace(j.exec, j.s.train, statistics);
      j.preprocess = tessera::preprocessing::fit(j.exec, statistics, options);
    }
    std::printf("train: %lld samples\n", static_cast<long long>(j.train->rows()));
    std::string dropped;
    for (auto const& name : j.preprocess->dropped()) dropped += (dropped.empty() ? "" : ", ") + name;
    if (!dropped.empty()) std::printf("empty everywhere, dropped: %s\n", dropped.c_str());
    if (j.preprocess->dense_features() == 0 || j.preprocess->sparse_features() == 0)
      throw tessera::error(tessera::errc::incompatible,
                           "option --train: a DLRM needs an integer column and a category column that are not empty");
  }
  j.test.emplace(j.exec, std::vector<std::string>{j.s.test});
  std::printf("test: %lld samples\n", static_cast<long long>(j.test->rows()));
  if (j.s.eval_only) return evaluate_only(j);
  auto const with_rows = [&](auto const& rows) {
    if (j.s.optimizer == "sgd") return train(j, rows, tessera::sgd{j.s.lr});
    if (j.s.optimizer == "adagrad") return train(j, rows, tessera::adagrad{j.s.lr});
    return train(j, rows, tessera::adam{j.s.lr});
  };
  if (j.s.embedding_optimizer == "sgd") return with_rows(tessera::sgd{j.s.embedding_lr});
  return with_rows(tessera::rowwise_adagrad{j.s.embedding_lr});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains a DLRM on click logs in Criteo's layout.");
  settings s;
  declare(app, s);
  try {
    app.parse(argc, argv);
    auto const status = run(app, s);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw tessera::error(tessera::errc::io_error, "cannot write to the standard output");
    return status;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "train_ctr: %s\n", e.what());
    return 1;
  }
}
