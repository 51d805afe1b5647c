// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/dot_interaction.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// All vectors of a sample lie side by side in one block, as lookups leave them, with a gap behind each.
struct vectors_in_a_block {
  std::int64_t count, samples, dim, gap;
  strided_floats block;

  vectors_in_a_block(std::int64_t count, std::int64_t samples, std::int64_t dim, std::int64_t gap)
      : count(count), samples(samples), dim(dim), gap(gap), block(samples, count * (dim + gap), 1) {}
  template <class T, class Pointer>
  std::vector<tessera::matrix_view<T>> views(Pointer* copy) const {
    std::vector<tessera::matrix_view<T>> result;
    for (std::int64_t v = 0; v < count; ++v)
      result.push_back(samples == 0 ? tessera::matrix_view<T>(nullptr, 0, dim) : block.in(copy).columns_from(v * (dim + gap), dim));
    return result;
  }
  bool gaps_hold(float value) const {
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t c = 0; c < block.columns; ++c)
        if (c % (dim + gap) >= dim && block.at(s, c) != value) return false;
    return block.gaps_intact();
  }
  std::vector<doubles> in_double() const {
    std::vector<doubles> result;
    for (auto const& view : views<float const>(block.storage.data())) result.emplace_back(view);
    return result;
  }
};

/// The interaction in double; vectors[v] is (samples, dim).
inline doubles reference_interaction(std::vector<doubles> const& vectors) {
  auto const samples = vectors[0].rows, dim = vectors[0].columns, count = static_cast<std::int64_t>(vectors.size());
  doubles out(samples, dim + count * (count - 1) / 2);
  for (std::int64_t s = 0; s < samples; ++s) {
    for (std::int64_t d = 0; d < dim; ++d) out.at(s, d) = vectors[0].at(s, d);
    auto column = dim;
    for (std::size_t i = 0; i < vectors.size(); ++i)
      for (std::size_t j = 0; j < i; ++j, ++column)
        for (std::int64_t d = 0; d < dim; ++d) out.at(s, column) += vectors[i].at(s, d) * vectors[j].at(s, d);
  }
  return out;
}

