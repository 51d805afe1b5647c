// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/rank_sums.hpp>
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

/// Calls `f` with the optimizer that `choice` is, or holds, and returns what `f` returns.
template <class Choice, class F>
decltype(auto) with_optimizer(Choice& choice, F const& f) {
  if constexpr (requires { choice.index(); })
    return std::visit(f, choice);
  else
    return f(choice);
}

/// What a trainer does with gradients before it updates.
struct trainer_options {
  /// The largest norm of all gradients together, those of dense parameters and of rows. Larger ones are scaled down to it; 0: none are.
  /// The norm is summed by table and slot, so where the same rows have other slots, the last bits of a clipped step may differ.
  /// Slots differ in another kind of store, and in a resumed run where rows had left their table or may leave it.
  float clip_norm = 0;
  /// The ranks that train together, each with a part of every batch. All of them make the same calls. None: this process trains alone.
  ///
  /// The mean loss is that of all ranks' samples by their weights, and `step` returns it on each rank. Gradients of dense parameters are
  /// summed over the ranks that hold them, in the order of `rank_sums`; a norm is that of all ranks' gradients. The source takes the
  /// gradients of this rank's samples: what rows are shared is its own affair. A rank's part of a batch may be empty.
  ///
  /// Where ranks disagree about a batch before any of them changes, all throw: those whose data were good errc::rank_failed.
  std::optional<any_communicator> comm = {};
};

/// Trains a model, step by step. A trainer holds gradients, states of the dense optimizer, and what a forward saves.
/// What grows with the batch comes from the memory of the step's execution, which must outlive the trainer.
/// With an `arena` there, a step allocates nothing once batches have stopped growing.
/// All calls run on the threads of `exec` and return when their work is done.
template <class Model, dense_optimizer_choice DenseOptimizer>
class trainer {
 public:
  using prepared_type = typename Model::source_type::prepared_type;
  /// Whether gradients can be clipped and accumulated. They can where the source hands out `row_gradients`.
  static constexpr bool sums_gradients = std::same_as<typename Model::source_type::gradients_type, row_gradients>;

  /// Makes a trainer of `model`, which must outlive it. `dense_optimizer` updates the dense parameters; the source updates its rows itself.
  /// With `comm`, all ranks make one at the same time, and those parameters that all ranks hold must have the same values.
  /// @throws tessera::error invalid_argument for a clip_norm that is negative, NaN, or above 0 without `sums_gradients`;
  /// invalid_argument also as `check_optimizer`, and for parameters of a tower with `comm`. Where ranks' parameters differ: incompatible,
  /// naming the group, on those that are not as rank 0, and rank_failed on the others.
  trainer(host_exec const& exec, Model& model, DenseOptimizer const& dense_optimizer, trainer_options const& options = {})
      : model_(&model), dense_optimizer_(dense_optimizer), options_(options), gradient_(exec, model.parameter_count()) {
    if (!(options.clip_norm >= 0)) throw error(errc::invalid_argument, "trainer: clip_norm", {{"clip_norm", options.clip_norm}});
    if (!sums_gradients && options.clip_norm > 0)
      throw error(errc::invalid_argument, "trainer: the source's gradients cannot be clipped", {{"clip_norm", options.clip_norm}});
    check_dense_optimizer();
    groups_ = model.groups();
    if (options_.comm) check_same_model(exec);
    for (auto const& group : groups_)
      with_optimizer(dense_optimizer_, [&](auto const& optimizer) { dense_states_.emplace_back(exec, group.values.size(), optimizer); });
  }

  /// Bytes of gradients and dense optimizer states, without the model and what a step saves.
  std::size_t bytes() const noexcept {
    auto sum = gradient_.capacity_bytes();
    for (auto const& state : dense_states_) sum += state.bytes();
    return sum;
  }

  /// The model that is trained.
  Model& model() noexcept { return *model_; }
  /// As above, to read.
  Model const& model() const noexcept { return *model_; }
  /// The optimizer of the dense parameters. The caller may change its rate between steps.
  DenseOptimizer& dense_optimizer() noexcept { return dense_optimizer_; }
  /// The ranks that train together, if there are any.
  std::optional<any_communicator> const& comm() const noexcept { return options_.comm; }

  /// The optimizer state of a group of dense parameters.
  struct named_state {
    std::string_view group;        ///< name of the group
    dense_optimizer_state* state;  ///< which the trainer owns
  };
  /// The optimizer states of all groups of dense parameters that are not empty, in their order.
  std::vector<named_state> dense_states() {
    std::vector<named_state> all;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (!groups_[g].values.empty()) all.push_back({groups_[g].name, &dense_states_[g]});
    return all;
  }

