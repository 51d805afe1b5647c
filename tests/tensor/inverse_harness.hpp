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

}  // namespace tensor_tests
