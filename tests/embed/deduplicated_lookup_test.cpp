// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 6
#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/deduplicated_lookup.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/expand.hpp>

#include "../support/type_lists.hpp"
#include "differences.hpp"
#include "hosts.hpp"
#include "pooled_lookup_backward_suite.hpp"
#include "pooled_problem.hpp"
#include "sanitizers.hpp"
#include "temporary_folder.hpp"

using namespace embed_tests;

namespace {

using group_sizes = std::vector<std::int64_t>;  // keys of each group

// A table a key but for the fifth, which shares the first's; all ways of pooling.
std::vector<tessera::pooled_feature> const all_poolings{{0, tessera::pooling::sum},  {1, tessera::pooling::mean},
                                                        {2, tessera::pooling::max},  {3, tessera::pooling::sum},
                                                        {0, tessera::pooling::mean}, {4, tessera::pooling::sum}};
std::vector<tessera::pooled_feature> const sums_and_means{{0, tessera::pooling::sum},  {1, tessera::pooling::mean},
                                                          {2, tessera::pooling::sum},  {3, tessera::pooling::sum},
                                                          {0, tessera::pooling::mean}, {4, tessera::pooling::sum}};
std::vector<std::int64_t> const session_dims{64, 7, 16, 1030, 4};
constexpr std::int64_t session_ids = 30;

// Samples in sessions: the keys of the first two groups (2 and 2 keys) keep their rows for some samples, or go back to older ones.
tessera::keyed_jagged<> session_batch(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t samples, bool weighted) {
  std::vector<tessera::feature_rows<>> keys;
  std::vector<bool> changes(static_cast<std::size_t>(2 * samples));
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] = random() % 4 == 0;
  for (std::size_t key = 0; key < all_poolings.size(); ++key) {
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::vector<float>> weights;
    for (std::int64_t i = 0; i < samples; ++i) {
      bool const stays = key < 4 && i > 0 && !changes[static_cast<std::size_t>(2 * i) + key / 2];
      if (stays) {
        rows.push_back(rows.back());
        if (weighted) weights.push_back(weights.back());
        continue;
      }
      rows.push_back(tessera_tests::random_integers<std::int64_t>(random, random() % 6, 0, session_ids - 1));
      if (weighted) weights.push_back(tessera_tests::random_floats(random, rows.back().size()));
    }
    keys.emplace_back("key" + std::to_string(key), std::move(rows), std::move(weights));
  }
  return tessera::keyed_jagged<>::from_rows(exec, keys);
}

