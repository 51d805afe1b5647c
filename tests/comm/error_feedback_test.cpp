// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
// ctest-labels: threads
#include <vector>

#include "error_feedback_suite.hpp"

using namespace tessera_tests;

TEST_CASE_TEMPLATE("error_feedback", Host, TESSERA_TEST_HOSTS) {
  feedback_host<Host> harness;
  error_feedback_suite(harness, 300);
}

TEST_CASE("error_feedback: every team gives the same bits") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (auto const& [rows, width] : {std::array<std::int64_t, 2>{1500, 40}, {1, 70'001}})
    for (auto const with : tessera::all_codecs) {
      auto const values = random_wire_rows(random, rows, width, width, drawn::normal);
      auto alone = random_wire_rows(random, rows, width, width, drawn::tiny), together = alone;
      feedback_host<serial_host> one;
      feedback_host<pool_host<4>> four;
      CHECK(one.send(with, values, alone) == four.send(with, values, together));
      CHECK(alone.values == together.values);
    }
}

TEST_CASE("error_feedback: what does not fit") {
  serial_host host;
  std::vector<float> values(12), residual(12);
  wire_bytes out(24);
  auto const thrown = [&](std::int64_t rows, std::int64_t columns, std::int64_t bytes) {
    try {
      tessera::encode_with_feedback(host.exec(), tessera::codec::fp16, tessera::matrix_view<float const>(values.data(), 3, 4),
                                    tessera::matrix_view<float>(residual.data(), rows, columns), {out.data(), bytes});
    } catch (tessera::error const& e) {
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.sentence().starts_with("encode_with_feedback: "));
      return e;
    }
    return tessera::error(tessera::errc::device_error, "nothing was thrown");
  };
  CHECK(thrown(2, 4, 24).value("rows") == "2");
  CHECK(thrown(3, 3, 24).value("expected columns") == "4");
  CHECK(thrown(3, 4, 20).value("expected") == "24");
}
