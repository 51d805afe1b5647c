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
        expand_partial_like_host<std::int32_t>(harness, {mix.rows}, mix.sessions);
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

template <class Exec>
void select_slices_on_device(Exec const& exec) {
  using tessera_tests::get;
  using tessera_tests::put;
  SUBCASE("the host's vectors, and its sums") {
    auto const seed = tessera_tests::draw_seed();
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    tessera_tests::serial_host host;
    for (auto const& of : slices_shapes) {
      auto const vectors = of.vectors, dim = of.dim;
      CAPTURE(vectors);
      CAPTURE(dim);
      auto const c = random_case(random, vectors, dim, of.slices, of.longest);
      auto const count = static_cast<std::int64_t>(c.slices.size());
      auto const in = tessera_tests::random_floats(random, static_cast<std::size_t>(vectors * dim));
      auto const gradient = tessera_tests::random_floats(random, c.size());
      floats expected(c.size(), -7), sums(in.size(), NAN);
      tessera::select_slices(host.exec(), {in.data(), vectors, dim}, c.slices,
                             tessera::jagged_vectors_view<float>{{expected.data(), c.offsets.back(), dim}, c.offsets.data(), count},
                             c.first_value);
      tessera::select_slices_backward(
          host.exec(), tessera::jagged_vectors_view<float const>{{gradient.data(), c.offsets.back(), dim}, c.offsets.data(), count},
          c.slices, {sums.data(), vectors, dim}, c.first_value);

      auto const slices = put(exec, c.slices);
      auto const in_there = put(exec, in), gradient_there = put(exec, gradient);
      tessera::buffer<std::int64_t, Exec> offsets(exec, count + 1);
      tessera::select_slices_offsets(exec, slices, offsets.view());
      CHECK(get(exec, offsets) == c.offsets);
      auto out = put(exec, floats(c.size(), -7)), sums_there = put(exec, floats(in.size(), NAN));
      tessera::select_slices(exec, {in_there.data(), vectors, dim}, slices,
                             tessera::jagged_vectors_view<float>{{out.data(), c.offsets.back(), dim}, offsets.data(), count},
                             c.first_value);
      tessera::select_slices_backward(
          exec, tessera::jagged_vectors_view<float const>{{gradient_there.data(), c.offsets.back(), dim}, offsets.data(), count}, slices,
          {sums_there.data(), vectors, dim}, c.first_value);
      CHECK(get(exec, out) == expected);
      CHECK(get(exec, sums_there) == sums);
    }
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
  }
}

}  // namespace tensor_tests
