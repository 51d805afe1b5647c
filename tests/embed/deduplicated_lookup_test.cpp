// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>

#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

using namespace embed_tests;

namespace {

using groups = std::vector<std::int64_t>;

// A table a key but for the fifth, which shares the first's; all ways of pooling.
std::vector<tessera::pooled_feature> const features{{0, tessera::pooling::sum}, {1, tessera::pooling::mean}, {2, tessera::pooling::max},
                                                    {3, tessera::pooling::sum}, {0, tessera::pooling::mean}, {4, tessera::pooling::sum}};
std::vector<tessera::pooled_feature> const sums_and_means{{0, tessera::pooling::sum},  {1, tessera::pooling::mean},
                                                          {2, tessera::pooling::sum},  {3, tessera::pooling::sum},
                                                          {0, tessera::pooling::mean}, {4, tessera::pooling::sum}};
std::vector<std::int64_t> const dims{64, 7, 16, 1030, 4};

// Samples in sessions: the keys of the first two groups (2 and 2 keys) keep their rows for some samples, or go back to older ones.
tessera::keyed_jagged<> session_batch(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t samples, bool weighted) {
  std::vector<tessera::feature_rows<>> keys;
  std::vector<bool> changes(static_cast<std::size_t>(2 * samples));
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] = random() % 4 == 0;
  for (std::size_t key = 0; key < features.size(); ++key) {
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::vector<float>> weights;
    for (std::int64_t i = 0; i < samples; ++i) {
      bool const stays = key < 4 && i > 0 && !changes[static_cast<std::size_t>(2 * i) + key / 2];
      if (stays) {
        rows.push_back(rows.back());
        if (weighted) weights.push_back(weights.back());
        continue;
      }
      rows.push_back(tessera_tests::random_integers<std::int64_t>(random, random() % 6, 0, 29));
      if (weighted) weights.push_back(tessera_tests::random_floats(random, rows.back().size()));
    }
    keys.emplace_back("key" + std::to_string(key), std::move(rows), std::move(weights));
  }
  return tessera::keyed_jagged<>::from_rows(exec, keys);
}

// Rows and states of all ids, NaN where an id has no row.
template <class Store>
std::vector<float> contents(tessera::host_exec const& exec, std::vector<Store> const& tables) {
  std::vector<float> all;
  for (auto const& table : tables)
    for (std::int64_t id = 0; id < 30; ++id) {
      auto const slot = find(exec, table, {id})[0];
      if (slot < 0) continue;
      all.push_back(static_cast<float>(id));
      all.insert(all.end(), table.row(slot), table.row(slot) + table.dim());
      all.insert(all.end(), table.state(slot), table.state(slot) + table.state_layout().width(table.dim()));
    }
  return all;
}

double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace

