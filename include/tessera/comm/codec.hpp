// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/comm/row_encoding.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// How rows of floats are encoded when they travel to another process.
///
/// A finite value never becomes infinite or NaN. What is not finite stays visible as such. The table says how far y may be from x, where an
/// element x of a row whose largest finite magnitude is m is read as y. Of several bounds the largest holds.
///
/// codec    | bytes an element | abs(y - x) is at most           | an infinity    | NaN
/// ---------|------------------|---------------------------------|----------------|----------------
/// fp32     | 4                | 0                               | stays          | stays, bit by bit
/// fp16     | 2                | 2^-11 abs(x), 2^-25             | stays          | stays
/// bf16     | 2                | 2^-8 abs(x), 2^-134             | stays          | stays
/// int8     | 1                | m / 253, 2^-126                 | the row is NaN | the row is NaN
/// fp8_e4m3 | 1                | 2^-4 abs(x), 2^-17 m, 2^-126    | becomes NaN    | stays
/// fp8_e5m2 | 1                | 2^-3 abs(x), 2^-31 m, 2^-126    | stays          | stays
///
/// With fp16, finite values past 65504 become 65504, whatever the table says. Values are rounded to the nearest, of two equally near to the
/// even one. The codecs of one byte have a scale a row: a power of two in fp8, about m / 127 in int8. Zero is exact; int8 loses its sign.
/// A decoded row that is encoded again with its codec loses nothing more, but for int8.
enum class codec { fp32, fp16, bf16, int8, fp8_e4m3, fp8_e5m2 };

/// All codecs, in the order of their numbers.
inline constexpr codec all_codecs[] = {codec::fp32, codec::fp16, codec::bf16, codec::int8, codec::fp8_e4m3, codec::fp8_e5m2};

/// The name of a codec, as "bf16".
constexpr std::string_view name(codec with) noexcept {
  switch (with) {
    case codec::fp32: return "fp32";
    case codec::fp16: return "fp16";
    case codec::bf16: return "bf16";
    case codec::int8: return "int8";
    case codec::fp8_e4m3: return "fp8_e4m3";
    case codec::fp8_e5m2: return "fp8_e5m2";
  }
  return "codec";
}

/// The codec of that name. @throws tessera::error invalid_argument naming the text and the codecs that there are.
inline codec parse_codec(std::string_view text) {
  std::string known;
  for (auto const each : all_codecs) {
    if (name(each) == text) return each;
    known.append(known.empty() ? "" : " ").append(name(each));
  }
  throw error(errc::invalid_argument, "parse_codec: no codec has this name", {{"text", text}, {"codecs", known}});
}

/// What an exchange sends its vectors with, and what their gradients on the way back.
struct exchange_codecs {
  codec forward = codec::fp32;   ///< of vectors
  codec backward = codec::fp32;  ///< of gradients

  friend constexpr bool operator==(exchange_codecs const&, exchange_codecs const&) = default;
};

/// The codecs that a command line names: "fp16,bf16" forward and backward, or "fp16" for both.
/// @throws tessera::error invalid_argument as `parse_codec`, and for text of more than two names.
inline exchange_codecs parse_exchange_codecs(std::string_view text) {
  auto const comma = text.find(',');
  if (comma == text.npos) return {parse_codec(text), parse_codec(text)};
  if (text.find(',', comma + 1) != text.npos)
    throw error(errc::invalid_argument, "parse_exchange_codecs: two codecs at most, forward and backward", {{"text", text}});
  return {parse_codec(text.substr(0, comma)), parse_codec(text.substr(comma + 1))};
}

/// The bytes that `rows` encoded rows of `width` floats take, exactly; none where there are no floats.
///
/// Row r begins at byte r * encoded_bytes(with, 1, width). First comes its scale, a float, where the codec has one. Its elements follow;
/// zeros fill up the row to a multiple of 4 bytes. Each row stands for itself: rows that are encoded together are the rows encoded one by
/// one. Numbers have the machine's byte order. @throws tessera::error invalid_argument for a negative size, or a value that is no codec;
/// out_of_range for more bytes than an int64 counts, or a width past 2^60.
inline std::int64_t encoded_bytes(codec with, std::int64_t rows, std::int64_t width);

/// Encodes rows of any stride.
///
/// `rows` (n, width), `out` (encoded_bytes(with, n, width),), which begins at a multiple of 4 bytes and overlaps nothing. Nothing is
/// allocated. Results depend neither on threads nor on the device. On a device nothing waits. On the host one thread does a row, but
/// for the one row of a codec without scales: cut long vectors into rows.
/// @throws tessera::error shape_mismatch naming the bytes of `out` and those expected; invalid_argument for its alignment, or a value
/// that is no codec.
template <execution Exec>
void encode(Exec const& exec, codec with, matrix_view<float const> rows, vector_view<std::byte> out);

/// Decodes into rows of any stride; the arguments and errors are those of `encode`.
/// @pre `encode` wrote `in`, with this codec and width
template <execution Exec>
void decode(Exec const& exec, codec with, vector_view<std::byte const> in, matrix_view<float> rows);

