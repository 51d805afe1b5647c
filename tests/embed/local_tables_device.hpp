// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/optimizers.hpp>
#include <tessera/embed/bucket_table.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.cuh>
#include <tessera/embed/row_cache.cuh>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/source_adaptor.hpp>
#include <tessera/embed/table_files.hpp>

#include "embedding_source_suite.hpp"

namespace embed_tests {

template <class Exec>
tessera::device_tables<Exec> device_source_of(Exec const& exec, source_problem const& problem, tessera::basic_table_list<Exec> tables,
                                              std::int64_t source_ranks = 1) {
  return {exec, std::move(tables), problem.features, {.sums = problem.sums, .lookup = {.source_ranks = source_ranks}}};
}

inline tessera::table_options with_rows(tessera::table_options options, std::int64_t rows) {
  options.rows = rows;
  return options;
}

template <class Exec>
struct dense_device_maker {
  using source_type = tessera::device_tables<Exec>;
  static constexpr bool refuses_ids = true;
  static source_type make(Exec const& exec, source_problem const& problem) {
    tessera::basic_table_list<Exec> tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::dense_table<float, Exec>(exec, problem.tables[t], tessera::sgd{}),
                 tessera::sgd{.learning_rate = problem.rates[t]});
    CHECK(tables.group_count() == 1);
    return device_source_of(exec, problem, std::move(tables));
  }
};

template <class Exec>
struct bucket_device_maker {
  using source_type = tessera::device_tables<Exec>;
  static constexpr bool refuses_ids = false;
  static source_type make(Exec const& exec, source_problem const& problem) {
    tessera::basic_table_list<Exec> tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::bucket_table<float, Exec>(exec, with_rows(problem.tables[t], 100), tessera::sgd{}),
                 tessera::sgd{.learning_rate = problem.rates[t]});
    return device_source_of(exec, problem, std::move(tables));
  }
};

// Of three kinds, whose keys do not follow each other. Tables 0 and 2 evict, though they never need to.
template <class Exec>
struct mixed_device_maker {
  using source_type = tessera::device_tables<Exec>;
  static constexpr bool refuses_ids = true;
  static source_type make(Exec const& exec, source_problem const& problem) {
    tessera::basic_table_list<Exec> tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t) {
      tessera::sgd const optimizer{.learning_rate = problem.rates[t]};
      auto options = problem.tables[t];
      if (t == 0 || t == 2) {
        options.rows = 300;
        options.batches_in_flight = 2;
        tables.add(tessera::bucket_table<float, Exec, tessera::evict_lru>(exec, options, optimizer), optimizer);
      } else if (t == 3) {
        tables.add(tessera::bucket_table<float, Exec>(exec, with_rows(options, 100), optimizer), optimizer);
      } else {
        tables.add(tessera::dense_table<float, Exec>(exec, options, optimizer), optimizer);
      }
    }
    CHECK(tables.group_count() == 3);
    return device_source_of(exec, problem, std::move(tables));
  }
};

/// A source over caches, with the tables behind them.
template <class Exec>
struct cached_source : tessera::source_adaptor<tessera::device_tables<Exec>> {
  using table = tessera::dense_table<float, Exec>;
  std::shared_ptr<std::vector<table>> behind;
};

template <class Exec>
struct cached_device_maker {
  using source_type = cached_source<Exec>;
  static constexpr bool refuses_ids = true;
  static source_type make(Exec const& exec, source_problem const& problem) { return make(exec, problem, 300); }
  static source_type make(Exec const& exec, source_problem const& problem, std::int64_t lines) {
    auto behind = std::make_shared<std::vector<typename source_type::table>>();
    for (auto options : problem.tables) {
      if (lines >= source_ids) options.batches_in_flight = 2;
      behind->emplace_back(exec, options, tessera::sgd{});
    }
    tessera::basic_table_list<Exec> tables;
    for (std::size_t t = 0; t < problem.tables.size(); ++t)
      tables.add(tessera::row_cache<typename source_type::table>(exec, (*behind)[t], lines),
                 tessera::sgd{.learning_rate = problem.rates[t]});
    using base = tessera::source_adaptor<tessera::device_tables<Exec>>;
    return {base(device_source_of(exec, problem, std::move(tables))), std::move(behind)};
  }
};

