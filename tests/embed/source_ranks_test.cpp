// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 8
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/embed/admission.hpp>
#include <tessera/embed/deduplicated_lookup_backward.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/tensor/gather_vectors.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "source_ranks_problem.hpp"
#include "temporary_folder.hpp"

using namespace embed_tests;

namespace {

using ranks_evicting = tessera::hash_table<float, tessera::admit_by_frequency, tessera::evict_lru>;

template <class Store>
std::vector<Store> ranks_tables(tessera::host_exec const& exec) {
  if constexpr (std::is_same_v<Store, ranks_evicting>) {
    std::vector<Store> tables;
    for (auto options : ranks_options()) {
      options.rows = 0;
      options.most_rows = 25;
      tables.emplace_back(exec, options, ranks_optimizer, tessera::admit_by_frequency{.sightings = 2, .candidates = 30});
    }
    return tables;
  } else {
    return make_tables<Store>(exec, ranks_options(), ranks_optimizer);
  }
}

// The values of each feature, rank after rank.
std::vector<float> ranks_by_feature(sparse_view batch, std::vector<float> const& of_values, std::int64_t features) {
  std::vector<float> all;
  for (std::int64_t feature = 0; feature < features; ++feature)
    for (auto key = feature; key < batch.keys; key += features) {
      auto const bags = batch.key(key);
      if (bags.rows == 0) continue;
      auto const first = of_values.begin() + (bags.offsets[0] - batch.first_value());
      all.insert(all.end(), first, first + bags.size());
    }
  return all;
}

// Calls f(exec, exec of the one process, random) for several numbers of threads.
template <class F>
void for_each_ranks_host(F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    std::mt19937_64 random(seed);
    tessera_tests::serial_host one;
    f(exec, one.exec(), random);
  });
}

}  // namespace

TEST_CASE_TEMPLATE("source ranks: pooled lookups of their batches have the bits of one batch", Store, TESSERA_TEST_STORES, ranks_evicting) {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      auto const& features = weighted ? ranks_sums : ranks_poolings;
      auto whole = ranks_tables<Store>(one), tables = ranks_tables<Store>(exec);
      for (std::int64_t step = 0; step < 6; ++step) {
        auto const ranks = step < 5 ? 1 + step : tessera_tests::random_integers<std::int64_t>(random, 1, 1, 5)[0];
        CAPTURE(step);
        CAPTURE(ranks);
        auto const batch = draw_ranks(one, random, ranks, ranks_shape_of(weighted));
        auto const read = of_ranks(features, ranks);
        tessera::lookup_options const options{.source_ranks = ranks};
        auto const expected = whole_vectors(batch.whole_view());
        auto evaluated = pooled_messages(batch.view()), trained = pooled_messages(batch.view()), sent = pooled_messages(batch.view());
        tessera::pooled_lookup(one, std::as_const(whole), features, batch.whole_view(), expected.out());
        tessera::pooled_lookup(exec, std::as_const(tables), read, batch.view(), evaluated.out(), options);
        CHECK(evaluated.same(expected.in()));

        tessera::lookup_saved saved, saved_by_rank;
        tessera::pooled_lookup(one, whole, features, batch.whole_view(), expected.out(), saved);
        tessera::pooled_lookup(exec, tables, read, batch.view(), trained.out(), saved_by_rank, options);
        CHECK(trained.same(expected.in()));
        CHECK(saved_by_rank.source_ranks == ranks);
        auto const gradients = whole_vectors(batch.whole_view());
        sent.take(random_vectors(random, gradients));
        tessera::row_gradients sums, sums_by_rank;
        tessera::pooled_lookup_gradients(one, whole, features, saved, gradients.in(), sums);
        tessera::pooled_lookup_gradients(exec, tables, read, saved_by_rank, sent.in(), sums_by_rank);
        CHECK(same_gradients(sums_by_rank, sums));
        if (weighted) {
          std::vector<float> of_weights(static_cast<std::size_t>(batch.view().size())), of_weights_by_rank(of_weights);
          tessera::pooled_lookup_weight_gradient(one, whole, features, saved, gradients.in(), of_weights);
          tessera::pooled_lookup_weight_gradient(exec, tables, read, saved_by_rank, sent.in(), of_weights_by_rank);
          CHECK(same_bits(ranks_by_feature(batch.view(), of_weights_by_rank, batch.keys()), of_weights));
        }
        if (step % 2 == 1) tessera::prepare_backward(exec, tables, read, saved_by_rank);
        tessera::pooled_lookup_backward(one, whole, features, saved, gradients.in(), ranks_optimizer);
        tessera::pooled_lookup_backward(exec, tables, read, saved_by_rank, sent.in(), ranks_optimizer);
        CHECK(same_stores(tables, whole));
      }
    }
  });
}