/// Adds what is decoded to rows; the arguments and errors are those of `decode`. @post rows(r, c) is the float sum of what it was and of
/// what `decode` gives
template <execution Exec>
void decode_add(Exec const& exec, codec with, vector_view<std::byte const> in, matrix_view<float> rows);

namespace detail {

/// f(encoding), of the type that the codec names: once a call, not once a row.
template <class F>
decltype(auto) with_row_encoding(char const* call, codec with, F const& f) {
  check_choice(call, "codec", with, codec::fp8_e5m2);
  switch (with) {
    case codec::fp16: return f(row_encoding<float16>{});
    case codec::bf16: return f(row_encoding<bfloat16>{});
    case codec::int8: return f(row_encoding<scaled_int8>{});
    case codec::fp8_e4m3: return f(row_encoding<float8_e4m3>{});
    case codec::fp8_e5m2: return f(row_encoding<float8_e5m2>{});
    case codec::fp32: break;
  }
  return f(row_encoding<float>{});
}

/// What becomes of an element of the result, from what came and, where it `reads`, what the element was.
struct take_decoded {
  static constexpr bool reads = false;
  TESSERA_HOST_DEVICE constexpr float operator()(float, float decoded) const noexcept { return decoded; }
};
struct add_decoded {
  static constexpr bool reads = true;
  TESSERA_HOST_DEVICE constexpr float operator()(float before, float decoded) const noexcept { return before + decoded; }
};

/// The same elements as one row, where no scale, stride or filling parts the rows.
template <class Encoding, class T>
matrix_view<T> joined_rows(matrix_view<T> rows) noexcept {
  constexpr auto each = static_cast<std::int64_t>(sizeof(typename Encoding::element));
  if (Encoding::is_scaled || rows.stride() != rows.columns() || encoded_row_bytes<Encoding>(rows.columns()) != rows.columns() * each)
    return rows;
  return {rows.data(), 1, rows.rows() * rows.columns()};
}

struct codec_tag {};

template <>
struct back_end<codec_tag, host_exec> {
  template <class Encoding>
  static void encode(host_exec const& exec, matrix_view<float const> rows, std::byte* out) {
    for_each_part<Encoding>(exec, rows.rows(), rows.columns(), [&](std::int64_t r, std::int64_t first, std::int64_t last) {
      encode_part<Encoding>(rows.data() + r * rows.stride(), rows.columns(), first, last,
                            {out + r * encoded_row_bytes<Encoding>(rows.columns())});
    });
  }

  template <class Encoding, class Combine>
  static void decode(host_exec const& exec, std::byte const* in, matrix_view<float> rows, Combine combine) {
    for_each_part<Encoding>(exec, rows.rows(), rows.columns(), [&](std::int64_t r, std::int64_t first, std::int64_t last) {
      decode_part<Encoding>({in + r * encoded_row_bytes<Encoding>(rows.columns())}, first, last, rows.data() + r * rows.stride(), combine);
    });
  }

  /// Calls f(row, first, last) for columns [first, last) of each row: all of them, or parts of the one row that has no scale.
  template <class Encoding, class F>
  static void for_each_part(host_exec const& exec, std::int64_t rows, std::int64_t columns, F const& f) {
    constexpr std::int64_t floats_per_piece = 1 << 14;
    if (rows == 1 && !Encoding::is_scaled)
      return for_each_piece(exec, columns, floats_per_piece, [&](std::int64_t first, std::int64_t last) { f(0, first, last); });
    for_each_piece(exec, rows, std::max<std::int64_t>(1, floats_per_piece / columns), [&](std::int64_t first, std::int64_t last) {
      for (auto r = first; r < last; ++r) f(r, 0, columns);
    });
  }

  template <class Encoding>
  static void encode_part(float const* from, std::int64_t width, std::int64_t first, std::int64_t last,
                          encoded_row<Encoding, std::byte> to) noexcept {
    Encoding encoding;
    if constexpr (Encoding::is_scaled) {
      auto const largest = largest_weight<Encoding>(from + first, last - first);
      encoding = Encoding::covering(largest);
      to.write_scale(encoding);
    }
    encode_elements(encoding, from + first, last - first, to.elements() + first);
    if (auto const extent = to.extent(width); last == width && extent > width)
      std::memset(static_cast<void*>(to.elements() + width), 0,
                  static_cast<std::size_t>(extent - width) * sizeof(typename Encoding::element));
  }
  template <class Encoding, class Combine>
  static void decode_part(encoded_row<Encoding, std::byte const> from, std::int64_t first, std::int64_t last, float* to,
                          Combine combine) noexcept {
    decode_elements(from.encoding(), from.elements() + first, last - first, to + first, combine);
  }

 private:
  // f(count, first) for blocks of [0, n). Of a loop whose length is not known, g++ does up to 31 elements of one byte one by one.
  template <class F>
  [[gnu::always_inline]] static inline void in_blocks(std::int64_t n, F const& f) noexcept {
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) f(std::integral_constant<int, 32>{}, i);
    if (i + 16 <= n) f(std::integral_constant<int, 16>{}, i), i += 16;
    if (i + 8 <= n) f(std::integral_constant<int, 8>{}, i), i += 8;
    for (; i < n; ++i) f(std::integral_constant<int, 1>{}, i);
  }

