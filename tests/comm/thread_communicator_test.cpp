// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/thread_communicator.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>

#include <device_arrays.hpp>
#include <emulated_device.hpp>

#include "communicator_suite.hpp"
#include "device_place.hpp"

namespace thread_communicator_test {

namespace {

using tessera_tests::serial_host;

// What a rank throws.
struct outcome {
  tessera::errc code = tessera::errc::device_error;
  std::string text;
  std::string ranks;  // that it names
};

// Of each rank, what f(comm, exec) throws there.
template <class F>
std::vector<outcome> outcomes(int ranks, F const& f, tessera::communicator_options const& options) {
  std::vector<outcome> all(static_cast<std::size_t>(ranks));
  std::vector<serial_host> hosts(all.size());  // which end on this thread: doctest's contexts must not end on several while they throw
  try {
    tessera::run_thread_ranks(
        ranks,
        [&](tessera::thread_communicator& comm) {
          try {
            f(comm, hosts[static_cast<std::size_t>(comm.rank())].exec());
          } catch (tessera::error const& e) {
            all[static_cast<std::size_t>(comm.rank())] = {e.code(), e.what(), std::string(e.value("rank")) + std::string(e.value("ranks"))};
            throw;
          }
        },
        options);
  } catch (std::exception const&) {
  }
  return all;
}

}  // namespace

TEST_CASE("thread_communicator: a model of communicator, of 1 to 8 ranks") {
  auto const seed = tessera_tests::draw_seed();
  for (int const ranks : {1, 2, 3, 4, 5, 8})
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) { tessera_tests::check_communicator(comm, seed); });
}

TEST_CASE("thread_communicator: a model of communicator, of 1 to 8 streams of a device") {
  using tessera_tests::emulated_exec;
  auto const seed = tessera_tests::draw_seed();
  for (int const ranks : {1, 2, 3, 4, 5, 8}) {
    tessera_tests::emulated_device device;
    tessera::run_thread_ranks<emulated_exec>(ranks, [&](tessera::basic_thread_communicator<emulated_exec>& comm) {
      tessera_tests::device_place<emulated_exec> place{device.exec()};
      tessera_tests::check_exchanges(comm, place, seed);
    });
  }
}

TEST_CASE("thread_communicator: on a device, a rank without memory leaves; who sends waits for its stream") {
  using tessera_tests::emulated_exec;
  using communicator = tessera::basic_thread_communicator<emulated_exec>;
  tessera_tests::emulated_device device;
  auto const exec = device.exec();
  auto ranks = tessera::make_thread_ranks<emulated_exec>(2);
  auto const own = tessera_tests::put(exec, std::vector<int>(100, 7));
  tessera::sent_message const send{1, tessera::message_bytes(own.view())};
  tessera::awaited_message const receive{0};
  communicator::pending_type sent, received;

  auto const waits = device.waits;
  ranks[0].begin(exec, {{&send, 1}, {}}, sent);
  CHECK(device.waits == waits + 1);
  ranks[1].begin(exec, {{}, {&receive, 1}}, received);
  CHECK(device.waits == waits + 1);
  auto const bytes = ranks[1].finish(exec, received)[0];
  CHECK(device.waits == waits + 2);
  ranks[0].finish(exec, sent);
  CHECK(tessera_tests::get(exec, tessera::message_values<int>(bytes)) == std::vector<int>(100, 7));

  ranks[0].begin(exec, {{&send, 1}, {}}, sent);
  communicator::pending_type without_memory;
  ranks[1].begin(exec, {{}, {&receive, 1}}, without_memory);
  device.fail_after(0);
  CHECK_THROWS_AS(ranks[1].finish(exec, without_memory), std::bad_alloc);
  device.never_fail();
  ranks[0].finish(exec, sent);
  CHECK_THROWS_AS(ranks[1].begin(exec, {{}, {&receive, 1}}, received), tessera::error);
}

TEST_CASE("self_communicator: a model of communicator") {
  tessera::self_communicator comm;
  tessera_tests::check_communicator(comm, tessera_tests::draw_seed());
}

TEST_CASE("any_communicator: a model of communicator, over others") {
  auto const seed = tessera_tests::draw_seed();
  tessera::any_communicator alone = tessera::self_communicator();
  tessera_tests::check_communicator(alone, seed);
  tessera::run_thread_ranks(4, [&](tessera::thread_communicator& of) {
    tessera::any_communicator comm = of;
    tessera_tests::check_communicator(comm, seed);
  });

  // A pending serves communicators of any model, one after the other.
  serial_host host;
  tessera::any_communicator one = tessera::make_thread_ranks(1)[0];
  tessera::any_pending pending;
  tessera::all_gather<int>(host.exec(), alone, {}, pending);
  tessera::all_gather<int>(host.exec(), one, {}, pending);
  CHECK_THROWS_AS(alone.finish(host.exec(), pending), tessera::error);
}

