// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/named_ranks_communicator.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include <temporary_folder.hpp>

#include "communicator_suite.hpp"

namespace named_ranks_communicator_test {

using tessera::any_communicator;
using tessera::errc;
using tessera::named_ranks_communicator;

TEST_CASE("named_ranks_communicator: a model of communicator, over threads and over any other") {
  auto const seed = tessera_tests::draw_seed();
  for (int const ranks : {1, 2, 3, 4})
    tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& of) {
      std::vector<int> numbers(static_cast<std::size_t>(ranks));
      std::iota(numbers.begin(), numbers.end(), 0);
      named_ranks_communicator comm(of, numbers);
      tessera_tests::check_communicator(comm, seed);
      any_communicator any = named_ranks_communicator(any_communicator(of), numbers);
      tessera_tests::check_communicator(any, seed);
    });
}

// Of five ranks, 4, 2 and 0 in this order.
template <class F>
void on_even_ranks(F const& f, tessera::communicator_options const& options = {}) {
  std::vector<tessera_tests::serial_host> hosts(5);
  tessera::run_thread_ranks(
      5,
      [&](tessera::thread_communicator& comm) {
        auto const exec = hosts[static_cast<std::size_t>(comm.rank())].exec();
        auto part = comm.split(exec, comm.rank() % 2, -comm.rank());
        if (comm.rank() % 2 == 1) return;
        named_ranks_communicator named(std::move(part), {4, 2, 0});
        f(exec, named, comm.rank());
      },
      options);
}

TEST_CASE("named_ranks_communicator: errors name ranks by the numbers given, and a rank's own failure is as it was") {
  on_even_ranks([](tessera::host_exec const& exec, auto& comm, int number) {
    auto const own = std::make_exception_ptr(tessera::error(errc::rank_failed, "of another exchange", {{"rank", 1}}));
    auto const failed = tessera_tests::error_of([&] { tessera::barrier(exec, comm, "a step", number == 2 ? own : nullptr); });
    CHECK(failed.code() == errc::rank_failed);
    CHECK(failed.value("rank") == (number == 2 ? "1" : "2"));
    if (number != 2) CHECK(std::string(failed.what()).find("another rank failed (rank 2, operation a step") == 0);
    tessera::barrier(exec, comm, "goes on");
    // Out of step, by the sender.
    typename std::remove_reference_t<decltype(comm)>::pending_type pending;
    std::vector<tessera::sent_message> send;
    std::vector<tessera::awaited_message> receive;
    if (number == 0) send.push_back({0, {}});
    if (number == 4) receive.push_back({2});
    comm.begin(exec, {send, receive, number == 0 ? "one" : "other"}, pending);
    if (number == 4) {
      auto const e = tessera_tests::error_of([&] { comm.finish(exec, pending); });
      CHECK(e.code() == errc::incompatible);
      CHECK(e.value("from rank") == "0");
    } else {
      comm.finish(exec, pending);
    }
    // Of what `split` makes, the first numbers stay.
    auto part = comm.split(exec, number == 4 ? 0 : 1, comm.rank());
    if (number != 4) {
      auto const again = std::make_exception_ptr(std::runtime_error("again"));
      try {
        tessera::barrier(exec, part, "a part", number == 0 ? again : nullptr);
        FAIL_CHECK("a failure was not thrown");
      } catch (tessera::error const& e) {
        CHECK(number == 2);
        CHECK(e.value("rank") == "0");
      } catch (std::runtime_error const&) {
        CHECK(number == 0);
      }
    }
    // A rank that is not there is named as the caller named it.
    std::vector<tessera::sent_message> const nowhere{{3, {}}};
    auto const refused = tessera_tests::error_of([&] { comm.begin(exec, {nowhere, {}, "nowhere"}, pending); });
    CHECK(refused.value("rank") == "3");
    CHECK(refused.value("ranks") == "3");
  });
}

TEST_CASE("named_ranks_communicator: ranks that do not come are listed by the numbers given") {
  on_even_ranks(
      [](tessera::host_exec const& exec, auto& comm, int number) {
        if (number != 4) return;
        auto const e = tessera_tests::error_of([&] { tessera::barrier(exec, comm); });
        CHECK(e.code() == errc::timed_out);
        CHECK(e.value("ranks") == "2 0");
      },
      {.timeout_ms = 100});
}

TEST_CASE("named_ranks_communicator: numbers are as many as ranks") {
  CHECK_THROWS_WITH_AS(named_ranks_communicator(tessera::self_communicator(), {1, 2}),
                       doctest::Contains("one number a rank (numbers 2, ranks 1)"), tessera::error);
}

}  // namespace named_ranks_communicator_test
