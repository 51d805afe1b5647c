// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-optimize: -O2
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <tessera/core/philox.hpp>
#include <tessera/core/row_formats.hpp>

#include "random.hpp"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace {

using tessera::bfloat16;
using tessera::float16;
using tessera::float8_e4m3;
using tessera::float8_e5m2;
using tessera::round_to;
using tessera::row_scale;
using tessera::scaled_int8;
using tessera::to_float;

static_assert(tessera::row_element<float> && tessera::row_element<float16> && tessera::row_element<bfloat16>);
static_assert(tessera::row_element<float8_e4m3> && tessera::row_element<float8_e5m2> && tessera::row_element<scaled_int8>);
static_assert(tessera::float_element<float8_e4m3> && !tessera::float_element<scaled_int8>);
static_assert(!tessera::row_element<double> && !tessera::row_element<std::uint16_t> && !tessera::row_element<float const>);
static_assert(to_float(float16{0x3C00}) == 1.0F && to_float(bfloat16{0xBF80}) == -1.0F, "at compile time too");
static_assert(round_to<float16>(65504.0F) == float16{0x7BFF} && round_to<bfloat16>(1.0F, ~0U) == bfloat16{0x3F80});
static_assert(round_to<float>(0.1F) == 0.1F && round_to<float>(0.1F, 12345) == 0.1F && to_float(0.1F) == 0.1F);

/// A format by the numbers of its definition.
template <class E>
struct definition;
template <>
struct definition<float16> {
  static constexpr int exponent_bits = 5, fraction_bits = 10;
  static constexpr bool has_infinity = true;
};
template <>
struct definition<bfloat16> {
  static constexpr int exponent_bits = 8, fraction_bits = 7;
  static constexpr bool has_infinity = true;
};
template <>
struct definition<float8_e4m3> {
  static constexpr int exponent_bits = 4, fraction_bits = 3;
  static constexpr bool has_infinity = false;
};
template <>
struct definition<float8_e5m2> {
  static constexpr int exponent_bits = 5, fraction_bits = 2;
  static constexpr bool has_infinity = true;
};
template <class E>
constexpr std::uint16_t sign_mask = 1 << (definition<E>::exponent_bits + definition<E>::fraction_bits);
template <class E>
E element_of(unsigned bits) {
  return {static_cast<decltype(E::bits)>(bits)};
}

/// sign * 2^exponent * 1.fraction, infinity and NaN aside.
template <class E>
double defined_value(std::uint16_t bits) {
  constexpr int f = definition<E>::fraction_bits, e = definition<E>::exponent_bits, bias = (1 << (e - 1)) - 1;
  int const exponent = bits >> f & ((1 << e) - 1), fraction = bits & ((1 << f) - 1);
  double const magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - f) : std::ldexp((1 << f) + fraction, exponent - bias - f);
  return bits & sign_mask<E> ? -magnitude : magnitude;
}
/// Where the numbers end: infinity, or the one NaN of a format without.
template <class E>
constexpr std::uint16_t infinity_bits = definition<E>::has_infinity ? sign_mask<E> - (1 << definition<E>::fraction_bits) : sign_mask<E> - 1;
template <class E>
constexpr std::uint16_t past_largest = definition<E>::has_infinity ? infinity_bits<E> : infinity_bits<E> - 1;

/// The greatest finite magnitude of the format that is not above `magnitude`, by bisection: bits order magnitudes.
template <class E>
std::uint16_t below(double magnitude) {
  std::uint16_t low = 0, high = infinity_bits<E>;
  while (high - low > 1) {
    auto const middle = static_cast<std::uint16_t>((low + high) / 2);
    (defined_value<E>(middle) <= magnitude ? low : high) = middle;
  }
  return low;
}

