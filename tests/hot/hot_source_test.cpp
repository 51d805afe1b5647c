// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-weight: 6
#include <tessera/hot/hot_source.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/local_tables.hpp>
#include <tessera/shard/sharded_tables.hpp>

#include "../shard/sharded_problem.hpp"
#include "../support/sanitizers.hpp"

namespace hot_source_test {

namespace {

using namespace shard_tests;
using tessera::batch_class;
using tessera::hot_row_moves;
using tessera::local_tables;
using tessera_tests::error_of;

// Of each table, the rows whose id is a multiple of `one_in`.
tessera::hot_rows hot_of(host_exec const& exec, std::vector<tessera::table_spec> const& specs, std::int64_t one_in) {
  tessera::hot_rows hot;
  for (auto const& spec : specs) {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < source_ids; id += one_in) ids.push_back(id);
    hot.tables.push_back(one_in == 1 && spec.slots_are_ids
                             ? tessera::table_hot_rows::all_of(spec.table)
                             : tessera::table_hot_rows::some_of(exec, spec.table, spec.slots_are_ids, std::move(ids)));
  }
  return hot;
}

template <int OneIn, hot_row_moves Moves>
struct maker {
  using source_type = tessera::hot_source<local_tables>;
  static constexpr bool refuses_ids = true;
  static void change(source_problem& problem) {
    if (Moves == hot_row_moves::stay) problem.features[2].pooling = tessera::pooling::sum;
  }
  static source_type make(host_exec const& exec, source_problem const& problem) {
    auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
    tessera::table_list list;
    for (auto const& spec : specs) spec.add(exec, spec.table, list);
    return {exec,
            local_tables(std::move(list), problem.features, {.sums = problem.sums}),
            specs,
            hot_of(exec, specs, OneIn),
            {.moves = Moves, .sums = problem.sums}};
  }
};
using stay_maker = maker<2, hot_row_moves::stay>;
using swap_maker = maker<2, hot_row_moves::swap>;

// Calls its batches hot.
struct called_hot : tessera::hot_source<local_tables> {
  using base = tessera::hot_source<local_tables>;
  explicit called_hot(base source) : base(std::move(source)) {}
  void begin(host_exec const& exec, tessera::batch_view batch, saved_type& saved) {
    batch.kind = batch_class::hot;
    base::begin(exec, batch, saved);
  }
  void begin(host_exec const& exec, tessera::batch_view batch, saved_type& saved, tessera::row_order& prepared) {
    batch.kind = batch_class::hot;
    base::begin(exec, batch, saved, prepared);
  }
};
struct hot_maker {
  using source_type = called_hot;
  static constexpr bool refuses_ids = false;  // by another name
  static source_type make(host_exec const& exec, source_problem const& problem) {
    return source_type(maker<1, hot_row_moves::swap>::make(exec, problem));
  }
};

}  // namespace

