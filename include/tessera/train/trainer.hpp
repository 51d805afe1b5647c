// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gradient_clipping.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/click_net.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

template <class O>
using is_dense_optimizer = std::bool_constant<dense_optimizer<O>>;

// The one that is judged for a choice, so that a compiler can say what it lacks: of a variant the first that does not fit, else the last.
template <template <class> class Fits, class O>
struct judged {
  using type = O;
};
template <template <class> class Fits, class First, class Second, class... Rest>
struct judged<Fits, std::variant<First, Second, Rest...>> : judged<Fits, std::variant<Second, Rest...>> {};
template <template <class> class Fits, class First, class Second, class... Rest>
  requires(!Fits<First>::value)
struct judged<Fits, std::variant<First, Second, Rest...>> {
  using type = First;
};
template <template <class> class Fits, class Last>
struct judged<Fits, std::variant<Last>> {
  using type = Last;
};

}  // namespace detail

/// An optimizer of dense parameters, or a std::variant of some.
template <class O>
concept dense_optimizer_choice = dense_optimizer<typename detail::judged<detail::is_dense_optimizer, O>::type>;

/// Calls f with the optimizer that is chosen.
template <class Choice, class F>
decltype(auto) with_optimizer(Choice& choice, F const& f) {
  if constexpr (requires { choice.index(); })
    return std::visit(f, choice);
  else
    return f(choice);
}

struct trainer_options {
  // Gradients, of dense parameters and rows together, whose norm is larger are scaled down to it; 0: none are. The norm is summed by table
  // and slot, on any number of threads: where the same rows have other slots, its last bits may differ and with them those of a clipped
  // step. They do in another kind of store, and in a resumed run where rows had left their table or may leave it.
  float clip_norm = 0;
};

/// Everything beside the model that a training run carries from step to step: gradients, dense optimizer states, what a forward saves.
/// What grows with the batch comes from the memory of the execution of the step, which outlives the trainer; with an `arena` there a step
/// allocates nothing once batches have stopped growing.
template <class Model, dense_optimizer_choice DenseOptimizer>
class trainer {
 public:
  using prepared_type = typename Model::source_type::prepared_type;
  /// Whether gradients can be clipped and accumulated: those that the source hands out are `row_gradients`.
  static constexpr bool sums_gradients = std::same_as<typename Model::source_type::gradients_type, row_gradients>;

  /// Refers to the model, whose source updates its rows by optimizers of its own.
  /// @throws tessera::error invalid_argument for a clip_norm that is negative or NaN, or as `check_optimizer`.
  trainer(host_exec const& exec, Model& model, DenseOptimizer const& dense_optimizer, trainer_options const& options = {})
      : model_(&model), dense_optimizer_(dense_optimizer), options_(options), gradient_(exec, model.parameter_count()) {
    if (!(options.clip_norm >= 0)) throw error(errc::invalid_argument, "trainer: clip_norm", {{"clip_norm", options.clip_norm}});
    if (!sums_gradients && options.clip_norm > 0)
      throw error(errc::invalid_argument, "trainer: the source's gradients cannot be clipped", {{"clip_norm", options.clip_norm}});
    check_dense_optimizer();
    groups_ = model.groups();
    for (auto const& group : groups_)
      with_optimizer(dense_optimizer_, [&](auto const& optimizer) { dense_states_.emplace_back(exec, group.values.size(), optimizer); });
  }

  /// Beside the model: gradients and dense optimizer states, without what a step saves.
  std::size_t bytes() const noexcept {
    auto sum = gradient_.capacity_bytes();
    for (auto const& state : dense_states_) sum += state.bytes();
    return sum;
  }

  Model& model() noexcept { return *model_; }
  Model const& model() const noexcept { return *model_; }
  /// Its rate may change between steps, as those of the source's optimizers may.
  DenseOptimizer& dense_optimizer() noexcept { return dense_optimizer_; }

