// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-weight: 8
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <tessera/core/optimizer_adaptors.hpp>
#include <tessera/train/checkpoint.hpp>

#include "../support/random.hpp"
#include "../support/type_lists.hpp"
#include "temporary_folder.hpp"
#include "trainer_setup.hpp"

namespace checkpoint_test {

namespace {

using namespace tessera;
using namespace tessera_tests;

struct serial_exec {
  serial_team team;
  system_memory memory;
  host_exec exec{team, memory};
};

/// Everything that a step reads and writes, each row under its id.
struct everything {
  std::vector<float> parameters, optimizer;
  std::vector<std::map<std::int64_t, std::vector<float>>> rows, states;
  std::vector<std::int64_t> steps;

  bool operator==(everything const&) const = default;
};

template <class Run>
everything everything_of(Run& r) {
  everything found;
  for (auto const& b : r.model.blocks()) found.parameters.insert(found.parameters.end(), b.values.begin(), b.values.end());
  for (auto const& s : r.run.dense_states()) {
    found.optimizer.insert(found.optimizer.end(), s.state->planes().begin(), s.state->planes().end());
    found.steps.push_back(s.state->steps().value);
  }
  for (auto const* const held : tables_of<typename Run::store_type>(r.model)) {
    auto const& table = *held;
    auto& rows = found.rows.emplace_back();
    auto& states = found.states.emplace_back();
    for (std::int64_t slot = 0; slot < table.rows(); ++slot) {
      auto id = slot;
      if constexpr (!std::remove_cvref_t<decltype(table)>::slots_are_ids) id = table.ids()[slot];
      rows[id].assign(table.row(slot), table.row(slot) + table.dim());
      states[id].assign(table.state(slot), table.state(slot) + table.state_layout().width(table.dim()));
    }
    found.steps.push_back(table.steps().value);
  }
  return found;
}

std::vector<manifest_section> nothing_more(std::string const&) { return {}; }

template <class Run>
void save(host_exec const& exec, std::string const& directory, Run& r, std::int64_t step, std::int64_t keep = 2) {
  checkpoint_state const state{step, {{"seed", 3}}, {{"offset", 10 * step}}};
  save_checkpoint(exec, directory, r.run, state, keep, nothing_more);
}

std::string step_path(std::string const& directory, std::int64_t step) { return directory + "/" + step_folder_name(step_count{step}); }

std::vector<std::int64_t> steps_in(std::string const& directory) {
  std::vector<std::int64_t> steps;
  for (auto const& f : list_step_folders(directory)) steps.push_back(f.step.value);
  return steps;
}

// Overwrites every row and state there is.
template <class Run>
void spoil(Run& r) {
  for (auto* const table : tables_of<typename Run::store_type>(r.model))
    for (std::int64_t slot = 0; slot < table->rows(); ++slot) {
      std::fill_n(table->row(slot), table->dim(), 9.0F);
      std::fill_n(table->state(slot), table->state_layout().width(table->dim()), 9.0F);
    }
}

template <class Store, class Interaction = dot_products, class Rows, class Dense>
void goes_on(Rows const& rows, Dense const& dense) {
  serial_exec host;
  constexpr std::int64_t end = 9;
  small_run<Store, Rows, Dense, Interaction> whole(host.exec, rows, dense);
  whole.train(host.exec, 0, end);
  auto const expected = everything_of(whole);
  for (std::int64_t const cut : {0, 1, 4, 9}) {
    CAPTURE(cut);
    temporary_folder folder;
    {
      small_run<Store, Rows, Dense, Interaction> first(host.exec, rows, dense);
      first.train(host.exec, 0, cut);
      auto const before = everything_of(first);
      save(host.exec, folder.path(), first, cut);
      CHECK(everything_of(first) == before);
    }
    auto const found = open_newest_checkpoint(folder.path());
    CHECK(found.state.step == cut);
    CHECK(found.state.options == nlohmann::json{{"seed", 3}});
    CHECK(found.state.position == nlohmann::json{{"offset", 10 * cut}});
    // Other parameters to begin with: what is not read back would show.
    small_run<Store, Rows, Dense, Interaction> second(host.exec, rows, dense, small_shape(), 1234);
    spoil(second);
    load_trainer(host.exec, found, second.run);
    second.train(host.exec, cut, end);
    CHECK(everything_of(second) == expected);
  }
}

template <class Store>
using adam_run = small_run<Store, rowwise_adagrad, adam>;

template <class Store, class Other>
void reads_what_the_other_wrote() {
  serial_exec host;
  temporary_folder folder;
  adam_run<Store> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 5);
  save(host.exec, folder.path(), writer, 5);
  adam_run<Other> reader(host.exec, {0.05F}, {0.01F});
  load_trainer(host.exec, open_newest_checkpoint(folder.path()), reader.run);
  CHECK(reader.predictions(host.exec) == writer.predictions(host.exec));
  writer.train(host.exec, 5, 9);
  reader.train(host.exec, 5, 9);
  CHECK(reader.predictions(host.exec) == writer.predictions(host.exec));
}

void flip_byte(std::string const& path, std::size_t at) {
  auto bytes = contents(path);
  REQUIRE(at < bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  write_file(path, bytes);
}

}  // namespace

TEST_CASE_TEMPLATE("training goes on from a checkpoint as if it had never stopped", Store, TESSERA_TEST_STORES) {
  // Chosen at run time: one trainer to compile for all.
  using rows = std::variant<sgd, rowwise_adagrad, adam>;
  using dense = std::variant<sgd, adagrad, adam>;
  SUBCASE("sgd, sgd") { goes_on<Store>(rows(sgd{0.05F}), dense(sgd{0.02F})); }
  SUBCASE("sgd, adagrad") { goes_on<Store>(rows(sgd{0.05F}), dense(adagrad{0.02F})); }
  SUBCASE("sgd, adam") { goes_on<Store>(rows(sgd{0.05F}), dense(adam{0.01F})); }
  SUBCASE("rowwise adagrad, sgd") { goes_on<Store>(rows(rowwise_adagrad{0.05F}), dense(sgd{0.02F})); }
  SUBCASE("rowwise adagrad, adagrad") { goes_on<Store>(rows(rowwise_adagrad{0.05F}), dense(adagrad{0.02F})); }
  SUBCASE("rowwise adagrad, adam") { goes_on<Store>(rows(rowwise_adagrad{0.05F}), dense(adam{0.01F})); }
  SUBCASE("adam, adam: two states an element") { goes_on<Store>(rows(adam{0.01F}), dense(adam{0.01F})); }
}

TEST_CASE("models of other interactions go on from a checkpoint too") {
  SUBCASE("DCN") { goes_on<dense_table<>, cross_layers>(rowwise_adagrad{0.05F}, adam{0.01F}); }
  SUBCASE("DeepFM") { goes_on<dense_table<>, factorization>(rowwise_adagrad{0.05F}, adam{0.01F}); }
}

TEST_CASE("the interaction's parameters and their optimizer's state are in the checkpoint by name, an empty group is not") {
  serial_exec host;
  temporary_folder folder;
  auto const names = [&](auto& writer) {
    save(host.exec, folder.path(), writer, 1);
    safetensors_reader const in(step_path(folder.path(), 1) + "/dense.safetensors");
    std::vector<std::string> all;
    for (auto const& tensor : in.entries()) all.push_back(tensor.name);
    std::sort(all.begin(), all.end());
    return all;
  };
  small_shape shape;
  shape.bottom = {};
  shape.top = {};
  small_run<dense_table<>, sgd, adam, cross_layers> crossed(host.exec, {}, {}, shape);
  CHECK(names(crossed) == std::vector<std::string>{"bottom.0.bias", "bottom.0.weight", "interaction.0.bias", "interaction.0.weight",
                                                   "interaction.1.bias", "interaction.1.weight", "interaction.2.bias",
                                                   "interaction.2.weight", "optimizer.bottom", "optimizer.interaction", "optimizer.top",
                                                   "top.0.bias", "top.0.weight"});
  small_run<dense_table<>, sgd, adam> dotted(host.exec, {}, {}, shape);
  CHECK(names(dotted) ==
        std::vector<std::string>{"bottom.0.bias", "bottom.0.weight", "optimizer.bottom", "optimizer.top", "top.0.bias", "top.0.weight"});
}

TEST_CASE("a model of another interaction refuses a checkpoint by its name") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd, cross_layers> writer(host.exec, {}, {});
  save(host.exec, folder.path(), writer, 1);
  small_run<dense_table<>, sgd, sgd, factorization> reader(host.exec, {}, {});
  auto const found = open_newest_checkpoint(folder.path());
  for (auto const& e :
       {error_of([&] { load_trainer(host.exec, found, reader.run); }), error_of([&] { load_model(host.exec, found, reader.model); })}) {
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("interaction") == "cross_layers");
    CHECK(e.value("expected") == "factorization");
  }
}

