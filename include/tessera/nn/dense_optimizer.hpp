// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A policy that needs nothing that only rows have.
template <class O>
concept needs_no_row = O::row_state == 0 && !uses_sum_of_squares<O>;

/// An optimizer of a block of parameters (see `optimizer_policy`), whose `begin_row` is called once a step.
template <class O>
concept dense_optimizer = optimizer_policy<O> && needs_no_row<O>;

/// The optimizer state of a block of dense parameters: one plane of (parameters,) for each of the optimizer's states.
class dense_optimizer_state {
 public:
  dense_optimizer_state() = default;

  /// @throws tessera::error invalid_argument for a negative number of parameters, or as `check_optimizer`.
  template <dense_optimizer Optimizer>
  dense_optimizer_state(host_exec const& exec, std::int64_t parameters, Optimizer const& optimizer)
      : planes_(exec, parameters * Optimizer::element_state), parameters_(parameters), optimizer_(optimizer_name_of(optimizer)) {
    check_optimizer(optimizer);
    std::fill(planes_.begin(), planes_.end(), initial_state_of(optimizer));
  }

  std::int64_t parameters() const noexcept { return parameters_; }
  /// The name of the kind of optimizer that it was built for.
  char const* optimizer() const noexcept { return optimizer_; }
  std::size_t bytes() const noexcept { return planes_.capacity_bytes(); }
  /// All states, plane after plane.
  vector_view<float> planes() noexcept { return planes_.view(); }
  /// As above, to read.
  vector_view<float const> planes() const noexcept { return planes_.view(); }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

 private:
  buffer<float> planes_;
  std::int64_t parameters_ = 0;
  char const* optimizer_ = "unnamed";
  step_count steps_{};
};

/// Makes one optimizer step over a block of dense parameters, and counts it in `state`. `parameters` and `gradient` (n,); `state` is built
/// for n and this kind of optimizer.
/// @throws tessera::error shape_mismatch; incompatible for a state of another kind; invalid_argument as `check_optimizer`. Then nothing has
/// changed.
template <dense_optimizer Optimizer>
void dense_update(host_exec const& exec, vector_view<float> parameters, vector_view<float const> gradient, dense_optimizer_state& state,
                  Optimizer const& optimizer);

namespace detail {

inline constexpr std::int64_t dense_update_piece = 1 << 14;
inline constexpr int dense_update_tile = 64;

// With the planes of state at a stride that the compiler knows: it cannot tell otherwise that they do not overlap, and gives up vectors.
template <class Optimizer, class Factor>
inline void dense_update_one_tile(Optimizer optimizer, float* __restrict weight, float const* __restrict gradient, float* __restrict state,
                                  std::int64_t stride, Factor factor) noexcept {
  constexpr int states = Optimizer::element_state, tile = dense_update_tile;
  float planes[std::size_t{states > 0 ? states : 1} * tile];
  for (int k = 0; k < states; ++k) std::copy_n(state + k * stride, tile, planes + k * tile);
  for (int i = 0; i < tile; ++i) optimizer.update(weight[i], planes + i, tile, gradient_for(optimizer, gradient[i], weight[i]), factor);
  for (int k = 0; k < states; ++k) std::copy_n(planes + k * tile, tile, state + k * stride);
}

}  // namespace detail

template <dense_optimizer Optimizer>
void dense_update(host_exec const& exec, vector_view<float> parameters, vector_view<float const> gradient, dense_optimizer_state& state,
                  Optimizer const& optimizer) {
  if (gradient.size() != parameters.size() || state.parameters() != parameters.size() ||
      state.planes().size() != parameters.size() * Optimizer::element_state)
    throw error(errc::shape_mismatch, "dense_update: parameters, gradient and state do not fit together",
                {{"parameters", parameters.size()},
                 {"gradient", gradient.size()},
                 {"state floats", state.planes().size()},
                 {"state floats expected", parameters.size() * Optimizer::element_state}});
  detail::check_optimizer_kind("dense_update", state.optimizer(), optimizer);
  check_optimizer(optimizer);
  state.set_steps(step_count{state.steps().value + 1});
  auto const stride = parameters.size();
  auto const factor = optimizer.begin_row(nullptr, row_gradient{0, stride, state.steps()});
  float* const planes = state.planes().data();
  for_each_piece(exec, parameters.size(), detail::dense_update_piece, [&](std::int64_t first, std::int64_t last) {
    constexpr int tile = detail::dense_update_tile;
    float* const weight = parameters.data();
    float const* const g = gradient.data();
    auto const state_of = [=](std::int64_t i) { return Optimizer::element_state == 0 ? nullptr : planes + i; };
    for (; first + tile <= last; first += tile)
      detail::dense_update_one_tile(optimizer, weight + first, g + first, state_of(first), stride, factor);
    for (; first < last; ++first)
      optimizer.update(weight[first], state_of(first), stride, detail::gradient_for(optimizer, g[first], weight[first]), factor);
  });
}

}  // namespace TESSERA_ABI
}  // namespace tessera
