// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 10
// ctest-cost: 10
#include "sharded_tables_device.hpp"

#include <tessera/comm/self_communicator.hpp>

#include "emulated_ranks.hpp"

namespace sharded_tables_device_test {

using namespace shard_tests;
using tessera_tests::emulated_device;
using tessera_tests::emulated_exec;

static_assert(tessera::exchange<tessera::device_exchange<thread_ranks::communicator>>);
static_assert(tessera::exchange<tessera::device_exchange<nccl_ranks::communicator>>);
static_assert(tessera::embedding_source<tessera::device_sharded_tables<thread_ranks::communicator>>);

}  // namespace sharded_tables_device_test

using namespace sharded_tables_device_test;

TEST_CASE("sharded tables on emulated devices: outputs and rows have the bits of the host's") {
  sharded_on_devices<thread_ranks>({1, 4});  // 2 and 3 over the stand-in for NCCL
}
TEST_CASE("sharded tables on emulated devices: with codecs they have the bits of the host's") {
  sharded_on_devices_with_codecs<thread_ranks>(3);
}
TEST_CASE("sharded tables on emulated devices: partial sums of tables that are cut by rows have the bits of the host's") {
  sharded_on_devices_by_rows<thread_ranks>({1, 3, 4});
  sharded_on_devices_by_rows<thread_ranks>({3}, {tessera::codec::int8, tessera::codec::bf16});
  sharded_on_devices_by_rows<nccl_ranks>({2});
}
TEST_CASE("sharded tables on emulated devices: batches of several sources") { sharded_on_devices_of_sources<thread_ranks>(3); }
TEST_CASE("sharded tables on emulated devices: what one rank's data cannot have is thrown on all, and changes nothing") {
  sharded_on_devices_refuses<thread_ranks>();
}
TEST_CASE("sharded tables on emulated devices, over NCCL's stand-in: outputs and rows have the bits of the host's") {
  sharded_on_devices<nccl_ranks>({2, 3});
  sharded_on_devices_with_codecs<nccl_ranks>(2);
}
TEST_CASE("sharded tables on emulated devices, over NCCL's stand-in: what one rank's data cannot have is thrown on all") {
  sharded_on_devices_refuses<nccl_ranks>();
}
TEST_CASE("sharded tables on emulated devices, over NCCL's stand-in: where a rank leaves with ids under way, no other waits for ever") {
  using communicator = nccl_ranks::communicator;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  hashed_tables const hashed(5, false);
  auto const problem = problem_of_devices(hashed);
  constexpr int ranks = 3;
  auto const plan = plan_of(problem, hashed, ranks, cuts::columns, random);
  auto const rows = draw_source_rows(random, 6);
  for (bool const tells : {true, false}) {
    CAPTURE(tells);
    tessera_tests::fake_nccl::tells_of_aborts = tells;
    tessera_tests::fake_nccl::stuck_after_ms = 20;
    nccl_ranks::run(ranks,
                    [&](host_exec const& host, any_communicator const& hosts, emulated_exec const& exec, communicator& comm) {
                      tessera::device_sharded_tables<communicator> source(
                          host, hosts, exec, comm, device_specs_of<emulated_exec>(problem, hashed), problem.features, plan);
                      tessera::device_sharded_saved<communicator> saved;
                      source_batch const batch(exec, problem, rows, false);
                      auto const e = tessera_tests::error_of([&] {
                        source.begin(exec, batch.view(), saved);  // which the other may have left already
                        comm.rank() == 1 ? comm.fail("it has other plans") : source.finish(exec, saved, batch.out());
                        if (comm.rank() == 1) throw tessera::error(tessera::errc::rank_failed, "it has left");
                      });
                      CHECK((e.code() == tessera::errc::rank_failed || e.code() == tessera::errc::timed_out));
                    },
                    {.timeout_ms = 3000});
    tessera_tests::fake_nccl::tells_of_aborts = true;
    tessera_tests::fake_nccl::stuck_after_ms = 600'000;
  }
}
TEST_CASE("sharded tables on an emulated device: the host waits for numbers of ids, and for what its tables wait for") {
  using communicator = thread_ranks::communicator;
  emulated_device device;
  tessera_tests::serial_host host;
  auto const exec = device.exec();
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  hashed_tables const hashed{false, true, false, true, false};
  auto const problem = problem_of_devices(hashed);
  auto ranks = tessera::make_thread_ranks<emulated_exec>(1);
  tessera::device_sharded_tables<communicator> source(
      host.exec(), tessera::self_communicator(), exec, ranks[0], device_specs_of<emulated_exec>(problem, hashed), problem.features,
      plan_of(problem, hashed, 1, cuts::none, random), {.codecs = {tessera::codec::fp16, tessera::codec::bf16}});
  tessera::device_sharded_saved<communicator> saved;
  source_batch const batch(exec, problem, draw_source_rows(random, 30), true);
  batch.fill_gradients([] { return 0.5F; });
  auto const waits = [&](auto const& call) {
    auto const before = device.waits;
    call();
    return device.waits - before;
  };
  for (int step = 0; step < 2; ++step) {
    CHECK(waits([&] { source.begin(exec, batch.view(), saved); }) == 1);
    CHECK(waits([&] { source.finish(exec, saved, batch.out()); }) == 1);
    CHECK(waits([&] { source.begin_backward(exec, saved, batch.gradients()); }) == 0);
    CHECK(waits([&] { source.finish_backward(exec, saved); }) == 0);
  }
  auto view = batch.view();
  view.sparse.room = -1;
  CHECK(waits([&] { source.begin(exec, view, saved); }) == 2);
  CHECK(saved.bytes() > 0);
  source.finish(exec, saved, batch.out());
  CHECK(waits([&] { source.predict(exec, batch.view(), batch.out()); }) == 2);
}
