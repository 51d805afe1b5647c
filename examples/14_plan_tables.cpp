// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Plans of tables by what they cost (NeuroShard): profiles of a log's tables, measurements of this machine, networks fitted to them, searches
// of plans, and what a plan costs each device.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/core/types.hpp>

#include "plan_tables/commands.hpp"
#include "plan_tables/methods.hpp"
#include "support/command_line.hpp"
#include "support/output_files.hpp"
#include "support/ranks.hpp"

namespace {

using namespace plan_tables;
using examples::integer;

constexpr std::int64_t most_devices = 1 << 20, most_bytes = std::int64_t{1} << 60;

/// What the command line says.
struct options {
  examples::settings data;
  profile_options profile;
  task_options tasks;
  collect_options collect;
  fit_command fit;
  search_options search;
  compare_options compare;
  predict_options predict;
  show_options show;
  measure_options measure;
};

CLI::Option* add_devices(CLI::App& app, std::int64_t& devices) {
  return app.add_option("--devices", devices, "How many devices hold tables")->transform(integer(std::int64_t{1}, most_devices));
}
CLI::Option* add_bytes(CLI::App& app, char const* name, std::uint64_t& bytes, char const* what) {
  return app.add_option(name, bytes, what)
      ->transform(CLI::AsSizeValue(true))
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{most_bytes}));
}
void add_seed(CLI::App& app, std::uint64_t& seed) {
  app.add_option("--seed", seed, "Seed of what is random")
      ->transform(integer(std::uint64_t{0}, static_cast<std::uint64_t>(tessera::most_counted)))
      ->capture_default_str();
}
CLI::Option* add_count(CLI::App& app, char const* name, std::int64_t& count, std::int64_t least, char const* what) {
  return app.add_option(name, count, what)->transform(integer(least, tessera::most_counted))->capture_default_str();
}

void declare_profile(CLI::App& app, options& o) {
  o.data.dedup = "off";
  app.add_option("FILE", o.data.train, "The log: Parquet or text, as of train_ctr --train")->required();
  app.add_option("--out", o.profile.out, "The file that gets the profiles")->type_name("FILE.json")->capture_default_str();
  examples::declare_columns(app, o.data);
  app.add_option("--share", o.data.share, "Columns that read the table of another: the same id has the same row in both")
      ->type_name("NAME=OTHER,...");
  app.add_option("--max-length", o.data.max_length, "Lists are cut to their last so many ids")
      ->transform(integer(std::int64_t{1}, tessera::most_counted));
  auto* const hash = app.add_option("--hash-size", o.data.hash_size, "Hash ids to so many rows a table instead of a vocabulary")
                         ->transform(integer(std::int64_t{1}, examples::most_rows));
  app.add_option("--min-count", o.data.min_count, "Values seen fewer times share a row")
      ->transform(integer(std::int64_t{1}, tessera::most_counted))
      ->excludes(hash);
  app.add_option("--dedup", o.data.dedup, "Groups of columns whose repeated lists a batch has once, or off")
      ->type_name("off|A+B,C,...")
      ->capture_default_str();
  app.add_option("--towers", o.profile.towers, "Which columns make which tower, a file as of train_ctr --towers")->type_name("FILE.json");
  add_count(app, "--batch", o.profile.batch, 1, "Samples of a batch on all devices together");
  add_count(app, "--batches", o.profile.batches, 1, "Profiles are means of so many batches, the first ones of the files");
  add_count(app, "--dim", o.profile.dim, 1, "Elements of a row");
  app.add_option("--dim-of", o.profile.own_dims, "Elements of the rows of one table")->type_name("NAME=DIM");
  app.add_option("--row-format", o.profile.row_format, "How rows are stored")
      ->check(CLI::IsMember({"float", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "scaled_int8"}))
      ->capture_default_str();
  app.add_option("--optimizer", o.profile.optimizer, "Row optimizer")
      ->check(CLI::IsMember({"sgd", "momentum_sgd", "adagrad", "adam", "ftrl", "rowwise_adagrad", "rowwise_adam"}))
      ->capture_default_str();
}