TEST_CASE_TEMPLATE("source ranks: rows of which many threads sum the chunks have the bits of one batch", Store, TESSERA_TEST_STORES) {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    auto whole = ranks_tables<Store>(one), tables = ranks_tables<Store>(exec);
    auto const batch = draw_ranks(one, random, 4, {.keys = 6, .id_range = 2, .most_samples = 300, .mean_length = 40, .weighted = true});
    auto const read = of_ranks(ranks_sums, 4);
    auto const out = whole_vectors(batch.whole_view()), gradients = whole_vectors(batch.whole_view());
    auto messages = pooled_messages(batch.view());
    tessera::lookup_saved saved, saved_by_rank;
    tessera::pooled_lookup(one, whole, ranks_sums, batch.whole_view(), out.out(), saved);
    tessera::pooled_lookup(exec, tables, read, batch.view(), messages.out(), saved_by_rank, {.source_ranks = 4});
    messages.take(random_vectors(random, gradients));
    tessera::pooled_lookup_backward(one, whole, ranks_sums, saved, gradients.in(), ranks_optimizer);
    tessera::pooled_lookup_backward(exec, tables, read, saved_by_rank, messages.in(), ranks_optimizer);
    CHECK(same_stores(tables, whole));
  });
}

TEST_CASE_TEMPLATE("source ranks: sequence lookups of their batches have the bits of one batch", Store, TESSERA_TEST_STORES,
                   ranks_evicting) {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    auto whole = ranks_tables<Store>(one), tables = ranks_tables<Store>(exec);
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      CAPTURE(ranks);
      auto const batch = draw_ranks(one, random, ranks, ranks_shape_of(false));
      auto const read = of_ranks(ranks_sequences, ranks);
      auto const expected = sequence_messages(batch.whole_view()), gradients = sequence_messages(batch.whole_view());
      auto trained = sequence_messages(batch.view()), sent = sequence_messages(batch.view());
      tessera::lookup_saved saved, saved_by_rank;
      tessera::sequence_lookup(one, whole, ranks_sequences, batch.whole_view(), expected.out(), saved);
      tessera::sequence_lookup(exec, tables, read, batch.view(), trained.out(), saved_by_rank, {.source_ranks = ranks});
      CHECK(trained.same(expected.in()));
      sent.take(random_vectors(random, gradients));
      tessera::row_gradients sums, sums_by_rank;
      tessera::sequence_lookup_gradients(one, whole, ranks_sequences, saved, gradients.in(), sums);
      tessera::sequence_lookup_gradients(exec, tables, read, saved_by_rank, sent.in(), sums_by_rank);
      CHECK(same_gradients(sums_by_rank, sums));
      tessera::sequence_lookup_backward(one, whole, ranks_sequences, saved, gradients.in(), ranks_optimizer);
      tessera::sequence_lookup_backward(exec, tables, read, saved_by_rank, sent.in(), ranks_optimizer);
      CHECK(same_stores(tables, whole));
    }
  });
}