TESSERA_EMBEDDING_SOURCE_TESTS("hot_source, of which half the rows stay in twins", stay_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("hot_source, whose rows move, with mixed batches", swap_maker)
TESSERA_EMBEDDING_SOURCE_TESTS("hot_source, whose rows move, with hot batches alone", hot_maker)

namespace {

// The same table as an inner source has it, and as a twin.
struct spec_pair {
  tessera::table_spec inner, twin;
};
template <class Element, class Optimizer>
spec_pair pair_of(tessera::table_options const& table, bool hashed) {
  Optimizer optimizer;
  optimizer.learning_rate = 0.1F;
  auto twin = tessera::spec_of<tessera::dense_table<Element>>(table, optimizer);
  return {hashed ? tessera::spec_of<tessera::hash_table<Element>>(table, optimizer) : twin, twin};
}
// Any kind; those whose rows have a state or a scale of their own where `whole_rows`.
spec_pair any_pair(std::mt19937_64& random, tessera::table_options const& table, bool whole_rows) {
  bool const hashed = random() % 2 == 0;
  switch (random() % (whole_rows ? 6 : 3)) {
    case 0: return pair_of<float, tessera::adam>(table, hashed);
    case 1: return pair_of<tessera::bfloat16, tessera::adagrad>(table, hashed);
    case 2: return pair_of<float, tessera::sgd>(table, hashed);
    case 3: return pair_of<tessera::scaled_int8, tessera::adam>(table, hashed);
    case 4: return pair_of<float, tessera::rowwise_adagrad>(table, hashed);
    default: return pair_of<tessera::bfloat16, tessera::rowwise_adam>(table, hashed);
  }
}

// A bag's ids: any, or all of one class.
enum class bags { any, hot, pure };
source_rows draw_bags(std::mt19937_64& random, std::size_t samples, bags kind, std::int64_t one_in) {
  auto rows = draw_source_rows(random, samples);
  for (auto& key : rows)
    for (auto& bag : key) {
      bool const hot = kind == bags::hot || (kind == bags::pure && random() % 2 == 0);
      for (auto& id : bag)
        if (hot)
          id = id / one_in * one_in;
        else if (kind == bags::pure && id % one_in == 0)
          id += id + 1 < source_ids ? 1 : -1;
    }
  return rows;
}

// Of rows of a part and of the whole table, whether they are the same where they overlap.
void check_part(host_exec const& exec, tessera::table_part const& part, tessera::part_place const& place,
                tessera::table_part const& whole) {
  using plane = tessera::row_plane;
  auto const rows = part.rows();
  std::vector<std::int64_t> slots(static_cast<std::size_t>(rows)), ids(slots.size()), there(slots.size());
  part.list_rows(slots, ids);
  if (part.slots_are_ids())
    for (auto& id : ids) id += place.first_row;
  whole.find_rows(exec, ids, there);
  CHECK(std::count(there.begin(), there.end(), -1) == 0);
  auto const bytes_of = [&](tessera::table_part const& of, plane which, std::vector<std::int64_t> const& some) {
    auto const shape = of.shape(which);
    std::vector<char> bytes(some.size() * static_cast<std::size_t>(shape.width * size_of(shape.type)));
    of.copy_out(which, some, bytes.data());
    return bytes;
  };
  // Planes of columns within rows of the whole width.
  auto const same = [&](plane which, std::int64_t skipped, std::int64_t planes, std::int64_t columns, std::int64_t width,
                        std::int64_t first, std::int64_t each) {
    auto const mine = bytes_of(part, which, slots), theirs = bytes_of(whole, which, there);
    auto const my_row = (skipped + planes * columns) * each, their_row = (skipped + planes * width) * each;
    if (my_row == 0) return true;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (std::memcmp(mine.data() + r * my_row, theirs.data() + r * their_row, static_cast<std::size_t>(skipped * each)) != 0) return false;
      for (std::int64_t p = 0; p < planes; ++p)
        if (std::memcmp(mine.data() + r * my_row + (skipped + p * columns) * each,
                        theirs.data() + r * their_row + (skipped + p * width + first) * each,
                        static_cast<std::size_t>(columns * each)) != 0)
          return false;
    }
    return true;
  };
  auto const dim = whole.options().dim;
  CHECK(same(plane::weights, 0, 1, place.columns, dim, place.first_column, size_of(part.shape(plane::weights).type)));
  if (part.shape(plane::step).width > 0) CHECK(same(plane::step, 1, 0, 0, 0, 0, 4));
  auto const layout = part.state_layout();
  CHECK(same(plane::state, layout.per_row, layout.per_element, place.columns, dim, place.first_column, 4));
  CHECK(part.steps() == whole.steps());
}

struct setting {
  int ranks, workers;
  hot_row_moves moves;
  cuts cut;
};

// Hot batches and others train to the bits of one process without twins.
void check_setting(std::uint64_t seed, setting const& how) {
  CAPTURE(how.ranks);
  CAPTURE(how.workers);
  CAPTURE(static_cast<int>(how.moves));
  CAPTURE(static_cast<int>(how.cut));
  constexpr std::int64_t one_in = 3;
  std::mt19937_64 random(seed);
  bool const stays = how.moves == hot_row_moves::stay;
  auto problem = usual_problem();
  if (stays) problem.features[2].pooling = tessera::pooling::sum;
  std::vector<tessera::table_spec> specs, twins;
  hashed_tables hashed;
  for (auto const& table : problem.tables) {
    auto const pair = any_pair(random, table, how.cut != cuts::columns);
    specs.push_back(pair.inner);
    twins.push_back(pair.twin);
    hashed.push_back(!pair.inner.slots_are_ids);
  }
  auto const plan = plan_of(problem, hashed, how.ranks, how.cut, random);

  struct step_batch {
    bool is_hot;
    source_rows rows;
    std::vector<std::int64_t> first;  // sample of each worker
  };
  std::vector<step_batch> steps;
  for (int s = 0; s < 8; ++s) {
    auto& one = steps.emplace_back();
    one.is_hot = random() % 2 == 0;
    one.first.push_back(0);
    for (int w = 0; w < how.workers; ++w)
      one.first.push_back(one.first.back() + static_cast<std::int64_t>(random() % 4 == 0 ? 0 : random() % 15));
    one.rows = draw_bags(random, static_cast<std::size_t>(one.first.back()),
                         one.is_hot ? bags::hot
                         : stays    ? bags::pure
                                    : bags::any,
                         one_in);
  }

  tessera_tests::serial_host host;
  auto const exec = host.exec();
  tessera::table_list list;
  for (auto const& spec : specs) spec.add(exec, spec.table, list);
  local_tables reference(std::move(list), problem.features);
  std::deque<source_batch<host_exec>> wholes;
  tessera::local_tables_saved of_reference;
  std::normal_distribution<float> draw;
  for (auto const& step : steps) {
    auto& batch = wholes.emplace_back(exec, problem, step.rows, false);
    batch.fill_gradients([&] { return draw(random); });
    forward(exec, reference, batch, of_reference);
    backward(exec, reference, batch, of_reference);
  }
  auto const expected = reference.parts();
  std::vector<std::atomic<std::int64_t>> rows_of(problem.tables.size());

  std::vector<tessera_tests::serial_host> hosts(static_cast<std::size_t>(how.ranks));
  tessera::run_thread_ranks(how.ranks, [&](tessera::thread_communicator& thread) {
    auto const here = hosts[static_cast<std::size_t>(thread.rank())].exec();
    any_communicator comm(thread);
    int const worker = thread.rank() - (how.ranks - how.workers);  // the last ranks are workers
    auto split = comm.split(here, worker >= 0 ? 1 : 0, 0);
    std::optional<any_communicator> workers;
    if (worker >= 0) workers = split;
    tessera::hot_source<sharded_tables> source(here, sharded_tables(here, comm, specs, problem.features, plan), twins,
                                               hot_of(here, specs, one_in), {.workers = workers, .moves = how.moves});
    tessera::hot_source<sharded_tables>::saved_type saved;
    tessera::row_gradients sum;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      auto const first = worker < 0 ? 0 : steps[s].first[static_cast<std::size_t>(worker)],
                 last = worker < 0 ? 0 : steps[s].first[static_cast<std::size_t>(worker) + 1];
      source_batch const batch(here, problem, part_of(steps[s].rows, first, last), false);
      take_gradients(problem, wholes[s], batch, first);
      auto view = batch.view();
      view.kind = steps[s].is_hot ? batch_class::hot : batch_class::cold;
      if (s == 5) {  // as a checkpoint does
        auto const parts = source.parts();
        CHECK(parts.size() == source.inner().parts().size());
      }
      source.begin(here, view, saved);
      source.finish(here, saved, batch.out());
      if (worker >= 0) CHECK(gives_part(problem, wholes[s], batch, first, [](auto vector) { return vector; }));
      source.begin_backward(here, saved, batch.gradients());
      if (s % 2 == 0) {
        source.finish_backward(here, saved);
      } else {
        source.gradients(here, saved, sum);
        CHECK(source.counted_elsewhere().size() == static_cast<std::size_t>(sum.tables()));
        source.apply(here, sum);
      }
    }
    auto const parts = source.parts();
    auto const places = source.places();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      auto const& place = places.parts[p];
      auto const table = static_cast<std::size_t>(place.table);
      check_part(here, *parts[p], place, *expected[table]);
      if (place.first_column == 0 && !place.is_copy) rows_of[table] += parts[p]->rows();
    }
  });
  for (std::size_t t = 0; t < rows_of.size(); ++t) CHECK(rows_of[t].load() == expected[t]->rows());
}

}  // namespace

