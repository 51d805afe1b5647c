// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>

#include <tessera/nn/transformer_encoder.hpp>

#include "jagged_attention_suite.hpp"

namespace tessera_tests {

/// An encoder in double, from the definitions; parameters laid out like `tessera::transformer_encoder::parameters()`.
struct reference_encoder {
  tessera::transformer_encoder_options options;
  std::vector<double> parameters;
  mutable double nearest_kink = HUGE_VAL;    // least distance of a ReLU's input from 0 yet
  mutable double least_variance = HUGE_VAL;  // of a vector that was normalised

  static doubles linear(double const*& p, doubles const& x, std::int64_t out) {
    auto const* const weight = p;
    auto const* const bias = weight + out * x.columns;
    p = bias + out;
    doubles y(x.rows, out);
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t o = 0; o < out; ++o) {
        y.at(r, o) = bias[o];
        for (std::int64_t c = 0; c < x.columns; ++c) y.at(r, o) += weight[o * x.columns + c] * x.at(r, c);
      }
    return y;
  }
  doubles norm(double const* p, doubles const& x) const {
    doubles y(x.rows, x.columns);
    auto const n = static_cast<double>(x.columns);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < x.columns; ++c) mean += x.at(r, c) / n;
      for (std::int64_t c = 0; c < x.columns; ++c) variance += (x.at(r, c) - mean) * (x.at(r, c) - mean) / n;
      least_variance = std::min(least_variance, variance);
      for (std::int64_t c = 0; c < x.columns; ++c) y.at(r, c) = (x.at(r, c) - mean) / std::sqrt(variance + 1e-5) * p[c] + p[x.columns + c];
    }
    return y;
  }
  static doubles sum(doubles a, doubles const& b) {
    for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
    return a;
  }
  doubles attend(doubles const& projected, std::vector<std::int64_t> const& offsets) const {
    auto const dim = options.dim;
    doubles parts[] = {doubles(projected.rows, dim), doubles(projected.rows, dim), doubles(projected.rows, dim)};
    for (std::int64_t r = 0; r < projected.rows; ++r)
      for (std::int64_t c = 0; c < 3 * dim; ++c) parts[c / dim].at(r, c % dim) = projected.at(r, c);
    reference_attention const attention{options.heads, options.causal, 1 / std::sqrt(static_cast<double>(dim / options.heads))};
    return attention.run(parts[0], parts[1], parts[2], doubles(projected.rows, dim), offsets).out;
  }

  doubles forward(doubles x, std::vector<std::int64_t> const& offsets) const {
    auto const* p = parameters.data();
    auto const dim = options.dim;
    for (std::size_t row = 0; row + 1 < offsets.size() && options.max_length > 0; ++row)
      for (auto i = offsets[row]; i < offsets[row + 1]; ++i)
        for (std::int64_t c = 0; c < dim; ++c) x.at(i, c) += p[(i - offsets[row]) * dim + c];
    p += options.max_length * dim;
    for (std::int64_t l = 0; l < options.layers; ++l) {
      auto const* const attention_norm = p + 3 * dim * (dim + 1) + dim * (dim + 1);
      auto const* const feed_norm = attention_norm + 2 * dim + (dim + 1) * options.hidden + (options.hidden + 1) * dim;
      auto const projected = linear(p, options.norm_first ? norm(attention_norm, x) : x, 3 * dim);
      auto const between = sum(linear(p, attend(projected, offsets), dim), x);
      p += 2 * dim;
      auto const start = options.norm_first ? norm(feed_norm, between) : norm(attention_norm, between);
      auto hidden = linear(p, start, options.hidden);
      for (auto& h : hidden.values) {
        nearest_kink = std::min(nearest_kink, std::fabs(h));
        h = std::max(h, 0.0);
      }
      auto const end = sum(linear(p, hidden, dim), options.norm_first ? between : start);
      p += 2 * dim;
      x = options.norm_first ? end : norm(feed_norm, end);
    }
    if (options.norm_first) x = norm(p, x);
    doubles out(static_cast<std::int64_t>(offsets.size()) - 1, dim);
    for (std::int64_t row = 0; row < out.rows; ++row) {
      auto const first = offsets[static_cast<std::size_t>(row)], last = offsets[static_cast<std::size_t>(row) + 1];
      for (auto i = first; i < last; ++i)
        for (std::int64_t c = 0; c < dim; ++c) {
          if (options.pooling == tessera::sequence_pooling::last)
            out.at(row, c) = x.at(i, c);
          else
            out.at(row, c) += x.at(i, c) / (options.pooling == tessera::sequence_pooling::mean ? static_cast<double>(last - first) : 1.0);
        }
    }
    return out;
  }
};

