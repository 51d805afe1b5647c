// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <tessera/files/step_folders.hpp>

#include "run_program.hpp"
#include "temporary_folder.hpp"

namespace tessera_tests {

using arguments = std::vector<std::string>;

inline std::string const train_tsv = TESSERA_TEST_DATA_DIR "/adult/train.tsv";
inline std::string const test_tsv = TESSERA_TEST_DATA_DIR "/adult/test.tsv";

inline arguments command_of(std::string const& train, std::string const& test, arguments const& more) {
  arguments all{TESSERA_TRAIN_CTR, "--train", train, "--test", test};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
inline program_result train_ctr(std::string const& train, std::string const& test, arguments const& more = {}) {
  return run_program(command_of(train, test, more));
}

/// The first lines of a file.
inline std::string head(std::string const& path, int lines) {
  std::ifstream file(path);
  std::string text;
  for (std::string line; lines > 0 && std::getline(file, line); --lines) text += line + '\n';
  return text;
}

/// A folder with 1000 samples to train on and 300 to test with.
struct small_data {
  temporary_folder folder;
  std::string train = folder.file("train.tsv"), test = folder.file("test.tsv");

  small_data() {
    write_file(train, head(train_tsv, 1000));
    write_file(test, head(test_tsv, 300));
  }
  program_result run(arguments const& more = {}) const { return train_ctr(train, test, more); }
};

/// A figure of the last line.
inline double figure(program_result const& result, std::string const& name) {
  auto const line = result.last_line();
  auto const at = line.find(name + "=");
  REQUIRE_MESSAGE(at != std::string::npos, result.output);
  return std::stod(line.substr(at + name.size() + 1));
}

/// The last line without the speed.
inline std::string figures(program_result const& result) {
  auto const line = result.last_line();
  return line.substr(0, line.find(" samples_per_second="));
}

/// The tensors of the newest checkpoint, as bytes.
inline std::string tensors_of(std::string const& checkpoints) {
  auto const steps = tessera::list_step_folders(checkpoints);
  REQUIRE(!steps.empty());
  auto const& folder = steps.back().path;
  auto all = contents(folder + "/dense.safetensors") + contents(folder + "/tables.safetensors");
  if (auto const file = folder + "/preprocessing.safetensors"; std::filesystem::exists(file)) all += contents(file);
  return all;
}

inline void check_refused(program_result const& result, std::vector<std::string> const& parts) {
  CAPTURE(result.output);
  CHECK(result.status > 0);
  CHECK(result.output.size() < 2000);
  for (auto const& part : parts) {
    CAPTURE(part);
    CHECK(result.says(part));
  }
}

}  // namespace tessera_tests
