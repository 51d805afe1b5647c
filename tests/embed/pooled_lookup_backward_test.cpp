// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
// ctest-optimize: -O2, sanitizers -O0
// ctest-weight: 8
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/embed/prepare_backward.hpp>

#include "../support/type_lists.hpp"
#include "pooled_lookup_backward_suite.hpp"
#include "temporary_folder.hpp"

using namespace embed_tests;
using dense = tessera::dense_table<>;
using hashed = tessera::hash_table<>;
using tessera_tests::pool_host;
using tessera_tests::serial_host;

namespace {
std::atomic<std::int64_t> heap_calls{0};

[[maybe_unused]] void* from_heap(std::size_t bytes, std::size_t alignment) {
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  void* const pointer = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (pointer == nullptr) throw std::bad_alloc();
  return pointer;
}
}  // namespace

// For the whole program, so that a hidden allocation anywhere in a step shows. A thread sanitizer brings its own and takes no other.
#if !TESSERA_TEST_TSAN
void* operator new(std::size_t bytes) { return from_heap(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return from_heap(bytes, static_cast<std::size_t>(alignment)); }
void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {  // std::stable_sort's
  heap_calls.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { std::free(pointer); }
#endif

TEST_CASE("pooled_lookup_backward over dense tables") { tessera_tests::for_each_team(pooled_lookup_backward_suite<dense>); }
TEST_CASE("pooled_lookup_backward over hashed tables") { tessera_tests::for_each_team(pooled_lookup_backward_suite<hashed>); }

TEST_CASE_TEMPLATE("pooled_lookup_backward: the documented order, bit for bit", Store, dense, hashed) {
  pooled_lookup_backward_in_canonical_order<Store>();
}

TEST_CASE_TEMPLATE("pooled_lookup_backward: every team trains the same bits", Store, dense, hashed) {
  pooled_lookup_backward_of_every_team<Store>(tessera::sgd{});
  pooled_lookup_backward_of_every_team<Store>(tessera::rowwise_adagrad{});
  pooled_lookup_backward_of_every_team<Store>(tessera::adam{});
}

TEST_CASE("pooled_lookup_backward: dense and hashed tables train the same bits") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims(all_dims, 50);
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  tessera::rowwise_adagrad const optimizer{.learning_rate = 0.1F};
  auto dense_tables = make_tables<dense>(exec, options, optimizer);
  auto hashed_tables = make_tables<hashed>(exec, options, optimizer);
  tessera::lookup_saved saved;
  for (int step = 0; step < 4; ++step) {
    auto const batch =
        random_batch(exec, random, features.size(), {.id_range = 50, .most_rows = 30, .mean_length = 4, .weighted = step % 2 == 1});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices from_dense(options, features, view), from_hashed(options, features, view);
    tessera::pooled_lookup(exec, dense_tables, features, view, from_dense.out(), saved);
    tessera::pooled_lookup_backward(exec, dense_tables, features, saved, gradients.in(), optimizer);
    tessera::pooled_lookup(exec, hashed_tables, features, view, from_hashed.out(), saved);
    tessera::pooled_lookup_backward(exec, hashed_tables, features, saved, gradients.in(), optimizer);
    CHECK(same_bits(from_dense.values(), from_hashed.values()));
  }
  bool same = true;
  for (std::size_t t = 0; t < options.size(); ++t)
    for (std::int64_t slot = 0; slot < hashed_tables[t].rows(); ++slot) {
      auto const id = hashed_tables[t].ids()[slot];
      same = same && same_bits(hashed_tables[t].row(slot), dense_tables[t].row(id), options[t].dim) &&
             same_bits(hashed_tables[t].state(slot), dense_tables[t].state(id), 1);
    }
  CHECK(same);
}

// A thread sums two rows at once on its stack up to dim 576, one up to 768, wider ones elsewhere (embed/row_sums.hpp). Rounded rows need
// room there, too.
TEST_CASE_TEMPLATE("pooled_lookup_backward: rows as wide as the stack of sums holds, and one wider, match a double reference", Element,
                   float, tessera::float16) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({576, 4, 577, 768, 769}, 8);  // the second has no ids
  auto const features = features_over(static_cast<std::int64_t>(options.size()));
  tessera::sgd const optimizer{.learning_rate = 0.001F};
  auto tables = make_tables<tessera::dense_table<Element>>(exec, options, optimizer);
  reference_tables reference(options);
  tessera::lookup_saved saved;
  for (bool const fills_chunks : {false, true}) {  // rows with more contributions than a chunk has
    auto const batch = random_batch(
        exec, random, features.size(),
        {.id_range = fills_chunks ? 2 : 8, .most_rows = 30, .mean_length = fills_chunks ? 150.0 : 4.0, .weighted = fills_chunks});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices out(options, features, view);
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), optimizer);
    reference.step(reference_gradients(options, features, view, gradients), [&](auto& row, auto&, auto const& g, std::int64_t) {
      for (std::size_t c = 0; c < g.size(); ++c) row[c] -= static_cast<double>(optimizer.learning_rate) * g[c];
    });
    CHECK(reference.close_to(exec, tables, std::is_same_v<Element, float> ? 2e-5 : 6e-3));
  }
}

