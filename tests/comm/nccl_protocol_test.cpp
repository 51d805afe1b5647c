// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/nccl_protocol.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/thread_communicator.hpp>

#include <device_arrays.hpp>
#include <emulated_device.hpp>
#include <fake_nccl.hpp>

#include "communicator_suite.hpp"
#include "device_place.hpp"

namespace nccl_protocol_test {

using namespace tessera_tests;
using communicator = tessera::basic_nccl_communicator<emulated_exec, fake_nccl>;
using pending_type = communicator::pending_type;
static_assert(tessera::communicator<communicator>);

// Sets how the fake behaves, for a scope.
struct behaviour {
  explicit behaviour(bool tells_of_aborts, std::int64_t stuck_after_ms = 600'000) {
    fake_nccl::tells_of_aborts = tells_of_aborts;
    fake_nccl::stuck_after_ms = stuck_after_ms;
  }
  behaviour(behaviour const&) = delete;
  behaviour& operator=(behaviour const&) = delete;
  ~behaviour() {
    fake_nccl::tells_of_aborts = true;
    fake_nccl::stuck_after_ms = 600'000;
  }
};

// What a rank throws; nothing: of code device_error, without text.
struct outcome {
  tessera::errc code = tessera::errc::device_error;
  std::string text, ranks, reason;
};

// Calls f(comm, exec) on a thread for each rank, each with a device. Returns what f throws there.
template <class F>
std::vector<outcome> outcomes(int ranks, F const& f, tessera::communicator_options const& options = {}) {
  std::vector<outcome> all(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<emulated_device>> devices;
  std::vector<serial_host> hosts(all.size());
  for (int r = 0; r < ranks; ++r) devices.push_back(std::make_unique<emulated_device>());
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of_host) {
    auto const rank = static_cast<std::size_t>(of_host.rank());
    try {
      auto const exec = devices[rank]->exec();
      communicator comm(hosts[rank].exec(), of_host, exec, options);
      f(comm, exec);
    } catch (tessera::error const& e) {
      all[rank] = {e.code(), e.what(), std::string(e.value("rank")) + std::string(e.value("ranks")), std::string(e.value("reason"))};
    } catch (std::exception const& e) {
      all[rank].text = e.what();
    }
  });
  return all;
}

void check_all_well(std::vector<outcome> const& all) {
  for (auto const& one : all) CHECK(one.text.empty());
}

}  // namespace nccl_protocol_test

using namespace nccl_protocol_test;

TEST_CASE("nccl_protocol: a model of communicator, of 1 to 8 ranks") {
  auto const seed = draw_seed();
  for (int const ranks : {1, 2, 3, 4, 5, 8})
    check_all_well(outcomes(ranks, [&](communicator& comm, emulated_exec const& exec) {
      device_place<emulated_exec> place{exec};
      check_exchanges(comm, place, seed);
    }));
}

TEST_CASE("nccl_protocol: the id may come from the caller; what is out of range is refused") {
  emulated_device device;
  auto const exec = device.exec();
  communicator one(exec, 0, 1, communicator::make_id());
  tessera::barrier(exec, one);
  auto const code_of = [&](int rank, int size, std::int64_t timeout_ms) {
    try {
      communicator const refused(exec, rank, size, communicator::make_id(), {.timeout_ms = timeout_ms});
    } catch (tessera::error const& e) {
      return e.code();
    }
    return tessera::errc::device_error;
  };
  CHECK(code_of(0, 0, 1000) == tessera::errc::invalid_argument);
  CHECK(code_of(2, 2, 1000) == tessera::errc::invalid_argument);
  CHECK(code_of(-1, 2, 1000) == tessera::errc::invalid_argument);
  CHECK(code_of(0, 1, 0) == tessera::errc::invalid_argument);
  CHECK(code_of(0, 2, 20) == tessera::errc::timed_out);  // the other never comes

  pending_type pending;
  tessera::sent_message const send{0, {}};
  tessera::awaited_message const receive{0};
  one.begin(exec, {{&send, 1}, {&receive, 1}}, pending);
  CHECK(pending.under_way());
  CHECK_THROWS_AS(one.begin(exec, {{&send, 1}, {&receive, 1}}, pending), tessera::error);
  auto moved = std::move(pending);
  CHECK_FALSE(pending.under_way());  // NOLINT: it is of no exchange
  CHECK(one.finish(exec, moved).size() == 1);

  one.fail("enough");
  one.fail("a second reason");
  try {
    tessera::barrier(exec, one);
    FAIL_CHECK("a rank that has left goes on");
  } catch (tessera::error const& e) {
    CHECK(e.code() == tessera::errc::rank_failed);
    CHECK(e.value("reason") == "enough");
  }
}

