// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/nn/factorization_machine.hpp>

#include "dot_interaction_suite.hpp"

namespace tessera_tests {

/// The term of each sample in double, pair by pair; vectors[v] is (samples, dim).
inline std::vector<double> reference_machine(std::vector<doubles> const& vectors) {
  std::vector<double> terms(static_cast<std::size_t>(vectors[0].rows));
  for (std::int64_t s = 0; s < vectors[0].rows; ++s)
    for (std::size_t j = 0; j < vectors.size(); ++j)
      for (std::size_t i = 0; i < j; ++i)
        for (std::int64_t d = 0; d < vectors[0].columns; ++d)
          terms[static_cast<std::size_t>(s)] += vectors[i].at(s, d) * vectors[j].at(s, d);
  return terms;
}

/// What the factorization machine must show on every execution.
template <class Harness>
void factorization_machine_suite() {
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const random_vectors = [&](std::int64_t count, std::int64_t samples, std::int64_t dim, std::int64_t gap, float otherwise) {
    vectors_in_a_block vectors(count, samples, dim, gap);
    std::normal_distribution<float> draw;
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t c = 0; c < vectors.block.columns; ++c) vectors.block.at(s, c) = c % (dim + gap) < dim ? draw(random) : otherwise;
    return vectors;
  };
  auto const forward = [&](vectors_in_a_block const& vectors, strided_floats logits) {
    auto const there = harness.put(vectors.block.storage);
    auto there_logits = harness.put(logits.storage);
    tessera::factorization_machine(harness.exec(), vectors.views<float const>(there.data()), logits.in(there_logits.data()));
    logits.storage = harness.get(there_logits);
    CHECK(logits.gaps_intact());
    return logits;
  };
  auto const backward = [&](vectors_in_a_block const& vectors, strided_floats const& gradient, vectors_in_a_block gradients) {
    auto const there = harness.put(vectors.block.storage), there_gradient = harness.put(gradient.storage);
    auto there_gradients = harness.put(gradients.block.storage);
    tessera::factorization_machine_backward(harness.exec(), vectors.views<float const>(there.data()), gradient.in(there_gradient.data()),
                                            gradients.views<float>(there_gradients.data()));
    gradients.block.storage = harness.get(there_gradients);
    return gradients;
  };

  SUBCASE("three vectors, written out") {
    vectors_in_a_block vectors(3, 1, 2, 0), gradients(3, 1, 2, 0);
    float const values[]{1, 2, 3, 5, 7, 11};
    for (std::int64_t c = 0; c < 6; ++c) {
      vectors.block.at(0, c) = values[c];
      gradients.block.at(0, c) = 100;
    }
    CHECK(forward(vectors, strided_floats(1, 1, 0, 1000)).at(0, 0) == 1000 + (3 + 10) + (7 + 22) + (21 + 55));
    auto const after = backward(vectors, strided_floats(1, 1, 0, 2), gradients);
    float const expected[]{100 + 2 * (3 + 7),  100 + 2 * (5 + 11), 100 + 2 * (1 + 7),
                           100 + 2 * (2 + 11), 100 + 2 * (1 + 3),  100 + 2 * (2 + 5)};
    for (std::int64_t c = 0; c < 6; ++c) CHECK(after.block.at(0, c) == expected[c]);
  }

  SUBCASE("forward and backward match a double reference and add to what is there, gaps stay untouched") {
    for (std::int64_t const count : {1, 2, 3, 5, 27, 40})
      for (std::int64_t const dim : {1, 3, 16, 17, 31, 32, 33, 64, 130, 1027}) {
        auto const samples = 1 + static_cast<std::int64_t>(random() % 3);
        CAPTURE(count);
        CAPTURE(dim);
        // NaN in the gaps of the vectors: a read of them shows.
        auto const vectors = random_vectors(count, samples, dim, static_cast<std::int64_t>(random() % 3), std::nanf(""));
        auto const before = random_vectors(count, samples, dim, 2, strided_floats::canary);
        strided_floats const logits(random, samples, 1, 2), gradient(random, samples, 1, 1);
        auto const doubled = vectors.in_double();
        auto const terms = reference_machine(doubled);
        auto const sums_to = forward(vectors, logits);
        auto const typical = 1 + std::sqrt(static_cast<double>(count * (count - 1) / 2 * dim));  // a term's deviation; it may be near 0
        for (std::int64_t s = 0; s < samples; ++s) {
          auto const expected = static_cast<double>(logits.at(s, 0)) + terms[static_cast<std::size_t>(s)];
          REQUIRE(std::fabs(static_cast<double>(sums_to.at(s, 0)) - expected) < 1e-5 * typical);
        }

        auto const gradients = backward(vectors, gradient, before);
        auto sums = before.in_double();
        for (std::size_t i = 0; i < doubled.size(); ++i)
          for (std::size_t j = 0; j < doubled.size(); ++j)
            for (std::int64_t s = 0; s < samples && i != j; ++s)
              for (std::int64_t d = 0; d < dim; ++d) sums[i].at(s, d) += static_cast<double>(gradient.at(s, 0)) * doubled[j].at(s, d);
        auto const computed = gradients.in_double();
        for (std::size_t v = 0; v < sums.size(); ++v) REQUIRE(worst_difference(computed[v].values, sums[v].values) < 1e-5);
        REQUIRE(gradients.gaps_hold(strided_floats::canary));
      }
  }

