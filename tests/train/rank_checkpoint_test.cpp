// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 4
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/admission.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/eviction.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/files/file_digest.hpp>
#include <tessera/files/manifest.hpp>
#include <tessera/files/safetensors.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/shard/sharded_tables.hpp>
#include <tessera/tensor/keyed_jagged.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/merged_checkpoint.hpp>
#include <tessera/train/trainer.hpp>

namespace rank_checkpoint_tests {

namespace rank_checkpoint_test {

namespace {

using namespace tessera;
using namespace tessera_tests;

constexpr std::int64_t numbers = 3, dim = 16, ids = 50, samples = 24;

// The tables, by number.
enum : std::int64_t { by_element, hashed, by_row, scaled, lru, table_count };

using lru_table = hash_table<float, admit_by_frequency, evict_lru>;

table_options options_of_table(std::int64_t t) {
  return {.id = table_id{t}, .dim = dim, .rows = ids, .init_bound = 0.3F, .seed = random_seed{2}};
}

std::vector<table_spec> all_specs() {
  auto few_rows = options_of_table(lru);
  few_rows.rows = 8;
  few_rows.most_rows = 12;  // so that rows leave
  return {spec_of<dense_table<>>(options_of_table(by_element), adagrad{.learning_rate = 0.1F}),
          spec_of<hash_table<>>(options_of_table(hashed), adam{.learning_rate = 0.05F}),
          spec_of<dense_table<float16>>(options_of_table(by_row), rowwise_adam{.learning_rate = 0.05F}),
          spec_of<hash_table<scaled_int8>>(options_of_table(scaled), adagrad{.learning_rate = 0.1F}),
          spec_of<lru_table>(few_rows, rowwise_adagrad{.learning_rate = 0.1F})};
}

std::vector<table_feature> all_features() {
  return {{.name = "a", .table = by_element}, {.name = "b", .table = hashed}, {.name = "c", .table = by_row, .pooling = pooling::mean},
          {.name = "d", .table = scaled},     {.name = "e", .table = lru},    {.name = "f", .table = hashed}};
}

std::int64_t rows_of(std::int64_t table) { return table == lru ? 8 : ids; }
table_shard block(std::int64_t table, int rank, std::int64_t first_column, std::int64_t end) {
  return {table, rank, 0, rows_of(table), first_column, end - first_column};
}

sharding_plan plan_of_four() {
  return {{block(lru, 3, 8, 16), block(by_element, 0, 0, 8), block(by_element, 1, 8, 16), block(hashed, 1, 0, 4), block(hashed, 2, 4, 16),
           block(by_row, 3, 0, 16), block(scaled, 2, 0, 16), block(lru, 0, 0, 8)}};
}
// Cuts and joins: the blocks of each table begin elsewhere, but for that of rows with a scale.
sharding_plan plan_of_three() {
  return {{block(scaled, 1, 0, 16), block(hashed, 0, 0, 16), block(by_element, 2, 12, 16), block(by_element, 0, 0, 4),
           block(by_element, 1, 4, 12), block(by_row, 1, 0, 8), block(by_row, 2, 8, 16), block(lru, 2, 0, 12), block(lru, 0, 12, 16)}};
}
sharding_plan plan_of_one() {
  sharding_plan plan;
  for (std::int64_t t = table_count; t-- > 0;) plan.shards.push_back(block(t, 0, 0, dim));
  return plan;
}

// The plan with other shards of a table.
sharding_plan with_shards(sharding_plan plan, std::int64_t table, std::vector<table_shard> const& shards) {
  std::erase_if(plan.shards, [&](auto const& s) { return s.table == table; });
  plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
  return plan;
}
sharding_plan by_rows(sharding_plan plan, std::int64_t table, int ranks) {
  return with_shards(std::move(plan), table, row_wise(options_of(all_specs()), table, ranks));
}
// Dense tables cut by rows alone; the others whole.
sharding_plan rows_of_four() { return by_rows(by_rows(plan_of_one(), by_element, 4), by_row, 4); }
sharding_plan rows_of_three() {
  return by_rows(with_shards(plan_of_one(), by_row, {{by_row, 1, 30, 20, 0, 16}, {by_row, 2, 0, 30, 0, 16}}), by_element, 3);
}
// Of two by two rectangles.
sharding_plan grid_of_four() {
  std::vector<table_shard> shards;
  for (auto const table : {by_element, by_row})
    for (int r = 0; r < 4; ++r) shards.push_back({table, r, r < 2 ? 0 : 20, r < 2 ? 20 : 30, r % 2 == 0 ? 0 : 4, r % 2 == 0 ? 4 : 12});
  auto plan = with_shards(plan_of_four(), by_element, {shards.begin(), shards.begin() + 4});
  return with_shards(std::move(plan), by_row, {shards.begin() + 4, shards.end()});
}
// Hashed tables cut by rows, one of them with policies, another also by columns.
sharding_plan hashes_of_four() {
  auto const tables = options_of(all_specs());
  return by_rows(by_rows(with_shards(rows_of_four(), hashed, grid(tables, hashed, {{3, 1}, {0, 2}})), scaled, 4), lru, 4);
}
sharding_plan hashes_of_three() {
  return by_rows(with_shards(plan_of_three(), hashed, {{hashed, 2, 0, 20, 0, 16}, {hashed, 0, 20, 30, 0, 16}}), scaled, 3);
}
// Tables on all ranks, one of them hashed.
sharding_plan everywhere_of(sharding_plan plan) {
  auto const tables = options_of(all_specs());
  for (auto const table : {by_element, by_row, hashed}) plan = with_shards(std::move(plan), table, data_parallel(tables, table));
  return plan;
}
// Rectangles that no lines from edge to edge make, one of them with all rows.
sharding_plan mixed_of_four() {
  auto plan = with_shards(plan_of_four(), by_row,
                          {{by_row, 2, 0, ids, 0, 4}, {by_row, 0, 0, 7, 4, 12}, {by_row, 3, 7, 43, 4, 8}, {by_row, 1, 7, 43, 12, 4}});
  return by_rows(std::move(plan), by_element, 3);
}
sharding_plan mixed_of_three() {
  return with_shards(by_rows(plan_of_three(), by_row, 3), by_element,
                     {{by_element, 1, 0, 31, 0, 8}, {by_element, 2, 31, 19, 0, 8}, {by_element, 0, 0, ids, 8, 8}});
}

struct click_samples {
  keyed_jagged<> keys;
  std::vector<float> dense, labels;