/// What a part has of each id: the bytes of all planes but the use.
inline std::map<std::int64_t, std::vector<char>> rows_of_part(tessera::table_part const& part) {
  auto const count = static_cast<std::size_t>(part.rows());
  std::vector<std::int64_t> slots(count), ids(count);
  part.list_rows(slots, ids);
  std::map<std::int64_t, std::vector<char>> rows;
  for (auto const plane : {tessera::row_plane::weights, tessera::row_plane::step, tessera::row_plane::state}) {
    auto const shape = part.shape(plane);
    auto const bytes = static_cast<std::size_t>(shape.width * tessera::size_of(shape.type));
    std::vector<char> all(count * bytes);
    part.copy_out(plane, slots, all.data());
    for (std::size_t i = 0; i < count; ++i)
      rows[ids[i]].insert(rows[ids[i]].end(), all.begin() + static_cast<std::ptrdiff_t>(i * bytes),
                          all.begin() + static_cast<std::ptrdiff_t>((i + 1) * bytes));
  }
  return rows;
}

inline bool same_parts(tessera::table_parts const& a, tessera::table_parts const& b) {
  bool same = a.size() == b.size();
  for (std::size_t t = 0; same && t < a.size(); ++t)
    same = rows_of_part(*a[t]) == rows_of_part(*b[t]) && a[t]->steps() == b[t]->steps() && a[t]->kind().optimizer == b[t]->kind().optimizer;
  return same;
}

template <class Exec>
bool gives_same(source_batch<tessera::host_exec> const& host, source_batch<Exec> const& device) {
  auto const& a = host.given();
  auto const& b = device.given();
  for (std::size_t key = 0; key < a.size(); ++key)
    for (std::int64_t r = 0; r < a[key].rows(); ++r)
      if (!same_bits(a[key].row(r), b[key].row(r), a[key].columns())) return false;
  return true;
}

/// Tables of several kinds of rows, some of a kind; tables 0 and 1 are read pooled and as sequences.
inline source_problem problem_of_kinds(tessera::shared_gradients sums) {
  auto problem = usual_problem(sums);
  problem.features[2].pooling = tessera::pooling::sum;
  return problem;
}

/// Calls add(table, number) for each table of a source of kinds, made by `dense<Element>(options, optimizer)` and `hashed<Element>(…)`.
template <class List, class Dense, class Hashed>
List tables_of_kinds(source_problem const& problem, Dense const& dense, Hashed const& hashed) {
  tessera::rowwise_adagrad const adagrad{.learning_rate = 0.1F};
  tessera::adam const adam{.learning_rate = 0.01F};
  tessera::momentum_sgd const momentum{.learning_rate = 0.05F};
  List list;
  list.add(dense(tessera::scaled_int8{}, problem.tables[0], adagrad), adagrad);
  list.add(hashed(tessera::bfloat16{}, problem.tables[1], adam), adam);
  list.add(dense(tessera::scaled_int8{}, problem.tables[2], adagrad), adagrad);
  list.add(dense(float{}, problem.tables[3], momentum), momentum);
  list.add(hashed(tessera::bfloat16{}, problem.tables[4], adam), adam);
  CHECK(list.group_count() == 3);
  return list;
}
inline tessera::local_tables host_source_of_kinds(tessera::host_exec const& exec, source_problem const& problem) {
  auto tables = tables_of_kinds<tessera::table_list>(
      problem, [&]<class E>(E, auto const& options, auto const& optimizer) { return tessera::dense_table<E>(exec, options, optimizer); },
      [&]<class E>(E, auto const& options, auto const& optimizer) {
        return tessera::hash_table<E>(exec, with_rows(options, 0), optimizer);
      });
  return {std::move(tables), problem.features, {.sums = problem.sums}};
}
template <class Exec>
tessera::device_tables<Exec> device_source_of_kinds(Exec const& exec, source_problem const& problem, std::int64_t source_ranks = 1) {
  auto tables = tables_of_kinds<tessera::basic_table_list<Exec>>(
      problem,
      [&]<class E>(E, auto const& options, auto const& optimizer) { return tessera::dense_table<E, Exec>(exec, options, optimizer); },
      [&]<class E>(E, auto const& options, auto const& optimizer) {
        return tessera::bucket_table<E, Exec>(exec, with_rows(options, 100), optimizer);
      });
  return device_source_of(exec, problem, std::move(tables), source_ranks);
}