TEST_CASE_TEMPLATE("pooled_lookup_backward: a step of a kind seen before allocates nothing", Store, dense, hashed) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  auto const options = tables_of_dims({3, 16, 130}, 200);
  auto const features = features_over(3);
  tessera::rowwise_adagrad const optimizer;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (bool const keep_saved : {false, true}) {
      CAPTURE(keep_saved);
      tessera_tests::counting_memory upstream;
      tessera::arena<tessera_tests::counting_memory> workspace(upstream, 1 << 10);
      auto const step_exec = exec.with_memory(workspace);
      auto const batch =
          random_batch(exec, random, features.size(), {.id_range = 200, .most_rows = 300, .mean_length = 4, .weighted = true});
      auto const view = std::as_const(batch).view();
      auto const gradients = random_gradients(random, options, features, view);
      pooled_matrices out(options, features, view);
      auto tables = make_tables<Store>(exec, options, optimizer);
      tessera::lookup_saved kept;
      auto const step = [&] {
        tessera::lookup_saved local;
        auto& saved = keep_saved ? kept : local;
        tessera::pooled_lookup(step_exec, tables, features, view, out.out(), saved);
        tessera::pooled_lookup_backward(step_exec, tables, features, saved, gradients.in(), optimizer);
        tessera::pooled_lookup(step_exec, std::as_const(tables), features, view, out.out());
      };
      step();
      step();
      auto const from_upstream = upstream.allocations();
      auto const heap_calls_before = heap_calls.load();
      step();
      step();
      step();
      auto const heap_calls_of_steps = heap_calls.load() - heap_calls_before;
      CHECK(heap_calls_of_steps == 0);
#if !TESSERA_TEST_TSAN
      CHECK(heap_calls_before > 0);
#endif
      CHECK(upstream.allocations() == from_upstream);
    }
  });
}

TEST_CASE("pooled_lookup_backward: an id that read as zeros gets no gradient") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({3}, 10);
  std::vector<tessera::pooled_feature> const features{{0, tessera::pooling::mean}};
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{-1, 2, 10, 10}, {11}}}});
  auto const view = std::as_const(batch).view();
  pooled_matrices out(options, features, view), gradients(options, features, view);
  gradients.fill([] { return 4.0F; });
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, view, out.out(), saved, {.out_of_range = tessera::out_of_range_ids::zero});
  auto const before = contents(exec, tables, 10);
  tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{.learning_rate = 1});
  auto expected = before;
  for (std::size_t c = 0; c < 3; ++c) expected[2 * 3 + c] -= 1;  // 4, by the bag's four ids
  CHECK(same_bits(contents(exec, tables, 10), expected));
}

TEST_CASE_TEMPLATE("pooled_lookup_weight_gradient: the derivative by each weight", Store, TESSERA_TEST_STORES, TESSERA_TEST_SMALL_STORES) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::vector<float> first;
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
    std::mt19937_64 random(seed);
    auto const options = tables_of_dims({1, 3, 16, 17, 64, 130, 1027}, 30);
    auto const features = features_over(7);
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto batch = random_batch(exec, random, features.size(), {.id_range = 30, .most_rows = 20, .mean_length = 4, .weighted = true});
    auto const view = std::as_const(batch).view();
    auto const gradients = random_gradients(random, options, features, view);
    pooled_matrices out(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    std::vector<float> result(static_cast<std::size_t>(view.size()));
    tessera::pooled_lookup_weight_gradient(exec, tables, features, saved, gradients.in(), result);
    // The pooled vectors are linear in the weights: the loss <out, gradient> at a weight of 1 more, in double.
    for (std::int64_t key = 0; key < view.keys; ++key) {
      auto const& feature = features[static_cast<std::size_t>(key)];
      auto const& table = tables[static_cast<std::size_t>(feature.table)];
      auto const bags = view.key(key);
      for (std::int64_t bag = 0; bag < bags.rows; ++bag)
        for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
          double const scale = feature.pooling == tessera::pooling::mean ? 1.0 / static_cast<double>(bags.length(bag)) : 1.0;
          double expected = 0, magnitude = 0;
          auto const row = values_of_row(table, find(exec, table, {view.values[p]})[0]);
          for (std::int64_t c = 0; c < table.dim(); ++c) {
            auto const term = scale * static_cast<double>(row[static_cast<std::size_t>(c)]) *
                              static_cast<double>(gradients.in()[static_cast<std::size_t>(key)](bag, c));
            expected += term;
            magnitude += std::abs(term);
          }
          CHECK(std::abs(static_cast<double>(result[static_cast<std::size_t>(p)]) - expected) <= 1e-5 * magnitude + 1e-12);
        }
    }
    if (first.empty()) first = result;
    CHECK(same_bits(first, result));
    std::vector<float> too_few(result.size() - 1);
    CHECK_THROWS_AS(tessera::pooled_lookup_weight_gradient(exec, tables, features, saved, gradients.in(), too_few), tessera::error);
  });
}

