// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <tessera/comm/thread_communicator.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/shard/sharded_tables.hpp>

#include "../embed/embedding_source_suite.hpp"

/// Plans of the tables of a `source_problem`, and checks that ranks give and learn what one process does.
namespace shard_tests {

using namespace embed_tests;
using tessera::any_communicator;
using tessera::host_exec;
using tessera::sharded_tables;
using tessera::sharding_plan;

// Which tables are hashed.
using hashed_tables = std::vector<bool>;

inline std::vector<tessera::table_spec> specs_of(source_problem const& problem, hashed_tables const& hashed) {
  std::vector<tessera::table_spec> specs;
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    tessera::sgd const optimizer{.learning_rate = problem.rates[t]};
    specs.push_back(hashed[t] ? tessera::spec_of<tessera::hash_table<>>(problem.tables[t], optimizer)
                              : tessera::spec_of<tessera::dense_table<>>(problem.tables[t], optimizer));
  }
  return specs;
}

inline tessera::local_tables local_of(host_exec const& exec, source_problem const& problem, hashed_tables const& hashed) {
  tessera::table_list list;
  for (auto const& spec : specs_of(problem, hashed)) spec.add(exec, spec.table, list);
  return {std::move(list), problem.features};
}

enum class cuts { none, columns, rows, any };

// `pieces` numbers of sum `all`, each a multiple of `unit` but for the last.
inline std::vector<std::int64_t> cut_randomly(std::int64_t all, std::int64_t pieces, std::int64_t unit, std::mt19937_64& random) {
  std::vector<std::int64_t> bounds;
  for (auto bound = unit; bound < all; bound += unit) bounds.push_back(bound);
  std::shuffle(bounds.begin(), bounds.end(), random);
  bounds.resize(static_cast<std::size_t>(pieces - 1));
  bounds.push_back(all);
  std::sort(bounds.begin(), bounds.end());
  for (auto i = bounds.size() - 1; i > 0; --i) bounds[i] -= bounds[i - 1];
  return bounds;
}

// Tables as they are, or cut by columns, by rows, or both: each block of columns at rows of its own, but for hashed tables. Each shard is on
// another rank. With `any`, some tables are on all ranks.
inline sharding_plan plan_of(source_problem const& problem, hashed_tables const& hashed, int ranks, cuts cut, std::mt19937_64& random) {
  sharding_plan plan;
  std::vector<int> places(static_cast<std::size_t>(ranks));
  std::iota(places.begin(), places.end(), 0);
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    auto const& table = problem.tables[t];
    auto const draw = [&](std::int64_t most) { return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)); };
    if (cut == cuts::any && random() % 4 == 0) {
      plan.shards.push_back(tessera::data_parallel(problem.tables, static_cast<std::int64_t>(t)).front());
      continue;
    }
    auto const most = std::min<std::int64_t>(ranks, (table.dim + 3) / 4);
    auto const blocks = cut == cuts::columns ? most : cut == cuts::any ? draw(most) : 1;
    std::int64_t left = ranks - blocks, column = 0;
    std::shuffle(places.begin(), places.end(), random);
    auto place = places.begin();
    for (auto const columns : cut_randomly(table.dim, blocks, 4, random)) {
      auto const more = std::min(left, table.rows - 1);
      auto const extra = hashed[t] && blocks > 1 ? 0 : cut == cuts::rows ? more : cut == cuts::any ? draw(more + 1) - 1 : 0;
      std::int64_t row = 0;
      for (auto const rows : cut_randomly(table.rows, extra + 1, 1, random)) {
        plan.shards.push_back({static_cast<std::int64_t>(t), *place++, row, rows, column, columns});
        row += rows;
      }
      left -= extra;
      column += columns;
    }
  }
  std::shuffle(plan.shards.begin(), plan.shards.end(), random);
  return plan;
}

inline source_rows part_of(source_rows const& rows, std::int64_t first, std::int64_t last) {
  source_rows part;
  for (auto const& key : rows) part.emplace_back(key.begin() + first, key.begin() + last);
  return part;
}

