// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 2
#include "target_attention_suite.hpp"

#include <tessera/core/memory.hpp>
#include <tessera/nn/gemm_eigen.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::errc;
using tessera::random_seed;
using tessera::target_attention;
using tessera::target_attention_options;
using tessera::target_attention_saved;
using tessera_tests::error_of;
using tessera_tests::nn_host;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("target_attention with Eigen") { tessera_tests::target_attention_suite<nn_host<tessera::eigen_gemm>>(); }
TEST_CASE("target_attention with a triple loop on two threads") {
  tessera_tests::target_attention_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}

// Rows of geometric lengths, each with some samples.
struct click_batch {
  std::vector<std::int64_t> offsets{0}, inverse;
  strided_floats history, targets, gradient;

  click_batch(std::mt19937_64& random, std::int64_t rows, std::int64_t samples, std::int64_t dim)
      : history(0, dim, 0), targets(random, samples, dim, 0), gradient(random, samples, dim, 0) {
    std::geometric_distribution<std::int64_t> length(0.05);
    for (std::int64_t r = 0; r < rows; ++r) offsets.push_back(offsets.back() + length(random));
    inverse = tessera_tests::random_integers<std::int64_t>(random, static_cast<std::size_t>(samples), 0, rows - 1);
    history = strided_floats(random, offsets.back(), dim, 0);
  }
  tessera::jagged_vectors_view<float const> rows() const {
    return {history.view(), offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1};
  }
};

TEST_CASE("target_attention: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_batch const batch(random, 30, tessera_tests::under_sanitizer ? 60 : 200, 24);
  for (bool const softmax : {false, true}) {
    std::vector<std::vector<float>> first;
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      target_attention const net(exec, {.dim = 24, .softmax = softmax, .pairs_at_once = 1000, .seed = random_seed{seed}});
      target_attention_saved saved;
      strided_floats out(batch.targets.rows, 24, 0), targets(batch.targets.rows, 24, 0), history(batch.history.rows, 24, 0);
      std::vector<float> parameter_gradient(static_cast<std::size_t>(net.parameters().size()));
      net.forward(exec, tessera::eigen_gemm{}, batch.rows(), batch.inverse, batch.targets.view(), out.view(), saved);
      net.backward(exec, tessera::eigen_gemm{}, saved, batch.gradient.view(), parameter_gradient, targets.view(), history.view());
      std::vector<std::vector<float>> const results{out.storage, parameter_gradient, targets.storage, history.storage};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) CHECK(tessera_tests::same_bits(results[i], first[i]));
    });
  }
}

TEST_CASE("target_attention: from the third equal step on nothing is allocated, and memory does not grow with the pairs") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  click_batch const batch(random, 4, 300, 8);
  auto const peak_of = [&](std::int64_t samples) {
    serial_host host;
    tessera::arena arena(host.memory(), 256);
    auto const exec = host.exec().with_memory(arena);
    target_attention const net(host.exec(), {.dim = 8, .hidden = {16}, .pairs_at_once = 64});
    std::vector<float> out(8 * static_cast<std::size_t>(samples)), block(static_cast<std::size_t>(net.parameters().size()));
    tessera::matrix_view<float> const out_view(out.data(), samples, 8);
    auto const inverse = tessera::vector_view<std::int64_t const>(batch.inverse).slice(0, samples);
    std::int64_t after_two = 0;
    for (int step = 0; step < 5; ++step) {
      target_attention_saved saved;
      net.forward(exec, tessera::eigen_gemm{}, batch.rows(), inverse, batch.targets.view().rows_from(0, samples), out_view, saved);
      net.backward(exec, tessera::eigen_gemm{}, saved, batch.gradient.view().rows_from(0, samples), block);
      if (step == 1) after_two = host.memory().allocations();
    }
    CHECK(after_two > 0);
    CHECK(host.memory().allocations() == after_two);
    return host.memory().peak_bytes();
  };
  // A sample more costs its targets' part and gradient, (16 + 16 + 8) floats, and three numbers, whatever its history; an arena keeps half more.
  // Few samples may all have short rows, so a chunk's matrices, (8 + 16 + 1 + 1 + 2 * 16) floats a pair, may be there for many samples alone.
  std::int64_t chunk = 64;
  for (std::size_t r = 1; r < batch.offsets.size(); ++r) chunk = std::max(chunk, batch.offsets[r] - batch.offsets[r - 1]);
  CHECK(peak_of(300) < peak_of(20) + static_cast<std::size_t>(280 * 3 * (40 * 4 + 6 * 8) + 2 * chunk * 58 * 4));
}

