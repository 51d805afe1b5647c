// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/session_order.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"
#include "session_source.hpp"

using namespace sample_tests;

namespace session_order_test {

namespace {

// What is said of blocks of a table, by sets.
tessera::session_order naive_order(std::vector<sample> const& samples, std::vector<std::int64_t> const& blocks, std::int64_t block_rows,
                                   std::int64_t batch) {
  tessera::session_order order;
  std::map<std::int64_t, std::vector<std::int64_t>> rows_of;  // by session, of the table
  auto const rows = static_cast<std::int64_t>(samples.size());
  for (auto const block : blocks) {
    auto const end = std::min(rows, (block + 1) * block_rows);
    for (auto first = block * block_rows; first < end; first += batch) {
      std::set<std::int64_t> sessions;
      for (auto row = first; row < std::min(end, first + batch); ++row) sessions.insert(samples[static_cast<std::size_t>(row)].session);
      order.batch_sessions += static_cast<std::int64_t>(sessions.size());
    }
    for (std::size_t c = 0; c < samples[0].sparse.size(); ++c) {
      std::set<std::vector<std::int64_t>> lists;
      for (auto row = block * block_rows; row < std::min(end, block * block_rows + batch); ++row) {
        auto const& list = samples[static_cast<std::size_t>(row)].sparse[c];
        order.ids += static_cast<std::int64_t>(list.size());
        if (!lists.insert(list).second) order.repeated_ids += static_cast<std::int64_t>(list.size());
      }
    }
    for (auto row = block * block_rows; row < end; ++row) rows_of[samples[static_cast<std::size_t>(row)].session].push_back(row);
    order.samples += end - block * block_rows;
  }
  order.batch_samples = order.samples;
  order.sessions = static_cast<std::int64_t>(rows_of.size());
  for (auto const& [session, of] : rows_of) {
    order.repeated += of.size() > 1;
    order.contiguous += of.size() > 1 && of.back() - of.front() == static_cast<std::int64_t>(of.size()) - 1;
  }
  return order;
}

}  // namespace

TEST_CASE("session_order_of: as sets count it, in all blocks and in some") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  plain_host h;
  for (bool const is_sorted : {false, true}) {
    auto samples = random_samples(random, {.rows = 997, .sparse = 3, .mean_ids = 1, .sessions = 120, .single = 1});
    if (is_sorted) std::stable_sort(samples.begin(), samples.end(), [](sample const& a, sample const& b) { return a.session < b.session; });
    sample_list const source(schema_of({.sparse = 3, .single = 1}), samples, 50);
    auto const all = tessera::session_order_of(h.exec, source, {.blocks = 100, .batch_size = 20});
    std::vector<std::int64_t> blocks(20);
    for (std::size_t b = 0; b < 20; ++b) blocks[b] = static_cast<std::int64_t>(b);
    CHECK(all == naive_order(samples, blocks, 50, 20));
    CHECK(all.samples == 997);
    CHECK(all.is_clustered() == is_sorted);
    CHECK((all.samples_per_session() > 3) == is_sorted);
    CHECK(tessera::session_order_of(h.exec, source, {.blocks = 3, .batch_size = 20}) == naive_order(samples, {0, 9, 19}, 50, 20));
    CHECK(tessera::session_order_of(h.exec, source, {.blocks = 1, .batch_size = 64}) == naive_order(samples, {0}, 50, 64));
  }
}

TEST_CASE("session_order_of: sessions of one sample, no samples, no session") {
  plain_host h;
  std::mt19937_64 random(2);
  auto samples = random_samples(random, {.rows = 100});
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].session = static_cast<std::int64_t>(i);
  auto const alone = tessera::session_order_of(h.exec, sample_list(schema_of({}), samples, 30));
  CHECK(alone.samples_per_session() == 1);
  CHECK(alone.repeated == 0);
  CHECK_FALSE(alone.is_clustered());
  auto const none = tessera::session_order_of(h.exec, sample_list(schema_of({}), {}, 30));
  CHECK(none == tessera::session_order());
  CHECK(none.samples_per_session() == 0);
  CHECK(none.repeated_share() == 0);
  sample_list const nameless(schema_of({}, false), samples, 30);
  using tessera_tests::error_of;
  CHECK(error_of([&] { tessera::session_order_of(h.exec, nameless); }).code() == tessera::errc::invalid_argument);
  CHECK(error_of([&] { tessera::session_order_of(h.exec, sample_list(schema_of({}), samples, 30), {.blocks = 0}); }).value("blocks") ==
        "0");
}

}  // namespace session_order_test
