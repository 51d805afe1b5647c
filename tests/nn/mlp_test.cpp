// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "mlp_suite.hpp"

#include <limits>
#include <memory>
#include <numeric>

#include <tessera/core/memory.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/nn/loss.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::activation;
using tessera::mlp;
using tessera::mlp_options;
using tessera::random_seed;
using tessera_tests::copy_of;
using tessera_tests::nn_host;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("mlp with Eigen") { tessera_tests::mlp_suite<nn_host<tessera::eigen_gemm>>(); }
TEST_CASE("mlp with a triple loop on two threads") {
  tessera_tests::mlp_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}

TEST_CASE("mlp: 1, 2 and 4 threads give the same bits, from the first weight on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const samples = tessera_tests::under_sanitizer ? 67 : 300;
  strided_floats const x(random, samples, 50, 0), gradient(random, samples, 3, 0);
  std::vector<std::vector<float>> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    mlp net(exec, mlp_options{{50, 300, 70, 3}, activation::relu, random_seed{seed}});
    tessera::mlp_saved saved;
    strided_floats y(samples, 3, 0), x_gradient(samples, 50, 0);
    auto g = gradient;
    std::vector<float> parameter_gradient(static_cast<std::size_t>(net.parameters().size()));
    net.forward(exec, tessera::eigen_gemm{}, x.view(), y.view(), saved);
    net.backward(exec, tessera::eigen_gemm{}, saved, g.view(), parameter_gradient, x_gradient.view());
    std::vector<std::vector<float>> const results{copy_of(net.parameters()), y.storage, x_gradient.storage, parameter_gradient};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(tessera_tests::same_bits(results[i], first[i]));
  });
}

TEST_CASE("mlp: initial weights depend on the seed and the stream, with the documented variance") {
  serial_host host;
  auto const make = [&](std::uint64_t seed, std::uint32_t stream) {
    return mlp(host.exec(), mlp_options{{400, 300, 200}, activation::identity, random_seed{seed}, stream});
  };
  auto net = make(7, 3);
  CHECK(copy_of(net.parameters()) == copy_of(make(7, 3).parameters()));
  CHECK(copy_of(net.parameters()) != copy_of(make(8, 3).parameters()));
  CHECK(copy_of(net.parameters()) != copy_of(make(7, 4).parameters()));
  CHECK(copy_of(net.parameters()) != copy_of(make(std::uint64_t{7} << 32, 3).parameters()));

  auto const check = [&](std::int64_t layer, double variance) {
    auto const view = net.layer(net.parameters(), layer);
    for (std::int64_t i = 0; i < view.bias.size(); ++i) REQUIRE(view.bias[i] == 0);
    auto const n = static_cast<double>(view.weight.rows() * view.weight.columns());
    double sum = 0, squares = 0, largest = 0;
    for (std::int64_t r = 0; r < view.weight.rows(); ++r)
      for (std::int64_t c = 0; c < view.weight.columns(); ++c) {
        auto const w = static_cast<double>(view.weight(r, c));
        sum += w;
        squares += w * w;
        largest = std::max(largest, std::fabs(w));
      }
    auto const bound = std::sqrt(3 * variance);
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest > 0.999 * bound);
    CHECK(std::fabs(sum / n) < 5 * std::sqrt(variance / n));
    CHECK(squares / n == doctest::Approx(variance).epsilon(0.02));
  };
  check(0, 1.0 / (3 * 400));
  check(1, 1.0 / (3 * 300));

  // No row of weights repeats another, in the layer or in the next.
  mlp const square(host.exec(), mlp_options{{8, 8, 8}, activation::identity, random_seed{1}});
  std::vector<float> values;
  for (std::int64_t l = 0; l < 2; ++l) {
    auto const weight = square.layer(square.parameters(), l).weight;
    for (std::int64_t i = 0; i < 64; ++i) values.push_back(weight.data()[i]);
  }
  std::sort(values.begin(), values.end());
  CHECK(std::adjacent_find(values.begin(), values.end()) == values.end());
}

TEST_CASE("mlp: parameters lie layer by layer, weight before bias, and blocks name them") {
  serial_host host;
  mlp net(host.exec(), mlp_options{{3, 4, 2}});
  CHECK(net.layers() == 2);
  CHECK(net.input_width() == 3);
  CHECK(net.output_width() == 2);
  CHECK(net.widths() == std::vector<std::int64_t>{3, 4, 2});
  REQUIRE(net.parameters().size() == 12 + 4 + 8 + 2);
  std::iota(net.parameters().begin(), net.parameters().end(), 0.0F);
  CHECK(net.layer(net.parameters(), 0).weight(1, 2) == 5);
  CHECK(net.layer(net.parameters(), 0).bias[0] == 12);
  CHECK(net.layer(net.parameters(), 1).weight(1, 0) == 20);
  CHECK(net.layer(net.parameters(), 1).bias[1] == 25);

  auto const blocks = net.blocks("top");
  REQUIRE(blocks.size() == 4);
  CHECK(blocks[0].name == "top.0.weight");
  CHECK(blocks[1].name == "top.0.bias");
  CHECK(blocks[2].name == "top.1.weight");
  CHECK(blocks[3].name == "top.1.bias");
  CHECK(blocks[0].shape == std::vector<std::int64_t>{4, 3});
  CHECK(blocks[1].shape == std::vector<std::int64_t>{4});
  CHECK(blocks[2].shape == std::vector<std::int64_t>{2, 4});
  CHECK(blocks[3].shape == std::vector<std::int64_t>{2});
  auto const* next = net.parameters().data();
  for (auto const& block : blocks) {
    CHECK(block.values.data() == next);
    CHECK(block.group == tessera::replication::everywhere);
    next += block.values.size();
  }
  CHECK(next == net.parameters().end());

  auto const* const where = net.parameters().data();
  mlp const moved(std::move(net));
  CHECK(moved.parameters().data() == where);
  CHECK_FALSE(std::is_copy_constructible_v<mlp>);
}