/// Trained side by side with the host's, outputs and rows of every kind have the same bits; a file goes from one to the other.
template <class Exec>
void device_tables_against_host(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  tessera_tests::serial_host host;
  for (auto const sums : {tessera::shared_gradients::merged, tessera::shared_gradients::expanded}) {
    CAPTURE(static_cast<int>(sums));
    auto const problem = problem_of_kinds(sums);
    auto here = host_source_of_kinds(host.exec(), problem);
    auto there = device_source_of_kinds(exec, problem);
    tessera::local_tables_saved saved_here;
    tessera::device_tables_saved<Exec> saved;
    tessera::row_gradients sum_here;
    tessera::basic_row_gradients<Exec> sum;
    for (int step = 0; step < 8; ++step) {
      CAPTURE(step);
      bool const grouped = step % 2 == 1, weighted = step / 2 % 2 == 1, handed = step >= 4;
      auto const rows = draw_source_rows(random, step == 5 ? 0 : 1 + random() % 40);
      source_batch const batch_here(host.exec(), problem, rows, grouped, weighted);
      source_batch const batch(exec, problem, rows, grouped, weighted);
      forward(host.exec(), here, batch_here, saved_here);
      forward(exec, there, batch, saved);
      CHECK(gives_same(batch_here, batch));
      source_batch const again(exec, problem, rows, grouped, weighted);
      there.predict(exec, again.view(), again.out());
      CHECK(gives_same(batch_here, again));
      auto gradients = random;
      batch_here.fill_gradients([&] { return draw(random); });
      draw.reset();
      batch.fill_gradients([&] { return draw(gradients); });
      draw.reset();
      here.begin_backward(host.exec(), saved_here, batch_here.gradients());
      there.begin_backward(exec, saved, batch.gradients());
      if (!handed) {
        here.finish_backward(host.exec(), saved_here);
        there.finish_backward(exec, saved);
      } else {
        here.gradients(host.exec(), saved_here, sum_here);
        there.gradients(exec, saved, sum);
        REQUIRE(sum.tables() == sum_here.tables());
        for (std::int64_t t = 0; t < sum.tables(); ++t) {
          CHECK(sum.rows(t) == sum_here.rows(t));
          CHECK(sum.dim(t) == sum_here.dim(t));
        }
        here.apply(host.exec(), sum_here);
        there.apply(exec, sum);
      }
      CHECK(same_parts(here.parts(), there.parts()));
    }
    tessera_tests::temporary_folder folder;
    tessera::write_table_file(host.exec(), folder.file("of host"), here.parts());
    tessera::write_table_file(host.exec(), folder.file("of device"), there.parts());
    auto fresh_here = host_source_of_kinds(host.exec(), problem);
    auto fresh = device_source_of_kinds(exec, problem);
    auto parts_here = fresh_here.parts(), parts = fresh.parts();
    tessera::table_file_reader(folder.file("of device"), parts_here, tessera::table_content::all).read(host.exec());
    tessera::table_file_reader(folder.file("of host"), parts, tessera::table_content::all).read(host.exec());
    CHECK(same_parts(parts_here, parts));
    for (std::size_t t = 0; t < parts.size(); ++t) CHECK(rows_of_part(*parts[t]) == rows_of_part(*there.parts()[t]));
  }
}

