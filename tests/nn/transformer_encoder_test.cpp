// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 3
#include "transformer_encoder_suite.hpp"

#include <tessera/core/memory.hpp>
#include <tessera/nn/gemm_eigen.hpp>

#include "temporary_folder.hpp"

namespace {

using tessera::errc;
using tessera::random_seed;
using tessera::transformer_encoder;
using tessera_tests::error_of;
using tessera_tests::nn_host;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

TEST_CASE("transformer_encoder with Eigen") { tessera_tests::transformer_encoder_suite<nn_host<tessera::eigen_gemm>>(); }
TEST_CASE("transformer_encoder with a triple loop on two threads") {
  tessera_tests::transformer_encoder_suite<nn_host<tessera_tests::naive_gemm, tessera_tests::pool_host<2>>>();
}

using tessera::transformer_encoder_options;
using tessera::transformer_saved;
using tessera_tests::offsets_of;

TEST_CASE("transformer_encoder: 1, 2 and 4 threads give the same bits, from the first weight on") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const offsets = offsets_of({70, 3, 0, tessera_tests::under_sanitizer ? 30 : 400, 12});
  auto const rows = static_cast<std::int64_t>(offsets.size()) - 1;
  strided_floats const x(random, offsets.back(), 24, 0), gradient(random, rows, 24, 0);
  for (bool const norm_first : {false, true}) {
    std::vector<std::vector<float>> first;
    tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
      transformer_encoder const net(
          exec, {.dim = 24, .layers = 2, .heads = 2, .max_length = 400, .norm_first = norm_first, .seed = random_seed{seed}});
      transformer_saved saved;
      strided_floats out(rows, 24, 0), x_gradient(x.rows, 24, 0);
      std::vector<float> parameter_gradient(static_cast<std::size_t>(net.parameters().size()));
      net.forward(exec, tessera::eigen_gemm{}, tessera::jagged_vectors_view<float const>{x.view(), offsets.data(), rows}, out.view(),
                  saved);
      net.backward(exec, tessera::eigen_gemm{}, saved, gradient.view(), parameter_gradient, x_gradient.view());
      std::vector<std::vector<float>> const results{
          {net.parameters().begin(), net.parameters().end()}, out.storage, x_gradient.storage, parameter_gradient};
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) CHECK(tessera_tests::same_bits(results[i], first[i]));
    });
  }
}

TEST_CASE("transformer_encoder: offsets of 32 bits that do not begin at 0 and strided vectors") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  transformer_encoder const net(host.exec(), {.dim = 8, .heads = 2, .max_length = 9, .seed = random_seed{seed}});
  strided_floats const x(random, 20, 8, 5), gradient(random, 3, 8, 0);
  strided_floats part(13, 8, 0);
  for (std::int64_t i = 0; i < 13; ++i)
    for (std::int64_t c = 0; c < 8; ++c) part.at(i, c) = x.at(4 + i, c);
  std::vector<std::int32_t> const offsets{4, 8, 8, 17};
  std::vector<std::int64_t> const own{0, 4, 4, 13};
  auto const run = [&](auto rows) {
    transformer_saved saved;
    strided_floats out(3, 8, 0), x_gradient(13, 8, 0);
    std::vector<float> parameter_gradient(static_cast<std::size_t>(net.parameters().size()));
    net.forward(host.exec(), tessera::eigen_gemm{}, rows, out.view(), saved);
    net.backward(host.exec(), tessera::eigen_gemm{}, saved, gradient.view(), parameter_gradient, x_gradient.view());
    return std::vector<std::vector<float>>{out.storage, x_gradient.storage, parameter_gradient};
  };
  CHECK(run(tessera::jagged_vectors_view<float const, std::int32_t>{x.view(), offsets.data(), 3}) ==
        run(tessera::jagged_vectors_view<float const>{part.view(), own.data(), 3}));
}

