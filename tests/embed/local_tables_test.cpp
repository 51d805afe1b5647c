// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 6
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/row_optimizer.hpp>

#include "embedding_source_suite.hpp"

using namespace embed_tests;

static_assert(std::is_nothrow_move_constructible_v<tessera::table_list> && std::is_nothrow_move_assignable_v<tessera::table_list>);

namespace {

tessera::table_options without_rows(tessera::table_options options) {
  options.rows = 0;
  return options;
}

tessera::local_tables source_of(source_problem const& problem, tessera::table_list tables) {
  return {std::move(tables), problem.features, {.sums = problem.sums}};
}

struct dense_maker {
  using source_type = tessera::local_tables;
  static constexpr bool refuses_ids = true;
  static source_type make(tessera::host_exec const& exec, source_problem const& problem) {
    tessera::table_list tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::dense_table<>(exec, problem.tables[t], tessera::sgd{}), tessera::sgd{.learning_rate = problem.rates[t]});
    return source_of(problem, std::move(tables));
  }
};

struct hashed_maker {
  using source_type = tessera::local_tables;
  static constexpr bool refuses_ids = false;
  static source_type make(tessera::host_exec const& exec, source_problem const& problem) {
    tessera::table_list tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::hash_table<>(exec, without_rows(problem.tables[t]), tessera::sgd{}),
                 tessera::sgd{.learning_rate = problem.rates[t]});
    return source_of(problem, std::move(tables));
  }
};