// Copies rows of blocks of vectors between the batch of all ranks and a part: samples [first, …) of pooled keys, ids from where theirs begin.
template <class Copy>
void for_each_row_of_part(source_problem const& problem, source_rows const& all, source_rows const& part, std::int64_t first,
                          Copy const& copy) {
  for (std::size_t key = 0; key < problem.features.size(); ++key) {
    auto const ids = [&](source_rows const& rows, std::int64_t samples) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i < samples; ++i) sum += static_cast<std::int64_t>(rows[key][static_cast<std::size_t>(i)].size());
      return sum;
    };
    auto const samples = static_cast<std::int64_t>(part[key].size());
    bool const sequence = problem.features[key].sequence;
    auto const base = sequence ? ids(all, first) : first, count = sequence ? ids(part, samples) : samples;
    for (std::int64_t row = 0; row < count; ++row) copy(key, base + row, row);
  }
}

// Gives a part the gradients that its samples have in the batch of all ranks.
inline void take_gradients(source_problem const& problem, source_batch<host_exec> const& all, source_batch<host_exec> const& part,
                           std::int64_t first) {
  for_each_row_of_part(problem, all.rows(), part.rows(), first, [&](std::size_t key, std::int64_t from, std::int64_t to) {
    auto const& whole = all.gradient_blocks()[key];
    std::copy_n(whole.row(from), whole.columns(), part.gradient_blocks()[key].row(to));
  });
}
// Whether numbers are the same, or differ by no more than `most`.
inline bool is_near(float a, float b, double most) { return a == b || std::abs(static_cast<double>(a) - static_cast<double>(b)) <= most; }

// Whether a part was given what its samples have in the batch of all ranks, after `through(vector)`; numbers may differ by `most`.
template <class Through>
bool gives_part(source_problem const& problem, source_batch<host_exec> const& all, source_batch<host_exec> const& part, std::int64_t first,
                Through const& through, double most = 0) {
  bool same = true;
  for_each_row_of_part(problem, all.rows(), part.rows(), first, [&](std::size_t key, std::int64_t from, std::int64_t to) {
    auto const& whole = all.given()[key];
    auto const expected = through(std::vector<float>(whole.row(from), whole.row(from) + whole.columns()));
    same &= std::equal(expected.begin(), expected.end(), part.given()[key].row(to), [&](float a, float b) { return is_near(a, b, most); });
  });
  return same;
}

// What a vector is after it has travelled.
inline std::vector<float> travelled(tessera::codec with, std::vector<float> vector) {
  tessera_tests::serial_host host;
  auto const width = static_cast<std::int64_t>(vector.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(tessera::encoded_bytes(with, 1, width)));
  tessera::matrix_view<float> const row{vector.data(), 1, width};
  tessera::encode<host_exec>(host.exec(), with, row, bytes);
  tessera::decode<host_exec>(host.exec(), with, bytes, row);
  return vector;
}

// How far numbers may be from those of one process, times 2^-24 and the largest number of a row; 0: not at all.
struct roundings {
  double vectors = 0, rows = 0;
};

