// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/data/sparse_pipeline.hpp>

#include <limits>
#include <map>
#include <optional>

#include <tessera/tensor/truncate_rows.hpp>

#include "preprocessing_support.hpp"

namespace sparse_pipeline_test {

namespace {

using namespace preprocessing_tests;

/// Columns "history" and "tags" of lists, "item" and "place" of single ids.
sample_schema const schema{.label = "label", .sparse = {"history", "tags", "item", "place"}, .single = {"item", "place"}};

table random_table(std::mt19937_64& random, std::int64_t rows = 500) {
  auto const samples = sample_tests::random_samples(random, {.rows = rows, .dense = 0, .sparse = 4, .single = 2});
  return {schema, samples};
}

struct batch {
  tessera_tests::pool host{2};
  sample_columns columns;

  explicit batch(table const& data) : columns(data.all(host.exec())) {}
  std::vector<id_rows> apply(sparse_pipeline const& pipeline, std::vector<std::string> const& keys,
                             std::vector<std::int64_t> const& groups = {}) {
    return ids_of(host.exec(), pipeline, schema, columns.view(), keys, groups);
  }
  id_rows stored(std::size_t column) const {
    id_rows rows;
    for (std::int64_t row = 0; row < columns.size(); ++row) {
      auto const ids = columns.view().sparse[static_cast<std::int64_t>(column)].row(row);
      rows.emplace_back(ids.begin(), ids.end());
    }
    return rows;
  }
};

/// What a column's rows become where f makes an id of an id, and of a missing one of a single column `missing`, or nothing.
template <class F>
id_rows by_hand(id_rows rows, bool is_single, std::optional<std::int64_t> missing, F const& f) {
  for (auto& row : rows) {
    if (is_single && row == std::vector{missing_id}) {
      row.clear();
      if (missing) row.push_back(*missing);
      continue;
    }
    for (auto& id : row) id = f(id);
  }
  return rows;
}

}  // namespace

TEST_CASE("sparse_pipeline: hashes are hash_ids of the column's name, a missing id has the last row or none") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  batch data(random_table(random));
  constexpr std::int64_t size = 37;
  for (auto const policy : {missing_policy::own_id, missing_policy::no_id}) {
    sparse_pipeline const p(schema, {{.steps = {hash_ids{.size = size, .seed = 8}}, .missing = policy}});
    CHECK_FALSE(p.needs_fit());
    for (auto const& groups : {std::vector<std::int64_t>{}, {2, 1}}) {
      auto const ids = data.apply(p, schema.sparse, groups);
      for (std::size_t c = 0; c < 4; ++c) {
        CAPTURE(c);
        auto const hash = hash_ids{.size = size, .seed = 8}.of_key({0, salt_of(schema.sparse[c])});
        auto const own = policy == missing_policy::own_id ? std::optional(size) : std::nullopt;
        CHECK(ids[c] == by_hand(data.stored(c), c >= 2, own, hash));
        CHECK(p.id_count(schema.sparse[c]) == (c >= 2 && own ? size + 1 : size));
      }
    }
  }
}

TEST_CASE("sparse_pipeline: columns without a rule are as stored, and a missing id is an empty row") {
  std::mt19937_64 random(5);
  batch data(random_table(random, 300));
  sparse_pipeline const p(schema);
  auto const ids = data.apply(p, {"place", "history", "item"}, {2});
  auto const same = [](std::int64_t id) { return id; };
  CHECK(ids[0] == by_hand(data.stored(3), true, {}, same));
  CHECK(ids[1] == data.stored(0));
  CHECK(ids[2] == by_hand(data.stored(2), true, {}, same));
  for (auto const& name : schema.sparse) CHECK_FALSE(p.id_count(name));
  // In a list the smallest integer is an id like others.
  std::vector<sample_tests::sample> samples(2);
  for (auto& s : samples) s.sparse = {{missing_id, 3}, {}, {4}, {5}};
  batch odd(table(schema, samples));
  sparse_pipeline const hashed(schema, {{.steps = {modulo_ids{.size = 10}}}});
  CHECK(odd.apply(hashed, {"history"})[0][0] == std::vector<std::int64_t>{2, 3});  // -2^63 is 2 modulo 10
}

