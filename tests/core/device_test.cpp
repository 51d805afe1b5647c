// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <tessera/core/device.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/for_each_index.cuh>

#include "../support/device_arrays.hpp"
#include "../support/emulated_device.hpp"
#include "../support/random.hpp"

using tessera_tests::emulated_device;
using tessera_tests::get;
using tessera_tests::put;

namespace {

struct triple {
  std::int64_t* values;
  TESSERA_DEVICE void operator()(std::int64_t i) const { values[i] *= 3; }
};

// Reverses the values of each group of 8 threads, then of the block, through shared memory.
struct reverse_kernel {
  static constexpr int threads = 64;
  std::int64_t const* in;
  std::int64_t* in_groups;
  std::int64_t* in_block;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto* const shared = block.template shared<std::int64_t>();
    auto const t = block.thread();
    auto const at = block.index() * threads;
    shared[t] = in[at + t];
    block.sync_group(8);
    in_groups[at + t] = shared[t / 8 * 8 + 7 - t % 8];
    block.sync();
    in_block[at + t] = shared[threads - 1 - t];
  }
};

constexpr tessera::detail::fault_kind odd_value{tessera::errc::out_of_range, "refuse_odd: an odd value", {"position", "value"}};

struct refuse_odd {
  std::int64_t const* values;
  tessera::detail::fault_reporter report;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    if (values[i] % 2 != 0) report(block, i, i, values[i]);
  }
};

