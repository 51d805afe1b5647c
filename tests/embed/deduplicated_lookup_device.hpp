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
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/update_rows.hpp>
#include <tessera/tensor/deduplicate.cuh>

#include "bucket_lookup_device.hpp"
#include "device_tables.hpp"
#include "hosts.hpp"
#include "pooled_problem.hpp"
#include "temporary_folder.hpp"

namespace embed_tests {

using inverse_view = tessera::inverse_keyed_jagged_view<std::int64_t const>;

/// Samples in sessions: the first four keys, in pairs, keep their rows for some samples.
inline tessera::keyed_jagged<> paired_sessions(tessera::host_exec const& exec, std::mt19937_64& random, std::size_t keys,
                                               std::size_t samples, bool weighted) {
  std::vector<bool> changes(2 * samples);
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] = i < 2 || random() % 4 == 0;
  std::vector<tessera::feature_rows<>> features;
  for (std::size_t key = 0; key < keys; ++key) {
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::vector<float>> weights;
    for (std::size_t i = 0; i < samples; ++i) {
      bool const stays = key < 4 && !changes[2 * i + key / 2];
      rows.push_back(stays ? rows.back() : tessera_tests::random_integers<std::int64_t>(random, random() % 6, 0, 29));
      if (weighted) weights.push_back(stays ? weights.back() : tessera_tests::random_floats(random, rows.back().size()));
    }
    features.emplace_back("key" + std::to_string(key), std::move(rows), std::move(weights));
  }
  return tessera::keyed_jagged<>::from_rows(exec, features);
}

/// Tables of a host and of a device, trained side by side by lookups in IKJTs.
template <class HostStore, class Store, class Exec>
class deduplicated_twins {
 public:
  static constexpr std::int64_t table_rows = 200;
  static constexpr bool waits_counted = requires(Exec e) { e.device().waits; };

  deduplicated_twins(Exec const& exec, std::vector<std::int64_t> const& dims, std::vector<tessera::pooled_feature> features)
      : exec_(exec),
        options_(tables_of_dims(dims, table_rows)),
        features_(std::move(features)),
        tables_(make_tables<HostStore>(host_.exec(), options_, optimizer_)) {
    for (auto const& o : options_) device_tables_.emplace_back(exec, o, optimizer_);
  }

  tessera::host_exec host() { return host_.exec(); }
  auto const& options() const { return options_; }
  auto const& features() const { return features_; }
  auto& device_tables() { return device_tables_; }

  /// An evaluation and a step with gradients of no pattern. `samples`: the expanded batch; `handed`: by gradients handed out.
  void step(std::mt19937_64& random, sparse_view samples, inverse_view batch, inverse_view there, tessera::shared_gradients sums,
            bool handed, std::int64_t gap) {
    step(random_gradients(random, options_, features_, samples), samples, batch, there, sums, handed, gap);
  }
  void step(pooled_matrices const& gradients, sparse_view samples, inverse_view batch, inverse_view there, tessera::shared_gradients sums,
            bool handed, std::int64_t gap) {
    pooled_matrices expected(options_, features_, samples);
    device_matrices<Exec> evaluated(exec_, expected.out(), gap), trained(exec_, expected.out(), gap),
        gradients_there(exec_, gradients.out(), gap);
    tessera::deduplicated_lookup(host(), std::as_const(tables_), features_, batch, expected.out());
    tessera::deduplicated_lookup(exec_, std::as_const(device_tables_), features_, there, evaluated.out());
    if (faultless_) CHECK(same_bits(evaluated.values(), expected.values()));
    tessera::deduplicated_saved saved;
    tessera::basic_deduplicated_saved<Exec> saved_there;
    tessera::deduplicated_lookup(host(), tables_, features_, batch, expected.out(), saved);
    tessera::deduplicated_lookup(exec_, device_tables_, features_, there, trained.out(), saved_there);
    if (faultless_) CHECK(same_bits(trained.values(), expected.values()));
    tessera::deduplicated_backward_options const how{.sums = sums};
    if (!handed) {
      tessera::deduplicated_lookup_backward(host(), tables_, features_, saved, gradients.in(), optimizer_, how);
      tessera::deduplicated_lookup_backward(exec_, device_tables_, features_, saved_there, gradients_there.in(), optimizer_, how);
    } else {
      tessera::row_gradients summed;
      tessera::basic_row_gradients<Exec> summed_there;
      tessera::deduplicated_lookup_gradients(host(), tables_, features_, saved, gradients.in(), summed, how);
      tessera::deduplicated_lookup_gradients(exec_, device_tables_, features_, saved_there, gradients_there.in(), summed_there, how);
      if constexpr (Store::slots_are_ids) check_same_gradients(exec_, summed_there, summed);
      tessera::update_rows(host(), tables_, summed, optimizer_);
      tessera::update_rows(exec_, device_tables_, summed_there, optimizer_);
    }
  }
  bool same() {
    if constexpr (Store::slots_are_ids)
      return same_tables(exec_, tables_, device_tables_);
    else
      return same_rows(exec_, tables_, device_tables_);
  }
  /// From here on the device tells faults when it is waited for, so nothing is read in between.
  void expect_faults(bool expected) { faultless_ = !expected; }