TEST_CASE("thread_communicator: a rank that throws, or gives up, ends the others at once") {
  for (bool const is_under_way : {false, true}) {
    CAPTURE(is_under_way);
    auto const all = outcomes(3,
                              [&](tessera::thread_communicator& comm, tessera::host_exec const& exec) {
                                tessera::barrier(exec, comm);
                                if (comm.rank() == 1) {
                                  tessera::thread_pending pending;
                                  tessera::sent_message const send{0, {}};
                                  if (is_under_way) comm.begin(exec, {{&send, 1}, {}, "half an exchange"}, pending);
                                  throw std::runtime_error("no more disk");
                                }
                                for (int i = 0; i < 3; ++i) tessera::barrier(exec, comm, "second");
                              },
                              {.timeout_ms = 600'000});
    for (std::size_t const rank : {std::size_t{0}, std::size_t{2}}) {
      CHECK(all[rank].code == tessera::errc::rank_failed);
      CHECK(all[rank].text.find("second") != std::string::npos);
    }
    auto const& first = all[0].ranks == "1" ? all[0] : all[2];  // the other may have learned of it from this one
    CHECK(first.ranks == "1");
    CHECK(first.text.find(is_under_way ? "half an exchange" : "no more disk") != std::string::npos);
  }
}

TEST_CASE("thread_communicator: a rank that throws ends those that wait in communicators that were split") {
  auto const all = outcomes(4,
                            [](tessera::thread_communicator& comm, tessera::host_exec const& exec) {
                              auto half = comm.split(exec, comm.rank() / 2, comm.rank());
                              auto alone = half.split(exec, 0, comm.rank());
                              if (comm.rank() == 1) throw std::runtime_error("no more disk");
                              tessera::barrier(exec, comm.rank() == 0 ? alone : comm, "wait");
                            },
                            {.timeout_ms = 600'000});
  for (std::size_t const rank : {std::size_t{0}, std::size_t{2}, std::size_t{3}}) {
    CHECK(all[rank].code == tessera::errc::rank_failed);
    CHECK(all[rank].text.find("operation wait") != std::string::npos);
  }
  CHECK(all[0].text.find("no more disk") != std::string::npos);
}

TEST_CASE("thread_communicator: what a rank sent before it timed out is read by nobody") {
  std::atomic<int> read{0};
  std::atomic<bool> is_over{false};
  auto const all = outcomes(3,
                            [&](tessera::thread_communicator& comm, tessera::host_exec const& exec) {
                              std::vector<std::byte> memory(1000, std::byte{1});
                              tessera::thread_pending pending;
                              if (comm.rank() == 0) {
                                tessera::sent_message const send{2, memory};
                                tessera::awaited_message const receive{1};
                                comm.begin(exec, {{&send, 1}, {&receive, 1}}, pending);
                                CHECK_THROWS_AS(comm.finish(exec, pending), tessera::error);
                                memory = {};  // and the pending lives on
                                CHECK_FALSE(pending.under_way());
                                is_over = true;
                              }
                              while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              if (comm.rank() == 2) {
                                tessera::awaited_message const receive{0};
                                comm.begin(exec, {{}, {&receive, 1}}, pending);
                                comm.finish(exec, pending);
                                ++read;
                              }
                            },
                            {.timeout_ms = 50});
  CHECK(read == 0);
  CHECK(all[2].code == tessera::errc::rank_failed);
  CHECK(all[2].ranks == "0");
}

TEST_CASE("thread_communicator: ranks that are out of step are refused") {
  auto const all = outcomes(2,
                            [](tessera::thread_communicator& comm, tessera::host_exec const& exec) {
                              tessera::barrier(exec, comm, comm.rank() == 0 ? "one thing" : "another thing");
                            },
                            {.timeout_ms = 600'000});
  for (auto const& one : all) CHECK(one.code == tessera::errc::incompatible);
  CHECK(all[0].text.find("operation one thing, from rank 1, its operation another thing") != std::string::npos);
}

TEST_CASE("thread_communicator: ranks that do not come are named, and end when they come") {
  std::atomic<int> ended{0};
  auto const all = outcomes(3,
                            [&](tessera::thread_communicator& comm, tessera::host_exec const& exec) {
                              while (comm.rank() == 2 && ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              try {
                                tessera::barrier(exec, comm, "wait");
                              } catch (...) {
                                ++ended;
                                throw;
                              }
                            },
                            {.timeout_ms = 20});
  CHECK(all[2].code == tessera::errc::rank_failed);
  bool timed_out = false;
  for (std::size_t const rank : {std::size_t{0}, std::size_t{1}}) {
    if (all[rank].code != tessera::errc::timed_out) continue;  // it learned of the other's
    timed_out = true;
    CHECK(all[rank].text.find("operation wait, timeout_ms 20") != std::string::npos);
    CHECK(all[rank].ranks.find('2') != std::string::npos);
  }
  CHECK(timed_out);
}

TEST_CASE("thread_communicator: after a rank has left, every call throws; what is out of range is refused") {
  serial_host host;
  auto const exec = host.exec();
  auto ranks = tessera::make_thread_ranks(2);
  ranks[0].fail("enough");
  ranks[0].fail("a second reason");
  try {
    tessera::barrier(exec, ranks[0]);
    FAIL_CHECK("a rank that has left goes on");
  } catch (tessera::error const& e) {
    CHECK(e.value("reason") == "enough");
  }
  CHECK_THROWS_AS(tessera::make_thread_ranks(0), tessera::error);
  CHECK_THROWS_AS(tessera::make_thread_ranks(1, {.timeout_ms = 0}), tessera::error);

  auto one = tessera::make_thread_ranks(1)[0];
  tessera::thread_pending pending;
  tessera::sent_message const send{0, {}};
  tessera::awaited_message const receive{0};
  one.begin(exec, {{&send, 1}, {&receive, 1}}, pending);
  CHECK(pending.under_way());
  CHECK_THROWS_AS(one.begin(exec, {{&send, 1}, {&receive, 1}}, pending), tessera::error);
  auto moved = std::move(pending);
  CHECK_FALSE(pending.under_way());  // NOLINT: it is of no exchange
  CHECK(one.finish(exec, moved).size() == 1);
}

}  // namespace thread_communicator_test
