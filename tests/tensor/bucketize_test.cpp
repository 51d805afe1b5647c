// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "bucketize_suite.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace tensor_tests;
using tessera::block_buckets;
using tessera::hashed_buckets;

TEST_CASE_TEMPLATE("bucketize", Host, TESSERA_TEST_HOSTS) {
  Host host;
  bucketize_suite(rows_on_host{host.exec()});
}

TEST_CASE("an id without a bucket is named by its key's name") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}}}, {"b", {{20}}}});
  CHECK(error_of([&] { tessera::bucketize(host.exec(), batch, 2, block_buckets{.block_size = 10}); }).value("key") == "b");
}

TEST_CASE("hashed buckets are even") {
  ids counts(10);
  for (std::int64_t id = -5000; id < 5000; ++id) ++counts[static_cast<std::size_t>(hashed_buckets{}.place(0, id, 10).bucket)];
  // Binomial: mean 1000, deviation 30.
  for (auto const count : counts) {
    CHECK(count > 850);
    CHECK(count < 1150);
  }
}

TEST_CASE("buckets and block sizes that cannot be") {
  tessera_tests::serial_host host;
  auto const batch = named_batch(host.exec());
  auto const refused = [&](std::int64_t buckets, block_buckets const& policy, ids positions = {}) {
    return error_of([&] { tessera::bucketize(host.exec(), batch, buckets, policy, positions); });
  };
  CHECK(refused(0, {.block_size = 10}).code() == tessera::errc::invalid_argument);
  CHECK(refused(std::int64_t{1} << 31, {.block_size = 10}).code() == tessera::errc::invalid_argument);
  CHECK(refused(2, {}).value("block size") == "0");
  ids const one{10}, zero{10, 0};
  CHECK(refused(2, {.block_sizes = one}).code() == tessera::errc::shape_mismatch);
  CHECK(refused(2, {.block_sizes = zero}).value("key") == "1");
  CHECK(refused(2, {.block_size = 10}, ids(6)).value("positions") == "6");
}