TEST_CASE("hot_source: hot batches and others, on any ranks, have the bits of one process: rows, scales, states and steps") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::uint64_t more = 0;
  for (auto const moves : {hot_row_moves::swap, hot_row_moves::stay}) {
    check_setting(seed + more++, {1, 1, moves, cuts::none});
    check_setting(seed + more++, {2, 2, moves, cuts::rows});
    check_setting(seed + more++, {2, 1, moves, cuts::columns});
    if (tessera_tests::under_sanitizer) continue;
    check_setting(seed + more++, {2, 1, moves, cuts::none});
    check_setting(seed + more++, {4, 4, moves, cuts::columns});
    check_setting(seed + more++, {4, 2, moves, cuts::rows});
    check_setting(seed + more++, {4, 3, moves, cuts::none});
  }
}

namespace {

// A step of one key and one id a sample. Returns the vectors.
template <class Source>
std::vector<float> take_step(host_exec const& exec, Source& source, std::vector<std::int64_t> const& ids, batch_class kind,
                             std::int64_t dim) {
  typename Source::saved_type saved;
  auto const n = static_cast<std::int64_t>(ids.size());
  std::vector<std::int64_t> const lengths(ids.size(), 1), rows_per_key{n};
  auto const jagged = tessera::keyed_jagged<>::from_lengths(exec, {}, ids, lengths, rows_per_key);
  tessera::batch_view view;
  view.dense = {nullptr, n, 0};
  view.sparse = jagged.view();
  view.kind = kind;
  std::vector<float> out(static_cast<std::size_t>(n * dim)), gradients(out.size(), 0.5F);
  std::vector<tessera::matrix_view<float>> const blocks{{out.data(), n, dim}};
  std::vector<tessera::matrix_view<float const>> const of_blocks{{gradients.data(), n, dim}};
  source.begin(exec, view, saved);
  source.finish(exec, saved, blocks);
  source.begin_backward(exec, saved, of_blocks);
  source.finish_backward(exec, saved);
  return out;
}

// Tables of one process.
local_tables tables_of(host_exec const& exec, tessera::table_spec const& spec) {
  tessera::table_list list;
  spec.add(exec, spec.table, list);
  return local_tables(std::move(list), {{.name = "a", .table = 0}});
}
tessera::hot_rows some_hot(host_exec const& exec, tessera::table_spec const& spec, std::vector<std::int64_t> ids) {
  tessera::hot_rows hot;
  hot.tables.push_back(tessera::table_hot_rows::some_of(exec, spec.table, spec.slots_are_ids, std::move(ids)));
  return hot;
}

}  // namespace

