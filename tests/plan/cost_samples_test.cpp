// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <tessera/plan/cost_samples.hpp>
#include <tessera/plan/cost_samples_file.hpp>

#include "random.hpp"
#include "temporary_folder.hpp"

namespace cost_samples_test {

using tessera::collect_compute_samples;
using tessera::collect_exchange_samples;
using tessera::combination_options;
using tessera::compute_times;
using tessera::draw_combination;
using tessera::draw_placement;
using tessera::errc;
using tessera::exchange_case;
using tessera::exchange_times;
using tessera::placement_options;
using tessera::table_combination;
using tessera::table_profile;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::temporary_folder;
using tessera_tests::write_file;

namespace {

std::vector<table_profile> pool_of(std::vector<std::int64_t> const& rows) {
  std::vector<table_profile> pool;
  for (auto const n : rows) {
    table_profile table;
    table.name = "t" + std::to_string(pool.size());
    table.rows = n;
    table.dim = 16;
    pool.push_back(table);
  }
  return pool;
}

/// A cost that depends on the combination alone.
compute_times planted(table_combination const& of) {
  double sum = 0.1;
  for (auto const& one : of.tables) sum += static_cast<double>(one.table + 1) / 3 * static_cast<double>(one.dim);
  return {sum, 2 * sum, 3 * sum / static_cast<double>(of.batch_samples)};
}
exchange_times planted_exchange(exchange_case const& of) {
  exchange_times times;
  for (std::size_t d = 0; d < of.dims.size(); ++d) {
    times.forward_ms.push_back(static_cast<double>(of.dims[d]) / 7 + of.start_ms[d]);
    times.backward_ms.push_back(static_cast<double>(of.dims[d]) / 11);
  }
  return times;
}

struct killed {};

}  // namespace

TEST_CASE("draw_combination: within the limit, numbers of tables and dims are as frequent as another, each draw is its own") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const pool = pool_of({100, 1000, 50});
  combination_options const options{
      .least_tables = 2, .most_tables = 5, .dims = {4, 8, 16}, .batches = {64, 256}, .seed = tessera::random_seed(seed)};
  std::vector<int> sizes(6), dims(17);
  std::set<std::int64_t> batches;
  for (std::int64_t number = 0; number < 4000; ++number) {
    auto const drawn = draw_combination(pool, options, number);
    ++sizes.at(drawn.tables.size());
    batches.insert(drawn.batch_samples);
    for (auto const& one : drawn.tables) {
      CHECK(one.table >= 0);
      CHECK(one.table < 3);
      ++dims.at(static_cast<std::size_t>(one.dim));
    }
  }
  // 1000 of each size and some 4667 of each dim: six deviations to either side.
  for (std::size_t n = 2; n <= 5; ++n) CHECK(std::abs(sizes[n] - 1000) < 170);
  for (std::size_t const d : {4U, 8U, 16U}) CHECK(std::abs(dims[d] - 14'000 / 3) < 450);
  CHECK(batches == std::set<std::int64_t>{64, 256});
  CHECK(draw_combination(pool, options, 7) == draw_combination(pool, options, 7));

  // 3 tables of 1000 rows and dim 4, with a float a row and one an element of state: 1000 * 9 * 4 bytes each.
  auto tight = options;
  tight.dims = {4, 4096};
  tight.state_floats_per_row = 1, tight.state_floats_per_element = 1;
  tight.limit_bytes = 100'000;
  for (std::int64_t number = 0; number < 200; ++number) {
    std::int64_t bytes = 0;
    for (auto const& one : draw_combination(pool, tight, number).tables)
      bytes += pool[static_cast<std::size_t>(one.table)].rows * (2 * one.dim + 1) * 4;
    CHECK(bytes <= 100'000);
  }
}

TEST_CASE("draw_placement: Algorithm 5, from balanced to random, with starts from 0") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const pool = pool_of({100, 1000, 50});
  placement_options const options{.tables = {.least_tables = 40, .most_tables = 40, .dims = {4, 8}, .seed = tessera::random_seed(seed)},
                                  .devices = 3,
                                  .most_skew_ms = 10};
  int balanced = 0, unbalanced = 0, skewed = 0;
  for (std::int64_t number = 0; number < 400; ++number) {
    auto const drawn = draw_placement(pool, options, number);
    REQUIRE(drawn.dims.size() == 3);
    REQUIRE(drawn.start_ms.size() == 3);
    auto const total = drawn.dims[0] + drawn.dims[1] + drawn.dims[2];
    CHECK(total >= 160);
    CHECK(total <= 320);
    auto const [least, most] = std::minmax_element(drawn.dims.begin(), drawn.dims.end());
    balanced += *most - *least <= 8;
    unbalanced += *most - *least > 24;
    CHECK(*std::min_element(drawn.start_ms.begin(), drawn.start_ms.end()) == 0);
    auto const last = *std::max_element(drawn.start_ms.begin(), drawn.start_ms.end());
    CHECK(last < 10.001);
    skewed += last > 3;
    CHECK(drawn == draw_placement(pool, options, number));
  }
  CHECK(balanced > 20);
  CHECK(unbalanced > 5);
  CHECK(skewed > 20);
  CHECK(skewed < 380);

  // A device has room for one table, so every device gets one.
  placement_options const full{
      .tables = {.least_tables = 3, .most_tables = 3, .dims = {4}, .limit_bytes = 100 * 4 * 4, .seed = tessera::random_seed(seed)},
      .devices = 3};
  for (std::int64_t number = 0; number < 20; ++number)
    CHECK(draw_placement(pool_of({100}), full, number).dims == std::vector<std::int64_t>{4, 4, 4});
}

TEST_CASE("drawn samples: options that cannot be are refused by name") {
  auto const pool = pool_of({100});
  auto const refused = [&](char const* what, std::string const& value, combination_options const& options,
                           std::vector<table_profile> const& of) {
    try {
      draw_combination(of, options, 0);
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(e.value(what) == value);
    }
  };
  refused("tables", "0", {}, {});
  refused("least_tables", "0", {.least_tables = 0}, pool);
  refused("most_tables", "2", {.least_tables = 3, .most_tables = 2}, pool);
  refused("dims", "0", {.dims = {}}, pool);
  refused("dim", "-4", {.dims = {4, -4}}, pool);
  refused("batch", "0", {.batches = {0}}, pool);
  refused("least bytes", "1600", {.least_tables = 1, .most_tables = 1, .dims = {4}, .limit_bytes = 1599}, pool);
  CHECK_THROWS_AS(draw_combination(pool, {}, -1), tessera::error);
  CHECK_THROWS_AS(draw_placement(pool, {.devices = 0}, 0), tessera::error);
  CHECK_THROWS_AS(draw_placement(pool, {.most_skew_ms = -1}, 0), tessera::error);
  CHECK_THROWS_AS(
      draw_placement(pool, {.tables = {.least_tables = 3, .most_tables = 3, .dims = {4}, .limit_bytes = 1600}, .devices = 2}, 0),
      tessera::error);
}

TEST_CASE("collected samples: killed at any measurement or byte, a file is completed to what it would have been") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const pool = pool_of({100, 1000, 50});
  auto const draw = [&](std::int64_t number) {
    return draw_combination(pool, {.dims = {4, 8}, .batches = {64}, .seed = tessera::random_seed(seed)}, number);
  };
  temporary_folder const folder;
  int measured = 0;
  auto const measure = [&](table_combination const& of) {
    ++measured;
    return planted(of);
  };
  auto const whole = folder.file("whole.csv"), part = folder.file("part.csv");
  auto const expected = collect_compute_samples(whole, "machine x", 50, draw, measure);
  // 50 samples, and two that were measured again.
  CHECK(measured == 52);
  REQUIRE(expected.size() == 52);
  CHECK(expected[20].is_repeat);
  CHECK(expected[20].number == 0);
  CHECK(expected[20].combination == expected[0].combination);
  CHECK(expected[21].number == 20);
  CHECK(expected[41].number == 20);
  CHECK(expected[41].is_repeat);
  auto const text = contents(whole);

  measured = 0;
  CHECK(collect_compute_samples(whole, "machine x", 50, draw, measure) == expected);
  CHECK(measured == 0);
  CHECK(contents(whole) == text);
  CHECK(collect_compute_samples(whole, "machine x", 10, draw, measure).size() == 52);

  for (int repeat = 0; repeat < 20; ++repeat) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    auto left = std::uniform_int_distribution<int>(0, 51)(random);
    CAPTURE(left);
    CHECK_THROWS_AS(collect_compute_samples(part, "machine x", 50, draw,
                                            [&](table_combination const& of) {
                                              if (left-- == 0) throw killed();
                                              return planted(of);
                                            }),
                    killed);
    CHECK(collect_compute_samples(part, "machine x", 50, draw, measure) == expected);
    CHECK(contents(part) == text);
    write_file(part, text.substr(0, std::uniform_int_distribution<std::size_t>(0, text.size())(random)));
    CHECK(collect_compute_samples(part, "machine x", 50, draw, measure) == expected);
    CHECK(contents(part) == text);
  }
}

