// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/preprocessing.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <skip.hpp>

#include <tessera/data/click_log.hpp>
#include <tessera/data/criteo_tsv.hpp>

#include "click_support.hpp"

using namespace click_tests;
using tessera::dense_scaling;
using tessera::preprocessing;
using tessera::preprocessing_options;

namespace {

struct transformed {
  std::vector<float> dense;       // (n, dense features)
  std::vector<float> labels;      // (n,)
  std::vector<std::int64_t> ids;  // (sparse features, n)

  bool operator==(transformed const&) const = default;
};

transformed apply(tessera::host_exec const& exec, preprocessing const& p, tessera::raw_rows_view rows,
                  std::vector<std::int64_t> const& indices) {
  auto const n = indices.size();
  auto const d = static_cast<std::size_t>(p.dense_features()), s = static_cast<std::size_t>(p.sparse_features());
  transformed out{std::vector<float>(n * d, -1), std::vector<float>(n, -1), std::vector<std::int64_t>(n * s, -1)};
  auto const rows_out = static_cast<std::int64_t>(n);
  p.transform(exec, rows, indices, {out.dense.data(), rows_out, p.dense_features()}, out.labels,
              {out.ids.data(), p.sparse_features(), rows_out});
  return out;
}

tessera::raw_rows parsed(tessera::host_exec const& exec, std::string const& text) {
  tessera::raw_rows rows;
  tessera::parse_criteo(exec, text, "log.tsv", rows);
  return rows;
}

tessera::click_statistics all_statistics(tessera::host_exec const& exec, tessera::raw_rows const& rows) {
  tessera::click_statistics statistics({.count_categories = true, .count_integers = true});
  statistics.add(exec, rows.view());
  return statistics;
}

// One sparse column by the book: -1 stands for a missing value.
std::int64_t constexpr missing = -1;
std::int64_t sparse_value(click const& s, std::size_t column) {
  if (column < 26) return s.categories[column];
  auto const value = s.integers[column - 26];
  return value == tessera::click_layout::missing_integer ? std::numeric_limits<std::int64_t>::min() : value;
}
bool is_missing(click const& s, std::size_t column) {
  return column < 26 ? s.categories[column] == missing : s.integers[column - 26] == tessera::click_layout::missing_integer;
}

}  // namespace