TEST_CASE("hot_source: a full hashed table leaves rows out that come home, as it leaves out new ids") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 4, most = 8;
  for (bool const evicts : {false, true}) {
    tessera::table_options table{.id = tessera::table_id{1}, .dim = dim, .rows = 4};
    auto const twin = tessera::spec_of<tessera::dense_table<>>(table, tessera::adagrad{});
    table.most_rows = most;
    auto const inner = evicts
                           ? tessera::spec_of<tessera::hash_table<float, tessera::admit_all, tessera::evict_lru>>(table, tessera::adagrad{})
                           : tessera::spec_of<tessera::hash_table<>>(table, tessera::adagrad{});
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < 20; ++id) ids.push_back(100 + id);
    tessera::hot_source<local_tables> source(exec, tables_of(exec, inner), {twin}, some_hot(exec, inner, ids));
    take_step(exec, source, ids, batch_class::hot, dim);
    take_step(exec, source, {7, 8, 100, 101}, batch_class::cold, dim);
    CHECK(source.parts()[0]->rows() <= most);
    CHECK(source.parts()[0]->rows() > 0);
    take_step(exec, source, ids, batch_class::hot, dim);
    CHECK(source.parts()[0]->rows() <= most);
  }
}

TEST_CASE("hot_source: rows of a source that was trained before are in the twins before they are read") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 4;
  auto const spec = tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{1}, .dim = dim, .rows = 30}, tessera::adam{});
  std::vector<std::int64_t> const ids{0, 3, 3, 9, 12};
  for (auto const moves : {hot_row_moves::swap, hot_row_moves::stay}) {
    auto reference = tables_of(exec, spec), trained = tables_of(exec, spec);
    for (int i = 0; i < 3; ++i) {
      take_step(exec, reference, ids, batch_class::mixed, dim);
      take_step(exec, trained, ids, batch_class::mixed, dim);
    }
    tessera::hot_source<local_tables> source(exec, std::move(trained), {spec}, some_hot(exec, spec, {0, 3, 6, 9, 12}), {.moves = moves});
    CHECK(source.parts()[0]->steps() == reference.parts()[0]->steps());
    CHECK(source.parts()[0]->steps().value == 3);
    for (int i = 0; i < 2; ++i)
      CHECK(take_step(exec, source, ids, batch_class::hot, dim) == take_step(exec, reference, ids, batch_class::mixed, dim));
    auto const parts = source.parts(), expected = reference.parts();
    check_part(exec, *parts[0], tessera::part_place{.table = 0, .columns = dim}, *expected[0]);
  }
}