void declare_tasks(CLI::App& app, task_options& o) {
  app.add_option("--pool", o.pool, "Write the tables that tasks are drawn from there")->type_name("FILE.json");
  app.add_option("--tables", o.tables, "Draw from these tables; else from 856 synthetic ones, in the manner of dlrm_datasets")
      ->type_name("FILE.json");
  app.add_option("--out", o.out, "The folder that gets the tasks, a file of profiles each")->type_name("DIR");
  add_count(app, "--batch", o.batch, 0, "Take so many samples of the batches that the profiles are of; 0: all of them");
  add_count(app, "--tasks", o.tasks, 1, "How many tasks");
  add_devices(app, o.devices)->capture_default_str();
  app.add_option("--most-dim", o.most_dim, "Dims are 4, 8, 16, … up to it")->transform(integer(4, 4096))->capture_default_str();
  add_count(app, "--least-tables", o.least_tables, 1, "Fewest tables of a task");
  add_count(app, "--most-tables", o.most_tables, 1, "Most tables of a task");
  add_bytes(app, "--bytes-per-device", o.bytes_per_device, "What a device may hold")->capture_default_str();
  add_bytes(app, "--slack-bytes", o.slack_bytes, "What the weights of a task leave of all devices together")->capture_default_str();
  add_seed(app, o.seed);
  app.add_option("--pool-seed", o.pool_seed, "Seed of the synthetic tables")->capture_default_str();
}

void declare_collect(CLI::App& app, collect_options& o) {
  app.add_option("DIR", o.folder, "The folder of samples; one that is there goes on where it stopped, with its options")->required();
  app.add_option("--pool", o.pool, "Tables that combinations are drawn from; a new folder keeps a copy")->type_name("FILE.json");
  add_count(app, "--samples", o.samples, 0, "How many combinations of tables shall have been measured, a step each");
  add_count(app, "--exchanges", o.exchanges, 0, "How many exchanges between the ranks shall have been measured");
  app.add_option("--ranks", o.ranks, "Who exchanges: threads of this process, or the processes of mpirun")
      ->type_name("threads:N|mpi")
      ->check([](std::string const& given) {
        int ranks = 0;
        bool const is_known =
            given == "mpi" || (given.starts_with("threads:") && examples::parse_number(std::string_view(given).substr(8), ranks) &&
                               ranks >= 1 && ranks <= 1024);
        return is_known ? std::string() : "neither mpi nor threads:1 to threads:1024: " + given;
      })
      ->capture_default_str();
  app.add_option("--seconds", o.seconds, "Begin no more samples after so many seconds; 0: all of them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--optimizer", o.optimizer, "Row optimizer of the steps")
      ->check(CLI::IsMember({"sgd", "rowwise_adagrad"}))
      ->capture_default_str();
  app.add_option("--dims", o.dims, "Dims that a drawn table may have")
      ->delimiter(',')
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 16))
      ->capture_default_str();
  app.add_option("--batches", o.batches, "Numbers of samples of a batch that may be drawn; else as many as the profiles are of")
      ->delimiter(',')
      ->transform(integer(std::int64_t{1}, std::int64_t{1} << 24));
  add_count(app, "--least-tables", o.least_tables, 1, "Fewest tables of a combination");
  add_count(app, "--most-tables", o.most_tables, 1, "Most tables of a combination");
  add_count(app, "--least-placed", o.least_placed, 1, "Fewest tables of an exchange, on all devices");
  add_count(app, "--most-placed", o.most_placed, 1, "Most tables of an exchange");
  add_bytes(app, "--limit-bytes", o.limit_bytes, "Weights and states of a combination, and of a device of an exchange")
      ->capture_default_str();
  app.add_option("--most-skew-ms", o.most_skew_ms, "How much later than the first a device may begin an exchange")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_count(app, "--warm-up", o.warm_up, 0, "Runs of a sample that do not count");
  add_count(app, "--runs", o.runs, 1, "Runs of a sample, of which the median counts");
  add_count(app, "--rounds", o.rounds, 1, "Rounds of runs of a step, until they are steady");
  add_count(app, "--time-limit", o.time_limit, 1, "Seconds that ranks wait for each other");
  add_seed(app, o.seed);
}

