// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <tessera/core/error.hpp>

#include "../../examples/support/tower_page.hpp"

namespace tower_page_test {

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

tessera::partitioned_features result_of(std::vector<double> points, std::int64_t dims) {
  tessera::partitioned_features result;
  result.partition = {{{0, 2}, {1}}};
  result.points = std::move(points);
  result.dims = dims;
  result.relative_stress = 0.125;
  return result;
}

TEST_CASE("tower_page: a cell a pair, a dot a feature, a row a tower") {
  std::vector<std::string> const names{"user", "<item>", "age"};
  std::vector<double> const affinity{1, 0.25, 0.5, 0.25, 1, 0.75, 0.5, 0.75, 1};
  tessera::matrix_view<double const> const view(affinity.data(), 3, 3);
  examples::html_page page("towers");
  examples::add_towers(page, names, view, result_of({0, 0, 1, 0, 0.5, 2}, 2));
  auto const text = page.text();
  CHECK(count(text, "<rect class=\"b0\"") == 9);
  CHECK(count(text, "<circle") == 3);
  CHECK(count(text, "user, age: 0.5") == 1);
  CHECK(count(text, "<title>user, tower 0</title>") == 1);
  CHECK(count(text, "<title>&lt;item&gt;, tower 1</title>") == 1);
  CHECK(count(text, "<item>") == 0);
  CHECK(count(text, "<td>user, age</td>") == 1);
  CHECK(count(text, "one tower: 0.5; of two towers: 0.5. Relative stress of the embedding: 0.125") == 1);
  CHECK(count(text, "<svg") == count(text, "</svg>"));
  CHECK(count(text, "nan") == 0);

  // One dim, and points that coincide.
  examples::html_page flat("towers");
  examples::add_towers(flat, names, view, result_of({1, 1, 1}, 1));
  CHECK(count(flat.text(), "<circle") == 3);
  CHECK(count(flat.text(), "nan") == 0);
  CHECK_THROWS_AS(examples::add_towers(flat, names, view, result_of({1, 1}, 1)), tessera::error);
  CHECK_THROWS_AS(examples::add_towers(flat, {"user"}, view, result_of({1, 1, 1}, 1)), tessera::error);
}

TEST_CASE("tower_page: means within towers and between them") {
  std::vector<double> const affinity{1, 0.25, 0.5, 0.25, 1, 0.75, 0.5, 0.75, 1};
  tessera::matrix_view<double const> const view(affinity.data(), 3, 3);
  auto const means = examples::means_of_towers(view, {0, 1, 1});
  CHECK(means.within == 0.75);
  CHECK(means.between == (0.25 + 0.5) / 2);
  auto const alone = examples::means_of_towers(view, {0, 0, 0});
  CHECK(alone.within == 0.5);
  CHECK(alone.between == 0);
}

}  // namespace tower_page_test
