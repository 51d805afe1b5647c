// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "temporary_folder.hpp"

using tessera::step_count;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;

namespace {

std::vector<std::int64_t> steps_in(std::string const& parent) {
  std::vector<std::int64_t> steps;
  for (auto const& f : tessera::list_step_folders(parent)) {
    CHECK(f.path == parent + "/" + tessera::step_folder_name(f.step));
    steps.push_back(f.step.value);
  }
  return steps;
}

}  // namespace

TEST_CASE("step_folder_name has at least twelve digits") {
  CHECK(tessera::step_folder_name(step_count(0)) == "step-000000000000");
  CHECK(tessera::step_folder_name(step_count(123)) == "step-000000000123");
  CHECK(tessera::step_folder_name(step_count(1234567890123)) == "step-1234567890123");
  for (std::int64_t const step : {0LL, 123LL, 1234567890123LL})
    CHECK(tessera::step_of_folder_name(tessera::step_folder_name(step_count(step))) == step_count(step));
  for (auto const* const name : {"", "step-", "step-7", "step--00000000001", "step-0000000000001", "step-00000000000x", "manifest.json"})
    CHECK_FALSE(tessera::step_of_folder_name(name).has_value());
}

TEST_CASE("list_step_folders lists committed folders by step, and nothing else") {
  temporary_folder const parent;
  CHECK(steps_in(parent.path()).empty());
  CHECK(steps_in(parent.file("missing")).empty());
  for (auto const* const name : {"step-000000000020", "step-000000000003", "step-1000000000000", "step-000000000000", "step-7", "step-",
                                 "step-00000000000x", "step-0000000000001", "step--00000000001", "step-99999999999999999999",
                                 "xstep-000000000001", ".tessera-staging-new-step-000000000009.0"})
    std::filesystem::create_directory(parent.file(name));
  tessera_tests::write_file(parent.file("step-000000000005"), "a file");
  CHECK(steps_in(parent.path()) == std::vector<std::int64_t>{0, 3, 20, 1000000000000});
  auto const e = error_of([&] { tessera::list_step_folders(parent.file("step-000000000005")); });
  CHECK(e.code() == tessera::errc::io_error);
  CHECK(e.value("file") == parent.file("step-000000000005"));
}

TEST_CASE("prune_step_folders keeps the newest up to the given step, and all later ones") {
  temporary_folder const parent;
  for (std::int64_t step = 1; step <= 6; ++step)
    std::filesystem::create_directories(parent.file(tessera::step_folder_name(step_count(step)) + "/sub"));
  tessera::prune_step_folders(parent.path(), step_count(5), 4);
  CHECK(steps_in(parent.path()) == std::vector<std::int64_t>{2, 3, 4, 5, 6});
  tessera::prune_step_folders(parent.path(), step_count(4), 1);
  CHECK(steps_in(parent.path()) == std::vector<std::int64_t>{4, 5, 6});
  tessera::prune_step_folders(parent.path(), step_count(3), 1);
  tessera::prune_step_folders(parent.path(), step_count(6), 100);
  CHECK(steps_in(parent.path()) == std::vector<std::int64_t>{4, 5, 6});
  CHECK(error_of([&] { tessera::prune_step_folders(parent.path(), step_count(6), 0); }).code() == tessera::errc::invalid_argument);
  tessera::prune_step_folders(parent.file("missing"), step_count(6), 1);
}