  /// How often the host waits for the device in an evaluation, a training lookup, backwards with merged and with expanded sums, and gradients
  /// handed out merged.
  std::vector<std::int64_t> waits(sparse_view samples, inverse_view there) requires waits_counted {
    pooled_matrices zeros(options_, features_, samples);
    zeros.fill([] { return 0.0F; });
    device_matrices<Exec> out(exec_, zeros.out(), 0);
    std::vector<std::int64_t> result;
    auto const count = [&](auto const& call) {
      auto const before = exec_.device().waits;
      call();
      result.push_back(exec_.device().waits - before);
    };
    tessera::basic_deduplicated_saved<Exec> saved;
    tessera::basic_row_gradients<Exec> summed;
    count([&] { tessera::deduplicated_lookup(exec_, std::as_const(device_tables_), features_, there, out.out()); });
    count([&] { tessera::deduplicated_lookup(exec_, device_tables_, features_, there, out.out(), saved); });
    for (auto const sums : {tessera::shared_gradients::merged, tessera::shared_gradients::expanded})
      count([&] { tessera::deduplicated_lookup_backward(exec_, device_tables_, features_, saved, out.in(), optimizer_, {.sums = sums}); });
    count([&] { tessera::deduplicated_lookup_gradients(exec_, device_tables_, features_, saved, out.in(), summed); });
    return result;
  }

 private:
  Exec exec_;
  tessera_tests::serial_host host_;
  tessera::rowwise_adagrad optimizer_{.learning_rate = 0.1F};
  std::vector<tessera::table_options> options_;
  std::vector<tessera::pooled_feature> features_;
  std::vector<HostStore> tables_;
  std::vector<Store> device_tables_;
  bool faultless_ = true;
};

/// A table a key but for the fifth, which shares the first's.
inline std::vector<tessera::pooled_feature> const paired_features{{0, tessera::pooling::sum},  {1, tessera::pooling::mean},
                                                                  {2, tessera::pooling::sum},  {3, tessera::pooling::sum},
                                                                  {0, tessera::pooling::mean}, {4, tessera::pooling::sum}};

/// Steps on a device leave the bits of the host's, whatever the groups, and in whichever order sums are.
template <class HostStore, class Store, class Exec>
void deduplicated_lookup_device_suite(Exec const& exec) {
  using tessera::shared_gradients;
  using device_inverse = tessera::inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  using twins_type = deduplicated_twins<HostStore, Store, Exec>;
  std::vector<std::int64_t> const dims{64, 7, 16, 1030, 4};

  for (bool const handed : {false, true})
    for (auto const sums : {shared_gradients::merged, shared_gradients::expanded})
      for (auto const& keys_per_group : std::vector<std::vector<std::int64_t>>{{}, {2, 2}, {2, 2, 1, 1}}) {
        CAPTURE(handed);
        CAPTURE(static_cast<int>(sums));
        CAPTURE(keys_per_group.size());
        twins_type twins(exec, dims, paired_features);
        for (int step = 0; step < 4; ++step) {
          CAPTURE(step);
          auto const samples = paired_sessions(twins.host(), random, paired_features.size(), step == 2 ? 0 : 30, step % 2 == 1);
          auto const batch = tessera::deduplicate(twins.host(), samples.view(), keys_per_group);
          auto const samples_there = device_batch<Exec>::copy_of(exec, samples);
          auto const there =
              step < 2 ? device_inverse::copy_of(exec, batch) : tessera::deduplicate(exec, samples_there.view(), keys_per_group);
          twins.step(random, samples.view(), batch.view(), there.view(), sums, handed, step == 0 ? 0 : 3);
          CHECK(twins.same());
        }
      }
  for (auto const sums : {shared_gradients::merged, shared_gradients::expanded}) {  // some keys, whose values begin behind others'
    CAPTURE(static_cast<int>(sums));
    std::vector<tessera::pooled_feature> const some(paired_features.begin() + 2, paired_features.begin() + 5);
    twins_type twins(exec, dims, some);
    for (int step = 0; step < 2; ++step) {
      auto const samples = paired_sessions(twins.host(), random, paired_features.size(), 20, step == 1);
      auto const batch = tessera::deduplicate(twins.host(), samples.view(), std::vector<std::int64_t>{2, 2});
      auto const there = device_inverse::copy_of(exec, batch);
      auto const part_of = [](inverse_view whole, tessera::row_group& group) {
        group = {0, 2, whole.groups[1].inverse};
        return inverse_view{whole.distinct.slice_keys(2, 3), {&group, 1}, whole.samples};
      };
      tessera::row_group group, group_there;
      twins.step(random, std::as_const(samples).view().slice_keys(2, 3), part_of(batch.view(), group), part_of(there.view(), group_there),
                 sums, false, 0);
      CHECK(twins.same());
    }
  }
}