// Steps of lookups in IKJTs beside those in the expanded batches, whose features are `sums_and_means` or pool otherwise.
template <class Store>
void check_steps_like_expanded(std::vector<tessera::table_options> options, std::vector<tessera::pooled_feature> const& read) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<2> host;
  auto const exec = host.exec();
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  auto plain = make_tables<Store>(exec, options, optimizer), expanded = make_tables<Store>(exec, options, optimizer),
       merged = make_tables<Store>(exec, options, optimizer), handed = make_tables<Store>(exec, options, optimizer);
  for (int step = 0; step < (tessera_tests::under_sanitizer ? 2 : 6); ++step) {
    CAPTURE(step);
    auto const batch = session_batch(exec, random, 40, false);
    auto const distinct = tessera::deduplicate(exec, batch.view(), group_sizes{2, 2, 1, 1});
    auto const view = batch.view();
    pooled_matrices const expected(options, read, view), out(options, read, view);
    tessera::lookup_saved saved;
    tessera::deduplicated_saved shared;
    tessera::row_gradients sums;
    tessera::pooled_lookup(exec, plain, read, view, expected.out(), saved);
    auto const gradients = random_gradients(random, options, read, view);
    tessera::pooled_lookup_backward(exec, plain, read, saved, gradients.in(), optimizer);
    tessera::deduplicated_lookup(exec, expanded, read, distinct.view(), out.out(), shared);
    CHECK(out.values() == expected.values());
    tessera::deduplicated_lookup_backward(exec, expanded, read, shared, gradients.in(), optimizer,
                                          {.sums = tessera::shared_gradients::expanded});
    CHECK(same_bits(contents(exec, expanded, session_ids), contents(exec, plain, session_ids)));
    tessera::deduplicated_lookup(exec, merged, read, distinct.view(), out.out(), shared);
    tessera::deduplicated_lookup_backward(exec, merged, read, shared, gradients.in(), optimizer);
    tessera::deduplicated_lookup(exec, handed, read, distinct.view(), out.out(), shared);
    tessera::deduplicated_lookup_gradients(exec, handed, read, shared, gradients.in(), sums);
    tessera::update_rows(exec, handed, sums, optimizer);
    CHECK(same_bits(contents(exec, merged, session_ids), contents(exec, handed, session_ids)));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a lookup of distinct rows gives the bits of the expanded batch; expanded sums train to them, merged ones nearly", Store,
                   TESSERA_TEST_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first_merged;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims(session_dims, session_ids);
    tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
    std::vector<float> all_merged;
    for (bool const weighted : {false, true})
      for (auto const& keys_per_group : {group_sizes{}, group_sizes{2, 2}, group_sizes{2, 2, 1, 1}}) {
        CAPTURE(weighted);
        CAPTURE(keys_per_group.size());
        auto const& read = weighted ? sums_and_means : all_poolings;
        auto plain = make_tables<Store>(exec, options, optimizer), merged = make_tables<Store>(exec, options, optimizer),
             expanded = make_tables<Store>(exec, options, optimizer), handed = make_tables<Store>(exec, options, optimizer);
        for (int step = 0; step < 3; ++step) {
          auto const batch = session_batch(exec, random, step == 2 ? 0 : tessera_tests::under_sanitizer ? 100 : 300, weighted);
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
          CHECK(same_bits(contents(exec, expanded, session_ids), contents(exec, plain, session_ids)));
          tessera::deduplicated_lookup(exec, std::as_const(plain), read, distinct.view(), out.out());
          pooled_matrices const again(options, read, view);
          tessera::pooled_lookup(exec, std::as_const(plain), read, view, again.out());
          CHECK(out.values() == again.values());
          train(merged, [&] {
            tessera::prepare_backward(exec, merged, read, shared.lookup);
            tessera::deduplicated_lookup_backward(exec, merged, read, shared, gradients.in(), optimizer);
          });
          // From the second step on rows differ by roundings, and a maximum may be another id's.
          if (step == 0 || weighted)
            CHECK(tessera_tests::largest_difference(contents(exec, merged, session_ids), contents(exec, plain, session_ids)) < 1e-4);
          train(handed, [&] {
            tessera::row_gradients sums;
            tessera::deduplicated_lookup_gradients(exec, handed, read, shared, gradients.in(), sums);
            tessera::update_rows(exec, handed, sums, optimizer);
          });
          CHECK(same_bits(contents(exec, handed, session_ids), contents(exec, merged, session_ids)));
        }
        auto const trained = contents(exec, merged, session_ids);
        all_merged.insert(all_merged.end(), trained.begin(), trained.end());
      }
    if (first_merged.empty()) first_merged = all_merged;
    CHECK(same_bits(all_merged, first_merged));
  });
}

TEST_CASE("each distinct value is located once") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::hash_table<>>(exec, tables_of_dims({4}, 0), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {1, 2}, {3}, {1, 2}}}});
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1});
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
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1});
  std::vector<float> out(16);
  std::vector<tessera::matrix_view<float>> const few{{out.data(), 2, 4}}, none;
  std::vector<tessera::matrix_view<float const>> const few_gradients{few[0]};
  std::vector<tessera::pooled_feature> const sum{{0, tessera::pooling::sum}};
  tessera::deduplicated_saved saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  CHECK(refusal([&] { tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), few, saved); }) ==
        "deduplicated_lookup: a row a sample (feature 0, rows 2, samples 4)");
  CHECK(refusal([&] { tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), none, saved); }) ==
        "deduplicated_lookup: one feature and one matrix a key of the batch (keys 1, features 1, matrices 0)");
  CHECK(refusal([&] { tessera::deduplicated_lookup_backward(exec, tables, sum, saved, few_gradients, tessera::sgd{}); }) ==
        "pooled_lookup_backward: nothing is saved: no lookup went before, or it threw (keys 0, features 1)");
  std::vector<tessera::matrix_view<float>> const enough{{out.data(), 4, 4}};
  tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), enough, saved);
  CHECK(refusal([&] { tessera::deduplicated_lookup_backward(exec, tables, sum, saved, few_gradients, tessera::sgd{}); }) ==
        "deduplicated_lookup_backward: a row a sample (feature 0, rows 2, samples 4)");
}

