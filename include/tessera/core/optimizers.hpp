// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/update_rules.hpp>

/// Optimizers that treat each element by itself. They serve embedding rows (`row_optimizer`) and dense parameters (`dense_optimizer`), on
/// host and device. Only what is touched changes: the state of a row that a batch does not name stays as it is, momentum and moments
/// included. `<tessera/core/optimizer_adaptors.hpp>` adds weight decay and clipping to any of them.
namespace tessera {
inline namespace TESSERA_ABI {

/// What an optimizer gets to know of a row, or of a block of dense parameters, before its elements.
struct row_gradient {
  float sum_of_squares;  ///< of a row's summed gradient, where the policy uses it, else NaN; 0 for a dense block
  std::int64_t dim;
  step_count step;  ///< of the table or model, 1 at the first
};

namespace detail {
template <class O>
concept changes_gradients = requires(O const& o, float gradient, float weight) {
  { o.gradient_of(gradient, weight) } -> std::same_as<float>;
};
template <class O>
concept names_gradient_of = requires {
  &O::gradient_of;
};
// A member of that name that cannot be called so would be passed over in silence.
template <class O>
concept gradient_of_takes_gradient_and_weight = !names_gradient_of<O> || changes_gradients<O>;
}  // namespace detail

/// How one touched row, or a block of dense parameters, changes. `row_state` is how many floats of state a row has, `element_state` how
/// many each of its elements has. A policy computes:
/// - `float gradient_of(gradient, weight) const`, optional, of each element first: the gradient that all the rest sees;
/// - `begin_row(row_state, row_gradient)`, once a row: it may change the row's state, and returns what `update` needs, of any type;
/// - `update(weight, element_state, stride, gradient, factor)`, once an element, whose state number k is `element_state[k * stride]`.
///
/// These members are optional:
/// - `initial_state`: what every state starts at, 0 by default;
/// - `uses_sum_of_squares`: true where the policy reads the sum of squares of `row_gradient`, which dense blocks do not have;
/// - `learning_rate`, for schedules;
/// - `name`, by which a checkpoint knows the kind of its states;
/// - `check()`, which throws for options with which nothing can be learned.
template <class O>
concept optimizer_policy = std::is_trivially_copyable_v<O> &&
    requires(O const& o, float& weight, float* state, std::int64_t stride, float gradient, row_gradient const& row) {
  { O::row_state } -> std::convertible_to<int>;
  { O::element_state } -> std::convertible_to<int>;
  o.update(weight, state, stride, gradient, o.begin_row(state, row));
} && detail::gradient_of_takes_gradient_and_weight<O>;

/// Whether a policy reads `row_gradient::sum_of_squares`.
template <class O>
inline constexpr bool uses_sum_of_squares = false;
/// As the policy says.
template <class O>
  requires requires { O::uses_sum_of_squares; }
inline constexpr bool uses_sum_of_squares<O> = O::uses_sum_of_squares;

namespace detail {
template <optimizer_policy O>
TESSERA_HOST_DEVICE float gradient_for(O const& optimizer, float gradient, float weight) noexcept {
  if constexpr (changes_gradients<O>)
    return optimizer.gradient_of(gradient, weight);
  else
    return gradient;
}
}  // namespace detail

/// The learning rate of a policy, through all adaptors (which hold what they wrap as `optimizer`).
template <optimizer_policy O>
TESSERA_HOST_DEVICE constexpr float learning_rate_of(O const& policy) noexcept {
  if constexpr (requires { policy.optimizer; })
    return learning_rate_of(policy.optimizer);
  else
    return policy.learning_rate;
}
/// Sets the learning rate of a policy, through all adaptors.
template <optimizer_policy O>
constexpr void set_learning_rate(O& policy, float rate) noexcept {
  if constexpr (requires { policy.optimizer; })
    set_learning_rate(policy.optimizer, rate);
  else
    policy.learning_rate = rate;
}

/// The initial value of every state of a policy, through all adaptors.
template <optimizer_policy O>
constexpr float initial_state_of(O const& policy) noexcept {
  if constexpr (requires { policy.optimizer; })
    return initial_state_of(policy.optimizer);
  else if constexpr (requires { policy.initial_state; })
    return policy.initial_state;
  else
    return 0;
}

/// Refuses options with which nothing can be learned, through all adaptors. A trainer, a table and each call that updates call it with
/// their optimizers. @throws tessera::error invalid_argument naming policy, option and value.
template <optimizer_policy O>
void check_optimizer(O const& policy) {
  if constexpr (requires { policy.check(); }) policy.check();
  if constexpr (requires { policy.optimizer; }) check_optimizer(policy.optimizer);
}

namespace detail {

inline void check_option(char const* policy, char const* option, float value, bool fits, char const* needed) {
  if (!fits) throw error(errc::invalid_argument, std::string(policy) + ": " + option + " needs to be " + needed, {{option, value}});
}
// A rate, or what is added: at least 0 and finite.
inline void check_amount(char const* policy, char const* option, float value) {
  check_option(policy, option, value, value >= 0 && value <= std::numeric_limits<float>::max(), "finite and not negative");
}
// What is kept of a running mean.
inline void check_decay_factor(char const* policy, char const* option, float value) {
  check_option(policy, option, value, value >= 0 && value < 1, "at least 0 and below 1");
}

}  // namespace detail

/// The name of a policy, through all adaptors, which have no state of their own. Policies without a name count as the same.
template <optimizer_policy O>
constexpr char const* optimizer_name_of(O const& policy) noexcept {
  if constexpr (requires { policy.optimizer; })
    return optimizer_name_of(policy.optimizer);
  else if constexpr (requires { policy.name; })
    return O::name;
  else
    return "unnamed";
}

namespace detail {

/// @throws tessera::error incompatible where states were built for another kind of policy, though of the same shape.
inline void check_optimizer_kind(char const* call, char const* built_for, char const* optimizer) {
  if (std::string_view(built_for) != optimizer)
    throw error(errc::incompatible, std::string(call) + ": the optimizer state is of another kind",
                {{"built for", built_for}, {"optimizer", optimizer}});
}
template <optimizer_policy O>
void check_optimizer_kind(char const* call, char const* built_for, O const& policy) {
  if (O::row_state + O::element_state > 0) check_optimizer_kind(call, built_for, optimizer_name_of(policy));
}

}  // namespace detail

/// Gradient descent: w -= learning_rate * g.
struct sgd {
  static constexpr char const* name = "sgd";
  static constexpr int row_state = 0;
  static constexpr int element_state = 0;
  float learning_rate = 0.1F;

  void check() const { detail::check_amount(name, "learning_rate", learning_rate); }
  TESSERA_HOST_DEVICE float begin_row(float*, row_gradient const&) const noexcept { return learning_rate; }
  TESSERA_HOST_DEVICE void update(float& weight, float*, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::sgd(weight, gradient, rate);
  }
};
static_assert(optimizer_policy<sgd>);

/// SGD with momentum as torch.optim.SGD: v = momentum * v + (1 - dampening) * g, and v = g at step 1. Then w -= learning_rate * v, or, with
/// `nesterov`, learning_rate * (g + momentum * v). A row first touched later starts from v = 0, as PyTorch's rows without gradient. Other
/// than in PyTorch, v does not fade, nor w move, while nobody touches the row.
struct momentum_sgd {
  struct factors {
    float rate, momentum, share;
    bool nesterov;
  };
  static constexpr char const* name = "momentum_sgd";
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  float learning_rate = 0.1F;
  float momentum = 0.9F;
  float dampening = 0;
  bool nesterov = false;

  void check() const {
    detail::check_amount(name, "learning_rate", learning_rate);
    detail::check_decay_factor(name, "momentum", momentum);
    detail::check_decay_factor(name, "dampening", dampening);
  }
  TESSERA_HOST_DEVICE factors begin_row(float*, row_gradient const& row) const noexcept {
    return {learning_rate, momentum, row.step.value == 1 ? 1.0F : 1.0F - dampening, nesterov};
  }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t, float gradient, factors const& f) const noexcept {
    state[0] = multiply_add(f.momentum, state[0], f.share * gradient);
    weight = update_rules::sgd(weight, f.nesterov ? multiply_add(f.momentum, state[0], gradient) : state[0], f.rate);
  }
};
static_assert(optimizer_policy<momentum_sgd>);

/// Adagrad as torch.optim.Adagrad: s += g^2, then w -= learning_rate * g / (sqrt(s) + epsilon).
struct adagrad {
  static constexpr char const* name = "adagrad";
  static constexpr int row_state = 0;
  static constexpr int element_state = 1;
  float learning_rate = 0.01F;
  float epsilon = 1e-10F;
  float initial_state = 0;