TEST_CASE("preprocessing: what a naive reference in double and std::map gives") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  log_shape shape;
  shape.rows = 1500;
  shape.distinct_values = 60;
  shape.odd_spellings = true;
  shape.empty_columns = {6, 13, 22, 39};
  auto const training_text = random_log(random, shape);
  shape.distinct_values = 90;     // values that training lacks
  shape.empty_columns = {1, 14};  // columns that training has, and the other way round
  auto const test_text = random_log(random, shape);

  for (int const threads : {1, 2}) {
    host h(threads);
    auto const training = parsed(h.exec, training_text);
    auto const test = parsed(h.exec, test_text);
    auto const samples = samples_of(training.view());
    auto const statistics = all_statistics(h.exec, training);
    for (auto const dense : {dense_scaling::log, dense_scaling::standard})
      for (bool const as_category : {false, true})
        for (auto const& numbers : {std::pair{1, 0}, {3, 0}, {100000, 0}, {1, 1}, {1, 97}}) {
          int const min_count = numbers.first, hash_size = numbers.second;
          CAPTURE(min_count);
          CAPTURE(hash_size);
          CAPTURE(as_category);
          preprocessing_options const options{
              .dense = dense, .dense_as_category = as_category, .min_count = min_count, .hash_size = hash_size};
          auto const p = preprocessing::fit(h.exec, statistics, options);
          CHECK(p.options() == options);
          CHECK(p.dropped() == std::vector<std::string>{"integer 6", "integer 13", "category 9", "category 26"});

          std::vector<std::size_t> integers, sparse;
          for (std::size_t i = 0; i < 13; ++i)
            if (i != 5 && i != 12) integers.push_back(i);
          for (std::size_t c = 0; c < 26; ++c)
            if (c != 8 && c != 25) sparse.push_back(c);
          if (as_category)
            for (auto const i : integers) sparse.push_back(26 + i);
          REQUIRE(p.dense_features() == static_cast<std::int64_t>(integers.size()));
          REQUIRE(p.sparse_features() == static_cast<std::int64_t>(sparse.size()));

          for (auto const* rows : {&training, &test}) {
            auto const of = samples_of(rows->view());
            std::vector<std::int64_t> indices;
            for (int i = 0; i < 1300; ++i) indices.push_back(static_cast<std::int64_t>(random() % of.size()));
            auto const out = apply(h.exec, p, rows->view(), indices);
            auto const n = indices.size();
            bool labels = true;
            for (std::size_t i = 0; i < n; ++i) labels = labels && out.labels[i] == of[static_cast<std::size_t>(indices[i])].label;
            CHECK(labels);

            for (std::size_t f = 0; f < integers.size(); ++f) {
              CHECK(p.dense_name(static_cast<std::int64_t>(f)) == "integer " + std::to_string(integers[f] + 1));
              long double sum = 0, squares = 0, count = 0;
              for (auto const& s : samples)
                if (!is_missing(s, 26 + integers[f])) {
                  sum += s.integers[integers[f]];
                  ++count;
                }
              auto const mean = sum / count;
              for (auto const& s : samples)
                if (!is_missing(s, 26 + integers[f])) squares += (s.integers[integers[f]] - mean) * (s.integers[integers[f]] - mean);
              auto const deviation = std::sqrt(squares / count);
              double worst = 0;
              for (std::size_t i = 0; i < n; ++i) {
                auto const& s = of[static_cast<std::size_t>(indices[i])];
                long double const x = s.integers[integers[f]];
                long double expected = dense == dense_scaling::log ? std::log(std::max(x, 0.0L) + 1) : (x - mean) / deviation;
                if (is_missing(s, 26 + integers[f])) expected = 0;
                worst =
                    std::max(worst, static_cast<double>(std::abs(expected - static_cast<long double>(out.dense[i * integers.size() + f]))));
              }
              CHECK(worst < 1e-5);
            }

            for (std::size_t f = 0; f < sparse.size(); ++f) {
              auto const feature = static_cast<std::int64_t>(f);
              auto const column = sparse[f];
              CHECK(p.sparse_name(feature) ==
                    (column < 26 ? "category " + std::to_string(column + 1) : "integer " + std::to_string(column - 25)));
              std::map<std::int64_t, std::int64_t> counts, ids;
              for (auto const& s : samples)
                if (!is_missing(s, column)) ++counts[sparse_value(s, column)];
              std::int64_t next = 2;
              for (auto const& s : samples)
                if (!is_missing(s, column) && counts[sparse_value(s, column)] >= min_count &&
                    ids.emplace(sparse_value(s, column), next).second)
                  ++next;
              bool same = true;
              std::map<std::int64_t, std::int64_t> hashed;
              for (std::size_t i = 0; i < n; ++i) {
                auto const& s = of[static_cast<std::size_t>(indices[i])];
                auto const id = out.ids[f * n + i];
                if (hash_size > 0) {
                  same = same && (is_missing(s, column) ? id == hash_size : id >= 0 && id < hash_size);
                  same = same && hashed.emplace(sparse_value(s, column), id).first->second == id;
                } else {
                  auto const found = ids.find(sparse_value(s, column));
                  same = same && id == (is_missing(s, column) ? preprocessing::missing_id
                                        : found == ids.end()  ? preprocessing::unknown_id
                                                              : found->second);
                }
              }
              CHECK(same);
              CHECK(p.id_count(feature) == (hash_size > 0 ? hash_size + 1 : next));
            }
          }
        }
  }
}

TEST_CASE("preprocessing: hashes spread, and each column has its own") {
  host h;
  std::mt19937_64 random(7);
  log_shape shape;
  shape.rows = 4000;
  shape.distinct_values = 1000000;
  shape.missing = 0;
  auto const rows = parsed(h.exec, random_log(random, shape));
  auto const p = preprocessing::fit(h.exec, all_statistics(h.exec, rows), {.hash_size = 16});
  std::vector<std::int64_t> indices(4000);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  auto const out = apply(h.exec, p, rows.view(), indices);
  for (std::size_t f = 0; f < 26; ++f) {
    std::array<int, 17> hits{};
    for (std::size_t i = 0; i < 4000; ++i) ++hits[static_cast<std::size_t>(out.ids[f * 4000 + i])];
    CHECK(hits[16] == 0);
    for (std::size_t id = 0; id < 16; ++id) {
      CHECK(hits[id] > 150);
      CHECK(hits[id] < 350);
    }
  }
  // The same value in two columns: their ids agree by chance only.
  tessera::raw_rows equal;
  equal.resize(h.exec, 1000);
  for (std::int64_t i = 0; i < 1000; ++i) {
    equal.labels()[i] = 0;
    for (std::int64_t c = 0; c < 13; ++c) equal.integers()(c, i) = 1;
    for (std::int64_t c = 0; c < 26; ++c) equal.categories()(c, i) = i;
  }
  indices.resize(1000);
  auto const ids = apply(h.exec, p, equal.view(), indices).ids;
  int agree = 0;
  for (std::size_t i = 0; i < 1000; ++i) agree += ids[i] == ids[1000 + i];
  CHECK(agree < 150);
}

