// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/update_rules.hpp>

namespace tessera::inline TESSERA_ABI {

/// How one touched row changes. A policy names how many floats of state a row has (`row_state`) and how many each of its elements
/// (`element_state`), and computes
/// - `begin_row(row_state, row_gradient)`, once a row: may change the row's state; returns what `update` needs, of any type;
/// - `update(weight, element_state, stride, gradient, factor)`, once an element: state number k of the element is
///   `element_state[k * stride]`.
/// Rows that no id of the batch names do not change. Optionally `initial_state`: what every state starts at, 0 by default.
template <class O>
concept row_optimizer = std::is_trivially_copyable_v<O> &&
    requires(O const& o, float& weight, float* state, std::int64_t stride, float gradient, row_gradient const& row) {
  { O::row_state } -> std::convertible_to<int>;
  { O::element_state } -> std::convertible_to<int>;
  o.update(weight, state, stride, gradient, o.begin_row(state, row));
};

/// The optimizer state beside each row of a table: first the row's floats, then the elements', one plane of `dim` a state.
struct row_state_layout {
  int per_row = 0;
  int per_element = 0;
  float initial = 0;

  template <row_optimizer O>
  static constexpr row_state_layout of(O const& optimizer) noexcept {
    row_state_layout layout{O::row_state, O::element_state, 0};
    if constexpr (requires { optimizer.initial_state; }) layout.initial = optimizer.initial_state;
    return layout;
  }
  TESSERA_HOST_DEVICE constexpr std::int64_t width(std::int64_t dim) const noexcept { return per_row + per_element * dim; }
};

static_assert(row_optimizer<sgd> && row_optimizer<adagrad> && row_optimizer<adam>);

/// Adagrad with one accumulator a row: s += mean(g^2), then w -= learning_rate * g / (sqrt(s) + epsilon), as FBGEMM's
/// EXACT_ROWWISE_ADAGRAD.
struct rowwise_adagrad {
  static constexpr int row_state = 1;
  static constexpr int element_state = 0;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;
  float initial_state = 0;

  TESSERA_HOST_DEVICE float begin_row(float* state, row_gradient const& row) const noexcept {
    *state += row.sum_of_squares / static_cast<float>(row.dim);
    return learning_rate * update_rules::adagrad_scale(*state, epsilon);
  }
  TESSERA_HOST_DEVICE void update(float& weight, float*, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::sgd(weight, gradient, rate);
  }
};
static_assert(row_optimizer<rowwise_adagrad>);

}  // namespace tessera::inline TESSERA_ABI
