// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include <tessera/core/id_map.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>

// What the generators of planted clicks have in common.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// In [0, 1), a multiple of 2^-53.
constexpr double uniform_double(std::uint64_t word) noexcept { return static_cast<double>(word >> 11) * 0x1p-53; }
// In [0, n), by the upper half of the word. @pre n <= 2^32.
constexpr std::uint64_t draw_below(std::uint64_t word, std::uint64_t n) noexcept { return (word >> 32) * n >> 32; }

// Uniform doubles in [0, 1), multiples of 2^-53, of the sub-stream (a, b) of a seed.
class uniform_stream {
 public:
  uniform_stream(random_seed seed, std::uint64_t a, std::uint32_t b) noexcept : seed_(seed), a_(a), b_(b) {}
  double operator()() noexcept {
    auto const draw = draws_++;
    if (draw % 2 == 0) words_ = philox(seed_, a_, b_, draw / 2);
    int const word = draw % 2 == 0 ? 0 : 2;
    return uniform_double(std::uint64_t{words_[word]} << 32 | words_[word + 1]);
  }

 private:
  random_seed seed_;
  std::uint64_t a_;
  std::uint32_t b_;
  std::uint32_t draws_ = 0;
  random_block words_{};
};

// A bijection of [0, n) without a pattern: mixes the bits of the next power of two, again while the result lies outside.
class scramble {
 public:
  scramble(std::int64_t n, std::uint64_t key) noexcept : n_(static_cast<std::uint64_t>(n)), key_(key) {
    while (bits_ < 64 && std::uint64_t{1} << bits_ < n_) ++bits_;
  }
  std::int64_t operator()(std::int64_t i) const noexcept {
    auto const mask = (std::uint64_t{1} << bits_) - 1;
    auto const shift = bits_ / 2 + 1;
    auto x = static_cast<std::uint64_t>(i);
    do {
      for (std::uint64_t round = 0; round < 3; ++round) {
        x = (x ^ mix_bits(key_ + round)) & mask;
        x = x * 0x9E3779B97F4A7C15 & mask;
        x ^= x >> shift;
      }
    } while (x >= n_);
    return static_cast<std::int64_t>(x);
  }

 private:
  std::uint64_t n_;
  std::uint64_t key_;
  int bits_ = 0;
};

// Fisher and Yates, with a word for each place i = size, size - 1, … 2.
template <class T, class Word>
void shuffle(vector_view<T> items, Word const& word) noexcept {
  for (auto i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[static_cast<std::int64_t>(draw_below(word(i), static_cast<std::uint64_t>(i)))]);
}

// The ends of an interval after 60 halvings, of which each keeps the upper half where is_low(middle).
template <class F>
std::pair<double, double> halve(double low, double high, F const& is_low) {
  for (int i = 0; i < 60; ++i) {
    auto const middle = (low + high) / 2;
    (is_low(middle) ? low : high) = middle;
  }
  return {low, high};
}

// How strong the effects of the id of rank 0, 1, … are.
inline double strength_of_rank(std::int64_t rank, double head_ids, double tail_decay) noexcept {
  auto const beyond = static_cast<double>(rank + 1) / head_ids;
  return beyond > 1 ? std::pow(beyond, -tail_decay) : 1;
}

// Dense features, standard normal, and the logit's part that they decide: linear but for |first feature|.
struct dense_part {
  std::vector<double> slopes;  // (dense features,)
  double bend = 0;

  // Calls out(k, x) for each feature, rounded by round(x), and returns the part before scaling. uniform() draws from [0, 1), each feature once
  // and an odd last one twice. Box and Muller, 1958.
  template <class Uniform, class Round, class Out>
  double draw(Uniform uniform, Round const& round, Out const& out) const noexcept {
    double radius = 0, angle = 0, sum = 0, first = 0;
    for (std::size_t k = 0; k < slopes.size(); ++k) {
      if (k % 2 == 0) {
        radius = std::sqrt(-2 * std::log1p(-uniform()));
        angle = 2 * std::numbers::pi * uniform();
      }
      auto const x = round(radius * (k % 2 == 0 ? std::cos(angle) : std::sin(angle)));
      out(static_cast<std::int64_t>(k), x);
      sum += slopes[k] * static_cast<double>(x);
      if (k == 0) first = static_cast<double>(x);
    }
    return sum + bend * std::abs(first);
  }
};

inline double variance_of(vector_view<double const> values) noexcept {
  double mean = 0, variance = 0;
  for (auto const x : values) mean += x / static_cast<double>(values.size());
  for (auto const x : values) variance += (x - mean) * (x - mean) / static_cast<double>(values.size());
  return variance;
}

inline double click_probability(double logit) noexcept { return 1 / (1 + std::exp(-logit)); }

// What to add to logits so that their mean probability is base_rate, which grows with it.
inline double find_bias(vector_view<double const> logits, double base_rate) noexcept {
  auto const [low, high] = halve(-1e4, 1e4, [&](double bias) {
    double rate = 0;
    for (auto const logit : logits) rate += click_probability(bias + logit) / static_cast<double>(logits.size());
    return rate < base_rate;
  });
  return (low + high) / 2;
}

// Calls refuse(name, value) for each option out of its range that every generator has.
template <class Options, class Refuse>
void check_planted(Options const& o, Refuse const& refuse) {
  if (o.features.size() >= std::size_t{1} << 20) refuse("features", o.features.size());
  if (o.dense_features < 0 || o.dense_features > 1 << 20) refuse("dense_features", o.dense_features);
  if (!(o.base_rate > 0 && o.base_rate < 1)) refuse("base_rate", o.base_rate);
  if (!(o.head_ids >= 1)) refuse("head_ids", o.head_ids);
  std::pair<char const*, double> const most_100[] = {
      {"dense_signal", o.dense_signal}, {"linear_signal", o.linear_signal}, {"tail_decay", o.tail_decay}};
  for (auto const& [name, value] : most_100)
    if (!(value >= 0 && value <= 100)) refuse(name, value);
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
