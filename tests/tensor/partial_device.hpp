// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <tessera/tensor/deduplicate_partial.hpp>
#include <tessera/tensor/expand_partial.cuh>
#include <tessera/tensor/select_slices.cuh>

#include "../support/device_arrays.hpp"
#include "inverse_harness.hpp"
#include "partial_support.hpp"
#include "slices_support.hpp"

/// What a device makes of partial IKJTs that the host has built.
namespace tensor_tests {

template <class Offset, class Exec>
void expand_partial_like_host(rows_on_device<Exec> const& harness, model const& content, ids const& sessions) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  auto const batch = batch_of<Offset>(host.exec(), content);
  auto const made = tessera::deduplicate_partial(host.exec(), batch.view(), sessions);
  auto const there = tessera::partial_inverse_keyed_jagged<std::int64_t, Offset, Exec>::copy_of(exec, made);
  CHECK(equal(harness.get(tessera::expand_partial(exec, there.view())).view(), batch.view()));
  auto const roomy = tessera::expand_partial(exec, there.view(), {.most_values = batch.view().size() + 5});
  CHECK(equal(harness.get(roomy).view(), batch.view()));
  if (content.size() > 1) {
    auto const some = there.view().slice_keys(1, 1);
    CHECK(equal(harness.get(tessera::expand_partial(exec, some)).view(), batch.view().slice_keys(1, 1)));
  }
}

template <class Exec>
void expand_partial_on_device(rows_on_device<Exec> const& harness) {
  auto const& exec = harness.exec;
  tessera_tests::serial_host host;
  SUBCASE("the lists of sessions come back") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (bool const weighted : {false, true})
      for (auto const& change : list_changes) {
        CAPTURE(change.second);
        std::vector<std::vector<model_row>> sessions;
        for (int s = 0; s < 6; ++s) sessions.push_back(session_lists(random, change.first, 1 + random() % 9, 12, 3, weighted));
        auto const mix = mixed(random, sessions, false);
        auto turned = mix.rows;
        std::reverse(turned.begin(), turned.end());
        expand_partial_like_host<std::int64_t>(harness, {mix.rows, turned}, mix.sessions);
        expand_partial_like_host<std::int32_t>(harness, {turned, mix.rows}, mix.sessions);
      }
  }
  SUBCASE("names, and batches of nothing") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {2, 3}, {}}}, {"b", {{}, {}, {7}}}});
    auto const made = tessera::deduplicate_partial(host.exec(), batch, ids{1, 1, 1});
    auto const there = tessera::partial_inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec, made);
    CHECK(there.keys() == batch.keys());
    CHECK(text(harness.get(tessera::expand_partial(exec, there))) == text(batch));
    tessera::partial_inverse_keyed_jagged<std::int64_t, std::int64_t, Exec> const none;
    CHECK(tessera::expand_partial(exec, none.view()).view().keys == 0);
    expand_partial_like_host<std::int64_t>(harness, {{}, {}}, {});
    auto view = there.view();
    view.slices = nullptr;
    CHECK(refusal_of([&] { tessera::expand_partial(exec, view); }) == "expand_partial: no slices (samples 3, keys 2)");
  }
  SUBCASE("it waits for the number of values, unless it is told how many there may be") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2}, {2, 3}, {4}}}});
    auto const made = tessera::deduplicate_partial(host.exec(), batch.view(), ids{1, 1, 1});
    auto const there = tessera::partial_inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec, made);
    CHECK(waits_of(harness, 1, [&] { tessera::expand_partial(exec, there.view()); }) == 1);
    CHECK(waits_of(harness, 0, [&] { tessera::expand_partial(exec, there.view(), {.most_values = 5}); }) == 0);
    CHECK(refusal_of([&] { harness.get(tessera::expand_partial(exec, there.view(), {.most_values = 4})); }) ==
          "expand_partial: more values than the result was given room for (values 5, room 4)");
  }
  SUBCASE("slices that no run holds are faults, and become empty lists") {
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{1, 2, 3}, {4}}}, {"b", {{5}, {6, 7}}}});
    auto const made = tessera::deduplicate_partial(host.exec(), batch.view(), ids{1, 2});
    auto const there = tessera::partial_inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec, made);
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    for (slice const bad : {slice{3, 2}, slice{-1, 1}, slice{0, -1}, slice{1, most}, slice{5, 1}, slice{most, 1}}) {
      CAPTURE(bad.begin);
      CAPTURE(bad.length);
      auto const slices = tessera_tests::put(exec, std::vector<slice>{{0, 3}, bad, {4, 1}, {5, 2}});
      auto view = there.view();
      view.slices = slices.data();
      auto const expanded = tessera::expand_partial(exec, view, {.most_values = 10});
      auto const e = tessera_tests::error_of([&] { exec.synchronize(); });
      CHECK(e.sentence() == "expand_partial: a slice that no run holds");
      CHECK(e.value("key") == "0");
      CHECK(e.value("sample") == "1");
      CHECK(e.value("begin") == std::to_string(bad.begin));
      CHECK(e.value("length") == std::to_string(bad.length));
      CHECK(text(harness.get(expanded)) == "{0: [[1, 2, 3], []], 1: [[5], [6, 7]]}");
    }
  }
}

