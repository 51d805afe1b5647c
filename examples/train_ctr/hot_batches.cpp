// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// example-unit: tables
#include "../support/hot_batches.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <tessera/core/background_thread.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/data/sample_source.hpp>
#include <tessera/data/sampled_blocks.hpp>
#include <tessera/files/json.hpp>
#include <tessera/hot/classify_samples.hpp>
#include <tessera/hot/hot_inputs.hpp>
#include <tessera/tensor/batch.hpp>

namespace examples {

namespace {

constexpr double profiled_percent = 5;  // of the blocks

// Samples of a log as a log, so that all are read by one kind of reader.
template <class Source>
sample_log as_log(Source source) {
  return sample_log(tessera::any_sample_source(std::move(source)));
}

// All batches of one process, in the order of the data.
tessera::sample_reader_options all_in_order(tessera::sample_reader_options options) {
  options.batch_size = 4096;
  options.order = tessera::sample_order::stored;
  options.slice = {};
  return options;
}

tessera::access_profile profile_of(tessera::host_exec const& exec, sample_log const& train, tessera::preprocessing const& preprocess,
                                   tessera::sample_reader_options const& options, std::vector<tessera::table_feature> const& features,
                                   std::vector<tessera::table_spec> const& specs) {
  auto const some = as_log(tessera::sampled_blocks(train, {.percent = profiled_percent}));
  training_reader::slices sample(exec, some, preprocess, options);
  return tessera::profile_accesses(exec, sample, features, specs);
}

tessera::sample_classes classify(tessera::host_exec const& exec, sample_log const& train, tessera::preprocessing const& preprocess,
                                 tessera::sample_reader_options const& options, std::vector<tessera::table_feature> const& features,
                                 tessera::hot_rows const& rows) {
  training_reader::slices all(exec, train, preprocess, options);
  return tessera::classify_samples(exec, all, features, rows);
}

sample_log samples_of(sample_log const& train, tessera::sample_classes const& classes, tessera::batch_class kind) {
  return as_log(tessera::picked_samples(train, classes, kind));
}

// The thresholds that a report shows beside the chosen one.
std::vector<double> shown_percents(double chosen) {
  std::vector<double> percents{0.1, 0.01, 0.001, 0.0001};
  if (std::isfinite(chosen)) percents.push_back(chosen);
  std::sort(percents.rbegin(), percents.rend());
  return percents;
}

}  // namespace

hot_batches::hot_batches(settings const& s, tessera::host_exec const& exec, sample_log const& train,
                         tessera::preprocessing const& preprocess, tessera::sample_reader_options reader,
                         std::vector<tessera::table_feature> const& features, std::vector<tessera::table_spec> const& specs,
                         std::vector<tessera::table_spec> copied)
    : copied(std::move(copied)),
      options{.budget_bytes = s.hot_budget},
      profile(profile_of(exec, train, preprocess, all_in_order(reader), features, specs)),
      classes([&] {
        auto const chosen = choose_rows(exec, specs);
        for (auto const& table : chosen.tables) rows += table.size();
        bytes = chosen.row_bytes(specs);
        percent = chosen.percent;
        return classify(exec, train, preprocess, all_in_order(reader), features, chosen);
      }()),
      hot(samples_of(train, classes, tessera::batch_class::hot)),
      cold(samples_of(train, classes, tessera::batch_class::cold)) {
  if (s.report.empty()) return;
  auto const percents = shown_percents(percent);
  thresholds = tessera::hot_thresholds(profile, specs, percents, options);
  tessera::sampled_blocks const others(train, {.percent = profiled_percent, .rest = true});
  auto const unseen = as_log(tessera::sampled_blocks(others, {.percent = profiled_percent}));
  training_reader::slices samples(exec, unseen.rows() > 0 ? unseen : train, preprocess, all_in_order(reader));
  shares_of_samples = tessera::hot_input_shares(exec, samples, features, profile, specs, percents, options);
}

tessera::hot_rows hot_batches::choose_rows(tessera::host_exec const& exec, std::vector<tessera::table_spec> const& specs) const {
  try {
    return tessera::choose_hot_rows(exec, profile, specs, options);
  } catch (tessera::error const& e) {
    throw tessera::error(e.code(), "option --hot-budget: " + std::string(e.sentence()), e.values());
  }
}

namespace {

using nlohmann::json;

json reader_json(tessera::reader_position const& p) {
  return {{"epoch", p.epoch}, {"block", p.block}, {"offset", p.offset}, {"batch", p.batch}};
}

tessera::dealt_position position_of_json(json const& from, char const* name, std::string const& file) {
  auto const& one = tessera::json_object(from, name, file);
  auto const count = [&](char const* what) { return tessera::json_count(one, what, file); };
  return {{count("epoch"), count("block"), count("offset"), count("batch")}, {}};
}

// A number of a schedule; null stands for the loss before any was told.
double number_of_json(json const& from, char const* name, std::string const& file) {
  auto const& found = tessera::json_field(from, name, file);
  if (found.is_null()) return std::numeric_limits<double>::infinity();
  if (!found.is_number())
    throw tessera::error(tessera::errc::parse_error, "the checkpoint's position: a number", {{"file", file}, {"field", name}});
  return found.get<double>();
}

/// Over two readers, which read ahead or not.
template <class Reader>
class class_runs : public class_run_reader {
 public:
  class_runs(settings const& s, hot_batches const& hot, Reader& hots, Reader& colds)
      : s_(s), hot_(hot), batches_(hots, colds, chosen_schedule(s.hot_schedule)) {}

