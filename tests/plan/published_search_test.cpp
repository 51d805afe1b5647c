// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads values
#include <tessera/plan/published_search.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/plan/published_cost.hpp>

#include "random.hpp"
#include "random_models.hpp"
#include "temporary_folder.hpp"

namespace published_search_test {

using tessera::errc;
using tessera::matrix_view;
using tessera::published_cost;
using tessera::published_search_options;
using tessera::table_profile;
using tessera::table_shard;
using tessera::vector_view;
using tessera_tests::error_of;

namespace {

template <class M>
tessera::found_plan published_search(std::vector<table_profile> const& tables, M const& model, published_search_options const& options,
                                     int threads = 1) {
  tessera::thread_pool team(threads);
  tessera::system_memory memory;
  return tessera::published_search(tessera::host_exec(team, memory), tables, model, options);
}

// The algorithms as they are described, with every network computed from the beginning whenever a cost is needed.
class plain_search {
 public:
  plain_search(published_cost const& model, published_search_options const& options) : model_(model), options_(options) {}

  struct piece {
    std::int64_t table, first_column;
    table_profile profile;
  };
  struct outcome {
    float cost = infinity;
    std::vector<std::int64_t> devices = {};
  };
  static constexpr float infinity = std::numeric_limits<float>::infinity();

  std::pair<outcome, std::vector<piece>> search(std::vector<table_profile> const& tables) const {
    std::vector<piece> pieces;
    for (std::size_t t = 0; t < tables.size(); ++t) pieces.push_back({static_cast<std::int64_t>(t), 0, tables[t]});
    auto best = std::pair(grid(pieces), pieces);
    std::vector<std::vector<piece>> beams{pieces};
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      std::vector<std::pair<float, std::vector<piece>>> next;
      for (auto const& beam : beams) {
        std::vector<double> sizes, costs;
        for (auto const& one : beam) {
          sizes.push_back(static_cast<double>(bytes(one.profile)));
          costs.push_back(static_cast<double>(compute({one.profile})));
        }
        std::vector<bool> chosen(beam.size());
        for (auto const* by : {&sizes, &costs})
          for (std::size_t i = 0; i < beam.size(); ++i) {
            // How many come before it.
            std::int64_t before = 0;
            for (std::size_t j = 0; j < beam.size(); ++j) before += (*by)[j] > (*by)[i] || ((*by)[j] == (*by)[i] && j > i);
            if (before < options_.candidates) chosen[i] = true;
          }
        for (std::size_t i = 0; i < beam.size(); ++i) {
          auto const dim = beam[i].profile.dim;
          if (!chosen[i] || dim % 8 != 0) continue;
          auto child = beam;
          child[i].profile.dim = dim / 2;
          child.push_back({child[i].table, child[i].first_column + dim / 2, child[i].profile});
          auto const found = grid(child);
          if (found.cost < best.first.cost) best = {found, child};
          next.emplace_back(found.cost, child);
        }
      }
      std::stable_sort(next.begin(), next.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
      beams.clear();
      for (auto const& one : next)
        if (static_cast<std::int64_t>(beams.size()) < options_.beams) beams.push_back(one.second);
    }
    return best;
  }

 private:
  static std::int64_t bytes(table_profile const& profile) { return profile.rows * profile.dim * 4; }