  click_samples(host_exec const& exec, std::mt19937_64& random, std::int64_t count) {
    auto const n = static_cast<std::size_t>(count);
    dense = random_floats(random, n * numbers);
    std::vector<feature_rows<>> rows;
    for (auto const& feature : all_features()) {
      std::vector<std::vector<std::int64_t>> bags(n);
      for (auto& bag : bags) bag = random_integers<std::int64_t>(random, random() % 3, 0, feature.table == lru ? 199 : ids - 1);
      rows.emplace_back(feature.name, std::move(bags));
    }
    keys = keyed_jagged<>::from_rows(exec, rows);
    for (std::size_t s = 0; s < n; ++s) labels.push_back(dense[s * numbers] > 0 ? 1.0F : 0.0F);
  }
  batch_view view() const {
    batch_view batch;
    batch.dense = {dense.data(), static_cast<std::int64_t>(labels.size()), numbers};
    batch.labels = labels;
    batch.sparse = keys.view();
    return batch;
  }
};

// Each rank draws its own samples of a batch, so that a run depends on the seed, the step and the number of ranks alone.
std::mt19937_64 random_of(std::uint64_t seed, std::int64_t step, int rank) {
  std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(step),
                      static_cast<std::uint32_t>(rank)};
  return std::mt19937_64(words);
}

template <class Source>
struct click_run {
  using model_type = dlrm<Source, eigen_gemm>;
  std::uint64_t seed;
  int rank;
  model_type model;
  trainer<model_type, adam> run;

  click_run(host_exec const& exec, std::uint64_t seed, Source source, trainer_options const& options, int rank)
      : seed(seed),
        rank(rank),
        model(exec, {.dense_features = numbers, .bottom_hidden = {8}, .top_hidden = {8}, .seed = random_seed{3}}, std::move(source)),
        run(exec, model, adam{.learning_rate = 0.02F}, options) {}
  click_run(click_run const&) = delete;

  void train(host_exec const& exec, std::int64_t first, std::int64_t last) {
    for (auto step = first; step < last; ++step) {
      auto random = random_of(seed, step, rank);
      click_samples const batch(exec, random, samples);
      run.step(exec, batch.view());
    }
  }
  // All ranks ask for the same samples.
  std::vector<float> predict(host_exec const& exec) const {
    auto random = random_of(seed, 1'000'000, 0);
    click_samples const batch(exec, random, 2 * samples);
    typename model_type::saved_type saved;
    auto const logits = model.predict(exec, batch.view(), saved);
    return {logits.begin(), logits.end()};
  }
  void save(host_exec const& exec, std::string const& directory, std::int64_t step, std::int64_t keep = 1) {
    save_checkpoint(exec, directory, run, {.step = step, .options = {{"seed", 3}}}, keep, [&](std::string const& into) {
      write_file(into + "/more.bin", "caller's own bytes");
      return std::vector<manifest_section>{{"more.bin", digest_of(into + "/more.bin")}};
    });
  }
};

static_assert(places_parts<sharded_tables> && places_parts<source_adaptor<sharded_tables>>);
static_assert(!places_parts<local_tables> && !places_parts<source_adaptor<local_tables>>);
static_assert(requires(source_adaptor<sharded_tables> const& source) { source.comm(); });

using rank_run = click_run<sharded_tables>;
using local_run = click_run<local_tables>;

std::unique_ptr<rank_run> make_run(host_exec const& exec, any_communicator const& comm, std::uint64_t seed, sharding_plan const& plan,
                                   std::vector<table_spec> const& specs = all_specs()) {
  trainer_options options;
  options.comm = comm;
  return std::make_unique<rank_run>(exec, seed, sharded_tables(exec, comm, specs, all_features(), plan), options, comm.rank());
}
std::unique_ptr<local_run> make_run(host_exec const& exec, std::uint64_t seed, trainer_options const& options = {}) {
  table_list list;
  for (auto const& spec : all_specs()) spec.add(exec, spec.table, list);
  return std::make_unique<local_run>(exec, seed, local_tables(std::move(list), all_features()), options, 0);
}

// Calls f(exec, comm) on each rank. The hosts outlive what ranks make.
template <class F>
void on_ranks(int ranks, F const& f) {
  std::vector<serial_host> hosts(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks,
                   [&](thread_communicator& comm) { f(hosts[static_cast<std::size_t>(comm.rank())].exec(), any_communicator(comm)); });
}

// What a rank throws, where all are to throw.
class errors_of_ranks {
 public:
  explicit errors_of_ranks(int ranks) : errors_(static_cast<std::size_t>(ranks)) {}

  template <class F>
  void note(any_communicator const& comm, F const& f) {
    try {
      f();
    } catch (error const& e) {
      errors_[static_cast<std::size_t>(comm.rank())] = e;
    }
  }
  // The error of a rank that finds the reason; the others say that it failed.
  error check_from(int rank) const {
    for (std::size_t r = 0; r < errors_.size(); ++r) {
      CAPTURE(r);
      REQUIRE(errors_[r].has_value());
      if (static_cast<int>(r) == rank) continue;
      CHECK(errors_[r]->code() == errc::rank_failed);
      CHECK(errors_[r]->value("rank") == std::to_string(rank));
    }
    return *errors_[static_cast<std::size_t>(rank)];
  }
  std::optional<error> const& of(int rank) const { return errors_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::optional<error>> errors_;
};

std::string step_path(std::string const& directory, std::int64_t step) { return directory + "/" + step_folder_name(step_count{step}); }

bool same(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

using numbers_list = std::vector<std::int64_t>;

// A checkpoint of four ranks after `steps` steps, and what they predict.
std::vector<float> save_four(std::string const& directory, std::uint64_t seed, std::int64_t steps, std::int64_t keep = 1,
                             sharding_plan const& plan = plan_of_four()) {
  std::vector<float> predicted;
  on_ranks(4, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, plan);
    run->train(exec, 0, steps);
    run->save(exec, directory, steps, keep);
    auto const here = run->predict(exec);
    if (comm.rank() == 2) predicted = here;
  });
  return predicted;
}

// Edits a checkpoint and gets every checksum right.
template <class Edit>
void edit_manifest(std::string const& folder, Edit const& edit) {
  auto content = read_manifest(folder, "tessera.checkpoint", 4);
  edit(content);
  for (auto& section : content.sections)
    if (std::filesystem::exists(folder + "/" + section.file)) section.digest = digest_of(folder + "/" + section.file);
  write_manifest(folder, content);
}

}  // namespace

TEST_CASE("a checkpoint of four ranks is resumed on three under another plan, then on one, then without ranks") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder, merged;
  auto const of_four = save_four(folder.path(), seed, 6);
  CHECK(names_in(step_path(folder.path(), 6)) == std::vector<std::string>{"dense.safetensors", "manifest.json", "more.bin",
                                                                          "tables.rank-0.safetensors", "tables.rank-1.safetensors",
                                                                          "tables.rank-2.safetensors", "tables.rank-3.safetensors"});

