// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/comm/sum_tree.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>

#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

namespace sum_tree_test {

namespace {

using block = std::vector<float>;

// Half as many leaves on the left as the next power of two, the others on the right.
block naive_tree(std::vector<block> const& leaves, std::size_t first, std::size_t last) {
  if (last - first == 1) return leaves[first];
  std::size_t half = 1;
  while (half * 2 < last - first) half *= 2;
  auto sum = naive_tree(leaves, first, first + half);
  auto const right = naive_tree(leaves, first + half, last);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

void add_leaves(tessera::host_exec const& exec, tessera::sum_tree& tree, std::vector<block> const& leaves, std::size_t first,
                std::size_t last) {
  tree.start(static_cast<std::int64_t>(first));
  for (auto leaf = first; leaf < last; ++leaf) {
    std::copy(leaves[leaf].begin(), leaves[leaf].end(), tree.next(exec, static_cast<std::int64_t>(leaves[leaf].size())).begin());
    tree.add(exec);
  }
}

bool same_bits(block const& a, block const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("sum_tree: one order for any number of leaves and threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    tessera::sum_tree tree;
    for (std::size_t count = 0; count <= 33; ++count) {
      CAPTURE(count);
      std::vector<block> leaves;
      for (std::size_t l = 0; l < count; ++l) leaves.push_back(tessera_tests::random_floats(random, 20'000));
      add_leaves(exec, tree, leaves, 0, count);
      CHECK(tree.nodes().size() <= 6);
      block sum(20'000, 7.0F);
      tree.join(exec, sum);
      CHECK(same_bits(sum, count == 0 ? block(20'000) : naive_tree(leaves, 0, count)));

      std::vector<double> numbers;
      for (auto const& leaf : leaves) numbers.push_back(static_cast<double>(leaf[0]));
      double exact = 0;
      for (auto const number : numbers) exact += number;
      CHECK(tessera::sum_by_tree(numbers) == doctest::Approx(exact).epsilon(1e-12));
    }
  });
}

TEST_CASE("sum_tree: leaves that are missing and blocks of other sizes are refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const failure = [&](tessera::sum_tree& tree, std::int64_t size) {
    try {
      block sum(static_cast<std::size_t>(size));
      tree.join(exec, sum);
    } catch (tessera::error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  tessera::sum_tree tree;
  std::vector<block> const leaves(3, block(4, 1.0F));
  add_leaves(exec, tree, leaves, 1, 3);
  CHECK(failure(tree, 4).find("a leaf is missing (leaf 0") != std::string::npos);
  add_leaves(exec, tree, leaves, 0, 3);
  CHECK(failure(tree, 5).find("blocks of another size (values 4, expected 5") != std::string::npos);
}

TEST_CASE("rank_sums: the bits of a tree depend on neither ranks nor levels") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera::topology> const topologies{tessera::topology::flat(1),
                                                  tessera::topology::flat(2),
                                                  tessera::topology::flat(3),
                                                  tessera::topology::of_hosts(2, 2),
                                                  tessera::topology::of_hosts(4, 2),
                                                  tessera::topology::of_hosts(4, 2).with_groups("rack", 2),
                                                  tessera::topology::of_host_names(std::vector<std::string>{"a", "b", "a", "b"})};
  for (std::size_t const size : {std::size_t{777}, std::size_t{1}})
    for (auto const count : {std::size_t{0}, std::size_t{1}, 2 + random() % 30}) {
      CAPTURE(count);
      std::vector<block> leaves;
      for (std::size_t l = 0; l < count; ++l) leaves.push_back(tessera_tests::random_floats(random, size));
      auto const expected = count == 0 ? block(size) : naive_tree(leaves, 0, count);
      for (auto const& ranks : topologies) {
        auto const number = static_cast<std::size_t>(ranks.ranks());
        CAPTURE(number);
        std::vector<std::size_t> bounds{0, count};  // of ranks, some of which have no leaves
        for (std::size_t r = 1; r < number; ++r) bounds.push_back(random() % (count + 1));
        std::sort(bounds.begin(), bounds.end());
        std::vector<tessera_tests::serial_host> hosts(number);
        std::vector<block> sums(number, block(size));
        tessera::run_thread_ranks(static_cast<int>(number), [&](tessera::thread_communicator& comm) {
          auto const r = static_cast<std::size_t>(comm.rank());
          auto const exec = hosts[r].exec();
          auto levels = tessera::split_by_levels(exec, comm, ranks);
          tessera::rank_sums<tessera::thread_communicator> all(levels);
          tessera::pending_sum<tessera::thread_communicator> pending;
          tessera::sum_tree tree;
          for (int again = 0; again < 2; ++again) {
            add_leaves(exec, tree, leaves, bounds[r], bounds[r + 1]);
            all.begin_tree(exec, tree, sums[r], pending);
            all.finish_tree(exec, pending);
          }
        });
        for (auto const& sum : sums) CHECK(same_bits(sum, expected));
      }
    }
}

TEST_CASE("rank_sums: trees of other sizes are refused on all ranks") {
  std::vector<tessera_tests::serial_host> hosts(2);
  std::vector<tessera::errc> codes(2, tessera::errc::io_error);
  try {
    tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const exec = hosts[r].exec();
      tessera::rank_sums<tessera::thread_communicator> all(comm);
      tessera::pending_sum<tessera::thread_communicator> pending;
      tessera::sum_tree tree;
      std::vector<block> const leaves(2, block(64 + 64 * r, 1.0F));
      block sum(64 + 64 * r);
      add_leaves(exec, tree, leaves, r, r + 1);
      all.begin_tree(exec, tree, sum, pending);
      try {
        all.finish_tree(exec, pending);
      } catch (tessera::error const& e) {
        codes[r] = e.code();
      }
    });
  } catch (tessera::error const&) {
  }
  CHECK(codes[0] == tessera::errc::incompatible);
  CHECK(codes[1] == tessera::errc::incompatible);
}

}  // namespace sum_tree_test
