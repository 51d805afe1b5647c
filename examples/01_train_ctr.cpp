// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Trains a DLRM on click logs in Criteo's layout: reading, preprocessing, training, evaluation, checkpoints.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/tessera_files.hpp>

namespace {

using nlohmann::json;

struct settings {
  // What a checkpoint keeps, and what it must agree on with the command line.
  std::string model = "dlrm";
  std::int64_t embedding_dim = 16;
  std::vector<std::int64_t> bottom{64, 32};
  std::vector<std::int64_t> top{128, 64};
  std::int64_t hash_size = 0;
  std::int64_t min_count = 1;
  std::string dense = "standard";
  bool dense_as_category = true;
  std::string embedding_init = "0.1";
  std::string embedding_optimizer = "rowwise-adagrad";
  std::string optimizer = "adam";
  std::uint64_t seed = 1;

  // What each call says anew.
  std::vector<std::string> train;
  std::string test;
  float embedding_lr = 0.03F;
  float lr = 0.003F;
  std::int64_t batch_size = 128;
  std::int64_t epochs = 1;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string checkpoint;
  std::int64_t checkpoint_every = 0;
  bool resume = false;
  bool eval_only = false;
  std::string metrics;
  std::string predict;
};

/// Calls f(name of the option, value) for what a checkpoint keeps.
template <class Settings, class F>
void for_each_kept(Settings& s, F const& f) {
  f("model", s.model);
  f("embedding-dim", s.embedding_dim);
  f("bottom", s.bottom);
  f("top", s.top);
  f("hash-size", s.hash_size);
  f("min-count", s.min_count);
  f("dense", s.dense);
  f("dense-as-category", s.dense_as_category);
  f("embedding-init", s.embedding_init);
  f("embedding-optimizer", s.embedding_optimizer);
  f("optimizer", s.optimizer);
  f("seed", s.seed);
}

void declare(CLI::App& app, settings& s) {
  std::map<std::string, bool> const on_off{{"on", true}, {"off", false}};
  auto const init = [](std::string const& text) -> std::string {
    if (text == "rows") return {};
    char* end = nullptr;
    auto const bound = std::strtof(text.c_str(), &end);
    return !text.empty() && *end == 0 && std::isfinite(bound) && bound >= 0 ? std::string() : "neither a number nor 'rows': " + text;
  };
  app.add_option("--train", s.train, "Training data: Criteo-layout TSV files")->type_name("FILE...");
  app.add_option("--test", s.test, "Test data")->type_name("FILE");
  app.add_option("--model", s.model, "Model")->check(CLI::IsMember({"dlrm"}))->capture_default_str();
  app.add_option("--embedding-dim", s.embedding_dim, "Elements of an embedding row")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  app.add_option("--bottom", s.bottom, "Hidden layers of the bottom MLP; the embedding dim is appended")->delimiter(',')->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--top", s.top, "Hidden layers of the top MLP; 1 is appended")->delimiter(',')->check(CLI::PositiveNumber)->capture_default_str();
  auto* const hash = app.add_option("--hash-size", s.hash_size, "Hash categories to so many rows a table instead of a vocabulary")->check(CLI::PositiveNumber);
  app.add_option("--min-count", s.min_count, "Values seen fewer times in training share a row")->check(CLI::PositiveNumber)->capture_default_str()->excludes(hash);
  app.add_option("--dense", s.dense, "log: ln(x + 1); standard: mean 0, deviation 1")->check(CLI::IsMember({"log", "standard"}))->capture_default_str();
  app.add_option("--dense-as-category", s.dense_as_category, "Integers are categories too: on or off")->transform(CLI::CheckedTransformer(on_off))->default_str("on");
  app.add_option("--embedding-init", s.embedding_init, "Rows start uniform in ±X; rows: X = 1/sqrt(rows of the table)")->check(init)->type_name("X|rows")->capture_default_str();
  app.add_option("--embedding-optimizer", s.embedding_optimizer, "Optimizer of the embedding rows")->check(CLI::IsMember({"sgd", "rowwise-adagrad"}))->capture_default_str();
  app.add_option("--embedding-lr", s.embedding_lr, "Its learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--optimizer", s.optimizer, "Optimizer of the MLPs")->check(CLI::IsMember({"sgd", "adagrad", "adam"}))->capture_default_str();
  app.add_option("--lr", s.lr, "Its learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", s.batch_size, "Samples a step")->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))->capture_default_str();
  app.add_option("--epochs", s.epochs, "Passes over the training data")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", s.threads, "Threads; their number changes no result")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of initial weights and shuffling")->capture_default_str();
  auto* const checkpoint = app.add_option("--checkpoint", s.checkpoint, "Folder for checkpoints; the newest two are kept")->type_name("DIR");
  app.add_option("--checkpoint-every", s.checkpoint_every, "Steps from one checkpoint to the next; there is one at the end too")->check(CLI::PositiveNumber)->needs(checkpoint);
  auto* const resume = app.add_flag("--resume", s.resume, "Go on from the newest checkpoint, as if the run had never stopped")->needs(checkpoint);
  app.add_flag("--eval-only", s.eval_only, "Test the newest checkpoint, train nothing")->needs(checkpoint)->excludes(resume);
  app.add_option("--metrics", s.metrics, "Write metrics there, one JSON object a line")->type_name("FILE.jsonl");
  app.add_option("--predict", s.predict, "Write the test data's predictions there in the end")->type_name("FILE.csv");
}