  // Rows have left the table, and ids wait for a row.
  safetensors_reader const of_rank(step_path(folder.path(), 6) + "/tables.rank-3.safetensors");
  CHECK(of_rank.at("table.0.lru").shape == std::vector<std::int64_t>{12, 1});
  CHECK(of_rank.at("table.0.sightings").shape.at(0) > 0);

  std::vector<std::vector<float>> loaded(3), trained(3);
  std::vector<numbers_list> averaged(3);
  std::vector<std::int64_t> steps(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    check_shared_folder(exec, comm, folder.path());
    auto const run = make_run(exec, comm, seed, plan_of_three());
    auto const found = open_newest_checkpoint(exec, comm, folder.path());
    steps[r] = found.state.step;
    averaged[r] = load_trainer(exec, found, run->run).averaged_tables;
    loaded[r] = run->predict(exec);
    run->train(exec, 6, 9);
    run->save(exec, folder.path(), 9);
    trained[r] = run->predict(exec);
  });
  for (std::size_t r = 0; r < 3; ++r) {
    CAPTURE(r);
    CHECK(steps[r] == 6);
    CHECK(averaged[r] == numbers_list{by_row, lru});
    CHECK(same(loaded[r], of_four));
    CHECK(same(trained[r], trained[0]));
  }
  CHECK_FALSE(same(trained[0], of_four));
  CHECK(names_in(folder.path()) == std::vector<std::string>{step_folder_name(step_count{9})});

  serial_host host;
  auto const exec = host.exec();
  auto const report = merge_checkpoint(exec, folder.path(), merged.path());
  CHECK(report.averaged_tables == numbers_list{by_row, lru});
  CHECK(names_in(step_path(merged.path(), 9)) ==
        std::vector<std::string>{"dense.safetensors", "manifest.json", "more.bin", "tables.safetensors"});
  std::vector<std::vector<float>> further;
  auto const goes_on = [&](auto& run, std::string const& directory, numbers_list const& expected) {
    auto const found = open_newest_checkpoint(directory);
    CHECK(found.state.step == 9);
    CHECK(found.state.options == nlohmann::json{{"seed", 3}});
    CHECK(load_trainer(exec, found, run.run).averaged_tables == expected);
    CHECK(same(run.predict(exec), trained[0]));
    run.train(exec, 9, 12);
    further.push_back(run.predict(exec));
  };
  goes_on(*make_run(exec, self_communicator(), seed, plan_of_one()), folder.path(), {by_row, lru});
  goes_on(*make_run(exec, seed), folder.path(), {by_row, lru});
  goes_on(*make_run(exec, self_communicator(), seed, plan_of_one()), merged.path(), {});
  goes_on(*make_run(exec, seed), merged.path(), {});
  for (auto const& predicted : further) CHECK(same(predicted, further[0]));
  CHECK_FALSE(same(further[0], trained[0]));
}

TEST_CASE("tables that are cut by rows go on under other cuts, on one rank and without ranks") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  struct kind {
    sharding_plan of_four, of_three;
    numbers_list averaged, further_averaged;
  };
  for (auto const& plans :
       {kind{rows_of_four(), rows_of_three(), {}, {}}, kind{rows_of_four(), mixed_of_three(), {lru}, {lru}},
        kind{grid_of_four(), rows_of_three(), {by_row, lru}, {}}, kind{mixed_of_four(), mixed_of_three(), {by_row, lru}, {lru}},
        kind{everywhere_of(plan_of_four()), mixed_of_three(), {lru}, {lru}}, kind{rows_of_four(), everywhere_of(rows_of_three()), {}, {}},
        kind{plan_of_four(), mixed_of_three(), {lru}, {lru}}, kind{mixed_of_four(), plan_of_three(), {by_row, lru}, {by_row, lru}}}) {
    temporary_folder folder, merged;
    auto const of_four = save_four(folder.path(), seed, 4, 1, plans.of_four);
    std::vector<std::vector<float>> loaded(3), trained(3);
    std::vector<numbers_list> averaged(3);
    on_ranks(3, [&](host_exec const& here, any_communicator const& comm) {
      auto const r = static_cast<std::size_t>(comm.rank());
      auto const run = make_run(here, comm, seed, plans.of_three);
      averaged[r] = load_trainer(here, open_newest_checkpoint(here, comm, folder.path()), run->run).averaged_tables;
      loaded[r] = run->predict(here);
      run->train(here, 4, 6);
      run->save(here, folder.path(), 6);
      trained[r] = run->predict(here);
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK(averaged[r] == plans.averaged);
      CHECK(same(loaded[r], of_four));
      CHECK(same(trained[r], trained[0]));
    }
    CHECK_FALSE(same(trained[0], of_four));
    CHECK(merge_checkpoint(exec, folder.path(), merged.path()).averaged_tables == plans.further_averaged);
    std::vector<std::vector<float>> further;
    auto const goes_on = [&](auto& run, std::string const& directory, numbers_list const& expected) {
      CHECK(load_trainer(exec, open_newest_checkpoint(directory), run.run).averaged_tables == expected);
      CHECK(same(run.predict(exec), trained[0]));
      run.train(exec, 6, 8);
      further.push_back(run.predict(exec));
    };
    goes_on(*make_run(exec, self_communicator(), seed, plan_of_one()), folder.path(), plans.further_averaged);
    goes_on(*make_run(exec, seed), folder.path(), plans.further_averaged);
    goes_on(*make_run(exec, seed), merged.path(), {});
    for (auto const& predicted : further) CHECK(same(predicted, further[0]));
  }
}

TEST_CASE("states of rows are kept bit for bit, however the rows are cut") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder of_four, of_three, merged, again, alone;
  save_four(of_four.path(), seed, 5, 1, rows_of_four());
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, rows_of_three());
    CHECK(load_trainer(exec, open_newest_checkpoint(exec, comm, of_four.path()), run->run).averaged_tables.empty());
    run->save(exec, of_three.path(), 5);
  });
  serial_host host;
  auto const exec = host.exec();
  CHECK(merge_checkpoint(exec, of_four.path(), merged.path()).averaged_tables.empty());
  CHECK(merge_checkpoint(exec, of_three.path(), again.path()).averaged_tables.empty());
  auto const run = make_run(exec, seed);
  load_trainer(exec, open_newest_checkpoint(of_four.path()), run->run);
  run->save(exec, alone.path(), 5);
  for (std::string const name : {"dense.safetensors", "tables.safetensors", "more.bin"}) {
    CAPTURE(name);
    auto const expected = contents(step_path(alone.path(), 5) + "/" + name);
    CHECK(contents(step_path(merged.path(), 5) + "/" + name) == expected);
    CHECK(contents(step_path(again.path(), 5) + "/" + name) == expected);
  }
  CHECK(read_manifest(step_path(merged.path(), 5), "tessera.checkpoint", 3).state ==
        read_manifest(step_path(alone.path(), 5), "tessera.checkpoint", 3).state);
}

