// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/tower/feature_affinity.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "../nn/nn_harness.hpp"
#include "temporary_folder.hpp"

namespace feature_affinity_test {

using tessera::affinity_kind;
using tessera::errc;
using tessera::feature_affinity;
using tessera::matrix_view;
using tessera_tests::error_of;
using tessera_tests::serial_host;
using tessera_tests::strided_floats;

using block_list = std::vector<strided_floats>;

std::vector<matrix_view<float const>> rows_of(block_list const& blocks, std::int64_t first, std::int64_t rows) {
  std::vector<matrix_view<float const>> views;
  for (auto const& block : blocks) views.push_back(block.view().rows_from(first, rows));
  return views;
}

// Random vectors, some of them zero, of which features with the same remainder modulo 2 are alike.
block_list random_blocks(std::mt19937_64& random, std::int64_t features, std::int64_t samples, std::int64_t dim) {
  std::bernoulli_distribution empty(0.2);
  strided_floats const common(random, samples, dim, 0);
  block_list blocks;
  for (std::int64_t f = 0; f < features; ++f) {
    blocks.emplace_back(random, samples, dim, f % 3);
    for (std::int64_t s = 0; s < samples; ++s)
      for (std::int64_t d = 0; d < dim; ++d)
        if (f % 2 == 0) blocks.back().at(s, d) += common.at(s, d);
    for (std::int64_t s = 0; s < samples; ++s)
      if (empty(random)) std::fill_n(blocks.back().view().row(s), dim, 0.0F);
  }
  return blocks;
}

// The definition, in double.
double naive(strided_floats const& a, strided_floats const& b, affinity_kind kind) {
  double sum = 0;
  int samples = 0;
  for (std::int64_t s = 0; s < a.rows; ++s) {
    double product = 0, of_a = 0, of_b = 0;
    for (std::int64_t d = 0; d < a.columns; ++d) {
      auto const x = static_cast<double>(a.at(s, d)), y = static_cast<double>(b.at(s, d));
      product += x * y;
      of_a += x * x;
      of_b += y * y;
    }
    if (of_a == 0 || of_b == 0) continue;
    auto const cosine = product / std::sqrt(of_a * of_b);
    sum += kind == affinity_kind::abs_of_mean ? cosine : std::abs(cosine);
    ++samples;
  }
  return samples == 0 ? 0 : std::abs(sum) / samples;
}

TEST_CASE("feature_affinity: both kinds match a double reference, however samples come") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  for (std::int64_t const features : {1, 2, 5, 40})
    for (std::int64_t const samples : {0, 1, 7, 300})
      for (std::int64_t const dim : {1, 6}) {
        CAPTURE(features);
        CAPTURE(samples);
        CAPTURE(dim);
        auto const blocks = random_blocks(random, features, samples, dim);
        feature_affinity whole(host.exec(), features), in_parts(host.exec(), features);
        whole.add(host.exec(), rows_of(blocks, 0, samples));
        for (std::int64_t first = 0; first < samples; first += 77)
          in_parts.add(host.exec(), rows_of(blocks, first, std::min<std::int64_t>(77, samples - first)));
        for (auto const kind : {affinity_kind::abs_of_mean, affinity_kind::mean_of_abs}) {
          auto const result = whole.result(kind);
          CHECK(result.features == features);
          CHECK(result.values == in_parts.result(kind).values);
          tessera::check_affinity(result.view());
          double worst = 0;
          for (std::int64_t i = 0; i < features; ++i)
            for (std::int64_t j = 0; j < features; ++j) {
              auto const& a = blocks[static_cast<std::size_t>(i)];
              auto const& b = blocks[static_cast<std::size_t>(j)];
              worst = std::max(worst, std::abs(result.view()(i, j) - (i == j ? 1 : naive(a, b, kind))));
            }
          CHECK(worst < 1e-6);
        }
      }
}

TEST_CASE("feature_affinity: signs that differ cancel in the mean alone, and empty bags are no samples") {
  serial_host host;
  feature_affinity sum(host.exec(), 3);
  std::vector<float> const a{3, 4, 1, 0, 2, 0, 0, 0}, b{6, 8, -1, 0, 0, 0, 1, 1}, c(8);
  std::vector<matrix_view<float const>> const blocks{{a.data(), 4, 2}, {b.data(), 4, 2}, {c.data(), 4, 2}};
  sum.add(host.exec(), blocks);
  CHECK(sum.samples(0, 1) == 2);
  CHECK(sum.samples(1, 0) == 2);
  CHECK(sum.samples(2, 0) == 0);
  CHECK(sum.result(affinity_kind::abs_of_mean).view()(0, 1) == doctest::Approx(0).epsilon(1e-6));
  CHECK(sum.result(affinity_kind::mean_of_abs).view()(1, 0) == doctest::Approx(1).epsilon(1e-6));
  CHECK(sum.result(affinity_kind::mean_of_abs).view()(2, 0) == 0);
  CHECK(sum.result(affinity_kind::mean_of_abs).view()(2, 2) == 1);
}