void declare_fit(CLI::App& app, fit_command& o) {
  app.add_option("DIR", o.folder, "The folder of samples that collect wrote")->required();
  app.add_option("--out", o.out, "The folder that gets the learned costs")->type_name("DIR");
  app.add_option("--published", o.published, "The folder that gets NeuroShard's networks, for each number of devices that was measured")
      ->type_name("DIR");
  app.add_option("--exchanges-of", o.exchanges_of, "Take the exchanges from another folder of samples")->type_name("DIR");
  auto* const again = app.add_option("--again", o.again, "Folders of the same steps, collected again at other times: the medians count");
  again->type_name("DIR");
  app.add_flag("--fastest", o.fastest, "Count the fastest instead, as measure --fastest does")->needs(again);
  app.add_option("--plans", o.plans, "Learn from plans too: profiles of their tables, and what measure --samples or train_ctr wrote")
      ->type_name("TABLES.json=SAMPLES.csv");
  add_count(app, "--samples", o.samples, 0, "Steps that are learned from: the first so many; 0: all");
  add_count(app, "--exchanges", o.exchanges, 0, "Exchanges, of each number of devices: the first so many; 0: all");
  add_count(app, "--epochs", o.epochs, 1, "Passes over the samples");
  add_count(app, "--batch", o.batch, 1, "Samples of a step of fitting");
  add_count(app, "--starts", o.starts, 1, "Networks from random parameters; learned costs are the mean of the good ones");
  app.add_option("--lr", o.rate, "Learning rate of Adam")->transform(examples::number(examples::most_rate, false))->capture_default_str();
  app.add_option("--last-lr", o.last_rate, "That of the last epoch; it falls evenly")
      ->transform(examples::number(examples::most_rate, true))
      ->capture_default_str();
  add_seed(app, o.seed);
}

void declare_model(CLI::App& app, model_options& o) {
  auto* const folder =
      app.add_option("--model", o.folder, "The folder of learned costs, or of published networks, that fit wrote")->type_name("DIR");
  app.add_flag("--roofline", o.roofline, "Costs by counted bytes instead of a model")->excludes(folder);
  app.add_option("--memory-gb-per-second", o.memory_gb_per_second, "Of the roofline: between a device and its memory")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--exchange-gb-per-second", o.exchange_gb_per_second,
                 "Of the roofline: what a device sends to other hosts, and at the same time receives")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--host-gb-per-second", o.host_gb_per_second, "Of the roofline: the same inside a host; 0: as between hosts")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_count(app, "--devices-of-host", o.devices_of_host, 1,
            "Of the roofline, and of towers: a tower has a host or several, or towers share a host");
  app.add_flag("--any-machine", o.any_machine, "Learned costs may be of another machine");
  app.add_option("--caution", o.caution,
                 "Add so many standard deviations over the networks of learned costs: what they disagree about costs more")
      ->excludes("--roofline")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void declare_searches(CLI::App& app, search_options& o) {
  declare_model(app, o.model);
  add_devices(app, o.devices)->required();
  add_bytes(app, "--bytes-per-device", o.bytes_per_device, "What a device may hold: bytes, or as 4GiB")->required();
  add_count(app, "--evaluations", o.evaluations, 1, "Of the searches plan, whole and whole-even-compute: how many plans they may compare");
  app.add_option(
         "--deadline", o.deadline_ms,
         "Of the searches plan, whole and whole-even-compute: milliseconds after which they stop, with the best plan so far; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--objective", o.objective, "Of the searches plan, whole and exhaustive: what they make small")
      ->check(CLI::IsMember({"cost", "compute_balance", "slowest_stage"}))
      ->capture_default_str();
  app.add_flag("--cut-rows", o.cut_rows, "Of the method plan: tables may be cut by rows too");
  app.add_flag("--replicas", o.replicas, "Of the method plan: small tables may be on all devices too");
  app.add_flag("--weights-alone", o.weights_alone, "Count float weights alone as memory, as NeuroShard does");
  add_count(app, "--towers", o.towers, 0,
            "Of the searches plan, whole and whole-even-compute: tables stay on the devices of their tower; 0: anywhere");
  add_count(app, "--candidates", o.candidates, 1, "Of the published search: tables by size, and by cost, that a beam tries to halve (N)");
  add_count(app, "--beams", o.beams, 1, "Of the published search: plans that go on to the next halving (K)");
  add_count(app, "--steps", o.steps, 0, "Of the published search: halvings of a plan (L)");
  add_count(app, "--grid", o.grid, 0, "Of the published search: limits on the columns of a device (M); 0: none");
  app.add_flag("--no-sums", o.no_sums, "Of the published search: compute a device's representations anew each time, to compare seconds");
  add_seed(app, o.seed);
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (auto const& one : search_methods()) names.push_back(one.name);
  return names;
}