TEST_CASE("hot_source: lookups that began before a swap end after it, with the bits of the order of their steps") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  constexpr std::int64_t dim = 4;
  auto const spec = tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{1}, .dim = dim, .rows = 30}, tessera::adagrad{});
  auto reference = tables_of(exec, spec);
  tessera::sharding_plan const plan{{tessera::whole_table(tessera::options_of(std::vector{spec}), 0, 0)}};
  std::vector<tessera_tests::serial_host> hosts(2);
  struct step {
    std::vector<std::int64_t> ids;
    batch_class kind;
  };
  std::vector<step> const steps{{{0, 1, 2, 3}, batch_class::cold},
                                {{0, 3, 9}, batch_class::hot},
                                {{3, 9, 9}, batch_class::hot},
                                {{3, 4, 9, 10}, batch_class::cold},
                                {{0, 9}, batch_class::hot}};
  std::vector<std::vector<float>> expected;
  for (auto const& one : steps) expected.push_back(take_step(exec, reference, one.ids, batch_class::mixed, dim));
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& comm) {
    auto const here = hosts[static_cast<std::size_t>(comm.rank())].exec();
    using source_type = tessera::hot_source<sharded_tables>;
    source_type source(here, sharded_tables(here, any_communicator(comm), {spec}, {{.name = "a", .table = 0}}, plan), {spec},
                       some_hot(here, spec, {0, 3, 6, 9, 12}), {.workers = any_communicator(comm)});
    std::vector<typename source_type::saved_type> saved(steps.size());
    std::vector<tessera::keyed_jagged<>> ids;
    for (auto const& one : steps) {  // rank 1 has all samples
      std::vector<std::int64_t> const mine(comm.rank() == 1 ? one.ids : std::vector<std::int64_t>()), lengths(mine.size(), 1),
          rows{static_cast<std::int64_t>(mine.size())};
      ids.push_back(tessera::keyed_jagged<>::from_lengths(here, {}, mine, lengths, rows));
    }
    auto const begin = [&](std::size_t s) {
      tessera::batch_view view;
      view.sparse = std::as_const(ids[s]).view();
      view.dense = {nullptr, view.sparse.key(0).rows, 0};
      view.kind = steps[s].kind;
      source.begin(here, view, saved[s]);
    };
    begin(0);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      if (s + 1 < steps.size()) begin(s + 1);
      auto const n = ids[s].view().key(0).rows;
      std::vector<float> out(static_cast<std::size_t>(n * dim)), gradients(out.size(), 0.5F);
      std::vector<tessera::matrix_view<float>> const blocks{{out.data(), n, dim}};
      std::vector<tessera::matrix_view<float const>> const of_blocks{{gradients.data(), n, dim}};
      source.finish(here, saved[s], blocks);
      if (comm.rank() == 1) CHECK(out == expected[s]);
      source.begin_backward(here, saved[s], of_blocks);
      source.finish_backward(here, saved[s]);
    }
    auto const parts = source.parts();
    if (comm.rank() == 0) check_part(here, *parts[0], tessera::part_place{.table = 0, .columns = dim}, *reference.parts()[0]);
  });
}

