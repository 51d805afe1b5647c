// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/tensor/expand_partial.hpp>
#include <tessera/tensor/partial_inverse_keyed_jagged.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

namespace {

using slice = tessera::run_slice<>;

tessera::partial_inverse_keyed_jagged<> made_of(tessera::host_exec const& exec, std::vector<slice> const& slices, std::int64_t samples) {
  auto runs = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2, 3}, {}, {4, 5}}}, {"b", {{6}}}});
  tessera::buffer<slice> own(exec, static_cast<std::int64_t>(slices.size()));
  std::copy(slices.begin(), slices.end(), own.begin());
  return tessera::partial_inverse_keyed_jagged<>::from_parts(std::move(runs), std::move(own), samples);
}

// What validate says of slices, two a key.
std::string refusal_of_slices(std::vector<slice> const& slices) {
  tessera_tests::serial_host host;
  return refusal_of([&] {
    auto const made = made_of(host.exec(), slices, 2);
    tessera::validate(made.view(), 6);
  });
}

}  // namespace

TEST_CASE("slices lie within a run of their key") {
  CHECK(refusal_of_slices({{0, 3}, {3, 2}, {5, 1}, {5, 0}}) == "");
  CHECK(refusal_of_slices({{1, 1}, {4, 1}, {5, 1}, {-7, 0}}) == "");
  CHECK(refusal_of_slices({{0, 3}}) == "partial_inverse_keyed_jagged: one slice a key and sample (slices 1, keys 2, samples 2)");
  auto const unheld = [](std::string const& values) { return "partial_inverse_keyed_jagged: a slice that no run holds (" + values + ")"; };
  CHECK(refusal_of_slices({{0, 3}, {2, 2}, {5, 1}, {5, 1}}) == unheld("key 0, sample 1, begin 2, length 2, runs 3"));
  CHECK(refusal_of_slices({{-1, 1}, {2, 1}, {5, 1}, {5, 1}}) == unheld("key 0, sample 0, begin -1, length 1, runs 3"));
  CHECK(refusal_of_slices({{0, 3}, {2, 1}, {4, 1}, {5, 1}}) == unheld("key 1, sample 0, begin 4, length 1, runs 1"));
  CHECK(refusal_of_slices({{0, 3}, {2, 1}, {5, 1}, {6, 1}}) == unheld("key 1, sample 1, begin 6, length 1, runs 1"));
  CHECK(refusal_of_slices({{0, 3}, {2, -1}, {5, 1}, {5, 1}}) == unheld("key 0, sample 1, begin 2, length -1, runs 3"));
  CHECK(refusal_of_slices({{0, 3}, {5, 1}, {5, 1}, {5, 1}}) == unheld("key 0, sample 1, begin 5, length 1, runs 3"));
}

TEST_CASE("rows, names, parts and bytes") {
  tessera_tests::serial_host host;
  auto const made = made_of(host.exec(), {{0, 2}, {3, 2}, {5, 1}, {5, 0}}, 2);
  CHECK(made.keys() == names{"a", "b"});
  CHECK(made.view().row(0, 1)[1] == 5);
  CHECK(made.view().slices_of(1)[0] == slice{5, 1});
  CHECK(made.bytes() >= 6 * 8 + 4 * 16);
  CHECK(text(tessera::expand_partial(host.exec(), made)) == "{a: [[1, 2], [4, 5]], b: [[6], []]}");
  CHECK(text(tessera::expand_partial(host.exec(), made.view().slice_keys(1, 1))) == "{0: [[6], []]}");
  CHECK(made_of(host.exec(), {{0, 2}, {3, 2}, {5, 1}, {5, 0}}, 2).named({"x", "y"}).keys() == names{"x", "y"});
  auto const far = made_of(host.exec(), {{0, 2}, {std::int64_t{1} << 60, 0}, {5, 1}, {-9, 0}}, 2);
  CHECK(far.view().row(0, 1).empty());
  CHECK(text(tessera::expand_partial(host.exec(), far)) == "{a: [[1, 2], []], b: [[6], []]}");
  auto lost = made.view();
  lost.slices = nullptr;
  CHECK(refusal_of([&] { tessera::expand_partial(host.exec(), lost); }) == "expand_partial: no slices (samples 2, keys 2)");
  auto const wrong = made_of(host.exec(), {{0, 2}, {3, 3}, {5, 1}, {5, 0}}, 2);
  CHECK(refusal_of([&] { tessera::expand_partial(host.exec(), wrong); }) ==
        "expand_partial: a slice that no run holds (key a, sample 1, begin 3, length 3, runs 3)");
  CHECK(refusal_of([&] { tessera::expand_partial(host.exec(), made, {.most_values = 4}); }) ==
        "expand_partial: more values than the result was given room for (values 5, room 4)");
  tessera::partial_inverse_keyed_jagged<> const none;
  CHECK(none.view().keys() == 0);
  CHECK(tessera::expand_partial(host.exec(), none.view()).view().keys == 0);
}