template <class E>
std::uint16_t nearest_even(float value) {
  auto const sign = static_cast<std::uint16_t>(std::signbit(value) ? sign_mask<E> : 0);
  double const magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(magnitude)) return sign | infinity_bits<E>;
  auto const low = below<E>(magnitude);
  // One step past the largest number stands in for infinity when it comes to distance.
  double const step = defined_value<E>(low) - (low == 0 ? 0 : defined_value<E>(static_cast<std::uint16_t>(low - 1)));
  double const above = low + 1 == infinity_bits<E> ? defined_value<E>(low) + step : defined_value<E>(static_cast<std::uint16_t>(low + 1));
  double const down = magnitude - defined_value<E>(low), up = above - magnitude;
  auto const chosen = down < up || (down == up && low % 2 == 0) ? low : low + 1;
  return static_cast<std::uint16_t>(sign | std::min<int>(chosen, past_largest<E>));
}

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Floats that matter to a format: its numbers, the middles between them, and the floats beside both; then any bit patterns.
template <class E>
std::vector<float> interesting_floats(std::mt19937_64& random) {
  std::vector<float> values;
  auto const with_neighbours = [&](double x) {
    auto const value = static_cast<float>(x);
    for (float const v : {value, std::nextafter(value, 0.0F), std::nextafter(value, HUGE_VALF)}) values.insert(values.end(), {v, -v});
  };
  for (std::uint16_t bits = 0; bits < infinity_bits<E>; bits = static_cast<std::uint16_t>(bits + 1)) {
    if (bits > 2100 && bits + 2100 < infinity_bits<E> && bits % 7 != 0) continue;
    double const value = defined_value<E>(bits);
    with_neighbours(value);
    with_neighbours((value + defined_value<E>(static_cast<std::uint16_t>(bits + 1))) / 2);  // infinity's bits as a next number
  }
  for (float const v : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(), HUGE_VALF})
    values.insert(values.end(), {v, -v});
  for (auto const bits : tessera_tests::random_integers<std::uint32_t>(random, 100'000, 0, ~0U))
    if (!std::isnan(of_bits(bits))) values.push_back(of_bits(bits));
  return values;
}

template <class E>
void check_to_float() {
  int wrong = 0;
  for (std::uint32_t b = 0; b < 2U * sign_mask<E>; ++b) {
    auto const bits = static_cast<std::uint16_t>(b);
    float const value = to_float(element_of<E>(bits));
    auto const magnitude = static_cast<std::uint16_t>(bits & (sign_mask<E> - 1));
    bool const nan = magnitude > infinity_bits<E> || (magnitude == infinity_bits<E> && !definition<E>::has_infinity);
    if (nan)
      wrong += !std::isnan(value);
    else if (magnitude == infinity_bits<E>)
      wrong += !std::isinf(value);
    else
      wrong += static_cast<double>(value) != defined_value<E>(bits);
    wrong += std::signbit(value) != (bits >= sign_mask<E>);
    // Back again, whatever the random number; a NaN may only turn quiet.
    auto const quiet = nan ? 1U << (definition<E>::fraction_bits - 1) : 0U;
    for (auto const back : {round_to<E>(value), round_to<E>(value, 0), round_to<E>(value, ~0U), round_to<E>(value, b * 2654435761U)})
      wrong += back != element_of<E>(bits | quiet);
  }
  CHECK(wrong == 0);
}

template <class E>
void check_nearest() {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const values = interesting_floats<E>(random);
  std::vector<E> together(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) together[i] = round_to<E>(values[i]);  // as vectors, where the compiler likes
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    float volatile const alone = values[i];
    if (together[i].bits != nearest_even<E>(values[i]) || round_to<E>(alone) != together[i]) {
      if (wrong++ == 0) CHECK_MESSAGE(together[i].bits == nearest_even<E>(values[i]), values[i]);
    }
  }
  CHECK(wrong == 0);
}

