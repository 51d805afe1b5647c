// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "../support/skip.hpp"

#ifndef TESSERA_TRAIN_CTR

TEST_CASE("train_ctr goes on from a checkpoint") { tessera_tests::skip("the examples are not built"); }

#else

#include <filesystem>
#include <string>
#include <vector>

#include <tessera/files/manifest.hpp>
#include <tessera/files/step_folders.hpp>

#include "train_ctr_support.hpp"

namespace {

using namespace tessera_tests;

// Two epochs of twenty steps, with a checkpoint behind steps 30 and 40.
struct forty_steps {
  small_data data;
  std::string whole = data.folder.file("whole");

  forty_steps() { REQUIRE(start(whole, {"--checkpoint-every", "10"}).status == 0); }
  program_result start(std::string const& checkpoints, arguments more) const {
    more.insert(more.end(), {"--epochs", "2", "--batch-size", "50", "--threads", "2", "--checkpoint", checkpoints});
    return data.run(more);
  }
  program_result resume(std::string const& checkpoints, arguments more = {}) const {
    more.insert(more.end(), {"--resume", "--threads", "1", "--checkpoint", checkpoints});
    auto result = data.run(more);
    CHECK_MESSAGE(result.status == 0, result.output);
    return result;
  }
  std::string copy(char const* name) const {
    auto const to = data.folder.file(name);
    std::filesystem::copy(whole, to, std::filesystem::copy_options::recursive);
    return to;
  }
};

std::string manifest_of(std::string const& checkpoints) {
  return contents(tessera::list_step_folders(checkpoints).back().path + "/manifest.json");
}

}  // namespace

TEST_CASE("a position has one spelling: a resumed run's last manifest has the bytes of one that ran through") {
  forty_steps const run;
  auto const expected = manifest_of(run.whole);

  auto const at_its_end = run.copy("killed behind its last checkpoint");
  run.resume(at_its_end);
  CHECK(manifest_of(at_its_end) == expected);

  auto const before = run.copy("killed before");
  std::filesystem::remove_all(tessera::list_step_folders(before).back().path);
  SUBCASE("with checkpoints on the way") { run.resume(before, {"--checkpoint-every", "5"}); }
  SUBCASE("with one at the end") { run.resume(before); }
  CHECK(manifest_of(before) == expected);
  CHECK(tensors_of(before) == tensors_of(run.whole));

  auto const at_the_end_alone = run.data.folder.file("a checkpoint at the end alone");
  REQUIRE(run.start(at_the_end_alone, {}).status == 0);
  CHECK(manifest_of(at_the_end_alone) == expected);
}

TEST_CASE("the other spelling of a position, of older checkpoints, goes on from the same place") {
  forty_steps const run;
  auto const fresh = run.copy("fresh"), old = run.copy("old");
  auto const folder = tessera::list_step_folders(old).back().path;
  auto manifest = tessera::read_manifest(folder, "tessera.checkpoint", 3);
  auto& position = manifest.state.at("position");
  CHECK(position.at("epoch") == 1);
  CHECK(position.at("block") == 1);
  position["epoch"] = 2;
  position["block"] = 0;
  tessera::write_manifest(folder, manifest);
  CHECK(run.resume(old).says("nothing to train"));
  CHECK(figures(run.resume(old, {"--epochs", "3"})) == figures(run.resume(fresh, {"--epochs", "3"})));
  CHECK(tensors_of(old) == tensors_of(fresh));
  CHECK(manifest_of(old) == manifest_of(fresh));
}

TEST_CASE("a run that goes on says what it does otherwise than before, and that there is nothing to do") {
  forty_steps const run;
  auto const checkpoints = run.copy("checkpoints"), metrics = run.data.folder.file("metrics");
  auto const as_before = run.resume(checkpoints, {"--lr", "0.003", "--batch-size", "50"});
  CHECK_FALSE(as_before.says("instead of"));
  CHECK(as_before.says("nothing to train: the checkpoint has 2 epochs behind it, and --epochs is 2\n"));
  CHECK(run.resume(checkpoints, {"--epochs", "1", "--metrics", metrics})
            .says("nothing to train: the checkpoint has 2 epochs behind it, and --epochs is 1\n"));
  CHECK(run.resume(checkpoints, {"--epochs", "1"}).says("--epochs: 1 instead of the checkpoint's 2\n"));
  auto const other = run.resume(checkpoints, {"--lr", "0.01", "--lr-schedule", "linear", "--decay-steps", "100", "--epochs", "3"});
  for (char const* line :
       {"--lr: 0.01 instead of the checkpoint's 0.003\n", "--epochs: 3 instead of the checkpoint's 2\n",
        "--lr-schedule: linear instead of the checkpoint's constant\n", "--decay-steps: 100 instead of the checkpoint's 0\n"})
    CHECK_MESSAGE(other.says(line), other.output);
  CHECK_FALSE(other.says("--embedding-lr"));
  CHECK_FALSE(other.says("nothing to train"));
}

TEST_CASE("metrics of a run that has nothing to train stay as they were") {
  small_data const data;
  auto const metrics = data.folder.file("metrics"), checkpoints = data.folder.file("checkpoints");
  REQUIRE(data.run({"--epochs", "2", "--metrics", metrics, "--checkpoint", checkpoints}).status == 0);
  auto const before = contents(metrics);
  REQUIRE(data.run({"--resume", "--epochs", "1", "--metrics", metrics, "--checkpoint", checkpoints}).status == 0);
  CHECK(contents(metrics) == before);
}

#endif
