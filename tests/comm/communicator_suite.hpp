// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/core/error.hpp>

namespace tessera_tests {

// What message number `number` from a rank to another is, of some exchange of a test: its size, and its bytes.
struct made_message {
  std::vector<std::byte> bytes;

  made_message(std::uint64_t seed, int from, int to, int number, std::int64_t most) {
    std::seed_seq mix{seed & 0xffffffff, seed >> 32, static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                      static_cast<std::uint64_t>(number)};
    std::mt19937_64 random(mix);
    // Often none, seldom large.
    auto const size = random() % 4 == 0 ? 0 : random() % (random() % 8 == 0 ? static_cast<std::uint64_t>(most) + 1 : 300);
    bytes.resize(size);
    for (auto& b : bytes) b = static_cast<std::byte>(random());
  }
};

inline bool same_bytes(tessera::vector_view<std::byte const> a, std::vector<std::byte> const& b) {
  return a.size() == static_cast<std::int64_t>(b.size()) && std::equal(a.begin(), a.end(), b.begin());
}

inline bool equal_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Where a rank on the host has its messages: as they are.
struct host_place {
  serial_host host;

  tessera::host_exec exec() { return host.exec(); }
  template <class T>
  std::vector<T> put(std::vector<T> values) const {
    return values;
  }
  template <class T>
  tessera::vector_view<T const> view(std::vector<T> const& values) const {
    return values;
  }
  template <class T>
  std::vector<T> get(tessera::vector_view<T const> values) const {
    return {values.begin(), values.end()};
  }
};

/// What holds for all models of `communicator`, on one of its ranks; all call it. `seed` is the same on all. `place` puts messages where the
/// execution has them, and gets them from there.
template <tessera::communicator C, class Place>
void check_exchanges(C& comm, Place& place, std::uint64_t seed) {
  CAPTURE(seed);
  auto const rank = comm.rank(), size = comm.size();
  CAPTURE(rank);
  CAPTURE(size);
  auto const exec = place.exec();
  std::mt19937_64 common(seed);  // draws the same on all ranks
  using bytes = decltype(place.put(std::vector<std::byte>()));

  // Exchanges of any shape, several under way, finished in any order.
  constexpr std::int64_t most = 300'000;
  for (int round = 0; round < 6; ++round) {
    auto const together = 1 + static_cast<int>(common() % 3);
    std::vector<std::vector<bytes>> sent(static_cast<std::size_t>(together));
    std::vector<std::vector<made_message>> expected(sent.size());
    std::vector<typename C::pending_type> pending(sent.size());
    for (std::size_t e = 0; e < pending.size(); ++e) {
      std::vector<tessera::sent_message> send;
      std::vector<tessera::awaited_message> receive;
      // Pairs of ranks, some several times, in an order of their own on each rank.
      std::vector<std::pair<int, int>> pairs;
      for (int a = 0; a < size; ++a)
        for (int b = 0; b < size; ++b)
          for (auto n = common() % 3; n > 0; --n) pairs.emplace_back(a, b);
      auto const of = static_cast<int>(common() % 1000);
      bool const is_known = common() % 2 == 0;
      for (int n = 0; n < static_cast<int>(pairs.size()); ++n) {
        auto const [a, b] = pairs[static_cast<std::size_t>(n)];
        made_message const message(seed, a, b, of + n, most);
        if (a == rank) sent[e].push_back(place.put(message.bytes));
        if (b == rank) {
          expected[e].push_back(message);
          receive.push_back({a, is_known ? static_cast<std::int64_t>(message.bytes.size()) : tessera::awaited_message::unknown});
        }
      }
      std::size_t next = 0;
      for (auto const& [a, b] : pairs)
        if (a == rank) send.push_back({b, place.view(sent[e][next++])});
      comm.begin(exec, {send, receive}, pending[e]);
    }
    std::vector<std::size_t> order(pending.size());
    for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
    std::shuffle(order.begin(), order.end(), common);
    for (auto const e : order) {
      auto const received = comm.finish(exec, pending[e]);
      REQUIRE(received.size() == static_cast<std::int64_t>(expected[e].size()));
      for (std::int64_t i = 0; i < received.size(); ++i) {
        CHECK(place.get(received[i]) == expected[e][static_cast<std::size_t>(i)].bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(received[i].data()) % 64 == 0);
      }
    }
  }

  // A failure is thrown by all, and what comes behind it arrives.
  auto const failing = static_cast<int>(common() % static_cast<std::uint64_t>(size));
  for (int round = 0; round < 2; ++round) {
    try {
      tessera::barrier(exec, comm, "a test", rank == failing ? std::make_exception_ptr(std::runtime_error("line 17 is bad")) : nullptr);
      FAIL_CHECK("a failure was not thrown");
    } catch (tessera::error const& e) {
      CHECK(rank != failing);
      CHECK(e.code() == tessera::errc::rank_failed);
      CHECK(e.value("rank") == std::to_string(failing));
      CHECK(e.value("operation") == "a test");
      CHECK(e.value("reason") == "line 17 is bad");
    } catch (std::runtime_error const& e) {
      CHECK(rank == failing);
      CHECK(e.what() == std::string("line 17 is bad"));
    }
  }

  // A message of another size than awaited.
  {
    auto const three = place.put(std::vector<std::byte>(3)), four = place.put(std::vector<std::byte>(4));
    typename C::pending_type pending;
    auto const next = (rank + 1) % size, before = (rank + size - 1) % size;
    std::vector<tessera::sent_message> const send{{next, place.view(rank == failing ? four : three)}};
    std::vector<tessera::awaited_message> const receive{{before, 3}};
    comm.begin(exec, {send, receive, "odd"}, pending);
    try {
      comm.finish(exec, pending);
      CHECK(before != failing);
    } catch (tessera::error const& e) {
      CHECK(before == failing);
      CHECK(e.code() == tessera::errc::incompatible);
      CHECK(e.value("from rank") == std::to_string(failing));
      CHECK(e.value("bytes") == "4");
      CHECK(e.value("awaited") == "3");
      CHECK(e.value("operation") == "odd");
    }
  }

  // What cannot be asked for.
  {
    typename C::pending_type pending;
    auto const code_of = [&](tessera::sent_message const& send, tessera::awaited_message const& receive) {
      try {
        comm.begin(exec, {{&send, 1}, {&receive, 1}}, pending);
      } catch (tessera::error const& e) {
        return e.code();
      }
      return tessera::errc::device_error;
    };
    CHECK(code_of({size, {}}, {0}) == tessera::errc::invalid_argument);
    CHECK(code_of({-1, {}}, {0}) == tessera::errc::invalid_argument);
    CHECK(code_of({0, {}}, {size}) == tessera::errc::invalid_argument);
    CHECK(code_of({0, {}}, {0, -2}) == tessera::errc::invalid_argument);
    CHECK_THROWS_AS(comm.finish(exec, pending), tessera::error);
  }

  // Values of all ranks.
  {
    auto const own = place.put(std::vector<std::int64_t>(static_cast<std::size_t>(rank), rank));
    typename C::pending_type pending;
    auto const all = tessera::all_gather<std::int64_t>(exec, comm, place.view(own), pending);
    REQUIRE(all.size() == static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r)
      CHECK(place.get(all[static_cast<std::size_t>(r)]) == std::vector<std::int64_t>(static_cast<std::size_t>(r), r));
  }

  // Parts of all ranks, in another order: key by key.
  auto half = comm.split(exec, rank % 2, -rank);
  CHECK(half.size() == (size + 1 - rank % 2) / 2);
  CHECK(half.rank() == half.size() - 1 - rank / 2);
  tessera::barrier(exec, half);
  auto alone = half.split(exec, rank, 0);
  CHECK(alone.size() == 1);
  tessera::barrier(exec, alone);
}

/// A reduce-scatter, and the way back: parts have the sums `expected`, cover the values once, and are shared as the caller leaves them.
template <tessera::communicator C>
void check_parts(tessera::host_exec const& exec, C& comm, tessera::rank_sums<C>& sums, std::vector<float> values,
                 std::vector<float> const& expected, bool is_flat) {
  tessera::pending_sum<C> pending;
  auto const before = values;
  auto const count = static_cast<std::int64_t>(values.size());
  auto const part = sums.part(count);
  std::vector<std::int64_t> const own_bounds{part.first, part.last};
  typename C::pending_type gathering;
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  for (auto const& one : tessera::all_gather<std::int64_t>(exec, comm, own_bounds, gathering)) bounds.emplace_back(one[0], one[1]);
  if (is_flat) CHECK(std::is_sorted(bounds.begin(), bounds.end()));
  std::sort(bounds.begin(), bounds.end());
  std::int64_t end = 0;
  for (auto const& bound : bounds) {
    CHECK(bound.first == end);
    end = bound.second;
  }
  CHECK(end == count);

  for (int round = 0; round < 2; ++round) {  // the second one in the first one's memory
    values = before;
    sums.begin_part(exec, values, pending);
    auto const own = sums.finish_part(exec, pending);
    CHECK(own.size() == part.size());
    CHECK((own.empty() || own.data() == values.data() + part.first));
    CHECK(equal_bits({own.begin(), own.end()}, {expected.begin() + part.first, expected.begin() + part.last}));
    if (is_flat)  // what is beside the part is as it was
      CHECK((equal_bits({values.begin(), values.begin() + part.first}, {before.begin(), before.begin() + part.first}) &&
             equal_bits({values.begin() + part.last, values.end()}, {before.begin() + part.last, before.end()})));
    for (auto& value : own) value += 1;
    sums.share(exec, pending);
    auto changed = expected;
    for (auto& value : changed) value += 1;
    CHECK(equal_bits(values, changed));
  }
}

/// What holds for all models on the host.
template <tessera::communicator C>
void check_communicator(C& comm, std::uint64_t seed) {
  host_place place;
  check_exchanges(comm, place, seed);
  auto const rank = comm.rank(), size = comm.size();
  auto const exec = place.exec();
  CAPTURE(seed);
  CAPTURE(rank);
  CAPTURE(size);

  for (int root = 0; root < size; ++root) {
    std::vector<int> values(5, rank);
    tessera::broadcast<int>(exec, comm, values, root);
    CHECK(values == std::vector<int>(5, root));
  }
  std::vector<int> nowhere(5);
  CHECK_THROWS_AS(tessera::broadcast<int>(exec, comm, nowhere, size), tessera::error);

  // Sums, whose order is that of ranks; or of pairs of neighbours first.
  auto pair = comm.split(exec, rank / 2, rank), across = comm.split(exec, rank % 2, rank);
  for (std::int64_t const count : {0, 1, 15, 16, 17, 1000, 40'001}) {
    std::vector<std::vector<float>> of_rank;
    for (int r = 0; r < size; ++r) {
      std::seed_seq mix{seed & 0xffffffff, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(count)};
      std::mt19937_64 random(mix);
      of_rank.push_back(random_floats(random, static_cast<std::size_t>(count)));
    }
    auto const sum = [&](std::vector<std::vector<float>> const& values) {
      auto total = values[0];
      for (std::size_t r = 1; r < values.size(); ++r)
        for (std::size_t i = 0; i < total.size(); ++i) total[i] += values[r][i];
      return total;
    };
    tessera::pending_sum<C> pending;
    auto flat = of_rank[static_cast<std::size_t>(rank)];
    tessera::rank_sums<C>(comm).all(exec, flat, pending);
    CHECK(equal_bits(flat, sum(of_rank)));
    tessera::rank_sums<C> in_order(comm);
    check_parts(exec, comm, in_order, of_rank[static_cast<std::size_t>(rank)], flat, true);

    if (size % 2 != 0) continue;
    auto nested = of_rank[static_cast<std::size_t>(rank)];
    tessera::rank_sums<C>(std::vector<C*>{&pair, &across}).all(exec, nested, pending);
    std::vector<std::vector<float>> of_pair;
    for (std::size_t r = 0; r < of_rank.size(); r += 2) of_pair.push_back(sum({of_rank[r], of_rank[r + 1]}));
    CHECK(equal_bits(nested, sum(of_pair)));
    tessera::rank_sums<C> by_pairs(std::vector<C*>{&pair, &across});
    check_parts(exec, comm, by_pairs, of_rank[static_cast<std::size_t>(rank)], nested, false);
  }
}

}  // namespace tessera_tests
