// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/synth/planted_reader.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

namespace {

using namespace tessera;
using tessera_tests::error_of;

planted_clicks small(host_exec const& exec) {
  planted_clicks_options options{{{.ids = 20, .shortest_bag = 0, .longest_bag = 3, .more = 0.5}, {.ids = 5}}};
  return {exec, options};
}

}  // namespace

TEST_CASE("planted_reader: the samples of its range in their order, every epoch") {
  tessera_tests::serial_host h;
  auto const clicks = small(h.exec());
  planted_samples all;
  clicks.generate(h.exec(), 30, 50, all);
  for (std::int64_t const batch_size : {1, 7, 25, 50, 1000}) {
    CAPTURE(batch_size);
    planted_reader reader(clicks, {.first = 30, .samples = 50, .batch_size = batch_size});
    std::int64_t batches = 0;
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::int64_t done = 0;
      batch_view batch;
      CHECK(reader.epoch_samples() == 0);
      while (reader.next(h.exec(), batch)) {
        CHECK(batch.id == batches++);
        CHECK(batch.epoch == epoch);
        CHECK(batch.samples() == std::min(batch_size, 50 - done));
        bool same = true;
        for (std::int64_t i = 0; i < batch.samples(); ++i, ++done) {
          same = same && batch.sample_ids[i] == 30 + done && batch.labels[i] == all.view().labels[done];
          same = same && reader.samples().logits()[i] == all.logits()[done];
          for (std::int64_t k = 0; k < batch.dense.columns(); ++k) same = same && batch.dense(i, k) == all.view().dense(done, k);
          for (std::int64_t f = 0; f < 2; ++f) {
            auto const a = batch.sparse.key(f).row(i), b = all.view().sparse.key(f).row(done);
            same = same && std::equal(a.begin(), a.end(), b.begin(), b.end());
          }
        }
        CHECK(same);
        CHECK(reader.epoch_samples() == done);
      }
      CHECK(done == 50);
    }
    CHECK(reader.bytes() > 0);
  }
}

TEST_CASE("planted_reader: from any position on, the same batches") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host h;
  auto const clicks = small(h.exec());
  planted_reader_options const options{.samples = 40, .batch_size = 1 + static_cast<std::int64_t>(random() % 50)};
  CAPTURE(options.batch_size);
  planted_reader reader(clicks, options), other(clicks, options);
  batch_view a, b;
  for (int step = 0; step < 100; ++step) {
    auto const at = reader.position();
    other.seek(at);
    CHECK(other.position() == at);
    CHECK(other.epoch_samples() == reader.epoch_samples());
    bool const more = reader.next(h.exec(), a);
    REQUIRE(other.next(h.exec(), b) == more);
    CHECK(other.position() == reader.position());
    if (!more) continue;
    CHECK(a.id == b.id);
    CHECK(a.epoch == b.epoch);
    CHECK(std::equal(a.sample_ids.begin(), a.sample_ids.end(), b.sample_ids.begin(), b.sample_ids.end()));
    CHECK(equal(a.sparse, b.sparse));
  }
}

TEST_CASE("planted_reader: what cannot be is named") {
  tessera_tests::serial_host h;
  auto const clicks = small(h.exec());
  for (planted_reader_options const options :
       {planted_reader_options{.batch_size = 0}, {.first = -1}, {.samples = -1}, {.first = std::int64_t{1} << 62, .samples = 1}})
    CHECK(error_of([&] { planted_reader(clicks, options); }).code() == errc::invalid_argument);
  planted_reader reader(clicks, {.samples = 40, .batch_size = 8});
  batch_view batch;
  REQUIRE(reader.next(h.exec(), batch));
  for (reader_position const position :
       {reader_position{-1, 0, 0, 0}, {0, -1, 0, 0}, {0, 2, 0, 0}, {0, 1, 1, 0}, {0, 0, 40, 0}, {0, 0, -1, 0}, {0, 0, 0, -1}})
    CHECK(error_of([&] { reader.seek(position); }).code() == errc::incompatible);
  CHECK(reader.position() == reader_position{0, 0, 8, 1});
  planted_reader none(clicks, {.samples = 0});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    CHECK(none.position().epoch == epoch);
    CHECK(!none.next(h.exec(), batch));
    none.seek(none.position());
  }
}
