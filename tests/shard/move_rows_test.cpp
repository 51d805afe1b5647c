// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <tessera/shard/move_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/shard/sharded_tables.hpp>

#include "sharded_problem.hpp"

namespace move_rows_test {

namespace {

using namespace shard_tests;
using tessera::local_tables;
using tessera::row_plane;
using tessera_tests::error_of;

constexpr row_plane planes[] = {row_plane::weights, row_plane::step, row_plane::state};

// A table's rows as bytes, plane by plane.
std::vector<std::vector<char>> bytes_of(tessera::table_part const& part, std::vector<std::int64_t> const& slots) {
  std::vector<std::vector<char>> all;
  for (auto const plane : planes) {
    auto const shape = part.shape(plane);
    auto& bytes = all.emplace_back(slots.size() * static_cast<std::size_t>(shape.width * size_of(shape.type)));
    part.copy_out(plane, slots, bytes.data());
  }
  return all;
}

template <class Element, class Optimizer>
tessera::table_spec spec(tessera::table_options const& table, bool hashed) {
  return hashed ? tessera::spec_of<tessera::hash_table<Element>>(table, Optimizer{})
                : tessera::spec_of<tessera::dense_table<Element>>(table, Optimizer{});
}
// Of a table cut by columns, rows without a state of their own.
tessera::table_spec any_spec(std::mt19937_64& random, tessera::table_options const& table, bool hashed, bool whole_rows) {
  switch (random() % (whole_rows ? 4 : 2)) {
    case 0: return spec<float, tessera::adam>(table, hashed);
    case 1: return spec<tessera::bfloat16, tessera::adagrad>(table, hashed);
    case 2: return spec<tessera::scaled_int8, tessera::sgd>(table, hashed);
    default: return spec<float, tessera::rowwise_adam>(table, hashed);
  }
}

}  // namespace

TEST_CASE("row_mover: rows go to copies and come back, byte for byte, and others stay; the bytes sent are those of the rows") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  for (int const ranks : {1, 2, 4})
    for (auto const cut : {cuts::none, cuts::rows, cuts::columns}) {
      if (tessera_tests::under_sanitizer && ranks != 2) continue;
      CAPTURE(ranks);
      CAPTURE(static_cast<int>(cut));
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(ranks));
      auto const problem = usual_problem();
      auto const tables = problem.tables.size();
      hashed_tables hashed(tables);
      std::vector<tessera::table_spec> specs, dense;
      for (std::size_t t = 0; t < tables; ++t) {
        hashed[t] = random() % 2 == 0;
        auto copy = random;
        specs.push_back(any_spec(random, problem.tables[t], hashed[t], cut != cuts::columns));
        dense.push_back(any_spec(copy, problem.tables[t], false, cut != cuts::columns));
      }
      auto const plan = plan_of(problem, hashed, ranks, cut, random);
      int const first_copy = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
      std::vector<std::vector<std::int64_t>> ids(tables), slots(tables);
      for (std::size_t t = 0; t < tables; ++t) {
        for (std::int64_t id = 0; id < source_ids; ++id)
          if (random() % 3 == 0) ids[t].push_back(id);
        if (t == 3) ids[t].clear();
        slots[t].resize(ids[t].size());
        for (std::size_t i = 0; i < ids[t].size(); ++i)
          slots[t][i] = static_cast<std::int64_t>(ids[t].size() - i);  // in reverse, and not from 0
      }
      source_rows const rows = draw_source_rows(random, 1000);  // all ids of all tables
      auto const noise = random();

      // What one process has.
      tessera_tests::serial_host host;
      tessera::table_list list;
      for (auto const& one : specs) one.add(host.exec(), one.table, list);
      local_tables whole(std::move(list), problem.features);
      source_batch const batch(host.exec(), problem, rows, false);
      batch.fill_gradients([&] { return 0.125F; });
      tessera::local_tables_saved saved;
      forward(host.exec(), whole, batch, saved);
      backward(host.exec(), whole, batch, saved);
      auto const expected = whole.parts();