std::string fault_of(tessera_tests::emulated_exec const& exec) {
  try {
    exec.synchronize();
  } catch (tessera::error const& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("blocks of a launch: none for nothing would be refused, past 2^31 units they go round") {
  using tessera::detail::blocks_for;
  using tessera::detail::most_blocks;
  CHECK(blocks_for(0, 256) == 1);
  CHECK(blocks_for(1, 256) == 1);
  CHECK(blocks_for(256, 256) == 1);
  CHECK(blocks_for(257, 256) == 2);
  CHECK(blocks_for(std::int64_t{1} << 40, 256) == most_blocks);
  CHECK(most_blocks <= std::numeric_limits<std::int32_t>::max());
}

TEST_CASE("each unit is done once, by whatever blocks there are") {
  struct turn {
    std::int64_t block, blocks;
    std::int64_t index() const { return block; }
    std::int64_t count() const { return blocks; }
  };
  for (std::int64_t const n : {0, 1, 7, 8, 9, 100})
    for (std::int64_t const blocks : {1, 2, 3, 50}) {
      std::vector<int> done(static_cast<std::size_t>(n));
      for (std::int64_t b = 0; b < blocks; ++b)
        for (int t = 0; t < 8; ++t) {
          turn block{b, blocks};
          tessera::detail::for_each_unit(block, n, 8, t, [&](std::int64_t unit) { ++done[static_cast<std::size_t>(unit)]; });
        }
      CHECK(std::all_of(done.begin(), done.end(), [](int times) { return times == 1; }));
    }
  // The last units of more than 2^31, as the last block sees them.
  constexpr std::int64_t n = (std::int64_t{1} << 33) + 3, blocks = std::int64_t{1} << 20;
  turn last{(n - 1) / 8 % blocks, blocks};
  std::int64_t greatest = -1;
  tessera::detail::for_each_unit(last, n, 8, (n - 1) % 8, [&](std::int64_t unit) { greatest = std::max(greatest, unit); });
  CHECK(greatest == n - 1);
}

TEST_CASE("the range that a number belongs to") {
  using tessera::detail::range_of;
  std::vector<std::int64_t> const starts{3, 3, 5, 5, 5, 9};
  for (std::int64_t i = 3; i < 9; ++i) {
    auto const expected = std::upper_bound(starts.begin(), starts.end(), i) - starts.begin() - 1;
    CHECK(range_of(starts.data(), 5, i) == expected);
  }
  std::vector<std::int64_t> const wide{0, std::int64_t{1} << 33, std::int64_t{1} << 34};
  CHECK(range_of(wide.data(), 2, std::int64_t{1} << 33) == 1);
  CHECK(range_of(wide.data(), 2, (std::int64_t{1} << 33) - 1) == 0);
}

TEST_CASE("values go to the device and back; a functor sees each index once") {
  emulated_device device;
  auto const exec = device.exec();
  for (std::size_t const n : {0U, 1U, 255U, 256U, 257U, 5000U}) {
    std::vector<std::int64_t> values(n);
    std::iota(values.begin(), values.end(), 7);
    auto on_device = put(exec, values);
    tessera::for_each_index(exec, on_device.size(), 1, triple{on_device.data()});
    for (auto& x : values) x *= 3;
    CHECK(get(exec, on_device) == values);
  }
  CHECK_THROWS_AS(tessera::for_each_index(exec, -1, 1, triple{nullptr}), tessera::error);
}

TEST_CASE("threads of a block, and of a group, see what the others wrote before they met") {
  emulated_device device;
  device.seed(tessera_tests::draw_seed());
  auto const exec = device.exec();
  constexpr std::int64_t blocks = 5, n = blocks * reverse_kernel::threads;
  std::vector<std::int64_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  auto const in = put(exec, values);
  tessera::buffer<std::int64_t, tessera_tests::emulated_exec> groups(exec, n), whole(exec, n);
  exec.launch({.blocks = blocks, .shared_bytes = reverse_kernel::threads * 8}, reverse_kernel{in.data(), groups.data(), whole.data()});
  auto expected = values;
  for (std::size_t i = 0; i < values.size(); i += 8)
    std::reverse(expected.begin() + static_cast<std::ptrdiff_t>(i), expected.begin() + static_cast<std::ptrdiff_t>(i + 8));
  CHECK(get(exec, groups) == expected);
  expected = values;
  for (std::size_t i = 0; i < values.size(); i += 64)
    std::reverse(expected.begin() + static_cast<std::ptrdiff_t>(i), expected.begin() + static_cast<std::ptrdiff_t>(i + 64));
  CHECK(get(exec, whole) == expected);
}

TEST_CASE("of many faults the lowest place of the earliest call is told, once") {
  emulated_device device;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  device.seed(seed);
  auto const exec = device.exec();
  std::vector<std::int64_t> values(3000, 2);
  auto const sound = put(exec, values);
  values[2900] = 5;
  values[701] = 9;
  values[702] = 3;
  auto const wrong = put(exec, values);
  values[0] = 1;
  auto const later = put(exec, values);
  tessera::detail::launch_for_each(exec, sound.size(), refuse_odd{sound.data(), exec.faults(odd_value)});
  CHECK(fault_of(exec) == "none");
  tessera::detail::launch_for_each(exec, wrong.size(), refuse_odd{wrong.data(), exec.faults(odd_value)});
  tessera::detail::launch_for_each(exec, later.size(), refuse_odd{later.data(), exec.faults(odd_value)});
  CHECK(fault_of(exec) == "refuse_odd: an odd value (position 701, value 9)");
  CHECK(fault_of(exec) == "none");
  tessera::detail::launch_for_each(exec, later.size(), refuse_odd{later.data(), exec.faults(odd_value)});
  CHECK(fault_of(exec) == "refuse_odd: an odd value (position 0, value 1)");
}

TEST_CASE("a fault is taken as it is, and leaves room for the next") {
  emulated_device device;
  auto const exec = device.exec();
  auto const values = put(exec, std::vector<std::int64_t>{2, 4, 5, 7});
  auto const records = put(exec, std::vector<tessera::detail::fault_record>(2));
  auto* const record = const_cast<tessera::detail::fault_record*>(records.data());
  tessera::detail::fault_calls calls;
  auto const taken = [&] {
    exec.launch({}, tessera::detail::take_fault{record, record + 1});
    return tessera::detail::error_of(get(exec, records)[1]);
  };
  CHECK(!taken());
  for (std::int64_t const first : {0, 3}) {
    tessera::detail::launch_for_each(exec, 4 - first, refuse_odd{values.data() + first, calls.reporter(record, odd_value)});
    auto const found = taken();
    REQUIRE(found.has_value());
    CHECK(std::string(found->what()) ==
          (first == 0 ? "refuse_odd: an odd value (position 2, value 5)" : "refuse_odd: an odd value (position 0, value 7)"));
    CHECK(!taken());
  }
}

TEST_CASE("the stand-in counts when the host waits") {
  emulated_device device;
  auto const exec = device.exec();
  auto const waits = device.waits;
  auto const value = put(exec, std::vector<std::int64_t>{41, 42});
  CHECK(device.waits == waits);
  CHECK(tessera::read_one(exec, value.data() + 1) == 42);
  CHECK(device.waits == waits + 1);
}