TEST_CASE("collected exchange samples: what was written is read back") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  auto const pool = pool_of({100, 1000, 50});
  auto const draw = [&](std::int64_t number) {
    return draw_placement(pool, {.tables = {.seed = tessera::random_seed(seed)}, .devices = 3}, number);
  };
  temporary_folder const folder;
  auto const path = folder.file("exchanges.csv");
  auto const expected = collect_exchange_samples(path, "machine x", 30, draw, planted_exchange);
  REQUIRE(expected.size() == 31);
  auto const again = collect_exchange_samples(path, "machine x", 30, draw, [](exchange_case const&) -> exchange_times { throw killed(); });
  CHECK(again == expected);
  // Not a file of the other kind.
  auto const of_tables = [&](std::int64_t number) { return draw_combination(pool, {.seed = tessera::random_seed(seed)}, number); };
  CHECK_THROWS_AS(collect_compute_samples(path, "machine x", 30, of_tables, planted), tessera::error);
}

TEST_CASE("collected samples: altered and foreign files are refused with their line, and stay as they are") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const pool = pool_of({100, 1000, 50});
  auto const draw_of = [&](std::uint64_t of_seed) {
    return [&, of_seed](std::int64_t number) { return draw_combination(pool, {.seed = tessera::random_seed(of_seed)}, number); };
  };
  temporary_folder const folder;
  auto const path = folder.file("samples.csv");
  collect_compute_samples(path, "machine x", 22, draw_of(seed), planted);
  auto const text = contents(path);
  auto const refused = [&](errc code, std::string const& line, char const* field, std::string const& about, auto const& draw) {
    auto const before = contents(path);
    try {
      collect_compute_samples(path, about, 22, draw, planted);
      FAIL_CHECK("accepted");
    } catch (tessera::error const& e) {
      CAPTURE(std::string(e.what()));
      CHECK(e.code() == code);
      CHECK(e.value("file") == path);
      CHECK(e.value("line") == line);
      CHECK(e.value("field") == field);
    }
    CHECK(contents(path) == before);
  };
  refused(errc::incompatible, "1", "", "machine y", draw_of(seed));
  refused(errc::incompatible, "3", "tables", "machine x", draw_of(seed + 1));
  // Any byte but the last line's end, which would make the line a part.
  for (int repeat = 0; repeat < 200; ++repeat) {
    auto altered = text;
    auto const place = std::uniform_int_distribution<std::size_t>(0, text.size() - 2)(random);
    auto const byte = static_cast<char>(std::uniform_int_distribution<int>(32, 126)(random));
    if (altered[place] == byte) continue;
    altered[place] = byte;
    write_file(path, altered);
    CAPTURE(altered.substr(place < 20 ? 0 : place - 20, 40));
    CHECK_THROWS_AS(collect_compute_samples(path, "machine x", 22, draw_of(seed), planted), tessera::error);
    CHECK(contents(path) == altered);
  }
  // A line that is missing, and a time that is none, though their checksums are right.
  auto lines = tessera::detail::split_text(text.substr(0, text.size() - 1), '\n');
  auto without = lines;
  without.erase(without.begin() + 4);
  write_file(path, tessera::detail::joined_text(without, '\n') + "\n");
  refused(errc::incompatible, "5", "sample", "machine x", draw_of(seed));
  auto fields = tessera::detail::split_text(lines[6], ',');
  fields.pop_back();
  fields[5] = "-1";
  auto const line = tessera::detail::joined_text(fields, ',') + ",";
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", tessera::crc32_of(std::string_view(line)));
  lines[6] = line + digits;
  write_file(path, tessera::detail::joined_text(lines, '\n') + "\n");
  refused(errc::parse_error, "7", "backward_ms", "machine x", draw_of(seed));
  for (auto const* const foreign : {"a", "a\n", "\n", "# tessera compute samples 1; machine xy"}) {
    write_file(path, foreign);
    refused(errc::incompatible, "1", "", "machine x", draw_of(seed));
  }
  CHECK_THROWS_AS(collect_compute_samples(path, "two\nlines", 1, draw_of(seed), planted), tessera::error);
}

