// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/tensor/jagged_vectors.hpp>

#include <mutex>
#include <string>

#include "../support/skip.hpp"
#include "vectors_harness.hpp"

using namespace tessera_tests;
using view = tessera::jagged_vectors_view<float>;

TEST_CASE("jagged_vectors: rows, parts and other values are views") {
  std::vector<float> values(40), gradients(40);
  std::vector<std::int64_t> const offsets{1, 3, 3, 7};
  view const rows{{values.data(), 8, 3, 5}, offsets.data(), 3};
  CHECK(rows.dim() == 3);
  CHECK(rows.size() == 6);
  CHECK(rows.length(0) == 2);
  CHECK(rows.length(1) == 0);
  CHECK(rows.row(2).rows() == 4);
  CHECK(rows.row(2).columns() == 3);
  CHECK(rows.row(2).row(1) == values.data() + 4 * 5);
  auto const part = rows.slice(1, 2);
  CHECK(part.size() == 4);
  CHECK(part.row(1).data() == rows.row(2).data());
  tessera::jagged_vectors_view<float const> const other = rows.with_values(tessera::matrix_view<float>(gradients.data(), 8, 5));
  CHECK(other.row(2).data() == gradients.data() + 15);
  CHECK(other.dim() == 5);
  CHECK(view{}.size() == 0);
  validate(rows);
  validate(part);
  validate(view{});
}

TEST_CASE("jagged_vectors: what validate refuses") {
  std::vector<float> values(40);
  tessera::matrix_view<float> const vectors(values.data(), 8, 5);
  auto const refused = [&](std::vector<std::int64_t> const& offsets, std::int64_t rows) {
    return thrown_by([&] { validate(view{vectors, offsets.empty() ? nullptr : offsets.data(), rows}); });
  };
  CHECK(refused({0, 3, 2, 4}, 3).value("row") == "1");
  CHECK(refused({0, 3, 2, 4}, 3).code() == tessera::errc::invalid_argument);
  CHECK(refused({-1, 3}, 1).value("offset") == "-1");
  CHECK(refused({0, 9}, 1).code() == tessera::errc::out_of_range);
  CHECK(refused({0, 9}, 1).value("values") == "8");
  CHECK(refused({}, 1).code() == tessera::errc::invalid_argument);
  CHECK(refused({}, -1).value("rows") == "-1");
  std::vector<std::int64_t> const offsets{0, 8};
  auto const e = thrown_by([&] { validate(view{{values.data(), 8, 5, 4}, offsets.data(), 1}); });
  CHECK(e.code() == tessera::errc::shape_mismatch);
  CHECK(e.value("stride") == "4");
}

TEST_CASE("jagged_vectors: what every primitive refuses, checked or not") {
  std::vector<float> values(40);
  auto const refused = [&](std::vector<std::int64_t> const& offsets, std::int64_t rows, std::int64_t stride = 5) {
    return thrown_by([&] {
      tessera::detail::check_jagged_vectors("test", "in",
                                            view{{values.data(), 8, 5, stride}, offsets.empty() ? nullptr : offsets.data(), rows});
    });
  };
  CHECK(refused({0, 9}, 1).code() == tessera::errc::out_of_range);
  CHECK(refused({0, 9}, 1).value("last offset") == "9");
  refused({-1, 3}, 1);
  refused({5, 3}, 1);
  refused({}, 1);
  refused({}, -1);
  refused({0, 8}, 1, 4);
  if (!tessera::checked) CHECK(std::string(refused({0, 9}, 1).what()).starts_with("test: offsets reach past the values (argument in, "));
}

TEST_CASE("jagged_vectors: rows in other pieces than one's own are refused by the checked build") {
  if (!tessera::checked) return skip("a checked build's test");
  std::vector<float> values(40);
  std::vector<std::int64_t> const offsets{0, 3, 5}, others{0, 2, 5};
  tessera::matrix_view<float> const vectors(values.data(), 8, 5);
  auto const e = thrown_by([&] {
    tessera::detail::check_same_rows("test", "out", view{vectors, offsets.data(), 2}, view{vectors, others.data(), 2});
  });
  CHECK(e.value("row") == "0");
  CHECK(e.value("length expected") == "3");
}

TEST_CASE("jagged_vectors: pieces cover each vector and each row once, whatever the rows") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  pool_host<2> host;
  for (std::int64_t const grain : {1, 3, 64})
    for (std::size_t const rows : {0U, 1U, 5U, 300U}) {
      auto lengths = random_lengths(random, rows, 4);
      if (rows == 300) lengths[100] = 5000;
      std::vector<std::int32_t> offsets{7};
      for (auto const length : lengths) offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
      std::vector<int> vectors(static_cast<std::size_t>(offsets.back())), visits(rows);
      std::mutex mutex;
      tessera::detail::for_each_row_run(host.exec(), offsets.data(), static_cast<std::int64_t>(rows), grain,
                                        [&](auto row, std::int64_t first, std::int64_t last) {
                                          std::lock_guard const lock(mutex);
                                          CHECK(first < last);
                                          CHECK(last - first <= grain);
                                          CHECK(first >= offsets[static_cast<std::size_t>(row)]);
                                          CHECK(last <= offsets[static_cast<std::size_t>(row) + 1]);
                                          for (auto v = first; v < last; ++v) ++vectors[static_cast<std::size_t>(v)];
                                        });
      tessera::detail::for_each_row_block(host.exec(), offsets.data(), static_cast<std::int64_t>(rows), grain,
                                          [&](std::int64_t first, std::int64_t last) {
                                            std::lock_guard const lock(mutex);
                                            CHECK(last - first <= grain);
                                            for (auto row = first; row < last; ++row) ++visits[static_cast<std::size_t>(row)];
                                          });
      CHECK(std::count(vectors.begin() + 7, vectors.end(), 1) == static_cast<std::ptrdiff_t>(vectors.size()) - 7);
      CHECK(std::count(visits.begin(), visits.end(), 1) == static_cast<std::ptrdiff_t>(rows));
    }
}