/// Settings of the command line that were not given become the checkpoint's; those that were given must agree with it.
void adopt(CLI::App const& app, json const& kept, settings& s, std::string const& file) {
  for_each_kept(s, [&](std::string const& name, auto& value) {
    auto const& of_checkpoint = tessera::json_field(kept, name, file);
    if (app.get_option("--" + name)->count() > 0 && json(value) != of_checkpoint)
      throw tessera::error(tessera::errc::incompatible, "option --" + name + ": the checkpoint is of a run with another value",
                           {{"checkpoint", of_checkpoint.dump()}, {"command line", json(value).dump()}});
    try {
      value = of_checkpoint.get<std::remove_reference_t<decltype(value)>>();
    } catch (json::exception const& e) {
      throw tessera::error(tessera::errc::parse_error, "not a value of option --" + name, {{"file", file}, {"found", of_checkpoint.dump()}});
    }
  });
}

/// The AUC over the last 32,768 to 65,536 samples trained on, cheap enough to show live.
class recent_auc {
 public:
  void add(tessera::vector_view<float const> logits, tessera::vector_view<float const> labels) {
    if (current_.samples() + logits.size() > 32768) {
      std::swap(previous_, current_);
      current_.clear();
    }
    current_.add(logits, labels);
  }
  double value(tessera::host_exec const& exec) const {
    auto all = previous_;
    all.merge(current_);
    return all.value(exec);
  }

 private:
  tessera::exact_auc previous_, current_;
};

class metrics_file {
 public:
  metrics_file(std::string const& path, bool append) {
    if (path.empty()) return;
    out_.open(path, append ? std::ios::app : std::ios::trunc);
    if (!out_) throw tessera::error(tessera::errc::io_error, "option --metrics: cannot write", {{"file", path}});
  }
  void write(json const& line) {
    if (out_.is_open()) out_ << line.dump() << std::endl;
  }

 private:
  std::ofstream out_;
};

using model_type = tessera::dlrm<tessera::dense_table<>, tessera::eigen_gemm>;

/// The data of a run, its preprocessing, and the checkpoint it starts from, if any.
struct job {
  settings s;
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
    auto const bound = j.s.embedding_init == "rows" ? 1 / std::sqrt(static_cast<float>(rows)) : std::stof(j.s.embedding_init);
    tables.emplace_back(j.exec, tessera::table_options{tessera::table_id{f}, j.s.embedding_dim, rows, bound, seed}, optimizer);
    features.push_back({.table = f});
    bytes += tables.back().bytes();
  }
  model_type model(j.exec, tessera::dlrm_options(j.preprocess->dense_features(), j.s.bottom, j.s.top, seed), std::move(tables), std::move(features));
  std::printf("model: %lld dense features, %lld tables of dim %lld (%.1f MB with optimizer state), %lld MLP parameters\n",
              static_cast<long long>(j.preprocess->dense_features()), static_cast<long long>(model.feature_count()),
              static_cast<long long>(model.dim()), static_cast<double>(bytes) / 1e6,
              static_cast<long long>(model.bottom().parameters().size() + model.top().parameters().size()));
  return model;
}