TEST_CASE_TEMPLATE("source ranks: lookups of their distinct rows have the bits of one batch", Store, TESSERA_TEST_STORES) {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      std::vector<std::int64_t> const keys_per_group = weighted ? std::vector<std::int64_t>{6} : std::vector<std::int64_t>{2, 3, 1};
      auto const& features = weighted ? ranks_sums : ranks_poolings;
      auto plain = ranks_tables<Store>(one), whole = ranks_tables<Store>(one), expanded = ranks_tables<Store>(exec),
           merged = ranks_tables<Store>(exec), apart = ranks_tables<Store>(exec);
      for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
        CAPTURE(ranks);
        auto const batch = draw_ranks(one, random, ranks, ranks_shape_of(weighted));
        auto const distinct = distinct_of(one, batch, keys_per_group);
        auto const read = of_ranks(features, ranks);
        tessera::lookup_options const options{.source_ranks = ranks};
        std::vector<std::int64_t> samples;
        for (std::int64_t key = 0; key < batch.view().keys; ++key) samples.push_back(batch.view().rows(key));
        auto const expected = whole_vectors(batch.whole_view()), gradients = whole_vectors(batch.whole_view());
        rank_messages out(dims_of_keys(), ranks, true, [&](std::int64_t) { return distinct.padded; }),
            sent(dims_of_keys(), ranks, true, [&](std::int64_t) { return distinct.padded; });
        sent.take(random_vectors(random, gradients), samples);

        // Expanded sums are those of all samples.
        tessera::lookup_saved saved;
        tessera::deduplicated_saved shared, of_whole;
        tessera::pooled_lookup(one, plain, features, batch.whole_view(), expected.out(), saved);
        tessera::pooled_lookup_backward(one, plain, features, saved, gradients.in(), ranks_optimizer);
        tessera::deduplicated_lookup(exec, expanded, read, distinct.by_rank.view(), out.out(), shared, options);
        CHECK(out.same(expected.in(), samples));
        tessera::deduplicated_lookup_backward(exec, expanded, read, shared, sent.in(), ranks_optimizer,
                                              {.sums = tessera::shared_gradients::expanded});
        CHECK(same_stores(expanded, plain));

        // Merged sums are those of a process that has every rank's distinct rows, where keys of one table are in one group: else rows of
        // that process that belong to one sample have other numbers in each group.
        bool const in_one_group = keys_per_group.size() == 1;
        tessera::deduplicated_lookup(one, whole, features, distinct.whole.view(), expected.out(), of_whole);
        tessera::deduplicated_lookup(exec, merged, read, distinct.by_rank.view(), out.out(), shared, options);
        if (in_one_group) CHECK(out.same(expected.in(), samples));
        tessera::deduplicated_lookup_backward(one, whole, features, of_whole, gradients.in(), ranks_optimizer);
        tessera::deduplicated_lookup_backward(exec, merged, read, shared, sent.in(), ranks_optimizer);
        if (in_one_group) CHECK(same_stores(merged, whole));

        // Likewise where the inverses stay with the ranks: only distinct rows come, and their vectors and merged gradients go.
        auto const rows = pooled_messages(distinct.rows.view(), false), row_gradients = pooled_messages(distinct.rows.view(), false);
        auto all = pooled_messages(batch.view()), all_gradients = pooled_messages(batch.view());
        all_gradients.take(gradients.in());
        auto const for_each_key = [&](auto const& f) {
          for (std::size_t key = 0; key < read.size(); ++key) {
            auto const of_rank = distinct.of_rank[key / features.size()].view();
            f(key, of_rank.inverse(static_cast<std::int64_t>(key % features.size())));
          }
        };
        tessera::pooled_lookup(exec, apart, read, distinct.rows.view(), rows.out(), saved, options);
        for_each_key([&](std::size_t key, auto inverse) { tessera::gather_vectors(exec, rows.in()[key], inverse, all.out()[key]); });
        if (in_one_group) CHECK(all.same(expected.in()));
        for_each_key([&](std::size_t key, auto inverse) {
          tessera::gather_vectors_backward(exec, all_gradients.in()[key], inverse, row_gradients.out()[key]);
        });
        tessera::pooled_lookup_backward(exec, apart, read, saved, row_gradients.in(), ranks_optimizer);
        CHECK(same_stores(apart, merged));
      }
    }
  });
}