      std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(ranks));
      tessera::run_thread_ranks(ranks, [&](tessera::thread_communicator& thread) {
        auto const here = hosts[static_cast<std::size_t>(thread.rank())].exec();
        tessera::sent_counts sent;
        any_communicator comm(tessera::counting_communicator(thread, sent));
        sharded_tables source(here, comm, specs, problem.features, plan);
        sharded_tables::saved_type own;
        source_batch const mine(here, problem, part_of(rows, 0, thread.rank() == 0 ? 1000 : 0), false);
        mine.fill_gradients([&] { return 0.125F; });
        forward(here, source, mine, own);
        backward(here, source, mine, own);

        bool const has_copies = thread.rank() >= first_copy;
        tessera::table_list copies;
        if (has_copies)
          for (std::size_t t = 0; t < tables; ++t) {
            auto options = problem.tables[t];
            options.rows = static_cast<std::int64_t>(ids[t].size()) + 1;
            dense[t].add(here, options, copies);
          }
        local_tables held(std::move(copies), {});
        auto const copy_parts = held.parts();
        std::vector<tessera::moving_rows> moving;
        for (std::size_t t = 0; t < tables; ++t) {
          auto& one = moving.emplace_back(tessera::moving_rows{static_cast<std::int64_t>(t), ids[t]});
          if (!has_copies) continue;
          one.copy = copy_parts[t].get();
          one.slots = slots[t];
        }
        auto const parts = source.parts();
        tessera::row_mover mover(here, comm, parts, source.places(), has_copies);
        sent.clear();
        mover.to_copies(here, parts, moving);
        std::int64_t bytes = 0;
        auto const places = source.places();
        for (std::size_t p = 0; p < parts.size(); ++p) {
          auto const t = static_cast<std::size_t>(places.parts[p].table);
          std::int64_t count = 0;
          for (auto const id : ids[t]) {
            auto const& place = places.parts[p];
            auto const row = place.hashed_rows > 0 ? tessera::hashed_row(id, place.hashed_rows) : id;
            count += place.rows == tessera::part_place::all_rows || (row >= place.first_row && row < place.first_row + place.rows) ? 1 : 0;
          }
          auto const in_words = [&](std::int64_t each) { return (count * each + 7) / 8 * 8; };
          bytes += 8 + in_words(1);
          for (auto const plane : planes) bytes += in_words(parts[p]->shape(plane).width * size_of(parts[p]->shape(plane).type));
        }
        CHECK(tessera::sent_by(sent, "row_mover: rows to copies").bytes == bytes * (ranks - first_copy));

        std::mt19937_64 scribble(noise);
        for (std::size_t t = 0; t < tables && has_copies; ++t) {
          std::vector<std::int64_t> there(ids[t].size());
          expected[t]->find_rows(here, ids[t], there);
          CHECK(bytes_of(*copy_parts[t], slots[t]) == bytes_of(*expected[t], there));
          CHECK(copy_parts[t]->steps() == expected[t]->steps());
          // New bytes, the same on all ranks.
          auto changed = bytes_of(*copy_parts[t], slots[t]);
          for (std::size_t plane = 0; plane < 3; ++plane) {
            for (auto& byte : changed[plane]) byte = static_cast<char>(scribble());
            copy_parts[t]->copy_in(here, planes[plane], slots[t], changed[plane].data());
          }
          copy_parts[t]->set_steps(tessera::step_count{70 + static_cast<std::int64_t>(t)});
        }
        mover.from_copies(here, parts, moving);
        scribble.seed(noise);
        for (std::size_t t = 0; t < tables; ++t) {
          // What all of the table is now.
          std::vector<std::int64_t> all(source_ids), there(source_ids);
          for (std::int64_t id = 0; id < source_ids; ++id) all[static_cast<std::size_t>(id)] = id;
          expected[t]->find_rows(here, all, there);
          std::vector<std::vector<char>> now(source_ids * 3);
          for (std::size_t id = 0; id < static_cast<std::size_t>(source_ids); ++id)
            if (there[id] >= 0) {
              auto const row = bytes_of(*expected[t], {there[id]});
              for (std::size_t plane = 0; plane < 3; ++plane) now[3 * id + plane] = row[plane];
            }
          for (std::size_t plane = 0; plane < 3; ++plane)
            for (auto const id : ids[t]) {
              auto const shape = expected[t]->shape(planes[plane]);
              auto& row = now[3 * static_cast<std::size_t>(id) + plane];
              row.resize(static_cast<std::size_t>(shape.width * size_of(shape.type)));
              for (auto& byte : row) byte = static_cast<char>(scribble());
            }
          for (std::size_t p = 0; p < parts.size(); ++p) {
            auto const& place = places.parts[p];
            if (place.table != static_cast<std::int64_t>(t)) continue;
            auto const n = static_cast<std::size_t>(parts[p]->rows());
            std::vector<std::int64_t> part_slots(n), part_ids(n);
            parts[p]->list_rows(part_slots, part_ids);
            CHECK(parts[p]->steps().value == 70 + place.table);
            auto const dim = problem.tables[t].dim;
            for (std::size_t r = 0; r < n; ++r) {
              auto const id = static_cast<std::size_t>(part_ids[r] + (parts[p]->slots_are_ids() ? place.first_row : 0));
              auto const row = bytes_of(*parts[p], {part_slots[r]});
              if (place.columns == dim) {
                for (std::size_t plane = 0; plane < 3; ++plane) CHECK(row[plane] == now[3 * id + plane]);
                continue;
              }
              auto const each = static_cast<std::int64_t>(now[3 * id].size()) / dim;
              CHECK(std::equal(row[0].begin(), row[0].end(), now[3 * id].begin() + place.first_column * each));
              for (std::int64_t plane = 0; plane < parts[p]->state_layout().per_element; ++plane)
                CHECK(std::equal(row[2].begin() + plane * place.columns * 4, row[2].begin() + (plane + 1) * place.columns * 4,
                                 now[3 * id + 2].begin() + (plane * dim + place.first_column) * 4));
            }
          }
        }
      });
    }
}

TEST_CASE("row_mover: rows with a state of their own that are cut by columns, and copies of another kind, are refused on all ranks") {
  auto problem = usual_problem();
  std::vector<tessera::table_spec> specs;
  for (auto const& table : problem.tables) specs.push_back(spec<float, tessera::rowwise_adagrad>(table, false));
  std::vector<tessera_tests::serial_host> hosts(2);
  std::vector<std::string> said(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    std::mt19937_64 random(1);
    sharded_tables source(here, any_communicator(comm), specs, problem.features,
                          plan_of(problem, hashed_tables(specs.size(), false), 2, cuts::columns, random));
    auto const parts = source.parts();
    said[static_cast<std::size_t>(comm.rank())] =
        error_of([&] { tessera::row_mover(here, any_communicator(comm), parts, source.places(), true); }).what();
  });
  for (auto const& text : said) CHECK(text.find("cut by columns") != std::string::npos);
}

}  // namespace move_rows_test