TEST_CASE("either kind of store reads what the other wrote") {
  SUBCASE("dense by dense") { reads_what_the_other_wrote<dense_table<>, dense_table<>>(); }
  SUBCASE("dense by hashed") { reads_what_the_other_wrote<dense_table<>, hash_table<>>(); }
  SUBCASE("hashed by dense") { reads_what_the_other_wrote<hash_table<>, dense_table<>>(); }
}

TEST_CASE("tables of more rows than are written at once come back whole") {
  serial_exec host;
  temporary_folder folder;
  small_shape shape;
  shape.rows = {2 * detail::table_rows_per_piece + 1, detail::table_rows_per_piece, 1};
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F}, shape);
  save(host.exec, folder.path(), writer, 1);
  adam_run<dense_table<>> reader(host.exec, {0.05F}, {0.01F}, shape, 1234);
  spoil(reader);
  load_trainer(host.exec, open_newest_checkpoint(folder.path()), reader.run);
  CHECK(everything_of(reader) == everything_of(writer));
  adam_run<hash_table<>> hashed(host.exec, {0.05F}, {0.01F}, shape);
  load_trainer(host.exec, open_newest_checkpoint(folder.path()), hashed.run);
  CHECK(everything_of(hashed) == everything_of(writer));
}

TEST_CASE_TEMPLATE("a model alone is read without the states of its optimizers", Store, TESSERA_TEST_STORES) {
  serial_exec host;
  temporary_folder folder;
  adam_run<Store> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 5);
  save(host.exec, folder.path(), writer, 5);
  small_run<Store, sgd, sgd> reader(host.exec, {}, {});
  load_model(host.exec, open_newest_checkpoint(folder.path()), reader.model);
  CHECK(reader.predictions(host.exec) == writer.predictions(host.exec));
  CHECK(everything_of(reader).rows == everything_of(writer).rows);
}