TEST_CASE_TEMPLATE("elements of fewer bits train to those of the expanded batch", Store, tessera::dense_table<tessera::float16>,
                   tessera::dense_table<tessera::scaled_int8>, tessera::hash_table<tessera::scaled_int8>) {
  check_steps_like_expanded<Store>(tables_of_dims(session_dims, session_ids), all_poolings);
}

TEST_CASE_TEMPLATE("the same ids get rows, and leave, as of the expanded batch", Store,
                   tessera::hash_table<float, tessera::admit_by_frequency>, tessera::hash_table<float, tessera::admit_by_probability>,
                   tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>,
                   tessera::hash_table<float, tessera::admit_by_frequency, tessera::evict_lfu>) {
  auto options = tables_of_dims(session_dims, session_ids);
  for (auto& table : options) table.most_rows = 11;  // of 30 ids, nearly all of which each batch names
  check_steps_like_expanded<Store>(options, all_poolings);
}

TEST_CASE_TEMPLATE("a batch that is part of another, with values and without, trains as its expanded rows", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({2, 3}, 9);
  std::vector<tessera::pooled_feature> const read{{0, tessera::pooling::sum}, {1, tessera::pooling::max}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"before", {{8, 7}, {8, 7}, {6}}},
                                                               {"a", {{1, 2}, {1, 2}, {3}}},
                                                               {"b", {{4, 4, 5}, {4, 4, 5}, {}}},
                                                               {"c", {{}, {}, {}}},
                                                               {"d", {{}, {}, {}}}});
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1, 2, 2});
  for (std::int64_t const first_key : {1, 3}) {
    CAPTURE(first_key);
    auto group = distinct.view().groups[first_key == 1 ? 1 : 2];
    group.first_key = 0;
    tessera::inverse_keyed_jagged_view<std::int64_t const> const part{distinct.view().distinct.slice_keys(first_key, 2), {&group, 1}, 3};
    auto const view = batch.view().slice_keys(first_key, 2);
    REQUIRE(part.distinct.first_value() > 0);
    auto plain = make_tables<Store>(exec, options, tessera::sgd{}), expanded = make_tables<Store>(exec, options, tessera::sgd{}),
         merged = make_tables<Store>(exec, options, tessera::sgd{});
    pooled_matrices const expected(options, read, view), out(options, read, view);
    pooled_matrices gradients(options, read, view);
    float next = 1;
    gradients.fill([&] { return next *= -1.25F; });
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, plain, read, view, expected.out(), saved);
    tessera::pooled_lookup_backward(exec, plain, read, saved, gradients.in(), tessera::sgd{});
    for (auto const sums : {tessera::shared_gradients::expanded, tessera::shared_gradients::merged}) {
      auto& tables = sums == tessera::shared_gradients::expanded ? expanded : merged;
      tessera::deduplicated_saved shared;
      tessera::deduplicated_lookup(exec, tables, read, part, out.out(), shared);
      CHECK(out.values() == expected.values());
      tessera::deduplicated_lookup_backward(exec, tables, read, shared, gradients.in(), tessera::sgd{}, {.sums = sums});
    }
    CHECK(same_bits(contents(exec, expanded, 9), contents(exec, plain, 9)));
    CHECK(tessera_tests::largest_difference(contents(exec, merged, 9), contents(exec, plain, 9)) < 1e-4);
  }
}

namespace {

// The caller's thread, which counts regions, and says that it is one of many.
struct region_counter {
  std::int64_t regions = 0;