/// Both neighbours and how far the value is from the lower, in magnitude, as a part of their distance.
template <class E>
void check_stochastic() {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr std::uint16_t largest = infinity_bits<E> - 1;
  int wrong = 0;
  for (auto const value : interesting_floats<E>(random)) {
    double const magnitude = std::fabs(static_cast<double>(value));
    constexpr int magnitudes = sign_mask<E> - 1;
    int const sign = std::signbit(value) ? sign_mask<E> : 0;
    auto const down = round_to<E>(value, ~0U).bits & magnitudes, up = round_to<E>(value, 0).bits & magnitudes, any = down > up ? down : up;
    wrong += (round_to<E>(value, 0).bits & sign_mask<E>) != sign;
    if (std::isinf(magnitude)) {
      wrong += any != infinity_bits<E> || down != up;
      continue;
    }
    auto const low = below<E>(magnitude);
    bool const exact = defined_value<E>(low) == magnitude || low == largest;
    // One extreme random number gives one neighbour, the other the other; both the same where there is nothing to choose.
    wrong += exact ? down != low || up != low : (down < up ? down : up) != low || any > low + 1;
  }
  CHECK(wrong == 0);
  for (std::uint32_t const r : {0U, 1U, 0x7FFFFFFFU, ~0U}) {
    CHECK(round_to<E>(std::numeric_limits<float>::max(), r).bits == largest);
    CHECK(round_to<E>(-std::numeric_limits<float>::max(), r).bits == (largest | sign_mask<E>));
    CHECK(std::isnan(to_float(round_to<E>(std::nanf(""), r))));
    CHECK(std::isnan(to_float(round_to<E>(of_bits(0x7F800001), r))));
    CHECK(std::isnan(to_float(round_to<E>(of_bits(0xFFFFFFFF), r))));
  }
  CHECK(std::isnan(to_float(round_to<E>(std::nanf("")))));
  CHECK(std::isnan(to_float(round_to<E>(of_bits(0x7F800001)))));
  CHECK(std::isnan(to_float(round_to<E>(of_bits(0xFFFFFFFF)))));
}

/// How often random numbers that are spread evenly round away from zero, as a part of all.
template <class E>
double share_up(float value, int shift) {
  auto const low = below<E>(std::fabs(static_cast<double>(value)));
  int ups = 0;
  for (std::uint32_t k = 0; k < 1 << 17; ++k) ups += (round_to<E>(value, k << shift).bits & (sign_mask<E> - 1)) != low;
  return ups / double{1 << 17};
}

template <class E>
void check_probability() {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> draw(1, 2);
  for (int i = 0; i < 12; ++i) {
    for (float const scale : {1.0F, -3.0F, 0x1p-14F, 0x1p-15F, 0x1p-23F, 0x1p-26F}) {
      float const value = scale * draw(random);
      CAPTURE(value);
      double const magnitude = std::fabs(static_cast<double>(value));
      auto const low = below<E>(magnitude);
      double const from = defined_value<E>(low), to = defined_value<E>(static_cast<std::uint16_t>(low + 1));
      // A float has a few bits more than the format, and as many random ones decide; below the normal numbers, all. Of them 17 are tried.
      bool const subnormal = low < 1 << definition<E>::fraction_bits;
      int const shift = subnormal ? 15 : std::max(0, 23 - definition<E>::fraction_bits - 17);
      CHECK(std::fabs(share_up<E>(value, shift) - (magnitude - from) / (to - from)) <= (shift > 0 ? 0x1p-17 : 0));
    }
  }
}

template <class E>
void check_small_updates(double tolerance) {
  // 1 + 512 steps of 2^-12 is 1.125, but each alone is less than half a step of either format there.
  constexpr int elements = 512, updates = 512;
  double mean = 0;
  E nearest = round_to<E>(1.0F);
  for (int u = 0; u < updates; ++u) nearest = round_to<E>(to_float(nearest) + 0x1p-12F);
  CHECK(to_float(nearest) == 1.0F);
  for (std::uint32_t i = 0; i < elements; ++i) {
    E weight = round_to<E>(1.0F);
    for (std::uint32_t u = 0; u < updates; ++u) {
      auto const word = tessera::philox(tessera::random_seed(7), i, 0, u / 4)[static_cast<int>(u % 4)];
      weight = round_to<E>(to_float(weight) + 0x1p-12F, word);
    }
    mean += static_cast<double>(to_float(weight)) / elements;
  }
  CHECK(std::fabs(mean - 1.125) <= tolerance);
}

}  // namespace

