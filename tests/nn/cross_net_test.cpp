// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 2
#include "cross_net_suite.hpp"

#include <numeric>

#include <tessera/core/memory.hpp>
#include <tessera/nn/gemm_eigen.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::cross_net;
using tessera::cross_net_options;
using tessera::errc;
using tessera::random_seed;
using tessera_tests::copy_of;
using tessera_tests::error_of;
using tessera_tests::nn_host;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("cross_net with Eigen") { tessera_tests::cross_net_suite<nn_host<tessera::eigen_gemm>>(); }
TEST_CASE("cross_net with a triple loop on two threads") {
  tessera_tests::cross_net_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}

TEST_CASE("cross_net: 1, 2 and 4 threads give the same bits, from the first weight on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const samples = tessera_tests::under_sanitizer ? 67 : 300;
  for (std::int64_t const rank : {0, 33}) {
    strided_floats const x(random, samples, 150, 0), gradient(random, samples, 150, 0);
    std::vector<std::vector<float>> first;
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      cross_net const net(exec, {.width = 150, .layers = 2, .rank = rank, .seed = random_seed{seed}});
      tessera::cross_saved saved;
      strided_floats y(samples, 150, 0), x_gradient(samples, 150, 0);
      auto g = gradient;
      std::vector<float> parameter_gradient(static_cast<std::size_t>(net.parameters().size()));
      net.forward(exec, tessera::eigen_gemm{}, x.view(), y.view(), saved);
      net.backward(exec, tessera::eigen_gemm{}, saved, g.view(), parameter_gradient, x_gradient.view());
      std::vector<std::vector<float>> const results{copy_of(net.parameters()), y.storage, x_gradient.storage, parameter_gradient};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) CHECK(tessera_tests::same_bits(results[i], first[i]));
    });
  }
}

TEST_CASE("cross_net: a crossing written out") {
  serial_host host;
  cross_net net(host.exec(), {.width = 2, .layers = 2});
  float const values[]{1, 2, 3, 4, 5, 6, 0, 1, 1, 0, -1, 0};
  std::copy(std::begin(values), std::end(values), net.parameters().begin());
  std::vector<float> const x{1, 2};
  std::vector<float> y(2);
  tessera::cross_saved saved;
  net.forward(host.exec(), tessera::eigen_gemm{}, {x.data(), 1, 2}, {y.data(), 1, 2}, saved);
  // x_1 = (1, 2) ∘ (1 + 4 + 5, 3 + 8 + 6) + (1, 2) = (11, 36); x_2 = (1, 2) ∘ (36 - 1, 11) + (11, 36)
  CHECK(y == std::vector<float>{46, 58});
}

TEST_CASE("cross_net: from the third equal step on nothing is allocated") {
  serial_host host;
  tessera::arena arena(host.memory(), 256);
  auto const exec = host.exec().with_memory(arena);
  cross_net const net(host.exec(), {.width = 8, .layers = 3, .rank = 2});
  std::vector<float> x(80, 0.5F), y(80), x_gradient(80), gradient(80, 1.0F), block(static_cast<std::size_t>(net.parameters().size()));
  std::int64_t after_two = 0;
  for (int step = 0; step < 6; ++step) {
    tessera::cross_saved saved;
    net.forward(exec, tessera::eigen_gemm{}, {x.data(), 10, 8}, {y.data(), 10, 8}, saved);
    net.backward(exec, tessera::eigen_gemm{}, saved, {gradient.data(), 10, 8}, block, {x_gradient.data(), 10, 8});
    if (step == 1) after_two = host.memory().allocations();
  }
  CHECK(after_two > 0);
  CHECK(host.memory().allocations() == after_two);
}

TEST_CASE("cross_net: initial weights depend on the seed and the stream, with the documented variance") {
  serial_host host;
  auto const make = [&](std::uint64_t seed, std::uint32_t stream) {
    return cross_net(host.exec(), {.width = 300, .layers = 2, .rank = 100, .seed = random_seed{seed}, .stream = stream});
  };
  auto const net = make(7, 3);
  CHECK(copy_of(net.parameters()) == copy_of(make(7, 3).parameters()));
  CHECK(copy_of(net.parameters()) != copy_of(make(8, 3).parameters()));
  CHECK(copy_of(net.parameters()) != copy_of(make(7, 4).parameters()));

  auto const check = [](tessera::matrix_view<float const> weight) {
    auto const variance = 2.0 / static_cast<double>(weight.rows() + weight.columns()), bound = std::sqrt(3 * variance);
    auto const n = static_cast<double>(weight.rows() * weight.columns());
    double sum = 0, squares = 0, largest = 0;
    for (std::int64_t r = 0; r < weight.rows(); ++r)
      for (std::int64_t c = 0; c < weight.columns(); ++c) {
        auto const w = static_cast<double>(weight(r, c));
        sum += w;
        squares += w * w;
        largest = std::max(largest, std::fabs(w));
      }
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest > 0.999 * bound);
    CHECK(std::fabs(sum / n) < 5 * std::sqrt(variance / n));
    CHECK(squares / n == doctest::Approx(variance).epsilon(0.03));
  };
  std::vector<float> starts;
  for (std::int64_t l = 0; l < 2; ++l) {
    auto const view = net.layer(net.parameters(), l);
    check(view.down);
    check(view.mix.weight);
    for (auto const bias : view.mix.bias) CHECK(bias == 0);
    starts.push_back(view.down(0, 0));
    starts.push_back(view.mix.weight(0, 0));
  }
  // No matrix repeats another.
  std::sort(starts.begin(), starts.end());
  CHECK(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
}