TEST_CASE("hot_source: bytes on the wire: cold batches as without twins, hot ones none, swaps those of the touched rows") {
  constexpr std::int64_t dim = 8, rows = 3000, samples = 40, one_in = 3;
  std::vector<tessera::table_spec> const specs{
      tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{4}, .dim = dim, .rows = rows}, tessera::adagrad{})};
  std::vector<tessera::table_feature> const features{{.name = "a", .table = 0}};
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<tessera_tests::serial_host> hosts(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& thread) {
    auto const exec = hosts[static_cast<std::size_t>(thread.rank())].exec();
    std::mt19937_64 random(seed);
    bool const trains = thread.rank() == 1;
    any_communicator comm(thread);
    tessera::sent_counts sent, sent_without;
    std::optional<any_communicator> workers;
    auto split = comm.split(exec, trains ? 1 : 0, 0);
    if (trains) workers = split;
    tessera::sharding_plan const plan{{tessera::whole_table(tessera::options_of(specs), 0, 0)}};
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < rows; id += one_in) ids.push_back(id);
    tessera::hot_rows hot;
    hot.tables.push_back(tessera::table_hot_rows::some_of(exec, specs[0].table, true, std::move(ids)));
    sharded_tables plain(exec, tessera::counting_communicator(any_communicator(thread), sent_without), specs, features, plan);
    tessera::hot_source<sharded_tables> source(
        exec, sharded_tables(exec, tessera::counting_communicator(any_communicator(thread), sent), specs, features, plan), specs,
        std::move(hot), {.workers = workers});
    sent.clear();
    sent_without.clear();

    // On the worker; the other rank has no samples.
    auto const step = [&](auto& of, std::vector<std::int64_t> const& ids_of_batch, batch_class kind) {
      take_step(exec, of, trains ? ids_of_batch : std::vector<std::int64_t>(), kind, dim);
    };
    auto const draw = [&](bool are_hot) {
      std::vector<std::int64_t> bags;
      for (std::int64_t i = 0; i < samples; ++i) {
        auto const id = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
        bags.push_back(are_hot ? id / one_in * one_in : id);
      }
      return bags;
    };
    auto const touched = [&](std::vector<std::vector<std::int64_t>> const& batches) {
      std::set<std::int64_t> distinct;
      for (auto const& bags : batches)
        for (auto const id : bags)
          if (id % one_in == 0) distinct.insert(id);
      return static_cast<std::int64_t>(distinct.size());
    };
    // A step count, a byte a row in whole words, weights and state.
    auto const swap_bytes = [&](std::int64_t n) { return 8 + (n + 7) / 8 * 8 + n * dim * 4 + n * dim * 4; };
    auto const of_swap = [&](char const* operation) {
      auto const bytes = tessera::sent_by(sent, operation).bytes;
      for (char const* const name : {"hot_source: rows that have changed", "row_mover: rows have moved", operation}) sent.erase(name);
      return bytes;
    };

    auto const first = draw(false), second = draw(true), third = draw(true), fourth = draw(false);
    step(source, first, batch_class::cold);
    step(plain, first, batch_class::cold);
    CHECK(sent == sent_without);
    sent.clear();
    step(source, second, batch_class::hot);
    CHECK(of_swap("row_mover: rows to copies") == (trains ? 0 : swap_bytes(touched({first}))));
    CHECK(sent.empty());
    step(source, third, batch_class::hot);
    CHECK(sent.empty());
    sent_without.clear();
    step(source, fourth, batch_class::cold);
    step(plain, fourth, batch_class::cold);
    CHECK(of_swap("row_mover: copies to rows") == (trains ? swap_bytes(touched({second, third})) : 0));
    CHECK(sent == sent_without);
  });
}