// Tables 0 and 2 evict, though they never need to; a batch must not find its own rows gone.
struct mixed_maker {
  using source_type = tessera::local_tables;
  static constexpr bool refuses_ids = true;
  using evicting = tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>;
  static source_type make(tessera::host_exec const& exec, source_problem const& problem) {
    tessera::table_list tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t) {
      tessera::sgd const optimizer{.learning_rate = problem.rates[t]};
      auto options = problem.tables[t];
      if (t == 0 || t == 2) {
        options.rows = 0;
        options.batches_in_flight = 2;
        tables.add(evicting(exec, options, optimizer), optimizer);
      } else if (t == 3) {
        tables.add(tessera::hash_table<>(exec, without_rows(options), optimizer), optimizer);
      } else {
        tables.add(tessera::dense_table<>(exec, options, optimizer), optimizer);
      }
    }
    CHECK(tables.group_count() == 3);
    return source_of(problem, std::move(tables));
  }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("local_tables of dense tables", dense_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("local_tables of hashed tables", hashed_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("local_tables of three kinds", mixed_maker)

TEST_CASE("local_tables: tables of every kind do what they do on their own, bit for bit") {
  with_random_host([](tessera::host_exec const& exec, std::mt19937_64& random) {
    std::normal_distribution<float> draw;
    using small_table = tessera::dense_table<tessera::scaled_int8>;
    using evicting = tessera::hash_table<tessera::bfloat16, tessera::admit_all, tessera::evict_lru>;
    tessera::rowwise_adagrad const adagrad{.learning_rate = 0.1F};
    tessera::adam const adam{.learning_rate = 0.01F};
    tessera::table_options const of_small{
        .id = tessera::table_id{1}, .dim = 17, .rows = source_ids, .init_bound = 1, .seed = tessera::random_seed{8}};
    tessera::table_options const of_evicting{
        .id = tessera::table_id{2}, .dim = 32, .init_bound = 1, .seed = tessera::random_seed{8}, .most_rows = 30};
    std::vector<small_table> small;
    std::vector<evicting> hashed;
    small.emplace_back(exec, of_small, adagrad);
    hashed.emplace_back(exec, of_evicting, adam);
    tessera::table_list tables;
    CHECK(tables.add(small_table(exec, of_small, adagrad), adagrad) == 0);
    CHECK(tables.add(evicting(exec, of_evicting, adam), adam) == 1);
    tessera::local_tables source(std::move(tables), {{.name = "a", .table = 0}, {.name = "b", .table = 1}, {.name = "c", .table = 0}});
    std::vector<tessera::pooled_feature> const of_first{{.table = 0}, {.table = 0}}, of_second{{.table = 0}};
    tessera::local_tables_saved saved;
    tessera::lookup_saved first, second;
    for (int step = 0; step < 12; ++step) {
      CAPTURE(step);
      std::vector<tessera::feature_rows<>> keys;
      for (auto const* name : {"a", "c", "b"}) {
        std::vector<std::vector<std::int64_t>> rows;
        for (int i = 0; i < 9; ++i) rows.push_back(tessera_tests::random_integers<std::int64_t>(random, random() % 4, 0, source_ids - 1));
        keys.emplace_back(name, rows);
      }
      auto const dense_keys = tessera::keyed_jagged<>::from_rows(exec, {keys[0], keys[1]});
      auto const hashed_keys = tessera::keyed_jagged<>::from_rows(exec, {keys[2]});
      auto const all_keys = tessera::keyed_jagged<>::from_rows(exec, {keys[0], keys[2], keys[1]});
      std::vector<float> values(9 * (17 + 32 + 17)), expected(values.size()), gradients(values.size());
      for (auto& x : gradients) x = draw(random);
      auto const blocks = [](std::vector<float>& of) {
        return std::vector<tessera::matrix_view<float>>{{of.data(), 9, 17}, {of.data() + 9 * 17, 9, 32}, {of.data() + 9 * 49, 9, 17}};
      };
      auto const out = blocks(values), alone = blocks(expected), back = blocks(gradients);
      std::vector<tessera::matrix_view<float>> const alone_first{alone[0], alone[2]}, alone_second{alone[1]};
      std::vector<tessera::matrix_view<float const>> const all_back{back[0], back[1], back[2]}, back_first{back[0], back[2]},
          back_second{back[1]};
      tessera::batch_view batch;
      batch.dense = {nullptr, 9, 0};
      batch.sparse = all_keys.view();
      source.begin(exec, batch, saved);
      source.finish(exec, saved, out);
      tessera::pooled_lookup(exec, small, of_first, dense_keys.view(), alone_first, first);
      tessera::pooled_lookup(exec, hashed, of_second, hashed_keys.view(), alone_second, second);
      CHECK(same_bits(values, expected));
      source.begin_backward(exec, saved, all_back);
      source.finish_backward(exec, saved);
      tessera::pooled_lookup_backward(exec, small, of_first, first, back_first, adagrad);
      tessera::pooled_lookup_backward(exec, hashed, of_second, second, back_second, adam);
      auto const& here = source.store<small_table>(0);
      for (std::int64_t id = 0; id < source_ids; ++id) {
        CHECK(same_bits(values_of_row(here, id), values_of_row(small[0], id)));
        CHECK(here.state(id)[0] == small[0].state(id)[0]);
      }
      auto const& there = source.store<evicting>(1);
      CHECK(there.rows() == hashed[0].rows());
      CHECK(there.steps() == hashed[0].steps());
      std::vector<std::int64_t> ids;
      hashed[0].for_each_row([&](std::int64_t, std::int64_t id) { ids.push_back(id); });
      auto const slots = find(exec, there, ids), slots_alone = find(exec, hashed[0], ids);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        REQUIRE(slots[i] >= 0);
        CHECK(same_bits(values_of_row(there, slots[i]), values_of_row(hashed[0], slots_alone[i])));
        CHECK(same_bits(there.state(slots[i]), hashed[0].state(slots_alone[i]), 64));
      }
    }
  });
}

TEST_CASE("local_tables: what is saved of a batch may have served hashed tables before, or an order that is another batch's") {
  with_random_host([](tessera::host_exec const& exec, std::mt19937_64& random) {
    auto const problem = usual_problem(tessera::shared_gradients::expanded);
    auto hashed = hashed_maker::make(exec, problem);
    auto dense = dense_maker::make(exec, problem);
    naive_source naive(problem);
    std::normal_distribution<float> draw;
    tessera::local_tables_saved saved;
    source_batch const first(exec, problem, draw_source_rows(random, 50), true), second(exec, problem, draw_source_rows(random, 20), true);
    for (auto const* batch : {&first, &second}) batch->fill_gradients([&] { return draw(random); });
    forward(exec, hashed, first, saved);
    backward(exec, hashed, first, saved);
    forward(exec, dense, second, saved);
    backward(exec, dense, second, saved);
    naive.add_gradients(second);
    naive.update();
    dense.predict(exec, second.view(), second.out());
    CHECK(naive.gives(second));

    auto merged = dense_maker::make(exec, usual_problem());
    auto rows = draw_source_rows(random, 20);
    rows[0][3] = {1, 2};
    source_batch const one(exec, usual_problem(), rows, false);
    rows[0][3] = {1, 3};  // as many values
    source_batch const other(exec, usual_problem(), rows, false);
    tessera::row_order order;
    merged.prepare(exec, one.view(), order);
    if constexpr (tessera::checked) {
      CHECK(tessera_tests::error_of([&] { merged.begin(exec, other.view(), saved, order); }).code() == tessera::errc::shape_mismatch);
      CHECK(tessera_tests::error_of([&] { merged.finish(exec, saved, other.out()); }).code() == tessera::errc::invalid_argument);
    } else {
      merged.begin(exec, one.view(), saved, order);
      merged.finish(exec, saved, one.out());
    }
  });
}

TEST_CASE("local_tables: a table and its optimizer are found by their types; what does not fit is refused by name") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  using tessera_tests::error_of;
  auto const table = [&](std::int64_t id) {
    return tessera::dense_table<>(exec, {.id = tessera::table_id{id}, .dim = 4, .rows = 3}, tessera::sgd{});
  };
  tessera::table_list tables;
  tables.add(table(1), tessera::sgd{.learning_rate = 2});
  CHECK(error_of([&] { tables.add(table(2), tessera::adam{}); }).code() == tessera::errc::incompatible);
  CHECK(error_of([&] { tables.add(table(2), tessera::sgd{.learning_rate = -1}); }).code() == tessera::errc::invalid_argument);
  CHECK(tables.size() == 1);
  tables.add(table(5), tessera::sgd{.learning_rate = 3});
  tessera::local_tables source(std::move(tables), {{.name = "x", .table = 1}, {.name = "y", .table = 0, .sequence = true}});
  CHECK(source.group_count() == 1);
  CHECK(source.outputs().size() == 2);
  CHECK(source.outputs()[1].name == "y");
  CHECK(source.outputs()[1].sequence);
  CHECK(source.outputs()[1].width == 4);
  CHECK(source.bytes() == source.store<tessera::dense_table<>>(0).bytes() + source.store<tessera::dense_table<>>(1).bytes());
  source.optimizer<tessera::sgd>(1).learning_rate = 7;
  CHECK(source.optimizer<tessera::sgd>(1).learning_rate == 7);
  CHECK(source.optimizer<tessera::sgd>(0).learning_rate == 2);
  CHECK(error_of([&] { source.store<tessera::hash_table<>>(0); }).code() == tessera::errc::incompatible);
  CHECK(error_of([&] { source.optimizer<tessera::adam>(0); }).code() == tessera::errc::incompatible);
  CHECK(error_of([&] { source.store<tessera::dense_table<>>(2); }).code() == tessera::errc::out_of_range);

  auto const built = [&](std::vector<std::int64_t> const& ids, std::vector<tessera::table_feature> const& features,
                         tessera::local_tables_options const& options = {}) {
    return error_of([&] {
      tessera::table_list list;
      for (auto const id : ids) list.add(table(id), tessera::sgd{});
      tessera::local_tables(std::move(list), features, options);
    });
  };
  CHECK(std::string(built({1, 2, 1}, {}).what()) == "local_tables: tables of one list differ in their ids (table 0, and table 2, id 1)");
  CHECK(built({1}, {{.name = "x", .table = 1}}).code() == tessera::errc::out_of_range);
  CHECK(built({1}, {{.name = "x", .pooling = tessera::pooling(7)}}).code() == tessera::errc::invalid_argument);
  CHECK(built({1}, {}, {.sums = tessera::shared_gradients(5)}).code() == tessera::errc::invalid_argument);
}

