// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

inline constexpr std::uint32_t crc32_polynomial = 0xedb88320;  // of zlib, gzip, PNG; bit-reversed

// tables[k][b]: what byte b leaves in the register after k further bytes of zero.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc32_tables() noexcept {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? crc32_polynomial : 0);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
inline constexpr auto crc32_tables = make_crc32_tables();

// The product of two polynomials modulo that of the checksum; bit 31 is x^0.
constexpr std::uint32_t crc32_multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if (((a >> bit) & 1) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? crc32_polynomial : 0);
  }
  return product;
}

// x^n modulo that polynomial.
constexpr std::uint32_t crc32_power(std::int64_t n) noexcept {
  std::uint32_t power = std::uint32_t{1} << 31;   // x^0
  std::uint32_t square = std::uint32_t{1} << 30;  // x^1
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) power = crc32_multiply(power, square);
    square = crc32_multiply(square, square);
  }
  return power;
}

// The register after some bytes. Eight a step, by a table each.
inline std::uint32_t crc32_by_tables(std::uint32_t sum, unsigned char const* p, unsigned char const* end) noexcept {
  auto const& tables = crc32_tables;
  for (; end - p >= 8; p += 8) {
    auto const low = sum ^ (p[0] | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 | std::uint32_t{p[3]} << 24);
    sum = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff] ^ tables[4][low >> 24] ^ tables[3][p[4]] ^
          tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; p != end; ++p) sum = (sum >> 8) ^ tables[0][(sum ^ *p) & 0xff];
  return sum;
}

#if defined(__PCLMUL__)
// Sixteen bytes, the first of them lowest: their first bit is the highest power of x.
using crc32_block = long long __attribute__((vector_size(16)));

// What multiplies the halves of a block that moves so many bits forward. A product of reversed factors is one power of x too high, and a
// factor of 33 bits in a word of 64 another 31.
template <std::int64_t Bits>
crc32_block crc32_forward() noexcept {
  constexpr auto first = static_cast<long long>(std::uint64_t{crc32_power(Bits + 32)} << 1);
  constexpr auto second = static_cast<long long>(std::uint64_t{crc32_power(Bits - 32)} << 1);
  return crc32_block{first, second};  // nvcc's front end knows no constant of this type
}

inline crc32_block crc32_load(unsigned char const* p) noexcept {
  crc32_block block;
  std::memcpy(&block, p, sizeof block);
  return block;
}

// A block as bytes later on add to the sum what it would, and the block that stands there.
inline crc32_block crc32_fold(crc32_block block, crc32_block forward, crc32_block there) noexcept {
  return __builtin_ia32_pclmulqdq128(block, forward, 0x00) ^ __builtin_ia32_pclmulqdq128(block, forward, 0x11) ^ there;
}

// The register after some bytes, by the processor's products of polynomials: four blocks move over four others until 16 bytes are left that
// have the same remainder. Formulas: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
inline std::uint32_t crc32_by_products(std::uint32_t sum, unsigned char const* p, unsigned char const* end) noexcept {
  constexpr std::int64_t step = 64;
  if (end - p < step) return crc32_by_tables(sum, p, end);
  auto const by_four = crc32_forward<512>(), by_one = crc32_forward<128>();
  crc32_block x[4];
  for (int k = 0; k < 4; ++k) x[k] = crc32_load(p + 16 * k);
  x[0] ^= crc32_block{static_cast<long long>(sum), 0};
  for (p += step; end - p >= step; p += step)
    for (int k = 0; k < 4; ++k) x[k] = crc32_fold(x[k], by_four, crc32_load(p + 16 * k));
  for (int k = 1; k < 4; ++k) x[0] = crc32_fold(x[0], by_one, x[k]);
  unsigned char rest[16];
  std::memcpy(rest, x, sizeof rest);
  return crc32_by_tables(crc32_by_tables(0, rest, rest + sizeof rest), p, end);
}
#endif

}  // namespace detail

/// The CRC-32 of bytes that arrive in pieces, as zlib, gzip and Python's zlib.crc32 compute it: "123456789" gives cbf43926.
class crc32_sum {
 public:
  /// The sum of no bytes, 0; or one to continue.
  constexpr crc32_sum() = default;
  /// Continues from the sum of earlier bytes.
  constexpr explicit crc32_sum(std::uint32_t value) noexcept : inverse_(~value) {}

  void update(vector_view<char const> bytes) noexcept {
    auto const* const first = reinterpret_cast<unsigned char const*>(bytes.data());
#if defined(__PCLMUL__)
    inverse_ = detail::crc32_by_products(inverse_, first, first + bytes.size());
#else
    inverse_ = detail::crc32_by_tables(inverse_, first, first + bytes.size());
#endif
  }

  constexpr std::uint32_t value() const noexcept { return ~inverse_; }

 private:
  std::uint32_t inverse_ = ~std::uint32_t{0};
};

/// The sum of A followed by B, from the sums of both and B's length. Pieces may so be summed in any order, on any thread.
/// @post crc32_join(crc32_of(A), crc32_of(B), size of B) == crc32_of(A followed by B)
constexpr std::uint32_t crc32_join(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) noexcept {
  return detail::crc32_multiply(detail::crc32_power(8 * second_bytes), first) ^ second;
}

/// The sum of bytes that are all there.
inline std::uint32_t crc32_of(vector_view<char const> bytes) noexcept {
  crc32_sum sum;
  sum.update(bytes);
  return sum.value();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