TEST_CASE_TEMPLATE("a lookup of distinct rows gives the bits of the expanded batch; expanded sums train to them, merged ones nearly", Store,
                   tessera::dense_table<>, tessera::hash_table<>) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first_merged;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims(dims, 30);
    tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
    std::vector<float> all_merged;
    for (bool const weighted : {false, true})
      for (auto const& keys_per_group : {groups{}, groups{2, 2}, groups{2, 2, 1, 1}}) {
        CAPTURE(weighted);
        CAPTURE(keys_per_group.size());
        auto const& read = weighted ? sums_and_means : features;
        auto plain = make_tables<Store>(exec, options, optimizer), merged = make_tables<Store>(exec, options, optimizer),
             expanded = make_tables<Store>(exec, options, optimizer), handed = make_tables<Store>(exec, options, optimizer);
        for (int step = 0; step < 3; ++step) {
          auto const batch = session_batch(exec, random, step == 2 ? 0 : 300, weighted);
          auto const distinct = tessera::deduplicate(exec, batch.view(), keys_per_group);
          auto const view = batch.view();
          pooled_matrices const expected(options, read, view), out(options, read, view);
          tessera::lookup_saved saved;
          tessera::pooled_lookup(exec, plain, read, view, expected.out(), saved);
          auto const gradients = random_gradients(random, options, read, view);
          tessera::pooled_lookup_backward(exec, plain, read, saved, gradients.in(), optimizer);

          tessera::deduplicated_saved shared;
          auto const train = [&](std::vector<Store>& tables, auto const& backward) {
            tessera::deduplicated_lookup(exec, tables, read, distinct.view(), out.out(), shared);
            if (&tables == &expanded) {
              CHECK(out.values() == expected.values());
              CHECK(out.gaps_untouched());
            }
            backward();
          };
          train(expanded, [&] {
            tessera::deduplicated_lookup_backward(exec, expanded, read, shared, gradients.in(), optimizer,
                                                  {.sums = tessera::shared_gradients::expanded});
          });
          CHECK(contents(exec, expanded) == contents(exec, plain));
          tessera::deduplicated_lookup(exec, std::as_const(plain), read, distinct.view(), out.out());
          pooled_matrices const again(options, read, view);
          tessera::pooled_lookup(exec, std::as_const(plain), read, view, again.out());
          CHECK(out.values() == again.values());
          train(merged, [&] {
            tessera::prepare_backward(exec, merged, read, shared.lookup);
            tessera::deduplicated_lookup_backward(exec, merged, read, shared, gradients.in(), optimizer);
          });
          CHECK(largest_difference(contents(exec, merged), contents(exec, plain)) < 1e-4);
          train(handed, [&] {
            tessera::row_gradients sums;
            tessera::deduplicated_lookup_gradients(exec, handed, read, shared, gradients.in(), sums);
            tessera::update_rows(exec, handed, sums, optimizer);
          });
          CHECK(contents(exec, handed) == contents(exec, merged));
        }
        auto const trained = contents(exec, merged);
        all_merged.insert(all_merged.end(), trained.begin(), trained.end());
      }
    if (first_merged.empty()) first_merged = all_merged;
    CHECK(all_merged == first_merged);
  });
}

TEST_CASE("each distinct value is located once") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::hash_table<>>(exec, tables_of_dims({4}, 0), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {1, 2}, {3}, {1, 2}}}});
  auto const distinct = tessera::deduplicate(exec, batch, groups{1});
  std::vector<float> out(16);
  std::vector<tessera::matrix_view<float>> const to{{out.data(), 4, 4}};
  std::vector<tessera::pooled_feature> const sum{{0, tessera::pooling::sum}};
  tessera::deduplicated_saved saved;
  tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), to, saved);
  CHECK(saved.lookup.slots.size() == 3);
  CHECK(saved.samples == 4);
}

TEST_CASE("matrices that do not fit are refused by name, and what is saved then fits no gradients") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({4}, 9), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {1, 2}, {3}, {1, 2}}}});
  auto const distinct = tessera::deduplicate(exec, batch, groups{1});
  std::vector<float> out(16);
  std::vector<tessera::matrix_view<float>> const few{{out.data(), 2, 4}}, none;
  std::vector<tessera::matrix_view<float const>> const few_gradients{few[0]};
  std::vector<tessera::pooled_feature> const sum{{0, tessera::pooling::sum}};
  tessera::deduplicated_saved saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  CHECK(refusal([&] { tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), few, saved); }) ==
        "deduplicated_lookup: a row a sample (feature 0, rows 2, samples 4)");
  CHECK(refusal([&] { tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), none, saved); }) ==
        "deduplicated_lookup: one feature and one matrix a key of the batch (keys 1, matrices 0)");
  CHECK(refusal([&] { tessera::deduplicated_lookup_backward(exec, tables, sum, saved, few_gradients, tessera::sgd{}); }) ==
        "pooled_lookup_backward: nothing is saved: no lookup went before, or it threw (keys 0, features 1)");
  std::vector<tessera::matrix_view<float>> const enough{{out.data(), 4, 4}};
  tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), enough, saved);
  CHECK(refusal([&] { tessera::deduplicated_lookup_backward(exec, tables, sum, saved, few_gradients, tessera::sgd{}); }) ==
        "deduplicated_lookup_backward: a row a sample (feature 0, rows 2, samples 4)");
}
