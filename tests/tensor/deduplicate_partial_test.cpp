// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/tensor/deduplicate_partial.hpp>
#include <tessera/tensor/expand_partial.hpp>
#include <tessera/tensor/transform_ids.hpp>

#include "partial_support.hpp"

using namespace tensor_tests;

namespace {

using slice = tessera::run_slice<>;

template <class T, class Offset>
std::vector<tessera::run_slice<Offset>> slices_of(tessera::partial_inverse_keyed_jagged_view<T, Offset> view) {
  return {view.slices, view.slices + view.keys() * view.samples};
}

// Made and brought back: what came in, bit for bit.
template <class Offset>
std::int64_t values_kept(tessera::host_exec const& exec, model const& content, ids const& sessions) {
  auto const batch = batch_of<Offset>(exec, content);
  auto const made = tessera::deduplicate_partial(exec, batch.view(), sessions);
  tessera::validate(made.view(), made.runs().room());
  CHECK(made.samples() == static_cast<std::int64_t>(sessions.size()));
  auto const back = tessera::expand_partial(exec, made.view());
  check_batch(back, content);
  CHECK(equal(back.view(), batch.view()));
  return made.view().runs.size();
}

std::string text_of_session(std::vector<ids> const& lists) {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"b", lists}});
  auto const made = tessera::deduplicate_partial(host.exec(), batch, ids(lists.size(), 7));
  tessera::validate(made.view(), made.runs().room());
  CHECK((tessera::expand_partial(host.exec(), made) == batch));
  auto result = text(made.runs().view().key(0));
  for (auto const& s : slices_of(made.view())) result += " " + std::to_string(s.begin) + "+" + std::to_string(s.length);
  return result;
}

}  // namespace

TEST_CASE("the paper's example, and every way to overlap") {
  CHECK(text_of_session({{3, 4, 5}, {4, 5, 6}, {3, 4, 5}}) == "[[3, 4, 5, 6]] 0+3 1+3 0+3");
  CHECK(text_of_session({{1, 2, 3}, {2}, {2, 3}, {}}) == "[[1, 2, 3]] 0+3 1+1 1+2 0+0");            // within the run
  CHECK(text_of_session({{3, 4}, {2, 3}, {1, 2, 3}, {3, 4}}) == "[[1, 2, 3, 4]] 2+2 1+2 0+3 2+2");  // in front
  CHECK(text_of_session({{3}, {2, 3, 4}, {1, 2, 3, 4, 5}}) == "[[1, 2, 3, 4, 5]] 2+1 1+3 0+5");     // at both ends
  CHECK(text_of_session({{1, 2}, {3, 4}, {2, 5}, {4, 6}, {0, 1, 2}}) == "[[0, 1, 2, 5], [3, 4, 6]] 1+2 4+2 2+2 5+2 0+3");
  CHECK(text_of_session({{1, 1, 2}, {1, 2, 1}, {2, 1, 1, 2}}) == "[[2, 1, 1, 2, 1]] 1+3 2+3 0+4");
  CHECK(text_of_session({{1, 2, 1, 2, 1, 3}, {1, 2, 1, 3, 4}, {2, 1, 3, 4}}) == "[[1, 2, 1, 2, 1, 3, 4]] 0+6 2+5 3+4");
  CHECK(text_of_session({{5, 6}, {6, 5, 6}, {6, 5, 7}}) == "[[6, 5, 6, 5, 7]] 1+2 0+3 2+3");
  CHECK(text_of_session({{}, {}}) == "[] 0+0 0+0");
}

TEST_CASE("sessions and keys share nothing, however samples are mixed") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {1, 2}, {2, 3}, {2, 3}}}, {"b", {{1}, {}, {1}, {1}}}});
  auto const made = tessera::deduplicate_partial(host.exec(), batch, ids{9, -4, 9, -4});
  CHECK(made.keys() == names{"a", "b"});
  CHECK(text(made.runs()) == "{a: [[1, 2, 3], [1, 2, 3]], b: [[1], [1]]}");
  CHECK(slices_of(made.view()) == std::vector<slice>{{0, 2}, {3, 2}, {1, 2}, {4, 2}, {6, 1}, {0, 0}, {6, 1}, {7, 1}});
  CHECK((tessera::expand_partial(host.exec(), made) == batch));
  auto const b = made.view().slice_keys(1, 1);
  CHECK(text(tessera::expand_partial(host.exec(), b)) == "{0: [[1], [], [1], [1]]}");
  CHECK(b.row(0, 3)[0] == 1);
}

TEST_CASE("weights belong to what is shared") {
  tessera_tests::serial_host host;
  auto const batch =
      tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {2, 3}, {2, 3}, {1, 2}}, {{0.5F, 1}, {1, 2}, {-1, 2}, {0.5F, 1}}}});
  auto const made = tessera::deduplicate_partial(host.exec(), batch, ids{1, 1, 1, 1});
  CHECK(text(made.runs()) == "{a: [[1, 2, 3], [2, 3]] weights [[0.5, 1, 2], [-1, 2]]}");
  CHECK((tessera::expand_partial(host.exec(), made) == batch));
  CHECK(made.view().row_weights(0, 2)[0] == -1);
}