TEST_CASE("every number of 16 and 8 bits is what its definition says, and comes back") {
  check_to_float<float16>();
  check_to_float<bfloat16>();
  check_to_float<float8_e4m3>();
  check_to_float<float8_e5m2>();
}

TEST_CASE("round_to gives the nearest number, of two the even one") {
  check_nearest<float16>();
  check_nearest<bfloat16>();
  check_nearest<float8_e4m3>();
  check_nearest<float8_e5m2>();
  CHECK(round_to<float16>(65519.996F).bits == 0x7BFF);
  CHECK(round_to<float16>(65520.0F).bits == 0x7C00);
  CHECK(round_to<float16>(-1e30F).bits == 0xFC00);
  CHECK(round_to<bfloat16>(std::numeric_limits<float>::max()).bits == 0x7F80);
  CHECK(round_to<float8_e4m3>(463.0F).bits == 0x7E);
  CHECK(round_to<float8_e4m3>(1e30F).bits == 0x7E);  // there is no infinity to go to
  CHECK(round_to<float8_e4m3>(-HUGE_VALF).bits == 0xFF);
  CHECK(round_to<float8_e5m2>(61439.0F).bits == 0x7B);
  CHECK(round_to<float8_e5m2>(61440.0F).bits == 0x7C);
  CHECK(round_to<float16>(0x1p-25F).bits == 0);  // half the least subnormal: to even
  CHECK(round_to<float16>(0x1.8p-24F).bits == 2);
  CHECK(round_to<float16>(0x1.FFEp-15F).bits == 0x400);  // up into the normal numbers
}

#ifdef __F16C__
TEST_CASE("float16 agrees with the processor's conversion") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const converted = [](float value) {
    return static_cast<std::uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
  };
  int wrong = 0;
  for (auto const value : interesting_floats<float16>(random)) wrong += round_to<float16>(value).bits != converted(value);
  for (std::uint32_t nan = 0x7F800001; nan < 0x7FFFE000; nan += 0x1235)
    wrong += round_to<float16>(of_bits(nan)).bits != converted(of_bits(nan));
  CHECK(wrong == 0);
}
#endif

TEST_CASE("stochastic rounding chooses between the two neighbours; what is exact, stays") {
  check_stochastic<float16>();
  check_stochastic<bfloat16>();
  check_stochastic<float8_e4m3>();
  check_stochastic<float8_e5m2>();
}

TEST_CASE("stochastic rounding: the chance of going up is the distance from below") {
  check_probability<float16>();
  check_probability<bfloat16>();
  check_probability<float8_e4m3>();
  check_probability<float8_e5m2>();
}

TEST_CASE("stochastic rounding: what is less than a step survives in the mean") {
  // Four deviations of the mean: of one element at most sqrt(512 p) steps, p the update over the step.
  check_small_updates<float16>(0.006);
  check_small_updates<bfloat16>(0.006);
  check_small_updates<float8_e4m3>(0.023);
  check_small_updates<float8_e5m2>(0.032);
}