TEST_CASE("a model of another shape refuses a checkpoint and names the tensor") {
  serial_exec host;
  temporary_folder folder;
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F});
  save(host.exec, folder.path(), writer, 1);
  auto const found = open_newest_checkpoint(folder.path());
  auto const refusal = [&](small_shape const& shape) {
    adam_run<dense_table<>> reader(host.exec, {0.05F}, {0.01F}, shape);
    auto const e = error_of([&] { load_trainer(host.exec, found, reader.run); });
    CHECK(e.code() == errc::incompatible);
    auto const of_model = error_of([&] { load_model(host.exec, found, reader.model); });
    CHECK(of_model.code() == errc::incompatible);
    CHECK(of_model.value("tensor") == e.value("tensor"));
    return e;
  };
  small_shape shape;
  SUBCASE("wider bottom") {
    shape.bottom = {13};
    auto const e = refusal(shape);
    CHECK(e.value("tensor") == "bottom.0.weight");
    CHECK(e.value("expected") == "F32 [13, 5]");
    CHECK(e.value("found") == "F32 [12, 5]");
  }
  SUBCASE("narrower top") {
    shape.top = {16, 5};
    CHECK(refusal(shape).value("tensor") == "top.1.weight");
  }
  SUBCASE("deeper top") {
    shape.top = {16, 6, 1};
    CHECK(refusal(shape).value("tensor") == "top.3.weight");
  }
  SUBCASE("shallower bottom") {
    shape.dim = 12;
    shape.bottom = {};
    CHECK(refusal(shape).value("tensor") == "top.0.weight");  // the first whose shape differs
  }
  SUBCASE("other dense features") {
    shape.dense_features = 6;
    CHECK(refusal(shape).value("tensor") == "bottom.0.weight");
  }
  SUBCASE("other dim") {
    shape.dim = 9;
    CHECK(refusal(shape).value("tensor") == "bottom.1.weight");
  }
  SUBCASE("larger table") {
    shape.rows[2] = 301;
    auto const e = refusal(shape);
    CHECK(e.value("table") == "2");
    CHECK(e.value("rows") == "300");
    CHECK(e.value("expected") == "301");
  }
  SUBCASE("smaller table") {
    shape.rows[1] = 6;
    CHECK(refusal(shape).value("table") == "1");
  }
}