  SUBCASE("gradients match central differences of the double forward") {
    auto const vectors = random_vectors(6, 4, 5, 1, 0);
    strided_floats const gradient(random, 4, 1, 0);
    auto const computed = backward(vectors, gradient,
                                   [&] {
                                     auto zeros = vectors;
                                     std::fill(zeros.block.storage.begin(), zeros.block.storage.end(), 0.0F);
                                     return zeros;
                                   }())
                              .in_double();
    auto doubled = vectors.in_double();
    auto const objective = [&] {
      auto const terms = reference_machine(doubled);
      double sum = 0;
      for (std::int64_t s = 0; s < 4; ++s) sum += terms[static_cast<std::size_t>(s)] * static_cast<double>(gradient.at(s, 0));
      return sum;
    };
    for (std::size_t v = 0; v < doubled.size(); ++v) {
      std::vector<double> numeric;
      for (auto& value : doubled[v].values) numeric.push_back(numeric_derivative(value, objective, 1e-4));
      CHECK(worst_difference(computed[v].values, numeric) < 1e-5);
    }
  }

  SUBCASE("one vector has no pair, however large: nothing is added") {
    vectors_in_a_block vectors(1, 70, 9, 0);
    std::fill(vectors.block.storage.begin(), vectors.block.storage.end(), 3e30F);
    auto const logits = forward(vectors, strided_floats(70, 1, 0, 7));
    for (std::int64_t s = 0; s < 70; ++s) CHECK(logits.at(s, 0) == 7);
    auto const gradients = backward(vectors, strided_floats(70, 1, 0, 2), vectors);
    CHECK(same_bits(gradients.block.storage, vectors.block.storage));
  }

  SUBCASE("a small product of large vectors does not cancel away") {
    vectors_in_a_block vectors(2, 1, 1, 0);
    vectors.block.at(0, 0) = 1e4F;
    vectors.block.at(0, 1) = 1e-4F;
    CHECK(forward(vectors, strided_floats(1, 1, 0, 0)).at(0, 0) == doctest::Approx(1).epsilon(1e-6));
  }

  SUBCASE("a sample's result does not depend on its batch") {
    auto const vectors = random_vectors(9, 200, 40, 0, 0);
    auto const logits = forward(vectors, strided_floats(200, 1, 0, 0));
    for (std::int64_t const sample : {0, 63, 64, 127, 199}) {
      vectors_in_a_block lone(9, 1, 40, 0);
      for (std::int64_t c = 0; c < lone.block.columns; ++c) lone.block.at(0, c) = vectors.block.at(sample, c);
      CHECK(forward(lone, strided_floats(1, 1, 0, 0)).at(0, 0) == logits.at(sample, 0));
    }
  }

  SUBCASE("an empty batch") {
    vectors_in_a_block const vectors(5, 0, 7, 0);
    CHECK(forward(vectors, strided_floats(0, 1, 0)).storage.empty());
    CHECK(backward(vectors, strided_floats(0, 1, 0), vectors).block.storage.empty());
  }

  SUBCASE("shapes that do not fit are refused, and nothing is written") {
    auto there = harness.put(std::vector<float>(200, 1));
    using shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
    auto const blocks = [&](shapes const& of) {
      std::vector<tessera::matrix_view<float>> result;
      for (auto const& [rows, columns] : of) result.emplace_back(there.data(), rows, columns);
      return result;
    };
    auto const code_of = [](auto const& call) {
      try {
        call();
      } catch (tessera::error const& e) {
        return e.code();
      }
      return tessera::errc{};
    };
    auto const refused = [&](shapes const& of_vectors, std::int64_t rows, std::int64_t columns, shapes const& of_gradients) {
      auto const vectors = blocks(of_vectors), gradients = blocks(of_gradients);
      std::vector<tessera::matrix_view<float const>> const constant(vectors.begin(), vectors.end());
      tessera::matrix_view<float> const logits(there.data(), rows, columns);
      auto const expected = of_vectors.empty() ? tessera::errc::invalid_argument : tessera::errc::shape_mismatch;
      if (of_gradients.empty()) CHECK(code_of([&] { tessera::factorization_machine(harness.exec(), constant, logits); }) == expected);
      CHECK(code_of([&] { tessera::factorization_machine_backward(harness.exec(), constant, logits, gradients); }) == expected);
    };
    refused({}, 2, 1, {});
    refused({{2, 3}, {2, 3}}, 2, 2, {});
    refused({{2, 3}, {2, 3}}, 3, 1, {});
    refused({{2, 3}, {2, 4}}, 2, 1, {});
    refused({{2, 3}, {1, 3}}, 2, 1, {});
    refused({{2, 3}, {2, 3}}, 2, 1, {{2, 3}});
    refused({{2, 3}, {2, 3}}, 2, 1, {{2, 3}, {2, 4}});
    CHECK(harness.get(there) == std::vector<float>(200, 1));
  }
}

}  // namespace tessera_tests