TEST_CASE("a hashed table goes on as a dense one that is cut by rows, and that as a hashed one") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder hashes, rows;
  auto const of_four = save_four(hashes.path(), seed, 4);
  auto specs = all_specs();
  specs[hashed] = spec_of<dense_table<>>(options_of_table(hashed), adam{.learning_rate = 0.05F});
  // Of columns as they were, and others.
  auto const cut = with_shards(plan_of_three(), hashed, {{hashed, 0, 0, 20, 0, 16}, {hashed, 1, 20, 30, 0, 8}, {hashed, 2, 20, 30, 8, 8}});
  std::vector<std::vector<float>> loaded(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, cut, specs);
    load_trainer(exec, open_newest_checkpoint(exec, comm, hashes.path()), run->run);
    loaded[static_cast<std::size_t>(comm.rank())] = run->predict(exec);
    run->save(exec, rows.path(), 4);
  });
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, plan_of_three());
    load_trainer(exec, open_newest_checkpoint(exec, comm, rows.path()), run->run);
    auto const predicted = run->predict(exec);
    if (comm.rank() == 1) loaded.push_back(predicted);
  });
  for (auto const& predicted : loaded) CHECK(same(predicted, of_four));
}

TEST_CASE("hashed tables that are cut by rows go on under other cuts, whole, as dense ones, and without ranks") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const four = by_rows(hashes_of_four(), lru, 1), three = by_rows(hashes_of_three(), lru, 1);
  auto specs = all_specs();
  specs[hashed] = spec_of<dense_table<>>(options_of_table(hashed), adam{.learning_rate = 0.05F});
  auto const dense = with_shards(three, hashed, {{hashed, 0, 0, 20, 0, 16}, {hashed, 1, 20, 30, 0, 8}, {hashed, 2, 20, 30, 8, 8}});
  temporary_folder of_four, of_three, as_dense, from_dense, merged, again;
  auto const predicted = save_four(of_four.path(), seed, 4, 1, four);
  auto const goes_on = [&](std::string const& from, sharding_plan const& plan, std::vector<table_spec> const& as, std::string const& to) {
    on_ranks(3, [&](host_exec const& here, any_communicator const& comm) {
      auto const run = make_run(here, comm, seed, plan, as);
      load_trainer(here, open_newest_checkpoint(here, comm, from), run->run);
      CHECK(same(run->predict(here), predicted));
      run->save(here, to, 4);
    });
  };
  goes_on(of_four.path(), three, all_specs(), of_three.path());
  goes_on(of_three.path(), dense, specs, as_dense.path());
  goes_on(as_dense.path(), three, all_specs(), from_dense.path());
  goes_on(of_four.path(), plan_of_three(), all_specs(), from_dense.path());
  goes_on(from_dense.path(), three, all_specs(), from_dense.path());

  CHECK(merge_checkpoint(exec, of_four.path(), merged.path()).averaged_tables == numbers_list{});
  CHECK(merge_checkpoint(exec, of_three.path(), again.path()).averaged_tables == numbers_list{by_row});
  std::vector<std::vector<float>> further;
  for (auto const& directory : {of_four.path(), merged.path(), of_three.path(), again.path()}) {
    auto const run = make_run(exec, seed);
    load_trainer(exec, open_newest_checkpoint(directory), run->run);
    CHECK(same(run->predict(exec), predicted));
    run->train(exec, 4, 6);
    further.push_back(run->predict(exec));
  }
  CHECK(same(further[0], further[1]));
  CHECK(same(further[2], further[3]));
  goes_on(merged.path(), three, all_specs(), of_three.path());

  // Another size makes other ranges, and one too small for its rows is refused.
  specs = all_specs();
  specs[hashed].table.rows = 1000;
  auto larger = three;
  for (auto& shard : larger.shards)
    if (shard.table == hashed) {
      shard.first_row *= 20;
      shard.rows *= 20;
    }
  goes_on(of_four.path(), larger, specs, from_dense.path());
  specs[hashed].table.most_rows = 1000;
  goes_on(from_dense.path(), larger, specs, from_dense.path());
  auto few = all_specs();
  few[hashed].table.rows = few[hashed].table.most_rows = 2;
  auto const of_few = with_shards(three, hashed, {{hashed, 0, 0, 1, 0, 16}, {hashed, 1, 1, 1, 0, 16}});
  std::vector<std::optional<error>> errors(3);
  on_ranks(3, [&](host_exec const& here, any_communicator const& comm) {
    auto const run = make_run(here, comm, seed, of_few, few);
    try {
      load_trainer(here, open_newest_checkpoint(here, comm, of_four.path()), run->run);
    } catch (error const& e) {
      errors[static_cast<std::size_t>(comm.rank())] = e;
    }
  });
  for (auto const& e : errors) REQUIRE(e.has_value());
  CHECK(errors[0]->code() == errc::incompatible);
  CHECK(errors[0]->value("table") == std::to_string(hashed));
}

TEST_CASE("a table with policies that is cut by rows goes on under the same cuts alone") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder cut, whole, merged;
  auto const of_four = save_four(cut.path(), seed, 4, 1, hashes_of_four());
  save_four(whole.path(), seed, 4);
  serial_host host;
  auto const exec = host.exec();
  auto const refused = [&](auto const& f) {
    auto const e = error_of(f);
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == std::to_string(lru));
    CHECK(std::string(e.what()).find("policies") != std::string::npos);
  };
  auto const run = make_run(exec, seed);
  refused([&] { load_trainer(exec, open_newest_checkpoint(cut.path()), run->run); });
  refused([&] { merge_checkpoint(exec, cut.path(), merged.path()); });
  on_ranks(4, [&](host_exec const& here, any_communicator const& comm) {
    auto const other = make_run(here, comm, seed, hashes_of_four());
    refused([&] {
      try {
        load_trainer(here, open_newest_checkpoint(here, comm, whole.path()), other->run);
      } catch (error const& e) {
        if (e.code() != errc::rank_failed) throw;
        FAIL("another rank failed first");
      }
    });
  });
  auto const again = make_run(exec, seed);
  load_model(exec, open_newest_checkpoint(cut.path()), again->model);  // predictions need no policies
  CHECK(again->predict(exec).size() == of_four.size());
}