void declare_search(CLI::App& app, search_options& o) {
  app.add_option("TABLES", o.tables, "Profiles of the tables")->required()->type_name("FILE.json");
  declare_searches(app, o);
  app.add_option("--method", o.method, "How plans are searched for")->check(CLI::IsMember(method_names()))->capture_default_str();
  app.add_option("--out", o.out, "The file that gets the plan")->type_name("FILE.json");
  app.add_option("--report", o.report, "The file that gets what is predicted of each device")->type_name("FILE.json");
}

void declare_compare(CLI::App& app, compare_options& o) {
  app.add_option("DIR", o.folder, "The folder of tasks")->required();
  declare_searches(app, o.search);
  app.add_option("--methods", o.methods, "Which searches; else all but exhaustive")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->check(CLI::IsMember(method_names()));
  app.add_option("--csv", o.csv, "The file that gets what each search found of each task, and its seconds")->type_name("FILE.csv");
}

void declare_predict(CLI::App& app, predict_options& o) {
  app.add_option("DIR", o.folder, "The folder of samples that collect wrote")->required();
  declare_model(app, o.model);
  app.add_option("--out", o.out, "The file that gets what was measured and what is predicted")
      ->type_name("FILE.csv")
      ->capture_default_str();
}

void declare_show(CLI::App& app, show_options& o) {
  app.add_option("TABLES", o.tables, "Profiles of the tables")->required()->type_name("FILE.json");
  app.add_option("PLAN", o.plan, "The plan")->required()->type_name("FILE.json");
  declare_model(app, o.model);
  add_devices(app, o.devices)->required();
  add_bytes(app, "--bytes-per-device", o.bytes_per_device, "What a device may hold; else all")->check(CLI::PositiveNumber);
  app.add_flag("--weights-alone", o.weights_alone, "Count float weights alone as memory, as NeuroShard does");
  app.add_option("--measured", o.measured, "What devices were measured to take, as measure writes it")->type_name("FILE.csv");
  app.add_option("--page", o.page, "Write a page about the plan there")->type_name("FILE.html");
}

void declare_measure(CLI::App& app, measure_options& o) {
  app.add_option("TABLES", o.tables, "Profiles of the tables")->required()->type_name("FILE.json");
  app.add_option("PLAN", o.plans, "Plans of these tables, which take turns")->required()->type_name("FILE.json");
  add_devices(app, o.devices)->required();
  auto* const ranks =
      app.add_option("--ranks", o.ranks, "Who exchanges: as many threads as devices where none is given, or the processes of mpirun")
          ->check(CLI::IsMember({"mpi"}));
  auto* const compute = app.add_option("--compute", o.compute, "Take the times of steps from this file of measure, and measure exchanges")
                            ->type_name("FILE.csv");
  app.add_flag("--no-exchanges", o.no_exchanges, "Measure steps, and no exchanges")->excludes(ranks)->excludes(compute);
  app.add_flag("--whole-steps", o.whole_steps, "Run steps of sharded tables on the ranks, a processor each, one step after the other")
      ->excludes(compute)
      ->excludes("--no-exchanges");
  app.add_option("--out", o.out, "The file that gets the times of each plan and device")->type_name("FILE.csv")->capture_default_str();
  app.add_option("--samples", o.samples, "Add a line a plan to this file, which fit --plans reads; of plans that search wrote")
      ->type_name("FILE.csv")
      ->excludes("--no-exchanges");
  add_count(app, "--warm-up", o.warm_up, 0, "Runs of a plan in a round that do not count");
  add_count(app, "--runs", o.runs, 1, "Runs of a plan in a round, of which the median counts");
  add_count(app, "--rounds", o.rounds, 1, "Rounds, each of all plans; the median of rounds counts");
  app.add_flag("--fastest", o.fastest, "Count the fastest round instead, on a machine that others slow down for rounds at a time");
  add_count(app, "--time-limit", o.time_limit, 1, "Seconds that ranks wait for each other");
  add_seed(app, o.seed);
}

/// Finds an output that would take the place of an input, or cannot be written, before anything is read.
void check_files(std::vector<examples::named_file> const& inputs, std::vector<examples::named_file> const& outputs) {
  examples::check_distinct(inputs, outputs);
  for (auto const& [option, path] : outputs)
    if (!path.empty()) examples::whole_file::check(option, path);
}