namespace {

// A dense table, a hashed one, and one that evicts, each read pooled and as a sequence.
tessera::local_tables ranks_source(tessera::host_exec const& exec, std::int64_t ranks, bool hashed, tessera::shared_gradients sums) {
  auto options = ranks_options();
  tessera::table_list tables;
  tables.add(tessera::dense_table<>(exec, options[0], ranks_optimizer), ranks_optimizer);
  if (hashed) {
    options[1].rows = options[2].rows = 0;
    options[2].most_rows = 25;
    tables.add(tessera::hash_table<>(exec, options[1], ranks_optimizer), ranks_optimizer);
    // Room for all ids: a candidate that left would be counted anew where its row is there again, and not where rows are there once.
    tables.add(ranks_evicting(exec, options[2], ranks_optimizer, {.sightings = 2, .candidates = ranks_ids}), ranks_optimizer);
  } else {
    tables.add(tessera::dense_table<>(exec, options[1], ranks_optimizer), ranks_optimizer);
    tables.add(tessera::dense_table<>(exec, options[2], ranks_optimizer), ranks_optimizer);
  }
  std::vector<tessera::table_feature> const features{{.name = "a", .table = 0},
                                                     {.name = "b", .table = 1, .sequence = true},
                                                     {.name = "c", .table = 0, .pooling = tessera::pooling::max},
                                                     {.name = "d", .table = 2, .pooling = tessera::pooling::mean},
                                                     {.name = "e", .table = 1},
                                                     {.name = "f", .table = 2, .sequence = true}};
  return {std::move(tables), of_ranks(features, ranks), {.sums = sums, .lookup = {.source_ranks = ranks}}};
}
constexpr bool ranks_source_sequences[] = {false, true, false, false, false, true};
std::vector<std::int64_t> const ranks_source_tables{0, 1, 0, 2, 1, 2};

// How many vectors each key of a source has: one a sample, or one an id.
template <class PooledRows>
rank_messages ranks_source_messages(sparse_view batch, PooledRows const& pooled_rows) {
  std::vector<std::int64_t> dims;
  for (auto const table : ranks_source_tables) dims.push_back(ranks_dims[static_cast<std::size_t>(table)]);
  return {dims, batch.keys / 6, false,
          [&](std::int64_t key) { return ranks_source_sequences[key % 6] ? batch.key(key).size() : pooled_rows(key); }};
}

tessera::batch_view ranks_source_batch(sparse_view sparse, std::int64_t samples) {
  tessera::batch_view batch{};
  batch.dense = {nullptr, samples, 0};
  batch.sparse = sparse;
  return batch;
}

bool same_ranks_sources(tessera::local_tables& a, tessera::local_tables& b, bool hashed) {
  using dense = tessera::dense_table<>;
  bool const first = same_store(a.store<dense>(0), b.store<dense>(0));
  if (!hashed) return first && same_store(a.store<dense>(1), b.store<dense>(1)) && same_store(a.store<dense>(2), b.store<dense>(2));
  return first && same_store(a.store<tessera::hash_table<>>(1), b.store<tessera::hash_table<>>(1)) &&
         same_store(a.store<ranks_evicting>(2), b.store<ranks_evicting>(2));
}

}  // namespace

TEST_CASE("source ranks: local_tables of their batches have the bits of one batch") {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    for (bool const hashed : {false, true})
      for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
        CAPTURE(hashed);
        CAPTURE(ranks);
        auto whole = ranks_source(one, 1, hashed, tessera::shared_gradients::merged),
             source = ranks_source(exec, ranks, hashed, tessera::shared_gradients::merged);
        for (int step = 0; step < 4; ++step) {
          CAPTURE(step);
          auto const batch = draw_ranks(one, random, ranks, ranks_shape_of(false));
          auto const samples = batch.whole_view().rows(0);
          auto const view = ranks_source_batch(batch.whole_view(), samples);
          auto const by_rank = ranks_source_batch(batch.view(), ranks == 1 ? samples : 0);
          auto const rows_of_whole = [&](std::int64_t key) { return batch.whole_view().rows(key); };
          auto const rows_by_rank = [&](std::int64_t key) { return batch.view().rows(key); };
          auto const out = ranks_source_messages(batch.whole_view(), rows_of_whole),
                     gradients = ranks_source_messages(batch.whole_view(), rows_of_whole);
          auto messages = ranks_source_messages(batch.view(), rows_by_rank), predicted = ranks_source_messages(batch.view(), rows_by_rank);
          source.predict(exec, by_rank, predicted.out());
          whole.predict(one, view, out.out());
          CHECK(predicted.same(out.in()));
          tessera::local_tables_saved saved, saved_by_rank;
          tessera::row_order prepared;
          source.prepare(exec, by_rank, prepared);
          whole.begin(one, view, saved);
          source.begin(exec, by_rank, saved_by_rank, prepared);
          CHECK(saved_by_rank.order.ready() == !hashed);
          whole.finish(one, saved, out.out());
          source.finish(exec, saved_by_rank, messages.out());
          CHECK(messages.same(out.in()));
          messages.take(random_vectors(random, gradients));
          whole.begin_backward(one, saved, gradients.in());
          source.begin_backward(exec, saved_by_rank, messages.in());
          if (step % 2 == 0) {
            whole.finish_backward(one, saved);
            source.finish_backward(exec, saved_by_rank);
          } else {
            tessera::row_gradients sums, sums_by_rank;
            whole.gradients(one, saved, sums);
            source.gradients(exec, saved_by_rank, sums_by_rank);
            CHECK(same_gradients(sums_by_rank, sums));
            whole.apply(one, sums);
            source.apply(exec, sums_by_rank);
          }
          CHECK(same_ranks_sources(source, whole, hashed));
        }
      }
  });
}

