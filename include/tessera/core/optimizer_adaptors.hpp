// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/square_root.hpp>

/// Weight decay and clipping around any optimizer: policies that hold another as `optimizer`, and that nest. The outermost acts first:
/// `with_value_clipping{with_weight_decay{adam{}, 1e-5F}, 1}` clips the gradient, then adds the decay. The state is that of the wrapped
/// policy.
namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

// A factor of an adaptor beside that of what it wraps.
template <class Factor>
struct scale_and {
  float scale;
  Factor factor;
};
template <class Factor>
TESSERA_HOST_DEVICE scale_and<Factor> with_scale(float scale, Factor const& factor) noexcept {
  return {scale, factor};
}

}  // namespace detail

/// Adds decay * w to the gradient first, as `weight_decay` of torch.optim.SGD, Adagrad and Adam (the L2 penalty decay / 2 * |w|^2). Rows
/// decay when they are touched.
template <optimizer_policy O>
struct with_weight_decay {
  static constexpr int row_state = O::row_state;
  static constexpr int element_state = O::element_state;
  static constexpr bool uses_sum_of_squares = tessera::uses_sum_of_squares<O>;
  O optimizer{};
  float decay = 0;

  void check() const { detail::check_amount("with_weight_decay", "decay", decay); }
  TESSERA_HOST_DEVICE float gradient_of(float gradient, float weight) const noexcept {
    return detail::gradient_for(optimizer, multiply_add(decay, weight, gradient), weight);
  }
  TESSERA_HOST_DEVICE auto begin_row(float* state, row_gradient const& row) const noexcept { return optimizer.begin_row(state, row); }
  template <class Factor>
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient, Factor const& factor) const noexcept {
    optimizer.update(weight, state, stride, gradient, factor);
  }
};
template <class O>
with_weight_decay(O, float) -> with_weight_decay<O>;

/// Clips each element of the gradient to [-limit, limit]; NaN stays. @pre limit > 0, infinity for no clipping
template <optimizer_policy O>
struct with_value_clipping {
  static constexpr int row_state = O::row_state;
  static constexpr int element_state = O::element_state;
  static constexpr bool uses_sum_of_squares = tessera::uses_sum_of_squares<O>;
  O optimizer{};
  float limit = 1;

  void check() const { detail::check_option("with_value_clipping", "limit", limit, limit > 0, "above 0"); }
  TESSERA_HOST_DEVICE float gradient_of(float gradient, float weight) const noexcept {
    return detail::gradient_for(optimizer, update_rules::clip(gradient, limit), weight);
  }
  TESSERA_HOST_DEVICE auto begin_row(float* state, row_gradient const& row) const noexcept { return optimizer.begin_row(state, row); }
  template <class Factor>
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient, Factor const& factor) const noexcept {
    optimizer.update(weight, state, stride, gradient, factor);
  }
};
template <class O>
with_value_clipping(O, float) -> with_value_clipping<O>;

/// Subtracts learning_rate * decay * w, then makes the wrapped update, which does not see the decay. Around `adam` it is AdamW, as
/// torch.optim.AdamW. Rows decay when they are touched. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019,
/// algorithm 2.
template <optimizer_policy O>
struct with_decoupled_weight_decay {
  static constexpr int row_state = O::row_state;
  static constexpr int element_state = O::element_state;
  static constexpr bool uses_sum_of_squares = tessera::uses_sum_of_squares<O>;
  O optimizer{};
  float decay = 0;

  void check() const { detail::check_amount("with_decoupled_weight_decay", "decay", decay); }
  TESSERA_HOST_DEVICE float gradient_of(float gradient, float weight) const noexcept requires(detail::changes_gradients<O>) {
    return optimizer.gradient_of(gradient, weight);
  }
  TESSERA_HOST_DEVICE auto begin_row(float* state, row_gradient const& row) const noexcept {
    return detail::with_scale(-learning_rate_of(optimizer) * decay, optimizer.begin_row(state, row));
  }
  template <class Factor>
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient,
                                  detail::scale_and<Factor> const& factor) const noexcept {
    // A plain product here would fuse with the subtraction of the wrapped update in one loop and not in another.
    weight = multiply_add(factor.scale, weight, weight);
    optimizer.update(weight, state, stride, gradient, factor.factor);
  }
};
template <class O>
with_decoupled_weight_decay(O, float) -> with_decoupled_weight_decay<O>;

/// Scales a row's summed gradient down to the Euclidean norm `max_norm` where it is longer. It is for rows alone: dense parameters have no
/// norm a row (`clip_global_norm`). A row whose norm is infinite loses its gradient, or becomes NaN where an element is infinite. Weight
/// decay and value clipping inside it act on the scaled gradient. @pre max_norm > 0, infinity for no clipping
template <optimizer_policy O>
struct with_row_clipping {
  static_assert(!detail::changes_gradients<O> || !tessera::uses_sum_of_squares<O>,
                "with_row_clipping: decay or clipping inside it would change the norm that a row-wise optimizer there needs; put them "
                "outside, as in with_weight_decay{with_row_clipping{rowwise_adagrad{}, 1}, 1e-5F}");
  static constexpr int row_state = O::row_state;
  static constexpr int element_state = O::element_state;
  static constexpr bool uses_sum_of_squares = true;
  O optimizer{};
  float max_norm = 1;

  void check() const { detail::check_option("with_row_clipping", "max_norm", max_norm, max_norm > 0, "above 0"); }
  TESSERA_HOST_DEVICE auto begin_row(float* state, row_gradient row) const noexcept {
    auto const norm = square_root(row.sum_of_squares);
    bool const longer = norm > max_norm;
    if (longer) row.sum_of_squares = max_norm * max_norm;
    return detail::with_scale(longer ? max_norm / norm : 1.0F, optimizer.begin_row(state, row));
  }
  template <class Factor>
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient,
                                  detail::scale_and<Factor> const& factor) const noexcept {
    auto const scaled = multiply_add(gradient, factor.scale, 0.0F);  // rounded here, whatever the compiler would fuse it with
    optimizer.update(weight, state, stride, detail::gradient_for(optimizer, scaled, weight), factor.factor);
  }
};
template <class O>
with_row_clipping(O, float) -> with_row_clipping<O>;

static_assert(optimizer_policy<with_weight_decay<adam>> && optimizer_policy<with_value_clipping<sgd>> &&
              optimizer_policy<with_decoupled_weight_decay<with_weight_decay<adam>>> && optimizer_policy<with_row_clipping<adagrad>>);

}  // namespace TESSERA_ABI
}  // namespace tessera