TEST_CASE("preprocessing: a constant column, a negative number, an empty log") {
  host h;
  auto const line = [](std::string const& integer) { return "0\t" + integer + std::string(38, '\t') + "\n"; };
  auto const rows = parsed(h.exec, line("7") + line("7") + line("") + line("7"));
  auto const statistics = all_statistics(h.exec, rows);
  auto const standard = preprocessing::fit(h.exec, statistics, {.dense = dense_scaling::standard});
  CHECK(standard.dense_features() == 1);
  CHECK(standard.sparse_features() == 0);
  CHECK(standard.dropped().size() == 38);
  CHECK(apply(h.exec, standard, rows.view(), {0, 1, 2, 3}).dense == std::vector<float>{0, 0, 0, 0});
  auto const other = parsed(h.exec, line("-3") + line("9"));
  CHECK(apply(h.exec, standard, other.view(), {0, 1}).dense == std::vector<float>{-10, 2});
  auto const log = preprocessing::fit(h.exec, statistics, {});
  CHECK(apply(h.exec, log, other.view(), {0, 1}).dense == std::vector<float>{0, std::log(10.0F)});
  CHECK(apply(h.exec, log, other.view(), {}).labels.empty());
  CHECK(thrown_by([&] { preprocessing::fit(h.exec, tessera::click_statistics(), {}); }).code() == tessera::errc::invalid_argument);
}

TEST_CASE("preprocessing: restored from its state it is the same") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  host h(2);
  log_shape shape;
  shape.rows = 600;
  shape.empty_columns = {2, 30};
  auto const rows = parsed(h.exec, random_log(random, shape));
  auto const statistics = all_statistics(h.exec, rows);
  std::vector<std::int64_t> const indices{5, 3, 599, 0, 3};
  for (preprocessing_options const options : {preprocessing_options{},
                                              {.dense = dense_scaling::standard, .dense_as_category = true, .min_count = 2},
                                              {.hash_size = 50},
                                              {.vocabulary_limit = 9}}) {
    auto const p = preprocessing::fit(h.exec, statistics, options);
    preprocessing const restored(h.exec, p.state());
    CHECK(restored == p);
    CHECK(apply(h.exec, restored, rows.view(), indices) == apply(h.exec, p, rows.view(), indices));
    for (std::int64_t f = 0; f < p.sparse_features(); ++f) CHECK(restored.id_count(f) == p.id_count(f));
    CHECK(restored.dropped() == p.dropped());
    auto changed = p.state();
    changed.dense_means[1] += 1;
    CHECK(!(preprocessing(h.exec, changed) == p));
    if (options.hash_size == 0) {
      changed = p.state();
      changed.vocabularies[0].pop_back();
      CHECK(!(preprocessing(h.exec, changed) == p));
    }
  }
}

