// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/derived_columns.hpp>

#include <algorithm>
#include <set>

#include "hosts.hpp"
#include "random.hpp"
#include "sample_support.hpp"
#include "temporary_folder.hpp"

namespace derived_columns_test {

namespace {

using namespace tessera;
using namespace sample_tests;
using tessera_tests::error_of;

/// Blocks of 40 samples.
struct small_source {
  sample_schema own;
  std::vector<sample> samples;
  std::uint32_t checksum = 5;

  sample_schema const& schema() const { return own; }
  std::int64_t rows() const { return static_cast<std::int64_t>(samples.size()); }
  std::int64_t block_count() const { return (rows() + 39) / 40; }
  std::int64_t rows(std::int64_t block) const { return std::min<std::int64_t>(40, rows() - 40 * block); }
  std::int64_t first_row(std::int64_t block) const { return 40 * block; }
  std::uint32_t fingerprint() const { return checksum; }
  void read(host_exec const& exec, std::int64_t block, sample_columns& out) const {
    fill(exec, own, {samples.begin() + first_row(block), samples.begin() + first_row(block) + rows(block)}, out);
  }
};
static_assert(fingerprinted_source<derived_columns<small_source>>);

// s0, s1: lists; s2, s3: single ids.
small_source random_source(std::mt19937_64& random) {
  table_shape const shape{.rows = 130, .single = 2, .other_labels = 1, .weights = true};
  return {schema_of(shape), random_samples(random, shape)};
}

std::vector<std::int64_t> there(sample const& s, std::size_t column) {
  auto ids = s.sparse[column];
  if (column >= 2 && ids[0] == missing_id) ids.clear();
  return ids;
}

std::vector<std::int64_t> pairs(std::vector<std::int64_t> const& a, std::vector<std::int64_t> const& b, std::size_t most) {
  std::vector<std::int64_t> all;
  for (auto const x : a)
    for (auto const y : b)
      if (all.size() < most) all.push_back(hash_pair(x, y));
  return all;
}

}  // namespace

TEST_CASE("derived_columns: columns put together and pairs of ids, behind those that there were") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const source = random_source(random);
  tessera_tests::for_each_host([&](host_exec const& exec, auto&) {
    derived_columns const log(source, {combined_columns{"all", {"s0", "s3", "s1"}}, column_ngram{"crossed", "s2", "s3"},
                                       column_ngram{"with item", "s0", "s2"}, column_ngram{"lists", "s0", "s1", 5},
                                       column_ngram{"three", "crossed", "s2"}, combined_columns{"twice", {"crossed", "crossed"}}});
    CHECK(log.schema().sparse ==
          std::vector<std::string>{"s0", "s1", "s2", "s3", "all", "crossed", "with item", "lists", "three", "twice"});
    CHECK(log.schema().single == std::vector<std::string>{"s2", "s3", "crossed", "three"});
    auto expected = source.samples;
    for (auto& s : expected) {
      auto const one = [](std::vector<std::int64_t> const& ids) { return ids.empty() ? std::vector{missing_id} : ids; };
      auto all = s.sparse[0];
      for (auto const c : {3, 1})
        for (auto const id : there(s, static_cast<std::size_t>(c))) all.push_back(id);
      auto const crossed = pairs(there(s, 2), there(s, 3), 1);
      s.sparse.push_back(all);
      s.sparse.push_back(one(crossed));
      s.sparse.push_back(pairs(s.sparse[0], there(s, 2), 1024));
      s.sparse.push_back(pairs(s.sparse[0], s.sparse[1], 5));
      s.sparse.push_back(one(pairs(crossed, there(s, 2), 1)));
      auto twice = crossed;
      twice.insert(twice.end(), crossed.begin(), crossed.end());
      s.sparse.push_back(twice);
    }
    CHECK(read_all(exec, log) == expected);
    CHECK(read_all(exec, derived_columns(source, {})) == source.samples);
  });
}

TEST_CASE("derived_columns: pairs have ids of their own, from 0 on") {
  std::set<std::int64_t> ids;
  for (std::int64_t a = -50; a < 50; ++a)
    for (std::int64_t b = -50; b < 50; ++b) ids.insert(hash_pair(a, b));
  CHECK(ids.size() == 10'000);
  CHECK(*ids.begin() >= 0);
}

TEST_CASE("derived_columns: a fingerprint tells what is derived") {
  std::mt19937_64 random(3);
  auto const source = random_source(random);
  std::set<std::uint32_t> seen;
  for (auto const& derived : std::vector<std::vector<derived_column>>{{},
                                                                      {column_ngram{"n", "s2", "s3"}},
                                                                      {column_ngram{"n", "s3", "s2"}},
                                                                      {column_ngram{"n", "s2", "s3", 7}},
                                                                      {column_ngram{"m", "s2", "s3"}},
                                                                      {combined_columns{"n", {"s2", "s3"}}},
                                                                      {combined_columns{"n", {"s2", "s3", "s3"}}}}) {
    CHECK(derived_columns(source, derived).fingerprint() == derived_columns(source, derived).fingerprint());
    seen.insert(derived_columns(source, derived).fingerprint());
  }
  auto other = source;
  other.checksum = 6;
  seen.insert(derived_columns(other, {column_ngram{"n", "s2", "s3"}}).fingerprint());
  CHECK(seen.size() == 8);
  CHECK(derived_columns(source, {}).fingerprint() == source.fingerprint());
}

TEST_CASE("derived_columns: what cannot be is named") {
  std::mt19937_64 random(3);
  auto const source = random_source(random);
  auto const refusal = [&](derived_column column) { return error_of([&] { derived_columns(source, {std::move(column)}); }); };
  CHECK(refusal(column_ngram{"n", "s2", "shop"}).value("column") == "shop");
  CHECK(refusal(column_ngram{"n", "s2", "d0"}).value("column") == "d0");
  CHECK(refusal(column_ngram{"n", "n", "s2"}).value("column") == "n");
  CHECK(refusal(column_ngram{"d0", "s2", "s3"}).value("name") == "d0");
  CHECK(refusal(column_ngram{"n", "s2", "s3", 0}).value("most_pairs") == "0");
  CHECK(refusal(column_ngram{"s1", "s2", "s3"}).value("column") == "s1");
  CHECK(refusal(column_ngram{"weight", "s2", "s3"}).value("column") == "weight");
  CHECK(refusal(column_ngram{"", "s2", "s3"}).sentence() == "derived_columns: a column without a name");
  CHECK(refusal(combined_columns{"n", {"s2"}}).sentence() == "derived_columns: fewer than two columns to combine");
  CHECK(refusal(combined_columns{"n", {"s2", "shop"}}).value("column") == "shop");
}

}  // namespace derived_columns_test