  template <class Encoding>
  static std::uint32_t largest_weight(float const* from, std::int64_t n) noexcept {
    constexpr int lanes = 8;
    std::uint32_t largest[std::size_t{lanes}] = {};
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int lane = 0; lane < lanes; ++lane) {
        auto const weight = Encoding::weighed(from[i + lane]);
        largest[lane] = weight > largest[lane] ? weight : largest[lane];
      }
    auto all = largest[0];
    for (auto const of_lane : largest) all = of_lane > all ? of_lane : all;
    for (; i < n; ++i) {
      auto const weight = Encoding::weighed(from[i]);
      all = weight > all ? weight : all;
    }
    return all;
  }

  template <class Encoding>
  static void encode_elements(Encoding const encoding, float const* from, std::int64_t n, typename Encoding::element* to) noexcept {
    in_blocks(n, [=](auto count, std::int64_t i) { encode_block<decltype(count)::value>(encoding, from + i, to + i); });
  }
  template <class Encoding, class Combine>
  static void decode_elements(Encoding const encoding, typename Encoding::element const* from, std::int64_t n, float* to,
                              Combine combine) noexcept {
    in_blocks(n, [=](auto count, std::int64_t i) { decode_block<decltype(count)::value>(encoding, from + i, to + i, combine); });
  }
  template <int Count, class Encoding>
  [[gnu::always_inline]] static inline void encode_block(Encoding const encoding, float const* __restrict from,
                                                         typename Encoding::element* __restrict to) noexcept {
    for (int i = 0; i < Count; ++i) to[i] = encoding.encode(from[i]);
  }
  template <int Count, class Encoding, class Combine>
  [[gnu::always_inline]] static inline void decode_block(Encoding const encoding, typename Encoding::element const* __restrict from,
                                                         float* __restrict to, Combine combine) noexcept {
    for (int i = 0; i < Count; ++i) to[i] = combine(to[i], encoding.decode(from[i]));
  }
};

inline void check_encoded(char const* call, codec with, std::int64_t rows, std::int64_t width, vector_view<std::byte const> bytes) {
  auto const expected = encoded_bytes(with, rows, width);
  if (bytes.size() != expected)
    throw error(errc::shape_mismatch, std::string(call) + ": the bytes are not those of these rows",
                {{"codec", name(with)}, {"rows", rows}, {"width", width}, {"bytes", bytes.size()}, {"expected", expected}});
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) != 0)
    throw error(errc::invalid_argument, std::string(call) + ": the bytes begin at no multiple of 4",
                {{"address", reinterpret_cast<std::uintptr_t>(bytes.data())}});
}

template <class Exec, class Combine>
void decode_rows(Exec const& exec, char const* call, codec with, vector_view<std::byte const> in, matrix_view<float> rows,
                 Combine combine) {
  check_encoded(call, with, rows.rows(), rows.columns(), in);
  if (in.empty()) return;
  with_row_encoding(call, with, [&]<class Encoding>(Encoding) {
    back_end<codec_tag, Exec>::template decode<Encoding>(exec, in.data(), joined_rows<Encoding>(rows), combine);
  });
}

}  // namespace detail

inline std::int64_t encoded_bytes(codec with, std::int64_t rows, std::int64_t width) {
  return detail::with_row_encoding("encoded_bytes", with, [&]<class Encoding>(Encoding) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    if (rows < 0 || width < 0) throw error(errc::invalid_argument, "encoded_bytes: a negative size", {{"rows", rows}, {"width", width}});
    if (rows > 0 && (width > most / 8 || detail::encoded_row_bytes<Encoding>(width) > most / rows))
      throw error(errc::out_of_range, "encoded_bytes: more bytes than can be counted", {{"rows", rows}, {"width", width}});
    return rows == 0 ? 0 : rows * detail::encoded_row_bytes<Encoding>(width);
  });
}

template <execution Exec>
void encode(Exec const& exec, codec with, matrix_view<float const> rows, vector_view<std::byte> out) {
  detail::check_encoded("encode", with, rows.rows(), rows.columns(), out);
  if (out.empty()) return;
  detail::with_row_encoding("encode", with, [&]<class Encoding>(Encoding) {
    detail::back_end<detail::codec_tag, Exec>::template encode<Encoding>(exec, detail::joined_rows<Encoding>(rows), out.data());
  });
}

template <execution Exec>
void decode(Exec const& exec, codec with, vector_view<std::byte const> in, matrix_view<float> rows) {
  detail::decode_rows(exec, "decode", with, in, rows, detail::take_decoded{});
}

template <execution Exec>
void decode_add(Exec const& exec, codec with, vector_view<std::byte const> in, matrix_view<float> rows) {
  detail::decode_rows(exec, "decode_add", with, in, rows, detail::add_decoded{});
}

}  // namespace TESSERA_ABI
}  // namespace tessera
