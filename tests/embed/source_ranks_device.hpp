// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/deduplicated_lookup_backward.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.cuh>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/sequence_lookup_backward.cuh>

#include "bucket_lookup_device.hpp"
#include "device_tables.hpp"
#include "hosts.hpp"
#include "local_tables_device.hpp"
#include "source_ranks_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

/// Tables of a process that has all samples, on the host, beside those of a device that gets them rank by rank.
template <class HostStore, class Store, class Exec>
class rank_twins {
 public:
  explicit rank_twins(Exec const& exec) : exec_(exec), tables_(make_tables<HostStore>(host_.exec(), ranks_options(), ranks_optimizer)) {
    for (auto const& options : ranks_options()) device_tables_.emplace_back(exec, options, ranks_optimizer);
  }

  tessera::host_exec host() { return host_.exec(); }
  auto& device_tables() { return device_tables_; }
  bool same() {
    if constexpr (Store::slots_are_ids)
      return same_tables(exec_, tables_, device_tables_);
    else
      return same_rows(exec_, tables_, device_tables_);
  }

  void pooled_step(std::mt19937_64& random, ranks_batch const& batch, bool prepared, bool handed) {
    auto const there = device_batch<Exec>::copy_of(exec_, batch.by_rank);
    auto const read = of_ranks(ranks_sums, batch.ranks());
    tessera::lookup_options const options{.source_ranks = batch.ranks()};
    auto const expected = whole_vectors(batch.whole_view()), gradients = whole_vectors(batch.whole_view());
    auto messages = pooled_messages(batch.view());
    device_matrices<Exec> evaluated(exec_, messages.out(), 1), trained(exec_, messages.out(), 0);
    tessera::lookup_saved saved;
    tessera::basic_lookup_saved<Exec> device_saved;
    tessera::pooled_lookup(host(), tables_, ranks_sums, batch.whole_view(), expected.out(), saved);
    tessera::pooled_lookup(exec_, std::as_const(device_tables_), read, there.view(), evaluated.out(), options);
    tessera::pooled_lookup(exec_, device_tables_, read, there.view(), trained.out(), device_saved, options);
    messages.take(expected.in());
    CHECK(same_bits(evaluated.values(), messages.values()));
    CHECK(same_bits(trained.values(), messages.values()));
    messages.take(random_vectors(random, gradients));
    device_matrices<Exec> const sent(exec_, messages.out(), 3);
    if (prepared) tessera::prepare_backward(exec_, device_tables_, tessera::vector_view<tessera::pooled_feature const>(read), device_saved);
    if (handed) check_handed(read, gradients, saved, device_saved, sent);
    tessera::pooled_lookup_backward(host(), tables_, ranks_sums, saved, gradients.in(), ranks_optimizer);
    tessera::pooled_lookup_backward(exec_, device_tables_, read, device_saved, sent.in(), ranks_optimizer);
    CHECK(same());
  }

  void sequence_step(std::mt19937_64& random, ranks_batch const& batch) {
    auto const there = device_batch<Exec>::copy_of(exec_, batch.by_rank);
    auto const read = of_ranks(ranks_sequences, batch.ranks());
    auto const expected = sequence_messages(batch.whole_view()), gradients = sequence_messages(batch.whole_view());
    auto messages = sequence_messages(batch.view());
    device_matrices<Exec> trained(exec_, messages.out(), 0);
    tessera::lookup_saved saved;
    tessera::basic_lookup_saved<Exec> device_saved;
    tessera::sequence_lookup(host(), tables_, ranks_sequences, batch.whole_view(), expected.out(), saved);
    tessera::sequence_lookup(exec_, device_tables_, read, there.view(), trained.out(), device_saved, {.source_ranks = batch.ranks()});
    messages.take(expected.in());
    CHECK(same_bits(trained.values(), messages.values()));
    messages.take(random_vectors(random, gradients));
    device_matrices<Exec> const sent(exec_, messages.out(), 0);
    tessera::sequence_lookup_backward(host(), tables_, ranks_sequences, saved, gradients.in(), ranks_optimizer);
    tessera::sequence_lookup_backward(exec_, device_tables_, read, device_saved, sent.in(), ranks_optimizer);
    CHECK(same());
  }