TEST_CASE("nccl_protocol: a pending serves communicators one after the other, and keeps its memory") {
  check_all_well(outcomes(2, [](communicator& comm, emulated_exec const& exec) {
    auto part = comm.split(exec, 0, comm.rank());
    auto const own = put(exec, std::vector<int>(1000, comm.rank()));
    pending_type pending;
    std::size_t pieces = 0;
    for (int round = 0; round < 4; ++round) {
      auto& over = round % 2 == 0 ? comm : part;
      auto const all = tessera::all_gather<int>(exec, over, own.view(), pending);
      CHECK(get(exec, all[1]) == std::vector<int>(1000, 1));
      if (round == 0) pieces = exec.device().live_pieces();
      CHECK(exec.device().live_pieces() == pieces);
    }
  }));
}

TEST_CASE("nccl_protocol: many messages between two ranks keep their order") {
  check_all_well(outcomes(2, [](communicator& comm, emulated_exec const& exec) {
    constexpr int count = 200;
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) numbers.push_back(1000 * comm.rank() + i);
    auto const own = put(exec, numbers);
    std::vector<tessera::sent_message> send;
    for (int i = 0; i < count; ++i) send.push_back({1 - comm.rank(), tessera::message_bytes(own.view().slice(i, 1))});
    std::vector<tessera::awaited_message> const receive(count, {1 - comm.rank()});
    pending_type pending;
    comm.begin(exec, {send, receive}, pending);
    auto const received = comm.finish(exec, pending);
    for (int i = 0; i < count; ++i)
      CHECK(get(exec, tessera::message_values<int>(received[i])) == std::vector<int>{1000 * (1 - comm.rank()) + i});
  }));
}

TEST_CASE("nccl_protocol: the reason of a failure is cut where it is long, and messages of others arrive") {
  check_all_well(outcomes(3, [](communicator& comm, emulated_exec const& exec) {
    std::string const reason(2000, 'x');
    for (int round = 0; round < 2; ++round) try {
        tessera::barrier(exec, comm, "long", comm.rank() == 1 ? std::make_exception_ptr(std::runtime_error(reason)) : nullptr);
        FAIL_CHECK("a failure was not thrown");
      } catch (tessera::error const& e) {
        CHECK(comm.rank() != 1);
        CHECK(e.value("reason") == reason.substr(0, 492));
      } catch (std::runtime_error const& e) {
        CHECK(comm.rank() == 1);
        CHECK(e.what() == reason);
      }
    tessera::barrier(exec, comm);
  }));
}

TEST_CASE("nccl_protocol: sums of floats") {
  check_all_well(outcomes(4, [](communicator& comm, emulated_exec const& exec) {
    for (std::size_t const count : {0U, 1U, 1000U}) {
      auto values = put(exec, std::vector<float>(count, static_cast<float>(comm.rank() + 1)));
      comm.sum_native(exec, values.view());
      comm.synchronize(exec);
      CHECK(get(exec, values) == std::vector<float>(count, 10.0F));
    }
  }));
}

TEST_CASE("nccl_protocol: ranks that are out of step are refused, and meet again") {
  check_all_well(outcomes(2, [](communicator& comm, emulated_exec const& exec) {
    auto const own = put(exec, std::vector<int>{7});
    pending_type pending;
    CHECK_THROWS_AS(tessera::all_gather<int>(exec, comm, own.view(), pending, comm.rank() == 0 ? "one" : "two"), tessera::error);
    tessera::barrier(exec, comm, "meet");
    try {
      tessera::barrier(exec, comm, comm.rank() == 0 ? "one thing" : "another thing");
      FAIL_CHECK("ranks out of step were not refused");
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::incompatible);
      CHECK(e.value("operation") == (comm.rank() == 0 ? "one thing" : "another thing"));
      CHECK(e.value("from rank") == std::to_string(1 - comm.rank()));
      CHECK(e.value("its operation") == (comm.rank() == 0 ? "another thing" : "one thing"));
    }
    tessera::barrier(exec, comm, "meet");
  }));
}

