// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "gather_backward_suite.hpp"

#include <cstdint>
#include <cstring>

TEST_CASE_TEMPLATE("gather_backward", Host, TESSERA_TEST_HOSTS) {
  Host host;
  gather_backward_suite(tensor_tests::rows_on_host{host.exec()});
}

TEST_CASE("gather_backward: more sources than one thread sorts give one thread's bits, signs of zeros too") {
  using namespace tensor_tests;
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::pool_host<4> host;
  for (std::int64_t const values : {1000, 3'000'000}) {
    auto sources = tessera_tests::random_integers<std::int64_t>(random, 150'000, 0, values - 1);
    std::fill(sources.begin() + 40'000, sources.begin() + 90'000, 17);
    auto gradient = tessera_tests::random_floats(random, sources.size());
    for (std::size_t i = 0; i < gradient.size(); i += 3) gradient[i] = -0.0F;
    sums_in_order<float> expected(static_cast<std::size_t>(values));
    for (std::size_t i = 0; i < sources.size(); ++i) expected.add(sources[i], gradient[i]);
    floats out(expected.values.size() + 2, 9);
    tessera::gather_backward(host.exec(), sources, tessera::vector_view<float const>(gradient),
                             tessera::vector_view<float>(out.data() + 1, values));
    CHECK(std::memcmp(out.data() + 1, expected.values.data(), expected.values.size() * sizeof(float)) == 0);
    CHECK(out.front() == 9);
    CHECK(out.back() == 9);
  }
}

TEST_CASE("a source that is none leaves everything as it was") {
  using namespace tensor_tests;
  tessera_tests::serial_host host;
  floats const gradient{1, 2};
  floats out(3, 9);
  for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}}) {
    CHECK_THROWS_AS(
        tessera::gather_backward(host.exec(), ids{0, wrong}, tessera::vector_view<float const>(gradient), tessera::vector_view<float>(out)),
        tessera::error);
    CHECK(out == floats(3, 9));
  }
}