/// What a device is told wrong, and how often it is waited for.
template <class Exec>
void deduplicated_lookup_device_edges(Exec const& exec) {
  using tessera::shared_gradients;
  using device_inverse = tessera::inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>;
  using dense_twins = deduplicated_twins<tessera::dense_table<>, tessera::dense_table<float, Exec>, Exec>;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const refusal = [](auto const& call) { return std::string(tessera_tests::error_of(call).what()); };
  tessera_tests::serial_host host;
  auto const samples = tessera::keyed_jagged<>::from_rows(
      host.exec(), {{"a", {{1, 2}, {1, 2}, {3}, {1, 2}}}, {"b", {{5}, {5}, {}, {5}}}, {"c", {{1}, {}, {2, 2}, {3}}}});
  auto const batch = tessera::deduplicate(host.exec(), samples, std::vector<std::int64_t>{2});
  auto const there = device_inverse::copy_of(exec, batch);
  std::vector<tessera::pooled_feature> const features{{0}, {1, tessera::pooling::mean}, {0}};

  SUBCASE("an inverse that names no row is told; its sample gets zeros, and gives no gradient") {
    for (auto const sums : {shared_gradients::merged, shared_gradients::expanded})
      for (std::int64_t const wrong : {-1, 2}) {
        CAPTURE(static_cast<int>(sums));
        CAPTURE(wrong);
        dense_twins twins(exec, {8, 3}, features);
        auto const inverse = tessera_tests::put(exec, std::vector<std::int64_t>{0, wrong, 1, 0});
        tessera::row_group const group{0, 2, inverse.data()};
        inverse_view view = there.view();
        view.groups = {&group, 1};
        auto const told = "gather_vectors: no such row (position 1, index " + std::to_string(wrong) + ", rows 2)";

        pooled_matrices like(twins.options(), features, samples.view());
        device_matrices<Exec> const out(exec, like.out(), 0);
        tessera::deduplicated_lookup(exec, std::as_const(twins.device_tables()), features, view, out.out());
        CHECK(refusal([&] { exec.synchronize(); }) == told);
        auto const values = out.values();  // four vectors of 8, four of 3, four of 8
        for (std::size_t i = 0; i < 44; ++i)
          if ((i >= 8 && i < 16) || (i >= 35 && i < 38)) CHECK(values[i] == 0.0F);
        CHECK_FALSE(values[0] == 0.0F);

        auto gradients = random_gradients(random, twins.options(), features, samples.view());
        for (std::size_t key = 0; key < 2; ++key) std::fill_n(gradients.out()[key].row(1), gradients.out()[key].columns(), 0.0F);
        twins.expect_faults(true);
        twins.step(gradients, samples.view(), batch.view(), view, sums, false, 0);
        CHECK(refusal([&] { exec.synchronize(); }) == told);
        CHECK(twins.same());
      }
  }
  SUBCASE("matrices that do not fit and maxima are refused at once, and nothing is saved then") {
    dense_twins twins(exec, {8, 3}, features);
    pooled_matrices const like(twins.options(), features, samples.view());
    device_matrices<Exec> const out(exec, like.out(), 0);
    auto few = out.out();
    few[1] = few[1].rows_from(0, 2);
    tessera::basic_deduplicated_saved<Exec> saved;
    CHECK(refusal([&] { tessera::deduplicated_lookup(exec, twins.device_tables(), features, there.view(), few, saved); }) ==
          "deduplicated_lookup: a row a sample (feature 1, rows 2, samples 4)");
    auto maxima = features;
    maxima[2].pooling = tessera::pooling::max;
    CHECK(refusal([&] { tessera::deduplicated_lookup(exec, twins.device_tables(), maxima, there.view(), out.out(), saved); }) ==
          "pooled_lookup: a maximum is of an unweighted batch, on the host (feature 2, weighted 0)");
    CHECK(refusal([&] {
            tessera::deduplicated_lookup_backward(exec, twins.device_tables(), features, saved, out.in(), tessera::rowwise_adagrad{});
          }) == "pooled_lookup_backward: nothing is saved: no lookup went before, or it threw (keys 0, features 3)");
  }
  SUBCASE("what waits") {
    if constexpr (dense_twins::waits_counted) {
      dense_twins twins(exec, {8, 3}, features);
      CHECK(twins.waits(samples.view(), there.view()) == std::vector<std::int64_t>{0, 0, 0, 1, 1});
      deduplicated_twins<tessera::hash_table<>, tessera::bucket_table<float, Exec>, Exec> hashed(exec, {8, 3}, features);
      CHECK(hashed.waits(samples.view(), there.view()) == std::vector<std::int64_t>{0, 0, 0, 2, 1});
    }
  }
}

}  // namespace embed_tests