TEST_CASE("source ranks: local_tables of their distinct rows have the bits of one batch") {
  for_each_ranks_host([](tessera::host_exec const& exec, tessera::host_exec const& one, std::mt19937_64& random) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
      CAPTURE(ranks);
      auto whole = ranks_source(one, 1, true, tessera::shared_gradients::expanded),
           source = ranks_source(exec, ranks, true, tessera::shared_gradients::expanded);
      for (int step = 0; step < 2; ++step) {
        auto const batch = draw_ranks(one, random, ranks, ranks_shape_of(false));
        auto const distinct = distinct_of(one, batch, {2, 3, 1});
        auto const view = ranks_source_batch(batch.whole_view(), batch.whole_view().rows(0));
        auto by_rank = ranks_source_batch(distinct.by_rank.view().distinct, distinct.padded);
        by_rank.groups = distinct.by_rank.view().groups;
        auto const rows_of_whole = [&](std::int64_t key) { return batch.whole_view().rows(key); };
        auto const out = ranks_source_messages(batch.whole_view(), rows_of_whole),
                   gradients = ranks_source_messages(batch.whole_view(), rows_of_whole);
        auto const padded = [&](std::int64_t) { return distinct.padded; };
        auto const given = ranks_source_messages(distinct.by_rank.view().distinct, padded);  // of sequences those of distinct rows
        auto sent = ranks_source_messages(batch.view(), padded);
        std::vector<std::int64_t> counts;
        for (std::int64_t key = 0; key < batch.view().keys; ++key)
          counts.push_back(ranks_source_sequences[key % 6] ? batch.view().key(key).size() : batch.view().rows(key));
        tessera::local_tables_saved saved, saved_by_rank;
        whole.begin(one, view, saved);
        source.begin(exec, by_rank, saved_by_rank);
        whole.finish(one, saved, out.out());
        source.finish(exec, saved_by_rank, given.out());
        sent.take(random_vectors(random, gradients), counts);
        whole.begin_backward(one, saved, gradients.in());
        source.begin_backward(exec, saved_by_rank, sent.in());
        whole.finish_backward(one, saved);
        source.finish_backward(exec, saved_by_rank);
        CHECK(same_ranks_sources(source, whole, true));
      }
    }
  });
}