void check_files(std::string const& command, options const& o) {
  if (command == "profile") {
    std::vector<examples::named_file> files;
    for (auto const& one : o.data.train) files.emplace_back("FILE", one);
    if (!o.profile.towers.empty()) files.emplace_back("--towers", o.profile.towers);
    check_files(files, {{"--out", o.profile.out}});
  }
  if (command == "search") check_files({{"TABLES", o.search.tables}}, {{"--out", o.search.out}, {"--report", o.search.report}});
  if (command == "predict") check_files({}, {{"--out", o.predict.out}});
  if (command == "compare") check_files({}, {{"--csv", o.compare.csv}});
  if (command == "measure") {
    std::vector<examples::named_file> inputs{{"TABLES", o.measure.tables}};
    for (auto const& plan : o.measure.plans) inputs.emplace_back("PLAN", plan);
    if (!o.measure.compute.empty()) inputs.emplace_back("--compute", o.measure.compute);
    check_files(inputs, {{"--out", o.measure.out}, {"--samples", o.measure.samples}});
  }
  if (command == "show") {
    std::vector<examples::named_file> inputs{{"TABLES", o.show.tables}, {"PLAN", o.show.plan}};
    if (!o.show.measured.empty()) inputs.emplace_back("--measured", o.show.measured);
    check_files(inputs, {{"--page", o.show.page}});
  }
}

void run(CLI::App& command, options& o) {
  auto const name = command.get_name();
  auto const threads = o.data.threads;
  check_files(name, o);
  for (auto const* const option : command.get_options())
    if (option->count() > 0) o.collect.given.insert(option->get_single_name());
  if (name == "collect") return collect(threads, o.collect);
  if (name == "measure") return measure(threads, o.measure);
  if (name == "tasks") {
    if (o.tasks.pool.empty() && o.tasks.out.empty()) throw CLI::RequiredError("--pool or --out");
    return write_tasks(o.tasks);
  }
  tessera::thread_pool pool(threads);
  tessera::system_memory memory;
  tessera::host_exec const exec(pool, memory);
  if (name == "fit" && o.fit.out.empty() && o.fit.published.empty()) throw CLI::RequiredError("--out or --published");
  if (name == "profile") profile(exec, o.data, o.profile);
  if (name == "fit") fit(exec, o.fit);
  if (name == "search") search(exec, o.search);
  if (name == "compare") compare(exec, o.compare);
  if (name == "predict") predict(exec, o.predict);
  if (name == "show") show(exec, o.show);
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app("Plans tables onto devices by what they cost.", "plan_tables");
  app.require_subcommand(1);
  auto const add = [&](char const* name, char const* what) {
    auto* const command = app.add_subcommand(name, what);
    command->add_option("--threads", o.data.threads, "Threads of this process")->transform(integer(1, 4096))->capture_default_str();
    return command;
  };
  declare_profile(*add("profile", "Writes what batches of a log read of each table"), o);
  declare_tasks(*add("tasks", "Writes tasks of placing tables, and the synthetic pool of tables"), o.tasks);
  declare_collect(*add("collect", "Measures steps and exchanges on this machine"), o.collect);
  declare_fit(*add("fit", "Fits networks of costs to what was collected"), o.fit);
  declare_predict(*add("predict", "Says what a model predicts of what was collected"), o.predict);
  declare_search(*add("search", "Searches for the plan of least cost"), o.search);
  declare_compare(*add("compare", "Compares searches over a folder of tasks"), o.compare);
  declare_show(*add("show", "Says what a plan costs each device"), o.show);
  declare_measure(*add("measure", "Measures what plans cost each device of this machine"), o.measure);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    app.parse(argc, argv);
    run(*app.get_subcommands().front(), o);
    std::cout.flush();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)
      throw tessera::error(tessera::errc::io_error, "cannot write to the standard output");
    return 0;
  } catch (CLI::Error const& e) {
    return app.exit(e);
  } catch (std::exception const& e) {
    std::fflush(stdout);
    auto const rank = examples::launched_rank();
    std::fprintf(stderr, "plan_tables: %s%s\n", rank > 0 ? examples::text("rank %d: ", rank).c_str() : "", e.what());
    return 1;
  }
}