  bool next(tessera::host_exec const& exec, tessera::batch_view& out) override { return batches_.next(exec, out); }
  run_position position() const override {
    auto const classes = batches_.position();
    return {{{classes.epoch, 0, 0, classes.batch}, {}}, batches_.epoch_samples(), classes};
  }
  bool class_ends() const override { return batches_.class_ends(); }
  bool follows_loss() const override { return batches_.schedule().follows_loss(); }
  void tell_loss(double loss) override { batches_.tell_loss(loss); }

  bool seek(json const& position, std::string const& file) override {
    auto const& from = tessera::json_object(position, "classes", file);
    auto const count = [&](char const* name) { return tessera::json_count(from, name, file); };
    if (count("rows") != hot_.classes.rows() || count("batch-size") != s_.batch_size) return false;
    class_position at;
    at.epoch = tessera::json_count(position, "epoch", file);
    at.batch = tessera::json_count(position, "batch", file);
    at.hot = position_of_json(from, "hot", file);
    at.cold = position_of_json(from, "cold", file);
    at.hot_batches = count("hot-batches");
    at.cold_batches = count("cold-batches");
    at.run = tessera::json_string(from, "run", file) == "hot" ? tessera::batch_class::hot : tessera::batch_class::cold;
    at.left = count("left");
    at.schedule = {number_of_json(from, "rate", file), number_of_json(from, "loss", file), count("falls")};
    batches_.seek(at);
    return true;
  }
  void begin_epoch(std::int64_t epoch, std::int64_t batch) override {
    class_position at;
    at.epoch = at.hot.epoch = at.cold.epoch = epoch;
    at.batch = batch;
    at.schedule = batches_.position().schedule;
    batches_.seek(at);
  }

 private:
  settings const& s_;
  hot_batches const& hot_;
  tessera::class_reader<Reader, Reader, chosen_schedule> batches_;
};

struct two_readers {
  two_readers(tessera::host_exec const& exec, hot_batches const& hot, tessera::preprocessing const& preprocess,
              tessera::sample_reader_options const& options)
      : hots(exec, hot.hot, preprocess, options, false), colds(exec, hot.cold, preprocess, options, false) {}
  training_reader hots, colds;
};

class runs_as_read final : two_readers, public class_runs<training_reader> {
 public:
  runs_as_read(settings const& s, tessera::host_exec const& exec, hot_batches const& hot, tessera::preprocessing const& preprocess,
               tessera::sample_reader_options const& options)
      : two_readers(exec, hot, preprocess, options), class_runs(s, hot, hots, colds) {}
};

using reader_ahead = tessera::prefetching_reader<training_reader>;

// Each reader has a thread: while one waits for its turn, it has read its next batches.
struct two_readers_ahead {
  two_readers_ahead(tessera::host_exec const& exec, hot_batches const& hot, tessera::preprocessing const& preprocess,
                    tessera::sample_reader_options const& options)
      : readers(exec, hot, preprocess, options),
        hots(tessera::host_exec(hot_team, memory), hot_thread, readers.hots),
        colds(tessera::host_exec(cold_team, memory), cold_thread, readers.colds) {}
  tessera::serial_team hot_team, cold_team;
  tessera::system_memory memory;
  two_readers readers;
  tessera::background_thread hot_thread, cold_thread;
  reader_ahead hots, colds;
};

class runs_ahead final : two_readers_ahead, public class_runs<reader_ahead> {
 public:
  runs_ahead(settings const& s, tessera::host_exec const& exec, hot_batches const& hot, tessera::preprocessing const& preprocess,
             tessera::sample_reader_options const& options)
      : two_readers_ahead(exec, hot, preprocess, options), class_runs(s, hot, hots, colds) {}
};

}  // namespace

nlohmann::json class_json(settings const& s, hot_batches const& hot, class_position const& p) {
  auto const& schedule = p.schedule;
  return {{"rows", hot.classes.rows()},
          {"batch-size", s.batch_size},
          {"hot", reader_json(p.hot)},
          {"cold", reader_json(p.cold)},
          {"hot-batches", p.hot_batches},
          {"cold-batches", p.cold_batches},
          {"run", p.run == tessera::batch_class::hot ? "hot" : "cold"},
          {"left", p.left},
          {"rate", schedule.percent},
          {"loss", std::isfinite(schedule.loss) ? json(schedule.loss) : json()},
          {"falls", schedule.fell}};
}

std::unique_ptr<class_run_reader> make_class_reader(settings const& s, tessera::host_exec const& exec, hot_batches const& hot,
                                                    tessera::preprocessing const& preprocess, tessera::sample_reader_options const& options,
                                                    bool reads_ahead) {
  if (reads_ahead) return std::make_unique<runs_ahead>(s, exec, hot, preprocess, options);
  return std::make_unique<runs_as_read>(s, exec, hot, preprocess, options);
}

}  // namespace examples