TEST_CASE("transformer_encoder: what is causal and takes the last vector sees the prefix alone") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  transformer_encoder const net(host.exec(), {.dim = 16,
                                              .layers = 2,
                                              .heads = 2,
                                              .max_length = 90,
                                              .causal = true,
                                              .pooling = tessera::sequence_pooling::last,
                                              .seed = random_seed{seed}});
  strided_floats x(random, 90, 16, 0);
  auto const run = [&](std::int64_t length) {
    std::vector<std::int64_t> const offsets{0, length};
    strided_floats out(1, 16, 0);
    net.forward(host.exec(), tessera::eigen_gemm{}, tessera::jagged_vectors_view<float const>{x.view(), offsets.data(), 1}, out.view());
    return out;
  };
  auto const before = run(70);
  for (std::int64_t i = 70; i < 90; ++i)
    for (std::int64_t c = 0; c < 16; ++c) x.at(i, c) = 1e6F;
  CHECK(tessera_tests::same_bits(run(70).storage, before.storage));
  // And sees all of it: each vector changes the result.
  x.at(0, 3) += 0.5F;
  CHECK_FALSE(tessera_tests::same_bits(run(70).storage, before.storage));
}

TEST_CASE("transformer_encoder: from the third equal step on nothing is allocated; a forward alone needs less memory") {
  serial_host host;
  auto const offsets = offsets_of({40, 0, 7});
  std::vector<float> x(47 * 8, 0.5F), out(24), x_gradient(47 * 8), gradient(24, 1.0F);
  auto const peak_of = [&](bool trains, std::int64_t layers) {
    serial_host own;
    tessera::arena arena(own.memory(), 256);
    auto const exec = own.exec().with_memory(arena);
    transformer_encoder const net(host.exec(), {.dim = 8, .layers = layers, .heads = 2, .max_length = 50});
    std::vector<float> block(static_cast<std::size_t>(net.parameters().size()));
    tessera::jagged_vectors_view<float const> const rows{{x.data(), 47, 8}, offsets.data(), 3};
    std::int64_t after_two = 0;
    for (int step = 0; step < 6; ++step) {
      transformer_saved saved;
      if (trains) {
        net.forward(exec, tessera::eigen_gemm{}, rows, {out.data(), 3, 8}, saved);
        net.backward(exec, tessera::eigen_gemm{}, saved, {gradient.data(), 3, 8}, block, {x_gradient.data(), 47, 8});
      } else {
        net.forward(exec, tessera::eigen_gemm{}, rows, {out.data(), 3, 8});
      }
      if (step == 1) after_two = own.memory().allocations();
    }
    CHECK(after_two > 0);
    CHECK(own.memory().allocations() == after_two);
    return own.memory().peak_bytes();
  };
  CHECK(peak_of(false, 1) == peak_of(false, 6));
  CHECK(peak_of(true, 1) < peak_of(true, 6));
  CHECK(peak_of(false, 6) < peak_of(true, 6));
}

TEST_CASE("transformer_encoder: what is saved of a vector is what is said") {
  serial_host host;
  auto const bytes = [&](transformer_encoder_options const& options) { return transformer_encoder(host.exec(), options).saved_bytes(1); };
  CHECK(bytes({.dim = 64, .layers = 1, .heads = 2, .hidden = 256}) == 4 * (6 * 64 + 256 + 2 + 4));
  CHECK(bytes({.dim = 64, .layers = 3, .heads = 2, .hidden = 256, .recomputes_hidden = true}) == 3 * 4 * (6 * 64 + 2 + 4));
  CHECK(bytes({.dim = 64, .layers = 1, .heads = 2, .max_length = 5, .norm_first = true, .recomputes_hidden = true}) ==
        4 * (64 + 6 * 64 + 2 + 4 + 2));
}