  void check() const {
    detail::check_amount(name, "learning_rate", learning_rate);
    detail::check_amount(name, "epsilon", epsilon);
    detail::check_amount(name, "initial_state", initial_state);
  }
  TESSERA_HOST_DEVICE float begin_row(float*, row_gradient const&) const noexcept { return learning_rate; }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t, float gradient, float rate) const noexcept {
    weight = update_rules::adagrad(weight, state[0], gradient, rate, epsilon);
  }
};
static_assert(optimizer_policy<adagrad>);

/// Adam as torch.optim.Adam. Source: Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
struct adam {
  static constexpr char const* name = "adam";
  static constexpr int row_state = 0;
  static constexpr int element_state = 2;
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
  TESSERA_HOST_DEVICE update_rules::adam_factors begin_row(float*, row_gradient const& row) const noexcept {
    return {learning_rate,
            beta1,
            beta2,
            epsilon,
            update_rules::adam_correction(beta1, row.step.value),
            update_rules::adam_correction(beta2, row.step.value)};
  }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient,
                                  update_rules::adam_factors const& factors) const noexcept {
    weight = update_rules::adam(weight, state[0], state[stride], gradient, factors);
  }
};
static_assert(optimizer_policy<adam>);

/// FTRL-proximal per coordinate; its states are z and n. Weights follow from z, so that |z| <= lambda1 gives an exact 0.
///
/// A weight that is not 0 before its first update enters z. The share |g| / (beta + |g| + lambda2 * learning_rate) of it is kept, as
/// sqrt(n) = |g|. That is all of it for beta = lambda2 = 0, and little for |g| far below beta. With g = 0, or under lambda1, the weight
/// becomes 0. Start rows at 0, or beta at 0, where that matters. Source: McMahan et al., "Ad click prediction: a view from the trenches",
/// KDD 2013, algorithm 1, with alpha as `learning_rate`.
/// @pre learning_rate > 0, the same all along: w is computed anew from z and n
struct ftrl {
  static constexpr char const* name = "ftrl";
  static constexpr int row_state = 0;
  static constexpr int element_state = 2;
  float learning_rate = 0.1F;
  float beta = 1;
  float lambda1 = 0;
  float lambda2 = 0;

  void check() const {
    detail::check_amount(name, "learning_rate", learning_rate);
    detail::check_option(name, "learning_rate", learning_rate, learning_rate > 0, "above 0");
    detail::check_amount(name, "beta", beta);
    detail::check_amount(name, "lambda1", lambda1);
    detail::check_amount(name, "lambda2", lambda2);
  }
  TESSERA_HOST_DEVICE update_rules::ftrl_factors begin_row(float*, row_gradient const&) const noexcept {
    return {learning_rate, beta, lambda1, lambda2};
  }
  TESSERA_HOST_DEVICE void update(float& weight, float* state, std::int64_t stride, float gradient,
                                  update_rules::ftrl_factors const& factors) const noexcept {
    weight = update_rules::ftrl(weight, state[0], state[stride], gradient, factors);
  }
};
static_assert(optimizer_policy<ftrl>);

}  // namespace TESSERA_ABI
}  // namespace tessera