  /// Expanded sums are those of all samples. Merged ones are those of all distinct rows, which are in one group.
  void distinct_step(std::mt19937_64& random, ranks_batch const& batch, tessera::shared_gradients sums) {
    auto const distinct = distinct_of(host(), batch, {batch.keys()});
    auto const there = tessera::inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec_, distinct.by_rank);
    auto const read = of_ranks(ranks_sums, batch.ranks());
    std::vector<std::int64_t> samples;
    for (std::int64_t key = 0; key < batch.view().keys; ++key) samples.push_back(batch.view().rows(key));
    auto const expected = whole_vectors(batch.whole_view()), gradients = whole_vectors(batch.whole_view());
    rank_messages messages(dims_of_keys(), batch.ranks(), true, [&](std::int64_t) { return distinct.padded; });
    device_matrices<Exec> trained(exec_, messages.out(), 0);
    tessera::deduplicated_backward_options const how{.sums = sums};
    tessera::deduplicated_saved saved;
    tessera::basic_deduplicated_saved<Exec> device_saved;
    tessera::deduplicated_lookup(host(), tables_, ranks_sums, distinct.whole.view(), expected.out(), saved);
    tessera::deduplicated_lookup(exec_, device_tables_, read, there.view(), trained.out(), device_saved, {.source_ranks = batch.ranks()});
    messages.take(expected.in(), samples, 0.0F);
    CHECK(same_bits(trained.values(), messages.values()));
    messages.take(random_vectors(random, gradients), samples, 1.0F);
    device_matrices<Exec> const sent(exec_, messages.out(), 0);
    tessera::deduplicated_lookup_backward(host(), tables_, ranks_sums, saved, gradients.in(), ranks_optimizer, how);
    tessera::deduplicated_lookup_backward(exec_, device_tables_, read, device_saved, sent.in(), ranks_optimizer, how);
    CHECK(same());
  }

 private:
  // Slots of a bucket table are its own.
  void check_handed(std::vector<tessera::pooled_feature> const& read, rank_messages const& gradients, tessera::lookup_saved const& saved,
                    tessera::basic_lookup_saved<Exec> const& device_saved, device_matrices<Exec> const& sent) {
    if constexpr (Store::slots_are_ids) {
      tessera::row_gradients sums;
      tessera::basic_row_gradients<Exec> device_sums;
      tessera::pooled_lookup_gradients(host(), tables_, ranks_sums, saved, gradients.in(), sums);
      tessera::pooled_lookup_gradients(exec_, device_tables_, read, device_saved, sent.in(), device_sums);
      check_same_gradients(exec_, device_sums, sums);
    }
  }

  Exec exec_;
  tessera_tests::serial_host host_;
  std::vector<HostStore> tables_;
  std::vector<Store> device_tables_;
};

/// Updates of a device that gets ranks' samples have the bits of a host that has them as one batch.
template <class HostStore, class Store, class Exec>
void source_ranks_device_suite(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  rank_twins<HostStore, Store, Exec> pooled(exec), sequences(exec), expanded(exec), merged(exec);
  for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
    CAPTURE(ranks);
    for (bool const weighted : {false, true}) {
      CAPTURE(weighted);
      auto shape = ranks_shape_of(weighted);
      shape.most_samples = 20;
      auto const batch = draw_ranks(pooled.host(), random, ranks, shape);
      pooled.pooled_step(random, batch, ranks == 3, ranks % 2 == 0);
      sequences.sequence_step(random, batch);
      expanded.distinct_step(random, batch, tessera::shared_gradients::expanded);
      merged.distinct_step(random, batch, tessera::shared_gradients::merged);
    }
  }
  auto crowded = ranks_shape_of(false);  // rows of several chunks
  crowded.id_range = 2;
  crowded.most_samples = 80;
  crowded.mean_length = 20;
  pooled.pooled_step(random, draw_ranks(pooled.host(), random, 4, crowded), false, true);

  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  auto const batch = draw_ranks(pooled.host(), random, 3, ranks_shape_of(false));
  auto const there = device_batch<Exec>::copy_of(exec, batch.by_rank);
  device_matrices<Exec> const out(exec, pooled_messages(batch.view()).out(), 0);
  tessera::basic_lookup_saved<Exec> saved;
  CHECK(refusal([&] {
          tessera::pooled_lookup(exec, pooled.device_tables(), of_ranks(ranks_sums, 3), there.view(), out.out(), saved,
                                 {.source_ranks = 4});
        }) == "pooled_lookup: as many keys a source rank (keys 18, source ranks 4)");
}

