// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <vector>

#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/feature_interaction.hpp>

#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

using namespace tessera;

TEST_CASE_TEMPLATE("of a forward that throws, no backward takes what it saved", Interaction, dot_products, cross_layers, factorization,
                   concatenation) {
  tessera_tests::serial_host host;
  constexpr std::int64_t samples = 5, vectors = 3, dim = 4;
  Interaction interaction(host.exec(), {}, vectors, dim, random_seed{1});
  auto const width = interaction.output_width();
  std::vector<float> x(samples * vectors * dim, 0.5F), x_gradient = x, out(static_cast<std::size_t>(samples * width)), out_gradient = out;
  std::vector<float> const logit_gradient(samples, 1.0F);
  std::vector<float> block(static_cast<std::size_t>(interaction.parameters().size()));
  typename Interaction::saved saved;
  auto const forward = [&](std::int64_t columns) {
    interaction.forward(host.exec(), eigen_gemm{}, matrix_view<float const>(x.data(), samples, vectors * dim),
                        matrix_view<float>(out.data(), samples, columns), saved);
  };
  auto const backward = [&] {
    interaction.backward(host.exec(), eigen_gemm{}, saved, matrix_view<float>(out_gradient.data(), samples, width), logit_gradient, block,
                         matrix_view<float>(x_gradient.data(), samples, vectors * dim));
  };
  forward(width);
  backward();
  if (checked || !std::is_same_v<Interaction, factorization>) {
    CHECK_THROWS_AS(forward(width - 1), error);
    CHECK_THROWS_AS(backward(), error);
  }
  for (int failures = 0;; ++failures) {
    forward(width);
    host.memory().fail_after(failures);
    bool failed = false;
    try {
      forward(width);
    } catch (std::bad_alloc const&) {
      failed = true;
    }
    host.memory().never_fail();
    if (!failed) break;
    CHECK_THROWS_AS(backward(), error);
  }
  backward();
}

TEST_CASE("concatenation: what enters leaves, and gradients come back as they are") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  constexpr std::int64_t vectors = 3, dim = 5, width = vectors * dim;
  concatenation interaction(host.exec(), {}, vectors, dim, random_seed{1});
  CHECK(concatenation::name == "concatenation");
  CHECK(interaction.output_width() == width);
  CHECK(interaction.parameters().empty());
  CHECK(interaction.blocks("interaction").empty());
  CHECK(interaction.bytes() == 0);
  for (std::int64_t const samples : {0, 1, 200}) {
    CAPTURE(samples);
    constexpr std::int64_t from_stride = width + 2, to_stride = width + 1;
    constexpr float gap = -7;
    auto const x = tessera_tests::random_floats(random, static_cast<std::size_t>(samples * from_stride));
    auto gradient = tessera_tests::random_floats(random, x.size());
    std::vector<float> out(static_cast<std::size_t>(samples * to_stride), gap), x_gradient = out;
    std::vector<float> logits(static_cast<std::size_t>(samples), 0.5F);
    concatenation::saved saved;
    interaction.forward(host.exec(), eigen_gemm{}, matrix_view<float const>(x.data(), samples, width, from_stride),
                        matrix_view<float>(out.data(), samples, width, to_stride), saved);
    interaction.add_to_logits(host.exec(), saved, logits);
    interaction.backward(host.exec(), eigen_gemm{}, saved, matrix_view<float>(gradient.data(), samples, width, from_stride), logits, {},
                         matrix_view<float>(x_gradient.data(), samples, width, to_stride));
    CHECK(logits == std::vector<float>(logits.size(), 0.5F));
    auto const copies = [&](std::vector<float> const& from, std::vector<float> const& to) {
      for (std::int64_t s = 0; s < samples; ++s)
        for (std::int64_t c = 0; c < to_stride; ++c)
          if (to[static_cast<std::size_t>(s * to_stride + c)] != (c < width ? from[static_cast<std::size_t>(s * from_stride + c)] : gap))
            return false;
      return true;
    };
    CHECK(copies(x, out));
    CHECK(copies(gradient, x_gradient));
  }
}

TEST_CASE("concatenation: shapes that do not fit are refused by name, and nothing is written") {
  tessera_tests::serial_host host;
  concatenation const interaction(host.exec(), {}, 2, 3, random_seed{1});
  std::vector<float> const untouched(60, 7);
  auto memory = untouched;
  std::vector<float> x(24, 1), logits(4);
  auto const matrix = [&](std::int64_t rows, std::int64_t columns, std::int64_t stride = 10) {
    return matrix_view<float>(memory.data(), rows, columns, stride);
  };
  matrix_view<float> const good(x.data(), 4, 6);
  concatenation::saved saved;
  auto const mismatch = [&](auto const& call, std::string const& matrix_name, char const* name, std::string const& value) {
    auto const e = tessera_tests::error_of(call);
    CHECK(e.code() == errc::shape_mismatch);
    CHECK(std::string(e.what()).find("concatenation: shape of the " + matrix_name + " (") == 0);
    CHECK(e.value(name) == value);
    CHECK(memory == untouched);
  };
  auto const forward = [&](matrix_view<float const> from, matrix_view<float> to) {
    return [=, &host, &saved] { interaction.forward(host.exec(), eigen_gemm{}, from, to, saved); };
  };
  auto const backward = [&](matrix_view<float> from, matrix_view<float> to) {
    return [=, &host, &saved, &logits] { interaction.backward(host.exec(), eigen_gemm{}, saved, from, logits, {}, to); };
  };
  mismatch(forward(matrix(4, 5), matrix(4, 6)), "input", "columns", "5");
  mismatch(forward(good, matrix(3, 6)), "output", "rows", "3");
  mismatch(forward(good, matrix(4, 7)), "output", "columns", "7");
  mismatch(forward(good, matrix(4, 6, 5)), "output", "stride", "5");
  std::vector<float> out(24);
  forward(good, matrix_view<float>(out.data(), 4, 6))();
  mismatch(backward(matrix(3, 6), matrix(4, 6)), "output's gradient", "rows", "3");
  mismatch(backward(good, matrix(4, 5)), "input's gradient", "columns", "5");
  mismatch(backward(good, matrix(4, 6, 5)), "input's gradient", "stride", "5");
}
