// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/checked_samples.hpp>
#include <tessera/data/memory_log.hpp>

#include "../support/temporary_folder.hpp"
#include "sample_source_suite.hpp"
#include "sample_support.hpp"

using namespace sample_tests;

namespace checked_samples_test {

namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// As a source of several files.
struct filed_log : tessera::memory_log {
  using memory_log::memory_log;
  std::string file_of(std::int64_t block) const { return "file " + std::to_string(block / 2); }
};

}  // namespace

TEST_CASE("checked_samples: what can be learned from is as in the source, what cannot is refused by name") {
  plain_host h;
  std::mt19937_64 random(5);
  table_shape const shape{.rows = 100, .sparse = 2, .other_labels = 1, .weights = true};
  auto samples = random_samples(random, shape);
  for (auto& s : samples) {
    s.label = bits(static_cast<float>(random() % 2));
    for (auto& number : s.dense)
      number = bits(random() % 10 == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(random() % 1000) - 500);
  }
  auto const log_of = [&]<class Log>(std::vector<sample> const& some, std::in_place_type_t<Log>) {
    tessera::sample_columns columns;
    fill(h.exec, schema_of(shape), some, columns);
    return tessera::checked_samples(Log(schema_of(shape), std::move(columns), 30));
  };
  auto const sound = log_of(samples, std::in_place_type<tessera::memory_log>);
  check_sample_source(sound, samples);
  CHECK(sound.rows() == 100);
  CHECK(sound.schema() == schema_of(shape));
  CHECK(sound.source().block_count() == 4);

  auto const refusal = [&](auto const& change, auto kind) {
    auto others = samples;
    change(others);
    auto const log = log_of(others, kind);
    tessera::sample_columns block;
    for (std::int64_t b = 0; b < 3; ++b) log.read(h.exec, b, block);
    return std::string(tessera_tests::error_of([&] { log.read(h.exec, 3, block); }).what());
  };
  constexpr std::in_place_type_t<tessera::memory_log> plain;
  CHECK(refusal([](auto& all) { all[97].label = bits(2); }, plain) == "a label is neither 0 nor 1 (column label, sample 97, found 2)");
  CHECK(refusal([](auto& all) { all[90].label = bits(std::numeric_limits<float>::quiet_NaN()); }, plain).find("sample 90") !=
        std::string::npos);
  CHECK(refusal([](auto& all) { all[91].other_labels[0] = bits(std::numeric_limits<float>::infinity()); }, plain) ==
        "a label that is not finite (column l0, sample 91, found inf)");
  CHECK(refusal([](auto& all) { all[99].dense[1] = bits(std::numeric_limits<float>::infinity()); }, plain) ==
        "a number that is not finite (column d1, sample 99, found inf)");
  CHECK(refusal([](auto& all) { all[99].dense[2] = bits(-std::numeric_limits<float>::infinity()); }, std::in_place_type<filed_log>) ==
        "a number that is not finite (file file 1, column d2, sample 99, found -inf)");
  CHECK(refusal([](auto& all) { all[95].weight = bits(-0.5F); }, plain) ==
        "a weight is neither 0 nor a positive number (column weight, sample 95, found -0.5)");
  for (float const wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    CHECK(refusal([=](auto& all) { all[98].weight = bits(wrong); }, plain).find("column weight, sample 98") != std::string::npos);
}

}  // namespace checked_samples_test