TEST_CASE("source ranks that do not fit are refused by name, and nothing is saved then") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto tables = make_tables<tessera::dense_table<>>(exec, tables_of_dims({2, 2}, 9), tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}}}, {"b", {{2}}}, {"c", {{3}, {4}}}, {"d", {{5}, {6}}}});
  auto const view = batch.view();
  std::vector<float> memory(12);
  std::vector<tessera::matrix_view<float>> const out{
      {memory.data(), 1, 2}, {memory.data() + 2, 1, 2}, {memory.data() + 4, 2, 2}, {memory.data() + 8, 2, 2}};
  std::vector<tessera::matrix_view<float const>> const gradients(out.begin(), out.end());
  std::vector<tessera::pooled_feature> const features{{0}, {1}, {0}, {1}}, swapped{{0}, {1}, {1}, {0}};
  std::vector<std::int64_t> const of_sequences{0, 1, 0, 1};
  tessera::lookup_saved saved;
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };

  for (std::int64_t const ranks : {-1, 0, 3, 8}) {
    auto const told = ": as many keys a source rank (keys 4, source ranks " + std::to_string(ranks) + ")";
    tessera::lookup_options const options{.source_ranks = ranks};
    tessera::row_order order;
    CHECK(refusal([&] { tessera::pooled_lookup(exec, tables, features, view, out, saved, options); }) == "pooled_lookup" + told);
    CHECK(saved.batch.keys == 0);
    CHECK(refusal([&] { tessera::pooled_lookup(exec, std::as_const(tables), features, view, out, options); }) == "pooled_lookup" + told);
    CHECK(refusal([&] { tessera::sequence_lookup(exec, tables, of_sequences, view, out, saved, options); }) == "sequence_lookup" + told);
    CHECK(refusal([&] { tessera::prepare_backward(exec, tables, features, view, order, options); }) == "prepare_backward" + told);
  }
  CHECK(refusal([&] { tessera::pooled_lookup(exec, tables, swapped, view, out, saved, {.source_ranks = 2}); }) ==
        "pooled_lookup: source ranks that read other tables (feature 2, table 1, table of the first rank 0, source ranks 2)");
  tessera::pooled_lookup(exec, tables, swapped, view, out, saved);  // one rank
  CHECK(saved.source_ranks == 1);

  tessera::pooled_lookup(exec, tables, features, view, out, saved, {.source_ranks = 2});
  CHECK(refusal([&] { tessera::pooled_lookup_backward(exec, tables, swapped, saved, gradients, tessera::sgd{}); }) ==
        "pooled_lookup_backward: source ranks that read other tables (feature 2, table 1, table of the first rank 0, source ranks 2)");
  saved.clear();
  CHECK(saved.source_ranks == 1);

  std::vector<tessera::table_feature> const three{{.name = "a", .table = 0}, {.name = "b", .table = 0}, {.name = "c", .table = 0}};
  CHECK(refusal([&] {
          tessera::table_list list;
          list.add(tessera::dense_table<>(exec, tables_of_dims({2}, 9)[0], tessera::sgd{}), tessera::sgd{});
          tessera::local_tables(std::move(list), three, {.lookup = {.source_ranks = 2}});
        }) == "local_tables: as many keys a source rank (keys 3, source ranks 2)");
}

TEST_CASE("source ranks: an order that was prepared ahead is that of as many ranks") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto whole = ranks_tables<tessera::dense_table<>>(exec), tables = ranks_tables<tessera::dense_table<>>(exec);
  auto const batch = [&] {
    for (;;)
      if (auto drawn = draw_ranks(exec, random, 3, ranks_shape_of(false)); drawn.samples(0) > 30 && drawn.samples(1) > 30) return drawn;
  }();
  auto const read = of_ranks(ranks_sums, 3);
  tessera::lookup_options const options{.source_ranks = 3};
  auto const out = whole_vectors(batch.whole_view()), gradients = whole_vectors(batch.whole_view());
  auto messages = pooled_messages(batch.view());
  tessera::lookup_saved saved, saved_by_rank;
  tessera::row_order order;
  tessera::prepare_backward(exec, tables, read, batch.view(), order, options);
  tessera::pooled_lookup(exec, whole, ranks_sums, batch.whole_view(), out.out(), saved);
  tessera::pooled_lookup(exec, tables, read, batch.view(), messages.out(), saved_by_rank, options);
  std::swap(order, saved_by_rank.order);
  messages.take(random_vectors(random, gradients));
  tessera::pooled_lookup_backward(exec, whole, ranks_sums, saved, gradients.in(), ranks_optimizer);
  tessera::pooled_lookup_backward(exec, tables, read, saved_by_rank, messages.in(), ranks_optimizer);
  CHECK(same_stores(tables, whole));
  if constexpr (tessera::checked) {
    tessera::prepare_backward(exec, tables, read, batch.view(), saved_by_rank.order);  // of one rank
    CHECK(tessera_tests::error_of([&] {
            tessera::pooled_lookup_backward(exec, tables, read, saved_by_rank, messages.in(), ranks_optimizer);
          }).code() == tessera::errc::invalid_argument);
  }
}
