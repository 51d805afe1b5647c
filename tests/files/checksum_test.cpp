// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>

#include <tessera/files/checksum.hpp>

namespace {

// Bit by bit, as the polynomial division is defined.
std::uint32_t naive(std::string const& bytes) {
  std::uint32_t sum = 0xffffffff;
  for (char const c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0xedb88320U : 0U);
  }
  return ~sum;
}

std::uint32_t crc32_of(std::string const& bytes) { return tessera::crc32_of(bytes); }

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string bytes(size, '?');
  for (auto& b : bytes) b = static_cast<char>(random());
  return bytes;
}

}  // namespace

TEST_CASE("crc32 gives the known answers") {
  CHECK(crc32_of("123456789") == 0xcbf43926);
  CHECK(crc32_of("") == 0);
  CHECK(crc32_of("a") == 0xe8b7be43);
  CHECK(crc32_of("The quick brown fox jumps over the lazy dog") == 0x414fa339);
  CHECK(crc32_of(std::string(32, '\0')) == 0x190a55ad);
  CHECK(crc32_of(std::string(32, '\xff')) == 0xff6cab0b);
  CHECK(tessera::crc32_sum().value() == 0);
}

TEST_CASE("crc32 in pieces of any length and alignment is the bitwise one") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    auto const bytes = random_bytes(random, random() % 300);
    tessera::crc32_sum sum;
    for (std::size_t done = 0; done < bytes.size();) {
      auto const piece = std::min<std::size_t>(random() % 40, bytes.size() - done);
      sum.update({bytes.data() + done, static_cast<std::int64_t>(piece)});
      done += piece;
      sum = tessera::crc32_sum(sum.value());  // continues from its value
    }
    REQUIRE(sum.value() == naive(bytes));
  }
}

TEST_CASE("crc32 of long runs, of any length and alignment, is the bitwise one") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  auto const bytes = random_bytes(random, 3000);
  for (int round = 0; round < 300; ++round) {
    auto const first = random() % 70, size = random() % (bytes.size() - first), cut = random() % (size + 1);
    CAPTURE(first);
    CAPTURE(size);
    CAPTURE(cut);
    tessera::crc32_sum sum;
    sum.update({bytes.data() + first, static_cast<std::int64_t>(cut)});
    sum.update({bytes.data() + first + cut, static_cast<std::int64_t>(size - cut)});
    REQUIRE(sum.value() == naive(bytes.substr(first, size)));
  }
}

TEST_CASE("crc32_join of two sums is the sum of both in a row") {
  auto const seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    auto const a = random_bytes(random, random() % 300);
    auto const b = random_bytes(random, random() % 300);
    REQUIRE(tessera::crc32_join(crc32_of(a), crc32_of(b), static_cast<std::int64_t>(b.size())) == crc32_of(a + b));
  }
  // 2^33 bytes of zero, by doubling and at once.
  auto zeros = crc32_of(std::string(1, '\0'));
  for (int k = 0; k < 33; ++k) zeros = tessera::crc32_join(zeros, zeros, std::int64_t{1} << k);
  auto const half = tessera::crc32_join(0, 0, 0);
  CHECK(half == 0);
  auto three = zeros;
  three = tessera::crc32_join(three, crc32_of(std::string(3, '\0')), 3);
  CHECK(three == tessera::crc32_join(crc32_of(std::string(3, '\0')), zeros, std::int64_t{1} << 33));
}

TEST_CASE("crc32 sees every flip of one bit") {
  std::string bytes = "a checkpoint's section";
  auto const sound = crc32_of(bytes);
  for (auto& b : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      b = static_cast<char>(b ^ (1 << bit));
      CHECK(crc32_of(bytes) != sound);
      b = static_cast<char>(b ^ (1 << bit));
    }
}
