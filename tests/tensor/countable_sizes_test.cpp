// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/bucketize.hpp>
#include <tessera/tensor/expand.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "../support/hosts.hpp"
#include "../support/skip.hpp"
#include "../support/temporary_folder.hpp"

namespace {

using tessera_tests::error_of;

constexpr auto largest_size = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("rows, keys and values that no memory has are refused by name") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  for (auto const count :
       {largest_size, largest_size - 1, largest_size / 2, largest_size / 8, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    auto const rows = error_of([&] { tessera::jagged<float>::with_room(exec, count, 0); });
    CHECK(rows.code() == tessera::errc::invalid_argument);
    CHECK(rows.value("rows") == std::to_string(count));
    CHECK(error_of([&] { tessera::keyed_jagged<>::with_room(exec, 1, count, 0); }).value("rows") == std::to_string(count));
    CHECK(error_of([&] { tessera::keyed_jagged<>::with_room(exec, count, 0, 0); }).value("keys") == std::to_string(count));
  }
  for (auto const count : {largest_size, largest_size / 4, std::int64_t{-1}}) {
    CHECK(error_of([&] { tessera::jagged<std::int64_t>::with_room(exec, 0, count); }).value("size") == std::to_string(count));
    CHECK(error_of([&] { tessera::keyed_jagged<>::with_room(exec, 0, 0, count, true); }).value("size") == std::to_string(count));
  }
}

TEST_CASE("samples whose inverses cannot be counted are refused by name") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const batch = [&] { return tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}}}, {"b", {{2}}}, {"c", {{3}}}}); };
  std::vector<std::int64_t> const groups{1, 1, 1};
  for (auto const samples : {largest_size, largest_size / 2, largest_size / 3 + 1}) {
    auto const inverse =
        error_of([&] { tessera::inverse_keyed_jagged<>::from_parts(batch(), groups, tessera::buffer<std::int64_t>(exec, 3), samples); });
    CHECK(inverse.code() == tessera::errc::shape_mismatch);
    CHECK(inverse.value("samples") == std::to_string(samples));

    auto const owner = batch();
    std::int64_t const row = 0;
    tessera::row_group const group{0, 3, &row};
    tessera::inverse_keyed_jagged_view<std::int64_t const> const shared{owner.view(), {&group, 1}, samples};
    CHECK(error_of([&] { tessera::expand(exec, shared); }).value("samples") == std::to_string(samples));
  }
}

// Zeros without memory: what is not written has no page of its own.
class many_zeros {
 public:
  explicit many_zeros(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(std::int64_t)),
        zeros_(::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  many_zeros(many_zeros const&) = delete;
  ~many_zeros() {
    if (zeros_ != MAP_FAILED) ::munmap(zeros_, bytes_);
  }
  std::int64_t const* data() const { return zeros_ == MAP_FAILED ? nullptr : static_cast<std::int64_t const*>(zeros_); }

 private:
  std::size_t bytes_;
  void* zeros_;
};

TEST_CASE("buckets times rows that cannot be counted are refused") {
  if (tessera::checked) return tessera_tests::skip("a checked build reads all offsets, of which there are 64 GiB");
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t rows = std::int64_t{1} << 33, buckets = std::int64_t{1} << 30;
  many_zeros const offsets(rows + 1);
  if (offsets.data() == nullptr) return tessera_tests::skip("no addresses for 64 GiB");
  std::vector<std::int64_t> const first_row{0, rows};
  tessera::keyed_jagged_view<std::int64_t const> const batch{nullptr, nullptr, offsets.data(), first_row.data(), 1};
  auto const refused = error_of([&] { tessera::bucketize(exec, batch, buckets, tessera::hashed_buckets{}); });
  CHECK(refused.value("rows") == std::to_string(rows));
  CHECK(refused.value("buckets") == std::to_string(buckets));
}