TEST_CASE("random sessions come back bit for bit, with 0.99 of what a search through everything shares") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    for (auto const& [kind, name] : list_changes) {
      std::int64_t ours = 0, most = 0;
      for (int repeat = 0; repeat < 24; ++repeat) {
        bool const weighted = repeat % 4 == 3;
        auto const longest = std::vector<std::size_t>{1, 5, 20, 60}[static_cast<std::size_t>(repeat % 4)];
        std::vector<std::vector<model_row>> sessions;
        std::int64_t values = 0, shared = 0;
        for (std::size_t s = 0; s < 12; ++s) {
          sessions.push_back(
              session_lists(random, kind, 1 + random() % 30, longest, 1 + random() % std::min<std::size_t>(longest, 8), weighted));
          shared += naively_shared(sessions.back());
          for (auto const& row : sessions.back()) values += static_cast<std::int64_t>(row.values.size());
        }
        auto const batch = mixed(random, sessions, repeat % 2 == 0);
        most += shared;
        ours += values - (repeat % 3 == 0 ? values_kept<std::int32_t>(exec, {batch.rows}, batch.sessions)
                                          : values_kept<std::int64_t>(exec, {batch.rows}, batch.sessions));
      }
      auto const& change = name;
      CAPTURE(change);
      INFO(ours, " of ", most);
      CHECK(static_cast<double>(ours) >= 0.99 * static_cast<double>(most));
    }
  });
}

TEST_CASE("several keys at once, as a whole and as some keys of a batch") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<tessera::run_slice<>> first;
  model content(4);
  ids sessions;
  for (std::int64_t s = 0; s < 90; ++s)
    for (std::size_t key = 0, samples = 1 + random() % 20; key < 4; ++key) {
      auto const lists = session_lists(random, list_change::any, samples, 30, 4, true);
      content[key].insert(content[key].end(), lists.begin(), lists.end());
      if (key == 0) sessions.insert(sessions.end(), samples, s);
    }
  tessera_tests::for_each_host([&](tessera::host_exec const& exec, tessera_tests::counting_memory&) {
    values_kept<std::int64_t>(exec, content, sessions);
    auto const batch = batch_of<std::int64_t>(exec, content);
    auto const made = tessera::deduplicate_partial(exec, batch.view(), sessions);
    if (first.empty()) first = slices_of(made.view());
    CHECK(slices_of(made.view()) == first);  // whatever the threads
    auto const some = tessera::deduplicate_partial(exec, batch.view().slice_keys(1, 2), sessions);
    CHECK(equal(some.view().runs, made.view().runs.slice_keys(1, 2)));
    check_batch(tessera::expand_partial(exec, some.view()), {content[1], content[2]});
  });
}

TEST_CASE("ids change once in the runs") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{3, 4, 5}, {4, 5, 6}, {3, 4, 5}}}});
  auto made = tessera::deduplicate_partial(host.exec(), batch, ids{0, 0, 0});
  int calls = 0;
  tessera::transform_ids(host.exec(), made.view().runs, [&](std::int64_t id) {
    ++calls;
    return 10 * id;
  });
  CHECK(calls == 4);
  CHECK(text(tessera::expand_partial(host.exec(), made)) == "{a: [[30, 40, 50], [40, 50, 60], [30, 40, 50]]}");
}

TEST_CASE("lists made to be hard come back, too") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::serial_host host;
  auto const check = [&](std::vector<ids> const& lists) {
    model_rows rows;
    for (auto const& list : lists) rows.push_back({list, {}});
    values_kept<std::int64_t>(host.exec(), {rows}, ids(rows.size(), 1));
  };
  std::vector<ids> one_id, nearly, growing, shrinking, fibonacci{{1}, {1, 2}};
  for (std::size_t i = 0; i < 300; ++i) {
    one_id.push_back(ids(random() % 200, 1));
    nearly.push_back(ids(random() % 200, 1));
    if (!nearly.back().empty()) nearly.back()[random() % nearly.back().size()] = 2;
    growing.insert(growing.begin(), ids());
    for (std::size_t k = 0; k < i; ++k) growing[0].push_back(static_cast<std::int64_t>(k));
    shrinking.push_back(growing[0]);
  }
  for (int i = 0; i < 11; ++i) {
    fibonacci.push_back(fibonacci.back());
    auto const& before = fibonacci[fibonacci.size() - 3];
    fibonacci.back().insert(fibonacci.back().end(), before.begin(), before.end());
  }
  check(one_id);
  check(nearly);
  check(growing);
  check(shrinking);
  check(fibonacci);
  std::reverse(fibonacci.begin(), fibonacci.end());
  check(fibonacci);
}

TEST_CASE("nothing of nothing, and what does not fit is refused by name") {
  tessera_tests::serial_host host;
  CHECK(values_kept<std::int64_t>(host.exec(), {}, {}) == 0);
  CHECK(values_kept<std::int64_t>(host.exec(), {{}, {}}, {}) == 0);
  CHECK(values_kept<std::int64_t>(host.exec(), {}, {1, 2}) == 0);
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{1}}}});
  CHECK(refusal_of([&] {
          tessera::deduplicate_partial(host.exec(), batch, ids{1, 1});
        }) == "deduplicate_partial: a row a sample in every key (key b, rows 1, sessions 2)");
  CHECK(refusal_of([&] {
          tessera::deduplicate_partial(host.exec(), batch.view().slice_keys(0, 1), ids{1, 1}, {.most_values = 1});
        }) == "deduplicate_partial: more values than the result was given room for (values 2, room 1)");
}