TEST_CASE("a checkpoint of tables or features that would predict otherwise is refused") {
  serial_exec host;
  temporary_folder folder;
  adam_run<hash_table<>> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 2);
  save(host.exec, folder.path(), writer, 2);
  auto const found = open_newest_checkpoint(folder.path());
  auto const refusal = [&](small_shape const& shape, std::vector<pooled_feature> const& features, std::string_view field) {
    adam_run<hash_table<>> reader(host.exec, {0.05F}, {0.01F}, shape, 3, features);
    auto const e = error_of([&] { load_trainer(host.exec, found, reader.run); });
    CHECK(e.code() == errc::incompatible);
    CHECK(error_of([&] { load_model(host.exec, found, reader.model); }).code() == errc::incompatible);
    CHECK(e.value("field") == (field == "table" || field == "pooling" ? "features" : "tables"));
    CHECK_FALSE(e.value(field).empty());
  };
  small_shape const same;
  auto seed = same, bound = same, columns = same;
  seed.table_seed = 4;
  bound.init_bound = 0.25F;
  refusal(seed, small_shape::features(), "seed");
  columns.first_column = 4;
  refusal(bound, small_shape::features(), "init_bound");
  refusal(columns, small_shape::features(), "first_column");
  refusal(same, {{0}, {1, pooling::sum}, {2}, {0}}, "pooling");
  refusal(same, {{0}, {1, pooling::mean}, {2}, {2}}, "table");
}

TEST_CASE("a hashed table that has rows already is not loaded into") {
  serial_exec host;
  temporary_folder folder;
  adam_run<hash_table<>> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 2);
  save(host.exec, folder.path(), writer, 2);
  auto const e = error_of([&] { load_trainer(host.exec, open_newest_checkpoint(folder.path()), writer.run); });
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("table") == "0");
}

TEST_CASE("a deeper model's checkpoint does not pass for a shallower one's") {
  serial_exec host;
  temporary_folder folder;
  small_shape deeper;
  deeper.top = {16, 1};
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {}, deeper);
  save(host.exec, folder.path(), writer, 1);
  auto shallower = deeper;
  shallower.top = {16};  // all its tensors are there, and one layer more
  small_run<dense_table<>, sgd, sgd> reader(host.exec, {}, {}, shallower);
  auto const found = open_newest_checkpoint(folder.path());
  auto const e = error_of([&] { load_trainer(host.exec, found, reader.run); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("tensor") == "top.2.bias");
  CHECK(error_of([&] { load_model(host.exec, found, reader.model); }).value("tensor") == "top.2.bias");
}

TEST_CASE("a hashed table's checkpoint with an id that a dense table cannot hold is refused") {
  serial_exec host;
  temporary_folder folder;
  adam_run<hash_table<>> writer(host.exec, {0.05F}, {0.01F});
  std::array<std::int64_t, 2> const ids{3, 300};
  std::array<std::int64_t, 2> slots{};
  writer.table(2).locate(host.exec, ids, slots);
  save(host.exec, folder.path(), writer, 1);
  adam_run<dense_table<>> reader(host.exec, {0.05F}, {0.01F});
  auto const e = error_of([&] { load_trainer(host.exec, open_newest_checkpoint(folder.path()), reader.run); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("table") == "2");
  CHECK(e.value("id") == "300");
}

namespace {

// Policies that tell no name, without state and with one an element.
struct nameless {
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float begin_row(float*, row_gradient const&) const noexcept { return 0; }
  void update(float&, float*, std::int64_t, float, float) const noexcept {}
};
struct nameless_with_state : nameless {
  static constexpr int element_state = 1;
};

}  // namespace

TEST_CASE_TEMPLATE("a trainer of other optimizers refuses a checkpoint and names both", Store, TESSERA_TEST_STORES) {
  serial_exec host;
  temporary_folder folder;
  auto const save_with = [&](auto rows, auto dense) {
    small_run<Store, decltype(rows), decltype(dense)> writer(host.exec, rows, dense);
    writer.train(host.exec, 0, 2);
    save(host.exec, folder.path(), writer, 2);
  };
  auto const refusal = [&](auto rows, auto dense) {
    small_run<Store, decltype(rows), decltype(dense)> reader(host.exec, rows, dense);
    auto const before = everything_of(reader);
    auto const e = error_of([&] { load_trainer(host.exec, open_newest_checkpoint(folder.path()), reader.run); });
    CHECK(e.code() == errc::incompatible);
    CHECK(everything_of(reader) == before);
    return e;
  };
  SUBCASE("dense adam, then sgd") {
    save_with(sgd{}, adam{});
    auto const e = refusal(sgd{}, sgd{});
    CHECK(e.value("dense_optimizer") == "adam");
    CHECK(e.value("expected") == "sgd");
  }
  SUBCASE("dense adagrad, then momentum: states of one shape") {
    save_with(sgd{}, adagrad{});
    auto const e = refusal(sgd{}, momentum_sgd{});
    CHECK(e.value("dense_optimizer") == "adagrad");
    CHECK(e.value("expected") == "momentum_sgd");
  }
  SUBCASE("rows adagrad, then momentum: states of one shape") {
    save_with(adagrad{}, sgd{});
    auto const e = refusal(momentum_sgd{}, sgd{});
    CHECK(e.value("field") == "tables");
    CHECK(e.value("number") == "0");
    CHECK(e.value("optimizer") == "adagrad");
    CHECK(e.value("expected") == "momentum_sgd");
  }
  SUBCASE("rows rowwise adagrad, then sgd, chosen at run time") {
    using rows = std::variant<sgd, rowwise_adagrad>;
    save_with(rows(rowwise_adagrad{}), sgd{});
    CHECK(refusal(rows(sgd{}), sgd{}).value("optimizer") == "rowwise_adagrad");
  }
  SUBCASE("rows without a name: of another state") {
    save_with(nameless{}, sgd{});
    CHECK(refusal(nameless_with_state{}, sgd{}).value("tensor") == "table.0.state");
  }
  SUBCASE("rows without a name: of no state any more") {
    save_with(nameless_with_state{}, sgd{});
    CHECK(refusal(nameless{}, sgd{}).value("tensor") == "table.0.state");
  }
  SUBCASE("dense parameters, without a name: of another state") {
    save_with(sgd{}, nameless{});
    CHECK(refusal(sgd{}, nameless_with_state{}).value("tensor") == "optimizer.bottom");
  }
}

TEST_CASE("adaptors around an optimizer, its rates and its options may change") {
  serial_exec host;
  temporary_folder folder;
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 2);
  save(host.exec, folder.path(), writer, 2);
  small_run<dense_table<>, with_row_clipping<rowwise_adagrad>, with_weight_decay<with_value_clipping<adam>>> reader(host.exec, {}, {});
  load_trainer(host.exec, open_newest_checkpoint(folder.path()), reader.run);
  CHECK(everything_of(reader) == everything_of(writer));
}