// Checks that ranks with parts of so many random batches get what one process has of the whole ones, and have its rows afterwards, bit for
// bit or within `most`. `draw_rows(random, samples)`. `make(exec, comm)` makes the source of a rank.
template <class DrawRows, class Make>
void check_source_as_one_process(source_problem const& problem, std::vector<tessera::table_spec> const& specs, int ranks, bool weighted,
                                 tessera::out_of_range_ids out_of_range, std::mt19937_64& random, DrawRows const& draw_rows,
                                 Make const& make, roundings const& most = {}, int batches = 4) {
  // Batches, and where each rank's samples begin; ranks without samples among them.
  struct step_batch {
    source_rows rows;
    std::vector<std::int64_t> first;
  };
  std::vector<step_batch> steps;
  for (int step = 0; step < batches; ++step) {
    auto& one = steps.emplace_back();
    one.first.push_back(0);
    for (int r = 0; r < ranks; ++r)
      one.first.push_back(one.first.back() + static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 20));
    one.rows = draw_rows(random, static_cast<std::size_t>(one.first.back()));
  }

  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_list list;
  for (auto const& spec : specs) spec.add(exec, spec.table, list);
  tessera::local_tables local(std::move(list), problem.features, {.lookup = {.out_of_range = out_of_range}});
  std::deque<source_batch<host_exec>> wholes;
  tessera::local_tables_saved saved;
  std::normal_distribution<float> draw;
  double largest = 0;
  auto const add_largest = [&] {
    for (auto const number : all_rows(exec, problem, local)) largest = std::max(largest, std::abs(static_cast<double>(number)));
  };
  for (auto const& step : steps) {
    auto& batch = wholes.emplace_back(exec, problem, step.rows, false, weighted);
    batch.fill_gradients([&] { return draw(random); });
    forward(exec, local, batch, saved);
    add_largest();
    backward(exec, local, batch, saved);
  }
  auto const expected = all_rows(exec, problem, local);
  add_largest();
  auto const unit = 0x1p-24 * largest;

  std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const here = hosts[rank].exec();
    auto source = make(here, any_communicator(comm));
    typename decltype(source)::saved_type own;
    tessera::row_gradients sum;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      auto const first = steps[s].first[rank], last = steps[s].first[rank + 1];
      source_batch const batch(here, problem, part_of(steps[s].rows, first, last), false, weighted);
      take_gradients(problem, wholes[s], batch, first);
      forward(here, source, batch, own);
      CHECK(gives_part(
          problem, wholes[s], batch, first, [](auto vector) { return vector; }, most.vectors * unit));
      if (s % 2 == 0) {
        backward(here, source, batch, own);
      } else {  // the same step of gradients that are handed out
        source.begin_backward(here, own, batch.gradients());
        source.gradients(here, own, sum);
        source.apply(here, sum);
      }
    }
    auto const found = all_rows(here, problem, source);
    CHECK((most.rows == 0 ? same_bits(found, expected) : std::equal(found.begin(), found.end(), expected.begin(), [&](float a, float b) {
      return is_near(a, b, most.rows * unit);
    })));
  });
}

template <class DrawRows>
void check_as_one_process(source_problem const& problem, std::vector<tessera::table_spec> const& specs, sharding_plan const& plan,
                          int ranks, bool weighted, tessera::sharded_tables_options const& options, std::mt19937_64& random,
                          DrawRows const& draw_rows, roundings const& most = {}) {
  check_source_as_one_process(
      problem, specs, ranks, weighted, options.out_of_range, random, draw_rows,
      [&](host_exec const& exec, any_communicator comm) {
        return sharded_tables(exec, std::move(comm), specs, problem.features, plan, options);
      },
      most);
}

// A batch of 20 of the rows a host, with gradients, made on the calling thread. All of them together are one step, which `naive` makes.
inline std::deque<source_batch<host_exec>> one_step(std::vector<tessera_tests::serial_host>& hosts, source_problem const& problem,
                                                    source_rows const& rows, bool grouped, std::mt19937_64& random, naive_source& naive) {
  std::deque<source_batch<host_exec>> batches;
  std::normal_distribution<float> draw;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    auto const first = static_cast<std::int64_t>(20 * r);
    auto& batch = batches.emplace_back(hosts[r].exec(), problem, part_of(rows, first, first + 20), grouped);
    batch.fill_gradients([&] { return draw(random); });
    naive.add_gradients(batch);
  }
  naive.update();
  return batches;
}

// Checks that ranks with batches in groups give and learn what the definition says. `make(exec, comm)` makes the source of a rank.
template <class Make>
void check_groups_by_definition(source_problem const& problem, int ranks, std::mt19937_64& random, Make const& make) {
  std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
  naive_source naive(problem);
  auto const batches = one_step(hosts, problem, draw_source_rows(random, static_cast<std::size_t>(20 * ranks)), true, random, naive);
  tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    auto source = make(here, any_communicator(comm));
    naive_source before(problem);
    typename decltype(source)::saved_type own;
    auto const& batch = batches[static_cast<std::size_t>(comm.rank())];
    forward(here, source, batch, own);
    CHECK(before.gives(batch));
    backward(here, source, batch, own);
    source_batch const again(here, problem, batch.rows(), false);
    source.predict(here, again.view(), again.out());
    auto after = naive;
    CHECK(after.gives(again));
  });
}

// Makes `to` what the rows of `from` are after they have travelled.
template <class From>
void send(tessera::codec with, From const& from, tessera::matrix_view<float> to) {
  for (std::int64_t row = 0; row < from.rows(); ++row) {
    auto const vector = travelled(with, std::vector<float>(from.row(row), from.row(row) + from.columns()));
    std::copy(vector.begin(), vector.end(), to.row(row));
  }
}

}  // namespace shard_tests