TEST_CASE("a model alone is loaded on ranks, and from ranks") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder;
  auto const of_four = save_four(folder.path(), seed, 4);
  std::vector<std::vector<float>> loaded(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, plan_of_three());
    load_model(exec, open_newest_checkpoint(exec, comm, folder.path()), run->model);
    loaded[static_cast<std::size_t>(comm.rank())] = run->predict(exec);
  });
  serial_host host;
  auto const run = make_run(host.exec(), seed);
  load_model(host.exec(), open_newest_checkpoint(folder.path()), run->model);
  loaded.push_back(run->predict(host.exec()));
  for (auto const& predicted : loaded) CHECK(same(predicted, of_four));
}

TEST_CASE("training that is resumed on as many ranks under the same plan has the bits of training that never stopped") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  for (auto const& plan :
       {plan_of_four(), rows_of_four(), grid_of_four(), mixed_of_four(), hashes_of_four(), everywhere_of(plan_of_four())}) {
    temporary_folder whole, cut;
    save_four(whole.path(), seed, 7, 1, plan);
    save_four(cut.path(), seed, 4, 1, plan);
    std::vector<numbers_list> averaged(4);
    on_ranks(4, [&](host_exec const& exec, any_communicator const& comm) {
      auto const run = make_run(exec, comm, seed, plan);
      averaged[static_cast<std::size_t>(comm.rank())] =
          load_trainer(exec, open_newest_checkpoint(exec, comm, cut.path()), run->run).averaged_tables;
      run->train(exec, 4, 7);
      run->save(exec, cut.path(), 7);
    });
    for (auto const& of_rank : averaged) CHECK(of_rank.empty());
    auto const expected = step_path(whole.path(), 7), found = step_path(cut.path(), 7);
    auto const names = names_in(expected);
    CHECK(names_in(found) == names);
    for (auto const& name : names) {
      CAPTURE(name);
      CHECK(contents(found + "/" + name) == contents(expected + "/" + name));
    }
  }
}

TEST_CASE("a checkpoint of one process goes through ranks of any plan and comes back byte for byte") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  serial_host host;
  auto const exec = host.exec();
  temporary_folder first;
  std::vector<float> predicted;
  {
    auto const run = make_run(exec, seed);
    run->train(exec, 0, 5);
    run->save(exec, first.path(), 5);
    predicted = run->predict(exec);
  }
  auto const expected = step_path(first.path(), 5);
  auto const check_back = [&](std::string const& directory) {
    auto const found = step_path(directory, 5);
    CHECK(names_in(found) == names_in(expected));
    for (std::string const name : {"dense.safetensors", "tables.safetensors", "more.bin"}) {
      CAPTURE(name);
      CHECK(contents(found + "/" + name) == contents(expected + "/" + name));
    }
    CHECK(read_manifest(found, "tessera.checkpoint", 3).state == read_manifest(expected, "tessera.checkpoint", 3).state);
  };
  struct kind {
    int ranks;
    sharding_plan plan;
  };
  // Of four ranks under the plan of three, one has no tables.
  for (auto const& of :
       {kind{4, plan_of_four()}, kind{3, plan_of_three()}, kind{4, plan_of_three()}, kind{1, plan_of_one()}, kind{4, rows_of_four()},
        kind{4, grid_of_four()}, kind{4, mixed_of_four()}, kind{3, mixed_of_three()}, kind{4, everywhere_of(plan_of_four())}}) {
    auto const ranks = of.ranks;
    CAPTURE(ranks);
    temporary_folder of_ranks, back;
    std::vector<std::vector<float>> loaded(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](host_exec const& here, any_communicator const& comm) {
      auto const run = make_run(here, comm, seed, of.plan);
      load_trainer(here, open_newest_checkpoint(here, comm, first.path()), run->run);
      loaded[static_cast<std::size_t>(comm.rank())] = run->predict(here);
      run->save(here, of_ranks.path(), 5);
    });
    for (auto const& of_rank : loaded) CHECK(same(of_rank, predicted));
    if (ranks == 1) {
      check_back(of_ranks.path());  // already as one process writes
      continue;
    }
    merge_checkpoint(exec, step_path(of_ranks.path(), 5), back.path());
    check_back(back.path());
    merge_checkpoint(exec, of_ranks.path(), of_ranks.path());  // in its place
    check_back(of_ranks.path());
    CHECK(error_of([&] { merge_checkpoint(exec, back.path(), back.path()); }).code() == errc::invalid_argument);
  }
}

TEST_CASE("rows with a scale are cut, but blocks with scales of their own are not joined") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder, merged;
  auto const of_four = save_four(folder.path(), seed, 3);
  auto cut = plan_of_three();
  std::erase_if(cut.shards, [](auto const& s) { return s.table == scaled; });
  cut.shards.insert(cut.shards.end(), {block(scaled, 0, 0, 8), block(scaled, 2, 8, 16)});
  std::vector<std::vector<float>> loaded(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, cut);
    load_trainer(exec, open_newest_checkpoint(exec, comm, folder.path()), run->run);
    loaded[static_cast<std::size_t>(comm.rank())] = run->predict(exec);
    run->save(exec, folder.path(), 4);
  });
  for (auto const& predicted : loaded) CHECK(same(predicted, of_four));

  serial_host host;
  auto const run = make_run(host.exec(), seed);
  auto const before = run->predict(host.exec());
  for (auto const& e : {error_of([&] { load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run); }),
                        error_of([&] { merge_checkpoint(host.exec(), folder.path(), merged.path()); })}) {
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == std::to_string(scaled));
  }
  CHECK(same(run->predict(host.exec()), before));
  CHECK(names_in(merged.path()).empty());
  errors_of_ranks errors(4);
  on_ranks(4, [&](host_exec const& exec, any_communicator const& comm) {
    auto const four = make_run(exec, comm, seed, plan_of_four());
    errors.note(comm, [&] { load_trainer(exec, open_newest_checkpoint(exec, comm, folder.path()), four->run); });
  });
  CHECK(errors.check_from(2).value("table") == std::to_string(scaled));
}

