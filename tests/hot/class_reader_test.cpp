// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/hot/class_reader.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include <tessera/core/background_thread.hpp>
#include <tessera/data/memory_log.hpp>
#include <tessera/data/picked_samples.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/data/sample_reader.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

using tessera::batch_class;
using tessera_tests::error_of;

namespace class_reader_test {

namespace {

// A log whose samples are told by their label: hot ones count up from 1, cold ones down from -1.
struct two_classes {
  tessera::sample_columns columns;
  std::optional<tessera::memory_log> log;
  tessera::sample_classes classes;

  two_classes(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t samples, double hot_share)
      : columns(tessera::sample_schema{.label = "label", .session = "session"}), classes(samples) {
    columns.resize(exec, samples);
    float hot = 0, cold = 0;
    for (std::int64_t i = 0; i < samples; ++i) {
      bool const is_hot = std::bernoulli_distribution(hot_share)(random);
      if (is_hot) classes.set_hot(i);
      columns.labels()[i] = is_hot ? ++hot : --cold;
      columns.sessions()[i] = i / 3;
    }
    log.emplace(tessera::sample_schema{.label = "label", .session = "session"}, columns.view(), 17);
  }
};

struct seen_batch {
  std::vector<float> labels;
  batch_class kind;
  std::int64_t id, epoch;
  bool ends;

  friend bool operator==(seen_batch const&, seen_batch const&) = default;
};

// Everything of the next batch; nothing at the end of an epoch.
template <class Reader>
std::optional<seen_batch> seen_of(tessera::host_exec const& exec, Reader& reader) {
  tessera::batch_view batch;
  if (!reader.next(exec, batch)) return std::nullopt;
  return seen_batch{{batch.labels.begin(), batch.labels.end()}, batch.kind, batch.id, batch.epoch, reader.class_ends()};
}

using reader_type = tessera::sample_reader<tessera::picked_samples<tessera::memory_log>>;

// Runs of one class in the order of an epoch: class and batches.
std::vector<std::pair<batch_class, std::int64_t>> runs_of(std::vector<seen_batch> const& epoch) {
  std::vector<std::pair<batch_class, std::int64_t>> runs;
  for (auto const& batch : epoch) {
    if (runs.empty() || runs.back().first != batch.kind) runs.emplace_back(batch.kind, 0);
    ++runs.back().second;
  }
  return runs;
}

}  // namespace

TEST_CASE("loss_schedule: halves when the loss rose, doubles when it fell four times running, within 1 and 100 %") {
  tessera::loss_schedule schedule;
  auto const rates = [&](std::vector<double> const& losses) {
    std::vector<double> all;
    for (auto const loss : losses) {
      schedule.tell_loss(loss);
      all.push_back(schedule.percent());
    }
    return all;
  };
  using list = std::vector<double>;
  CHECK(schedule.percent() == 50);
  CHECK(rates({0.7, 0.6, 0.5, 0.4}) == list{50, 50, 50, 50});  // the first loss has none before it
  CHECK(rates({0.3}) == list{100});
  CHECK(rates({0.2, 0.1, 0.05, 0.04}) == list{100, 100, 100, 100});
  CHECK(rates({0.05, 0.06, 0.07}) == list{50, 25, 12.5});
  CHECK(rates({0.07, 0.06, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01}) == list{12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 12.5, 25});
  CHECK(rates({std::nan(""), 0.02, std::nan("")}) == list{25, 12.5, 12.5});
  CHECK(rates({1, 2, 3, 4, 5, 6}) == list{6.25, 3.125, 1.5625, 1, 1, 1});
  auto const kept = schedule.state();
  CHECK(rates({5, 4, 3, 2}) == list{1, 1, 1, 2});
  schedule.restore(kept);
  CHECK(rates({5, 4, 3, 2}) == list{1, 1, 1, 2});

  tessera::loss_schedule fast({.percent = 30, .falls = 1});
  fast.tell_loss(2);
  fast.tell_loss(1);
  CHECK(fast.percent() == 60);
  for (double const percent : {0.0, -1.0, 100.5, std::nan("")}) {
    CHECK(error_of([&] { tessera::loss_schedule({.percent = percent}); }).code() == tessera::errc::invalid_argument);
    CHECK(error_of([&] { tessera::fixed_schedule const none(percent); }).code() == tessera::errc::invalid_argument);
  }
  CHECK(error_of([&] { tessera::loss_schedule({.falls = 0}); }).code() == tessera::errc::invalid_argument);
  CHECK(error_of([&] { schedule.restore({.percent = 0}); }).code() == tessera::errc::incompatible);
  CHECK(error_of([&] { schedule.restore({.fell = 4}); }).code() == tessera::errc::incompatible);
}

TEST_CASE("class_reader: runs of the rate's share of each class, cold ones first") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  two_classes const data(exec, random, 400, 0.7);
  tessera::picked_samples const hot_log(*data.log, data.classes, batch_class::hot), cold_log(*data.log, data.classes, batch_class::cold);
  for (double const percent : {1.0, 10.0, 30.0, 50.0, 99.0, 100.0}) {
    CAPTURE(percent);
    reader_type hots(exec, hot_log, {.batch_size = 8}), colds(exec, cold_log, {.batch_size = 8});
    tessera::class_reader reader(hots, colds, tessera::fixed_schedule(percent));
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<seen_batch> seen;
      while (auto batch = seen_of(exec, reader)) seen.push_back(*batch);
      CHECK(static_cast<std::int64_t>(seen.size()) == reader.epoch_batches());
      auto hot_left = hots.epoch_batches(), cold_left = colds.epoch_batches();
      auto const share = [&](std::int64_t all) { return static_cast<std::int64_t>(std::ceil(percent * static_cast<double>(all) / 100)); };
      std::vector<std::pair<batch_class, std::int64_t>> expected;
      for (bool is_hot = false; hot_left + cold_left > 0; is_hot = !is_hot) {
        auto& left = is_hot ? hot_left : cold_left;
        auto const n = std::min(left, share(is_hot ? hots.epoch_batches() : colds.epoch_batches()));
        left -= n;
        if (n == 0) continue;
        if (expected.empty() || expected.back().first != (is_hot ? batch_class::hot : batch_class::cold))
          expected.emplace_back(is_hot ? batch_class::hot : batch_class::cold, 0);
        expected.back().second += n;
      }
      CHECK(runs_of(seen) == expected);
      for (std::size_t b = 0; b < seen.size(); ++b) CHECK(seen[b].ends == (b + 1 == seen.size() || seen[b + 1].kind != seen[b].kind));
    }
  }
}