TEST_CASE("target_attention: parameters are those of the network, and its blocks name them") {
  serial_host host;
  target_attention net(host.exec(), {.dim = 3, .hidden = {5, 2}, .seed = random_seed{7}, .stream = 3});
  tessera::mlp const alike(host.exec(), tessera::mlp_options{{12, 5, 2, 1}, tessera::activation::identity, random_seed{7}, 3});
  CHECK(std::vector<float>(net.parameters().begin(), net.parameters().end()) ==
        std::vector<float>(alike.parameters().begin(), alike.parameters().end()));
  CHECK(net.bytes() == alike.bytes());
  auto const blocks = net.blocks("din");
  REQUIRE(blocks.size() == 6);
  CHECK(blocks[0].name == "din.0.weight");
  CHECK(blocks[0].shape == std::vector<std::int64_t>{5, 12});
  CHECK(blocks[5].name == "din.2.bias");
  CHECK(target_attention(host.exec(), {.dim = 3}).network().widths() == std::vector<std::int64_t>{12, 80, 40, 1});
  CHECK_FALSE(std::is_copy_constructible_v<target_attention>);
}

TEST_CASE("target_attention: what does not fit is refused") {
  serial_host host;
  auto const refused = [&](target_attention_options const& options, char const* what) {
    auto const e = error_of([&] { target_attention(host.exec(), options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(what) != "");
  };
  refused({.dim = 0}, "dim");
  refused({.dim = std::int64_t{1} << 40}, "dim");
  refused({.dim = 2, .hidden = {3, 0}}, "width");
  refused({.dim = 2, .pairs_at_once = 0}, "pairs_at_once");

  target_attention const net(host.exec(), {.dim = 2, .hidden = {3}});
  std::vector<float> memory(64, 1.0F), block(static_cast<std::size_t>(net.parameters().size()), 7.0F);
  auto const untouched = block;
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(memory.data(), rows, columns); };
  std::vector<std::int64_t> const offsets{0, 2, 5}, inverse{0, 1, 1}, wrong{0, 2, 1}, negative{0, -1, 1};
  tessera::jagged_vectors_view<float const> const history{matrix(5, 2), offsets.data(), 2};
  target_attention_saved saved;
  auto const forward = [&](auto rows, std::vector<std::int64_t> const& of, auto targets, auto out) {
    net.forward(host.exec(), tessera::eigen_gemm{}, rows, of, targets, out, saved);
  };
  std::vector<float> written(64);
  auto const out = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(written.data(), rows, columns); };
  auto const backward = [&](auto gradient, tessera::vector_view<float> parameters, auto targets, auto vectors) {
    net.backward(host.exec(), tessera::eigen_gemm{}, saved, gradient, parameters, targets, vectors);
  };
  auto const mismatch = [&](auto const& call) { CHECK(error_of(call).code() == errc::shape_mismatch); };
  mismatch([&] { backward(matrix(3, 2), block, out(3, 2), out(5, 2)); });  // no forward was
  mismatch([&] { forward(tessera::jagged_vectors_view<float const>{matrix(5, 3), offsets.data(), 2}, inverse, matrix(3, 2), out(3, 2)); });
  mismatch([&] { forward(history, inverse, matrix(2, 2), out(3, 2)); });
  mismatch([&] { forward(history, inverse, matrix(3, 2), out(2, 2)); });
  mismatch([&] { forward(history, {}, matrix(3, 2), out(3, 2)); });
  mismatch([&] { forward(history, inverse, matrix(3, 2), tessera::matrix_view<float>(memory.data(), 3, 2, 1)); });
  for (auto const& bad : {wrong, negative}) {
    auto const e = error_of([&] { forward(history, bad, matrix(3, 2), out(3, 2)); });
    CHECK(e.code() == errc::out_of_range);
    CHECK(e.value("sample") == "1");
    CHECK(e.value("row") == std::to_string(bad[1]));
    CHECK(e.value("rows") == "2");
  }
  mismatch([&] { backward(matrix(3, 2), block, out(3, 2), out(5, 2)); });  // the forward threw
  forward(history, inverse, matrix(3, 2), out(3, 2));
  mismatch([&] { backward(matrix(2, 2), block, out(3, 2), out(5, 2)); });
  mismatch([&] { backward(matrix(3, 2), tessera::vector_view<float>(block).slice(0, 5), out(3, 2), out(5, 2)); });
  mismatch([&] { backward(matrix(3, 2), block, out(2, 2), out(5, 2)); });
  mismatch([&] { backward(matrix(3, 2), block, out(3, 2), out(4, 2)); });
  mismatch([&] { backward(matrix(3, 2), block, tessera::matrix_view<float>(written.data(), 3, 2, 1), out(5, 2)); });
  mismatch([&] { backward(matrix(3, 2), block, out(3, 2), tessera::matrix_view<float>(written.data(), 5, 2, 1)); });
  CHECK(block == untouched);
  backward(matrix(3, 2), block, out(3, 2), out(5, 2));
  CHECK(block != untouched);
}

}  // namespace
