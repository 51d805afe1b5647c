// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/lookup_saved.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/prepare_backward.hpp>
#include <tessera/embed/sequence_lookup.hpp>
#include <tessera/embed/sequence_lookup_backward.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "temporary_folder.hpp"

using tessera_tests::error_of;

TEST_CASE_TEMPLATE("without a lookup before it, no backward says that its arguments are wrong", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<Store> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = 2, .rows = 9}, tessera::sgd{});
  std::vector<float> values(4, 1.0F);
  std::vector<tessera::matrix_view<float>> out{{values.data(), 2, 2}};
  std::vector<tessera::matrix_view<float const>> const gradients{out[0]};
  std::vector<tessera::pooled_feature> const pooled{{.table = 0}};
  std::vector<std::int64_t> const sequence{0};
  tessera::lookup_saved saved;
  tessera::row_gradients sums;
  auto const told = [](auto const& call) {
    auto const refused = error_of(call);
    CHECK(refused.code() == tessera::errc::shape_mismatch);
    return std::string(refused.what());
  };
  std::string const sentence = ": nothing is saved: no lookup went before, or it threw (keys 0, features 1)";
  CHECK(told([&] { tessera::pooled_lookup_backward(exec, tables, pooled, saved, gradients, tessera::sgd{}); }) ==
        "pooled_lookup_backward" + sentence);
  CHECK(told([&] { tessera::pooled_lookup_gradients(exec, tables, pooled, saved, gradients, sums); }) ==
        "pooled_lookup_gradients" + sentence);
  CHECK(told([&] { tessera::sequence_lookup_backward(exec, tables, sequence, saved, gradients, tessera::sgd{}); }) ==
        "sequence_lookup_backward" + sentence);
  CHECK(told([&] { tessera::sequence_lookup_gradients(exec, tables, sequence, saved, gradients, sums); }) ==
        "sequence_lookup_gradients" + sentence);
  CHECK(told([&] { tessera::prepare_backward(exec, tables, pooled, saved); }) == "prepare_backward" + sentence);
  CHECK(tables[0].steps() == tessera::step_count(0));

  // No features of no keys are a batch like any other.
  tessera::pooled_lookup_backward(exec, tables, std::vector<tessera::pooled_feature>{}, saved,
                                  std::vector<tessera::matrix_view<float const>>{}, tessera::sgd{});
  CHECK(tables[0].steps() == tessera::step_count(1));
}

TEST_CASE("what a lookup saved: slots where a store gives them, and an order once it is prepared") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<tessera::hash_table<>> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = 2}, tessera::sgd{});
  std::vector<std::int64_t> const features{0};
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{70, 5}, {}, {70}}}});
  std::vector<float> values(6);
  std::vector<tessera::matrix_view<float>> const out{{values.data(), 3, 2}};
  tessera::lookup_saved saved;
  tessera::sequence_lookup(exec, tables, features, batch.view(), out, saved);
  REQUIRE(saved.slots.size() == 3);
  auto const* const slots = saved.slots_of<tessera::hash_table<>>();
  CHECK(slots[0] == slots[2]);
  CHECK(slots[0] != slots[1]);
  CHECK(!saved.order.ready());
  auto const before = saved.bytes();
  tessera::prepare_backward(exec, tables, features, saved);
  CHECK(saved.order.ready());
  CHECK(saved.bytes() > before);
  tessera::sequence_lookup(exec, tables, features, batch.view(), out, saved);
  CHECK(!saved.order.ready());  // of the batch before
}