TEST_CASE("local_tables: scaled gradients of a sequence do what a weighted bag's do, bit for bit; other numbers of scales are refused") {
  with_random_host([](auto const& exec, std::mt19937_64& random) {
    auto bags = usual_problem(), sequences = usual_problem();
    for (auto& feature : bags.features) feature.sequence = false, feature.pooling = tessera::pooling::sum;
    for (auto& feature : sequences.features) feature.sequence = true;
    auto pooled = hashed_maker::make(exec, bags), apart = hashed_maker::make(exec, sequences);
    tessera::local_tables_saved of_pooled, of_apart;
    std::normal_distribution<float> draw;
    for (int step = 0; step < 3; ++step) {
      auto const rows = draw_source_rows(random, 30);
      source_batch const whole(exec, bags, rows, false, true), single(exec, sequences, rows, false, true);
      whole.fill_gradients([&] { return draw(random); });
      for (std::size_t key = 0; key < rows.size(); ++key) {
        std::int64_t i = 0;
        for (std::size_t sample = 0; sample < rows[key].size(); ++sample)
          for (std::size_t n = 0; n < rows[key][sample].size(); ++n, ++i)
            std::copy_n(whole.gradient_blocks()[key].row(static_cast<std::int64_t>(sample)), whole.gradient_blocks()[key].columns(),
                        single.gradient_blocks()[key].row(i));
      }
      forward(exec, pooled, whole, of_pooled);
      backward(exec, pooled, whole, of_pooled);
      forward(exec, apart, single, of_apart);
      auto const batch = single.view().sparse;
      tessera::vector_view<float const> const scales{batch.weights + batch.first_value(), batch.size()};
      auto const e = tessera_tests::error_of(
          [&] { apart.begin_scaled_backward(exec, of_apart, single.gradients(), scales.slice(0, batch.size() - 1)); });
      CHECK(e.code() == tessera::errc::shape_mismatch);
      CHECK(e.value("scales") == std::to_string(batch.size() - 1));
      CHECK(tessera_tests::error_of([&] { apart.finish_backward(exec, of_apart); }).code() == tessera::errc::invalid_argument);
      apart.begin_scaled_backward(exec, of_apart, single.gradients(), scales);
      apart.finish_backward(exec, of_apart);
      CHECK(same_bits(all_rows(exec, bags, pooled), all_rows(exec, sequences, apart)));
    }
  });
}
