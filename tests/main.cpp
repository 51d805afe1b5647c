// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "skip.hpp"

namespace {

constexpr int exit_no_case = 3;
constexpr int exit_skipped = 77;

struct {
  unsigned cases = 0;
  unsigned skipped_cases = 0;
  std::atomic<bool> skipped = false;
} tally;

struct tally_listener : doctest::IReporter {
  explicit tally_listener(doctest::ContextOptions const&) {}

  void test_case_start(doctest::TestCaseData const&) override {
    ++tally.cases;
    tally.skipped = false;
  }
  void test_case_end(doctest::CurrentTestCaseStats const&) override { tally.skipped_cases += tally.skipped ? 1U : 0U; }

  void test_case_reenter(doctest::TestCaseData const&) override {}
  void report_query(doctest::QueryData const&) override {}
  void test_run_start() override {}
  void test_run_end(doctest::TestRunStats const&) override {}
  void test_case_exception(doctest::TestCaseException const&) override {}
  void subcase_start(doctest::SubcaseSignature const&) override {}
  void subcase_end() override {}
  void log_assert(doctest::AssertData const&) override {}
  void log_message(doctest::MessageData const&) override {}
  void test_case_skipped(doctest::TestCaseData const&) override {}
};
DOCTEST_REGISTER_LISTENER("tally", 0, tally_listener);

}  // namespace

void tessera_tests::skip(std::string const& reason) {
  tally.skipped = true;
  std::printf("skipped: %s\n", reason.c_str());
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int const status = context.run();
  if (context.shouldExit() || status != 0) return status;
  if (tally.cases == 0) {
    // A filter that matches nothing must not look like success.
    std::puts("no test case matched");
    return exit_no_case;
  }
  if (tally.skipped_cases == 0) return 0;
  std::printf("skipped %u of %u test cases\n", tally.skipped_cases, tally.cases);
  return tally.skipped_cases == tally.cases ? exit_skipped : 0;
}
