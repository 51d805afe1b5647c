// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/synth/planted_log.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/delimited_text.hpp>

#include "../data/click_support.hpp"

using namespace click_tests;

namespace {

tessera::planted_clicks_options one_id_bags() {
  tessera::planted_clicks_options options{{{.ids = 40}, {.ids = 100'000}, {.ids = 3}}};
  options.dense_features = 2;
  return options;
}

}  // namespace

TEST_CASE("write_planted_log: the file holds the samples, on any number of threads, in memory for a part") {
  temporary_folder folder;
  std::string first_text;
  for (int const threads : {1, 2}) {
    host h(threads);
    tessera::planted_clicks const clicks(h.exec, one_id_bags());
    constexpr std::int64_t n = 40'000;
    std::vector<float> logits;
    auto const path = folder.path("planted.tsv");
    tessera::write_planted_log(h.exec, clicks, 7, n, path, [&](tessera::planted_samples const& samples) {
      logits.insert(logits.end(), samples.logits().begin(), samples.logits().end());
    });
    auto const text = tessera_tests::contents(path);
    if (threads == 1) first_text = text;
    CHECK(text == first_text);
    tessera::sample_columns rows;
    tessera::parse_delimited(h.exec, text, path, tessera::criteo_schema(), tessera::criteo_layout(), rows);
    REQUIRE(rows.size() == n);
    REQUIRE(logits.size() == n);
    tessera::planted_samples samples;
    clicks.generate(h.exec, 7, n, samples);
    bool same = true;
    auto const batch = samples.view();
    for (std::int64_t i = 0; i < n; ++i) {
      same = same && rows.labels()[i] == batch.labels[i] && logits[static_cast<std::size_t>(i)] == samples.logits()[i];
      for (std::int64_t k = 0; k < 13; ++k)
        same = same &&
               (k < 2 ? static_cast<float>(static_cast<int>(rows.dense()(k, i)) * tessera::planted_clicks::dense_unit) == batch.dense(i, k)
                      : std::isnan(rows.dense()(k, i)));
      for (std::int64_t f = 0; f < 26; ++f)
        same = same && rows.single_ids(f)[i] == (f < 3 ? batch.sparse.key(f).row(i)[0] : tessera::missing_id);
    }
    CHECK(same);
  }
}

TEST_CASE("write_planted_log: samples that cannot be") {
  temporary_folder folder;
  host h(1);
  tessera::planted_clicks const clicks(h.exec, one_id_bags());
  auto const refused = [&](std::int64_t first, std::int64_t count) {
    return tessera_tests::error_of(
        [&] { tessera::write_planted_log(h.exec, clicks, first, count, folder.path("log"), [](auto const&) {}); });
  };
  CHECK(refused(0, -1).code() == tessera::errc::invalid_argument);
  CHECK(refused(0, -1).value("count") == "-1");
  CHECK(refused(-1, 5).value("first") == "-1");
}

TEST_CASE("to_criteo_columns: what a log cannot hold is named") {
  host h;
  tessera::sample_columns rows;
  tessera::planted_samples samples;
  auto const refused = [&](tessera::planted_clicks_options const& options) {
    tessera::planted_clicks const clicks(h.exec, options);
    clicks.generate(h.exec, 0, 5, samples);
    return thrown_by([&] { tessera::to_criteo_columns(h.exec, samples, rows); });
  };
  auto options = one_id_bags();
  options.dense_features = 14;
  CHECK(refused(options).value("dense features") == "14");
  options = one_id_bags();
  options.features.resize(27);
  CHECK(refused(options).value("sparse features") == "27");
  options = one_id_bags();
  options.features[1].shortest_bag = options.features[1].longest_bag = 2;
  CHECK(refused(options).value("feature") == "1");
  CHECK(refused(options).value("ids") == "2");
  options = one_id_bags();
  options.features[2] = {.ids = std::int64_t{1} << 48, .exponent = 0};
  CHECK(refused(options).value("feature") == "2");
}