TEST_CASE("prepare_backward: of dense tables the order is made of the batch alone, before the lookup, and serves the same step") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const make = [&] {
    std::vector<tessera::dense_table<>> tables;
    for (std::int64_t t = 0; t < 2; ++t)
      tables.emplace_back(exec, tessera::table_options{.id = tessera::table_id{t}, .dim = 2, .rows = 9}, tessera::sgd{});
    return tables;
  };
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 8}, {}, {8}}}, {"b", {{0}, {1, 1}, {3}}}, {"c", {{8}, {2}, {}}}});
  auto const part = batch.view().slice_keys(1, 2);  // does not begin at the first value
  std::vector<tessera::pooled_feature> const features{{.table = 1}, {.table = 1, .pooling = tessera::pooling::mean}};
  std::vector<float> values(12, 0.5F);
  std::vector<tessera::matrix_view<float>> const out{{values.data(), 3, 2}, {values.data() + 6, 3, 2}};
  std::vector<tessera::matrix_view<float const>> const gradients{out[0], out[1]};
  std::vector<float> weights[2];
  for (bool const ahead : {false, true}) {
    auto tables = make();
    tessera::lookup_saved saved;
    tessera::row_order order;
    if (ahead) tessera::prepare_backward(exec, tables, features, part, order);
    CHECK(order.ready() == ahead);
    tessera::pooled_lookup(exec, tables, features, part, out, saved);
    if (ahead) std::swap(saved.order, order);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients, tessera::sgd{.learning_rate = 0.5F});
    for (auto const& table : tables)
      for (std::int64_t id = 0; id < 9; ++id) weights[ahead].insert(weights[ahead].end(), table.row(id), table.row(id) + 2);
  }
  CHECK(weights[0] == weights[1]);
  auto const tables = make();
  tessera::row_order order;
  tessera::prepare_backward(exec, tables, features, part, order);
  std::vector<tessera::pooled_feature> const no_table{{.table = 0}, {.table = 2}};
  CHECK(std::string(error_of([&] { tessera::prepare_backward(exec, tables, no_table, part, order); }).what()) ==
        "prepare_backward: no such table (feature 1, table 2, tables 2)");
  CHECK_FALSE(order.ready());
}

TEST_CASE_TEMPLATE("a lookup that is refused leaves nothing of the batch before to a backward", Store, TESSERA_TEST_STORES) {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<Store> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = 2, .rows = 9}, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}}}});
  std::vector<float> values(4, 1.0F);
  std::vector<tessera::matrix_view<float>> const out{{values.data(), 2, 2}}, narrow{{values.data(), 2, 1}};
  std::vector<tessera::matrix_view<float const>> const gradients{out[0]};
  std::vector<tessera::pooled_feature> const pooled{{.table = 0, .pooling = tessera::pooling::max}};
  std::vector<std::int64_t> const sequence{0};
  std::string const sentence = ": nothing is saved: no lookup went before, or it threw (keys 0, features 1)";
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, pooled, batch.view(), out, saved);
  tessera::prepare_backward(exec, tables, pooled, saved);
  error_of([&] { tessera::pooled_lookup(exec, tables, pooled, batch.view(), narrow, saved); });
  CHECK(std::string(error_of([&] { tessera::pooled_lookup_backward(exec, tables, pooled, saved, gradients, tessera::sgd{}); }).what()) ==
        "pooled_lookup_backward" + sentence);
  CHECK(!saved.order.ready());
  CHECK(saved.argmax.size() == 0);
  tessera::sequence_lookup(exec, tables, sequence, batch.view(), out, saved);
  error_of([&] { tessera::sequence_lookup(exec, tables, sequence, batch.view(), narrow, saved); });
  CHECK(std::string(error_of([&] {
                      tessera::sequence_lookup_backward(exec, tables, sequence, saved, gradients, tessera::sgd{});
                    }).what()) == "sequence_lookup_backward" + sentence);
  CHECK(tables[0].steps() == tessera::step_count(0));
}

TEST_CASE("what a lookup saved of maxima is gone with the next") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::vector<tessera::dense_table<>> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = 2, .rows = 9}, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1}, {2}}}});
  std::vector<float> values(4);
  std::vector<tessera::matrix_view<float>> const out{{values.data(), 2, 2}};
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, std::vector<tessera::pooled_feature>{{0, tessera::pooling::max}}, batch.view(), out, saved);
  CHECK(saved.argmax.size() == 4);
  tessera::sequence_lookup(exec, tables, std::vector<std::int64_t>{0}, batch.view(), out, saved);
  CHECK(saved.argmax.size() == 0);
}