TEST_CASE("cross_net: parameters lie layer by layer, and blocks name them") {
  serial_host host;
  auto const check = [&](std::int64_t rank, std::vector<std::string> const& names, std::vector<std::vector<std::int64_t>> const& shapes) {
    cross_net net(host.exec(), {.width = 3, .layers = 2, .rank = rank});
    std::iota(net.parameters().begin(), net.parameters().end(), 0.0F);
    auto const blocks = net.blocks("cross");
    REQUIRE(blocks.size() == 2 * names.size());
    auto const* next = net.parameters().data();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto const layer = i / names.size(), part = i % names.size();
      CHECK(blocks[i].name == "cross." + std::to_string(layer) + "." + names[part]);
      CHECK(blocks[i].shape == shapes[part]);
      CHECK(blocks[i].values.data() == next);
      next += blocks[i].values.size();
    }
    CHECK(next == net.parameters().end());
    CHECK(net.bytes() == static_cast<std::size_t>(net.parameters().size()) * sizeof(float));
    return copy_of(net.parameters());
  };
  check(0, {"weight", "bias"}, {{3, 3}, {3}});
  check(2, {"v", "u", "bias"}, {{2, 3}, {3, 2}, {3}});

  cross_net net(host.exec(), {.width = 3, .layers = 2, .rank = 2});
  std::iota(net.parameters().begin(), net.parameters().end(), 0.0F);
  auto const second = net.layer(net.parameters(), 1);
  CHECK(second.down(1, 2) == 15 + 5);
  CHECK(second.mix.weight(2, 1) == 15 + 6 + 5);
  CHECK(second.mix.bias[0] == 15 + 12);

  auto const* const where = net.parameters().data();
  cross_net const moved(std::move(net));
  CHECK(moved.parameters().data() == where);
  CHECK_FALSE(std::is_copy_constructible_v<cross_net>);
}

TEST_CASE("cross_net: parameters in the caller's memory are the same") {
  serial_host host;
  cross_net_options const options{.width = 5, .layers = 2, .rank = 3, .seed = random_seed{4}, .stream = 2};
  cross_net const own(host.exec(), options);
  CHECK(cross_net::parameter_count(options) == own.parameters().size());
  std::vector<float> memory(static_cast<std::size_t>(own.parameters().size()));
  cross_net const net(host.exec(), options, memory);
  CHECK(net.parameters().data() == memory.data());
  CHECK(net.bytes() == 0);
  CHECK(copy_of(net.parameters()) == copy_of(own.parameters()));
  auto const e = error_of([&] { cross_net(host.exec(), options, tessera::vector_view<float>(memory).slice(1, 7)); });
  CHECK(e.code() == errc::shape_mismatch);
  CHECK(e.value("size") == "7");
}

TEST_CASE("cross_net: what does not fit is refused") {
  serial_host host;
  auto const refused = [&](cross_net_options const& options, char const* what) {
    auto const e = error_of([&] { cross_net(host.exec(), options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(what) != "");
  };
  refused({.width = 0}, "width");
  refused({.width = std::int64_t{1} << 40}, "width");
  refused({.width = 4, .layers = -1}, "layers");
  refused({.width = 1 << 28, .layers = 1 << 20}, "layers");
  refused({.width = 4, .rank = -1}, "rank");
  refused({.width = 4, .rank = 5}, "rank");

  cross_net const net(host.exec(), {.width = 4, .layers = 2, .rank = 2});
  std::vector<float> memory(64), block(static_cast<std::size_t>(net.parameters().size()));
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(memory.data(), rows, columns); };
  tessera::cross_saved saved;
  auto const mismatch = [&](auto const& call) { CHECK(error_of(call).code() == errc::shape_mismatch); };
  auto const forward = [&](auto x, auto y) { net.forward(host.exec(), tessera::eigen_gemm{}, x, y, saved); };
  auto const backward = [&](auto gradient, auto parameters, auto x) {
    net.backward(host.exec(), tessera::eigen_gemm{}, saved, gradient, parameters, x);
  };
  using block_view = tessera::vector_view<float>;
  mismatch([&] { backward(matrix(2, 4), block_view(block), matrix(2, 4)); });  // no forward was
  mismatch([&] { forward(matrix(2, 3), matrix(2, 4)); });
  mismatch([&] { forward(matrix(2, 4), matrix(2, 5)); });
  mismatch([&] { forward(matrix(2, 4), matrix(3, 4)); });
  std::vector<float> const x(8, 1.0F);
  forward(tessera::matrix_view<float const>(x.data(), 2, 4), matrix(2, 4));
  mismatch([&] { backward(matrix(3, 4), block_view(block), matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 3), block_view(block), matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 4), block_view(block).slice(0, 5), matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 4), block_view(block), matrix(1, 4)); });
  mismatch([&] { backward(matrix(2, 4), block_view(block), matrix(2, 5)); });
  cross_net const deeper(host.exec(), {.width = 4, .layers = 3, .rank = 2});
  std::vector<float> deeper_block(static_cast<std::size_t>(deeper.parameters().size()));
  mismatch([&] { deeper.backward(host.exec(), tessera::eigen_gemm{}, saved, matrix(2, 4), deeper_block); });
}

TEST_CASE("cross_net: of a forward that throws, no backward takes what it saved") {
  serial_host host;
  for (std::int64_t const rank : {0, 2}) {
    cross_net const net(host.exec(), {.width = 4, .layers = 2, .rank = rank});
    tessera_tests::check_failed_forward<tessera::cross_saved>(host, net, 4, 4);
  }
}

}  // namespace