TEST_CASE("feature_affinity: the length of vectors does not matter, be they tiny or huge") {
  serial_host host;
  for (float const scale : {1e-30F, 1e30F}) {
    feature_affinity sum(host.exec(), 2);
    std::vector<float> const a{scale, scale}, b{0, scale};
    std::vector<matrix_view<float const>> const blocks{{a.data(), 1, 2}, {b.data(), 1, 2}};
    sum.add(host.exec(), blocks);
    CHECK(sum.result(affinity_kind::abs_of_mean).view()(0, 1) == doctest::Approx(std::sqrt(0.5)).epsilon(1e-6));
  }
}

TEST_CASE("feature_affinity: 1, 2 and 4 threads give the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const blocks = random_blocks(random, 45, 200, 8);
  std::vector<std::vector<double>> all;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    feature_affinity sum(exec, 45);
    sum.add(exec, rows_of(blocks, 0, 200));
    all.push_back(sum.result(affinity_kind::mean_of_abs).values);
    CHECK(all.back() == all.front());
  });
}

TEST_CASE("feature_affinity: features of a source are its outputs") {
  serial_host host;
  auto const exec = host.exec();
  auto const keys = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{0}, {1, 2}, {}}}, {"b", {{2}, {3}, {1}}}});
  tessera::batch_view const batch{.dense = {nullptr, 3, 0}, .labels = {}, .sparse = keys.view(), .sample_ids = {}};
  auto const make = [&](std::int64_t dim_of_b, bool sequence) {
    tessera::table_list tables;
    for (std::int64_t t = 0; t < 2; ++t)
      tables.add(
          tessera::dense_table<>(
              exec, {.id = tessera::table_id{t}, .dim = t == 0 ? 4 : dim_of_b, .rows = 4, .init_bound = 1, .seed = tessera::random_seed{3}},
              tessera::sgd{}),
          tessera::sgd{});
    return tessera::local_tables(std::move(tables), {{.name = "a", .table = 0}, {.name = "b", .table = 1, .sequence = sequence}});
  };
  auto const source = make(4, false);
  feature_affinity sum(exec, 2), by_hand(exec, 2);
  sum.add_lookups(exec, source, batch);
  std::vector<float> vectors(24);
  std::vector<matrix_view<float>> const out{{vectors.data(), 3, 4}, {vectors.data() + 12, 3, 4}};
  source.predict(exec, batch, out);
  std::vector<matrix_view<float const>> const read(out.begin(), out.end());
  by_hand.add(exec, read);
  CHECK(sum.samples(0, 1) == 2);
  CHECK(sum.result(affinity_kind::mean_of_abs).values == by_hand.result(affinity_kind::mean_of_abs).values);

  feature_affinity of_three(exec, 3);
  CHECK(error_of([&] { of_three.add_lookups(exec, source, batch); }).value("outputs") == "2");
  auto e = error_of([&] { sum.add_lookups(exec, make(5, false), batch); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("output") == "b");
  CHECK(e.value("width") == "5");
  e = error_of([&] { sum.add_lookups(exec, make(4, true), batch); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("sequence") == "1");
}

TEST_CASE("feature_affinity: blocks that do not fit are refused, and nothing is added") {
  serial_host host;
  CHECK(error_of([&] { feature_affinity(host.exec(), 0); }).value("features") == "0");
  CHECK(error_of([&] { feature_affinity(host.exec(), 1 << 20); }).code() == errc::invalid_argument);
  feature_affinity sum(host.exec(), 2);
  std::vector<float> values(12, 1);
  using views = std::vector<matrix_view<float const>>;
  auto const refused = [&](views const& blocks, errc code, char const* value, std::string const& is) {
    auto const e = error_of([&] { sum.add(host.exec(), blocks); });
    CAPTURE(std::string(e.what()));
    CHECK(e.code() == code);
    CHECK(e.value(value) == is);
    CHECK(sum.samples(0, 1) == 0);
  };
  matrix_view<float const> const good(values.data(), 3, 4);
  refused({good}, errc::shape_mismatch, "blocks", "1");
  refused({good, {values.data(), 2, 4}}, errc::shape_mismatch, "feature", "1");
  refused({good, {values.data(), 3, 3}}, errc::shape_mismatch, "columns", "3");
  refused({good, {values.data(), 3, 4, 2}}, errc::shape_mismatch, "stride", "2");
  for (auto const bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    values[9] = bad;
    refused({good, good}, errc::invalid_argument, "sample", "2");
  }
  CHECK(error_of([&] { sum.result(static_cast<affinity_kind>(2)); }).code() == errc::invalid_argument);
}

}  // namespace feature_affinity_test