TEST_CASE("row-wise states of other columns are the means by width of those that were saved") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder;
  auto plan = plan_of_four();
  std::erase_if(plan.shards, [](auto const& s) { return s.table == by_row; });
  plan.shards.insert(plan.shards.end(), {block(by_row, 1, 0, 4), block(by_row, 3, 4, 16)});
  on_ranks(4, [&](host_exec const& exec, any_communicator const& comm) {
    auto const run = make_run(exec, comm, seed, plan);
    run->train(exec, 0, 3);
    run->save(exec, folder.path(), 3);
  });
  serial_host host;
  auto const run = make_run(host.exec(), seed);
  load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run);
  auto const path = step_path(folder.path(), 3);
  auto const shards = read_manifest(path, "tessera.checkpoint", 4).state["shards"];
  auto const state_of = [&](std::int64_t first_column, std::int64_t columns) {
    auto const shard = std::find_if(shards.begin(), shards.end(),
                                    [&](auto const& s) { return s["table"] == by_row && s["first_column"] == first_column; });
    REQUIRE(shard != shards.end());
    CHECK((*shard)["columns"] == columns);
    CHECK((*shard)["state_per_row"] == 1);
    CHECK((*shard)["state_per_element"] == 1);
    safetensors_reader const in(path + "/" + (*shard)["file"].get<std::string>());
    auto const tensor = "table." + std::to_string((*shard)["part"].get<int>()) + ".state";
    in.expect(tensor, safetensors_dtype::f32, {ids, 1 + columns});
    std::vector<float> state(static_cast<std::size_t>(ids * (1 + columns)));
    in.read(tensor, 0, vector_view<float>(state));
    return state;
  };
  auto const left = state_of(0, 4), right = state_of(4, 12);
  auto const& table = run->model.source().store<dense_table<float16>>(by_row);
  for (std::int64_t row = 0; row < ids; ++row) {
    auto const* const l = left.data() + row * 5;
    auto const* const r = right.data() + row * 13;
    auto const* const found = table.state(row);
    CHECK(found[0] == static_cast<float>((4 * double{l[0]} + 12 * double{r[0]}) / 16));
    CHECK(std::equal(l + 1, l + 5, found + 1));
    CHECK(std::equal(r + 1, r + 13, found + 5));
  }
}

TEST_CASE("where one rank cannot save, no rank has saved, and the checkpoint before stays") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder, other;
  auto const of_four = save_four(folder.path(), seed, 2);
  auto const saves = [&](auto const& directory_of, auto const& step_of, bool extra_fails) {
    errors_of_ranks errors(4);
    on_ranks(4, [&](host_exec const& exec, any_communicator const& comm) {
      auto const run = make_run(exec, comm, seed, plan_of_four());
      errors.note(comm, [&] {
        checkpoint_state const state{.step = step_of(comm.rank())};
        save_checkpoint(exec, directory_of(comm.rank()), run->run, state, 1, [&](std::string const&) -> std::vector<manifest_section> {
          if (extra_fails) throw error(errc::io_error, "no more room");
          return {};
        });
      });
    });
    CHECK(names_in(folder.path()) == std::vector<std::string>{step_folder_name(step_count{2})});
    CHECK(open_newest_checkpoint(folder.path()).state.step == 2);
    return errors;
  };
  auto const here = [&](int) { return folder.path(); };
  auto const missing = [&](int rank) { return rank == 2 ? other.file("missing") : folder.path(); };
  auto const elsewhere = [&](int rank) { return rank == 2 ? other.path() : folder.path(); };
  auto const third = [](int) { return std::int64_t{3}; };

  auto const e = saves(missing, third, false).check_from(2);
  CHECK(e.code() == errc::io_error);
  CHECK(std::string_view(e.value("file")).find("tables.rank-2.safetensors") != std::string_view::npos);

  // A rank that writes into a folder of the same name elsewhere.
  std::filesystem::create_directory(other.file(".tessera-staging-new-step-000000000003.0"));
  auto const lost = saves(elsewhere, third, false).check_from(0);
  CHECK(lost.code() == errc::io_error);
  CHECK(lost.value("rank") == "2");

  CHECK(saves(here, third, true).check_from(0).sentence() == "no more room");

  auto const step = saves(
                        here, [](int rank) { return std::int64_t{rank == 1 ? 4 : 3}; }, false)
                        .check_from(1);
  CHECK(step.code() == errc::incompatible);
  CHECK(saves(
            here, [](int rank) { return std::int64_t{rank == 3 ? -1 : 3}; }, false)
            .check_from(3)
            .code() == errc::invalid_argument);

  serial_host host;
  auto const run = make_run(host.exec(), seed);
  load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run);
  CHECK(same(run->predict(host.exec()), of_four));
}

TEST_CASE("ranks that all have all tables are told that these overlap") {
  temporary_folder folder;
  errors_of_ranks errors(2);
  on_ranks(2, [&](host_exec const& exec, any_communicator const& comm) {
    trainer_options options;
    options.comm = comm;
    auto const run = make_run(exec, 1, options);
    errors.note(comm, [&] { run->save(exec, folder.path(), 1); });
  });
  auto const e = errors.check_from(0);
  CHECK(e.code() == errc::invalid_argument);
  CHECK(e.value("table") == "0");
  CHECK(names_in(folder.path()).empty());
}

TEST_CASE("a folder that ranks do not share is refused before training") {
  temporary_folder folder, other;
  errors_of_ranks errors(3), none(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    errors.note(comm, [&] { check_shared_folder(exec, comm, comm.rank() == 1 ? other.path() : folder.path()); });
    none.note(comm, [&] { check_shared_folder(exec, comm, folder.file("new/folder")); });
  });
  auto const e = errors.check_from(1);
  CHECK(e.code() == errc::io_error);
  CHECK(e.sentence() == "checkpoint: a folder that ranks do not share");
  CHECK(e.value("rank") == "1");
  CHECK(e.value("folder") == other.path());
  for (int r = 0; r < 3; ++r) CHECK_FALSE(none.of(r).has_value());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"new"});
  CHECK(names_in(folder.file("new/folder")).empty());
  CHECK(names_in(other.path()).empty());
}