  /// Trains on a batch, one step of binary cross entropy: forward, loss, backward, update. Returns the mean loss before the update.
  /// `logits()` are those of this forward, so progressive metrics need no forward of their own. Accumulated gradients are part of the step.
  /// @throws tessera::error invalid_argument as `check_optimizer`; what `bce_with_logits` and the model throw.
  double step(host_exec const& exec, batch_view const& batch) {
    prepared_type unprepared;
    return step(exec, batch, unprepared);
  }

  /// Trains on a batch with what `sort_ahead` made of it. @post The bits are those of `step` without, and `prepared` is of no batch.
  double step(host_exec const& exec, batch_view const& batch, prepared_type& prepared) {
    check_dense_optimizer();
    if constexpr (sums_gradients)
      if (options_.clip_norm > 0 || accumulated_ > 0) {
        auto const loss = accumulate(exec, batch, 1, prepared);
        update(exec);
        return loss;
      }
    auto const loss = backward(exec, batch, 1, gradient_.view(), prepared);
    begin_sums(exec);
    try {
      model_->update_rows(exec, saved_);
    } catch (...) {  // on all ranks, which end the sums in step
      auto const failure = std::current_exception();
      try {
        finish_sums(exec);
      } catch (...) {  // what went wrong first says more
      }
      std::rethrow_exception(failure);
    }
    finish_sums(exec);
    update_dense(exec);
    return loss;
  }

  /// Adds `share` times the gradients of the batch's mean loss to those of earlier calls, for a later `update`. Returns the mean loss.
  /// Micro-batches of n_i samples that make a batch of n samples each take the share n_i / n.
  /// Tables that evict rows need `batches_in_flight` of at least the number of micro-batches.
  /// @throws tessera::error invalid_argument for a share that is negative or not finite. out_of_range for a row that was evicted in between
  /// and went to another id. The call also throws what `step` throws. Where the call throws, nothing has been added.
  double accumulate(host_exec const& exec, batch_view const& batch, float share = 1) requires sums_gradients {
    prepared_type unprepared;
    return accumulate(exec, batch, share, unprepared);
  }
  /// Adds the same with what `sort_ahead` made of the batch. @post `prepared` is of no batch.
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

  /// Clips what was accumulated and updates the model with it, which counts as one step. Without accumulated gradients it does nothing.
  /// @post accumulated() is 0. @throws tessera::error invalid_argument as `check_optimizer`. The model has not changed then.
  void update(host_exec const& exec) requires sums_gradients {
    if (accumulated_ == 0) return;
    check_dense_optimizer();
    begin_sums(exec);
    finish_sums(exec);
    if (options_.clip_norm > 0) clip(exec);
    model_->source().apply(exec, row_gradients_);
    accumulated_ = 0;
    update_dense(exec);
  }

  /// How many micro-batches have gradients that wait for an `update`.
  std::int64_t accumulated() const noexcept { return accumulated_; }

  /// The logits of the last forward, (samples,), until the next one.
  vector_view<float const> logits() const noexcept { return saved_.logits.view(); }
  /// What the forward of the last step saved and its backward left.
  typename Model::saved_type& saved() noexcept { return saved_; }

 private:
  static constexpr std::int64_t parameters_per_piece = 1 << 14;

  // Its rate may have changed since the last step. The source looks at its own.
  void check_dense_optimizer() const {
    with_optimizer(dense_optimizer_, [](auto const& optimizer) { check_optimizer(optimizer); });
  }

  // Forward, loss and backward down to the pooled vectors; the loss counts `share` times. Returns the loss of all ranks.
  double backward(host_exec const& exec, batch_view const& batch, float share, vector_view<float> gradient, prepared_type& prepared) {
    if (!options_.comm) return backward_here(exec, batch, share, gradient, prepared, {});
    auto const total_weight = weight_of_all(exec, batch);
    double part = 0;
    std::exception_ptr failure;
    try {
      part = backward_here(exec, batch, share, gradient, prepared, total_weight);
    } catch (...) {
      failure = std::current_exception();
    }
    return sum_of_ranks(exec, part, "loss of a batch", failure);
  }
  double backward_here(host_exec const& exec, batch_view const& batch, float share, vector_view<float> gradient, prepared_type& prepared,
                       std::optional<double> total_weight) {
    auto const logits = model_->forward(exec, batch, saved_, prepared);
    logit_gradient_.resize(exec, logits.size());
    auto const of_logits = logit_gradient_.view();
    auto const loss = total_weight ? bce_of_part(exec, logits, batch.labels, of_logits, batch.weights, *total_weight)
                                   : bce_with_logits(exec, logits, batch.labels, of_logits, batch.weights);
    if (share != 1) for_each_index(exec, of_logits.size(), parameters_per_piece, [=](std::int64_t i) { of_logits[i] *= share; });
    model_->backward(exec, saved_, of_logits, gradient);
    return loss;
  }