std::string text(char const* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

json to_json(tessera::evaluation const& e, tessera::host_exec const& exec) {
  return {{"auc", e.auc.value(exec)}, {"logloss", e.clicks.log_loss()}, {"ne", e.clicks.normalised_entropy()}, {"calibration", e.clicks.calibration()}};
}

void print_test(json const& result, double samples_per_second) {
  std::printf("test auc=%.4f logloss=%.4f ne=%.4f calibration=%.3f samples_per_second=%.0f\n", result["auc"].get<double>(),
              result["logloss"].get<double>(), result["ne"].get<double>(), result["calibration"].get<double>(), samples_per_second);
}

/// Tests the model; the last time also writes predictions.
json test(job const& j, model_type const& model, bool last) {
  auto reader = j.test_reader();
  std::ofstream csv;
  if (last && !j.s.predict.empty()) {
    csv.open(j.s.predict);
    csv << "sample,label,probability\n";
    if (!csv) throw tessera::error(tessera::errc::io_error, "option --predict: cannot write", {{"file", j.s.predict}});
  }
  auto const result = tessera::evaluate(j.exec, model, reader, [&](tessera::batch_view const& batch, tessera::vector_view<float const> logits) {
    if (csv.is_open())
      for (std::int64_t i = 0; i < logits.size(); ++i)
        csv << batch.sample_ids[i] << ',' << batch.labels[i] << ',' << text("%.9g", static_cast<double>(tessera::sigmoid(logits[i]))) << '\n';
  });
  return to_json(result, j.exec);
}

int evaluate_only(job const& j) {
  auto model = make_model(j, tessera::sgd{});
  tessera::load_model(j.exec, *j.start, model);
  auto const started = std::chrono::steady_clock::now();
  auto const result = test(j, model, true);
  auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  print_test(result, static_cast<double>(j.test->rows()) / seconds);
  return 0;
}

template <class RowOptimizer, class DenseOptimizer>
int train(job const& j, RowOptimizer const& rows, DenseOptimizer const& dense) {
  tessera::system_memory memory;
  tessera::arena workspace(memory);
  auto const step_exec = j.exec.with_memory(workspace);
  auto model = make_model(j, rows);
  tessera::trainer run(j.exec, model, rows, dense);
  tessera::batch_reader reader(j.exec, *j.train, *j.preprocess, {.batch_size = j.s.batch_size, .seed = tessera::random_seed{j.s.seed}});
  if (j.start) {
    tessera::load_trainer(j.exec, *j.start, run);
    auto const& p = j.start->state.position;
    auto const file = j.start->folder + "/manifest.json";
    if (tessera::json_integer(p, "rows", file) != j.train->rows())
      throw tessera::error(tessera::errc::incompatible, "option --train: the checkpoint is of a run on other data",
                           {{"samples", j.train->rows()}, {"checkpoint", p["rows"].dump()}});
    reader.seek({tessera::json_integer(p, "epoch", file), tessera::json_integer(p, "block", file), tessera::json_integer(p, "offset", file),
                 tessera::json_integer(p, "batch", file)});
    std::printf("resumed from %s\n", j.start->folder.c_str());
  }
  json kept;
  for_each_kept(j.s, [&](char const* name, auto const& value) { kept[name] = value; });
  auto const save = [&] {
    auto const p = reader.position();
    tessera::checkpoint_state const state{
        p.batch, kept, {{"epoch", p.epoch}, {"block", p.block}, {"offset", p.offset}, {"batch", p.batch}, {"rows", j.train->rows()}}};
    tessera::save_checkpoint(j.exec, j.s.checkpoint, run, state, 2, [&](std::string const& folder) {
      return std::vector<tessera::manifest_section>{tessera::save_preprocessing(folder, *j.preprocess)};
    });
  };

  metrics_file metrics(j.s.metrics, j.s.resume);
  recent_auc auc;
  json result = nullptr;
  std::int64_t trained = 0, saved_at = -1;
  double loss_sum = 0, training_seconds = 0;
  while (reader.position().epoch < j.s.epochs) {
    auto const epoch = reader.position().epoch;
    tessera::progress bar(stdout, isatty(STDOUT_FILENO) != 0, j.train->rows());
    auto const started = std::chrono::steady_clock::now();
    std::int64_t done = 0, losses = 0;
    double mean_loss = 0;
    for (tessera::batch_view batch; reader.next(step_exec, batch);) {
      loss_sum += run.step(step_exec, batch);
      ++losses;
      done += batch.samples();
      auc.add(run.logits(), batch.labels);
      auto const step = reader.position().batch;
      if (j.s.checkpoint_every > 0 && step % j.s.checkpoint_every == 0) {
        save();
        saved_at = step;
      }
      if (step % 100 == 0 || bar.due()) {
        mean_loss = loss_sum / static_cast<double>(losses);
        loss_sum = 0;
        losses = 0;
      }
      if (bar.due()) bar.show(done, text("epoch %lld/%lld  loss %.4f  auc %.4f", static_cast<long long>(epoch + 1), static_cast<long long>(j.s.epochs), mean_loss, auc.value(j.exec)));
      if (step % 100 == 0) metrics.write({{"event", "train"}, {"step", step}, {"epoch", epoch}, {"samples", done}, {"loss", mean_loss}, {"auc", auc.value(j.exec)}});
    }
    training_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    trained += done;
    bar.clear();
    auto const rate = static_cast<double>(trained) / training_seconds;
    if (j.test) {
      result = test(j, model, epoch + 1 == j.s.epochs);
      std::printf("epoch %lld/%lld: train auc %.4f, %s\n", static_cast<long long>(epoch + 1), static_cast<long long>(j.s.epochs), auc.value(j.exec),
                  text("test auc %.4f logloss %.4f, %.0f samples/s", result["auc"].get<double>(), result["logloss"].get<double>(), rate).c_str());
      auto line = result;
      line.update({{"event", "test"}, {"epoch", epoch}, {"step", reader.position().batch}, {"samples_per_second", rate}});
      metrics.write(line);
    }
  }
  if (!j.s.checkpoint.empty() && saved_at != reader.position().batch) save();
  if (j.test) {
    if (result.is_null()) result = test(j, model, true);  // resumed behind the last epoch
    print_test(result, trained > 0 ? static_cast<double>(trained) / training_seconds : 0);
  }
  return 0;
}

void check(CLI::App const& app, settings const& s) {
  if (s.train.empty() && !s.eval_only) throw CLI::RequiredError("--train");
  if (s.test.empty() && (s.eval_only || !s.predict.empty())) throw CLI::RequiredError("--test");
  if (!s.checkpoint.empty() && !s.resume && !s.eval_only && !tessera::list_step_folders(s.checkpoint).empty())
    throw CLI::ValidationError("--checkpoint", s.checkpoint + " holds checkpoints of another run: go on from them with --resume, or name another folder");
  (void)app;
}

int run(CLI::App const& app, settings s) {
  check(app, s);
  tessera::thread_pool pool(s.threads);
  tessera::system_memory memory;
  job j{std::move(s), tessera::host_exec(pool, memory), {}, {}, {}, {}};
  if (j.s.resume || j.s.eval_only) {
    j.start = tessera::open_newest_checkpoint(j.s.checkpoint);
    adopt(app, j.start->state.options, j.s, j.start->folder + "/manifest.json");
    j.preprocess = tessera::load_preprocessing(j.exec, j.start->folder);
  }
  if (!j.s.eval_only) {
    tessera::preprocessing_options const options{.dense = j.s.dense == "log" ? tessera::dense_scaling::log : tessera::dense_scaling::standard,
                                                 .dense_as_category = j.s.dense_as_category,
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
  }
  if (!j.s.test.empty()) {
    j.test.emplace(j.exec, std::vector<std::string>{j.s.test});
    std::printf("test: %lld samples\n", static_cast<long long>(j.test->rows()));
  }
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
    return run(app, std::move(s));
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "train_ctr: %s\n", e.what());
    return 1;
  }
}
