// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 5
#include <tessera/embed/table_files.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>

#include "../support/type_lists.hpp"
#include "hosts.hpp"
#include "random.hpp"
#include "temporary_folder.hpp"

using namespace tessera;
using namespace tessera_tests;

namespace {

using id_list = std::vector<std::int64_t>;

template <class Store>
std::vector<Store> tables(host_exec const& exec, std::vector<table_options> const& options) {
  std::vector<Store> result;
  for (auto const& o : options) result.emplace_back(exec, o, rowwise_adagrad{.initial_state = 0.5F});
  return result;
}

std::vector<table_options> limited(std::int64_t most_rows) {
  std::vector<table_options> options;
  for (std::int64_t t = 0; t < 2; ++t)
    options.push_back({.id = table_id(t), .dim = 3 + t, .rows = 0, .init_bound = 0.1F, .seed = random_seed(3), .most_rows = most_rows});
  return options;
}

/// A row with the scale that stands before it.
template <class Store>
auto row_of(Store const& table, std::int64_t slot) {
  using element = typename Store::element;
  return std::vector<element>(table.row(slot) - row_scale<element>::lead, table.row(slot) + table.dim());
}

/// A batch of training, as far as a table sees it: rows are found or given, and change. Returns all that can be seen of it.
template <class Store>
std::vector<double> train_table(host_exec const& exec, Store& table, std::mt19937_64& random, bool times) {
  if (times) table.set_time(table.clock().now().time + static_cast<std::int64_t>(random() % 4));
  table.begin_batch();
  id_list ids;
  for (auto const id : random_integers<std::int64_t>(random, 20, -30, 60)) ids.push_back(random() % 2 == 0 ? id / 8 : id);
  id_list slots(ids.size());
  std::vector<row_status> statuses(ids.size());
  table.locate(exec, ids, slots, statuses);
  std::vector<double> seen;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    seen.push_back(static_cast<double>(statuses[i]));
    if (slots[i] < 0) continue;
    using scale = row_scale<typename Store::element>;
    auto* const row = table.row(slots[i]);
    std::vector<float> values;
    for (std::int64_t c = 0; c < table.dim(); ++c) values.push_back(scale::of(row).value(row[c]) + 0.25F * static_cast<float>(c + 1));
    auto const next = scale::for_values(values.data(), table.dim());
    std::transform(values.begin(), values.end(), row, [&](float value) { return next.nearest(value); });
    next.write_to(row);
    for (std::int64_t c = 0; c < table.dim(); ++c) seen.push_back(static_cast<double>(scale::of(row).value(row[c])));
    seen.push_back(*table.state(slots[i]) += 1);
  }
  return seen;
}

template <class Store>
void write_tables(host_exec const& exec, std::string const& folder, std::vector<Store>& tables) {
  write_table_file(exec, folder + "/tables.safetensors", parts_of(tables));
}

template <class Store>
void read_tables(host_exec const& exec, std::string const& folder, std::vector<Store>& tables, bool with_state) {
  auto parts = parts_of(tables);
  table_file_reader(folder + "/tables.safetensors", parts, with_state ? table_content::all : table_content::weights).read(exec);
}

template <class Store>
void table_goes_on(std::int64_t most_rows, bool times) {
  CAPTURE(most_rows);
  auto const seed = draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(seed);
  auto whole = tables<Store>(exec, limited(most_rows));
  for (auto& table : whole) {
    if (times) table.set_time(1'000'000);
    for (int batch = 0; batch < 40; ++batch) {
      train_table(exec, table, random, times);
      table.erase(exec, id_list{batch % 7});
    }
  }
  temporary_folder folder;
  write_tables(exec, folder.path(), whole);
  auto resumed = tables<Store>(exec, limited(most_rows));
  read_tables(exec, folder.path(), resumed, true);
  for (std::size_t t = 0; t < 2; ++t) {
    CHECK(resumed[t].rows() == whole[t].rows());
    if (Store::has_policies) CHECK(resumed[t].clock() == whole[t].clock());
    whole[t].keep_evicted(true);
    resumed[t].keep_evicted(true);
    auto same = random;
    for (int batch = 0; batch < 60; ++batch) {
      CAPTURE(batch);
      REQUIRE(train_table(exec, resumed[t], same, times) == train_table(exec, whole[t], random, times));
    }
    auto const expected = whole[t].evicted(), found = resumed[t].evicted();
    CHECK(id_list(found.ids.begin(), found.ids.end()) == id_list(expected.ids.begin(), expected.ids.end()));
    CHECK(std::equal(found.weights.data(), found.weights.data() + found.weights.rows() * found.weights.columns(), expected.weights.data()));
  }
}