  static constexpr int size() noexcept { return 8; }
  void run(std::int64_t chunks, tessera::chunk_function f) noexcept {
    ++regions;
    for (std::int64_t i = 0; i < chunks; ++i) f(i);
  }
};

}  // namespace

TEST_CASE("more groups take no more parallel regions, and no more pieces of memory") {
  tessera_tests::host<region_counter> host;
  auto const exec = host.exec();
  constexpr std::size_t keys = 24;
  std::vector<tessera::feature_rows<>> rows;
  std::vector<tessera::pooled_feature> read;
  for (std::size_t key = 0; key < keys; ++key) {
    rows.emplace_back("key" + std::to_string(key), std::vector<std::vector<std::int64_t>>{{1, 2}, {1, 2}, {3}, {1, 2}});
    read.push_back({0, key % 2 == 0 ? tessera::pooling::sum : tessera::pooling::max});
  }
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, rows);
  auto const options = tables_of_dims({4}, 9);
  auto const cost = [&](group_sizes const& sizes, tessera::shared_gradients sums) {
    auto tables = make_tables<tessera::dense_table<>>(exec, options, tessera::sgd{});
    auto const distinct = tessera::deduplicate(exec, batch, sizes);
    pooled_matrices const out(options, read, batch.view());
    auto const regions = host.team().regions, allocations = host.memory().allocations();
    tessera::deduplicated_saved saved;
    tessera::deduplicated_lookup(exec, tables, read, distinct.view(), out.out(), saved);
    auto const regions_before = host.team().regions, allocations_before = host.memory().allocations();
    tessera::deduplicated_lookup_backward(exec, tables, read, saved, out.in(), tessera::sgd{}, {.sums = sums});
    return std::vector<std::int64_t>{regions_before - regions, allocations_before - allocations, host.team().regions - regions_before,
                                     host.memory().allocations() - allocations_before};
  };
  for (auto const sums : {tessera::shared_gradients::merged, tessera::shared_gradients::expanded})
    CHECK(cost(group_sizes(keys, 1), sums) == cost({keys}, sums));
}

TEST_CASE("ids out of range read as zeros count once a distinct row") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({2}, 4);
  auto plain = make_tables<tessera::dense_table<>>(exec, options, tessera::sgd{});
  auto expanded = make_tables<tessera::dense_table<>>(exec, options, tessera::sgd{});
  std::vector<tessera::pooled_feature> const read{{0, tessera::pooling::mean}};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 9}, {1, 9}, {-3}, {1, 9}}}});
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1});
  pooled_matrices const expected(options, read, batch.view()), out(options, read, batch.view());
  std::int64_t count = 0, count_expanded = 0;
  tessera::lookup_saved saved;
  tessera::deduplicated_saved shared;
  tessera::pooled_lookup(exec, plain, read, batch.view(), expected.out(), saved,
                         {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count_expanded});
  tessera::deduplicated_lookup(exec, expanded, read, distinct.view(), out.out(), shared,
                               {.out_of_range = tessera::out_of_range_ids::zero, .out_of_range_count = &count});
  CHECK(count_expanded == 4);
  CHECK(count == 2);
  CHECK(out.values() == expected.values());
  tessera::pooled_lookup_backward(exec, plain, read, saved, expected.in(), tessera::sgd{});
  tessera::deduplicated_lookup_backward(exec, expanded, read, shared, expected.in(), tessera::sgd{},
                                        {.sums = tessera::shared_gradients::expanded});
  CHECK(same_bits(contents(exec, expanded, 4), contents(exec, plain, 4)));
}