TEST_CASE("preprocessing: a limited vocabulary has the most frequent values first, whatever the threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  // Category c of value v comes about as often as 1 / (1 + v); far more distinct values than may be held.
  constexpr std::int64_t n = 6000;
  host one(1), two(2);
  tessera::raw_rows rows;
  rows.resize(one.exec, n);
  std::fill(rows.labels().begin(), rows.labels().end(), 0.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < 13; ++k) rows.integers()(k, i) = static_cast<std::int32_t>(random() % 5);
    for (std::int64_t c = 0; c < 26; ++c) {
      auto const u = static_cast<double>(random() >> 11) * 0x1p-53;
      rows.categories()(c, i) = static_cast<std::int64_t>(std::exp(u * 11)) - 1;
    }
  }
  for (std::int64_t const limit : {1, 50, 400, 100'000})
    for (std::int64_t const min_count : {1, 30}) {
      CAPTURE(limit);
      CAPTURE(min_count);
      preprocessing_options const options{.dense_as_category = true, .min_count = min_count, .vocabulary_limit = limit};
      auto const needed = preprocessing::needed_statistics(options);
      CHECK(needed.value_limit == 2 * limit);
      tessera::click_statistics bounded(needed), bounded_by_two(needed);
      bounded.add(one.exec, rows.view());
      bounded_by_two.add(two.exec, rows.view());
      auto const p = preprocessing::fit(one.exec, bounded, options);
      CHECK(p == preprocessing::fit(two.exec, bounded_by_two, options));
      // From exact counts the vocabulary is that of the true counts.
      auto const exact = preprocessing::fit(one.exec, all_statistics(one.exec, rows), options);
      if (limit == 100'000) CHECK(p == exact);
      for (std::int64_t f = 0; f < p.sparse_features(); ++f) {
        auto const column = p.state().sparse_columns[static_cast<std::size_t>(f)];
        std::map<std::int64_t, std::int64_t> truth;
        for (std::int64_t i = 0; i < n; ++i) ++truth[column < 26 ? rows.categories()(column, i) : rows.integers()(column - 26, i)];
        auto const count_of = [&](std::int64_t value) { return truth.at(value); };
        auto const& vocabulary = p.state().vocabularies[static_cast<std::size_t>(f)];
        CHECK(static_cast<std::int64_t>(vocabulary.size()) <= limit);
        CHECK(p.id_count(f) == 2 + static_cast<std::int64_t>(vocabulary.size()));
        CHECK(std::all_of(vocabulary.begin(), vocabulary.end(), [&](auto v) { return count_of(v) >= min_count; }));
        auto const& sorted = exact.state().vocabularies[static_cast<std::size_t>(f)];
        CHECK(std::is_sorted(sorted.begin(), sorted.end(),
                             [&](auto a, auto b) { return count_of(a) > count_of(b) || (count_of(a) == count_of(b) && a < b); }));
        // A count lacks at most n / limit: values that stand out by more are in, unless the vocabulary is full.
        std::set<std::int64_t> const in(vocabulary.begin(), vocabulary.end());
        std::int64_t out = 0;
        for (auto const& [value, count] : truth) out += count >= min_count + n / limit && in.count(value) == 0;
        if (static_cast<std::int64_t>(vocabulary.size()) < limit) CHECK(out == 0);
      }
    }
  preprocessing_options const options{.vocabulary_limit = 10};
  tessera::click_statistics few({.value_limit = 19}), enough({.value_limit = 20});
  few.add(one.exec, rows.view());
  enough.add(one.exec, rows.view());
  CHECK(thrown_by([&] { preprocessing::fit(one.exec, few, options); }).value("value_limit") == "19");
  CHECK(thrown_by([&] { preprocessing::fit(one.exec, enough, {}); }).value("value_limit") == "20");
  CHECK(preprocessing::fit(one.exec, enough, {.hash_size = 5}).sparse_features() == 26);
  CHECK(preprocessing::fit(one.exec, enough, options).id_count(0) <= 12);
}

TEST_CASE("preprocessing: what cannot be is named") {
  host h;
  std::mt19937_64 random(3);
  auto const rows = parsed(h.exec, random_log(random, {}));
  auto const statistics = all_statistics(h.exec, rows);
  auto const fit = [&](preprocessing_options options) { return thrown_by([&] { preprocessing::fit(h.exec, statistics, options); }); };
  CHECK(fit({.min_count = 0}).value("min_count") == "0");
  CHECK(fit({.hash_size = -1}).value("hash_size") == "-1");
  CHECK(fit({.min_count = 2, .hash_size = 5}).value("hash_size") == "5");
  CHECK(fit({.vocabulary_limit = -1}).value("vocabulary_limit") == "-1");
  CHECK(fit({.hash_size = 5, .vocabulary_limit = 3}).value("vocabulary_limit") == "3");
  CHECK(thrown_by([] { tessera::click_statistics({.value_limit = -2}); }).value("limit") == "-2");
  CHECK(fit({.dense = static_cast<dense_scaling>(7)}).value("dense") == "7");
  CHECK(thrown_by([&] { preprocessing::needed_statistics({.min_count = 0}); }).value("min_count") == "0");

  tessera::click_statistics uncounted({.count_categories = false, .count_integers = false});
  uncounted.add(h.exec, rows.view());
  CHECK(thrown_by([&] { preprocessing::fit(h.exec, uncounted, {}); }).code() == tessera::errc::invalid_argument);
  CHECK(preprocessing::fit(h.exec, uncounted, {.dense_as_category = true, .hash_size = 9}).sparse_features() == 39);
  tessera::click_statistics categories(preprocessing::needed_statistics({}));
  categories.add(h.exec, rows.view());
  CHECK(preprocessing::fit(h.exec, categories, {}).sparse_features() == 26);
  CHECK(thrown_by([&] { preprocessing::fit(h.exec, categories, {.dense_as_category = true}); }).code() == tessera::errc::invalid_argument);
  auto const needed = preprocessing::needed_statistics({.dense_as_category = true});
  CHECK(needed.count_categories);
  CHECK(needed.count_integers);
  CHECK(!preprocessing::needed_statistics({.hash_size = 1}).count_categories);

  auto const p = preprocessing::fit(h.exec, statistics, {});
  auto const restore = [&](auto const& change) {
    auto state = p.state();
    change(state);
    return thrown_by([&] { preprocessing(h.exec, state); }).code() == tessera::errc::invalid_argument;
  };
  CHECK(restore([](auto& s) { s.options.min_count = 0; }));
  CHECK(restore([](auto& s) { s.dense_columns[0] = -1; }));
  CHECK(restore([](auto& s) { s.dense_columns.back() = 13; }));
  CHECK(restore([](auto& s) { std::swap(s.dense_columns[0], s.dense_columns[1]); }));
  CHECK(restore([](auto& s) { s.dense_means.pop_back(); }));
  CHECK(restore([](auto& s) { s.dense_deviations.pop_back(); }));
  CHECK(restore([](auto& s) { s.dense_deviations[0] = 0; }));
  CHECK(restore([](auto& s) { s.dense_deviations[0] = std::numeric_limits<double>::quiet_NaN(); }));
  CHECK(restore([](auto& s) { s.dense_means[0] = std::numeric_limits<double>::infinity(); }));
  CHECK(restore([](auto& s) { s.sparse_columns.back() = 39; }));
  CHECK(restore([](auto& s) { s.sparse_columns[1] = s.sparse_columns[0]; }));
  CHECK(restore([](auto& s) { s.vocabularies.pop_back(); }));
  CHECK(restore([](auto& s) { s.vocabularies[3].push_back(s.vocabularies[3][0]); }));

  CHECK(thrown_by([&] { apply(h.exec, p, rows.view(), {0, 100}); }).value("index") == "100");
  CHECK(thrown_by([&] { apply(h.exec, p, rows.view(), {-1}); }).value("index") == "-1");
  std::vector<float> dense(26), labels(2);
  std::vector<std::int64_t> ids(52), indices(2);
  auto const shapes = [&](std::int64_t dense_columns, std::int64_t label_count, std::int64_t id_rows) {
    return thrown_by([&] {
             p.transform(h.exec, rows.view(), indices, {dense.data(), 2, dense_columns}, {labels.data(), label_count},
                         {ids.data(), id_rows, 2});
           }).code() == tessera::errc::shape_mismatch;
  };
  CHECK(shapes(12, 2, 26));
  CHECK(shapes(13, 1, 26));
  CHECK(shapes(13, 2, 25));
}

TEST_CASE("preprocessing: its logarithm is that of the library, rounded once") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  double worst = 0;
  auto const compare = [&](double y) {
    worst = std::max(worst, std::abs(tessera::detail::log_of_integer(y) - std::log(y)) / std::max(std::log(y), 0.5));
  };
  for (std::int64_t y = 1; y <= 1 << 17; ++y) compare(static_cast<double>(y));
  for (int i = 0; i < 1'000'000; ++i) compare(static_cast<double>(1 + (random() >> 33 >> random() % 31)));
  compare(0x1p31);
  CHECK(tessera::detail::log_of_integer(1) == 0);
  CHECK(worst < 1e-15);
}

TEST_CASE("preprocessing: transforming allocates nothing") {
  host h(2);
  std::mt19937_64 random(5);
  auto const rows = parsed(h.exec, random_log(random, {}));
  auto const p = preprocessing::fit(h.exec, all_statistics(h.exec, rows), {.dense_as_category = true});
  auto const before = h.memory.allocations();
  apply(h.exec, p, rows.view(), {1, 2, 3});
  CHECK(h.memory.allocations() == before);
  CHECK(p.bytes() > 0);
}

TEST_CASE("preprocessing: the adult data") {
  host h(2);
  auto const folder = std::string(TESSERA_TEST_DATA_DIR) + "/adult/";
  if (!std::filesystem::exists(folder)) return tessera_tests::skip("no " + folder);
  preprocessing_options const options{.dense = dense_scaling::standard, .dense_as_category = true};
  tessera::click_statistics statistics(preprocessing::needed_statistics(options));
  tessera::click_log const log(h.exec, {folder + "train.tsv"}, statistics);
  auto const p = preprocessing::fit(h.exec, statistics, options);
  CHECK(p.dense_features() == 5);
  CHECK(p.sparse_features() == 8 + 5);
  CHECK(p.dropped().size() == 8 + 18);
  CHECK(p.dropped().front() == "integer 6");
  CHECK(p.dropped().back() == "category 26");
  CHECK(p.sparse_name(0) == "category 1");
  CHECK(p.sparse_name(8) == "integer 1");
  CHECK(p.sparse_name(12) == "integer 5");
  CHECK(p.id_count(8) == 73 + 2);  // ages 17 … 90
}
