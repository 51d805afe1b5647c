// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tensor/padded_vectors.hpp>

#include "vectors_harness.hpp"

namespace tessera_tests {

inline nested reference_padded(nested const& rows, std::int64_t width, std::int64_t dim, double padding, tessera::kept_values keep) {
  auto result = nested_of(rows.size(), width, dim, padding);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const surplus = rows[i].size() > result[i].size() ? rows[i].size() - result[i].size() : 0;
    auto const skipped = keep == tessera::kept_values::last ? surplus : 0;
    for (std::size_t j = 0; j < rows[i].size() - surplus; ++j) result[i][j] = rows[i][skipped + j];
  }
  return result;
}

template <class Harness>
nested padded(Harness& harness, nested const& rows, std::int64_t width, std::int64_t dim, tessera::padded_vectors_options options) {
  auto in = harness.place(rows, dim);
  auto out = harness.place_for(nested_of(rows.size(), width, dim), dim);
  tessera::to_padded_vectors(harness.exec(), in.jagged(), out.matrix(), options);
  return out.values();
}

template <class Harness>
nested unpadded(Harness& harness, nested const& dense, std::vector<std::int64_t> const& lengths, std::int64_t dim,
                tessera::padded_vectors_options options) {
  auto in = harness.place(dense, dim);
  auto out = harness.place_for(nested_of(lengths, dim), dim);
  tessera::from_padded_vectors(harness.exec(), in.matrix(), out.jagged(), options);
  return out.values();
}

/// What both directions must show on every execution.
template <class Harness, class... Arguments>
void padded_vectors_suite(Arguments const&... arguments) {
  Harness harness(arguments...);
  auto const seed = draw_seed();
  CAPTURE(seed);
  harness.seed(seed);
  using tessera::kept_values;

  SUBCASE("by hand") {
    nested const rows{{{1, 2}, {3, 4}, {5, 6}}, {}, {{7, 8}}};
    CHECK(padded(harness, rows, 2, 2, {}) == nested{{{1, 2}, {3, 4}}, {{0, 0}, {0, 0}}, {{7, 8}, {0, 0}}});
    CHECK(padded(harness, rows, 2, 2, {.padding = -1, .keep = kept_values::last}) ==
          nested{{{3, 4}, {5, 6}}, {{-1, -1}, {-1, -1}}, {{7, 8}, {-1, -1}}});
    nested const dense{{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}, {{9, 10}, {11, 12}}};
    CHECK(unpadded(harness, dense, {3, 0, 1}, 2, {}) == nested{{{1, 2}, {3, 4}, {0, 0}}, {}, {{9, 10}}});
    CHECK(unpadded(harness, dense, {3, 0, 1}, 2, {.keep = kept_values::last}) == nested{{{0, 0}, {1, 2}, {3, 4}}, {}, {{9, 10}}});
  }
  SUBCASE("every shape and width, back again, and adjoint") {
    for (auto const& shape : vectors_shapes)
      for (std::int64_t const width : {0, 1, 4, 25}) {
        for (auto const keep : {kept_values::first, kept_values::last}) {
          auto const dim = shape.dim;
          CAPTURE(shape.rows);
          CAPTURE(dim);
          CAPTURE(width);
          auto const lengths = harness.lengths(shape.rows, shape.mean);
          auto const rows = harness.random(lengths, dim), dense = harness.random(shape.rows, width, dim);
          REQUIRE(padded(harness, rows, width, dim, {.padding = 7, .keep = keep}) == reference_padded(rows, width, dim, 7, keep));
          auto const forward = padded(harness, rows, width, dim, {.keep = keep});
          auto const backward = unpadded(harness, dense, lengths, dim, {.keep = keep});
          REQUIRE(adjoint(forward, dense, rows, backward));
          REQUIRE(padded(harness, backward, width, dim, {.keep = keep}) ==
                  reference_padded(unpadded(harness, dense, lengths, dim, {.keep = keep}), width, dim, 0, keep));
          if (lengths.empty() || *std::max_element(lengths.begin(), lengths.end()) <= width)
            REQUIRE(unpadded(harness, forward, lengths, dim, {.keep = keep}) == rows);
        }
      }
  }
  SUBCASE("one row longer than many pieces") {
    for (auto const keep : {kept_values::first, kept_values::last}) {
      std::vector<std::int64_t> const lengths{0, 4000, 1, 0};
      auto const rows = harness.random(lengths, 9), dense = harness.random(4, 3000, 9);
      CHECK(padded(harness, rows, 3000, 9, {.keep = keep}) == reference_padded(rows, 3000, 9, 0, keep));
      CHECK(adjoint(reference_padded(rows, 3000, 9, 0, keep), dense, rows, unpadded(harness, dense, lengths, 9, {.keep = keep})));
    }
  }
  SUBCASE("gradients match central differences") {
    for (auto const keep : {kept_values::first, kept_values::last}) {
      auto rows = harness.random({3, 0, 5, 1}, 2);
      auto const gradient = harness.random(4, 3, 2);
      CHECK(worst_difference(unpadded(harness, gradient, lengths_of(rows), 2, {.keep = keep}),
                             numeric_gradient(rows, gradient, [&] { return reference_padded(rows, 3, 2, 0.5, keep); })) < 1e-6);
    }
  }
  SUBCASE("shapes that do not fit") {
    auto in = harness.place(harness.random({3, 1}, 4), 4);
    auto const exec = harness.exec();
    auto const refused = [&](std::int64_t rows, std::int64_t dim) {
      auto dense = harness.place(harness.random(static_cast<std::size_t>(rows), 1, dim), dim);
      auto const e = harness.thrown_by([&] { tessera::to_padded_vectors(exec, in.jagged(), dense.matrix()); });
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("matrix rows") == std::to_string(rows));
      CHECK(e.value("columns") == std::to_string(dim));
      CHECK(e.sentence().starts_with("to_padded_vectors: "));
      CHECK(harness.thrown_by([&] { tessera::from_padded_vectors(exec, dense.matrix(), in.jagged()); }).code() ==
            tessera::errc::shape_mismatch);
    };
    refused(5, 4);
    refused(4, 3);
    auto none = in.jagged();
    none.rows = 0;
    auto dense = harness.place(harness.random(1, 1, 4), 4);
    CHECK(harness.thrown_by([&] { tessera::to_padded_vectors(exec, none, dense.matrix()); }).code() == tessera::errc::shape_mismatch);
  }
}

}  // namespace tessera_tests