TEST_CASE("median_samples and fastest_samples: of collections of the same steps") {
  std::vector<tessera::compute_sample> first(3);
  first[1].number = 1, first[1].is_repeat = true;
  first[2].number = 1;
  for (auto& one : first) one.combination.batch_samples = 64;
  auto second = first, third = first;
  second.erase(second.begin() + 1);  // repeats may be elsewhere
  first[0].times = {1, 20, 30}, second[0].times = {2, 10, 31}, third[0].times = {9, 15, 29};
  first[2].times = {4, 4, 8}, second[1].times = {4, 4, 8}, third[2].times = {40, 40, 80};
  auto const found = tessera::median_samples({first, second, third});
  REQUIRE(found.size() == 2);
  CHECK(found[0].times == tessera::compute_times{2, 15, 30});
  CHECK(found[1].times == tessera::compute_times{4, 4, 8});
  CHECK(found[1].number == 1);
  CHECK(found[0].combination == first[0].combination);
  auto const fastest = tessera::fastest_samples({first, second, third});
  REQUIRE(fastest.size() == 2);
  CHECK(fastest[0].times == tessera::compute_times{1, 10, 29});
  CHECK(fastest[1].times == tessera::compute_times{4, 4, 8});
  CHECK(fastest[1].number == 1);
  CHECK(tessera::median_samples(std::vector<std::vector<tessera::compute_sample>>{first}).size() == 2);
  CHECK(tessera::median_samples({}).empty());
  auto const refused = [&](std::vector<std::vector<tessera::compute_sample>> const& all, char const* collection, char const* sample) {
    for (bool const is_median : {true, false}) {
      auto const e = error_of([&] { is_median ? tessera::median_samples(all) : tessera::fastest_samples(all); });
      CHECK(e.code() == errc::incompatible);
      CHECK(std::string(e.what()).starts_with(is_median ? "median_samples" : "fastest_samples"));
      CHECK(e.value("collection") == collection);
      CHECK(e.value("sample") == sample);
    }
  };
  third[2].combination.batch_samples = 65;
  refused({first, second, third}, "2", "1");
  second.pop_back();
  refused({first, second}, "1", "1");
  refused({second, first}, "1", "1");
}

TEST_CASE("relative_noise: of what was measured twice") {
  std::vector<double> const first{10, 20}, second{12, 20};
  // (2 / 11)^2 / 2 and 0, their mean's root.
  CHECK(tessera::relative_noise(tessera::vector_view<double const>(first), second) == doctest::Approx(2.0 / 11 / 2));
  CHECK(tessera::relative_noise(std::vector<tessera::compute_sample>{}) == 0);
  std::vector<tessera::compute_sample> samples(3);
  samples[1].number = 1;
  samples[2].is_repeat = true;
  samples[0].times.step_ms = 10, samples[1].times.step_ms = 77, samples[2].times.step_ms = 12;
  CHECK(tessera::relative_noise(samples) == doctest::Approx(2.0 / 11 / std::sqrt(2.0)));
}

}  // namespace cost_samples_test
