// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/picked_samples.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"
#include "session_source.hpp"

using namespace sample_tests;
using tessera::batch_class;
using tessera_tests::error_of;

namespace picked_samples_test {

TEST_CASE("sample_classes: bits are counted over any range, and go out and in again") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (std::int64_t const n : {0, 1, 63, 64, 65, 300}) {
    CAPTURE(n);
    tessera::sample_classes classes(n, 3, 4);
    std::vector<bool> expected(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      if (random() % 2 == 0) {
        classes.set_hot(i);
        expected[static_cast<std::size_t>(i)] = true;
      }
    for (int round = 0; round < 50; ++round) {
      auto const first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n + 1));
      auto const count = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n - first + 1));
      std::int64_t hot = 0;
      for (auto i = first; i < first + count; ++i) {
        CHECK(classes.is_hot(i) == expected[static_cast<std::size_t>(i)]);
        hot += expected[static_cast<std::size_t>(i)] ? 1 : 0;
      }
      CHECK(classes.hot(first, count) == hot);
    }
    auto const words = classes.words();
    CHECK(tessera::sample_classes::from_words(n, {words.begin(), words.end()}, 3, 4) == classes);
  }
  CHECK(error_of([] { tessera::sample_classes(-1); }).code() == tessera::errc::invalid_argument);
  CHECK(error_of([] { tessera::sample_classes::from_words(64, {}, 0, 0); }).code() == tessera::errc::shape_mismatch);
  CHECK(error_of([] { tessera::sample_classes::from_words(3, {8}, 0, 0); }).code() == tessera::errc::corrupt_file);
}

TEST_CASE("picked_samples: one class alone, fingerprints, and classes of other data") {
  std::mt19937_64 random(1);
  table_shape const shape{.rows = 30};
  sample_list log(schema_of(shape), random_samples(random, shape), 7);
  log.set_fingerprint(5);
  tessera::sample_classes const none(30, 5);
  tessera::picked_samples const hot(log, none, batch_class::hot), cold(log, none, batch_class::cold);
  CHECK(hot.block_count() == 0);
  CHECK(hot.rows() == 0);
  CHECK(cold.rows() == 30);
  CHECK(hot.kind() == batch_class::hot);
  CHECK(hot.fingerprint() != cold.fingerprint());
  tessera::sample_classes one(30, 5);
  one.set_hot(3);
  CHECK(tessera::picked_samples(log, one, batch_class::cold).fingerprint() != cold.fingerprint());

  auto const refused = [&](tessera::sample_classes const& classes, batch_class kind) {
    return error_of([&] { tessera::picked_samples(log, classes, kind); }).code();
  };
  CHECK(refused(none, batch_class::mixed) == tessera::errc::invalid_argument);
  tessera::sample_classes const fewer(29), of_other_data(30, 6), not_known(30);
  CHECK(refused(fewer, batch_class::hot) == tessera::errc::incompatible);
  CHECK(refused(of_other_data, batch_class::hot) == tessera::errc::incompatible);
  CHECK(tessera::picked_samples(log, not_known, batch_class::cold).rows() == 30);
  plain_host h;
  tessera::sample_columns out;
  CHECK(error_of([&] { cold.read(h.exec, 5, out); }).code() == tessera::errc::out_of_range);
}

}  // namespace picked_samples_test