TEST_CASE("nccl_protocol: ranks that do not come are named, and end when they come") {
  behaviour const silent(false);
  std::atomic<int> ended{0};
  auto const all = outcomes(3,
                            [&](communicator& comm, emulated_exec const& exec) {
                              while (comm.rank() == 2 && ended < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                              try {
                                tessera::barrier(exec, comm, "wait");
                              } catch (...) {
                                ++ended;
                                throw;
                              }
                            },
                            {.timeout_ms = 1000});
  for (auto const& one : all) {
    CHECK(one.code == tessera::errc::timed_out);
    CHECK(one.text.find("operation wait, timeout_ms 1000") != std::string::npos);
  }
  CHECK(all[0].ranks.find('2') != std::string::npos);
  CHECK(all[1].ranks.find('2') != std::string::npos);
}

TEST_CASE("nccl_protocol: a rank that leaves ends the others") {
  for (bool const tells : {false, true})
    for (bool const is_under_way : {false, true}) {
      CAPTURE(tells);
      CAPTURE(is_under_way);
      behaviour const how(tells);
      auto const all = outcomes(3,
                                [&](communicator& comm, emulated_exec const& exec) {
                                  tessera::barrier(exec, comm);
                                  if (comm.rank() == 1) {
                                    pending_type pending;
                                    tessera::sent_message const send{0, {}};
                                    if (is_under_way) comm.begin(exec, {{&send, 1}, {}, "half an exchange"}, pending);
                                    throw std::runtime_error("no more disk");
                                  }
                                  for (int i = 0; i < 3; ++i) tessera::barrier(exec, comm, "second");
                                },
                                {.timeout_ms = tells ? 600'000 : 1000});
      for (std::size_t const rank : {std::size_t{0}, std::size_t{2}}) {
        auto const& one = all[rank];
        CAPTURE(one.text);
        // Rank 0 may still have had word of the half.
        bool const met_half = is_under_way && rank == 0 && one.code == tessera::errc::incompatible;
        bool const was_told = tells && one.code == tessera::errc::rank_failed;
        bool const waited = !tells && one.code == tessera::errc::timed_out;
        CHECK((met_half || was_told || waited));
        if (was_told) CHECK(one.reason.find("remote process") != std::string::npos);
      }
      CHECK(all[1].text == "no more disk");
    }
}

TEST_CASE("nccl_protocol: a rank that leaves between begin and finish ends hosts that wait for their device") {
  behaviour const silent(false, 50);
  for (bool const waits : {false, true}) {
    CAPTURE(waits);
    auto const all = outcomes(2,
                              [&](communicator& comm, emulated_exec const& exec) {
                                auto const own = put(exec, std::vector<int>{7});
                                pending_type pending;
                                tessera::sent_message const send{1 - comm.rank(), tessera::message_bytes(own.view())};
                                tessera::awaited_message const receive{1 - comm.rank()};
                                comm.begin(exec, {{&send, 1}, {&receive, 1}, "first"}, pending);
                                tessera::barrier(exec, comm, "both have begun");
                                if (comm.rank() == 1) return;
                                comm.finish(exec, pending);
                                if (waits)
                                  comm.synchronize(exec, "results");
                                else
                                  tessera::barrier(exec, comm, "second");
                              },
                              {.timeout_ms = 1000});
    CHECK(all[0].code == tessera::errc::timed_out);
    CHECK(all[0].ranks == "1");
    CHECK(all[0].text.find(waits ? "results" : "second") != std::string::npos);
  }
}

TEST_CASE("nccl_protocol: a rank without memory leaves") {
  behaviour const how(true, 50);  // rank 1 may have launched its receive when rank 0 leaves: the stream is stuck
  auto const all = outcomes(2, [](communicator& comm, emulated_exec const& exec) {
    auto const own = put(exec, std::vector<int>(1000, 7));
    pending_type pending;
    if (comm.rank() == 0) exec.device().fail_after(1);  // headers have room
    tessera::all_gather<int>(exec, comm, own.view(), pending);
    tessera::barrier(exec, comm, "second");
  });
  CHECK(all[0].text == std::bad_alloc().what());
  CHECK(all[1].code == tessera::errc::rank_failed);
}

TEST_CASE("nccl_protocol: after a rank has left, those that were split from it throw") {
  std::atomic<int> ready{0};
  check_all_well(outcomes(4, [&](communicator& comm, emulated_exec const& exec) {
    auto half = comm.split(exec, comm.rank() % 2, -comm.rank());
    auto alone = half.split(exec, comm.rank(), 0);
    tessera::barrier(exec, alone);
    ++ready;
    while (ready < 4) std::this_thread::yield();  // none has word of another that leaves while it still splits
    comm.fail("enough");
    CHECK_THROWS_AS(tessera::barrier(exec, half), tessera::error);  // what is split from ranks that have left
    CHECK_THROWS_AS(half.split(exec, 0, 0), tessera::error);
  }));
}