/// Matrices with so many elements before, between and behind their rows, gathered ones with as many vectors before and behind the rows that
/// offsets name, and, where an Offset has room for that, values past 2^31.
template <class T, class Offset, class Exec>
void select_slices_like_host(Exec const& exec, std::mt19937_64& random, slices_shape const& of, std::int64_t gap,
                             std::int64_t gathered_gap) {
  using tessera_tests::get;
  using tessera_tests::put;
  auto const vectors = of.vectors, dim = of.dim;
  CAPTURE(vectors);
  CAPTURE(dim);
  CAPTURE(gap);
  CAPTURE(gathered_gap);
  auto const drawn = random_case(random, vectors, dim, of.slices, of.longest);
  auto const far = sizeof(Offset) == 8 ? std::int64_t{1} << 33 : 0, first_value = drawn.first_value + far;
  std::vector<tessera::run_slice<Offset>> slices;
  for (auto const& drawn_slice : drawn.slices)
    slices.push_back({static_cast<Offset>(drawn_slice.begin + far), static_cast<Offset>(drawn_slice.length)});
  std::vector<Offset> offsets, from_zero;
  for (auto const offset : drawn.offsets) {
    from_zero.push_back(static_cast<Offset>(offset));
    offsets.push_back(static_cast<Offset>(offset + gathered_gap));
  }
  auto const count = static_cast<std::int64_t>(slices.size()), gathered = drawn.offsets.back() + 2 * gathered_gap;
  auto const size = [&](std::int64_t rows, std::int64_t between) { return static_cast<std::size_t>(rows * (dim + between) + between); };
  auto const matrix = [&](auto* data, std::int64_t rows, std::int64_t between) {
    return tessera::matrix_view<std::remove_pointer_t<decltype(data)>>(data + between, rows, dim, dim + between);
  };

  tessera_tests::serial_host host;
  auto const slices_there = put(exec, slices);
  auto const offsets_there = put(exec, offsets);
  tessera::buffer<Offset, Exec> made(exec, count + 1);
  tessera::select_slices_offsets(exec, slices_there, made.view());
  CHECK(get(exec, made) == from_zero);

  std::vector<T> in, out(size(gathered, gathered_gap), T(7));
  for (std::size_t i = 0; i < size(vectors, gap); ++i) in.push_back(static_cast<T>(random() % 100));
  auto const in_there = put(exec, in);
  auto out_there = put(exec, out);
  tessera::select_slices(host.exec(), matrix(in.data(), vectors, gap), slices,
                         tessera::jagged_vectors_view<T, Offset>{matrix(out.data(), gathered, gathered_gap), offsets.data(), count},
                         first_value);
  tessera::select_slices(
      exec, matrix(in_there.data(), vectors, gap), slices_there,
      tessera::jagged_vectors_view<T, Offset>{matrix(out_there.data(), gathered, gathered_gap), offsets_there.data(), count}, first_value);
  CHECK(get(exec, out_there) == out);

  auto const gradient = tessera_tests::random_floats(random, size(gathered, gathered_gap));
  floats sums(size(vectors, gap), 7);
  auto const gradient_there = put(exec, gradient);
  auto sums_there = put(exec, sums);
  tessera::select_slices_backward(
      host.exec(),
      tessera::jagged_vectors_view<float const, Offset>{matrix(gradient.data(), gathered, gathered_gap), offsets.data(), count}, slices,
      matrix(sums.data(), vectors, gap), first_value);
  tessera::select_slices_backward(
      exec,
      tessera::jagged_vectors_view<float const, Offset>{matrix(gradient_there.data(), gathered, gathered_gap), offsets_there.data(), count},
      slices_there, matrix(sums_there.data(), vectors, gap), first_value);
  CHECK(get(exec, sums_there) == sums);
}

