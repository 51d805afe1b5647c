// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/sampled_counts.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace sampled_counts_tests {

using namespace tessera;

using counts_by_unit = std::map<std::uint64_t, std::int64_t>;

counts_by_unit held(sampled_counts<sampled_id> const& counts) {
  counts_by_unit result;
  counts.for_each([&](sampled_id const& key, std::int64_t count) { CHECK(result.emplace(key.unit, count).second); });
  CHECK(static_cast<std::int64_t>(result.size()) == counts.size());
  return result;
}

counts_by_unit true_counts(std::vector<std::int64_t> const& ids) {
  counts_by_unit result;
  for (auto const id : ids) ++result[sampling_unit(id)];
  return result;
}

void add(host_exec const& exec, sampled_counts<sampled_id>& counts, std::vector<std::int64_t> const& ids) {
  for (auto const id : ids) counts.add(exec, {sampling_unit(id)});
}

TEST_CASE("sampled_counts: all keys up to the limit, exactly") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const ids = tessera_tests::random_integers<std::int64_t>(random, 5000, -50, 49);
  sampled_counts<sampled_id> counts(100);
  CHECK(counts.distinct() == 0);
  add(host.exec(), counts, ids);
  CHECK(counts.holds_all());
  CHECK(counts.rate() == 1);
  CHECK(counts.standard_error() == 0);
  CHECK(held(counts) == true_counts(ids));
  CHECK(counts.distinct() == 100);
  counts.add(host.exec(), {sampling_unit(50)}, 7);
  CHECK_FALSE(counts.holds_all());
  CHECK(counts.rate() <= 0.5);
}

TEST_CASE("sampled_counts: beyond the limit a random sample, with all its counts, whatever the order and the parts") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const first = static_cast<std::int64_t>(random() >> 1);  // ids in a row, as numbered ones are
  auto const ids = tessera_tests::random_integers<std::int64_t>(random, 60'000, first, first + 20'000);
  auto truth = true_counts(ids);
  auto const distinct = static_cast<double>(truth.size());
  sampled_counts<sampled_id> counts(1000);
  add(exec, counts, ids);
  CHECK(counts.size() <= 1000);
  CHECK(counts.standard_error() < 0.06);
  CHECK(std::abs(counts.distinct() / distinct - 1) < 6 * counts.standard_error());

  std::erase_if(truth, [&](auto const& key) { return !counts.takes(key.first); });
  CHECK(held(counts) == truth);

  auto shuffled = ids;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  sampled_counts<sampled_id> parts[3]{sampled_counts<sampled_id>(1000), sampled_counts<sampled_id>(1000), sampled_counts<sampled_id>(1000)};
  add(exec, parts[0], {shuffled.begin(), shuffled.begin() + 300});  // holds all
  add(exec, parts[1], {shuffled.begin() + 300, shuffled.begin() + 20'000});
  add(exec, parts[2], {shuffled.begin() + 20'000, shuffled.end()});
  parts[0].merge(exec, parts[2]);
  parts[1].merge(exec, parts[0]);
  CHECK(parts[1].rate() == counts.rate());
  CHECK(held(parts[1]) == held(counts));
}

TEST_CASE("sampled_counts: keys of one unit come and go together") {
  tessera_tests::serial_host host;
  sampled_counts<sampled_list> counts(64);
  for (std::uint64_t list = 0; list < 64; ++list) counts.add(host.exec(), {sampling_unit(3), mix_bits(list), 2}, 5);
  CHECK(counts.size() == 64);
  CHECK(counts.holds_all());
  counts.add(host.exec(), {sampling_unit(3), mix_bits(64), 2});  // one session with more lists than fit
  CHECK(counts.size() == 0);
  CHECK(counts.rate() < 1);
  CHECK(counts.distinct() == 0);
}

TEST_CASE("sampled_counts: a unit that is in every sample goes when its keys alone are too many") {
  tessera_tests::serial_host host;
  sampled_counts<sampled_list> counts(2);
  for (std::uint64_t list = 1; list <= 3; ++list) counts.add(host.exec(), {0, list, 1});
  CHECK(counts.size() == 0);
  CHECK(counts.rate() == 0);
  CHECK_FALSE(counts.takes(0));
  counts.add(host.exec(), {0, 1, 1});
  CHECK(counts.size() == 0);
}

TEST_CASE("sampled_counts: memory is bounded") {
  tessera_tests::serial_host host;
  constexpr std::int64_t limit = 1000;
  sampled_counts<sampled_id> counts(limit);
  for (std::int64_t id = 0; id < 50'000; ++id) counts.add(host.exec(), {sampling_unit(id)});
  CHECK(counts.bytes() <= 16 * limit * 10 / 3);
}

TEST_CASE("sampled_counts: refusals") {
  auto const none = tessera_tests::error_of([] { sampled_counts<sampled_id> counts(0); });
  CHECK(none.code() == errc::invalid_argument);
  CHECK(none.value("limit") == "0");
  tessera_tests::serial_host host;
  sampled_counts<sampled_id> counts(10);
  auto const other = tessera_tests::error_of([&] { counts.merge(host.exec(), sampled_counts<sampled_id>(11)); });
  CHECK(other.code() == errc::invalid_argument);
  CHECK(other.value("other") == "11");
}

}  // namespace sampled_counts_tests