TEST_CASE("hot_source: bytes on the wire: what two workers join of a hot batch") {
  constexpr std::int64_t dim = 8, rows = 3000, samples = 400;
  std::vector<tessera::table_spec> const specs{
      tessera::spec_of<tessera::dense_table<>>({.id = tessera::table_id{4}, .dim = dim, .rows = rows}, tessera::adagrad{})};
  tessera::sharding_plan const plan{{tessera::whole_table(tessera::options_of(specs), 0, 0)}};
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> const all = tessera_tests::random_integers<std::int64_t>(random, 2 * samples, 0, 299);
  auto const distinct = static_cast<std::int64_t>(std::set<std::int64_t>(all.begin(), all.end()).size());
  std::atomic<std::int64_t> joined{0};
  std::vector<tessera_tests::serial_host> hosts(2);
  tessera::run_thread_ranks(2, [&](tessera::thread_communicator& thread) {
    auto const exec = hosts[static_cast<std::size_t>(thread.rank())].exec();
    tessera::sent_counts sent;
    tessera::hot_rows hot;
    hot.tables.push_back(tessera::table_hot_rows::all_of(specs[0].table));
    tessera::exchange_codecs const halves{tessera::codec::fp16, tessera::codec::fp16};
    tessera::hot_source<sharded_tables> source(
        exec, sharded_tables(exec, any_communicator(thread), specs, {{.name = "a", .table = 0}}, plan, {.codecs = halves}), specs,
        std::move(hot), {.workers = any_communicator(tessera::counting_communicator(any_communicator(thread), sent)), .codecs = halves});
    std::vector<std::int64_t> const mine(all.begin() + thread.rank() * samples, all.begin() + (thread.rank() + 1) * samples);
    take_step(exec, source, mine, batch_class::hot, dim);
    sent.clear();
    take_step(exec, source, mine, batch_class::hot, dim);
    joined += tessera::sent_to(sent, [&](int to) { return to != thread.rank(); }).bytes;
  });
  // Of each worker on the average half: 4 bytes an id, 2 an element of its gradient; 8 a distinct row, 4 an element of its sum. Beside them, what
  // says of each message whose ids and rows it has.
  CHECK(joined.load() == samples * (4 + 2 * dim) + distinct * (8 + 4 * dim) + 2 * 80 + 2 * 8);
}