template <class Exec>
void select_slices_on_device(Exec const& exec) {
  using tessera_tests::get;
  using tessera_tests::put;
  SUBCASE("the host's vectors, and its sums") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    for (auto const& of : slices_shapes) {
      select_slices_like_host<float, std::int64_t>(exec, random, of, 0, 0);
      if (of.longest > 500) continue;  // as much again four times takes sanitizers minutes
      select_slices_like_host<double, std::int32_t>(exec, random, of, 0, 0);
      select_slices_like_host<std::int8_t, std::int64_t>(exec, random, of, 1, 1);
      select_slices_like_host<float, std::int64_t>(exec, random, of, 3, 0);
      select_slices_like_host<float, std::int32_t>(exec, random, of, 0, 3);
    }
  }
  SUBCASE("the vectors of a key's runs become those of its samples") {
    tessera_tests::serial_host host;
    auto const batch = tessera::keyed_jagged<>::from_rows(host.exec(), {{"a", {{9}, {8, 9}, {8}}}, {"b", {{1, 2}, {2, 3}, {}}}});
    auto const made = tessera::deduplicate_partial(host.exec(), batch.view(), ids{1, 1, 1});
    auto const there = tessera::partial_inverse_keyed_jagged<std::int64_t, std::int64_t, Exec>::copy_of(exec, made);
    floats vectors;
    for (auto const id : made.view().runs.key(1).all_values()) vectors.push_back(static_cast<float>(id));
    CHECK(vectors.size() == 3);
    auto const in = put(exec, vectors);
    auto out = put(exec, floats(4, -7));
    auto const slices = there.view().slices_of(1);
    tessera::buffer<std::int64_t, Exec> offsets(exec, 4);
    tessera::select_slices_offsets(exec, slices, offsets.view());
    auto const first_value = tessera::read_one(exec, there.view().runs.key(1).offsets);
    tessera::select_slices(exec, {in.data(), 3, 1}, slices, tessera::jagged_vectors_view<float>{{out.data(), 4, 1}, offsets.data(), 3},
                           first_value);
    CHECK(get(exec, out) == floats{1, 2, 2, 3});
    CHECK(get(exec, offsets) == ids{0, 2, 4, 4});
  }
  SUBCASE("a gradient of no rows") {
    tessera::buffer<slice, Exec> const none;
    auto const spare = put(exec, floats{1, 2});
    auto sums = put(exec, floats(4, NAN));
    tessera::select_slices_backward(exec, tessera::jagged_vectors_view<float const>{{spare.data(), 2, 1}, nullptr, 0}, none,
                                    {sums.data(), 4, 1});
    CHECK(get(exec, sums) == floats(4, 0));
  }
  SUBCASE("offsets of a gradient that begin behind its first vector") {
    auto const slices = put(exec, std::vector<slice>{{2, 2}, {1, 1}});
    auto const offsets = put(exec, std::vector<std::int64_t>{3, 5, 6});
    auto const gradient = put(exec, floats{90, 91, 92, 1, 2, 3, 93});
    auto sums = put(exec, floats(4, NAN));
    tessera::select_slices_backward(exec, tessera::jagged_vectors_view<float const>{{gradient.data(), 7, 1}, offsets.data(), 2}, slices,
                                    {sums.data(), 4, 1});
    CHECK(get(exec, sums) == floats{0, 3, 1, 2});
  }
  SUBCASE("slices that do not fit are faults, and nothing is written") {
    auto const refused = [&](std::vector<slice> const& some, std::vector<std::int64_t> const& row_offsets) {
      auto const slices = put(exec, some);
      auto const offsets = put(exec, row_offsets);
      auto in = put(exec, floats(4, 1)), out = put(exec, floats(8, -7));
      tessera::jagged_vectors_view<float> const rows{{out.data(), 8, 1}, offsets.data(), static_cast<std::int64_t>(some.size())};
      tessera::select_slices(exec, {in.data(), 4, 1}, slices, rows, 10);
      std::string const text = tessera_tests::error_of([&] { exec.synchronize(); }).what();
      tessera::select_slices_backward(exec, rows, slices, {in.data(), 4, 1}, 10);
      std::string const back = tessera_tests::error_of([&] { exec.synchronize(); }).what();
      CHECK(get(exec, out) == floats(8, -7));
      CHECK(get(exec, in) == floats(4, 1));
      CHECK(text.substr(0, 14) == "select_slices:");
      CHECK(back.substr(0, 23) == "select_slices_backward:");
      return text;
    };
    constexpr auto least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
    CHECK(refused({{10, 4}, {12, 3}}, {0, 4, 7}) ==
          "select_slices: a slice that reaches past the vectors (slice 1, begin 12, length 3, first value 10, vectors 4)");
    CHECK(refused({{9, 1}}, {0, 1}).find("begin 9") != std::string::npos);
    CHECK(refused({{10, -1}}, {0, 0}).find("length -1") != std::string::npos);
    CHECK(refused({{least, 1}}, {0, 1}).find("begin " + std::to_string(least)) != std::string::npos);
    CHECK(refused({{10, most}}, {0, 1}).find("length " + std::to_string(most)) != std::string::npos);
    CHECK(refused({{10, 4}, {12, 2}}, {0, 4, 5}) ==
          "select_slices: a row of another length than its slice (slice 1, length 1, length expected 2)");
    CHECK(refused({{10, 3}, {9, 1}}, {0, 2, 3}) ==
          "select_slices: a row of another length than its slice (slice 0, length 2, length expected 3)");
    CHECK(refused({{9, 1}, {10, 3}}, {0, 1, 2}).find("slice 0, begin 9") != std::string::npos);
    auto const slices = put(exec, std::vector<slice>{{0, 1}, {0, 1}});
    auto const decreasing = put(exec, ids{1, 0, 1});
    auto vectors = put(exec, floats(2, -7));
    tessera::select_slices(exec, {vectors.data(), 2, 1}, slices,
                           tessera::jagged_vectors_view<float>{{vectors.data(), 2, 1}, decreasing.data(), 2});
    CHECK(refusal_of([&] { exec.synchronize(); }) == "jagged: offsets decrease (row 0, offset 1, next offset 0)");
    CHECK(get(exec, vectors) == floats(2, -7));
  }
}

}  // namespace tensor_tests
