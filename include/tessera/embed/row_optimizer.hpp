// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/square_root.hpp>
#include <tessera/core/update_rules.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A policy that says how one touched row changes (see `optimizer_policy`). Rows that no id of the batch names do not change.
template <class O>
concept row_optimizer = optimizer_policy<O>;

/// The optimizer state of each row of a table. First come the floats of the row, then those of its elements, one plane of `dim` for each.
struct row_state_layout {
  int per_row = 0;
  int per_element = 0;
  float initial = 0;
  char const* optimizer = "unnamed";  ///< for which it was made

  template <row_optimizer O>
  static constexpr row_state_layout of(O const& optimizer) noexcept {
    return {O::row_state, O::element_state, initial_state_of(optimizer), optimizer_name_of(optimizer)};
  }
  /// As above. @throws tessera::error as `check_optimizer`.
  template <row_optimizer O>
  static row_state_layout checked(O const& optimizer) {
    check_optimizer(optimizer);
    return of(optimizer);
  }
  /// The floats of state of a row of `dim` elements.
  TESSERA_HOST_DEVICE constexpr std::int64_t width(std::int64_t dim) const noexcept { return per_row + per_element * dim; }
};

/// Adagrad with one accumulator a row: s += mean(g^2), then w -= learning_rate * g / (sqrt(s) + epsilon). FBGEMM calls it
/// EXACT_ROWWISE_ADAGRAD.
struct rowwise_adagrad {
  static constexpr char const* name = "rowwise_adagrad";
  static constexpr int row_state = 1;
  static constexpr int element_state = 0;
  static constexpr bool uses_sum_of_squares = true;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;
  float initial_state = 0;

  void check() const {
    detail::check_amount(name, "learning_rate", learning_rate);
    detail::check_amount(name, "epsilon", epsilon);
    detail::check_amount(name, "initial_state", initial_state);
  }
  TESSERA_HOST_DEVICE float begin_row(float* state, row_gradient const& row) const noexcept {
    *state += row.sum_of_squares / static_cast<float>(row.dim);
    return learning_rate * update_rules::adagrad_scale(*state, epsilon);
  }
  TESSERA_HOST_DEVICE void update(float& weight, float*, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::sgd(weight, gradient, rate);
  }
};
static_assert(row_optimizer<rowwise_adagrad>);

/// Adam with one second moment a row: v = beta2 * v + (1 - beta2) * mean(g^2), the rest as `adam`. FBGEMM calls it PARTIAL_ROWWISE_ADAM.
/// The step that corrects the moments is the table's, also for a row that is first touched late.
struct rowwise_adam {
  struct factors {
    float beta1, rate;  ///< the rate over the root of the row's second moment
  };
  static constexpr char const* name = "rowwise_adam";
  static constexpr int row_state = 1;
  static constexpr int element_state = 1;
  static constexpr bool uses_sum_of_squares = true;
  float learning_rate = 0.001F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;

  void check() const {
    detail::check_amount(name, "learning_rate", learning_rate);
    detail::check_decay_factor(name, "beta1", beta1);
    detail::check_decay_factor(name, "beta2", beta2);
    detail::check_amount(name, "epsilon", epsilon);
  }
  TESSERA_HOST_DEVICE factors begin_row(float* state, row_gradient const& row) const noexcept {
    auto const mean = row.sum_of_squares / static_cast<float>(row.dim);
    *state = multiply_add(beta2, *state, (1.0F - beta2) * mean);
    auto const root = square_root(*state * update_rules::adam_correction(beta2, row.step.value));
    return {beta1, learning_rate * update_rules::adam_correction(beta1, row.step.value) / (root + epsilon)};
  }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t, float gradient, factors const& f) const noexcept {
    state[0] = multiply_add(1.0F - f.beta1, gradient - state[0], state[0]);
    weight = update_rules::sgd(weight, state[0], f.rate);
  }
};
static_assert(row_optimizer<rowwise_adam>);

/// `instance(how, Element, Optimizer)` for all optimizers of rows.
#define TESSERA_FOR_ROW_OPTIMIZERS(instance, how, Element)                                                                                 \
  instance(how, Element, sgd) instance(how, Element, momentum_sgd) instance(how, Element, adagrad) instance(how, Element, rowwise_adagrad) \
      instance(how, Element, adam) instance(how, Element, rowwise_adam) instance(how, Element, ftrl)

}  // namespace TESSERA_ABI
}  // namespace tessera