/// What the interaction must show on every execution.
template <class Harness>
void dot_interaction_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const random_vectors = [&](std::int64_t count, std::int64_t samples, std::int64_t dim, std::int64_t gap) {
    vectors_in_a_block vectors(count, samples, dim, gap);
    std::normal_distribution<float> draw;
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t c = 0; c < vectors.block.columns; ++c)
        vectors.block.at(s, c) = c % (dim + gap) < dim ? draw(random) : std::nanf("");  // NaN: a read of the gap shows
    return vectors;
  };
  auto const forward = [&](vectors_in_a_block const& vectors) {
    strided_floats out(vectors.samples, tessera::dot_interaction_width(vectors.count, vectors.dim), 3);
    auto const there = harness.put(vectors.block.storage);
    auto there_out = harness.put(out.storage);
    tessera::dot_interaction(harness.exec(), vectors.views<float const>(there.data()), out.in(there_out.data()));
    out.storage = harness.get(there_out);
    return out;
  };
  auto const backward = [&](vectors_in_a_block const& vectors, strided_floats const& gradient) {
    vectors_in_a_block gradients(vectors.count, vectors.samples, vectors.dim, 2);
    std::fill(gradients.block.storage.begin(), gradients.block.storage.end(), strided_floats::canary);
    auto const there = harness.put(vectors.block.storage), there_gradient = harness.put(gradient.storage);
    auto there_gradients = harness.put(gradients.block.storage);
    tessera::dot_interaction_backward(harness.exec(), vectors.views<float const>(there.data()), gradient.in(there_gradient.data()),
                                      gradients.views<float>(there_gradients.data()));
    gradients.block.storage = harness.get(there_gradients);
    return gradients;
  };

  SUBCASE("pairs come in the order (1,0) (2,0) (2,1) (3,0) …") {
    vectors_in_a_block vectors(4, 1, 2, 0);
    float const values[]{1, 2, 3, 5, 7, 11, 13, 17};
    for (std::int64_t c = 0; c < 8; ++c) vectors.block.at(0, c) = values[c];
    auto const out = forward(vectors);
    float const expected[]{1, 2, 1 * 3 + 2 * 5, 1 * 7 + 2 * 11, 3 * 7 + 5 * 11, 1 * 13 + 2 * 17, 3 * 13 + 5 * 17, 7 * 13 + 11 * 17};
    REQUIRE(out.columns == 8);
    for (std::int64_t c = 0; c < 8; ++c) CHECK(out.at(0, c) == expected[c]);
  }

  SUBCASE("forward and backward match a double reference, gaps stay untouched") {
    for (std::int64_t count = 1; count <= 70; count += count < 30 ? 1 : 20)
      for (std::int64_t const dim : {1, 3, 8, 16, 17, 64, 130, 1027}) {
        if (dim > 100 && count % 5 != 0 && count != 27) continue;
        auto const samples = 1 + static_cast<std::int64_t>(random() % 3);
        CAPTURE(count);
        CAPTURE(dim);
        auto const vectors = random_vectors(count, samples, dim, static_cast<std::int64_t>(random() % 3));
        auto const doubled = vectors.in_double();
        auto const out = forward(vectors);
        REQUIRE(worst_difference(out, reference_interaction(doubled)) < 1e-5);
        REQUIRE(out.gaps_intact());

        strided_floats const gradient(random, samples, out.columns, 1);
        auto const gradients = backward(vectors, gradient);
        std::vector<doubles> expected(static_cast<std::size_t>(count), doubles(samples, dim));
        for (std::int64_t s = 0; s < samples; ++s) {
          for (std::int64_t d = 0; d < dim; ++d) expected[0].at(s, d) = static_cast<double>(gradient.at(s, d));
          auto column = dim;
          for (std::size_t i = 0; i < expected.size(); ++i)
            for (std::size_t j = 0; j < i; ++j, ++column)
              for (std::int64_t d = 0; d < dim; ++d) {
                expected[i].at(s, d) += static_cast<double>(gradient.at(s, column)) * doubled[j].at(s, d);
                expected[j].at(s, d) += static_cast<double>(gradient.at(s, column)) * doubled[i].at(s, d);
              }
        }
        auto const computed = gradients.in_double();
        for (std::size_t v = 0; v < expected.size(); ++v) REQUIRE(worst_difference(computed[v].values, expected[v].values) < 1e-5);
        REQUIRE(gradients.gaps_hold(strided_floats::canary));
      }
  }

  SUBCASE("gradients match central differences of the double forward") {
    auto const vectors = random_vectors(6, 4, 5, 1);
    strided_floats const gradient(random, 4, tessera::dot_interaction_width(6, 5), 0);
    auto const computed = backward(vectors, gradient).in_double();
    doubles const weight(gradient);
    auto doubled = vectors.in_double();
    auto const objective = [&] {
      auto const out = reference_interaction(doubled);
      double sum = 0;
      for (std::size_t i = 0; i < out.values.size(); ++i) sum += out.values[i] * weight.values[i];
      return sum;
    };
    for (std::size_t v = 0; v < doubled.size(); ++v) {
      std::vector<double> numeric;
      for (auto& value : doubled[v].values) numeric.push_back(numeric_derivative(value, objective, 1e-4));
      CHECK(worst_difference(computed[v].values, numeric) < 1e-5);
    }
  }

  SUBCASE("an empty batch") {
    auto const vectors = random_vectors(5, 0, 7, 0);
    CHECK(forward(vectors).storage.empty());
    CHECK(backward(vectors, strided_floats(0, tessera::dot_interaction_width(5, 7), 0)).block.storage.empty());
  }

  SUBCASE("one vector is copied") {
    auto const vectors = random_vectors(1, 70, 9, 0);
    auto const out = forward(vectors);
    CHECK(worst_difference(out, vectors.in_double()[0]) == 0);
  }

  SUBCASE("a sample's result does not depend on its batch") {
    auto const vectors = random_vectors(9, 200, 20, 0);
    strided_floats const gradient(random, 200, tessera::dot_interaction_width(9, 20), 0);
    auto const out = forward(vectors);
    auto const gradients = backward(vectors, gradient);
    for (std::int64_t const sample : {0, 63, 64, 127, 199}) {
      vectors_in_a_block lone(9, 1, 20, 0);
      strided_floats lone_gradient(1, gradient.columns, 0);
      for (std::int64_t c = 0; c < lone.block.columns; ++c) lone.block.at(0, c) = vectors.block.at(sample, c);
      for (std::int64_t c = 0; c < gradient.columns; ++c) lone_gradient.at(0, c) = gradient.at(sample, c);
      auto const lone_out = forward(lone);
      auto const lone_gradients = backward(lone, lone_gradient);
      int differing = 0;
      for (std::int64_t c = 0; c < lone_out.columns; ++c) differing += lone_out.at(0, c) != out.at(sample, c);
      for (std::int64_t c = 0; c < lone_gradients.block.columns; ++c)
        differing += lone_gradients.block.at(0, c) != gradients.block.at(sample, c);
      CHECK(differing == 0);
    }
  }

  SUBCASE("shapes that do not fit are refused") {
    auto there = harness.put(std::vector<float>(200, 1));
    auto const blocks = [&](std::vector<std::pair<std::int64_t, std::int64_t>> const& shapes) {
      std::vector<tessera::matrix_view<float>> result;
      for (auto const& [rows, columns] : shapes) result.emplace_back(there.data(), rows, columns);
      return result;
    };
    auto const constant = [](std::vector<tessera::matrix_view<float>> const& views) {
      return std::vector<tessera::matrix_view<float const>>(views.begin(), views.end());
    };
    auto const matrix = [&](std::int64_t rows, std::int64_t columns) { return tessera::matrix_view<float>(there.data(), rows, columns); };
    auto const refused_forward = [&](std::vector<tessera::matrix_view<float>> const& vectors, tessera::matrix_view<float> out) {
      CHECK_THROWS_AS(tessera::dot_interaction(harness.exec(), constant(vectors), out), tessera::error);
    };
    refused_forward({}, matrix(2, 3));
    refused_forward(blocks({{2, 3}, {2, 3}}), matrix(2, 5));
    refused_forward(blocks({{2, 3}, {2, 3}}), matrix(1, 4));
    refused_forward(blocks({{2, 3}, {2, 4}}), matrix(2, 4));
    refused_forward(blocks({{2, 3}, {1, 3}}), matrix(2, 4));
    auto overlapping = matrix(2, 4);
    overlapping.row_stride = 3;
    refused_forward(blocks({{2, 3}, {2, 3}}), overlapping);
    auto overlapping_vectors = blocks({{2, 3}, {2, 3}});
    overlapping_vectors[1].row_stride = 2;
    refused_forward(overlapping_vectors, matrix(2, 4));
    auto const refused_backward = [&](std::vector<tessera::matrix_view<float>> const& vectors, tessera::matrix_view<float> gradient,
                                      std::vector<tessera::matrix_view<float>> const& gradients) {
      CHECK_THROWS_AS(tessera::dot_interaction_backward(harness.exec(), constant(vectors), gradient, gradients), tessera::error);
    };
    auto const good = blocks({{2, 3}, {2, 3}});
    refused_backward({}, matrix(2, 3), {});
    refused_backward(good, matrix(2, 5), good);
    refused_backward(good, matrix(2, 4), blocks({{2, 3}}));
    refused_backward(good, matrix(2, 4), blocks({{2, 3}, {3, 3}}));
    refused_backward(blocks({{2, 3}, {2, 2}}), matrix(2, 4), good);
    auto const blamed = [&](std::vector<tessera::matrix_view<float>> const& vectors,
                            std::vector<tessera::matrix_view<float>> const& gradients) {
      try {
        tessera::dot_interaction_backward(harness.exec(), constant(vectors), matrix(2, 4), gradients);
      } catch (tessera::error const& e) {
        CHECK(e.value("vector") == "1");
        return std::string(e.value("argument"));
      }
      return std::string("nothing");
    };
    CHECK(blamed(good, blocks({{2, 3}, {3, 3}})) == "vector_gradients");
    CHECK(blamed(blocks({{2, 3}, {2, 2}}), good) == "vectors");
  }
}

}  // namespace tessera_tests
