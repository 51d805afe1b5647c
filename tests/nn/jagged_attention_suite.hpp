// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <numeric>

#include <tessera/nn/jagged_attention.hpp>

#include "nn_harness.hpp"

namespace tessera_tests {

/// Attention in double by its definition: probabilities are kept, (length, length) a head.
struct reference_attention {
  std::int64_t heads;
  bool causal;
  double scale;

  struct result {
    doubles out, q, k, v;                       // the last three: gradients
    std::vector<std::vector<double>> log_sums;  // to base 2, by head
  };

  result run(doubles const& q, doubles const& k, doubles const& v, doubles const& gradient,
             std::vector<std::int64_t> const& offsets) const {
    auto const n = q.rows, dim = q.columns, head_dim = dim / heads;
    result r{doubles(n, dim), doubles(n, dim), doubles(n, dim), doubles(n, dim), {}};
    r.log_sums.assign(static_cast<std::size_t>(heads), std::vector<double>(static_cast<std::size_t>(n)));
    for (std::size_t row = 0; row + 1 < offsets.size(); ++row)
      for (std::int64_t h = 0; h < heads; ++h)
        for (auto i = offsets[row]; i < offsets[row + 1]; ++i)
          query(q, k, v, gradient, offsets[row], causal ? i + 1 : offsets[row + 1], i, h * head_dim, (h + 1) * head_dim, r,
                r.log_sums[static_cast<std::size_t>(h)][static_cast<std::size_t>(i)]);
    return r;
  }

  void query(doubles const& q, doubles const& k, doubles const& v, doubles const& gradient, std::int64_t first, std::int64_t last,
             std::int64_t i, std::int64_t begin, std::int64_t end, result& r, double& log_sum) const {
    std::vector<double> p(static_cast<std::size_t>(last - first)), dp(p.size());
    for (auto j = first; j < last; ++j)
      for (auto c = begin; c < end; ++c) p[static_cast<std::size_t>(j - first)] += scale * q.at(i, c) * k.at(j, c);
    auto const largest = *std::max_element(p.begin(), p.end());
    double sum = 0, mean = 0;
    for (auto& x : p) sum += x = std::exp(x - largest);
    for (auto& x : p) x /= sum;
    log_sum = largest / std::log(2.0) + std::log2(sum);
    for (auto j = first; j < last; ++j) {
      auto const at = static_cast<std::size_t>(j - first);
      for (auto c = begin; c < end; ++c) {
        r.out.at(i, c) += p[at] * v.at(j, c);
        r.v.at(j, c) += p[at] * gradient.at(i, c);
        dp[at] += gradient.at(i, c) * v.at(j, c);
      }
      mean += p[at] * dp[at];
    }
    for (auto j = first; j < last; ++j) {
      auto const at = static_cast<std::size_t>(j - first);
      auto const slope = scale * p[at] * (dp[at] - mean);
      for (auto c = begin; c < end; ++c) {
        r.q.at(i, c) += slope * k.at(j, c);
        r.k.at(j, c) += slope * q.at(i, c);
      }
    }
  }
};

inline std::vector<std::int64_t> offsets_of(std::vector<std::int64_t> const& lengths) {
  std::vector<std::int64_t> offsets{0};
  for (auto const length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

/// A batch of rows, and what attention makes of it.
struct attention_case {
  std::vector<std::int64_t> offsets;
  tessera::attention_options options;
  strided_floats q, k, v, gradient;

  attention_case(std::mt19937_64& random, std::vector<std::int64_t> const& lengths, std::int64_t dim, tessera::attention_options options)
      : offsets(offsets_of(lengths)),
        options(options),
        q(random, offsets.back(), dim, 3),
        k(random, offsets.back(), dim, 1),
        v(random, offsets.back(), dim, 0),
        gradient(random, offsets.back(), dim, 2) {}

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t dim() const { return q.columns; }

  struct result {
    strided_floats out, q, k, v;
    std::vector<float> log_sums;
  };

  result run(tessera::host_exec const& exec) const {
    auto const n = q.rows;
    result r{{n, dim(), 1}, {n, dim(), 0}, {n, dim(), 2}, {n, dim(), 3}, {}};
    r.log_sums.assign(static_cast<std::size_t>(options.heads * n), std::nanf(""));
    auto const in = [&](strided_floats const& m) { return tessera::jagged_vectors_view<float const>{m.view(), offsets.data(), rows()}; };
    auto const to = [&](strided_floats& m) { return tessera::jagged_vectors_view<float>{m.view(), offsets.data(), rows()}; };
    tessera::matrix_view<float> const log_sums(r.log_sums.data(), options.heads, n);
    tessera::jagged_attention(exec, in(q), in(k), in(v), options, to(r.out), log_sums);
    tessera::jagged_attention_backward(exec, in(q), in(k), in(v), options, in(r.out), log_sums, in(gradient), to(r.q), to(r.k), to(r.v));
    for (auto const* m : {&r.out, &r.q, &r.k, &r.v}) CHECK(m->gaps_intact());
    return r;
  }

  reference_attention::result reference() const {
    auto const scale = options.scale != 0 ? static_cast<double>(options.scale) : 1 / std::sqrt(static_cast<double>(dim() / options.heads));
    return reference_attention{options.heads, options.causal, scale}.run(doubles(q), doubles(k), doubles(v), doubles(gradient), offsets);
  }

  void check(tessera::host_exec const& exec, double tolerance = 1e-5) const {
    auto const r = run(exec);
    auto const expected = reference();
    CHECK(worst_difference(r.out, expected.out) < tolerance);
    CHECK(worst_difference(r.q, expected.q) < tolerance);
    CHECK(worst_difference(r.k, expected.k) < tolerance);
    CHECK(worst_difference(r.v, expected.v) < tolerance);
    for (std::int64_t h = 0; h < options.heads; ++h)
      CHECK(worst_difference(std::vector<float>(r.log_sums.begin() + h * q.rows, r.log_sums.begin() + (h + 1) * q.rows),
                             expected.log_sums[static_cast<std::size_t>(h)]) < 1e-5);
  }
};

}  // namespace tessera_tests