TEST_CASE("hot_source: what is refused") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  std::mt19937_64 random(1);
  auto const problem = problem_of<swap_maker>();
  auto source = swap_maker::make(exec, problem);
  swap_maker::source_type::saved_type saved, other;
  std::normal_distribution<float> draw;
  auto const batch_of = [&](bags kind) { return source_batch<host_exec>(exec, problem, draw_bags(random, 20, kind, 2), false); };
  auto const of_hot = batch_of(bags::hot), of_any = batch_of(bags::any);
  auto const begin = [&](source_batch<host_exec> const& batch, batch_class kind, auto& to) {
    auto view = batch.view();
    view.kind = kind;
    source.begin(exec, view, to);
  };
  // A cold id in a hot batch.
  auto rows = draw_bags(random, 20, bags::hot, 2);
  rows[4][7].push_back(9);
  source_batch const wrong(exec, problem, rows, false);
  auto const e = error_of([&] { begin(wrong, batch_class::hot, saved); });
  CHECK(e.code() == tessera::errc::invalid_argument);
  CHECK(e.value("sample") == "7");
  CHECK(e.value("key") == "4");
  CHECK(e.value("id") == "9");
  // A backward from before a swap.
  of_any.fill_gradients([&] { return draw(random); });
  of_hot.fill_gradients([&] { return draw(random); });
  begin(of_any, batch_class::cold, saved);
  source.finish(exec, saved, of_any.out());
  begin(of_hot, batch_class::hot, other);
  source.finish(exec, other, of_hot.out());
  CHECK(source.swaps() == 1);
  auto const says = [](tessera::error const& error) { return std::string(error.what()); };
  CHECK(says(error_of([&] { source.begin_backward(exec, saved, of_any.gradients()); })).find("hot rows have moved") != std::string::npos);
  source.begin_backward(exec, other, of_hot.gradients());
  tessera::row_gradients sum;
  source.gradients(exec, other, sum);
  begin(of_any, batch_class::cold, saved);
  source.finish(exec, saved, of_any.out());
  CHECK(says(error_of([&] { source.apply(exec, sum); })).find("hot rows have moved") != std::string::npos);

  auto const specs = specs_of(problem, hashed_tables(problem.tables.size(), false));
  auto const made = [&](std::vector<tessera::table_spec> const& of, tessera::hot_rows hot, tessera::hot_source_options const& options) {
    return error_of([&] {
      tessera::table_list list;
      for (auto const& spec : specs) spec.add(exec, spec.table, list);
      tessera::hot_source<local_tables>(exec, local_tables(std::move(list), problem.features), of, std::move(hot), options);
    });
  };
  auto others = specs;
  others[1] = pair_of<tessera::bfloat16, tessera::sgd>(problem.tables[1], false).inner;
  CHECK(made(others, hot_of(exec, specs, 2), {}).value("what differs") == "elements");
  others[1] = pair_of<float, tessera::adagrad>(problem.tables[1], false).inner;
  CHECK(made(others, hot_of(exec, specs, 2), {}).value("what differs") == "optimizer");
  others[1] = pair_of<float, tessera::sgd>(problem.tables[1], true).inner;
  CHECK(made(others, hot_of(exec, specs, 2), {}).code() == tessera::errc::incompatible);
  others = specs;
  std::swap(others[1], others[2]);
  CHECK(made(others, hot_of(exec, specs, 2), {}).code() == tessera::errc::incompatible);
  auto fewer = hot_of(exec, specs, 2);
  fewer.tables.pop_back();
  CHECK(made(specs, std::move(fewer), {}).code() == tessera::errc::incompatible);
  CHECK(made(specs, hot_of(exec, specs, 2), {.moves = hot_row_moves::stay}).value("output") == "c");  // a maximum
  auto const changed = [&](auto const& change) {
    auto of = specs;
    auto table = problem.tables[1];
    change(table);
    of[1] = pair_of<float, tessera::sgd>(table, false).inner;
    return std::string(made(of, hot_of(exec, specs, 2), {}).value("what differs"));
  };
  CHECK(changed([](auto& table) { table.dim += 4; }) == "dim");
  CHECK(changed([](auto& table) { table.seed = tessera::random_seed{99}; }) == "seed");
  CHECK(changed([](auto& table) { table.init_bound += 1; }) == "init_bound");
  auto longer = specs;
  longer[1].table.rows += 64;
  CHECK(made(specs, hot_of(exec, longer, 2), {}).value("what differs") == "rows");
}

}  // namespace hot_source_test
