// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
#include "task_heads_suite.hpp"

#include <tessera/core/memory.hpp>
#include <tessera/nn/gemm_eigen.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::errc;
using tessera::random_seed;
using tessera::task_heads;
using tessera::task_heads_options;
using tessera_tests::error_of;
using tessera_tests::nn_host;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("task_heads with Eigen") { tessera_tests::task_heads_suite<nn_host<tessera::eigen_gemm>>(); }
TEST_CASE("task_heads with a triple loop on two threads") {
  tessera_tests::task_heads_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}

TEST_CASE("task_heads: 1, 2 and 4 threads give the same bits, from the first weight on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::int64_t const samples = 300;
  strided_floats const x(random, samples, 50, 0), gradient(random, samples, 3, 0);
  std::vector<std::vector<float>> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    task_heads const heads(exec, task_heads_options{50, {{70}, {}, {33, 20}}, random_seed{seed}});
    tessera::task_heads_saved saved;
    strided_floats y(samples, 3, 0), x_gradient(samples, 50, 0);
    auto g = gradient;
    std::vector<float> parameter_gradient(static_cast<std::size_t>(heads.parameters().size()));
    heads.forward(exec, tessera::eigen_gemm{}, x.view(), y.view(), saved);
    heads.backward(exec, tessera::eigen_gemm{}, saved, g.view(), parameter_gradient, x_gradient.view());
    std::vector<std::vector<float>> const results{
        {heads.parameters().begin(), heads.parameters().end()}, y.storage, x_gradient.storage, parameter_gradient};
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(tessera_tests::same_bits(results[i], first[i]));
  });
}

TEST_CASE("task_heads: from the third equal step on nothing is allocated") {
  serial_host host;
  tessera::arena arena(host.memory(), 256);
  auto const exec = host.exec().with_memory(arena);
  task_heads const heads(host.exec(), task_heads_options{8, {{16}, {4, 4}}});
  std::vector<float> x(80, 0.5F), y(20), x_gradient(80), gradient(20, 1.0F), block(static_cast<std::size_t>(heads.parameters().size()));
  std::int64_t after_two = 0;
  for (int step = 0; step < 6; ++step) {
    tessera::task_heads_saved saved;
    heads.forward(exec, tessera::eigen_gemm{}, {x.data(), 10, 8}, {y.data(), 10, 2}, saved);
    heads.backward(exec, tessera::eigen_gemm{}, saved, {gradient.data(), 10, 2}, block, {x_gradient.data(), 10, 8});
    if (step == 1) after_two = host.memory().allocations();
  }
  CHECK(after_two > 0);
  CHECK(host.memory().allocations() == after_two);
}

TEST_CASE("task_heads: parameters lie head by head, and blocks name them") {
  serial_host host;
  task_heads heads(host.exec(), task_heads_options{3, {{4}, {}}, random_seed{1}});
  CHECK(heads.tasks() == 2);
  CHECK(heads.input_width() == 3);
  REQUIRE(heads.parameters().size() == (12 + 4 + 4 + 1) + (3 + 1));
  CHECK(heads.bytes() == 25 * sizeof(float));
  auto const blocks = heads.blocks("heads");
  std::vector<std::string> const names{"heads.0.0.weight", "heads.0.0.bias",   "heads.0.1.weight",
                                       "heads.0.1.bias",   "heads.1.0.weight", "heads.1.0.bias"};
  REQUIRE(blocks.size() == names.size());
  auto const* next = heads.parameters().data();
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(blocks[i].name == names[i]);
    CHECK(blocks[i].values.data() == next);
    next += blocks[i].values.size();
  }
  CHECK(next == heads.parameters().end());

  // Heads of one shape start apart.
  task_heads const twins(host.exec(), task_heads_options{3, std::vector<std::vector<std::int64_t>>(2, {4}), random_seed{1}});
  CHECK(twins.parameters()[0] != twins.parameters()[21]);

  // Moved, the heads still lie in the block.
  task_heads const moved(std::move(heads));
  CHECK(moved.head(1).parameters().data() == moved.parameters().data() + 21);
}

TEST_CASE("task_heads: what does not fit is refused") {
  serial_host host;
  CHECK(error_of([&] { task_heads(host.exec(), task_heads_options{3, {}}); }).code() == errc::invalid_argument);
  CHECK(error_of([&] { task_heads(host.exec(), task_heads_options{0, {{}}}); }).code() == errc::invalid_argument);
  CHECK(error_of([&] { task_heads(host.exec(), task_heads_options{3, {{}, {0}}}); }).code() == errc::invalid_argument);

  task_heads const heads(host.exec(), task_heads_options{4, {{2}, {3}}}), wider(host.exec(), task_heads_options{4, {{2}, {4}}});
  std::vector<float> memory(64), block(static_cast<std::size_t>(heads.parameters().size())),
      wider_block(static_cast<std::size_t>(wider.parameters().size()));
  auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(memory.data(), rows, columns); };
  tessera::task_heads_saved saved;
  auto const mismatch = [&](auto const& call) { CHECK(error_of(call).code() == errc::shape_mismatch); };
  auto const forward = [&](auto x, auto y) { heads.forward(host.exec(), tessera::eigen_gemm{}, x, y, saved); };
  auto const backward = [&](auto gradient, tessera::vector_view<float> parameters, auto x) {
    heads.backward(host.exec(), tessera::eigen_gemm{}, saved, gradient, parameters, x);
  };
  mismatch([&] { backward(matrix(2, 2), block, matrix(2, 4)); });  // no forward was
  mismatch([&] { forward(matrix(2, 3), matrix(2, 2)); });
  mismatch([&] { forward(matrix(2, 4), matrix(2, 1)); });
  mismatch([&] { forward(matrix(2, 4), matrix(3, 2)); });
  std::vector<float> const x(8, 1.0F);
  forward(tessera::matrix_view<float const>(x.data(), 2, 4), matrix(2, 2));
  mismatch([&] { backward(matrix(3, 2), block, matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 1), block, matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 2), tessera::vector_view<float>(block).slice(0, 7), matrix(2, 4)); });
  mismatch([&] { backward(matrix(2, 2), block, matrix(1, 4)); });
  mismatch([&] { backward(matrix(2, 2), block, matrix(2, 5)); });
  mismatch([&] { wider.backward(host.exec(), tessera::eigen_gemm{}, saved, matrix(2, 2), wider_block); });
}

TEST_CASE("task_heads: of a forward that throws, no backward takes what it saved") {
  serial_host host;
  task_heads const heads(host.exec(), task_heads_options{4, {{2}, {3}}});
  tessera_tests::check_failed_forward<tessera::task_heads_saved>(host, heads, 4, 2);
}

}  // namespace