TEST_CASE("a torn or altered checkpoint of ranks is refused by the file's name, on all ranks") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder;
  save_four(folder.path(), seed, 1, 2);
  save_four(folder.path(), seed, 2, 2);
  auto const newest = step_path(folder.path(), 2);
  auto const check_refusal = [&](std::string const& section) {
    auto const alone = error_of([&] { open_newest_checkpoint(folder.path()); });
    errors_of_ranks errors(3);
    on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
      errors.note(comm, [&] { open_newest_checkpoint(exec, comm, folder.path()); });
    });
    int found = 0;
    for (int r = 0; r < 3; ++r) {
      REQUIRE(errors.of(r).has_value());
      auto const& e = *errors.of(r);
      if (e.code() == errc::rank_failed) continue;
      ++found;
      CHECK(e.code() == errc::corrupt_file);
      CHECK(e.value("section") == section);
      CHECK(e.value("checkpoint before") == step_path(folder.path(), 1));
    }
    CHECK(found >= 1);
    CHECK(alone.code() == errc::corrupt_file);
    CHECK(alone.value("section") == section);
    CHECK(open_newest_checkpoint(std::string(alone.value("checkpoint before"))).state.step == 1);
  };
  for (std::string const section : {"dense.safetensors", "tables.rank-0.safetensors", "tables.rank-3.safetensors"}) {
    CAPTURE(section);
    auto const path = newest + "/" + section;
    auto const sound = contents(path);
    std::filesystem::remove(path);
    check_refusal(section);
    auto altered = sound;
    altered[sound.size() / 2] = static_cast<char>(altered[sound.size() / 2] ^ 0x10);
    write_file(path, altered);
    check_refusal(section);
    write_file(path, sound);
  }
  // A file of ranks that the manifest's sections do not list.
  edit_manifest(newest, [](manifest& content) {
    std::erase_if(content.sections, [](auto const& s) { return s.file == "tables.rank-1.safetensors"; });
  });
  check_refusal("tables.rank-1.safetensors");
}

TEST_CASE("shards of rows that leave a gap, overlap or reach past their table are refused, naming table, row and column") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder;
  auto const predicted = save_four(folder.path(), seed, 1, 1, mixed_of_four());
  auto const path = step_path(folder.path(), 1);
  auto const sound = contents(path + "/manifest.json");
  // Edits the shard of a table that begins there.
  auto const refused = [&](std::int64_t table, std::int64_t first_row, std::int64_t first_column, auto const& edit) {
    edit_manifest(path, [&](manifest& content) {
      auto& shards = content.state["shards"];
      auto const shard = std::find_if(shards.begin(), shards.end(), [&](auto const& s) {
        return s["table"] == table && s["first_column"] == first_column && s.value("first_row", std::int64_t{0}) == first_row;
      });
      REQUIRE(shard != shards.end());
      edit(content.state, shard);
    });
    auto const e = error_of([&] { open_newest_checkpoint(folder.path()); });
    write_file(path + "/manifest.json", sound);
    return e;
  };
  auto const check_place = [](error const& e, std::int64_t table, char const* row, char const* column) {
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("table") == std::to_string(table));
    CHECK(e.value("row") == row);
    CHECK(e.value("column") == column);
  };
  auto const erase = [](auto& state, auto shard) { state["shards"].erase(shard); };
  auto const set = [](char const* field, std::int64_t value) { return [field, value](auto&, auto shard) { (*shard)[field] = value; }; };
  check_place(refused(by_element, 17, 0, erase), by_element, "17", "0");
  check_place(refused(by_element, 34, 0, erase), by_element, "34", "0");
  check_place(refused(by_element, 17, 0, set("rows", 16)), by_element, "33", "0");
  check_place(refused(by_element, 17, 0, set("rows", 18)), by_element, "34", "0");
  check_place(refused(by_element, 34, 0, set("rows", 17)), by_element, "50", "0");
  check_place(refused(by_element, 34, 0, set("rows", 0)), by_element, "34", "0");
  check_place(refused(by_row, 7, 12, erase), by_row, "7", "12");
  check_place(refused(by_row, 0, 4, set("rows", 6)), by_row, "6", "4");
  check_place(refused(by_row, 7, 4, set("columns", 4)), by_row, "7", "8");
  CHECK(refused(by_row, 7, 4, set("rows", -1)).value("field") == "rows");
  CHECK(refused(by_row, 7, 4, [](auto&, auto shard) { (*shard).erase("rows"); }).value("field") == "rows");
  CHECK(refused(by_row, 7, 4, [](auto& state, auto) { state.erase("table_rows"); }).value("field") == "table_rows");
  CHECK(refused(by_row, 7, 4, [](auto& state, auto) { state["table_rows"].erase(0); }).value("field") == "table_rows");

  // Shards that the manifest gives to each other's rows are found by their files.
  edit_manifest(path, [](manifest& content) {
    for (auto& shard : content.state["shards"])
      if (shard["table"] == by_element && shard["rows"] == 16)
        shard["first_row"] = 33, shard["rows"] = 17;
      else if (shard["table"] == by_element && shard["first_row"] == 17)
        shard["rows"] = 16;
  });
  serial_host host;
  auto const run = make_run(host.exec(), seed);
  auto const e = error_of([&] { load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run); });
  CHECK(e.code() == errc::corrupt_file);
  CHECK(e.value("table") == std::to_string(by_element));
  CHECK(e.value("rows") == "17");
  // A shard with all rows of a table need not say so.
  write_file(path + "/manifest.json", sound);
  edit_manifest(path, [](manifest& content) {
    for (auto& shard : content.state["shards"])
      if (shard["table"] == by_row && shard["rows"] == ids) shard.erase("rows"), shard.erase("first_row");
  });
  load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run);
  CHECK(same(run->predict(host.exec()), predicted));
}

TEST_CASE("tables of other numbers of rows are refused, whoever is cut by rows") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder cut, whole;
  save_four(cut.path(), seed, 1, 1, rows_of_four());
  save_four(whole.path(), seed, 1);
  auto specs = all_specs();
  specs[by_element].table.rows = 60;
  auto const loads = [&](std::string const& directory, int ranks, sharding_plan const& plan, int finds) {
    errors_of_ranks errors(ranks);
    on_ranks(ranks, [&](host_exec const& exec, any_communicator const& comm) {
      auto const run = make_run(exec, comm, seed, plan, specs);
      errors.note(comm, [&] { load_trainer(exec, open_newest_checkpoint(exec, comm, directory), run->run); });
    });
    auto const e = errors.check_from(finds);
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == std::to_string(by_element));
    CHECK(e.value("rows") == "50");
    CHECK(e.value("expected") == "60");
  };
  table_shard const all{by_element, 1, 0, 60, 0, dim}, first{by_element, 0, 0, 50, 0, dim}, last{by_element, 2, 50, 10, 0, dim};
  for (auto const& directory : {cut.path(), whole.path()}) loads(directory, 3, with_shards(plan_of_three(), by_element, {all}), 1);
  for (auto const& directory : {cut.path(), whole.path()}) {
    errors_of_ranks errors(3);
    on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
      auto const run = make_run(exec, comm, seed, with_shards(plan_of_three(), by_element, {first, last}), specs);
      errors.note(comm, [&] { load_trainer(exec, open_newest_checkpoint(exec, comm, directory), run->run); });
    });
    for (int const r : {0, 2}) {
      REQUIRE(errors.of(r).has_value());
      CHECK(errors.of(r)->code() == errc::incompatible);
      CHECK(errors.of(r)->value("table") == std::to_string(by_element));
      CHECK(errors.of(r)->value("expected") == "60");
    }
    REQUIRE(errors.of(1).has_value());
    CHECK(errors.of(1)->code() == errc::rank_failed);
  }
}