TEST_CASE("a trainer whose tables have other policies refuses a checkpoint and names both") {
  serial_exec host;
  auto const written_by = [&]<class Writer>(Writer const*, auto const& readers) {
    temporary_folder folder;
    adam_run<Writer> writer(host.exec, {0.05F}, {0.01F});
    writer.train(host.exec, 0, 3);
    save(host.exec, folder.path(), writer, 3);
    readers(open_newest_checkpoint(folder.path()), writer.predictions(host.exec));
  };
  auto const refused = [&]<class Reader>(Reader const*, open_checkpoint const& found, std::vector<float> const& predictions,
                                         char const* policy, char const* theirs, char const* ours) {
    CAPTURE(ours);
    adam_run<Reader> reader(host.exec, {0.05F}, {0.01F});
    auto const e = error_of([&] { load_trainer(host.exec, found, reader.run); });
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("field") == "tables");
    CHECK(e.value("number") == "0");
    CHECK(e.value(policy) == theirs);
    CHECK(e.value("expected") == ours);
    load_model(host.exec, found, reader.model);
    CHECK(reader.predictions(host.exec) == predictions);
  };
  using lru = hash_table<float, admit_all, evict_lru>;
  using lfu = hash_table<float, admit_all, evict_lfu>;
  using seen = hash_table<float, admit_by_frequency>;
  using plain = hash_table<>;
  using dense = dense_table<>;
  written_by(static_cast<lru*>(nullptr), [&](auto const& found, auto const& predictions) {
    refused(static_cast<lfu*>(nullptr), found, predictions, "eviction", "lru", "lfu");
    refused(static_cast<plain*>(nullptr), found, predictions, "eviction", "lru", "all");
  });
  written_by(static_cast<seen*>(nullptr), [&](auto const& found, auto const& predictions) {
    refused(static_cast<plain*>(nullptr), found, predictions, "admission", "sightings", "all");
  });
  written_by(static_cast<dense*>(nullptr), [&](auto const& found, auto const& predictions) {
    refused(static_cast<lru*>(nullptr), found, predictions, "eviction", "all", "lru");
  });
}