TEST_CASE_TEMPLATE("pooled_lookup_weight_gradient: a row not admitted counts with the bits that it would have", Element,
                   TESSERA_TEST_SOME_ELEMENTS) {
  std::mt19937_64 random(12);
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({3, 17, 130}, 30);
  auto const features = features_over(3);
  auto const batch = random_batch(exec, random, features.size(), {.id_range = 30, .most_rows = 30, .mean_length = 4, .weighted = true});
  auto const view = std::as_const(batch).view();
  auto const gradients = random_gradients(random, options, features, view);
  auto const of = [&](auto& tables) {
    pooled_matrices out(options, features, view);
    tessera::lookup_saved saved;
    tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
    std::vector<float> result(static_cast<std::size_t>(view.size()));
    tessera::pooled_lookup_weight_gradient(exec, tables, features, saved, gradients.in(), result);
    return result;
  };
  auto tables = make_tables<tessera::dense_table<Element>>(exec, options, tessera::sgd{});
  std::vector<tessera::hash_table<Element, tessera::admit_by_probability>> closed;
  for (auto const& table : options) closed.emplace_back(exec, table, tessera::sgd{}, tessera::admit_by_probability{.probability = 0});
  CHECK(same_bits(of(closed), of(tables)));
  for (auto const& table : closed) CHECK(table.rows() == 0);
}

TEST_CASE("pooled_lookup: a refused lookup keeps the memory of what it was to fill") {
  tessera_tests::serial_host host;
  auto const exec = host.exec();
  auto const options = tables_of_dims({4}, 10);
  auto const features = features_over(1);
  auto tables = make_tables<dense>(exec, options, tessera::sgd{});
  auto const good = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 2, 3}}}}),
             bad = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{1, 10}}}});
  auto const view = std::as_const(good).view(), bad_view = std::as_const(bad).view();
  pooled_matrices out(options, features, view);
  tessera_tests::counting_memory sorters;  // another thread's, which goes on using it
  tessera::lookup_saved saved;
  tessera::pooled_lookup(exec, tables, features, view, out.out(), saved);
  tessera::prepare_backward(exec.with_memory(sorters), tables, tessera::vector_view<tessera::pooled_feature const>(features), saved);
  auto const pieces = sorters.live_pieces();
  CHECK(pieces > 0);
  CHECK_THROWS_AS(tessera::pooled_lookup(exec, tables, features, bad_view, out.out(), saved), tessera::error);
  CHECK(sorters.live_pieces() == pieces);
  CHECK_FALSE(saved.order.ready());
  CHECK_THROWS_AS(tessera::pooled_lookup_backward(exec, tables, features, saved, out.in(), tessera::sgd{}), tessera::error);
}

TEST_CASE_TEMPLATE("pooled_lookup_backward: a checked build refuses an order that was prepared for something else", Store, dense, hashed) {
  if constexpr (tessera::checked) {
    tessera_tests::serial_host host;
    auto const exec = host.exec();
    auto const options = tables_of_dims({4, 5}, 10);
    std::vector<tessera::pooled_feature> const features{{0}, {1}};
    auto tables = make_tables<Store>(exec, options, tessera::sgd{});
    auto const batch = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{7, 1, 3}}}, {"b", {{2, 1}}}}),
               of_first = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{7, 3, 1}}}, {"b", {{2, 1}}}}),
               of_second = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{7, 1, 3}}}, {"b", {{2, 2}}}}),
               of_lengths = tessera::keyed_jagged<>::from_rows(exec, {{"a", {{7, 1}}}, {"b", {{3, 2, 1}}}});
    auto const looked_up = [&](tessera::keyed_jagged<> const& b, std::vector<tessera::pooled_feature> const& f) {
      pooled_matrices out(options, f, b.view());
      tessera::lookup_saved saved;
      tessera::pooled_lookup(exec, tables, f, b.view(), out.out(), saved);
      tessera::prepare_backward(exec, tables, tessera::vector_view<tessera::pooled_feature const>(f), saved);
      return saved;
    };
    auto const refused_table = [&](tessera::lookup_saved other) {
      auto saved = looked_up(batch, features);
      std::swap(saved.order, other.order);
      pooled_matrices gradients(options, features, saved.batch);
      auto const e =
          tessera_tests::error_of([&] { tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{}); });
      CHECK(e.code() == tessera::errc::invalid_argument);
      tessera::row_gradients rows;
      CHECK_THROWS_AS(tessera::pooled_lookup_gradients(exec, tables, features, saved, gradients.in(), rows), tessera::error);
      return std::string(e.value("table"));
    };
    CHECK(refused_table(looked_up(of_first, features)) == "0");
    CHECK(refused_table(looked_up(of_second, features)) == "1");
    CHECK(refused_table(looked_up(of_lengths, features)) == "0");
    auto saved = looked_up(batch, features);
    pooled_matrices gradients(options, features, saved.batch);
    gradients.fill([] { return 1.0F; });
    tessera::pooled_lookup_backward(exec, tables, features, saved, gradients.in(), tessera::sgd{});
  }
}