/// Tables that evict, of any policy of a device, go on from a file as if they had never stopped; in too small a table they are refused.
template <class Eviction, class Exec>
void device_tables_keep_use(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  using table = tessera::bucket_table<float, Exec, Eviction>;
  source_problem problem;
  problem.features = {{.name = "x"}};
  problem.tables = {{.id = tessera::table_id{3}, .dim = 2, .rows = 96, .seed = tessera::random_seed{1}}};
  auto const source_with = [&](std::int64_t rows) {
    tessera::basic_table_list<Exec> tables;
    tables.add(table(exec, with_rows(problem.tables[0], rows), tessera::sgd{}), tessera::sgd{});
    return device_source_of(exec, problem, std::move(tables));
  };
  auto source = source_with(96), fresh = source_with(96), small = source_with(32), crowded = source_with(32);
  tessera::device_tables_saved<Exec> saved;
  auto const step = [&](auto& of, source_rows const& rows) {
    source_batch const batch(exec, problem, rows, false);
    batch.fill_gradients([] { return 1.0F; });
    forward(exec, of, batch, saved);
    backward(exec, of, batch, saved);
  };
  auto const listed = [](auto& of) {  // in the order in which they would leave, with the words that are kept
    auto const part = std::move(of.parts()[0]);
    auto const count = static_cast<std::size_t>(part->rows());
    std::vector<std::int64_t> slots(count), ids(count), uses(count * static_cast<std::size_t>(Eviction::saved_width));
    part->list_rows(slots, ids);
    part->copy_out(tessera::row_plane::use, slots, reinterpret_cast<char*>(uses.data()));
    return std::tuple(ids, uses, part->clock().value(), rows_of_part(*part));
  };
  for (int i = 0; i < 12; ++i) {
    source_rows const rows{{tessera_tests::random_integers<std::int64_t>(random, 30, 0, 199)}};
    step(source, rows);
    if (i == 5) {
      tessera_tests::temporary_folder folder;
      auto parts = fresh.parts(), too_few = small.parts();
      CHECK(source.template store<table>(0).counts().evicted > 0);
      tessera::write_table_file(host.exec(), folder.file("tables"), source.parts());
      tessera::table_file_reader(folder.file("tables"), parts, tessera::table_content::all).read(host.exec());
      parts[0]->set_steps(source.parts()[0]->steps());
      CHECK(parts[0]->kind().eviction == Eviction::name);
      CHECK(parts[0]->kind().admission == "all");
      auto const read = [&] { tessera::table_file_reader(folder.file("tables"), too_few, tessera::table_content::all).read(host.exec()); };
      CHECK(tessera_tests::error_of(read).code() == tessera::errc::incompatible);
      CHECK(tessera_tests::error_of([&] { parts[0]->set_clock({2, {}}); }).code() == tessera::errc::invalid_argument);
    }
    if (i > 5) step(fresh, rows);
    if (i >= 5) CHECK(listed(source) == listed(fresh));
  }

  // Batches later, ids that are placed push out those that were placed before.
  auto const part = std::move(crowded.parts()[0]);
  std::vector<std::int64_t> first(200), later(200), slots(200);
  std::iota(first.begin(), first.end(), 0);
  std::iota(later.begin(), later.end(), 200);
  part->place_rows(host.exec(), first, slots);
  CHECK(part->rows() == 32);
  part->set_clock({10, {}});
  auto const e = tessera_tests::error_of([&] { part->place_rows(host.exec(), later, slots); });
  CHECK(e.code() == tessera::errc::incompatible);
  CHECK(std::string(e.what()).find("lose their rows") != std::string::npos);
}

/// Through caches that are far too small, the tables behind them train as without.
template <class Exec>
void device_tables_over_caches(Exec const& exec) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  auto const problem = problem_of<dense_device_maker<Exec>>();
  auto cached = cached_device_maker<Exec>::make(exec, problem, 1);
  auto plain = dense_device_maker<Exec>::make(exec, problem);
  tessera::device_tables_saved<Exec> saved;
  for (int step = 0; step < 4; ++step) {
    source_batch const batch(exec, problem, draw_source_rows(random, 20), step % 2 == 0);
    batch.fill_gradients([&] { return draw(random); });
    forward(exec, plain, batch, saved);
    backward(exec, plain, batch, saved);
    forward(exec, cached, batch, saved);
    backward(exec, cached, batch, saved);
    CHECK(same_bits(all_rows(exec, problem, plain), all_rows(exec, problem, cached)));
    CHECK(same_parts(plain.parts(), cached.parts()));
  }
}

