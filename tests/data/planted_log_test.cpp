// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/planted_log.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/data/criteo_tsv.hpp>

#include "click_support.hpp"

using namespace click_tests;

namespace {

tessera::planted_clicks_options one_id_bags() {
  tessera::planted_clicks_options options{{{.ids = 40}, {.ids = 100'000}, {.ids = 3}}};
  options.dense_features = 2;
  return options;
}

}  // namespace

TEST_CASE("criteo_writer: what it writes reads back the same, and in one spelling, whatever the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  temporary_folder folder;
  for (int const count : {0, 1, 511, 512, 513, 20'000}) {
    CAPTURE(count);
    log_shape shape;
    shape.rows = count;
    shape.odd_spellings = true;
    auto const text = random_log(random, shape);
    std::string first;
    for (int const threads : {1, 3}) {
      host h(threads);
      tessera::raw_rows rows, back;
      tessera::parse_criteo(h.exec, text, "log", rows);
      tessera::criteo_writer out(folder.path("back.tsv"));
      out.append(h.exec, rows.view());
      out.append(h.exec, rows.view());
      out.close();
      auto const written = tessera_tests::contents(folder.path("back.tsv"));
      tessera::parse_criteo(h.exec, written, "back", back);
      auto expected = samples_of(rows.view());
      auto const once = expected;
      expected.insert(expected.end(), once.begin(), once.end());
      CHECK(samples_of(back.view()) == expected);
      if (threads == 1) first = written;
      CHECK(written == first);
    }
  }
}

TEST_CASE("criteo_writer: extreme values, and what cannot be") {
  temporary_folder folder;
  host h;
  tessera::raw_rows rows;
  rows.resize(h.exec, 2);
  for (std::int64_t row = 0; row < 2; ++row) {
    rows.labels()[row] = static_cast<float>(row);
    for (std::int64_t i = 0; i < 13; ++i) rows.integers()(i, row) = row == 0 ? tessera::click_layout::missing_integer : -2147483647;
    for (std::int64_t c = 0; c < 26; ++c) rows.categories()(c, row) = row == 0 ? tessera::click_layout::missing_category : 0xffffffff;
  }
  tessera::criteo_writer out(folder.path("x.tsv"));
  out.append(h.exec, rows.view());
  out.close();
  std::string expected = "0" + std::string(39, '\t') + "\n1";
  for (int i = 0; i < 13; ++i) expected += "\t-2147483647";
  for (int c = 0; c < 26; ++c) expected += "\tffffffff";
  CHECK(tessera_tests::contents(folder.path("x.tsv")) == expected + "\n");

  rows.categories()(4, 1) = std::int64_t{1} << 32;
  tessera::criteo_writer other(folder.path("y.tsv"));
  auto const e = thrown_by([&] { other.append(h.exec, rows.view()); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("field") == "category 5");
  CHECK(thrown_by([&] { tessera::criteo_writer(folder.path("none/x.tsv")); }).code() == tessera::errc::io_error);
}

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
    tessera::raw_rows rows;
    tessera::parse_criteo(h.exec, text, path, rows);
    REQUIRE(rows.size() == n);
    REQUIRE(logits.size() == n);
    tessera::planted_samples samples;
    clicks.generate(h.exec, 7, n, samples);
    bool same = true;
    auto const batch = samples.view();
    for (std::int64_t i = 0; i < n; ++i) {
      same = same && rows.labels()[i] == batch.labels[i] && logits[static_cast<std::size_t>(i)] == samples.logits()[i];
      for (std::int64_t k = 0; k < 13; ++k)
        same = same && (k < 2 ? static_cast<float>(rows.integers()(k, i) * tessera::planted_clicks::dense_unit) == batch.dense(i, k)
                              : rows.integers()(k, i) == tessera::click_layout::missing_integer);
      for (std::int64_t f = 0; f < 26; ++f)
        same = same && rows.categories()(f, i) == (f < 3 ? batch.sparse.key(f).row(i)[0] : tessera::click_layout::missing_category);
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

TEST_CASE("to_raw_rows: what a log cannot hold is named") {
  host h;
  tessera::raw_rows rows;
  tessera::planted_samples samples;
  auto const refused = [&](tessera::planted_clicks_options const& options) {
    tessera::planted_clicks const clicks(h.exec, options);
    clicks.generate(h.exec, 0, 5, samples);
    return thrown_by([&] { tessera::to_raw_rows(h.exec, samples, rows); });
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