TEST_CASE("transformer_encoder: initial weights depend on the seed and the stream, with the documented variance") {
  serial_host host;
  auto const make = [&](std::uint64_t seed, std::uint32_t stream) {
    return transformer_encoder(host.exec(), {.dim = 96,
                                             .layers = 2,
                                             .heads = 3,
                                             .hidden = 200,
                                             .max_length = 100,
                                             .norm_first = true,
                                             .seed = random_seed{seed},
                                             .stream = stream});
  };
  auto const copy = [](transformer_encoder const& net) { return std::vector<float>(net.parameters().begin(), net.parameters().end()); };
  auto const net = make(7, 3);
  CHECK(copy(net) == copy(make(7, 3)));
  CHECK(copy(net) != copy(make(8, 3)));
  CHECK(copy(net) != copy(make(7, 4)));
  auto const check = [](tessera::matrix_view<float const> weight, double variance) {
    double sum = 0, squares = 0;
    for (std::int64_t r = 0; r < weight.rows(); ++r)
      for (std::int64_t c = 0; c < weight.columns(); ++c) {
        auto const w = static_cast<double>(weight(r, c));
        REQUIRE(std::fabs(w) <= std::sqrt(3 * variance) * (1 + 1e-6));
        sum += w;
        squares += w * w;
      }
    auto const n = static_cast<double>(weight.rows() * weight.columns());
    CHECK(std::fabs(sum / n) < 5 * std::sqrt(variance / n));
    CHECK(squares / n == doctest::Approx(variance).epsilon(0.05));
  };
  check(net.positions(net.parameters()), 0.02 * 0.02);
  std::vector<float> starts{net.positions(net.parameters())(0, 0)};
  for (std::int64_t l = 0; l < 2; ++l) {
    auto const view = net.layer(net.parameters(), l);
    check(view.project.weight, 2.0 / (96 + 96));
    check(view.mix.weight, 2.0 / (96 + 96));
    check(view.up.weight, 2.0 / (96 + 200));
    check(view.down.weight, 2.0 / (96 + 200));
    for (auto const* linear : {&view.project, &view.mix, &view.up, &view.down}) {
      starts.push_back(linear->weight(0, 0));
      for (auto const bias : linear->bias) CHECK(bias == 0);
    }
    for (auto const& norm : {view.attention_norm, view.feed_norm}) {
      for (auto const gain : norm.gain) CHECK(gain == 1);
      for (auto const bias : norm.bias) CHECK(bias == 0);
    }
  }
  for (auto const gain : net.last_norm(net.parameters()).gain) CHECK(gain == 1);
  // No matrix repeats another.
  std::sort(starts.begin(), starts.end());
  CHECK(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
}

TEST_CASE("transformer_encoder: blocks name all parameters in their order") {
  serial_host host;
  transformer_encoder net(host.exec(), {.dim = 4, .layers = 2, .heads = 2, .hidden = 3, .max_length = 5, .norm_first = true});
  auto const blocks = net.blocks("encoder");
  std::vector<std::string> names;
  auto const* next = net.parameters().data();
  for (auto const& block : blocks) {
    names.push_back(block.name);
    CHECK(block.values.data() == next);
    std::int64_t count = 1;
    for (auto const extent : block.shape) count *= extent;
    CHECK(count == block.values.size());
    next += count;
  }
  CHECK(next == net.parameters().end());
  std::vector<std::string> expected{"encoder.positions"};
  for (auto const* layer : {"encoder.0.", "encoder.1."})
    for (auto const* part : {"project.weight", "project.bias", "mix.weight", "mix.bias", "attention_norm.gain", "attention_norm.bias",
                             "up.weight", "up.bias", "down.weight", "down.bias", "feed_norm.gain", "feed_norm.bias"})
      expected.push_back(std::string(layer) + part);
  expected.insert(expected.end(), {"encoder.norm.gain", "encoder.norm.bias"});
  CHECK(names == expected);
  CHECK(blocks[1].shape == std::vector<std::int64_t>{12, 4});
  CHECK(net.bytes() == static_cast<std::size_t>(net.parameters().size()) * sizeof(float));
  CHECK(net.options().hidden == 3);
  CHECK(transformer_encoder(host.exec(), {.dim = 4}).options().hidden == 16);
  CHECK(transformer_encoder(host.exec(), {.dim = 4, .layers = 1}).blocks("e").size() == 12);
  CHECK_FALSE(std::is_copy_constructible_v<transformer_encoder>);
}

TEST_CASE("transformer_encoder: what does not fit is refused") {
  serial_host host;
  auto const refused = [&](transformer_encoder_options const& options, char const* what) {
    auto const e = error_of([&] { transformer_encoder(host.exec(), options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(what) != "");
  };
  refused({.dim = 0}, "dim");
  refused({.dim = std::int64_t{1} << 40}, "dim");
  refused({.dim = 4, .layers = -1}, "layers");
  refused({.dim = 4, .layers = std::int64_t{1} << 60}, "layers");
  refused({.dim = 4, .heads = 0}, "heads");
  refused({.dim = 4, .heads = 3}, "heads");
  refused({.dim = 4, .hidden = -1}, "hidden");
  refused({.dim = 4, .max_length = -1}, "max_length");
  refused({.dim = 4, .pooling = static_cast<tessera::sequence_pooling>(7)}, "pooling");

  transformer_encoder const net(host.exec(), {.dim = 4, .heads = 2, .max_length = 3});
  std::vector<float> memory(100, 1.0F), written(100, 7.0F), block(static_cast<std::size_t>(net.parameters().size()), 7.0F);
  auto const untouched = block, untouched_memory = written;
  std::vector<std::int64_t> const offsets{0, 2, 5}, past{0, 2, 6}, uneven{0, 4, 5};
  auto const rows = [&](std::vector<std::int64_t> const& of, std::int64_t dim) {
    return tessera::jagged_vectors_view<float const>{{memory.data(), 5, dim}, of.data(), 2};
  };
  auto const matrix = [&](std::int64_t n, std::int64_t columns) { return tessera::matrix_view<float>(written.data(), n, columns); };
  transformer_saved saved;
  auto const forward = [&](auto x, auto out) { return [&, x, out] { net.forward(host.exec(), tessera::eigen_gemm{}, x, out, saved); }; };
  auto const backward = [&](auto gradient, tessera::vector_view<float> parameters, auto x) {
    return [&, gradient, parameters, x] { net.backward(host.exec(), tessera::eigen_gemm{}, saved, gradient, parameters, x); };
  };
  auto const mismatch = [](auto const& call) { CHECK(error_of(call).code() == errc::shape_mismatch); };
  mismatch(backward(matrix(2, 4), block, matrix(5, 4)));  // no forward was
  mismatch(forward(rows(offsets, 3), matrix(2, 4)));
  mismatch(forward(rows(offsets, 4), matrix(3, 4)));
  mismatch(forward(rows(offsets, 4), matrix(2, 5)));
  tessera::matrix_view<float> const overlapping(written.data(), 2, 4, 3), overlapping_input(written.data(), 5, 4, 3);
  mismatch(forward(rows(offsets, 4), overlapping));
  CHECK(saved.values.empty());
  CHECK(error_of(forward(rows(past, 4), matrix(2, 4))).code() == errc::out_of_range);
  auto const e = error_of(forward(rows(uneven, 4), matrix(2, 4)));
  CHECK(e.code() == errc::out_of_range);
  CHECK(e.value("row") == "0");
  CHECK(e.value("length") == "4");
  CHECK(e.value("max_length") == "3");
  mismatch(backward(matrix(2, 4), block, matrix(5, 4)));  // the forward threw
  CHECK(written == untouched_memory);
  forward(rows(offsets, 4), matrix(2, 4))();
  mismatch(backward(matrix(3, 4), block, matrix(5, 4)));
  mismatch(backward(matrix(2, 3), block, matrix(5, 4)));
  mismatch(backward(matrix(2, 4), tessera::vector_view<float>(block).slice(0, 5), matrix(5, 4)));
  mismatch(backward(matrix(2, 4), block, matrix(4, 4)));
  mismatch(backward(matrix(2, 4), block, matrix(5, 3)));
  mismatch(backward(overlapping, block, matrix(5, 4)));
  mismatch(backward(matrix(2, 4), block, overlapping_input));
  CHECK(block == untouched);
}

TEST_CASE("transformer_encoder: of a forward that runs out of memory, no backward takes what it saved") {
  serial_host host;
  transformer_encoder const net(host.exec(), {.dim = 4, .layers = 2, .heads = 2});
  std::vector<std::int64_t> const offsets{0, 2, 5};
  std::vector<float> x(20, 1.0F), out(8), gradient(8, 1.0F), block(static_cast<std::size_t>(net.parameters().size()));
  tessera::jagged_vectors_view<float const> const rows{{x.data(), 5, 4}, offsets.data(), 2};
  transformer_saved saved;
  auto const forward = [&] { net.forward(host.exec(), tessera::eigen_gemm{}, rows, {out.data(), 2, 4}, saved); };
  auto const backward = [&] { net.backward(host.exec(), tessera::eigen_gemm{}, saved, {gradient.data(), 2, 4}, block); };
  bool failed = true;
  for (int allowed = 0; failed; ++allowed) {
    forward();
    backward();
    host.memory().fail_after(allowed);
    failed = false;
    try {
      forward();
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    host.memory().never_fail();
    if (failed) CHECK(error_of(backward).code() == errc::shape_mismatch);
    CHECK((allowed > 0 || failed));
  }
}

}  // namespace