/// What is refused by name; tables and optimizers by their types; tables that no feature reads.
template <class Exec>
void device_tables_names(Exec const& exec) {
  using tessera::errc;
  using tessera_tests::error_of;
  using table = tessera::dense_table<float, Exec>;
  using source_type = tessera::device_tables<Exec>;
  static_assert(tessera::embedding_source<source_type> && tessera::embedding_source<tessera::source_adaptor<source_type>>);
  auto const made = [&](std::int64_t id) { return table(exec, {.id = tessera::table_id{id}, .dim = 4, .rows = 3}, tessera::sgd{}); };
  tessera::basic_table_list<Exec> tables;
  tables.add(made(1), tessera::sgd{.learning_rate = 2});
  CHECK(error_of([&] { tables.add(made(2), tessera::adam{}); }).code() == errc::incompatible);
  CHECK(error_of([&] { tables.add(made(2), tessera::sgd{.learning_rate = -1}); }).code() == errc::invalid_argument);
  tables.add(made(5), tessera::sgd{.learning_rate = 3});
  tables.add(tessera::bucket_table<float, Exec>(exec, {.id = tessera::table_id{6}, .dim = 4, .rows = 32}, tessera::sgd{}), tessera::sgd{});
  tessera::device_tables source(exec, std::move(tables), {{.name = "x", .table = 1}, {.name = "y", .table = 0, .sequence = true}});
  CHECK(source.table_count() == 3);
  CHECK(source.group_count() == 2);
  CHECK(source.outputs().size() == 2);
  CHECK(source.outputs()[1].name == "y");
  CHECK(source.outputs()[1].sequence);
  source.template optimizer<tessera::sgd>(1).learning_rate = 7;
  CHECK(source.template optimizer<tessera::sgd>(1).learning_rate == 7);
  CHECK(source.template store<table>(1).options().id == tessera::table_id{5});
  CHECK(error_of([&] { source.template store<table>(2); }).code() == errc::incompatible);
  CHECK(error_of([&] { source.template optimizer<tessera::adam>(0); }).code() == errc::incompatible);
  CHECK(error_of([&] { source.template store<table>(3); }).code() == errc::out_of_range);

  source_problem problem;
  problem.tables = {{.dim = 4}, {.dim = 4}};
  problem.features = source.features();
  source_batch const batch(exec, problem, {{{1}, {2, 2}}, {{0}, {}}}, false);
  typename source_type::saved_type saved;
  batch.fill_gradients([] { return 1.0F; });
  forward(exec, source, batch, saved);
  source.template optimizer<tessera::sgd>(1).learning_rate = -1;
  source.begin_backward(exec, saved, batch.gradients());
  CHECK(error_of([&] { source.finish_backward(exec, saved); }).code() == errc::invalid_argument);
  for (auto const& part : source.parts()) CHECK(part->steps().value == 0);
  source.template optimizer<tessera::sgd>(1).learning_rate = 1;
  source.finish_backward(exec, saved);
  for (auto const& part : source.parts()) CHECK(part->steps().value == 1);  // that no feature reads, too

  forward(exec, source, batch, saved);
  std::vector<tessera::matrix_view<float const>> too_few(batch.gradients().begin(), batch.gradients().end());
  too_few[1] = {too_few[1].data(), too_few[1].rows() - 1, too_few[1].columns(), too_few[1].stride()};
  source.begin_backward(exec, saved, too_few);
  source.finish_backward(exec, saved);
  auto const fault = error_of([&] { exec.synchronize(); });
  CHECK(fault.code() == errc::shape_mismatch);
  CHECK(fault.value("feature") == "1");

  typename source_type::gradients_type none;
  CHECK(error_of([&] { source.apply(exec, none); }).code() == errc::shape_mismatch);

  auto const built = [&](std::vector<std::int64_t> const& ids, std::vector<tessera::table_feature> const& features,
                         tessera::local_tables_options const& options = {}) {
    return error_of([&] {
      tessera::basic_table_list<Exec> list;
      for (auto const id : ids) list.add(made(id), tessera::sgd{});
      source_type(exec, std::move(list), features, options);
    });
  };
  CHECK(std::string(built({1, 2, 1}, {}).what()) == "device_tables: tables of one list differ in their ids (table 0, and table 2, id 1)");
  CHECK(built({1}, {{.name = "x", .table = 1}}).code() == errc::out_of_range);
  CHECK(built({1}, {{.name = "x", .pooling = tessera::pooling(7)}}).code() == errc::invalid_argument);
  CHECK(built({1}, {{.name = "x", .pooling = tessera::pooling::max}}).value("feature") == "0");
  CHECK(built({1}, {{.name = "x", .learns = false}}).value("feature") == "0");
  CHECK(built({1}, {}, {.sums = tessera::shared_gradients(5)}).code() == errc::invalid_argument);

  // Of kinds whose keys do not follow each other, a feature keeps its number.
  auto const usual = problem_of<mixed_device_maker<Exec>>();
  auto mixed = mixed_device_maker<Exec>::make(exec, usual);
  std::mt19937_64 random(7);
  for (std::size_t const key : {1U, 4U, 6U}) {
    auto rows = draw_source_rows(random, 6);
    rows[key][3] = {source_ids + 5};
    source_batch const unknown(exec, usual, rows, false);
    auto const e = error_of([&] {
      mixed.predict(exec, unknown.view(), unknown.out());
      exec.synchronize();
    });
    CHECK(e.value("feature") == std::to_string(key));
    CHECK(e.value("id") == std::to_string(source_ids + 5));
  }
}

}  // namespace embed_tests