/// What an encoder must show on every execution and gemm policy.
template <class Harness>
void transformer_encoder_suite() {
  using tessera::sequence_pooling;
  Harness harness;
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);

  auto const randomise = [&](tessera::transformer_encoder& net) {
    auto values = random_floats(random, static_cast<std::size_t>(net.parameters().size()));
    for (std::size_t i = 0; i < values.size(); ++i) net.parameters()[static_cast<std::int64_t>(i)] += 0.2F * values[i];
    return reference_encoder{net.options(), {net.parameters().begin(), net.parameters().end()}};
  };
  struct outcome {
    strided_floats out, x_gradient;
    std::vector<float> parameter_gradient;
  };
  auto const run = [&](tessera::transformer_encoder const& net, std::vector<std::int64_t> const& offsets, strided_floats const& x,
                       strided_floats const& gradient) {
    auto const rows = static_cast<std::int64_t>(offsets.size()) - 1;
    outcome result{strided_floats(rows, net.dim(), 2), strided_floats(x.rows, net.dim(), 5),
                   std::vector<float>(static_cast<std::size_t>(net.parameters().size()), std::nanf(""))};
    tessera::jagged_vectors_view<float const> const in{x.view(), offsets.data(), rows};
    tessera::transformer_saved saved;
    net.forward(harness.exec(), harness.policy(), in, result.out.view(), saved);
    CHECK(saved.values.size() * 4 == net.saved_bytes(x.rows));
    net.backward(harness.exec(), harness.policy(), saved, gradient.view(), result.parameter_gradient, result.x_gradient.view());
    CHECK(result.out.gaps_intact());
    CHECK(result.x_gradient.gaps_intact());
    // A second backward, without the gradient of x, and a forward that saves nothing have the same bits.
    std::vector<float> again(result.parameter_gradient.size(), std::nanf(""));
    net.backward(harness.exec(), harness.policy(), saved, gradient.view(), again);
    CHECK(same_bits(again, result.parameter_gradient));
    strided_floats alone(rows, net.dim(), 2);
    net.forward(harness.exec(), harness.policy(), in, alone.view());
    CHECK(same_bits(alone.storage, result.out.storage));
    return result;
  };

  SUBCASE("forward matches a double reference, backward its central differences") {
    auto const offsets = offsets_of({3, 0, 1, 5});
    for (bool const norm_first : {false, true})
      for (bool const causal : {false, true})
        for (auto const pooling : {sequence_pooling::mean, sequence_pooling::sum, sequence_pooling::last})
          for (std::int64_t const layers : {0, 1, 2}) {
            CAPTURE(norm_first);
            CAPTURE(causal);
            CAPTURE(static_cast<int>(pooling));
            CAPTURE(layers);
            tessera::transformer_encoder net(harness.exec(), {.dim = 4,
                                                              .layers = layers,
                                                              .heads = 2,
                                                              .hidden = 3,
                                                              .max_length = causal ? 7 : 0,
                                                              .causal = causal,
                                                              .norm_first = norm_first,
                                                              .pooling = pooling,
                                                              .recomputes_hidden = layers == 2,
                                                              .seed = tessera::random_seed{seed}});
            auto reference = randomise(net);
            strided_floats x(random, offsets.back(), 4, 3);
            strided_floats const gradient(random, 4, 4, 1);
            // Where a ReLU has its kink, a difference is not a derivative; what is nearly equal is normalised to its rounding errors.
            auto const is_rough = [&] {
              auto const here = reference;
              here.forward(doubles(x), offsets);
              return here.nearest_kink < 1e-4 || here.least_variance < 0.02;
            };
            while (is_rough()) x = strided_floats(random, offsets.back(), 4, 3);
            auto const result = run(net, offsets, x, gradient);
            doubles wide_x(x);
            CHECK(worst_difference(result.out, reference.forward(wide_x, offsets)) < 5e-5);
            auto const objective = [&] {
              auto const y = reference.forward(wide_x, offsets);
              double sum = 0;
              for (std::int64_t r = 0; r < y.rows; ++r)
                for (std::int64_t c = 0; c < y.columns; ++c) sum += y.at(r, c) * static_cast<double>(gradient.at(r, c));
              return sum;
            };
            std::vector<double> numeric_parameters, numeric_x;
            for (auto& p : reference.parameters) numeric_parameters.push_back(numeric_derivative(p, objective, 1e-6));
            for (auto& value : wide_x.values) numeric_x.push_back(numeric_derivative(value, objective, 1e-6));
            // Norms of small variance, one after the other, multiply rounding errors.
            CHECK(worst_difference(result.parameter_gradient, numeric_parameters) < 5e-4);
            CHECK(worst_difference(doubles(result.x_gradient).values, numeric_x) < 5e-4);
          }
  }

  SUBCASE("larger shapes match along random directions") {
    auto const offsets = offsets_of({70, 0, 5, 80, 33});
    for (bool const norm_first : {false, true}) {
      tessera::transformer_encoder net(
          harness.exec(),
          {.dim = 24, .layers = 2, .heads = 3, .max_length = 90, .norm_first = norm_first, .seed = tessera::random_seed{seed}});
      reference_encoder const reference{net.options(), {net.parameters().begin(), net.parameters().end()}};
      strided_floats x(random, offsets.back(), 24, 0);
      strided_floats const gradient(random, 5, 24, 0);
      // The step along the direction, and the rounding of float, must not carry a hidden value over the kink of its ReLU.
      auto const nearest_kink = [&] {
        auto here = reference;
        here.forward(doubles(x), offsets);
        return here.nearest_kink;
      };
      while (nearest_kink() < 1e-5) x = strided_floats(random, offsets.back(), 24, 0);
      auto const result = run(net, offsets, x, gradient);
      CHECK(worst_difference(result.out, reference.forward(doubles(x), offsets)) < 1e-5);
      auto const of_parameters = random_floats(random, reference.parameters.size()), of_x = random_floats(random, doubles(x).values.size());
      double at = 0, expected = 0, length = 0;
      auto const slope = numeric_derivative(
          at,
          [&] {
            auto moved = reference;
            doubles moved_x(x);
            for (std::size_t i = 0; i < of_parameters.size(); ++i) moved.parameters[i] += at * static_cast<double>(of_parameters[i]);
            for (std::size_t i = 0; i < of_x.size(); ++i) moved_x.values[i] += at * static_cast<double>(of_x[i]);
            auto const y = moved.forward(moved_x, offsets);
            double sum = 0;
            for (std::size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * static_cast<double>(gradient.storage[i]);
            return sum;
          },
          1e-7);
      auto const add = [&](std::vector<double> const& analytic, std::vector<float> const& direction) {
        for (std::size_t i = 0; i < analytic.size(); ++i) {
          expected += analytic[i] * static_cast<double>(direction[i]);
          length += analytic[i] * analytic[i];
        }
      };
      add({result.parameter_gradient.begin(), result.parameter_gradient.end()}, of_parameters);
      add(doubles(result.x_gradient).values, of_x);
      CHECK(std::fabs(slope - expected) / std::sqrt(length) < 1e-3);
    }
  }

  SUBCASE("to keep the hidden layer or to make it again gives the same bits") {
    auto const offsets = offsets_of({9, 2, 0, 20});
    strided_floats const x(random, offsets.back(), 16, 0), gradient(random, 4, 16, 0);
    auto const with = [&](bool again) {
      return run(tessera::transformer_encoder(
                     harness.exec(), {.dim = 16, .layers = 2, .heads = 2, .recomputes_hidden = again, .seed = tessera::random_seed{seed}}),
                 offsets, x, gradient);
    };
    auto const kept = with(false), again = with(true);
    CHECK(same_bits(kept.parameter_gradient, again.parameter_gradient));
    CHECK(same_bits(kept.x_gradient.storage, again.x_gradient.storage));
  }

  SUBCASE("rows permuted give permuted outputs") {
    auto const lengths = std::vector<std::int64_t>{7, 0, 40, 3};
    auto const offsets = offsets_of(lengths), turned_offsets = offsets_of({3, 40, 0, 7});
    tessera::transformer_encoder const net(harness.exec(), {.dim = 8, .heads = 2, .seed = tessera::random_seed{seed}});
    strided_floats const x(random, 50, 8, 0), gradient(random, 4, 8, 0);
    strided_floats turned_x(50, 8, 0), turned_gradient(4, 8, 0);
    for (std::size_t row = 0; row < 4; ++row) {
      std::copy_n(x.storage.begin() + offsets[row] * 8, lengths[row] * 8, turned_x.storage.begin() + turned_offsets[3 - row] * 8);
      std::copy_n(gradient.storage.begin() + static_cast<std::int64_t>(row) * 8, 8,
                  turned_gradient.storage.begin() + static_cast<std::int64_t>(3 - row) * 8);
    }
    auto const result = run(net, offsets, x, gradient), turned = run(net, turned_offsets, turned_x, turned_gradient);
    for (std::int64_t row = 0; row < 4; ++row)
      for (std::int64_t c = 0; c < 8; ++c) CHECK(std::fabs(result.out.at(row, c) - turned.out.at(3 - row, c)) < 1e-5F);
    for (std::size_t i = 0; i < result.parameter_gradient.size(); ++i)
      CHECK(std::fabs(result.parameter_gradient[i] - turned.parameter_gradient[i]) < 1e-4F);
  }

  SUBCASE("empty batches and batches of empty rows") {
    for (std::int64_t const max_length : {0, 3}) {
      tessera::transformer_encoder const net(harness.exec(), {.dim = 4, .max_length = max_length, .norm_first = true});
      for (std::int64_t const rows : {0, 3}) {
        auto const offsets = offsets_of(std::vector<std::int64_t>(static_cast<std::size_t>(rows)));
        auto const result = run(net, offsets, strided_floats(0, 4, 0), strided_floats(random, rows, 4, 0));
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < 4; ++c) CHECK(result.out.at(r, c) == 0);
        for (auto const g : result.parameter_gradient) CHECK(g == 0);
      }
    }
  }
}

}  // namespace tessera_tests