  float compute(std::vector<table_profile> const& shards) const {
    std::vector<float> sum(static_cast<std::size_t>(model_.width())), one(sum);
    for (auto const& shard : shards) {
      model_.represent(vector_view<table_profile const>(&shard, 1), matrix_view<float>(one.data(), 1, model_.width()));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    float ms = 0;
    model_.compute_ms(matrix_view<float const>(sum.data(), 1, model_.width()), vector_view<float>(&ms, 1));
    return ms;
  }

  outcome grid(std::vector<piece> const& pieces) const {
    if (options_.grid == 0) return greedy(pieces, static_cast<double>(infinity));
    outcome best;
    for (std::int64_t i = 0; i < options_.grid; ++i) {
      auto const found = greedy(pieces, 1.0 + 0.05 * static_cast<double>(i));
      if (found.cost < best.cost) best = found;
    }
    return best;
  }

  outcome greedy(std::vector<piece> const& pieces, double scale) const {
    auto const devices = static_cast<std::size_t>(options_.devices);
    double all = 0;
    std::vector<std::pair<float, std::size_t>> order;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      all += static_cast<double>(pieces[i].profile.dim);
      order.emplace_back(compute({pieces[i].profile}), i);
    }
    std::sort(order.rbegin(), order.rend());
    std::vector<std::vector<table_profile>> held(devices);
    std::vector<double> columns(devices);
    std::vector<std::int64_t> sizes(devices);
    outcome result{0, std::vector<std::int64_t>(pieces.size())};
    for (auto const& [cost, i] : order) {
      auto const& profile = pieces[i].profile;
      std::size_t best = devices;
      std::vector<float> costs;
      for (auto const& of : held) costs.push_back(compute(of));
      for (std::size_t d = 0; d < devices; ++d) {
        if (sizes[d] + bytes(profile) > options_.bytes_per_device) continue;
        if (columns[d] + static_cast<double>(profile.dim) > scale * (all / static_cast<double>(devices))) continue;
        if (best == devices || std::pair(costs[d], sizes[d]) < std::pair(costs[best], sizes[best])) best = d;
      }
      if (best == devices) return {};
      held[best].push_back(profile);
      columns[best] += static_cast<double>(profile.dim);
      sizes[best] += bytes(profile);
      result.devices[i] = static_cast<std::int64_t>(best);
    }
    tessera::device_costs costs(options_.devices);
    std::vector<float> sent;
    for (double const of : columns) sent.push_back(static_cast<float>(of));
    for (std::size_t d = 0; d < devices; ++d) costs.compute[d] = compute(held[d]);
    result.cost = tessera::plan_cost(model_, sent, costs);
    return result;
  }

  published_cost const& model_;
  published_search_options const& options_;
};

// Whether a table's smallest shard fits nowhere, or all tables together do not.
bool is_hopeless(std::vector<table_profile> const& tables, published_search_options const& options) {
  std::int64_t all = 0, largest = 0;
  for (auto const& table : tables) {
    auto dim = table.dim;
    while (dim % 8 == 0) dim /= 2;
    largest = std::max(largest, table.rows * dim * 4);
    all += table.rows * table.dim * 4;
  }
  return largest > options.bytes_per_device || all > options.devices * options.bytes_per_device;
}

// Compares both; returns whether there was a plan.
bool agrees(published_cost const& model, std::vector<table_profile> const& tables, published_search_options const& options) {
  auto const [expected, pieces] = plain_search(model, options).search(tables);
  if (expected.cost == plain_search::infinity) {
    auto const e = error_of([&] { published_search(tables, model, options); });
    CHECK(e.code() == errc::out_of_memory);
    CHECK(e.value("evaluations").empty() == is_hopeless(tables, options));
    return false;
  }
  auto const found = published_search(tables, model, options);
  CHECK(published_search(tables, model, options, 3).shards == found.shards);
  auto anew = options;
  anew.keep_sums = false;
  CHECK(published_search(tables, model, anew).shards == found.shards);
  std::vector<table_shard> shards;
  for (std::size_t s = 0; s < pieces.size(); ++s)
    shards.push_back(
        {pieces[s].table, static_cast<int>(expected.devices[s]), 0, pieces[s].profile.rows, pieces[s].first_column, pieces[s].profile.dim});
  std::sort(shards.begin(), shards.end(),
            [](auto const& a, auto const& b) { return std::pair(a.table, a.first_column) < std::pair(b.table, b.first_column); });
  CHECK(found.shards == shards);
  CHECK(std::abs(found.cost_ms - expected.cost) < 1e-3F);
  for (auto const bytes : found.bytes) CHECK(bytes <= options.bytes_per_device);
  return true;
}

}  // namespace

TEST_CASE("published_search: a plain implementation, all networks from the beginning, finds the same plans") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const draw = [&](std::int64_t least, std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(least, most)(random); };
  int with_plan = 0;
  for (int task = 0; task < 100; ++task) {
    CAPTURE(task);
    published_search_options options{.devices = draw(1, 4), .candidates = draw(1, 6), .beams = draw(1, 3), .steps = draw(0, 6)};
    if (task % 4 == 3) options.grid = draw(0, 1);  // no limit, and one
    auto const model = tessera_tests::random_published_cost(random, options.devices, true);
    std::vector<table_profile> tables;
    std::int64_t all = 0;
    for (auto t = draw(1, 14); t > 0; --t) {
      // Some tables are there twice: ties.
      tables.push_back(!tables.empty() && draw(0, 4) == 0 ? tables.back() : tessera_tests::random_profile(random, 1'000'000, 64));
      all += tables.back().rows * tables.back().dim * 4;
    }
    options.bytes_per_device =
        static_cast<std::int64_t>(static_cast<double>(all / options.devices + 1) * std::uniform_real_distribution<double>(0.95, 2)(random));
    bool const has_plan = agrees(model, tables, options);
    if (options.devices == 1) CHECK(has_plan == (options.bytes_per_device >= all));  // there it cannot miss one
    with_plan += has_plan;
  }
  CHECK(with_plan >= 35);  // about 69, give or take 5
}