TEST_CASE("class_reader: each sample once an epoch, classes pure; resumed anywhere it gives the same") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host, of_hot, of_cold;
  auto const exec = host.exec();
  for (double const hot_share : {0.6, 0.0, 1.0}) {
    CAPTURE(hot_share);
    two_classes const data(exec, random, 200, hot_share);
    tessera::picked_samples const hot_log(*data.log, data.classes, batch_class::hot), cold_log(*data.log, data.classes, batch_class::cold);
    tessera::sample_reader_options const options{
        .batch_size = 6, .order = tessera::sample_order::sessions, .seed = tessera::random_seed{seed}};
    reader_type hots(exec, hot_log, options), colds(exec, cold_log, options);
    tessera::class_reader reader(hots, colds, tessera::loss_schedule{});

    // Losses by a random walk; the position before each batch.
    std::normal_distribution<double> step;
    std::vector<decltype(reader.position())> positions;
    std::vector<std::optional<seen_batch>> seen;
    std::vector<double> losses;
    std::vector<std::int64_t> samples;
    for (int epoch = 0; epoch < 3;) {
      positions.push_back(reader.position());
      samples.push_back(reader.epoch_samples());
      auto const batch = seen.emplace_back(seen_of(exec, reader));
      losses.push_back(step(random));
      if (!batch)
        ++epoch;
      else if (batch->ends)
        reader.tell_loss(losses.back());
    }
    std::vector<float> of_epoch;
    std::int64_t id = 0, epoch = 0;
    for (std::size_t b = 0; b < seen.size(); ++b) {
      CHECK(samples[b] == static_cast<std::int64_t>(of_epoch.size()));
      if (seen[b]) {
        for (auto const label : seen[b]->labels) CHECK((label > 0) == (seen[b]->kind == batch_class::hot));
        CHECK(seen[b]->id == id++);
        CHECK(seen[b]->epoch == epoch);
        of_epoch.insert(of_epoch.end(), seen[b]->labels.begin(), seen[b]->labels.end());
        continue;
      }
      ++epoch;
      std::sort(of_epoch.begin(), of_epoch.end());
      std::vector<float> all(data.columns.view().labels.begin(), data.columns.view().labels.end());
      std::sort(all.begin(), all.end());
      CHECK(of_epoch == all);
      of_epoch.clear();
    }

    // Another pair, which may read ahead, from any place on.
    for (int round = 0; round < 6; ++round) {
      reader_type other_hots(of_hot.exec(), hot_log, options), other_colds(of_cold.exec(), cold_log, options);
      tessera::background_thread hot_thread, cold_thread;
      std::optional<tessera::prefetching_reader<reader_type>> hots_ahead, colds_ahead;
      auto const from = random() % seen.size();
      auto const go_on = [&](auto& other) {
        other.seek(positions[from]);
        CHECK(other.position() == positions[from]);
        for (auto b = from; b < seen.size(); ++b) {
          CHECK(other.epoch_samples() == samples[b]);
          auto const batch = seen_of(exec, other);
          CHECK(batch == seen[b]);
          if (batch && batch->ends) other.tell_loss(losses[b]);
        }
      };
      if (round % 2 == 0) {
        tessera::class_reader other(other_hots, other_colds, tessera::loss_schedule{});
        go_on(other);
      } else {
        hots_ahead.emplace(of_hot.exec(), hot_thread, other_hots);
        colds_ahead.emplace(of_cold.exec(), cold_thread, other_colds);
        tessera::class_reader other(*hots_ahead, *colds_ahead, tessera::loss_schedule{});
        go_on(other);
      }
    }
  }
}

