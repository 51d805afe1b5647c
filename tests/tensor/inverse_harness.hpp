// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/tensor/inverse_keyed_jagged.hpp>

#include "../support/device_arrays.hpp"
#include "inverse_support.hpp"
#include "rows_harness.hpp"

/// IKJTs through a harness of rows.
namespace tensor_tests {

template <class T, class Offset>
tessera::inverse_keyed_jagged<T, Offset> const& put_inverse(rows_on_host const&, tessera::inverse_keyed_jagged<T, Offset> const& batch) {
  return batch;
}
template <class Exec, class T, class Offset>
auto put_inverse(rows_on_device<Exec> const& harness, tessera::inverse_keyed_jagged<T, Offset> const& batch) {
  return tessera::inverse_keyed_jagged<T, Offset, Exec>::copy_of(harness.exec, batch);
}

template <class T, class Offset>
inverse_model get_inverse(rows_on_host const&, tessera::inverse_keyed_jagged<T, Offset> const& batch) {
  tessera::validate(batch.view(), batch.distinct().room());
  return model_of(batch.view());
}
template <class Exec, class T, class Offset>
inverse_model get_inverse(rows_on_device<Exec> const& harness, tessera::inverse_keyed_jagged<T, Offset, Exec> const& batch) {
  auto const view = batch.view();
  auto const distinct = harness.get(batch.distinct());
  tessera::validate(distinct.view(), distinct.room());
  inverse_model result{model_of(distinct.view()), {}};
  for (auto const& group : view.groups) {
    result.inverses.push_back(tessera_tests::get(harness.exec, tessera::vector_view<std::int64_t const>(group.inverse, view.samples)));
    for (auto const row : result.inverses.back()) CHECK((row >= 0 && row < view.rows(group)));
  }
  return result;
}

/// Calls f(batch model, keys per group, random) for batches of every kind.
template <class F>
void for_each_session_model(F const& f) {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (bool const weighted : {false, true})
    for (auto const& keys_per_group : std::vector<ids>{{}, {1}, {2, 1, 3}, {1, 1, 1, 1, 1}})
      for (std::size_t const samples : {0U, 1U, 2U, 30U, 400U}) {
        std::size_t keys = random() % 3;
        for (auto const count : keys_per_group) keys += static_cast<std::size_t>(count);
        CAPTURE(keys);
        CAPTURE(samples);
        CAPTURE(weighted);
        f(random_sessions(random, keys_per_group, keys, samples, weighted), keys_per_group, random);
      }
}

}  // namespace tensor_tests
