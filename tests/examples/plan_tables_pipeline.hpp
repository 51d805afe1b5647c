// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "run_program.hpp"
#include "temporary_folder.hpp"

namespace plan_tables_test {

using tessera_tests::contents;
using tessera_tests::program_result;
using tessera_tests::write_file;

inline program_result run(std::vector<std::string> const& more) {
  std::vector<std::string> all{TESSERA_PLAN_TABLES};
  all.insert(all.end(), more.begin(), more.end());
  return tessera_tests::run_program(std::move(all));
}
inline void succeeds(std::vector<std::string> const& more, std::vector<std::string> const& parts = {}) {
  auto const result = run(more);
  CAPTURE(result.output);
  REQUIRE(result.status == 0);
  for (auto const& part : parts) {
    CAPTURE(part);
    CHECK(result.says(part));
  }
}
inline void refused(std::vector<std::string> const& more, std::vector<std::string> const& parts, bool by_options = false) {
  auto const result = run(more);
  CAPTURE(result.output);
  CHECK(result.status > 0);
  CHECK((result.status == 1) == !by_options);
  if (!by_options) CHECK(result.output.find('\n') + 1 == result.output.size());  // one line
  for (auto const& part : parts) {
    CAPTURE(part);
    CHECK(result.says(part));
  }
}

inline std::vector<std::string> with(std::vector<std::string> some, std::vector<std::string> const& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

// A log, the profiles of its tables, what was collected of them, and models of all that: made once for all cases.
struct pipeline {
  tessera_tests::temporary_folder folder;
  std::string tables = folder.file("tables.json"), tasks = folder.file("tasks"), samples = folder.file("samples"),
              learned = folder.file("models/here"), published = folder.file("models/published");
  std::vector<std::string> const collecting{"collect",   samples, "--ranks",   "threads:2", "--samples",     "10",  "--exchanges",    "10",
                                            "--warm-up", "0",     "--runs",    "1",         "--most-placed", "6",   "--least-placed", "2",
                                            "--dims",    "4,8",   "--batches", "24",        "--limit-bytes", "1MB", "--most-skew-ms", "0.1",
                                            "--threads", "1"};

  pipeline() {
    std::string log = "label,user,shop,item,tags\n";
    for (int s = 0; s < 64; ++s) {
      auto const user = std::to_string(s / 8);
      log += std::to_string(s % 2) + ",u" + user + ",s" + std::to_string(s % 5) + ",i" + std::to_string(s % 40) + ",t" + user + "|v" +
             user + "\n";
    }
    write_file(folder.file("log.csv"), log);
    succeeds({"profile", folder.file("log.csv"), "--label-column", "label", "--sparse-columns", "user,shop,item,tags[]", "--dedup",
              "user+tags", "--dim-of", "item=32", "--out", tables, "--threads", "1"},
             {"distinct bags", "item", "tags"});
    succeeds(with(collecting, {"--pool", tables}), {"steps: 10 of 10", "exchanges: 10 of 10"});
    succeeds(
        {"fit", samples, "--out", learned, "--published", published, "--epochs", "3", "--starts", "2", "--batch", "4", "--threads", "1"},
        {"held out", "units dead", "published steps", "forward of 2", "learned costs in"});
  }

  std::vector<std::string> search(std::vector<std::string> const& more) const {
    return with({"search", tables, "--devices", "2", "--threads", "1", "--evaluations", "200"}, more);
  }
};

inline pipeline const& made() {
  static pipeline const one;
  return one;
}

inline std::vector<std::string> lines_of(std::string const& path) {
  std::vector<std::string> lines;
  std::istringstream text(contents(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace plan_tables_test