TEST_CASE("a lookup that is refused leaves nothing of the batch before to a backward") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({4}, 9), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}, {3}}}});
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1});
  std::vector<tessera::pooled_feature> const sum{{0, tessera::pooling::sum}};
  pooled_matrices const out(tables_of_dims({4}, 9), sum, batch.view());
  tessera::deduplicated_saved saved;
  tessera::deduplicated_lookup(exec, tables, sum, distinct.view(), out.out(), saved);
  std::int64_t const names_no_row[] = {0, 7, 1};
  tessera::row_group const group{0, 1, names_no_row};
  auto broken = distinct.view();
  broken.groups = {&group, 1};
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  CHECK(refusal([&] { tessera::deduplicated_lookup(exec, tables, sum, broken, out.out(), saved); }) ==
        "deduplicated_lookup: no such row (group 0, sample 1, row 7, rows 3)");
  CHECK(refusal([&] { tessera::deduplicated_lookup_backward(exec, tables, sum, saved, out.in(), tessera::sgd{}); }) ==
        "pooled_lookup_backward: nothing is saved: no lookup went before, or it threw (keys 0, features 1)");
  CHECK(tables[0].steps() == tessera::step_count(0));
}

TEST_CASE("a backward looks at gradients and features before it reads by them") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({2}, 10);
  auto tables = make_tables<tessera::dense_table<>>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2}, {1, 2}, {3}}}, {"b", {{4}, {4}, {4}}}});
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{2});
  std::vector<tessera::pooled_feature> const read{{0, tessera::pooling::max}, {0, tessera::pooling::sum}};
  pooled_matrices const out(options, read, batch.view());
  std::vector<float> const wide(300, 1.0F);
  auto wider = out.in();
  wider[0] = {wide.data(), 3, 100};
  tessera::deduplicated_saved saved;
  tessera::deduplicated_lookup(exec, tables, read, distinct.view(), out.out(), saved);
  for (auto const sums : {tessera::shared_gradients::merged, tessera::shared_gradients::expanded}) {
    CAPTURE(static_cast<int>(sums));
    auto const refusal = [&](std::vector<tessera::pooled_feature> const& features, auto const& gradients) {
      return std::string(tessera_tests::error_of([&] {
                           tessera::deduplicated_lookup_backward(exec, tables, features, saved, gradients, tessera::sgd{}, {.sums = sums});
                         }).what());
    };
    CHECK(refusal(read, wider) ==
          "deduplicated_lookup_backward: a matrix does not fit its feature (feature 0, rows 3, rows expected 3, columns 100, dim 2, "
          "stride 100)");
    CHECK(refusal({read[0]}, out.in()) ==
          "deduplicated_lookup_backward: one feature and one matrix a key of the batch (keys 2, features 1, matrices 2)");
    CHECK(refusal({}, out.in()) ==
          "deduplicated_lookup_backward: one feature and one matrix a key of the batch (keys 2, features 0, matrices 2)");
    CHECK(refusal({read[0], {7}}, out.in()) == "deduplicated_lookup_backward: no such table (feature 1, table 7, tables 1)");
    CHECK(refusal({read[0], read[0]}, out.in()) ==
          "deduplicated_lookup_backward: the feature pooled otherwise when this was saved (feature 1, maxima 4, maxima saved 0)");
    CHECK(refusal({read[1], read[0]}, out.in()) ==  // as many in all
          "deduplicated_lookup_backward: the feature pooled otherwise when this was saved (feature 0, maxima 0, maxima saved 4)");
  }
  CHECK(tables[0].steps() == tessera::step_count(0));
}

TEST_CASE("a lookup that runs out of memory leaves nothing to a backward") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({4}, 9), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}, {3}}}});  // as many distinct rows as samples
  auto const distinct = tessera::deduplicate(exec, batch, group_sizes{1});
  std::vector<tessera::pooled_feature> const largest{{0, tessera::pooling::max}};
  pooled_matrices const out(tables_of_dims({4}, 9), largest, batch.view());
  std::int64_t failures = 0;
  for (bool failed = true; failed; failures += failed) {
    tessera::deduplicated_saved saved;
    host.memory().fail_after(failures);
    failed = false;
    try {
      tessera::deduplicated_lookup(exec, tables, largest, distinct.view(), out.out(), saved);
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    host.memory().never_fail();
    if (!failed) continue;
    CAPTURE(failures);
    auto const refused =
        tessera_tests::error_of([&] { tessera::deduplicated_lookup_backward(exec, tables, largest, saved, out.in(), tessera::sgd{}); });
    CHECK(refused.code() == tessera::errc::shape_mismatch);
  }
  CHECK(failures > 4);
}
