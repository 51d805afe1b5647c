// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/nn/sequence_pooling.hpp>

#include "nn_harness.hpp"
#include "temporary_folder.hpp"

namespace {

using tessera::sequence_pooling;
using tessera_tests::error_of;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

std::vector<std::int32_t> const offsets{2, 5, 5, 6};

TEST_CASE("pool_sequences: mean, sum and last of each row, zeros of an empty one") {
  serial_host host;
  std::vector<float> const values{-1, -1, -1, -1, 1, 10, 2, 20, 6, 60, 7, 70};
  tessera::jagged_vectors_view<float const, std::int32_t> const rows{{values.data(), 6, 2}, offsets.data(), 3};
  auto const pooled = [&](sequence_pooling mode) {
    std::vector<float> out(6, -5.0F);
    tessera::pool_sequences(host.exec(), rows, mode, {out.data(), 3, 2});
    return out;
  };
  CHECK(pooled(sequence_pooling::mean) == std::vector<float>{3, 30, 0, 0, 7, 70});
  CHECK(pooled(sequence_pooling::sum) == std::vector<float>{9, 90, 0, 0, 7, 70});
  CHECK(pooled(sequence_pooling::last) == std::vector<float>{6, 60, 0, 0, 7, 70});
}

TEST_CASE("pool_sequences_backward: what each vector gets, with strides, and nothing outside the rows") {
  serial_host host;
  std::vector<float> const gradient{3, 30, 5, 50, 7, 70};
  auto const spread = [&](sequence_pooling mode) {
    strided_floats to(6, 2, 1, -5.0F);
    tessera::pool_sequences_backward(host.exec(), {gradient.data(), 3, 2}, mode,
                                     tessera::jagged_vectors_view<float, std::int32_t>{to.view(), offsets.data(), 3});
    CHECK(to.gaps_intact());
    std::vector<float> all;
    for (std::int64_t r = 0; r < 6; ++r)
      for (std::int64_t c = 0; c < 2; ++c) all.push_back(to.at(r, c));
    return all;
  };
  auto const third = 1.0F / 3.0F;
  CHECK(spread(sequence_pooling::mean) ==
        std::vector<float>{-5, -5, -5, -5, third * 3, third * 30, third * 3, third * 30, third * 3, third * 30, 7, 70});
  CHECK(spread(sequence_pooling::sum) == std::vector<float>{-5, -5, -5, -5, 3, 30, 3, 30, 3, 30, 7, 70});
  CHECK(spread(sequence_pooling::last) == std::vector<float>{-5, -5, -5, -5, 0, 0, 0, 0, 3, 30, 7, 70});
}

TEST_CASE("pool_sequences: what does not fit is refused") {
  serial_host host;
  std::vector<float> memory(20);
  std::vector<std::int32_t> const past{0, 7, 7, 7};
  auto const rows = [&](std::vector<std::int32_t> const& of) {
    return tessera::jagged_vectors_view<float, std::int32_t>{{memory.data(), 6, 2}, of.data(), 3};
  };
  auto const code = [](auto const& call) { return error_of(call).code(); };
  for (auto const mode : {sequence_pooling::mean, sequence_pooling::sum, sequence_pooling::last}) {
    auto const forward = [&](auto in, tessera::matrix_view<float> out) {
      return [&, in, out] { tessera::pool_sequences(host.exec(), tessera::jagged_vectors_view<float const, std::int32_t>(in), mode, out); };
    };
    auto const backward = [&](auto in, tessera::matrix_view<float> gradient) {
      return [&, in, gradient] { tessera::pool_sequences_backward(host.exec(), gradient, mode, in); };
    };
    CHECK(code(forward(rows(offsets), {memory.data(), 2, 2})) == tessera::errc::shape_mismatch);
    CHECK(code(forward(rows(offsets), {memory.data(), 3, 3})) == tessera::errc::shape_mismatch);
    CHECK(code(forward(rows(offsets), {memory.data(), 3, 2, 1})) == tessera::errc::shape_mismatch);
    CHECK(code(forward(rows(past), {memory.data(), 3, 2})) == tessera::errc::out_of_range);
    CHECK(code(backward(rows(offsets), {memory.data(), 2, 2})) == tessera::errc::shape_mismatch);
    CHECK(code(backward(rows(offsets), {memory.data(), 3, 2, 1})) == tessera::errc::shape_mismatch);
    CHECK(code(backward(rows(past), {memory.data(), 3, 2})) == tessera::errc::out_of_range);
  }
  auto const none = static_cast<sequence_pooling>(7);
  tessera::matrix_view<float> const pooled(memory.data(), 3, 2);
  auto const in = rows(offsets);
  CHECK(std::string(error_of([&] {
                      tessera::pool_sequences(host.exec(), tessera::jagged_vectors_view<float const, std::int32_t>(in), none, pooled);
                    }).what()) == "pool_sequences: no such pooling (pooling 7)");
  CHECK(std::string(error_of([&] { tessera::pool_sequences_backward(host.exec(), pooled, none, in); }).what()) ==
        "pool_sequences_backward: no such pooling (pooling 7)");
  CHECK(memory == std::vector<float>(20));
}

}  // namespace