TEST_CASE("published_search: networks of the published widths too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int task = 0; task < 3; ++task) {
    published_search_options const options{.devices = 2 + task, .candidates = 3, .beams = 2, .steps = 2};
    auto const model = tessera_tests::random_published_cost(random, options.devices);
    std::vector<table_profile> tables;
    for (int t = 0; t < 10; ++t) tables.push_back(tessera_tests::random_profile(random, 1'000'000, 128));
    agrees(model, tables, options);
  }
}

TEST_CASE("published_search: a plan says what it is, and becomes a plan of ranks") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 2, true);
  // One table that is too large for a device: it is halved.
  auto table = tessera_tests::random_profile(random, 100, 64);
  table.name = "large";
  table.rows = 1000;
  table.dim = 64;
  auto const found =
      published_search(std::vector<table_profile>{table}, model, {.devices = 2, .bytes_per_device = 1000 * 64 * 4 * 3 / 4, .steps = 1});
  REQUIRE(found.shards.size() == 2);
  CHECK(found.shards[0].columns == 32);
  CHECK(found.shards[1].first_column == 32);
  CHECK(found.shards[0].rank != found.shards[1].rank);
  CHECK(found.bytes == std::vector<std::int64_t>{128'000, 128'000});
  auto const plan = found.plan(tessera::topology::flat(2));
  CHECK(plan.shards == found.shards);
  CHECK(plan.partial.empty());
  CHECK(error_of([&] { found.plan(3); }).code() == errc::incompatible);
  std::ostringstream text;
  text << found;
  CHECK(text.str().find("table large: rows 0 to 1000, columns 32 to 64 on device") != std::string::npos);
}

TEST_CASE("published_search: what no plan can fit is proven, by table or by all bytes; else it says how many plans it compared") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 2, true);
  auto const refused = [&](std::int64_t dim, std::size_t count, std::int64_t limit) {
    std::vector<table_profile> tables(count + 1, tessera_tests::random_profile(random, 100, 64));
    for (auto& table : tables) table.name = "t", table.rows = 1'000'000, table.dim = dim;
    tables.front() = {.name = "first", .rows = 1, .dim = 4};
    auto e = error_of([&] { published_search(tables, model, {.devices = 2, .bytes_per_device = limit}); });
    CHECK(e.code() == errc::out_of_memory);
    CHECK(std::string(e.what()).find("published_search: ") == 0);
    CHECK(e.value("bytes_per_device") == std::to_string(limit));
    return e;
  };
  // 24 columns have halves of 12, which are cut no further.
  auto const wide = refused(24, 1, 40'000'000);
  CHECK(wide.value("table") == "t");
  CHECK(wide.value("bytes of the smallest shard") == "48000000");
  CHECK(std::string(wide.what()).find("cut_rows") == std::string::npos);
  CHECK(refused(8, 2, 31'000'000).value("bytes") == "64000016");
  // A device has room for one of three.
  auto const three = refused(4, 3, 25'000'000);
  CHECK(!three.value("evaluations").empty());
  CHECK(three.value("table").empty());
}

TEST_CASE("published_search: bad options are refused by name") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const model = tessera_tests::random_published_cost(random, 2, true);
  std::vector<table_profile> const tables{tessera_tests::random_profile(random, 100, 64)};
  auto const refused = [&](published_search_options const& options, char const* name, std::string const& value) {
    auto const e = error_of([&] { published_search(tables, model, options); });
    CHECK(e.code() == errc::invalid_argument);
    CHECK(e.value(name) == value);
  };
  refused({.devices = 0}, "devices", "0");
  refused({.devices = 3}, "devices of the model", "2");
  refused({.devices = 2, .bytes_per_device = 0}, "bytes_per_device", "0");
  refused({.devices = 2, .candidates = 0}, "candidates", "0");
  refused({.devices = 2, .beams = 0}, "beams", "0");
  refused({.devices = 2, .steps = -1}, "steps", "-1");
  refused({.devices = 2, .grid = -1}, "grid", "-1");
  CHECK(error_of([&] { published_search(std::vector<table_profile>{}, model, {.devices = 2}); }).value("tables") == "0");
}

}  // namespace published_search_test