/// Sources of three kinds of tables, whose keys do not follow each other: on a device, of several ranks, and on the host of one.
template <class Exec>
void source_ranks_device_tables(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  for (auto const sums : {tessera::shared_gradients::merged, tessera::shared_gradients::expanded})
    for (std::int64_t const ranks : {1, 2, 5}) {
      CAPTURE(static_cast<int>(sums));
      CAPTURE(ranks);
      auto problem = problem_of_kinds(sums);
      auto whole = host_source_of_kinds(host.exec(), problem);
      auto const of_rank = problem.features;
      auto const features = static_cast<std::int64_t>(of_rank.size());
      problem.features = of_ranks(of_rank, ranks);
      auto source = device_source_of_kinds(exec, problem, ranks);
      std::vector<std::int64_t> dims;
      for (auto const& feature : of_rank) dims.push_back(problem.tables[static_cast<std::size_t>(feature.table)].dim);
      auto const is_sequence = [&](std::int64_t key) { return of_rank[static_cast<std::size_t>(key % features)].sequence; };
      for (int step = 0; step < 4; ++step) {
        CAPTURE(step);
        bool const grouped = sums == tessera::shared_gradients::expanded && step % 2 == 1;
        auto const batch =
            draw_ranks(host.exec(), random, ranks,
                       {.keys = features, .id_range = source_ids, .most_samples = 15, .mean_length = 3, .weighted = step == 2});
        auto const distinct = distinct_of(host.exec(), batch, {2, features - 2});
        auto const rows_there = device_batch<Exec>::copy_of(exec, batch.by_rank);
        auto const distinct_there = tessera::inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec, distinct.by_rank);
        tessera::batch_view view{}, by_rank{};
        view.dense = {nullptr, batch.whole_view().rows(0), 0};
        view.sparse = batch.whole_view();
        by_rank.dense = {nullptr, grouped ? distinct.padded : ranks == 1 ? batch.samples(0) : 0, 0};
        by_rank.sparse = grouped ? std::as_const(distinct_there).view().distinct : std::as_const(rows_there).view();
        if (grouped) by_rank.groups = std::as_const(distinct_there).view().groups;

        auto const vectors_of = [&](sparse_view sparse, std::int64_t of_ranks, auto const& rows_of) {
          return rank_messages(dims, of_ranks, false,
                               [&](std::int64_t key) { return is_sequence(key) ? sparse.key(key).size() : rows_of(sparse, key); });
        };
        auto const own_rows = [](sparse_view sparse, std::int64_t key) { return sparse.rows(key); };
        auto const all_rows = [&](sparse_view sparse, std::int64_t key) { return grouped ? distinct.padded : sparse.rows(key); };
        auto const out = vectors_of(batch.whole_view(), 1, own_rows), gradients = vectors_of(batch.whole_view(), 1, own_rows);
        auto sent = vectors_of(batch.view(), ranks, all_rows);
        device_matrices<Exec> given(exec, vectors_of(grouped ? distinct.by_rank.view().distinct : batch.view(), ranks, all_rows).out(), 0);
        std::vector<std::int64_t> counts;
        for (std::int64_t key = 0; key < batch.view().keys; ++key)
          counts.push_back(is_sequence(key) ? batch.view().key(key).size() : batch.view().rows(key));
        tessera::local_tables_saved saved;
        tessera::device_tables_saved<Exec> device_saved;
        whole.begin(host.exec(), view, saved);
        whole.finish(host.exec(), saved, out.out());
        source.begin(exec, by_rank, device_saved);
        source.finish(exec, device_saved, given.out());
        if (!grouped) {
          sent.take(out.in());
          CHECK(same_bits(given.values(), sent.values()));
        }
        sent.take(random_vectors(random, gradients), counts, 1.0F);
        device_matrices<Exec> const sent_there(exec, sent.out(), 0);
        whole.begin_backward(host.exec(), saved, gradients.in());
        source.begin_backward(exec, device_saved, sent_there.in());
        whole.finish_backward(host.exec(), saved);
        source.finish_backward(exec, device_saved);
        CHECK(same_parts(whole.parts(), source.parts()));
      }
    }
}

}  // namespace embed_tests