  struct named_state {
    std::string_view group;
    dense_optimizer_state* state;
  };
  /// Of each group of dense parameters that is not empty.
  std::vector<named_state> dense_states() {
    std::vector<named_state> all;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].values.empty()) all.push_back({groups_[g].name, &dense_states_[g]});
    return all;
  }

  /// One step of binary cross entropy: forward, loss, backward, update. Returns the batch's mean loss before the update; `logits()` are
  /// those the loss was computed from: progressive metrics need no forward of their own. What was accumulated before is part of the step.
  /// @throws tessera::error invalid_argument as `check_optimizer`, and what the model throws.
  double step(host_exec const& exec, batch_view const& batch) {
    prepared_type unprepared;
    return step(exec, batch, unprepared);
  }

  /// The same with what `sort_ahead` has made for the batch; `prepared` is then of no batch.
  double step(host_exec const& exec, batch_view const& batch, prepared_type& prepared) {
    check_dense_optimizer();
    if constexpr (sums_gradients)
      if (options_.clip_norm > 0 || accumulated_ > 0) {
        auto const loss = accumulate(exec, batch, 1, prepared);
        update(exec);
        return loss;
      }
    auto const loss = backward(exec, batch, 1, gradient_.view(), prepared);
    model_->update_rows(exec, saved_);
    update_dense(exec);
    return loss;
  }

  /// The step without its update: adds `share` times the gradients of the batch's mean loss to what earlier calls have added. A batch of
  /// n samples in micro-batches of n_i takes n_i / n as the share of each, then `update`. Returns the mean loss of the micro-batch.
  /// Tables that evict rows need batches_in_flight of at least the number of micro-batches; @throws tessera::error out_of_range for a row
  /// that was evicted in between and went to another id; invalid_argument for a share that is negative or not finite.
  double accumulate(host_exec const& exec, batch_view const& batch, float share = 1) requires sums_gradients {
    prepared_type unprepared;
    return accumulate(exec, batch, share, unprepared);
  }
  double accumulate(host_exec const& exec, batch_view const& batch, float share, prepared_type& prepared) requires sums_gradients {
    if (!(share >= 0 && share <= std::numeric_limits<float>::max()))
      throw error(errc::invalid_argument, "trainer::accumulate: a share that is negative or not finite", {{"share", share}});
    bool const first = accumulated_ == 0;
    if (!first) gradient_of_batch_.resize(exec, gradient_.size());
    auto const loss = backward(exec, batch, share, first ? gradient_.view() : gradient_of_batch_.view(), prepared);
    auto& rows = first ? row_gradients_ : row_gradients_of_batch_;
    model_->gradients_of_rows(exec, saved_, rows);
    if (!first) {
      add_row_gradients(exec, row_gradients_, rows, row_gradients_spare_);
      auto const sum = gradient_.view();
      auto const more = std::as_const(gradient_of_batch_).view();
      for_each_index(exec, sum.size(), parameters_per_piece, [=](std::int64_t i) { sum[i] += more[i]; });
    }
    ++accumulated_;
    return loss;
  }

  /// Updates the model with what has been accumulated, clipped; that counts as one step. Nothing happens where nothing has been.
  /// @throws tessera::error invalid_argument as `check_optimizer`; then nothing has changed.
  void update(host_exec const& exec) requires sums_gradients {
    if (accumulated_ == 0) return;
    check_dense_optimizer();
    if (options_.clip_norm > 0) {
      vector_view<float> const gradients[] = {gradient_.view(), row_gradients_.values()};
      clip_global_norm(exec, {gradients, 2}, static_cast<double>(options_.clip_norm));
    }
    model_->source().apply(exec, row_gradients_);
    accumulated_ = 0;
    update_dense(exec);
  }

  /// Micro-batches whose gradients wait for an `update`.
  std::int64_t accumulated() const noexcept { return accumulated_; }

  vector_view<float const> logits() const noexcept { return saved_.logits.view(); }
  /// What the last step's forward saved and its backward left.
  typename Model::saved_type& saved() noexcept { return saved_; }

 private:
  static constexpr std::int64_t parameters_per_piece = 1 << 14;

  // Its rate may have changed since the last step. The source looks at its own.
  void check_dense_optimizer() const {
    with_optimizer(dense_optimizer_, [](auto const& optimizer) { check_optimizer(optimizer); });
  }

  // Forward, loss and backward down to the pooled vectors; the loss counts `share` times.
  double backward(host_exec const& exec, batch_view const& batch, float share, vector_view<float> gradient, prepared_type& prepared) {
    auto const logits = model_->forward(exec, batch, saved_, prepared);
    logit_gradient_.resize(exec, logits.size());
    auto const of_logits = logit_gradient_.view();
    auto const loss = bce_with_logits(exec, logits, batch.labels, of_logits, batch.weights);
    if (share != 1) for_each_index(exec, of_logits.size(), parameters_per_piece, [=](std::int64_t i) { of_logits[i] *= share; });
    model_->backward(exec, saved_, of_logits, gradient);
    return loss;
  }

  void update_dense(host_exec const& exec) {
    std::int64_t first = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto const gradient = std::as_const(gradient_).view().slice(first, groups_[g].values.size());
      first += gradient.size();
      with_optimizer(dense_optimizer_,
                     [&](auto const& optimizer) { dense_update(exec, groups_[g].values, gradient, dense_states_[g], optimizer); });
    }
  }

  Model* model_;
  DenseOptimizer dense_optimizer_;
  trainer_options options_;
  std::vector<parameter_group> groups_;              // the model's, which stay where they are
  std::vector<dense_optimizer_state> dense_states_;  // of each group
  typename Model::saved_type saved_;
  buffer<float> logit_gradient_;
  buffer<float> gradient_;  // of the dense parameters, group after group
  row_gradients row_gradients_;
  std::int64_t accumulated_ = 0;  // batches whose gradients are in the two above
  buffer<float> gradient_of_batch_;
  row_gradients row_gradients_of_batch_, row_gradients_spare_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
