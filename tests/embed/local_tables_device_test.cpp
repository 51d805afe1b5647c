// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 10
#include "local_tables_device.hpp"

#include <new>

#include "emulated_verbs.hpp"

namespace embed_tests {

template <>
struct with_execution<tessera_tests::emulated_exec> {
  template <class F>
  static void run(std::mt19937_64& random, F const& f) {
    tessera_tests::emulated_device device;
    device.seed(random());
    f(device.exec());
  }
};

}  // namespace embed_tests

using namespace embed_tests;
using tessera_tests::emulated_exec;

TESSERA_EMBEDDING_SOURCE_TESTS("device_tables of dense tables, emulated", dense_device_maker<emulated_exec>)
TESSERA_EMBEDDING_SOURCE_TESTS("device_tables of bucket tables, emulated", bucket_device_maker<emulated_exec>)
TESSERA_EMBEDDING_SOURCE_TESTS("device_tables of three kinds, emulated", mixed_device_maker<emulated_exec>)
TESSERA_EMBEDDING_SOURCE_TESTS("device_tables over caches, emulated", cached_device_maker<emulated_exec>)

TEST_CASE("device_tables on an emulated device: tables of every kind have the bits of the host's") {
  tessera_tests::emulated_device device;
  device_tables_against_host(device.exec());
}
TEST_CASE_TEMPLATE("device_tables on an emulated device: files keep what evicts", Eviction, tessera::evict_lru, tessera::evict_lfu) {
  tessera_tests::emulated_device device;
  device_tables_keep_use<Eviction>(device.exec());
}
TEST_CASE("device_tables on an emulated device: small caches change nothing") {
  tessera_tests::emulated_device device;
  device_tables_over_caches(device.exec());
}
TEST_CASE("device_tables on an emulated device: what does not fit is refused by name") {
  tessera_tests::emulated_device device;
  device_tables_names(device.exec());
}

TEST_CASE("device_tables on an emulated device: a batch that says its room is not waited for; one kind copies no ids") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = problem_of<dense_device_maker<emulated_exec>>();
  auto dense = dense_device_maker<emulated_exec>::make(exec, problem);
  auto mixed = mixed_device_maker<emulated_exec>::make(exec, problem), roomless = mixed_device_maker<emulated_exec>::make(exec, problem);
  source_batch const batch(exec, problem, draw_source_rows(random, 30), true);
  batch.fill_gradients([] { return 0.5F; });
  tessera::device_tables_saved<emulated_exec> saved;
  tessera::basic_row_gradients<emulated_exec> sum;
  auto const waits = [&](auto const& call) {
    auto const before = device.waits;
    call();
    return device.waits - before;
  };
  CHECK(waits([&] { forward(exec, dense, batch, saved); }) == 0);
  CHECK(saved.bytes() == 0);
  CHECK(waits([&] { backward(exec, dense, batch, saved); }) == 0);
  CHECK(waits([&] { forward(exec, mixed, batch, saved); }) == 0);
  CHECK(saved.bytes() > 0);
  CHECK(waits([&] { mixed.begin_backward(exec, saved, batch.gradients()); }) == 0);
  CHECK(waits([&] { mixed.gradients(exec, saved, sum); }) == 3);
  CHECK(waits([&] { mixed.apply(exec, sum); }) == 0);
  CHECK(waits([&] { mixed.predict(exec, batch.view(), batch.out()); }) == 0);

  auto view = batch.view();
  view.sparse.room = -1;
  CHECK(waits([&] { roomless.begin(exec, view, saved); }) > 0);
  roomless.finish(exec, saved, batch.out());
  backward(exec, roomless, batch, saved);
  CHECK(same_parts(mixed.parts(), roomless.parts()));
}

TEST_CASE("device_tables on an emulated device: when memory runs out in a step, no table of any kind has changed") {
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const problem = problem_of<mixed_device_maker<emulated_exec>>();
  auto source = mixed_device_maker<emulated_exec>::make(exec, problem), other = mixed_device_maker<emulated_exec>::make(exec, problem);
  tessera::device_tables_saved<emulated_exec> saved, of_other;
  source_batch const batch(exec, problem, draw_source_rows(random, 30), true);
  batch.fill_gradients([] { return 0.5F; });
  forward(exec, source, batch, saved);
  forward(exec, other, batch, of_other);
  source.begin_backward(exec, saved, batch.gradients());
  std::int64_t failures = 0;
  for (bool done = false; !done; ++failures) {
    tessera::basic_row_gradients<emulated_exec> sum;
    device.fail_after(failures);
    try {
      if (failures % 2 == 0)
        source.finish_backward(exec, saved);
      else
        source.gradients(exec, saved, sum);
      done = failures % 2 == 0;
    } catch (std::bad_alloc const&) {
    }
    device.never_fail();
    if (!done && failures % 8 == 0) CHECK(same_parts(source.parts(), other.parts()));
  }
  CHECK(failures > 20);
  backward(exec, other, batch, of_other);
  CHECK(same_parts(source.parts(), other.parts()));
}
