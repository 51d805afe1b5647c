// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
// ctest-labels: threads
#include <array>

#include "codec_suite.hpp"

using namespace tessera_tests;

namespace codec_test {

namespace {

using tessera::codec;

static_assert(tessera::name(codec::fp8_e5m2) == "fp8_e5m2");
static_assert(tessera::exchange_codecs{} == tessera::exchange_codecs{codec::fp32, codec::fp32});

template <class Call>
tessera::error codec_error(Call const& call) {
  try {
    call();
  } catch (tessera::error const& e) {
    return e;
  }
  return {tessera::errc::device_error, "nothing was thrown"};
}

}  // namespace

TEST_CASE_TEMPLATE("codec", Host, TESSERA_TEST_HOSTS) {
  codec_host<Host> harness;
  codec_suite(harness, {1, 2, 3, 4, 7, 16, 33, 128, 1030});
}

TEST_CASE("codec: every team gives the same bits, of many rows and of one long row") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& [rows, width, stride] :
       {std::array<std::int64_t, 3>{3000, 17, 17}, {3000, 16, 16}, {900, 64, 70}, {1, 100'003, 100'003}}) {
    auto const from = random_wire_rows(random, rows, width, stride, drawn::any_magnitude);
    for (auto const with : tessera::all_codecs) {
      codec_host<serial_host> alone;
      auto const bytes = alone.encode(with, from);
      auto const decoded = alone.decode(with, bytes, wire_rows(rows, width, width));
      CHECK(out_of_bounds(with, from, decoded) == "");
      codec_host<pool_host<4>> together;
      CHECK(together.encode(with, from) == bytes);
      CHECK(together.decode(with, bytes, wire_rows(rows, width, width)).values == decoded.values);
    }
  }
}

TEST_CASE("codec: names") {
  for (auto const with : tessera::all_codecs) CHECK(tessera::parse_codec(tessera::name(with)) == with);
  auto const e = codec_error([] { tessera::parse_codec("int4"); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("text") == "int4");
  CHECK(e.value("codecs") == "fp32 fp16 bf16 int8 fp8_e4m3 fp8_e5m2");
  CHECK(codec_error([] { tessera::parse_codec(""); }).value("text") == "");
  CHECK(codec_error([] { tessera::parse_codec("FP16"); }).code() == tessera::errc::invalid_argument);

  CHECK(tessera::parse_exchange_codecs("fp16,bf16") == tessera::exchange_codecs{codec::fp16, codec::bf16});
  CHECK(tessera::parse_exchange_codecs("int8") == tessera::exchange_codecs{codec::int8, codec::int8});
  CHECK(codec_error([] { tessera::parse_exchange_codecs("fp16,bf16,int8"); }).value("text") == "fp16,bf16,int8");
  CHECK(codec_error([] { tessera::parse_exchange_codecs("fp16,"); }).value("text") == "");
  CHECK(codec_error([] { tessera::parse_exchange_codecs("fp16, bf16"); }).value("text") == " bf16");
}

TEST_CASE("codec: sizes") {
  CHECK(tessera::encoded_bytes(codec::fp32, 3, 5) == 60);
  CHECK(tessera::encoded_bytes(codec::fp16, 3, 5) == 36);
  CHECK(tessera::encoded_bytes(codec::bf16, 3, 6) == 36);
  CHECK(tessera::encoded_bytes(codec::int8, 3, 5) == 36);
  CHECK(tessera::encoded_bytes(codec::fp8_e4m3, 3, 8) == 36);
  CHECK(tessera::encoded_bytes(codec::fp8_e5m2, 7, 1) == 56);
  CHECK(tessera::encoded_bytes(codec::int8, std::int64_t{1} << 40, 128) == (std::int64_t{1} << 40) * 132);
  CHECK(tessera::encoded_bytes(codec::fp16, 1, std::int64_t{1} << 40) == std::int64_t{1} << 41);
  for (auto const with : tessera::all_codecs) {
    CHECK(tessera::encoded_bytes(with, 0, 7) == 0);
    CHECK(tessera::encoded_bytes(with, 7, 0) == 0);
    CHECK(tessera::encoded_bytes(with, 0, std::numeric_limits<std::int64_t>::max()) == 0);
    CHECK(codec_error([&] { tessera::encoded_bytes(with, 1, std::numeric_limits<std::int64_t>::max()); }).code() ==
          tessera::errc::out_of_range);
    CHECK(codec_error([&] { tessera::encoded_bytes(with, std::int64_t{1} << 60, 16); }).value("width") == "16");
    CHECK(codec_error([&] { tessera::encoded_bytes(with, -1, 16); }).value("rows") == "-1");
    CHECK(codec_error([&] { tessera::encoded_bytes(with, 2, -3); }).code() == tessera::errc::invalid_argument);
  }
  CHECK(codec_error([] { tessera::encoded_bytes(static_cast<codec>(6), 1, 1); }).value("codec") == "6");
}

TEST_CASE("codec: what does not fit") {
  serial_host host;
  auto const exec = host.exec();
  std::vector<float> rows(12);
  wire_bytes bytes(40);
  tessera::matrix_view<float> const matrix(rows.data(), 3, 4);
  for (std::int64_t const size : {20, 28}) {
    auto const e = codec_error([&] { tessera::encode(exec, codec::fp16, matrix, {bytes.data(), size}); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(e.value("bytes") == std::to_string(size));
    CHECK(e.value("expected") == "24");
    CHECK(e.value("codec") == "fp16");
    CHECK(codec_error([&] { tessera::decode(exec, codec::fp16, {bytes.data(), size}, matrix); }).sentence().starts_with("decode: "));
    CHECK(codec_error([&] {
            tessera::decode_add(exec, codec::fp16, {bytes.data(), size}, matrix);
          })
              .sentence()
              .starts_with("decode_add: "));
  }
  auto const e = codec_error([&] { tessera::encode(exec, codec::int8, matrix, {bytes.data() + 2, 24}); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("address") != "");
  CHECK(codec_error([&] { tessera::decode(exec, static_cast<codec>(-1), bytes, matrix); }).value("codec") == "-1");
}

}  // namespace codec_test