  // Refuses ranks whose parameters are not those of rank 0, before they drift apart in silence.
  void check_same_model(host_exec const& exec) {
    for (auto const& group : groups_)
      if (group.replication == replication::tower)
        throw error(errc::invalid_argument, "trainer: parameters of a tower are summed by no communicator yet", {{"group", group.name}});
    auto& comm = *options_.comm;
    std::string text;
    for (auto const& group : groups_)
      text += std::string(group.name) + ", " + std::to_string(group.values.size()) + " parameters, " +
              (group.replication == replication::everywhere ? "of all ranks\n" : "of one rank\n");
    check_same_text(exec, comm, text, "trainer: the same groups of parameters");
    std::exception_ptr failure;
    for (auto const& group : groups_) {
      if (group.replication != replication::everywhere || group.values.empty()) continue;
      std::vector<float> first(group.values.begin(), group.values.end());
      broadcast<float>(exec, comm, first, 0);
      if (std::memcmp(first.data(), group.values.data(), first.size() * sizeof(float)) != 0)
        failure = std::make_exception_ptr(
            error(errc::incompatible, "trainer: dense parameters are not those of rank 0", {{"rank", comm.rank()}, {"group", group.name}}));
    }
    barrier(exec, comm, "trainer: the same parameters", failure);
  }

  // What the loss of all ranks' samples is divided by. Refuses on all ranks what a batch cannot be on one.
  double weight_of_all(host_exec const& exec, batch_view const& batch) {
    double own = 0;
    std::exception_ptr failure;
    try {
      model_->check_batch(batch);
      detail::check_loss("trainer", batch.samples(), batch.labels.size(), batch.samples());
      own = bce_weight(exec, batch.labels, batch.weights);
    } catch (...) {
      failure = std::current_exception();
    }
    return sum_of_ranks(exec, own, "weight of a batch", failure);
  }
  // In the order of ranks.
  double sum_of_ranks(host_exec const& exec, double own, char const* what, std::exception_ptr const& failure = nullptr) {
    double sum = 0;
    for (auto const& one : all_gather<double>(exec, *options_.comm, {&own, 1}, pending_, what, failure)) sum += one[0];
    return sum;
  }

  // Sums the gradients of groups that all ranks hold; neighbours together.
  void begin_sums(host_exec const& exec) {
    if (!options_.comm) return;
    summed_.clear();
    std::int64_t first = 0;
    for (auto const& group : groups_) {
      auto const size = group.values.size();
      auto const part = gradient_.view().slice(first, size);
      first += size;
      if (group.replication != replication::everywhere || size == 0) continue;
      if (!summed_.empty() && summed_.back().end() == part.begin())
        summed_.back().count += size;
      else
        summed_.push_back(part);
    }
    sums_.resize(std::max(sums_.size(), summed_.size()));
    rank_sums<any_communicator> ranks(*options_.comm);
    for (std::size_t i = 0; i < summed_.size(); ++i) ranks.begin_all(exec, summed_[i], sums_[i]);
  }
  void finish_sums(host_exec const& exec) {
    if (!options_.comm) return;
    rank_sums<any_communicator> ranks(*options_.comm);
    for (std::size_t i = 0; i < summed_.size(); ++i) ranks.finish_all(exec, sums_[i]);
  }

  // By the norm of all ranks' gradients; what all hold counts once.
  void clip(host_exec const& exec) {
    auto const limit = static_cast<double>(options_.clip_norm);
    vector_view<float> const gradients[] = {gradient_.view(), row_gradients_.values()};
    if (!options_.comm) {
      clip_global_norm(exec, {gradients, 2}, limit);
      return;
    }
    std::vector<vector_view<float>> own{row_gradients_.values()}, shared;
    std::int64_t first = 0;
    for (auto const& group : groups_) {
      auto const part = gradient_.view().slice(first, group.values.size());
      first += part.size();
      (group.replication == replication::everywhere ? shared : own).push_back(part);
    }
    auto const norm_of_own = gradient_norm(exec, own), norm_of_shared = gradient_norm(exec, shared);
    auto const norm = std::sqrt(norm_of_shared * norm_of_shared + sum_of_ranks(exec, norm_of_own * norm_of_own, "norm of gradients"));
    auto const factor = limit / (norm + 1e-6);  // as clip_global_norm
    if (!(factor >= 1)) scale_gradients(exec, {gradients, 2}, static_cast<float>(factor));
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
  any_pending pending_;
  std::vector<vector_view<float>> summed_;           // parts of the gradient that all ranks hold
  std::vector<pending_sum<any_communicator>> sums_;  // of each
  buffer<float> gradient_of_batch_;
  row_gradients row_gradients_of_batch_, row_gradients_spare_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
