// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <tessera/tensor/select_vectors.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

using indices = std::vector<std::int64_t>;

inline nested reference_select(nested const& rows, indices const& which) {
  nested result;
  for (auto const i : which) result.push_back(rows[static_cast<std::size_t>(i)]);
  return result;
}

/// The gradient by rows like `rows`.
inline nested reference_add(nested const& rows, nested const& gradient, indices const& which) {
  auto result = rows;
  for_each_element(result, [](double& x) { x = 0; });
  for (std::size_t i = 0; i < which.size(); ++i) {
    auto& to = result[static_cast<std::size_t>(which[i])];
    for (std::size_t j = 0; j < to.size(); ++j)
      for (std::size_t c = 0; c < to[j].size(); ++c) to[j][c] += gradient[i][j][c];
  }
  return result;
}

template <class Harness>
nested selected(Harness& harness, nested const& rows, indices const& which, std::int64_t dim) {
  auto in = harness.place(rows, dim);
  auto const placed_indices = harness.put(which);
  auto offsets = harness.put(indices(which.size() + 1, -1));
  tessera::select_vectors_offsets(harness.exec(), in.jagged(), placed_indices, offsets);
  std::vector<std::int64_t> lengths;
  auto const written = harness.get(offsets);
  CHECK(written[0] == 0);
  for (std::size_t i = 0; i < which.size(); ++i) lengths.push_back(written[i + 1] - written[i]);
  REQUIRE(lengths == lengths_of(reference_select(rows, which)));
  auto out = harness.place_for(nested_of(lengths, dim), dim);
  tessera::select_vectors(harness.exec(), in.jagged(), placed_indices, out.jagged());
  return out.values();
}

template <class Harness>
nested added(Harness& harness, nested const& rows, nested const& gradient, indices const& which, std::int64_t dim) {
  auto from = harness.place(gradient, dim);
  auto to = harness.place_for(rows, dim);
  tessera::select_vectors_backward(harness.exec(), from.jagged(), harness.put(which), to.jagged());
  return to.values();
}