struct few_candidates : admit_by_frequency {
  few_candidates() : admit_by_frequency{.sightings = 3, .candidates = 12} {}
};
struct short_life : evict_ttl {
  short_life() : evict_ttl{.lifetime = 5} {}
};

}  // namespace

TEST_CASE_TEMPLATE("a table goes on from a checkpoint as if it had never stopped, policies and all", Store, hash_table<>,
                   hash_table<float, admit_all, evict_lru>, hash_table<scaled_int8, few_candidates, evict_lfu>,
                   hash_table<float, admit_by_probability, short_life> TESSERA_TEST_MORE_TYPES(
                       , hash_table<bfloat16, admit_all, evict_lfu>, hash_table<float, admit_all, short_life>,
                       hash_table<float16, few_candidates, evict_lfu>, hash_table<scaled_int8, admit_all, evict_lru>,
                       hash_table<float8_e4m3, admit_all, evict_lfu>, hash_table<float8_e5m2>, hash_table<scaled_int8>,
                       hash_table<float, few_candidates, keep_all>, hash_table<float, admit_by_probability, evict_lru>)) {
  for (std::int64_t const most_rows : {15, 40, 1'000'000})
    for (bool const times : {false, true}) table_goes_on<Store>(most_rows, times);
}

TEST_CASE_TEMPLATE("only rows that are held are written, more than one write at once", Element, float, scaled_int8) {
  serial_host host;
  auto const exec = host.exec();
  auto written = tables<hash_table<Element>>(exec, limited(1'000'000));
  auto const count = 2 * detail::table_rows_per_piece + 5;
  id_list ids, slots(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(7 * i - 1000);
  written[0].locate(exec, ids, slots);
  auto const set = [](Element* row, std::int64_t id) {  // a scale of its own, and elements
    auto const value = static_cast<float>(id % 64) * std::ldexp(1.0F, static_cast<int>(id % 11));
    auto const scale = row_scale<Element>::covering(detail::magnitude_of(value));
    scale.write_to(row);
    for (int c = 0; c < 3; ++c) row[c] = scale.nearest(value / static_cast<float>(1 << c));
  };
  for (std::int64_t i = 0; i < count; ++i) set(written[0].row(i), ids[static_cast<std::size_t>(i)]);
  id_list gone;
  for (std::size_t i = 0; i < ids.size(); i += 3) gone.push_back(ids[i]);
  auto const left = written[0].erase(exec, gone);
  CHECK(left == static_cast<std::int64_t>(gone.size()));
  temporary_folder folder;
  write_tables(exec, folder.path(), written);
  safetensors_reader const file(folder.file("tables.safetensors"));
  CHECK(file.at("table.0.ids").shape == id_list{count - left});
  CHECK(file.find("table.0.clock") == nullptr);
  auto read = tables<hash_table<Element>>(exec, limited(1'000'000));
  read_tables(exec, folder.path(), read, true);
  CHECK(read[0].rows() == count - left);
  CHECK(read[0].slot_bound() == count - left);
  std::size_t right = 0;
  read[0].for_each_row([&](std::int64_t slot, std::int64_t id) {
    id_list const of_id{id};
    id_list written_slot(1);
    std::as_const(written[0]).find(exec, of_id, written_slot);
    right += row_of(read[0], slot) == row_of(written[0], written_slot[0]);
  });
  CHECK(right == static_cast<std::size_t>(count - left));
}

TEST_CASE("elements are written in their own type, and another type is refused by name") {
  serial_host host;
  auto const exec = host.exec();
  std::vector<table_options> const options{{.dim = 3, .rows = 4, .init_bound = 1}};
  auto const written_as = [&](auto const& store, char const* dtype) {
    using store_type = std::remove_cvref_t<decltype(store)>;
    temporary_folder folder;
    auto written = tables<store_type>(exec, options);
    write_tables(exec, folder.path(), written);
    safetensors_reader const file(folder.file("tables.safetensors"));
    CHECK(name(file.at("table.0.weight").dtype) == dtype);
    CHECK(name(file.at("table.0.state").dtype) == "F32");
    auto same = tables<store_type>(exec, options);
    for (std::int64_t r = 0; r < 4; ++r) {
      auto const lead = row_scale<typename store_type::element>::lead;
      std::fill_n(same[0].row(r) - lead, 3 + lead, typename store_type::element{});
    }
    read_tables(exec, folder.path(), same, true);
    for (std::int64_t r = 0; r < 4; ++r) CHECK(row_of(same[0], r) == row_of(written[0], r));
    if constexpr (!std::is_same_v<store_type, dense_table<>>) {
      auto other = tables<dense_table<>>(exec, options);
      auto const e = error_of([&] { read_tables(exec, folder.path(), other, true); });
      CHECK(e.code() == errc::incompatible);
      CHECK(e.value("tensor") == "table.0.weight");
      CHECK(e.value("expected") == "F32 [4, 3]");
      CHECK(e.value("found") == std::string(dtype) + " [4, 3]");
      temporary_folder of_floats;
      write_tables(exec, of_floats.path(), other);
      auto const back = error_of([&] { read_tables(exec, of_floats.path(), same, true); });
      CHECK(back.code() == errc::incompatible);
      CHECK(back.value("tensor") == "table.0.weight");
      CHECK(back.value("expected") == std::string(dtype) + " [4, 3]");
      CHECK(back.value("found") == "F32 [4, 3]");
      for (std::int64_t r = 0; r < 4; ++r) CHECK(row_of(same[0], r) == row_of(written[0], r));
    }
  };
  written_as(dense_table<>(exec, options[0], sgd{}), "F32");
  written_as(dense_table<float16>(exec, options[0], sgd{}), "F16");
  written_as(dense_table<bfloat16>(exec, options[0], sgd{}), "BF16");
  written_as(dense_table<float8_e4m3>(exec, options[0], sgd{}), "F8_E4M3");
  written_as(dense_table<float8_e5m2>(exec, options[0], sgd{}), "F8_E5M2");
  written_as(dense_table<scaled_int8>(exec, options[0], sgd{}), "I8");
}

TEST_CASE("rows that share a scale are written as their steps and the size of these, which no reading does without") {
  serial_host host;
  auto const exec = host.exec();
  std::vector<table_options> const options{{.dim = 5, .rows = 3, .init_bound = 1}};
  using store = dense_table<scaled_int8>;
  auto written = tables<store>(exec, options);
  for (std::int64_t r = 0; r < 3; ++r) {
    row_scale<scaled_int8>{std::ldexp(1.0F, static_cast<int>(4 * r) - 6)}.write_to(written[0].row(r));
    for (std::int64_t c = 0; c < 5; ++c) written[0].row(r)[c] = {static_cast<std::int8_t>(50 * c - 127 + r)};
  }
  row_scale<scaled_int8>::covering(detail::float_infinity).write_to(written[0].row(1));
  temporary_folder folder;
  write_tables(exec, folder.path(), written);
  {
    safetensors_reader const file(folder.file("tables.safetensors"));
    CHECK(name(file.at("table.0.weight").dtype) == "I8");
    CHECK(name(file.at("table.0.step").dtype) == "F32");
    CHECK(file.at("table.0.step").shape == id_list{3});
    std::vector<float> steps(3);
    file.read("table.0.step", 0, vector_view<float>(steps));
    CHECK(steps[0] == 0x1p-6F);
    CHECK(std::isnan(steps[1]));
    CHECK(steps[2] == 4);
  }
  auto dense = tables<store>(exec, options);
  read_tables(exec, folder.path(), dense, true);
  auto hashed = tables<hash_table<scaled_int8>>(exec, {{.dim = 5, .rows = 0, .init_bound = 1}});
  read_tables(exec, folder.path(), hashed, true);
  for (std::int64_t r = 0; r < 3; ++r) {  // bit for bit: one is NaN
    auto const expected = row_of(written[0], r);
    CHECK(row_of(dense[0], r) == expected);
    CHECK(row_of(hashed[0], r) == expected);
  }
  safetensors_writer out(folder.file("tables.safetensors"),
                         {{"table.0.weight", safetensors_dtype::i8, {3, 5}}, {"table.0.state", safetensors_dtype::f32, {3, 1}}});
  std::vector<std::int8_t> const elements(15);
  std::vector<float> const states(3);
  out.append("table.0.weight", vector_view<std::int8_t const>(elements));
  out.append("table.0.state", vector_view<float const>(states));
  out.finish();
  auto const e = error_of([&] { read_tables(exec, folder.path(), dense, true); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("tensor") == "table.0.step");
  CHECK(row_of(dense[0], 2) == row_of(written[0], 2));
}

TEST_CASE("a table reads the rows of a table of other policies, and begins with its own afresh") {
  serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto written = tables<hash_table<float, few_candidates, evict_lfu>>(exec, limited(30));
  for (auto& table : written)
    for (int batch = 0; batch < 30; ++batch) train_table(exec, table, random, false);
  temporary_folder folder;
  write_tables(exec, folder.path(), written);
  auto const reads = [&](auto read) {
    read_tables(exec, folder.path(), read, false);
    for (std::size_t t = 0; t < 2; ++t) {
      CHECK(read[t].rows() == written[t].rows());
      CHECK(read[t].clock() == table_clock{});
      std::size_t right = 0;
      written[t].for_each_row([&](std::int64_t slot, std::int64_t id) {
        id_list const ids{id};
        id_list slots(1);
        std::as_const(read[t]).find(exec, ids, slots);
        right += slots[0] >= 0 && std::equal(read[t].row(slots[0]), read[t].row(slots[0]) + read[t].dim(), written[t].row(slot)) &&
                 *read[t].state(slots[0]) == 0.5F;
      });
      CHECK(right == static_cast<std::size_t>(written[t].rows()));
    }
  };
  reads(tables<hash_table<>>(exec, limited(30)));
  reads(tables<hash_table<float, admit_all, evict_lru>>(exec, limited(30)));
  reads(tables<hash_table<float, few_candidates, evict_lfu>>(exec, limited(30)));
}

TEST_CASE("a table whose clock is past the checkpoint's is not set back") {
  serial_host host;
  auto const exec = host.exec();
  auto written = tables<hash_table<float, admit_all, evict_lru>>(exec, limited(30));
  written[0].set_time(100);
  temporary_folder folder;
  write_tables(exec, folder.path(), written);
  auto read = tables<hash_table<float, admit_all, evict_lru>>(exec, limited(30));
  read[0].set_time(101);
  auto const e = error_of([&] { read_tables(exec, folder.path(), read, true); });
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("time") == "101");
  CHECK(e.value("new time") == "100");
  CHECK(read[0].clock().time == 101);
}

TEST_CASE_TEMPLATE("a table that may hold fewer rows refuses before any table changes", Store, hash_table<>,
                   hash_table<float, admit_all, evict_lru>) {
  serial_host host;
  auto const exec = host.exec();
  auto written = tables<Store>(exec, limited(30));
  id_list const ids{5, 6, 7};
  id_list slots(3);
  written[0].locate(exec, id_list{4}, vector_view<std::int64_t>(slots).slice(0, 1));
  for (auto const id : ids) {  // of batches of their own, so that an earlier row may leave for a later one
    written[1].begin_batch();
    written[1].locate(exec, id_list{id}, vector_view<std::int64_t>(slots).slice(0, 1));
  }
  temporary_folder folder;
  write_tables(exec, folder.path(), written);
  for (bool const with_state : {false, true}) {
    auto read = tables<Store>(exec, limited(2));
    auto const e = error_of([&] { read_tables(exec, folder.path(), read, with_state); });
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == "1");
    CHECK(e.value("rows") == "3");
    CHECK(e.value("most_rows") == "2");
    for (auto const& table : read) CHECK(table.rows() == 0);
    auto enough = tables<Store>(exec, limited(3));
    read_tables(exec, folder.path(), enough, with_state);
    CHECK(enough[1].rows() == 3);
  }
}