TEST_CASE("mlp: parameters and what a forward saves in the caller's memory are the same network, to the bit") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  tessera::eigen_gemm const policy;
  mlp_options const options{{5, 9, 7, 2}, activation::relu, random_seed{seed}, 4};
  mlp const own(host.exec(), options);
  std::vector<float> memory(static_cast<std::size_t>(mlp::parameter_count(options.widths)) + 2, 7.0F);
  auto const place = tessera::vector_view<float>(memory).slice(1, own.parameters().size());
  mlp const placed(host.exec(), options, place);
  CHECK(placed.parameters().data() == place.data());
  CHECK(placed.bytes() == 0);
  CHECK(memory.front() == 7);
  CHECK(memory.back() == 7);
  CHECK(copy_of(placed.parameters()) == copy_of(own.parameters()));

  strided_floats const x(random, 20, 5, 1), gradient(random, 20, 2, 1);
  auto const compute = [&](auto const& forward_and_backward) {
    strided_floats y(20, 2, 0), x_gradient(20, 5, 0);
    auto g = gradient;
    std::vector<float> parameter_gradient(static_cast<std::size_t>(own.parameters().size()));
    forward_and_backward(y.view(), g.view(), parameter_gradient, x_gradient.view());
    parameter_gradient.insert(parameter_gradient.end(), y.storage.begin(), y.storage.end());
    parameter_gradient.insert(parameter_gradient.end(), x_gradient.storage.begin(), x_gradient.storage.end());
    return parameter_gradient;
  };
  auto const with_saved = compute([&](auto y, auto g, auto& parameters, auto x_gradient) {
    tessera::mlp_saved saved;
    own.forward(host.exec(), policy, x.view(), y, saved);
    own.backward(host.exec(), policy, saved, g, parameters, x_gradient);
  });
  CHECK(placed.hidden_width() == 9 + 7);
  std::vector<float> hidden(20 * 16);
  CHECK(tessera_tests::same_bits(with_saved, compute([&](auto y, auto g, auto& parameters, auto x_gradient) {
                                   placed.forward(host.exec(), policy, x.view(), y, hidden);
                                   placed.backward(host.exec(), policy, x.view(), y, hidden, g, parameters, x_gradient);
                                 })));

  auto const too_small = [&](auto const& call) {
    try {
      call();
    } catch (tessera::error const& e) {
      return e.code() == tessera::errc::shape_mismatch;
    }
    return false;
  };
  strided_floats y(20, 2, 0);
  CHECK(too_small([&] { mlp(host.exec(), options, place.slice(0, place.size() - 1)); }));
  CHECK(too_small([&] { placed.forward(host.exec(), policy, x.view(), y.view(), tessera::vector_view<float>(hidden).slice(0, 300)); }));
}

TEST_CASE("mlp: a gradient of the input of another shape is refused by name, and nothing is written") {
  std::mt19937_64 random(5);
  serial_host host;
  tessera::eigen_gemm const policy;
  mlp const layers(host.exec(), mlp_options{{5, 9, 2}});
  strided_floats const x(random, 20, 5, 1), gradient(random, 20, 2, 1);
  strided_floats y(20, 2, 0);
  tessera::mlp_saved saved;
  layers.forward(host.exec(), policy, x.view(), y.view(), saved);
  for (strided_floats x_gradient : {strided_floats(19, 5, 0), strided_floats(20, 4, 0)}) {
    auto g = gradient;
    std::vector<float> parameter_gradient(static_cast<std::size_t>(layers.parameters().size()), 7);
    auto const e =
        tessera_tests::error_of([&] { layers.backward(host.exec(), policy, saved, g.view(), parameter_gradient, x_gradient.view()); });
    CHECK(e.code() == tessera::errc::shape_mismatch);
    CHECK(std::string(e.what()).find("mlp: gradient of the input") == 0);
    CHECK(g.storage == gradient.storage);
    CHECK(parameter_gradient == std::vector<float>(parameter_gradient.size(), 7));
  }
}