/// What every execution must show.
template <class Harness, class... Arguments>
void select_vectors_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);

  SUBCASE("by hand") {
    nested const rows{{{1, 2}, {3, 4}}, {}, {{5, 6}}};
    CHECK(selected(harness, rows, {2, 0, 0, 1}, 2) == nested{{{5, 6}}, {{1, 2}, {3, 4}}, {{1, 2}, {3, 4}}, {}});
    CHECK(added(harness, rows, {{{1, 1}, {2, 2}}, {}, {{3, 4}, {5, 6}}}, {0, 1, 0}, 2) == nested{{{4, 5}, {7, 8}}, {}, {{0, 0}}});
    CHECK(selected(harness, rows, {}, 2) == nested{});
    CHECK(added(harness, rows, {}, {}, 2) == nested{{{0, 0}, {0, 0}}, {}, {{0, 0}}});
    CHECK(selected(harness, {}, {}, 2) == nested{});
    CHECK(added(harness, {}, {}, {}, 2) == nested{});
  }
  SUBCASE("every shape, forward and backward, and adjoint") {
    for (auto const& shape : vectors_shapes)
      for (std::size_t const count : {std::size_t{1}, shape.rows, 3 * shape.rows}) {
        if (shape.rows == 0) continue;
        auto const dim = shape.dim;
        CAPTURE(shape.rows);
        CAPTURE(dim);
        auto const rows = harness.random(harness.lengths(shape.rows, shape.mean), dim);
        auto const which = random_integers<std::int64_t>(harness.engine(), count, 0, static_cast<std::int64_t>(shape.rows) - 1);
        auto const gradient = harness.random(lengths_of(reference_select(rows, which)), dim);
        REQUIRE(selected(harness, rows, which, dim) == reference_select(rows, which));
        auto const backward = added(harness, rows, gradient, which, dim);
        REQUIRE(worst_difference(backward, reference_add(rows, gradient, which)) < 1e-6);
        REQUIRE(adjoint(reference_select(rows, which), gradient, rows, backward));
      }
  }
  SUBCASE("a row is expanded by an inverse, one of them many times") {
    auto const rows = harness.random({3, 700, 0, 2}, 65);
    indices which(900, 1);
    for (std::size_t i = 0; i < which.size(); i += 100) which[i] = static_cast<std::int64_t>(i / 100 % 4);
    which.resize(120);
    auto const gradient = harness.random(lengths_of(reference_select(rows, which)), 65);
    CHECK(selected(harness, rows, which, 65) == reference_select(rows, which));
    CHECK(worst_difference(added(harness, rows, gradient, which, 65), reference_add(rows, gradient, which)) < 1e-6);
  }
  SUBCASE("the backward sums in ascending order of position") {
    // 2^24 + 1 rounds to 2^24 and 2^24 - 2^24 is 0, so each order has its own sum.
    auto const big = std::ldexp(1.0, 24);
    nested const rows{{{0}}, {{0}}};
    CHECK(added(harness, rows, {{{1}}, {{big}}, {{9}}, {{-big}}, {{1}}}, {1, 1, 0, 1, 1}, 1) == nested{{{9}}, {{1}}});
    CHECK(added(harness, rows, {{{big}}, {{-big}}, {{9}}, {{1}}, {{1}}}, {1, 1, 0, 1, 1}, 1) == nested{{{9}}, {{2}}});
  }
  SUBCASE("gradients match central differences") {
    auto rows = harness.random({3, 0, 2}, 3);
    indices const which{2, 0, 2, 2, 1};
    auto const gradient = harness.random(lengths_of(reference_select(rows, which)), 3);
    CHECK(worst_difference(added(harness, rows, gradient, which, 3),
                           numeric_gradient(rows, gradient, [&] { return reference_select(rows, which); })) < 1e-6);
  }
  SUBCASE("the first index out of range is named, and nothing is written") {
    auto const exec = harness.exec();
    auto in = harness.place(nested_of(3, 1, 2, 1.0), 2);
    for (std::int64_t const wrong : {std::int64_t{-1}, std::int64_t{3}, INT64_MIN, INT64_MAX}) {
      indices which(20000, 1);
      which[7000] = wrong;
      which[18000] = -5;
      auto const placed_indices = harness.put(which);
      auto offsets = harness.put(indices(which.size() + 1));
      auto const untouched = nested_of(which.size(), 1, 2, 4.0);
      auto out = harness.place(untouched, 2);
      auto const named = [&](auto const& call) {
        auto const e = harness.thrown_by(call);
        CHECK(e.code() == tessera::errc::out_of_range);
        CHECK(e.value("position") == "7000");
        CHECK(e.value("index") == std::to_string(wrong));
        CHECK(e.value("rows") == "3");
      };
      named([&] { tessera::select_vectors_offsets(exec, in.jagged(), placed_indices, offsets); });
      named([&] { tessera::select_vectors(exec, in.jagged(), placed_indices, out.jagged()); });
      named([&] { tessera::select_vectors_backward(exec, out.jagged(), placed_indices, in.jagged()); });
      CHECK(out.values() == untouched);
      CHECK(in.values() == nested_of(3, 1, 2, 1.0));
    }
  }
  SUBCASE("shapes that do not fit") {
    auto const exec = harness.exec();
    auto in = harness.place(nested_of({2, 1}, 3), 3);
    auto const refused = [&](indices const& which, std::vector<std::int64_t> const& lengths, std::int64_t dim) {
      auto out = harness.place(nested_of(lengths, dim), dim);
      auto const e = harness.thrown_by([&] { tessera::select_vectors(exec, in.jagged(), harness.put(which), out.jagged()); });
      CHECK(e.code() == tessera::errc::shape_mismatch);
      return e;
    };
    CHECK(refused({0, 1}, {2}, 3).value("rows of the result") == "1");
    CHECK(refused({0, 1}, {2, 1}, 4).value("dim") == "4");
    auto const e = refused({0, 1, 0}, {2, 2, 1}, 3);
    CHECK(e.value("position") == "1");
    CHECK(e.value("length") == "2");
    CHECK(e.value("length expected") == "1");
  }
}

}  // namespace tessera_tests
