// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/view.hpp>

namespace tessera::inline TESSERA_ABI {

/// An optimizer without state a row: `element_state` floats an element, `begin_row` once a step, `update` once an element.
template <class O>
concept dense_optimizer = std::is_trivially_copyable_v<O> && O::row_state == 0 &&
                          requires(O const& o, float& weight, float* state, std::int64_t stride, float gradient, row_gradient const& row) {
  { O::element_state } -> std::convertible_to<int>;
  o.update(weight, state, stride, gradient, o.begin_row(state, row));
};
static_assert(dense_optimizer<sgd> && dense_optimizer<adagrad> && dense_optimizer<adam>);

/// The optimizer state of a block of dense parameters: one plane of (parameters,) for each of the optimizer's states.
class dense_optimizer_state {
 public:
  dense_optimizer_state() = default;

  template <dense_optimizer Optimizer>
  dense_optimizer_state(host_exec const& exec, std::int64_t parameters, Optimizer const& optimizer)
      : planes_(exec, parameters * Optimizer::element_state), parameters_(parameters) {
    float initial = 0;
    if constexpr (requires { optimizer.initial_state; }) initial = optimizer.initial_state;
    std::fill(planes_.begin(), planes_.end(), initial);
  }

  std::int64_t parameters() const noexcept { return parameters_; }
  std::size_t bytes() const noexcept { return planes_.capacity_bytes(); }
  vector_view<float> planes() noexcept { return planes_.view(); }
  vector_view<float const> planes() const noexcept { return planes_.view(); }
  step_count steps() const noexcept { return steps_; }
  void set_steps(step_count steps) noexcept { steps_ = steps; }

 private:
  buffer<float> planes_;
  std::int64_t parameters_ = 0;
  step_count steps_{};
};

namespace detail {

template <class Exec>
struct dense_update_impl {
  static_assert(dependent_false<Exec>, "dense_update: no back end for this execution; for CUDA include <tessera/nn/dense_optimizer.cuh>");
};

template <>
struct dense_update_impl<host_exec> {
  static constexpr std::int64_t piece = 1 << 14;

  template <class Optimizer>
  static void run(host_exec const& exec, vector_view<float> parameters, vector_view<float const> gradient, float* state,
                  row_gradient const& row, Optimizer const& optimizer) {
    auto const factor = optimizer.begin_row(nullptr, row);
    auto const stride = parameters.size();
    for_each_piece(exec, parameters.size(), piece, [&](std::int64_t first, std::int64_t last) {
      float* __restrict const weight = parameters.data();
      float const* __restrict const g = gradient.data();
      float* __restrict const s = state;
      for (auto i = first; i < last; ++i)
        optimizer.update(weight[i], Optimizer::element_state == 0 ? nullptr : s + i, stride, g[i], factor);
    });
  }
};

struct dense_update_fn {
  template <execution Exec, dense_optimizer Optimizer>
  void operator()(Exec const& exec, vector_view<float> parameters, vector_view<float const> gradient, dense_optimizer_state& state,
                  Optimizer const& optimizer) const {
    if (gradient.size() != parameters.size() || state.parameters() != parameters.size() ||
        state.planes().size() != parameters.size() * Optimizer::element_state)
      throw error(errc::shape_mismatch, "dense_update: parameters, gradient and state do not fit together",
                  {{"parameters", parameters.size()},
                   {"gradient", gradient.size()},
                   {"state floats", state.planes().size()},
                   {"state floats expected", parameters.size() * Optimizer::element_state}});
    state.set_steps(step_count{state.steps().value + 1});
    dense_update_impl<Exec>::run(exec, parameters, gradient, state.planes().data(), {0, parameters.size(), state.steps()}, optimizer);
  }
};

}  // namespace detail

/// One optimizer step over a block of dense parameters. `dense_update(exec, parameters, gradient, state, optimizer)`: both blocks (n,),
/// `state` built for n and this kind of optimizer; counts the step. @throws tessera::error shape_mismatch.
inline constexpr detail::dense_update_fn dense_update{};

}  // namespace tessera::inline TESSERA_ABI