TEST_CASE("mlp: impossible shapes are refused") {
  serial_host host;
  auto const refused = [&](std::vector<std::int64_t> widths) {
    try {
      mlp(host.exec(), mlp_options{std::move(widths)});
    } catch (tessera::error const& e) {
      return e.code() == tessera::errc::invalid_argument;
    }
    return false;
  };
  CHECK(refused({}));
  CHECK(refused({3}));
  CHECK(refused({0, 3}));
  CHECK(refused({3, -1, 2}));
  CHECK(refused({3, 2, 0}));
  CHECK(refused({std::int64_t{1} << 40, std::int64_t{1} << 40}));
  CHECK(refused({std::numeric_limits<std::int64_t>::max(), 1}));
  CHECK(refused({1, std::numeric_limits<std::int64_t>::max()}));
  CHECK(refused(std::vector<std::int64_t>(5, (std::int64_t{1} << 31) - 1)));
  CHECK(host.memory().balanced());

  mlp const net(host.exec(), mlp_options{{3, 4, 2}, activation::relu});
  mlp const wider(host.exec(), mlp_options{{3, 8, 2}, activation::relu});
  std::vector<float> floats(100, 1), gradient(static_cast<std::size_t>(net.parameters().size()));
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(floats.data(), rows, columns); };
  tessera_tests::naive_gemm const policy;
  tessera::mlp_saved saved, never;
  CHECK_THROWS_AS(net.forward(host.exec(), policy, matrix(5, 4), matrix(5, 2), saved), tessera::error);
  CHECK_THROWS_AS(net.forward(host.exec(), policy, matrix(5, 3), matrix(4, 2), saved), tessera::error);
  CHECK_THROWS_AS(net.forward(host.exec(), policy, matrix(5, 3), matrix(5, 3), saved), tessera::error);
  std::vector<float> y(10);
  net.forward(host.exec(), policy, matrix(5, 3), {y.data(), 5, 2}, saved);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, saved, matrix(4, 2), gradient), tessera::error);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, saved, matrix(5, 3), gradient), tessera::error);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, never, matrix(0, 2), gradient), tessera::error);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, saved, matrix(5, 2), tessera::vector_view<float>(gradient).slice(0, 25)),
                  tessera::error);
  std::vector<float> wide_gradient(static_cast<std::size_t>(wider.parameters().size()));
  CHECK_THROWS_AS(wider.backward(host.exec(), policy, saved, matrix(5, 2), wide_gradient), tessera::error);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, saved, matrix(5, 2), gradient, matrix(5, 2)), tessera::error);
  CHECK_THROWS_AS(net.backward(host.exec(), policy, saved, matrix(5, 2), gradient, matrix(4, 3)), tessera::error);
}

// Steps of one MLP with its loss and optimizer, workspace from an arena over counted memory.
template <class Step>
void check_no_allocation_after_two(Step const& step) {
  serial_host host;
  tessera::arena arena(host.memory(), 256);
  auto const exec = host.exec().with_memory(arena);
  mlp net(host.exec(), mlp_options{{13, 64, 32, 1}, activation::identity, random_seed{1}});
  tessera::dense_optimizer_state state(host.exec(), net.parameters().size(), tessera::adam{});
  std::vector<float> const x(13 * 100, 0.5F), labels(100, 1.0F);
  std::vector<float> y(100), gradient(static_cast<std::size_t>(net.parameters().size()));
  std::int64_t after_two = 0;
  for (int i = 0; i < 6; ++i) {
    step(host.exec(), exec, [&](tessera::mlp_saved& saved) {
      net.forward(exec, tessera::eigen_gemm{}, tessera::matrix_view<float const>(x.data(), 100, 13),
                  tessera::matrix_view<float>(y.data(), 100, 1), saved);
      tessera::bce_with_logits(exec, y, labels, y);
      net.backward(exec, tessera::eigen_gemm{}, saved, tessera::matrix_view<float>(y.data(), 100, 1), gradient);
      tessera::dense_update(exec, net.parameters(), gradient, state, tessera::adam{});
    });
    if (i == 1) after_two = host.memory().allocations();
  }
  CHECK(after_two > 0);
  CHECK(host.memory().allocations() == after_two);
}

TEST_CASE("mlp: from the third equal step on nothing is allocated") {
  SUBCASE("saved state of each step") {
    check_no_allocation_after_two([](auto const&, auto const&, auto const& step) {
      tessera::mlp_saved saved;
      step(saved);
    });
  }
  SUBCASE("saved state kept from step to step, in the arena, which must outlive it") {
    check_no_allocation_after_two(
        [saved = std::make_shared<tessera::mlp_saved>(), left = std::make_shared<int>(6)](auto const&, auto const&, auto const& step) {
          step(*saved);
          if (--*left == 0) *saved = {};
        });
  }
}

TEST_CASE("mlp: of a forward that throws, no backward takes what it saved") {
  serial_host host;
  for (auto const& widths : {std::vector<std::int64_t>{3, 2}, std::vector<std::int64_t>{3, 4, 2}}) {
    mlp const net(host.exec(), mlp_options{widths});
    tessera_tests::check_failed_forward<tessera::mlp_saved>(host, net, 3, 2);
    if constexpr (tessera::checked) CHECK_THROWS_AS(net.layer(net.parameters(), net.layers()), tessera::error);
  }
}

}  // namespace