TEST_CASE("shards that leave a gap, overlap or are of no table are refused, naming table and column") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder;
  save_four(folder.path(), seed, 1);
  auto const path = step_path(folder.path(), 1);
  auto const sound = contents(path + "/manifest.json");
  auto const refused = [&](auto const& edit) {
    edit_manifest(path, [&](manifest& content) {
      auto& shards = content.state["shards"];
      auto const shard =
          std::find_if(shards.begin(), shards.end(), [](auto const& s) { return s["table"] == hashed && s["columns"] == 12; });
      REQUIRE(shard != shards.end());
      edit(shards, shard);
    });
    auto const e = error_of([&] { open_newest_checkpoint(folder.path()); });
    write_file(path + "/manifest.json", sound);
    return e;
  };
  auto const check_place = [](error const& e, char const* column) {
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("table") == std::to_string(hashed));
    CHECK(e.value("column") == column);
  };
  check_place(refused([](auto& shards, auto shard) { shards.erase(shard); }), "4");
  check_place(refused([](auto&, auto shard) { (*shard)["columns"] = 8; }), "12");
  check_place(refused([](auto&, auto shard) { (*shard)["first_column"] = 8; }), "4");
  check_place(refused([](auto&, auto shard) { (*shard)["first_column"] = 0; }), "0");
  check_place(refused([](auto&, auto shard) { (*shard)["columns"] = 16; }), "16");
  auto const unknown = refused([](auto&, auto shard) { (*shard)["table"] = int{table_count}; });
  CHECK(unknown.code() == errc::parse_error);
  CHECK(unknown.value("field") == "table");
  CHECK(refused([](auto&, auto shard) { (*shard)["file"] = "tables.rank-9.safetensors"; }).value("section") == "tables.rank-9.safetensors");
  CHECK(refused([](auto&, auto shard) { (*shard).erase("part"); }).value("field") == "part");

  serial_host host;
  // A part that its file does not have.
  edit_manifest(path, [&](manifest& content) { content.state["shards"][0]["part"] = 7; });
  auto const run = make_run(host.exec(), seed);
  CHECK(error_of([&] { load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run); }).code() == errc::incompatible);
  write_file(path + "/manifest.json", sound);
  load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run);
}

TEST_CASE("blocks of a hashed table that list other ids are refused, naming file and row") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder, merged;
  save_four(folder.path(), seed, 2);
  auto const path = step_path(folder.path(), 2);
  auto const shards = read_manifest(path, "tessera.checkpoint", 4).state["shards"];
  auto const shard = std::find_if(shards.begin(), shards.end(), [](auto const& s) { return s["table"] == hashed && s["columns"] == 12; });
  REQUIRE(shard != shards.end());
  auto const file = path + "/" + (*shard)["file"].get<std::string>();
  auto const tensor = "table." + std::to_string((*shard)["part"].get<int>()) + ".ids";
  auto bytes = contents(file);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  auto const entry = safetensors_reader(file).at(tensor);
  REQUIRE(entry.elements() > 3);
  std::int64_t const other = 1000;
  std::memcpy(bytes.data() + sizeof header + header + entry.offset + 2 * sizeof other, &other, sizeof other);
  write_file(file, bytes);
  edit_manifest(path, [](manifest&) {});
  serial_host host;
  auto const run = make_run(host.exec(), seed);
  for (auto const& e : {error_of([&] { load_trainer(host.exec(), open_newest_checkpoint(folder.path()), run->run); }),
                        error_of([&] { merge_checkpoint(host.exec(), folder.path(), merged.path()); })}) {
    CHECK(e.code() == errc::corrupt_file);
    CHECK(e.value("file") == file);
    CHECK(e.value("row") == "2");
    CHECK(e.value("id") == "1000");
  }
  CHECK(names_in(merged.path()).empty());
}

TEST_CASE("where one rank refuses a checkpoint, all do, and nothing has changed") {
  auto const seed = draw_seed();
  CAPTURE(seed);
  temporary_folder folder, other;
  save_four(folder.path(), seed, 2);
  save_four(other.path(), seed + 1, 2);
  auto small = all_specs();
  small[hashed].table.rows = 2;
  small[hashed].table.most_rows = 2;
  auto plan = plan_of_three();
  for (auto& shard : plan.shards)
    if (shard.table == hashed) shard.rows = 2;
  errors_of_ranks size(3), model(3), kind(3), manifests(3);
  std::vector<std::vector<float>> before(3), after(3);
  on_ranks(3, [&](host_exec const& exec, any_communicator const& comm) {
    auto const r = static_cast<std::size_t>(comm.rank());
    auto const found = open_newest_checkpoint(exec, comm, folder.path());
    auto const run = make_run(exec, comm, seed, plan, small);
    before[r] = run->predict(exec);
    size.note(comm, [&] { load_trainer(exec, found, run->run); });
    model.note(comm, [&] { load_model(exec, found, run->model); });
    after[r] = run->predict(exec);
    auto specs = all_specs();
    specs[by_row] = spec_of<dense_table<float16>>(options_of_table(by_row), adagrad{});
    kind.note(comm, [&] { load_trainer(exec, found, make_run(exec, comm, seed, plan_of_three(), specs)->run); });
    manifests.note(comm, [&] { open_newest_checkpoint(exec, comm, comm.rank() == 1 ? other.path() : folder.path()); });
  });
  for (auto const& e : {size.check_from(0), model.check_from(0)}) {
    CHECK(e.code() == errc::incompatible);
    CHECK(e.value("table") == std::to_string(hashed));
    CHECK(e.value("most_rows") == "2");
  }
  for (std::size_t r = 0; r < 3; ++r) CHECK(same(after[r], before[r]));
  for (int const r : {1, 2}) {
    REQUIRE(kind.of(r).has_value());
    CHECK(kind.of(r)->code() == errc::incompatible);
    CHECK(kind.of(r)->value("optimizer") == "rowwise_adam");
  }
  REQUIRE(kind.of(0).has_value());
  CHECK(kind.of(0)->code() == errc::rank_failed);
  CHECK(manifests.check_from(1).code() == errc::incompatible);
}

}  // namespace rank_checkpoint_test

}  // namespace rank_checkpoint_tests
