// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/comm/codec.hpp>
#include <tessera/comm/row_encoding.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Rows of floats beside those that they are encoded as, in fours of columns.
template <class Encoding, class Float, class Byte>
struct encoded_fours {
  using row = encoded_row<Encoding, Byte>;
  using element = typename Encoding::element;
  matrix_view<Float> floats;
  Byte* bytes;
  bool floats_at_once, elements_at_once;  // whether a four is one access

  encoded_fours(matrix_view<Float> floats, Byte* bytes) noexcept
      : floats(floats), bytes(bytes), floats_at_once(moves_by_four(floats.data(), floats.columns(), floats.stride())) {
    // Rows of whole fours begin at multiples of a four's bytes; rows of single bytes are always filled up to fours.
    constexpr bool are_bytes = sizeof(element) == 1;
    elements_at_once =
        (are_bytes || floats.columns() % 4 == 0) && reinterpret_cast<std::uintptr_t>(row{bytes}.elements()) % (4 * sizeof(element)) == 0;
  }

  TESSERA_HOST_DEVICE std::int64_t fours() const noexcept { return divide_up(floats.columns(), 4); }
  TESSERA_DEVICE row encoded(std::int64_t r) const noexcept { return {bytes + r * encoded_row_bytes<Encoding>(floats.columns())}; }
  TESSERA_DEVICE Float* floats_at(std::int64_t r, std::int64_t c) const noexcept { return floats.data() + r * floats.stride() + c; }

  TESSERA_DEVICE four_elements<float> read_floats(std::int64_t r, std::int64_t c) const noexcept {
    return read_four<float>(floats_at(r, c), floats.columns() - c, floats_at_once);
  }
  /// Encodes a four, the last one of a row with the zeros that fill it up.
  TESSERA_DEVICE void encode(Encoding const& encoding, std::int64_t r, std::int64_t c) const noexcept {
    auto const values = read_floats(r, c);
    four_elements<element> four;
    for (int i = 0; i < 4; ++i) four[i] = encoding.encode(values[i]);
    write_four(encoded(r).elements() + c, four, row::extent(floats.columns()) - c, elements_at_once);
  }
};

// One four of a row without a scale a thread. Bytes: 4 read and sizeof(element) written a float.
template <class Encoding>
struct encode_four {
  encoded_fours<Encoding, float const, std::byte> rows;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const fours = rows.fours();
    rows.encode(Encoding{}, i / fours, i % fours * 4);
  }
};

// A row with a scale a group of threads, which reads it twice, the second time from a cache.
template <class Encoding>
struct encode_row {
  static constexpr int threads = 256;
  static constexpr std::int64_t shared_bytes = threads * sizeof(std::uint32_t);
  encoded_fours<Encoding, float const, std::byte> rows;
  int lanes;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const lane = block.thread() % lanes;
    auto* const scratch = block.template shared<std::uint32_t>() + block.thread() / lanes * lanes;
    for_each_unit(block, rows.floats.rows(), threads / lanes, block.thread() / lanes, [&](std::int64_t r) {
      std::uint32_t largest = 0;
      for (auto c = std::int64_t{4} * lane; c < rows.floats.columns(); c += 4 * lanes) {
        auto const values = rows.read_floats(r, c);
        for (int i = 0; i < 4; ++i) {
          auto const weight = Encoding::weighed(values[i]);
          largest = weight > largest ? weight : largest;
        }
      }
      auto const encoding = Encoding::covering(largest_of_group(block, scratch, largest, lanes, lane));
      if (lane == 0) rows.encoded(r).write_scale(encoding);
      for (auto c = std::int64_t{4} * lane; c < rows.floats.columns(); c += 4 * lanes) rows.encode(encoding, r, c);
    });
  }
};

// One four a thread, with or without a scale.
template <class Encoding, class Combine>
struct decode_four {
  encoded_fours<Encoding, float, std::byte const> rows;
  Combine combine;

  TESSERA_DEVICE void operator()(std::int64_t i) const {
    auto const fours = rows.fours(), r = i / fours, c = i % fours * 4, count = rows.floats.columns() - c;
    auto const from = rows.encoded(r);
    auto const encoding = from.encoding();
    auto const elements = read_four<typename Encoding::element>(from.elements() + c, count, rows.elements_at_once);
    auto* const to = rows.floats_at(r, c);
    four_elements<float> four{};
    if constexpr (Combine::reads) four = read_four<float>(to, count, rows.floats_at_once);
    for (int k = 0; k < 4; ++k) four[k] = combine(four[k], encoding.decode(elements[k]));
    write_four(to, four, count, rows.floats_at_once);
  }
};

template <device_execution Exec>
struct back_end<codec_tag, Exec> {
  template <class Encoding>
  static void encode(Exec const& exec, matrix_view<float const> rows, std::byte* out) {
    encoded_fours<Encoding, float const, std::byte> const fours(rows, out);
    if constexpr (Encoding::is_scaled) {
      using kernel = encode_row<Encoding>;
      auto const lanes = lanes_for(rows.columns());
      exec.launch({.blocks = blocks_for(rows.rows(), kernel::threads / lanes), .shared_bytes = kernel::shared_bytes}, kernel{fours, lanes});
    } else {
      launch_for_each(exec, rows.rows() * fours.fours(), encode_four<Encoding>{fours});
    }
  }

  template <class Encoding, class Combine>
  static void decode(Exec const& exec, std::byte const* in, matrix_view<float> rows, Combine combine) {
    encoded_fours<Encoding, float, std::byte const> const fours(rows, in);
    launch_for_each(exec, rows.rows() * fours.fours(), decode_four<Encoding, Combine>{fours, combine});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