TEST_CASE("a row's step is the least power of two whose 127 steps cover the row") {
  auto const step_for = [](float largest) { return row_scale<scaled_int8>::covering(std::bit_cast<std::uint32_t>(largest)).step; };
  CHECK(step_for(127.0F) == 1.0F);
  CHECK(step_for(std::nextafter(127.0F, HUGE_VALF)) == 2.0F);
  CHECK(step_for(64.0F) == 1.0F);
  CHECK(step_for(std::nextafter(63.5F, 0.0F)) == 0.5F);
  CHECK(step_for(63.5F) == 0.5F);
  for (float const none : {0.0F, std::numeric_limits<float>::denorm_min(), 0x1p-126F, 0x1.FCp-120F}) CHECK(step_for(none) == 0x1p-126F);
  CHECK(step_for(0x1.FEp-120F) == 0x1p-125F);
  CHECK(step_for(0x1.FCp127F) == 0x1p121F);
  for (float const too_large : {std::nextafter(0x1.FCp127F, HUGE_VALF), std::numeric_limits<float>::max(), HUGE_VALF})
    CHECK(std::isnan(step_for(too_large)));
  CHECK(std::isnan(step_for(std::nanf(""))));
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int wrong = 0;
  for (auto const bits : tessera_tests::random_integers<std::uint32_t>(random, 100'000, 7U << 23, 0x7F7E0000)) {
    auto const step = static_cast<double>(step_for(of_bits(bits))), value = static_cast<double>(of_bits(bits));
    int exponent = 0;
    wrong += !(value <= 127 * step && value > 127 * step / 2) || std::frexp(step, &exponent) != 0.5;
  }
  CHECK(wrong == 0);
}

TEST_CASE("elements of a row go to the nearest step, or to one of the two beside; whole steps stay under any finer scale") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int wrong = 0;
  for (int row = 0; row < 200; ++row) {
    auto const largest =
        std::ldexp(std::uniform_real_distribution<float>(1, 2)(random), std::uniform_int_distribution<int>(-100, 100)(random));
    auto const scale = row_scale<scaled_int8>::covering(std::bit_cast<std::uint32_t>(largest));
    auto const coarser = row_scale<scaled_int8>::covering(std::bit_cast<std::uint32_t>(4 * largest));
    std::uniform_real_distribution<float> draw(-largest, largest);
    for (int i = 0; i < 100; ++i) {
      float const value = i == 0 ? largest : i == 1 ? -largest : i == 2 ? largest * 0x1p-20F : draw(random);
      double const steps = static_cast<double>(value) / static_cast<double>(scale.step);
      auto const nearest = scale.nearest(value);
      wrong += nearest.steps != std::nearbyint(steps) || scale.value(nearest) != static_cast<float>(nearest.steps) * scale.step;
      auto const low = scale.stochastic(value, ~0U).steps, high = scale.stochastic(value, 0).steps;
      bool const is_whole = steps == std::trunc(steps);
      wrong += low != std::trunc(steps) || high != (is_whole ? low : low + (value < 0 ? -1 : 1));
      auto const kept = coarser.value(coarser.nearest(value));
      for (auto const word : {0U, 0x80000000U, ~0U})
        wrong += scale.value(scale.stochastic(kept, word)) != kept && std::fabs(kept) <= largest;
    }
  }
  CHECK(wrong == 0);
  // Evenly spread random numbers go up as often as the distance says.
  auto const scale = row_scale<scaled_int8>::covering(std::bit_cast<std::uint32_t>(127.0F));
  for (float const value : {0.25F, -0.75F, 100.375F, 0.001F, -126.999F}) {
    int ups = 0;
    for (std::uint32_t k = 0; k < 1 << 17; ++k) ups += scale.stochastic(value, k << 15).steps != static_cast<int>(value);
    double const fraction = std::fabs(static_cast<double>(value)) - std::trunc(std::fabs(static_cast<double>(value)));
    CHECK(std::fabs(ups / double{1 << 17} - fraction) <= 0x1p-16);
  }
}

TEST_CASE("a row in memory: its scale in front, then whole fours") {
  using scale = row_scale<scaled_int8>;
  CHECK(scale::extent(1) == 8);
  CHECK(scale::extent(4) == 8);
  CHECK(scale::extent(5) == 12);
  CHECK(row_scale<float16>::extent(5) == 5);
  alignas(4) scaled_int8 memory[8] = {};
  auto* const row = memory + scale::lead;
  CHECK(scale::of(row).value(row[0]) == 0.0F);  // of memory that nothing was written to but zeros
  auto const written = scale::covering(std::bit_cast<std::uint32_t>(3.0F));
  written.write_to(row);
  row[0] = written.nearest(-3.0F);
  CHECK(scale::of(row).value(row[0]) == -3.0F);
  auto const nan = scale::covering(std::bit_cast<std::uint32_t>(HUGE_VALF));
  nan.write_to(row);
  for (float const value : {1.0F, HUGE_VALF, std::nanf("")}) {
    CHECK(std::isnan(scale::of(row).value(nan.nearest(value))));
    CHECK(std::isnan(scale::of(row).value(nan.stochastic(value, 5))));
  }
}