TEST_CASE("more rows than a table may hold are refused, and nothing has changed") {
  serial_exec host;
  temporary_folder folder;
  using lru = hash_table<float, admit_all, evict_lru>;
  adam_run<lru> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 3);
  save(host.exec, folder.path(), writer, 3);
  auto const rows = writer.table(2).rows();
  small_shape shape;
  adam_run<lru> reader(host.exec, {0.05F}, {0.01F}, shape, 1234);
  auto& last = reader.table(2);
  auto options = last.options();
  options.rows = 0;
  options.most_rows = rows - 1;
  last = lru(host.exec, options, rowwise_adagrad{});
  auto const before = everything_of(reader);
  auto const found = open_newest_checkpoint(folder.path());
  for (auto const& e :
       {error_of([&] { load_trainer(host.exec, found, reader.run); }), error_of([&] { load_model(host.exec, found, reader.model); })}) {
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == "2");
    CHECK(e.value("rows") == std::to_string(rows));
    CHECK(e.value("most_rows") == std::to_string(rows - 1));
  }
  CHECK(everything_of(reader) == before);
  options.most_rows = rows;
  last = lru(host.exec, options, rowwise_adagrad{});
  load_trainer(host.exec, found, reader.run);
  CHECK(everything_of(reader) == everything_of(writer));
}

TEST_CASE("a checkpoint of a version that names no kinds gives its model, but training does not go on from it") {
  serial_exec host;
  temporary_folder folder;
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 3);
  save(host.exec, folder.path(), writer, 3);
  auto older = open_newest_checkpoint(folder.path()).content;
  older.version = 2;
  older.state.erase("training");
  write_manifest(step_path(folder.path(), 3), older);
  auto const found = open_newest_checkpoint(folder.path());
  adam_run<dense_table<>> reader(host.exec, {0.05F}, {0.01F});
  auto const e = error_of([&] { load_trainer(host.exec, found, reader.run); });
  CHECK(e.code() == errc::incompatible);
  CHECK(e.value("version") == "2");
  CHECK(e.value("expected") == "3");
  load_model(host.exec, found, reader.model);
  CHECK(reader.predictions(host.exec) == writer.predictions(host.exec));
}

TEST_CASE("a torn or altered checkpoint is refused by name, and the one before stays loadable") {
  serial_exec host;
  temporary_folder folder;
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F});
  auto const with_more = [&](std::int64_t step) {
    save_checkpoint(host.exec, folder.path(), writer.run, {.step = step}, 2, [](std::string const& into) {
      write_file(into + "/more.bin", "caller's own bytes");
      return std::vector<manifest_section>{{"more.bin", digest_of(into + "/more.bin")}};
    });
  };
  writer.train(host.exec, 0, 3);
  with_more(3);
  auto const older = everything_of(writer);
  writer.train(host.exec, 3, 6);
  with_more(6);
  auto const newest = step_path(folder.path(), 6), before = step_path(folder.path(), 3);

  auto const check_refusal = [&](std::string const& section) {
    auto const e = error_of([&] { open_newest_checkpoint(folder.path()); });
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("section") == section);
    CHECK(e.value("file") == newest + "/" + section);
    CHECK(e.value("checkpoint before") == before);
    // The path itself names no other.
    auto const alone = error_of([&] { open_newest_checkpoint(newest); });
    CHECK(alone.code() == errc::corrupt_file);
    CHECK(alone.value("checkpoint before").empty());
    adam_run<dense_table<>> reader(host.exec, {0.05F}, {0.01F});
    auto const found = open_newest_checkpoint(std::string(e.value("checkpoint before")));
    CHECK(found.state.step == 3);
    load_trainer(host.exec, found, reader.run);
    CHECK(everything_of(reader) == older);
  };
  for (std::string const section : {"dense.safetensors", "tables.safetensors", "more.bin"}) {
    CAPTURE(section);
    auto const path = newest + "/" + section;
    auto const sound = contents(path);
    for (std::size_t const size : {std::size_t{0}, std::size_t{7}, sound.size() / 2, sound.size() - 1}) {
      CAPTURE(size);
      write_file(path, sound.substr(0, size));
      check_refusal(section);
    }
    write_file(path, sound + '\0');
    check_refusal(section);
    for (std::size_t const at : {std::size_t{0}, std::size_t{9}, sound.size() / 2, sound.size() - 1}) {
      CAPTURE(at);
      write_file(path, sound);
      flip_byte(path, at);
      check_refusal(section);
    }
    std::filesystem::remove(path);
    check_refusal(section);
    write_file(path, sound);
    CHECK(open_newest_checkpoint(folder.path()).state.step == 6);
  }
}

