// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

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

}  // namespace detail

/// The CRC-32 of bytes that arrive in pieces, as zlib, gzip and Python's zlib.crc32 compute it: "123456789" gives cbf43926.
class crc32_sum {
 public:
  /// The sum of no bytes, 0; or one to continue.
  constexpr crc32_sum() = default;
  /// Continues from the sum of earlier bytes.
  constexpr explicit crc32_sum(std::uint32_t value) noexcept : inverse_(~value) {}

  void update(vector_view<char const> bytes) noexcept {
    auto const& tables = detail::crc32_tables;
    auto const* p = reinterpret_cast<unsigned char const*>(bytes.data());
    auto const* const end = p + bytes.size();
    auto sum = inverse_;
    for (; end - p >= 8; p += 8) {
      auto const low = sum ^ (p[0] | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 | std::uint32_t{p[3]} << 24);
      sum = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff] ^ tables[4][low >> 24] ^ tables[3][p[4]] ^
            tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
    }
    for (; p != end; ++p) sum = (sum >> 8) ^ tables[0][(sum ^ *p) & 0xff];
    inverse_ = sum;
  }

  constexpr std::uint32_t value() const noexcept { return ~inverse_; }

 private:
  std::uint32_t inverse_ = ~std::uint32_t{0};
};

/// The sum of A followed by B, from the sums of both and B's length. Pieces may so be summed in any order, on any thread.
/// @post crc32_join(crc32_of(A), crc32_of(B), size of B) == crc32_of(A followed by B)
constexpr std::uint32_t crc32_join(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes) noexcept {
  std::uint32_t shift = std::uint32_t{1} << 31;   // x^0
  std::uint32_t square = std::uint32_t{1} << 23;  // x^8: one byte further
  for (; second_bytes > 0; second_bytes >>= 1) {
    if ((second_bytes & 1) != 0) shift = detail::crc32_multiply(shift, square);
    square = detail::crc32_multiply(square, square);
  }
  return detail::crc32_multiply(shift, first) ^ second;
}

/// The sum of bytes that are all there.
inline std::uint32_t crc32_of(vector_view<char const> bytes) noexcept {
  crc32_sum sum;
  sum.update(bytes);
  return sum.value();
}

}  // namespace TESSERA_ABI
}  // namespace tessera