TEST_CASE("sparse_pipeline: remainders, bounds, bins and truncation, one behind the other") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  batch data(random_table(random));
  sparse_pipeline const p(schema, {{.columns = {"history"}, .steps = {modulo_ids{.size = 100}, truncate_ids{.most = 2}}},
                                   {.columns = {"tags"}, .steps = {truncate_ids{.most = 1, .kept = kept_values::first}, clip_ids{3, 500}}},
                                   {.columns = {"item"}, .steps = {clip_ids{-5, 5}}},
                                   {.steps = {clip_ids{0, 600}, bin_ids{{10, 20, 599}}}}});
  auto const ids = data.apply(p, schema.sparse);
  auto history = data.stored(0), tags = data.stored(1);
  for (auto& row : history)
    if (row.size() > 2) row.erase(row.begin(), row.end() - 2);
  for (auto& row : tags)
    if (row.size() > 1) row.resize(1);
  CHECK(ids[0] == by_hand(history, false, {}, [](std::int64_t id) { return ((id % 100) + 100) % 100; }));
  CHECK(ids[1] == by_hand(tags, false, {}, [](std::int64_t id) { return std::clamp<std::int64_t>(id, 3, 500); }));
  CHECK(ids[2] == by_hand(data.stored(2), true, {}, [](std::int64_t id) { return std::clamp<std::int64_t>(id, -5, 5); }));
  CHECK(ids[3] == by_hand(data.stored(3), true, 4, [](std::int64_t id) { return (id >= 10) + (id >= 20) + std::int64_t{id >= 599}; }));
  CHECK(p.id_count("history") == 100);
  CHECK(p.id_count("tags") == 501);
  CHECK_FALSE(p.id_count("item"));
  CHECK(p.id_count("place") == 5);
}

TEST_CASE("sparse_pipeline: vocabularies, and columns that are dropped with their groups") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  batch data(random_table(random));
  tessera_tests::serial_host h;
  std::vector<std::int64_t> const values{7, 500, -3, 0};
  for (auto const policy : {missing_policy::own_id, missing_policy::no_id}) {
    sparse_pipeline p(h.exec(), schema, {{.columns = {"place", "history"}, .steps = {vocabulary{}}, .missing = policy, .share = "v"}},
                      {{"v", values}}, {"tags"});
    CHECK_FALSE(p.needs_fit());
    CHECK(p.kept() == std::vector<std::string>{"history", "item", "place"});
    CHECK(p.vocabularies() == 1);
    CHECK(p.vocabulary_name(0) == "v");
    CHECK(p.id_count("place") == 6);
    CHECK(p.bytes() > sizeof(p));
    auto const number = [&](std::int64_t id) {
      auto const found = std::find(values.begin(), values.end(), id);
      return found == values.end() ? vocabulary::unknown : vocabulary::first_value + (found - values.begin());
    };
    auto const bound = p.of_keys({"tags", "place", "history"});
    auto const moved = std::move(p);  // what is bound refers to what does not move
    CHECK(bound.keys() == std::vector<std::string>{"place", "history"});
    for (auto const& groups : {std::vector<std::int64_t>{}, {1}, {2}, {3}}) {
      auto const exec = data.host.exec();
      auto const out = bound(
          exec, batch_of(exec, schema, data.columns.view(), {"tags", "place", "history"}, groups).named({"tags", "place", "history"}));
      CHECK(out.keys() == bound.keys());
      CHECK(out.view().groups.size() == (groups.empty() || groups[0] == 1 ? 0 : 1));
      auto const all = expand(exec, out.view());
      auto const ids = lists_of(all.view());
      auto const missing = policy == missing_policy::own_id ? std::optional(vocabulary::missing) : std::nullopt;
      CHECK(ids[0] == by_hand(data.stored(3), true, missing, number));
      CHECK(ids[1] == by_hand(data.stored(0), false, {}, number));
    }
  }
}

TEST_CASE("sparse_pipeline: columns that share are hashed alike and need the same rows") {
  std::mt19937_64 random(3);
  batch data(random_table(random));
  constexpr std::int64_t size = 1000;
  auto const hash = hash_ids{.size = size, .as_key = "item"}.of_key({0, 0});
  // A column takes the steps of those it shares with, and a column is of the share that has its name.
  for (auto const& rules :
       {std::vector<sparse_rule>{{.columns = {"history"}, .steps = {truncate_ids{.most = 1}, hash_ids{.size = size}}, .share = "item"}},
        {{.columns = {"history"}, .steps = {truncate_ids{.most = 1}}, .share = "item"},
         {.columns = {"item"}, .steps = {hash_ids{.size = size}}}}}) {
    sparse_pipeline const p(schema, rules);
    auto const ids = data.apply(p, {"history", "item", "tags"});
    auto history = data.stored(0);
    for (auto& row : history)
      if (row.size() > 1) row.erase(row.begin(), row.end() - 1);
    CHECK(ids[0] == by_hand(history, false, {}, hash));
    CHECK(ids[1] == by_hand(data.stored(2), true, size, hash));
    CHECK(ids[2] == data.stored(1));
    CHECK(p.id_count("history") == size + 1);
    CHECK(p.id_count("item") == size + 1);
  }
}