TEST_CASE("no byte of a manifest can change unseen") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {});
  save(host.exec, folder.path(), writer, 3);
  save(host.exec, folder.path(), writer, 6);
  auto const path = step_path(folder.path(), 6) + "/manifest.json";
  auto const sound = contents(path);
  for (std::size_t at = 0; at < sound.size(); ++at) {
    if (sound[at] == ' ' || sound[at] == '\n') continue;  // between tokens, most of them
    CAPTURE(at);
    write_file(path, sound);
    flip_byte(path, at);
    auto const e = error_of([&] { open_newest_checkpoint(folder.path()); });
    CHECK(e.value("checkpoint before") == step_path(folder.path(), 3));
    CHECK(std::string_view(e.what()).find(step_path(folder.path(), 6)) != std::string_view::npos);
  }
  for (std::size_t const size : {std::size_t{0}, sound.size() / 2, sound.size() - 3}) {
    write_file(path, sound.substr(0, size));
    CHECK(error_of([&] { open_newest_checkpoint(folder.path()); }).value("checkpoint before") == step_path(folder.path(), 3));
  }
  std::filesystem::remove(path);
  CHECK(error_of([&] { open_newest_checkpoint(folder.path()); }).value("checkpoint before") == step_path(folder.path(), 3));
}

TEST_CASE("where there is no checkpoint, that is what the error says") {
  temporary_folder folder;
  for (auto const& path : {folder.path(), folder.file("missing")}) {
    auto const e = error_of([&] { open_newest_checkpoint(path); });
    CHECK(e.code() == errc::io_error);
    CHECK(e.sentence() == "checkpoint: none in this folder");
    CHECK(e.value("folder") == path);
  }
  write_file(folder.file("plain"), "x");
  CHECK(error_of([&] { open_newest_checkpoint(folder.file("plain")); }).code() == errc::io_error);
}

TEST_CASE("a folder of something else is no checkpoint") {
  temporary_folder folder;
  write_manifest(folder.path(), {"somebody.else", 1, {}, {{"step", 1}}});
  CHECK(error_of([&] { open_newest_checkpoint(folder.path()); }).code() == errc::incompatible);
  write_manifest(folder.path(), {detail::checkpoint_format, detail::checkpoint_version + 1, {}, {{"step", 1}}});
  CHECK(error_of([&] { open_newest_checkpoint(folder.path()); }).code() == errc::incompatible);
  std::vector<manifest_section> sections;
  for (std::string const name : {"dense.safetensors", "tables.safetensors"}) {
    write_file(folder.file(name), "");
    sections.push_back({name, digest_of(folder.file(name))});
  }
  write_manifest(folder.path(), {detail::checkpoint_format, detail::checkpoint_version, sections, {{"step", 1}, {"options", nullptr}}});
  auto const e = error_of([&] { open_newest_checkpoint(folder.path()); });
  CHECK(e.code() == errc::parse_error);
  CHECK(e.value("field") == "options");
}

TEST_CASE("only the newest are kept") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {});
  for (std::int64_t const step : {1, 2, 3}) save(host.exec, folder.path(), writer, step, 3);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{1, 2, 3});
  save(host.exec, folder.path(), writer, 4, 2);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{3, 4});
  save(host.exec, folder.path(), writer, 4, 2);  // again: replaced
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{3, 4});
  save(host.exec, folder.path(), writer, 1000000, 1);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{1000000});
  CHECK(error_of([&] { save(host.exec, folder.path(), writer, 1000001, 0); }).code() == errc::invalid_argument);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{1000000});
}

TEST_CASE("what could not be opened is not saved") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {});
  for (checkpoint_state const& state : {checkpoint_state{.step = -1}, checkpoint_state{.step = 1, .options = nullptr},
                                        checkpoint_state{.step = 1, .position = nlohmann::json::array()}}) {
    CHECK(error_of([&] { save_checkpoint(host.exec, folder.path(), writer.run, state, 1, nothing_more); }).code() ==
          errc::invalid_argument);
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("gradients that wait for an update are not silently dropped") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {});
  auto clicks = small_shape().clicks(3);
  writer.run.accumulate(host.exec, clicks.next(host.exec, 8));
  CHECK(error_of([&] { save(host.exec, folder.path(), writer, 1); }).value("micro-batches") == "1");
  CHECK(std::filesystem::is_empty(folder.path()));
  writer.run.update(host.exec);
  save(host.exec, folder.path(), writer, 1);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{1});
}

