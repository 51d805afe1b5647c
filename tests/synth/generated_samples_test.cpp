// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include <tessera/synth/generated_samples.hpp>
#include <tessera/synth/session_sets.hpp>

#include "../data/sample_source_suite.hpp"
#include "hosts.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using sample_tests::sample;
using tessera_tests::error_of;

planted_clicks_options bags() {
  planted_clicks_options options{{{.ids = 50, .shortest_bag = 0, .longest_bag = 4, .more = 0.5}, {.ids = 7}}};
  options.dense_features = 3;
  return options;
}

}  // namespace

TEST_CASE("generated_clicks: the samples that the generator makes at once, block by block") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  planted_samples all;
  planted_clicks(exec, bags()).generate(exec, 30, 100, all);
  auto const batch = all.view();
  std::vector<sample> expected;
  for (std::int64_t i = 0; i < 100; ++i) {
    auto& s = expected.emplace_back();
    s.label = std::bit_cast<std::uint32_t>(batch.labels[i]);
    for (std::int64_t k = 0; k < 3; ++k) s.dense.push_back(std::bit_cast<std::uint32_t>(batch.dense(i, k)));
    for (std::int64_t f = 0; f < 2; ++f) s.sparse.emplace_back(batch.sparse.key(f).row(i).begin(), batch.sparse.key(f).row(i).end());
  }
  generated_clicks const log(planted_clicks(exec, bags()), {.first = 30, .samples = 100, .block_rows = 17});
  CHECK(log.schema() ==
        sample_schema{
            .label = "label", .dense = {"dense_0", "dense_1", "dense_2"}, .sparse = {"feature_0", "feature_1"}, .single = {"feature_1"}});
  sample_tests::check_sample_source(log, expected);

  sample_columns out;
  CHECK(error_of([&] { log.read(exec, 6, out); }).value("block") == "6");
  CHECK(error_of([&] { generated_clicks(planted_clicks(exec, bags()), {.block_rows = 0}); }).value("block_rows") == "0");
  CHECK(error_of([&] { generated_clicks(planted_clicks(exec, bags()), {.first = -1}); }).value("first") == "-1");
}

TEST_CASE("generated_sessions: the log that the generator makes in order, a window a block") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto options = scaled_down(rm2_sessions(), 40);
  options.window_sessions = 4;
  options.windows = 3;
  session_clicks clicks(exec, options);
  sample_columns all(clicks.schema());
  clicks.next(exec, 1 << 20, all);
  REQUIRE(all.size() > 20);
  generated_sessions const log(exec, options);
  CHECK(log.block_count() == 3);
  sample_tests::check_sample_source(log, sample_tests::samples_of(all.view()));

  sample_columns out;
  CHECK(error_of([&] { log.read(exec, -1, out); }).value("block") == "-1");
  options.windows = 0;
  CHECK(error_of([&] { generated_sessions(exec, options); }).value("windows") == "0");
}