TEST_CASE("sparse_pipeline: ids change in place; a batch is copied only where rows change") {
  std::mt19937_64 random(4);
  batch data(random_table(random));
  auto const exec = data.host.exec();
  sparse_pipeline const p(schema, {{.steps = {hash_ids{.size = 50}}}});
  auto const bound = p.of_keys({"item", "place"});
  auto in = batch_of(exec, schema, data.columns.view(), {"item", "place"}, {});
  auto const* const values = in.view().distinct.values;
  auto const before = data.host.memory().allocations();
  auto const out = bound(exec, std::move(in));
  CHECK(out.view().distinct.values == values);
  CHECK(data.host.memory().allocations() == before);
}

TEST_CASE("sparse_pipeline: what cannot be is named") {
  auto const refusal = [](std::vector<sparse_rule> const& rules) { return error_of([&] { sparse_pipeline(schema, rules); }); };
  auto const of_item = [&](std::vector<id_step> steps, std::string share = {}) {
    return refusal({{.columns = {"item"}, .steps = std::move(steps), .share = std::move(share)}});
  };
  CHECK(refusal({{.columns = {"shop"}}}).value("column") == "shop");
  CHECK(refusal({{.columns = {"item"}}, {.columns = {"item"}}}).value("column") == "item");
  CHECK(of_item({hash_ids{}}).value("size") == "0");
  CHECK(of_item({hash_ids{.size = -4}}).value("column") == "item");
  CHECK(of_item({hash_ids{.size = std::numeric_limits<std::int64_t>::max()}}).value("column") == "item");
  CHECK(of_item({hash_ids{.size_per_key = {3}}}).value("numbers") == "1");
  CHECK(of_item({hash_ids{.size = 5, .as_key = "x"}}, "y").value("as_key") == "x");
  CHECK(of_item({modulo_ids{}}).value("size") == "0");
  CHECK(of_item({truncate_ids{.most = -1}}).value("most") == "-1");
  CHECK(of_item({truncate_ids{.most_per_key = {1}}}).value("numbers") == "1");
  CHECK(of_item({truncate_ids{.most = 1}, truncate_ids{.most = 2}}).value("most") == "2");
  CHECK(of_item({clip_ids{2, 1}}).value("least") == "2");
  CHECK(of_item({bin_ids{{3, 3}}}).value("position") == "1");
  CHECK(of_item({vocabulary{.min_count = 0}}).value("min_count") == "0");
  CHECK(of_item({vocabulary{.limit = -1}}).value("limit") == "-1");
  auto const both = std::string("sparse_pipeline: a hash and a vocabulary exclude each other");
  CHECK(of_item({vocabulary{}, hash_ids{.size = 4}}).sentence() == both);
  CHECK(of_item({hash_ids{.size = 4}, vocabulary{}}).sentence() == both);
  CHECK(of_item({vocabulary{}, modulo_ids{.size = 4}}).sentence() == "sparse_pipeline: a step behind a vocabulary");
  auto const other = refusal(
      {{.columns = {"item"}, .steps = {hash_ids{.size = 4}}}, {.columns = {"history"}, .steps = {hash_ids{.size = 5}}, .share = "item"}});
  CHECK(other.value("share") == "item");
  CHECK(other.value("column") == "history");
  CHECK(other.value("other column") == "item");

  tessera_tests::serial_host h;
  sparse_pipeline const unfitted(schema, {{.columns = {"item"}, .steps = {vocabulary{}}}});
  CHECK(unfitted.needs_fit());
  CHECK(error_of([&] { unfitted.id_count("item"); }).value("column") == "item");
  CHECK(error_of([&] { unfitted.of_keys({"place", "item"}); }).value("column") == "item");
  CHECK(unfitted.of_keys({"place"}).keys().size() == 1);
  CHECK(error_of([&] { unfitted.of_keys({"place", "place"}); }).value("key") == "place");
  CHECK(error_of([&] { unfitted.of_keys({"shop"}); }).value("column") == "shop");
  auto const restored = [&](std::vector<fitted_vocabulary> const& values, std::vector<std::string> const& dropped = {}) {
    return error_of([&] { sparse_pipeline(h.exec(), schema, unfitted.rules(), values, dropped); });
  };
  CHECK(restored({{"place", {}}}).value("vocabulary") == "place");
  CHECK(restored({{"item", {}}, {"item", {}}}).value("vocabulary") == "item");
  CHECK(restored({{"item", {1, 2, 1}}}).value("value") == "1");
  CHECK(restored({}, {"shop"}).value("column") == "shop");

  sparse_pipeline const stored(schema);
  auto const bound = stored.of_keys({"item"});
  std::mt19937_64 random(1);
  batch data(random_table(random, 5));
  auto const exec = data.host.exec();
  CHECK(error_of([&] { bound(exec, batch_of(exec, schema, data.columns.view(), {"item", "place"}, {})); }).value("keys") == "2");
  CHECK(error_of([&] { bound(exec, batch_of(exec, schema, data.columns.view(), {"place"}, {}).named({"place"})); }).value("key") ==
        "place");
}

}  // namespace sparse_pipeline_test
