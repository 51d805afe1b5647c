// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 5
#include <doctest/doctest.h>

#include "../support/sanitizers.hpp"
#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("outputs of train_ctr") { tessera_tests::skip("the examples are not built"); }

#else

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "run_program.hpp"
#include "temporary_folder.hpp"
#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

/// Metrics without speeds.
std::string lines_of(std::string const& metrics) {
  return std::regex_replace(contents(metrics), std::regex("\"samples_per_second\":[^,}]*"), "");
}

std::string newest_manifest(std::string const& checkpoints) {
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(!steps.empty());
  return contents(steps.back().path + "/manifest.json");
}

/// What a run left beside its data.
std::vector<std::string> left_by(small_data const& data) {
  auto names = names_in(data.folder.path());
  std::erase_if(names, [](std::string const& name) { return name == "train.tsv" || name == "test.tsv"; });
  return names;
}

/// Whether it came to that within a minute.
template <class F>
bool comes(F const& happened) {
  for (int i = 0; i < 6000 && !happened(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return happened();
}

program_result within_a_minute(running_program& program) {
  if (!comes([&] { return program.ended(); })) program.kill();
  return program.wait();
}

}  // namespace

TEST_CASE("an output is made under a name of its own: no other file is touched, also not by a run that is refused") {
  small_data const data;
  auto const out = data.folder.file("out"), taken = out + ".partial";
  auto const precious = contents(data.train);
  for (std::string const option : {"--predict", "--metrics", "--report"}) {
    CAPTURE(option);
    for (bool const is_link : {false, true}) {
      CAPTURE(is_link);
      is_link ? std::filesystem::create_symlink(data.train, taken) : write_file(taken, precious);
      auto const run = train_ctr(taken, data.test, {"--epochs", "1", option, out});
      CHECK_MESSAGE(run.status == 0, run.output);
      check_refused(train_ctr(taken, taken + "/none", {option, out}), {"none"});
      check_refused(train_ctr(taken, data.test, {option, out, "--lr", "1e30"}), {"diverged"});
      CHECK(contents(taken) == precious);
      CHECK(contents(data.train) == precious);
      CHECK(std::filesystem::is_symlink(taken) == is_link);
      CHECK(left_by(data) == std::vector<std::string>{"out", "out.partial"});
      std::filesystem::remove(taken);
      std::filesystem::remove(out);
    }
  }
}

TEST_CASE("two runs at once that write to one name both end, and the file is whole") {
  small_data const data;
  auto const csv = data.folder.file("out.csv"), html = data.folder.file("out.html");
  arguments const options{"--epochs", "1", "--predict", csv, "--report", html};
  REQUIRE(data.run(options).status == 0);
  auto const predictions = contents(csv), report = contents(html);
  for (int round = 0; round < 2; ++round) {
    running_program first(command_of(data.train, data.test, options)), second(command_of(data.train, data.test, options));
    CHECK(first.wait().status == 0);
    CHECK(second.wait().status == 0);
    CHECK(contents(csv) == predictions);
    CHECK(contents(html) == report);
    CHECK(left_by(data) == std::vector<std::string>{"out.csv", "out.html"});
  }
}

TEST_CASE("outputs may have names as long as the file system takes; longer ones are refused before training") {
  small_data const data;
  auto const checkpoints = data.folder.file("run");
  for (std::size_t const length : {247U, 248U, 255U, 256U}) {
    CAPTURE(length);
    auto const name = [&](char first) { return data.folder.file(first + std::string(length - 1, 'n')); };
    if (length > 255) {
      for (std::string const option : {"--predict", "--metrics", "--report"})
        check_refused(data.run({option, name('a')}), {option, name('a'), "name too long"});
      continue;
    }
    std::filesystem::remove_all(checkpoints);
    arguments options{"--epochs", "1", "--predict", name('p'), "--metrics", name('m'), "--report", name('r'), "--checkpoint", checkpoints};
    auto run = data.run(options);
    CHECK_MESSAGE(run.status == 0, run.output);
    options.emplace_back("--resume");
    run = data.run(options);
    CHECK_MESSAGE(run.status == 0, run.output);
  }
}

TEST_CASE("a resumed run changes its metrics under a name of its own, behind a link too, and leaves their permissions") {
  small_data const data;
  auto const checkpoints = data.folder.file("run"), metrics = data.folder.file("m"), link = data.folder.file("link");
  auto const taken = metrics + ".partial";
  auto const run = data.run({"--epochs", "2", "--batch-size", "2", "--metrics", metrics, "--checkpoint", checkpoints});
  REQUIRE_MESSAGE(run.status == 0, run.output);
  auto const lines = contents(metrics);
  write_file(taken, "precious");
  std::filesystem::create_symlink("m", link);
  std::filesystem::permissions(metrics, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  for (auto const& path : {metrics, link}) {
    std::ofstream(metrics, std::ios::app) << "{\"event\":\"train\",\"step\":1100}\n{\"event\": \"tra";
    auto const resumed = data.run({"--resume", "--metrics", path, "--checkpoint", checkpoints});
    REQUIRE_MESSAGE(resumed.status == 0, resumed.output);
    CHECK(contents(metrics) == lines);
    CHECK(std::filesystem::status(metrics).permissions() == (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  }
  CHECK(std::filesystem::is_symlink(link));
  CHECK(contents(taken) == "precious");
  CHECK(left_by(data) == std::vector<std::string>{"link", "m", "m.partial", "run"});
}

TEST_CASE("a trained model is saved before anything that may be impossible to write") {
  if (!std::filesystem::exists("/dev/full")) return skip("no /dev/full");
  small_data const data;
  arguments const options{"--epochs", "2", "--batch-size", "4"};  // 500 steps
  auto const with = [&](std::string const& name, arguments more) {
    more.insert(more.end(), options.begin(), options.end());
    more.insert(more.end(), {"--checkpoint", data.folder.file(name)});
    return data.run(more);
  };
  REQUIRE(with("whole", {}).status == 0);
  auto const tensors = tensors_of(data.folder.file("whole")), manifest = newest_manifest(data.folder.file("whole"));
  for (std::string const option : {"--predict", "--report"}) {
    CAPTURE(option);
    check_refused(with(option, {option, "/dev/full"}), {option, "/dev/full"});
    CHECK(tensors_of(data.folder.file(option)) == tensors);
    CHECK(newest_manifest(data.folder.file(option)) == manifest);
    CHECK(figures(data.run({"--eval-only", "--checkpoint", data.folder.file(option)})) ==
          figures(data.run({"--eval-only", "--checkpoint", data.folder.file("whole")})));
  }
  // The first line comes after 100 steps; what they have taught is kept, and gone on from.
  auto const stopped = data.folder.file("stopped");
  check_refused(with("stopped", {"--metrics", "/dev/full"}), {"--metrics", "/dev/full"});
  REQUIRE(tessera::list_step_folders(stopped).size() == 1);
  CHECK(tessera::list_step_folders(stopped).back().step.value == 100);
  REQUIRE(data.run({"--resume", "--checkpoint", stopped}).status == 0);
  CHECK(tensors_of(stopped) == tensors);
  CHECK(newest_manifest(stopped) == manifest);
}

TEST_CASE("a run that is killed in its last test and resumed leaves the checkpoint and the metrics of one that was not") {
  small_data const data;
  auto const whole = data.folder.file("whole"), killed = data.folder.file("killed"), pipe = data.folder.file("pipe");
  auto const options = [&](std::string const& name, arguments more) {
    more.insert(more.end(), {"--epochs", "2", "--batch-size", "4", "--checkpoint", name, "--metrics", name + ".jsonl"});
    return more;
  };
  auto const uninterrupted = data.run(options(whole, {"--predict", whole + ".csv"}));
  REQUIRE_MESSAGE(uninterrupted.status == 0, uninterrupted.output);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  running_program program(command_of(data.train, data.test, options(killed, {"--predict", pipe})));  // nobody reads the pipe
  REQUIRE(comes([&] { return program.ended() || !tessera::list_step_folders(killed).empty(); }));
  REQUIRE_FALSE(program.ended());
  program.kill();
  program.wait();
  CHECK(tensors_of(killed) == tensors_of(whole));
  CHECK(newest_manifest(killed) == newest_manifest(whole));
  for (int again = 0; again < 2; ++again) {
    auto const resumed = data.run({"--resume", "--checkpoint", killed, "--metrics", killed + ".jsonl", "--predict", killed + ".csv"});
    REQUIRE_MESSAGE(resumed.status == 0, resumed.output);
    CHECK(figures(resumed) == figures(uninterrupted));
    CHECK(lines_of(killed + ".jsonl") == lines_of(whole + ".jsonl"));
    CHECK(contents(killed + ".csv") == contents(whole + ".csv"));
    CHECK(tensors_of(killed) == tensors_of(whole));
    CHECK(newest_manifest(killed) == newest_manifest(whole));
  }
}

TEST_CASE("what could not be written in the end is refused before the training data are read, and nothing is left behind") {
  small_data const data;
  write_file(data.train, head(train_tsv, 100) + "no sample\n");  // reading it would say so
  auto const file = [&](std::string const& name) { return data.folder.file(name); };
  std::filesystem::create_symlink("nowhere", file("dangling"));
  std::filesystem::create_symlink("loop", file("loop"));
  std::filesystem::create_directory(file("folder"));
  auto const before = left_by(data);
  auto const refused = [&](arguments const& options, std::vector<std::string> const& parts) {
    CAPTURE(options.back());
    auto const result = data.run(options);
    check_refused(result, parts);
    CHECK_FALSE(result.says("line 101"));
    CHECK(left_by(data) == before);
  };
  auto const run = file("run");
  for (std::string const option : {"--predict", "--metrics", "--report"}) {
    CAPTURE(option);
    refused({option, file("dangling")}, {option, "dangling", "nowhere"});
    refused({option, file("loop")}, {option, "loop", "symbolic links"});
    refused({option, file("folder")}, {option, "folder", "directory"});
    refused({option, file("missing/file")}, {option, "missing/file", "No such file"});
    refused({option, file("missing/")}, {option, "missing/"});
    refused({"--checkpoint", run, option, run}, {option, "other option --checkpoint", run});
    refused({"--checkpoint", run, option, file("folder/../run/")}, {option, "other option --checkpoint"});
    refused({"--checkpoint", run + "/a/b", option, run}, {option, "other option --checkpoint"});
    refused({"--checkpoint", run, option, run + "/step-000000000100"}, {option, "a name that checkpoints have", run});
    refused({"--checkpoint", run, option, run + "/manifest.json"}, {option, "a name that checkpoints have"});
    refused({"--checkpoint", run, option, run + "/none/file"}, {option, "none/file"});
  }
  refused({"--checkpoint", file("loop"), "--predict", file("out")}, {"--checkpoint", "loop"});
  // In a folder of checkpoints, but under other names.
  write_file(data.train, head(train_tsv, 1000));
  auto const good =
      data.run({"--epochs", "1", "--checkpoint", run, "--predict", run + "/step-1", "--metrics", run + "/m", "--report", run + "/r"});
  CHECK_MESSAGE(good.status == 0, good.output);
  CHECK(names_in(run) == std::vector<std::string>{"m", "r", "step-000000000008", "step-1"});
  // In a checkpoint no file but its own may be, or it could not be read again.
  auto const step = run + "/step-000000000008";
  std::filesystem::create_directory_symlink(step, file("to_step"));
  for (std::string const option : {"--predict", "--metrics", "--report"})
    for (auto const& inside : {step + "/csv", step + "/manifest.json", step + "/dense.safetensors", file("to_step/csv")}) {
      CAPTURE(inside);
      check_refused(data.run({"--resume", "--checkpoint", run, option, inside}), {option, "a name that checkpoints have"});
      if (option == "--report") continue;  // which a run that only tests does not write
      for (auto const& checkpoint : {run, step})
        check_refused(data.run({"--eval-only", "--checkpoint", checkpoint, option, inside}), {option, "a name that checkpoints have"});
    }
  CHECK(data.run({"--eval-only", "--checkpoint", step, "--predict", run + "/csv"}).status == 0);
}

TEST_CASE("metrics go into a pipe, which is opened once") {
  small_data const data;
  auto const pipe = data.folder.file("pipe"), file = data.folder.file("file"), got = data.folder.file("got");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(data.run({"--epochs", "2", "--batch-size", "8", "--metrics", file}).status == 0);
  running_program reader({"/bin/sh", "-c", "exec cat \"$0\" > \"$1\"", pipe, got});
  running_program program(command_of(data.train, data.test, {"--epochs", "2", "--batch-size", "8", "--metrics", pipe}));
  auto const run = within_a_minute(program);
  CHECK_MESSAGE(run.status == 0, run.output);
  CHECK(within_a_minute(reader).status == 0);
  CHECK(lines_of(got) == lines_of(file));
  CHECK_FALSE(contents(got).empty());
}

TEST_CASE("a reader of metrics that leaves its pipe ends the run, whose model is saved") {
  small_data const data;
  auto const pipe = data.folder.file("pipe"), checkpoints = data.folder.file("run");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  running_program reader({"/bin/sh", "-c", "exec 3< \"$0\"", pipe});
  running_program program(command_of(data.train, data.test, {"--batch-size", "8", "--metrics", pipe, "--checkpoint", checkpoints}));
  check_refused(within_a_minute(program), {"--metrics", pipe});
  CHECK(within_a_minute(reader).status == 0);
  REQUIRE(tessera::list_step_folders(checkpoints).size() == 1);
  CHECK(tessera::list_step_folders(checkpoints).back().step.value == 100);
}

TEST_CASE("metrics may lie in the folder of checkpoints, which a run that is refused does not leave behind") {
  small_data const data;
  auto const run = data.folder.file("new/run"), metrics = run + "/m.jsonl";
  auto const bad = data.folder.file("bad.tsv");
  write_file(bad, "no sample\n");
  check_refused(train_ctr(bad, data.test, {"--checkpoint", run, "--metrics", metrics}), {"line 1"});
  check_refused(data.run({"--checkpoint", run, "--metrics", metrics, "--resume"}), {"none in this folder"});
  check_refused(data.run({"--checkpoint", run, "--metrics", metrics, "--predict", data.folder.file("none/csv")}), {"--predict"});
  CHECK(left_by(data) == std::vector<std::string>{"bad.tsv"});
  for (arguments const& more : {arguments{"--epochs", "1"}, arguments{"--resume", "--epochs", "2"}}) {
    auto options = more;
    options.insert(options.end(), {"--checkpoint", run, "--metrics", metrics});
    auto const result = data.run(options);
    CHECK_MESSAGE(result.status == 0, result.output);
  }
  CHECK(names_in(run).front() == "m.jsonl");
}

TEST_CASE("lines of metrics with fields of other types are refused with file, line and field") {
  small_data const data;
  auto const checkpoints = data.folder.file("run"), metrics = data.folder.file("m.jsonl");
  REQUIRE(data.run({"--epochs", "1", "--checkpoint", checkpoints}).status == 0);
  std::string const good = "{\"event\":\"test\",\"step\":1,\"epoch\":0}\n";
  for (auto const& [line, field] :
       std::vector<std::pair<std::string, std::string>>{{"{\"event\":null,\"step\":1}", "event"},
                                                        {"{\"event\":[\"test\"],\"step\":1}", "event"},
                                                        {"{\"step\":1}", "event"},
                                                        {"{\"event\":\"test\",\"step\":\"1\"}", "step"},
                                                        {"{\"event\":\"test\",\"step\":{}}", "step"},
                                                        {"{\"event\":\"test\",\"step\":1,\"epoch\":\"x\"}", "epoch"},
                                                        {"{\"event\":\"test\",\"step\":1,\"epoch\":null}", "epoch"},
                                                        {"[1]", "step"},
                                                        {"7", "step"},
                                                        {"null", "step"}}) {
    std::string const text = good + line + "\n";  // clang 14 captures no structured binding
    CAPTURE(text);
    write_file(metrics, text);
    auto const result = data.run({"--resume", "--checkpoint", checkpoints, "--metrics", metrics});
    check_refused(result, {metrics + " line 2", "field " + field});
    CHECK_FALSE(result.says("json.exception"));
    CHECK(contents(metrics) == text);
  }
}

TEST_CASE("a run that fails for want of file handles leaves nothing half made") {
  // It looks at memory through a pipe before it reads a vptr, and takes the want of handles for a wrong object.
  if (TESSERA_TEST_ASAN) return tessera_tests::skip("the undefined behaviour sanitizer needs handles of its own");
  small_data const data;
  auto const checkpoints = data.folder.file("run"), csv = data.folder.file("out.csv");
  int failed = 0, succeeded = 0;
  for (int handles = 3; handles < 14; ++handles) {
    CAPTURE(handles);
    auto const run = run_program(
        {"/bin/sh", "-c", "ulimit -n \"$1\"; exec \"$0\" --train \"$2\" --test \"$3\" --epochs 1 --checkpoint \"$4\" --predict \"$5\"",
         TESSERA_TRAIN_CTR, std::to_string(handles), data.train, data.test, checkpoints, csv});
    (run.status == 0 ? succeeded : failed) += 1;
    for (auto const& name : left_by(data)) CHECK_FALSE(name.starts_with(".tessera-staging-"));
    if (!std::filesystem::exists(checkpoints)) continue;
    for (auto const& name : names_in(checkpoints)) CHECK_FALSE(name.starts_with(".tessera-staging-"));
    std::filesystem::remove_all(checkpoints);
  }
  CHECK(failed > 3);
  CHECK(succeeded > 0);
}

TEST_CASE("an output takes the place of no input and no other output") {
  small_data const data;
  auto const file = data.folder.file("file"), link = data.folder.file("link");
  auto const train = contents(data.train), test = contents(data.test);
  std::filesystem::create_symlink(data.test, link);
  for (std::string const option : {"--predict", "--metrics", "--report"}) {
    CAPTURE(option);
    check_refused(data.run({option, data.train}), {option, "other option --train", data.train});
    check_refused(data.run({option, data.folder.file("../") + data.test.substr(data.test.find_last_of('/', data.test.rfind('/') - 1) + 1)}),
                  {option, "other option --test"});
    check_refused(data.run({option, link}), {option, "other option --test", link});
  }
  check_refused(data.run({"--predict", file, "--report", file}), {"--report", "other option --predict", file});
  check_refused(data.run({"--metrics", file, "--report", data.folder.file("./file")}), {"--report", "other option --metrics"});
  CHECK(contents(data.train) == train);
  CHECK(contents(data.test) == test);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(data.run({"--epochs", "1", "--predict", "/dev/null", "--report", "/dev/null"}).status == 0);
}

TEST_CASE("a run that fails leaves the predictions of an earlier one as they were, and none of its own") {
  small_data const data;
  auto const old = data.folder.file("old.csv"), fresh = data.folder.file("fresh.csv");
  write_file(old, "of an earlier run\n");
  auto const link = data.folder.file("link.csv");
  std::filesystem::create_symlink(old, link);
  for (auto const& csv : {old, fresh, link}) {
    check_refused(data.run({"--lr", "1e30", "--predict", csv}), {"diverged"});
  }
  CHECK(contents(old) == "of an earlier run\n");
  CHECK_FALSE(std::filesystem::exists(fresh));
  REQUIRE(data.run({"--epochs", "1", "--predict", old}).status == 0);
  CHECK(contents(old).starts_with("sample,label,probability\n"));
  CHECK(left_by(data) == std::vector<std::string>{"link.csv", "old.csv"});
}

TEST_CASE("what cannot be written is an error, found before training where it can be") {
  small_data const data;
  auto const nowhere = data.folder.file("missing/file"), below_file = data.train + "/x";
  for (std::string const option : {"--predict", "--metrics", "--report"})
    for (auto const& path : {nowhere, data.folder.path()}) {
      CAPTURE(path);
      auto const result = data.run({"--epochs", "1", option, path});
      check_refused(result, {option, path});
      CHECK_FALSE(result.says("epoch 1"));
    }
  for (auto const& path : {data.train, below_file}) {
    auto const result = data.run({"--epochs", "1", "--checkpoint", path});
    check_refused(result, {path});
    CHECK_FALSE(result.says("epoch 1"));
  }
  if (!std::filesystem::exists("/dev/full")) return;
  check_refused(data.run({"--epochs", "1", "--predict", "/dev/full"}), {"--predict", "/dev/full"});
  check_refused(data.run({"--epochs", "1", "--metrics", "/dev/full"}), {"--metrics", "/dev/full"});
  check_refused(data.run({"--epochs", "1", "--report", "/dev/full"}), {"--report", "/dev/full"});
  check_refused(data.run({"--epochs", "1", "--checkpoint", "/dev/full"}), {"/dev/full"});
  check_refused(run_program({"/bin/sh", "-c", "exec \"$0\" --train \"$1\" --test \"$2\" --epochs 1 > /dev/full", TESSERA_TRAIN_CTR,
                             data.train, data.test}),
                {"standard output"});
}

#endif
