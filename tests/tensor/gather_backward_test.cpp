// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "keyed_support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/expand_rows.hpp>
#include <tessera/tensor/gather_backward.hpp>
#include <tessera/tensor/masked_select.hpp>
#include <tessera/tensor/permute_keys.hpp>
#include <tessera/tensor/select_rows.hpp>
#include <tessera/tensor/slice_rows.hpp>
#include <tessera/tensor/truncate_rows.hpp>

using namespace tensor_tests;
using tessera::gather_backward;

TEST_CASE("sums in the order of the result, zero where nothing came from") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (std::size_t const n : {0U, 1U, 1000U, 60000U})
      for (std::int64_t const values : {1, 3, 700, 50000}) {
        auto const sources = tessera_tests::random_integers<std::int64_t>(random, n, 0, values - 1);
        auto const gradient = tessera_tests::random_floats(random, n);
        floats expected(static_cast<std::size_t>(values), 0), out(static_cast<std::size_t>(values), 9);
        std::vector<char> begun(expected.size(), 0);
        for (std::size_t i = 0; i < n; ++i) {
          auto const p = static_cast<std::size_t>(sources[i]);
          expected[p] = begun[p] ? expected[p] + gradient[i] : gradient[i];
          begun[p] = 1;
        }
        gather_backward(exec, sources, tessera::vector_view<float const>(gradient), tessera::vector_view<float>(out));
        CHECK(out == expected);  // the same bits: float sums depend on their order
      }
  });
}

TEST_CASE("distinct sources") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    ids sources(40000);
    std::iota(sources.begin(), sources.end(), 0);
    std::shuffle(sources.begin(), sources.end(), random);
    sources.resize(30000);
    std::vector<double> gradient(sources.size()), summed(40000, 9), moved(40000, 9);
    for (auto& g : gradient) g = static_cast<double>(random() % 1000);
    gather_backward(exec, sources, tessera::vector_view<double const>(gradient), tessera::vector_view<double>(summed));
    gather_backward(exec, sources, tessera::vector_view<double const>(gradient), tessera::vector_view<double>(moved),
                    {.distinct_sources = true});
    CHECK(moved == summed);
    if constexpr (tessera::checked) {
      sources[20000] = sources[7];
      auto const e = error_of([&] {
        gather_backward(exec, sources, tessera::vector_view<double const>(gradient), tessera::vector_view<double>(moved),
                        {.distinct_sources = true});
      });
      CHECK(e.code() == tessera::errc::invalid_argument);
      CHECK(e.value("source") == std::to_string(sources[7]));
      CHECK(e.value("position") == "20000");
    }
  });
}

// Every operation is linear in the values: the gradient by value p of sum(g * op(values)) is sum(g * op(the unit at p)).
TEST_CASE("the backward of every operation on rows") {
  for_each_batch([](tessera::host_exec const& exec, auto view, model const& keys, std::mt19937_64& random) {
    if (view.size() > 2000) return;
    auto const end = view.first_value() + view.size();
    ids numbers(static_cast<std::size_t>(end));
    std::iota(numbers.begin(), numbers.end(), 0);
    auto const check = [&](char const* operation, bool distinct, auto const& apply) {
      CAPTURE(operation);
      auto const sources = apply(view.with_values(numbers.data()));
      auto const gradient = tessera_tests::random_floats(random, static_cast<std::size_t>(sources.view().size()));
      floats by_values(static_cast<std::size_t>(end), 9);
      gather_backward(exec, sources.view().flat().all_values(), tessera::vector_view<float const>(gradient),
                      tessera::vector_view<float>(by_values), {.distinct_sources = distinct});
      bool right = true;
      for (int probe = 0; probe < 20 && view.size() > 0; ++probe) {
        auto const p = static_cast<std::size_t>(view.first_value()) + random() % static_cast<std::size_t>(view.size());
        floats unit(static_cast<std::size_t>(end), 0);
        unit[p] = 1;
        auto const moved = apply(view.with_values(unit.data()));
        double expected = 0;
        for (std::size_t i = 0; i < gradient.size(); ++i)
          expected += static_cast<double>(gradient[i]) * static_cast<double>(moved.view().values[i]);
        right = right && std::abs(expected - static_cast<double>(by_values[p])) < 1e-4;
      }
      CHECK(right);
    };
    auto const rows = rows_of(keys);
    auto const repeats = tessera_tests::random_integers<std::int64_t>(random, rows, 0, 3);
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(view.size()));
    for (auto& keep : mask) keep = random() % 2;
    ids order(keys.size()), half;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (auto const& key : keys) half.push_back(static_cast<std::int64_t>(key.size() / 2));
    std::size_t least = keys.empty() ? 1 : keys[0].size();
    for (auto const& key : keys) least = std::min(least, key.size());
    auto const indices =
        tessera_tests::random_integers<std::int64_t>(random, least == 0 ? 0 : 30, 0, static_cast<std::int64_t>(least) - (least > 0));
    check("expand_rows", false, [&](auto in) { return tessera::expand_rows(exec, in, repeats); });
    check("select_rows", false, [&](auto in) { return tessera::select_rows(exec, in, indices); });
    check("masked_select", true, [&](auto in) { return tessera::masked_select(exec, in, mask); });
    check("permute_keys", true, [&](auto in) { return tessera::permute_keys(exec, in, order); });
    check("slice_rows", true, [&](auto in) { return tessera::slice_rows(exec, in, half, half); });
    check("truncate_rows", true, [&](auto in) { return tessera::truncate_rows(exec, in, 2, tessera::kept_values::last); });
    check("concat_keys", false, [&](auto in) { return tessera::concat_keys(exec, std::vector<decltype(in)>{in, in}); });
  });
}

TEST_CASE("sources that are none are refused") {
  tessera_tests::serial_host host;
  floats const gradient{1, 2};
  floats out(3, 9);
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}, INT64_MAX, INT64_MIN}) {
    auto const e = error_of([&] {
      gather_backward(host.exec(), ids{0, wrong}, tessera::vector_view<float const>(gradient), tessera::vector_view<float>(out));
    });
    CHECK(e.code() == tessera::errc::out_of_range);
    CHECK(e.value("position") == "1");
    CHECK(e.value("source") == std::to_string(wrong));
    CHECK(e.value("values") == "3");
    CHECK(out == floats(3, 9));
  }
  auto const e = error_of(
      [&] { gather_backward(host.exec(), ids{0}, tessera::vector_view<float const>(gradient), tessera::vector_view<float>(out)); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
}
