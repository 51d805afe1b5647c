// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/files/atomic_folder.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/files/step_folders.hpp>

#include "temporary_folder.hpp"

using tessera::errc;
using tessera::staged_folder;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::names_in;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

namespace {

// What a trainer's checkpoint is: sections and a manifest.
void write_checkpoint(std::string const& parent, std::string const& name, std::int64_t step) {
  staged_folder folder(parent, name);
  tessera::manifest content{"test", 1, {}, {{"step", step}}};
  for (std::string const file : {"a.safetensors", "b.safetensors"}) {
    tessera::safetensors_writer writer(folder.path() + "/" + file, {{"w", tessera::safetensors_dtype::i64, {2000}}});
    std::vector<std::int64_t> const values(500, step);
    for (int piece = 0; piece < 4; ++piece) writer.append("w", tessera::vector_view(values));
    content.sections.push_back({file, writer.finish()});
  }
  tessera::write_manifest(folder.path(), content);
  folder.commit();
}

std::int64_t read_checkpoint(std::string const& path) {
  auto const content = tessera::read_manifest(path, "test", 1);
  tessera::verify_sections(path, content);
  auto const step = tessera::json_integer(content.state, "step", path);
  std::vector<std::int64_t> values(2000);
  tessera::safetensors_reader(path + "/b.safetensors").read("w", 0, tessera::vector_view(values));
  CHECK(values == std::vector<std::int64_t>(2000, step));
  return step;
}

// Runs `work` in a process of its own and kills it after `microseconds`, or lets it kill itself.
template <class F>
void run_and_kill(F const& work, ::useconds_t microseconds) {
  auto const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      work();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  if (microseconds > 0) {
    ::usleep(microseconds);
    ::kill(child, SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

}  // namespace

TEST_CASE("staged_folder appears whole, under its name, with the commit") {
  temporary_folder const parent;
  staged_folder folder(parent.path(), "model");
  CHECK(folder.target() == parent.file("model"));
  write_file(folder.path() + "/a", "1");
  std::filesystem::create_directories(folder.path() + "/sub/sub");
  write_file(folder.path() + "/sub/sub/b", "2");
  std::filesystem::create_symlink("nowhere", folder.path() + "/link");
  CHECK(!std::filesystem::exists(parent.file("model")));
  folder.commit();
  CHECK(names_in(parent.path()) == std::vector<std::string>{"model"});
  CHECK(contents(parent.file("model/a")) == "1");
  CHECK(contents(parent.file("model/sub/sub/b")) == "2");
}

TEST_CASE("staged_folder makes the folders above it") {
  temporary_folder const parent;
  for (std::string const path : {"x/y/z", "p/q/", "p//r", "p/./s"}) {
    staged_folder folder(parent.file(path), "model");
    folder.commit();
    CHECK(std::filesystem::is_directory(parent.file(path) + "/model"));
  }
  std::filesystem::create_directory_symlink("x", parent.path() + "/link");
  staged_folder folder(parent.file("link"), "model");
  folder.commit();
  CHECK(std::filesystem::is_directory(parent.file("x/model")));
}

TEST_CASE("staged_folder leaves nothing without a commit") {
  temporary_folder const parent;
  {
    staged_folder folder(parent.path(), "model");
    write_file(folder.path() + "/a", "1");
    staged_folder const moved(std::move(folder));
    CHECK(contents(moved.path() + "/a") == "1");
  }
  CHECK(names_in(parent.path()).empty());
}

TEST_CASE("staged_folder replaces a folder of its name in one step") {
  temporary_folder const parent;
  for (int round = 0; round < 3; ++round) {
    staged_folder folder(parent.path(), "model");
    write_file(folder.path() + "/round" + std::to_string(round), "");
    folder.commit();
    CHECK(names_in(parent.path()) == std::vector<std::string>{"model"});
    CHECK(names_in(parent.file("model")) == std::vector<std::string>{"round" + std::to_string(round)});
  }
}

TEST_CASE("staged_folder refuses names and places that are none") {
  temporary_folder const parent;
  for (std::string const& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\0b", 3),
                                  std::string(".tessera-staging-new-x.0")})
    CHECK(error_of([&] { staged_folder(parent.path(), name); }).code() == errc::invalid_argument);
  write_file(parent.file("file"), "x");
  for (std::string const path : {"file", "file/below"}) {
    auto const e = error_of([&] { staged_folder(parent.file(path), "model"); });
    CHECK(e.code() == errc::io_error);
    CHECK(e.value("reason") == "Not a directory");
  }
  staged_folder folder(parent.path(), "file");
  CHECK(error_of([&] { folder.commit(); }).code() == errc::io_error);
  CHECK(contents(parent.file("file")) == "x");
}

TEST_CASE("staged_folder removes what the dead left, not what the living hold") {
  temporary_folder const parent;
  std::filesystem::create_directories(parent.file(".tessera-staging-new-model.0/sub"));
  write_file(parent.file(".tessera-staging-new-model.0/sub/a"), "1");
  std::filesystem::create_directories(parent.file(".tessera-staging-removed-old.7"));
  std::filesystem::create_directories(parent.file(".tessera"));
  write_file(parent.file(".tessera-staging-file"), "not a folder");
  std::filesystem::create_directory_symlink(".tessera", parent.file(".tessera-staging-link"));

  staged_folder first(parent.path(), "model");
  write_file(first.path() + "/a", "first");
  staged_folder second(parent.path(), "model");
  write_file(second.path() + "/a", "second");
  CHECK(first.path() != second.path());
  CHECK(names_in(parent.path()).size() == 5);  // both, and the three that are not ours

  auto const child = ::fork();  // another process sees the locks too
  REQUIRE(child >= 0);
  if (child == 0) {
    { staged_folder const third(parent.path(), "model"); }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  first.commit();
  CHECK(contents(parent.file("model/a")) == "first");
  second.commit();
  CHECK(contents(parent.file("model/a")) == "second");
}

TEST_CASE("remove_folder removes one folder") {
  temporary_folder const parent;
  std::filesystem::create_directories(parent.file("a/b"));
  std::filesystem::create_directories(parent.file("keep"));
  std::filesystem::create_directories(parent.file(".tessera-staging-removed-a.0/in-the-way"));
  tessera::remove_folder(parent.path(), "a");
  CHECK(names_in(parent.path()) == std::vector<std::string>{".tessera-staging-removed-a.0", "keep"});
  CHECK(error_of([&] { tessera::remove_folder(parent.path(), "a"); }).code() == errc::io_error);
  CHECK(error_of([&] { tessera::remove_folder(parent.path(), ".."); }).code() == errc::invalid_argument);
}

TEST_CASE("a process killed while it stages leaves the folder before it, and its remains go with the next") {
  temporary_folder const parent;
  write_checkpoint(parent.path(), "model", 1);
  run_and_kill(
      [&] {
        staged_folder const folder(parent.path(), "model");
        write_file(folder.path() + "/a.safetensors", "half");
        ::raise(SIGKILL);
      },
      0);
  CHECK(names_in(parent.path()).size() == 2);
  CHECK(read_checkpoint(parent.file("model")) == 1);
  write_checkpoint(parent.path(), "model", 2);
  CHECK(names_in(parent.path()) == std::vector<std::string>{"model"});
  CHECK(read_checkpoint(parent.file("model")) == 2);
}

TEST_CASE("a process killed at any time leaves only folders that load") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  temporary_folder const parent;
  // Within the time of a few checkpoints; where the machine slows down after it was taken, there are more rounds, of longer ones.
  auto const start = std::chrono::steady_clock::now();
  write_checkpoint(parent.path(), "model", 0);
  auto const one = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  auto const any_time = [&](int round) {
    return std::uniform_int_distribution<::useconds_t>(
        1, static_cast<::useconds_t>(4 * one + 100) * static_cast<::useconds_t>(1 + round / 30))(random);
  };
  SUBCASE("one name, replaced again and again") {
    std::int64_t newest = 0;
    for (int round = 0; round < 30 || newest == 0; ++round) {
      run_and_kill(
          [&] {
            for (auto step = newest + 1;; ++step) write_checkpoint(parent.path(), "model", step);
          },
          any_time(round));
      auto const found = read_checkpoint(parent.file("model"));
      CHECK(found >= newest);
      newest = found;
    }
  }
  SUBCASE("a folder a step, the old ones removed") {
    write_checkpoint(parent.path(), "step-000000000000", 0);
    std::int64_t newest = 0;
    for (int round = 0; round < 30 || newest == 0; ++round) {
      run_and_kill(
          [&] {
            for (auto step = newest + 1;; ++step) {
              tessera::step_count const now(step);
              write_checkpoint(parent.path(), tessera::step_folder_name(now), step);
              tessera::prune_step_folders(parent.path(), now, 2);
            }
          },
          any_time(round));
      auto const found = tessera::list_step_folders(parent.path());
      REQUIRE(!found.empty());
      for (auto const& f : found) CHECK(read_checkpoint(f.path) == f.step.value);
      CHECK(found.back().step.value >= newest);
      newest = found.back().step.value;
    }
    tessera::prune_step_folders(parent.path(), tessera::step_count(newest), 2);
    CHECK(tessera::list_step_folders(parent.path()).size() == 2);
  }
  { staged_folder const folder(parent.path(), "model"); }
  for (auto const& name : names_in(parent.path())) CHECK(!name.starts_with(".tessera-staging-"));
}