TEST_CASE("class_reader: what is refused leaves it where it was") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(3);
  two_classes const data(exec, random, 100, 0.5);
  tessera::picked_samples const hot_log(*data.log, data.classes, batch_class::hot), cold_log(*data.log, data.classes, batch_class::cold);
  reader_type hots(exec, hot_log, {.batch_size = 6}), colds(exec, cold_log, {.batch_size = 6});
  tessera::batch_view batch;
  {
    reader_type begun(exec, hot_log, {.batch_size = 6});
    REQUIRE(begun.next(exec, batch));
    CHECK(error_of([&] { tessera::class_reader(begun, colds, tessera::fixed_schedule{}); }).code() == tessera::errc::invalid_argument);
    while (begun.next(exec, batch)) {
    }
    CHECK(error_of([&] { tessera::class_reader(begun, colds, tessera::fixed_schedule{}); }).code() == tessera::errc::invalid_argument);
  }
  tessera::class_reader reader(hots, colds, tessera::loss_schedule{});
  for (int b = 0; b < 5; ++b) REQUIRE(reader.next(exec, batch));
  auto const at = reader.position();
  auto const refused = [&](auto const& change) {
    auto wrong = at;
    change(wrong);
    CHECK(error_of([&] { reader.seek(wrong); }).code() == tessera::errc::incompatible);
    CHECK(reader.position() == at);
  };
  refused([](auto& wrong) { wrong.left = 1000; });
  refused([](auto& wrong) { wrong.hot_batches = -1; });
  refused([](auto& wrong) { wrong.cold_batches = 1000; });
  refused([](auto& wrong) { wrong.run = batch_class::mixed; });
  refused([](auto& wrong) { wrong.hot.block = 1000; });
  refused([](auto& wrong) { wrong.cold.offset = 1000; });
  refused([](auto& wrong) { wrong.schedule.percent = 0; });
}

}  // namespace class_reader_test
