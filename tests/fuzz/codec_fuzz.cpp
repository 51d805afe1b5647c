// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Floats of any bits, encoded and decoded: finite ones stay within the bounds of the codec, others stay visible, and what was decoded is decoded the
// same again. Any bytes are decoded.
#include <tessera/comm/codec.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../comm/codec_bound.hpp"
#include "fuzz_support.hpp"

using fuzz::require;
using tessera::codec;

namespace {

struct rows {
  std::int64_t count, width, stride;
  std::vector<float> values;

  float at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * stride + c)]; }
  tessera::matrix_view<float> view() { return {values.data(), count, width, stride}; }
};

void check(codec with, rows const& from, rows const& to) {
  for (std::int64_t r = 0; r < from.count; ++r) {
    double largest = 0;
    bool finite = true;
    for (std::int64_t c = 0; c < from.width; ++c) {
      auto const x = std::fabs(double{from.at(r, c)});
      finite = finite && std::isfinite(x);
      if (std::isfinite(x)) largest = std::max(largest, x);
    }
    for (std::int64_t c = 0; c < from.width; ++c) {
      double const x = from.at(r, c), y = to.at(r, c);
      bool const stays_finite = with == codec::int8 ? finite : std::isfinite(x);
      require(std::isfinite(y) == stays_finite, "what is finite stays finite, and nothing else");
      if (stays_finite) require(std::fabs(y - x) <= tessera_tests::codec_bound(with, x, largest), "the error is within the bound");
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  fuzz::number_source numbers(fuzz::text_of(data, size));
  auto const with = tessera::all_codecs[numbers.below(6)];
  rows from{0, numbers.below(40), 0, {}};
  from.stride = from.width + numbers.below(4);
  while (!numbers.empty() && from.width > 0) {
    from.values.resize(static_cast<std::size_t>(++from.count * from.stride));
    for (std::int64_t c = 0; c < from.width; ++c)
      from.values[static_cast<std::size_t>((from.count - 1) * from.stride + c)] = numbers.take<float>();
  }
  tessera::serial_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  std::vector<std::byte> bytes(static_cast<std::size_t>(tessera::encoded_bytes(with, from.count, from.width)));
  auto to = from, again = from;
  tessera::encode(exec, with, tessera::matrix_view<float const>(from.view()), bytes);
  tessera::decode(exec, with, bytes, to.view());
  check(with, from, to);
  tessera::encode(exec, with, tessera::matrix_view<float const>(to.view()), bytes);
  tessera::decode(exec, with, bytes, again.view());
  if (with != codec::int8)
    for (std::size_t i = 0; i < to.values.size(); ++i)
      require(to.values[i] == again.values[i] || (std::isnan(to.values[i]) && std::isnan(again.values[i])), "decoding is the same again");
  if (size >= bytes.size() && !bytes.empty()) {
    std::memcpy(bytes.data(), data, bytes.size());
    tessera::decode(exec, with, bytes, to.view());
  }
  return 0;
}