TEST_CASE("what fails on the way leaves the checkpoints before") {
  serial_exec host;
  temporary_folder folder;
  small_run<dense_table<>, sgd, sgd> writer(host.exec, {}, {});
  save(host.exec, folder.path(), writer, 1);
  auto const failing = [](std::string const&) -> std::vector<manifest_section> { throw error(errc::io_error, "no more room"); };
  CHECK(error_of([&] { save_checkpoint(host.exec, folder.path(), writer.run, {.step = 2}, 1, failing); }).code() == errc::io_error);
  CHECK(steps_in(folder.path()) == std::vector<std::int64_t>{1});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(open_newest_checkpoint(folder.path()).state.step == 1);
}

TEST_CASE("a reader that knows nothing of us finds the parameters") {
  serial_exec host;
  temporary_folder folder;
  adam_run<hash_table<>> writer(host.exec, {0.05F}, {0.01F});
  writer.train(host.exec, 0, 3);
  save(host.exec, folder.path(), writer, 3);

  auto const floats = [&](std::string const& file, std::string const& tensor, std::vector<std::int64_t> const& shape) {
    auto const bytes = contents(step_path(folder.path(), 3) + "/" + file);
    std::uint64_t header_bytes = 0;
    REQUIRE(bytes.size() > 8);
    std::memcpy(&header_bytes, bytes.data(), 8);
    REQUIRE(header_bytes <= bytes.size() - 8);
    auto const header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    auto const& entry = header.at(tensor);
    CHECK(entry.at("dtype") == "F32");
    CHECK(entry.at("shape") == shape);
    auto const begin = entry.at("data_offsets").at(0).get<std::size_t>(), end = entry.at("data_offsets").at(1).get<std::size_t>();
    REQUIRE(8 + header_bytes + end <= bytes.size());
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + 8 + header_bytes + begin, end - begin);
    return values;
  };
  auto const layer = writer.model.bottom().layer(writer.model.bottom().parameters(), 0);
  std::vector<float> const weight(layer.weight.data(), layer.weight.data() + 12 * 5);
  CHECK(floats("dense.safetensors", "bottom.0.weight", {12, 5}) == weight);
  CHECK(floats("dense.safetensors", "bottom.0.bias", {12}) == std::vector<float>(layer.bias.begin(), layer.bias.end()));
  auto const& table = writer.table(1);
  std::vector<float> rows;
  for (std::int64_t slot = 0; slot < table.rows(); ++slot) rows.insert(rows.end(), table.row(slot), table.row(slot) + 8);
  CHECK(floats("tables.safetensors", "table.1.weight", {table.rows(), 8}) == rows);
}

TEST_CASE("a kill in the middle of saving leaves the newest committed checkpoint") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_exec host;
  temporary_folder folder;
  adam_run<dense_table<>> writer(host.exec, {0.05F}, {0.01F});
  std::int64_t step = 0;
  std::size_t before = 0;
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    auto const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (auto s = step + 1;; ++s) {
          writer.train(host.exec, s, s + 1);
          save(host.exec, folder.path(), writer, s);
          if (::write(ends[1], &s, sizeof s) != sizeof s) ::_exit(3);
        }
      } catch (...) {
        ::_exit(4);
      }
    }
    ::close(ends[1]);
    auto const wait = std::uniform_int_distribution<int>(0, 12000)(random);
    std::this_thread::sleep_for(std::chrono::microseconds(wait));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    std::int64_t reported = 0;
    for (std::int64_t s = 0; ::read(ends[0], &s, sizeof s) == sizeof s;) reported = s;
    ::close(ends[0]);

    auto const steps = steps_in(folder.path());
    if (reported > 0) REQUIRE(!steps.empty());
    if (steps.empty()) continue;
    // A save that reported has pruned to the two kept; one that was killed may have committed and not pruned, in several rounds on end.
    CHECK(steps.size() <= (reported > 0 ? 3 : before + 1));
    before = steps.size();
    auto const found = open_newest_checkpoint(folder.path());
    CHECK(found.state.step == steps.back());
    CHECK(found.state.step >= reported);
    CHECK(found.state.step >= step);
    step = found.state.step;
    load_trainer(host.exec, found, writer.run);
  }
  // The next one clears away what the killed ones left.
  save(host.exec, folder.path(), writer, step + 1);
  CHECK(steps_in(folder.path()).size() <= 2);
  for (auto const& entry : std::filesystem::directory_iterator(folder.path()))
    CHECK(entry.path().filename().string().rfind("step-", 0) == 0);
}

}  // namespace checkpoint_test
