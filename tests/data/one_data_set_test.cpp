// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-target: tessera::parquet
// ctest-labels: threads
#include <tessera/data/sample_source.hpp>

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/sample_reader.hpp>
#include <tessera/tensor/expand.hpp>

#include "one_data_set.hpp"
#include "random.hpp"
#include "sample_source_suite.hpp"

using namespace sample_tests;

namespace one_data_set_test {

namespace {

// A batch with everything by value, its groups expanded; floats by their bits.
struct batch_contents {
  std::vector<std::uint32_t> numbers;  // dense features, labels, weights, other labels
  std::vector<std::int64_t> integers;  // samples, sessions; of each key lengths and ids
  std::vector<std::string> keys;

  friend bool operator==(batch_contents const&, batch_contents const&) = default;
};

batch_contents contents_of(tessera::host_exec const& exec, tessera::batch_view const& batch) {
  batch_contents result;
  auto const add = [&](tessera::vector_view<float const> floats) {
    for (auto const x : floats) result.numbers.push_back(std::bit_cast<std::uint32_t>(x));
  };
  for (std::int64_t i = 0; i < batch.samples(); ++i) add({batch.dense.row(i), batch.dense.columns()});
  for (std::int64_t i = 0; i < batch.other_labels.rows(); ++i) add({batch.other_labels.row(i), batch.other_labels.columns()});
  add(batch.labels);
  add(batch.weights);
  result.integers.assign(batch.sample_ids.begin(), batch.sample_ids.end());
  result.integers.insert(result.integers.end(), batch.session_ids.begin(), batch.session_ids.end());
  auto const all = tessera::expand(exec, batch.inverse_keyed());
  for (std::int64_t key = 0; key < all.view().keys; ++key)
    for (std::int64_t row = 0; row < all.view().rows(key); ++row) {
      auto const ids = all.view().key(key).row(row);
      result.integers.push_back(ids.size());
      result.integers.insert(result.integers.end(), ids.begin(), ids.end());
    }
  result.keys.assign(batch.key_names.begin(), batch.key_names.end());
  return result;
}

}  // namespace

TEST_CASE("sample_source: Parquet files") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  plain_host h;
  data_set const data(h.exec, suite_table(seed));
  check_sample_source(data.sources[2], data.samples);
}

TEST_CASE("one data set as text with tabs or commas, in Parquet and in memory: one preprocessing and the same batches, bit for bit") {
  using namespace tessera;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  plain_host h;
  data_set const data(h.exec, suite_table(seed, mixed_shape));
  auto const unfitted = unfitted_of(data.schema);
  std::vector<preprocessing> fitted;
  std::vector<std::vector<batch_contents>> batches;
  for (auto const& source : data.sources) {
    auto const& preprocess = fitted.emplace_back(fitted_to(h.exec, source, unfitted));
    auto& found = batches.emplace_back();
    sample_reader reader(h.exec, source, preprocess, {.batch_size = 32, .groups = {{"s0", "s2"}}});
    for (batch_view batch; reader.next(h.exec, batch);) found.push_back(contents_of(h.exec, batch));
  }
  CHECK(batches[0].size() == 10);
  CHECK(data.sources[0].block_count() != data.sources[1].block_count());
  CHECK(data.sources[2].block_count() == 10);
  CHECK(data.sources[3].block_count() == 5);
  for (std::size_t i = 1; i < data.sources.size(); ++i) {
    CAPTURE(i);
    CHECK(fitted[i] == fitted[0]);
    CHECK(batches[i] == batches[0]);
  }
}

}  // namespace one_data_set_test
