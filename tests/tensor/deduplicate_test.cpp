// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/tensor/deduplicate.hpp>

#include "inverse_support.hpp"

using namespace tensor_tests;

namespace {

template <class Offset>
void check_against_naive(tessera::host_exec const& exec, model const& content, ids const& keys_per_group) {
  auto const batch = batch_of<Offset>(exec, content);
  auto const made = tessera::deduplicate(exec, batch.view(), keys_per_group);
  tessera::validate(made.view(), made.view().distinct.size());
  CHECK(made.samples() == (content.empty() ? 0 : static_cast<std::int64_t>(content[0].size())));
  CHECK(model_of(made.view()) == naive_deduplicate(content, keys_per_group));
}

// All rows collide.
struct constant_hash {
  static std::uint64_t bytes(void const*, std::size_t, std::uint64_t) noexcept { return 42; }
};

}  // namespace

TEST_CASE("distinct rows and inverses are those that a search through all earlier samples finds") {
  for_each_session_batch([](tessera::host_exec const& exec, model const& content, ids const& keys_per_group, auto&) {
    check_against_naive<std::int64_t>(exec, content, keys_per_group);
    check_against_naive<std::int32_t>(exec, content, keys_per_group);
  });
}

TEST_CASE("the paper's example: c and d share an inverse, b's rows 0 and 2 are one") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(
      host.exec(),
      {{"b", {{3, 4, 5}, {4, 5, 6}, {3, 4, 5}}}, {"c", {{7, 8}, {7, 8}, {10}}}, {"d", {{9}, {9}, {11}}}, {"a", {{1, 2}, {}, {1, 2}}}});
  auto const made = tessera::deduplicate(host.exec(), batch, ids{1, 2});
  CHECK(made.keys() == names{"b", "c", "d", "a"});
  auto const view = made.view();
  CHECK(
      model_of(view) ==
      inverse_model{
          {{{{3, 4, 5}, {}}, {{4, 5, 6}, {}}}, {{{7, 8}, {}}, {{10}, {}}}, {{{9}, {}}, {{11}, {}}}, {{{1, 2}, {}}, {{}, {}}, {{1, 2}, {}}}},
          {{0, 1, 0}, {0, 0, 1}}});
  CHECK(view.grouped_keys() == 3);
  CHECK(view.inverse(2).data() == view.groups[1].inverse);
  CHECK(view.inverse(3).empty());
  CHECK(view.rows_of(view.groups[1]).size() == 5);
  CHECK(view.ungrouped().keys == 1);
}

TEST_CASE("colliding hashes cost time alone") {
  for_each_session_batch([](tessera::host_exec const& exec, model const& content, ids const& keys_per_group, auto&) {
    auto const batch = batch_of<std::int64_t>(exec, content);
    auto const view = batch.view();
    std::vector<tessera::jagged_view<std::int64_t const>> columns;
    std::vector<float const*> weights;
    for (std::int64_t key = 0; key < view.keys; ++key) {
      columns.push_back(view.key(key));
      weights.push_back(view.weights);
    }
    tessera::detail::column_slices<std::int64_t, std::int64_t> const slices{columns, view.weighted() ? weights.data() : nullptr,
                                                                            view.keys == 0 ? 0 : view.rows(0)};
    auto const made = tessera::detail::back_end<tessera::detail::deduplicate_tag, tessera::host_exec>::run<std::int64_t, constant_hash>(
        exec, slices, keys_per_group, {});
    CHECK(model_of(made.view()) == naive_deduplicate(content, keys_per_group));
  });
}

namespace {

// The caller's thread, which counts what each chunk asks for.
struct counting_team {
  mutable std::int64_t rows_of_chunk = 0, most_rows_of_chunk = 0;

  static constexpr int size() noexcept { return 4; }
  void run(std::int64_t chunks, tessera::chunk_function f) const noexcept {
    for (std::int64_t i = 0; i < chunks; ++i) {
      rows_of_chunk = 0;
      f(i);
      most_rows_of_chunk = std::max(most_rows_of_chunk, rows_of_chunk);
    }
  }
};
static_assert(tessera::thread_team<counting_team>);

struct counted_slices : tessera::detail::column_slices<std::int64_t, std::int64_t> {
  counting_team const* team = nullptr;

  tessera::vector_view<std::int64_t const> row(std::int64_t key, std::int64_t sample) const noexcept {
    ++team->rows_of_chunk;
    return column_slices::row(key, sample);
  }
};

}  // namespace

TEST_CASE("no chunk has all rows of a key, however few keys there are") {
  constexpr std::size_t samples = 100'000;
  counting_team team;
  tessera::system_memory memory;
  tessera::host_exec const exec(team, memory);
  std::vector<std::int64_t> values(samples), offsets(samples + 1);
  for (std::size_t i = 0; i < samples; ++i) values[i] = offsets[i + 1] = static_cast<std::int64_t>(i) + 1;
  std::vector<tessera::jagged_view<std::int64_t const>> const columns(2,
                                                                      {values.data(), offsets.data(), static_cast<std::int64_t>(samples)});
  counted_slices slices;
  slices.columns = columns;
  slices.samples = samples;
  slices.team = &team;
  auto const made =
      tessera::detail::back_end<tessera::detail::deduplicate_tag, tessera::host_exec>::run<std::int64_t, tessera::detail::slice_hash>(
          exec, slices, ids{1}, {});
  CHECK(made.view().distinct.size() == 2 * samples);
  CHECK(team.most_rows_of_chunk > 0);
  CHECK(team.most_rows_of_chunk < static_cast<std::int64_t>(samples) / 2);
}

TEST_CASE("columns and records give the IKJT that their KJT gives") {
  for_each_session_batch([](tessera::host_exec const& exec, model content, ids const& keys_per_group, auto&) {
    for (auto& key : content)
      for (auto& row : key) row.weights.clear();
    auto const expected = naive_deduplicate(content, keys_per_group);
    std::vector<tessera::jagged<std::int64_t>> owners;
    std::vector<tessera::jagged_view<std::int64_t const>> columns;
    for (auto const& key : content) {
      std::vector<ids> rows{{7, 7}};  // a row before the first
      for (auto const& row : key) rows.push_back(row.values);
      owners.push_back(tessera::jagged<std::int64_t>::from_rows(exec, rows));
    }
    for (auto const& owner : owners) columns.push_back(owner.view().slice(1, owner.rows() - 1));
    tessera::vector_view<tessera::jagged_view<std::int64_t const> const> const all(columns);
    CHECK(model_of(tessera::deduplicate(exec, all, keys_per_group).view()) == expected);

    auto const samples = content.empty() ? std::size_t{0} : content[0].size();
    std::vector<tessera::vector_view<std::int64_t const>> records;
    for (std::size_t i = 0; i < samples; ++i)
      for (auto const& key : content) records.push_back(key[i].values);
    tessera::matrix_view<tessera::vector_view<std::int64_t const> const> const matrix(records.data(), static_cast<std::int64_t>(samples),
                                                                                      static_cast<std::int64_t>(content.size()));
    CHECK(model_of(tessera::deduplicate(exec, matrix, keys_per_group).view()) == expected);
  });
}

TEST_CASE("values are compared by their bits") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<float>::from_rows(host.exec(), {{"x", {{0.0F}, {-0.0F}, {NAN}, {NAN}, {0.0F}}}});
  auto const made = tessera::deduplicate(host.exec(), batch.view(), ids{1});
  auto const inverse = made.view().inverse(0);
  CHECK(ids(inverse.begin(), inverse.end()) == ids{0, 1, 2, 2, 0});
}

TEST_CASE("rows and groups that do not fit are refused by name") {
  tessera_tests::serial_host host;
  auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{1}}}});
  CHECK(refusal_of([&] { tessera::deduplicate(host.exec(), batch, ids{1}); }) ==
        "deduplicate: a row a sample in every key (key b, rows 1, samples 2)");
  auto const even = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1}, {2}}}, {"b", {{1}, {3}}}});
  CHECK(refusal_of([&] {
          tessera::deduplicate(host.exec(), even, ids{1, 2});
        }) == "deduplicate: groups are one key or more each (group 1, keys 2, keys before 1, keys of all 2)");
  CHECK(refusal_of([&] { tessera::deduplicate(host.exec(), even, ids{0}); }) ==
        "deduplicate: groups are one key or more each (group 0, keys 0, keys before 0, keys of all 2)");
  CHECK(refusal_of([&] { tessera::deduplicate(host.exec(), even, ids{1}, {.most_values = 2}); }).find("more values") != std::string::npos);
}
