// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/embed/table_places.hpp>
#include <tessera/nn/dense_optimizer.hpp>
#include <tessera/nn/gradient_clipping.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/batches_ahead.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/trainer_options.hpp>
#include <tessera/train/trainer_ranks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Trains a model, step by step. A trainer holds gradients, states of the dense optimizer, and what a forward saves.
/// What grows with the batch comes from the memory of the step's execution, which must outlive the trainer.
/// With an `arena` there, a step allocates nothing once batches have stopped growing.
/// All calls run on the threads of `exec` and return when their work is done.
template <class Model, dense_optimizer_choice DenseOptimizer>
class trainer {
 public:
  using prepared_type = typename Model::source_type::prepared_type;
  /// Whether the model's forward can begin before others have ended.
  static constexpr bool looks_ahead =
      requires(Model & model, host_exec const& exec, batch_view const& batch, typename Model::saved_type& saved) {
    model.begin_forward(exec, batch, saved);
    model.finish_forward(exec, batch, saved);
  };
  /// Whether gradients can be clipped and accumulated. They can where the source hands out `row_gradients`.
  static constexpr bool sums_gradients = std::same_as<typename Model::source_type::gradients_type, row_gradients>;

  /// Makes a trainer of `model`, which must outlive it. `dense_optimizer` updates the dense parameters; the source updates its rows itself.
  /// With `comm`, all ranks make one at the same time, and those parameters that all ranks hold must have the same values.
  /// @throws tessera::error invalid_argument for options out of their range, and for no `comm` over a source whose tables lie on several ranks.
  /// invalid_argument for a clip_norm above 0 without `sums_gradients`, or where ranks that do not train hold tables.
  /// invalid_argument also as `check_optimizer`, and for chunks that the model does not run by.
  /// Where options or parameters of ranks differ: incompatible, naming the first that does, on ranks that are not as rank 0. Where one
  /// rank throws, all throw.
  trainer(host_exec const& exec, Model& model, DenseOptimizer const& dense_optimizer, trainer_options const& options = {})
      : model_(&model),
        dense_optimizer_(dense_optimizer),
        clip_norm_(options.clip_norm),
        chunk_samples_(options.chunk_samples),
        ranks_(exec, options, [&] { check_model(options); }),
        gradient_(exec, model.parameter_count()) {
    groups_ = model.groups();
    if (ranks_.comm()) ranks_.check_same_model(exec, groups_);
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
  std::optional<any_communicator> const& comm() const noexcept { return ranks_.comm(); }

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
  /// @throws tessera::error invalid_argument as `check_optimizer`, and for another batch than the one that is ahead. It also throws what
  /// `bce_with_logits` and the model throw.
  double step(host_exec const& exec, batch_view const& batch) {
    prepared_type unprepared;
    return step(exec, batch, unprepared);
  }

  /// Trains on a batch with what `sort_ahead` made of it. @post The bits are those of `step` without, and `prepared` is of no batch.
  double step(host_exec const& exec, batch_view const& batch, prepared_type& prepared) {
    check_dense_optimizer();
    if constexpr (sums_gradients)
      if (clip_norm_ > 0 || accumulated_ > 0) {
        auto const loss = accumulate(exec, batch, 1, prepared);
        update(exec);
        return loss;
      }
    auto const loss = backward(exec, batch, 1, gradient_.view(), prepared, ranks_.listens());
    ranks_.begin_sums(exec);
    try {
      model_->update_rows(exec, saved_);
    } catch (...) {  // on all ranks, which end the sums in step
      auto const failure = std::current_exception();
      try {
        ranks_.finish_sums(exec, groups_);
      } catch (...) {  // what went wrong first says more
      }
      std::rethrow_exception(failure);
    }
    ranks_.finish_sums(exec, groups_);
    update_dense(exec);
    return loss;
  }

  /// Begins the lookups of a batch that a later `step` or `accumulate` takes. Over ranks, its ids travel while the steps before it run:
  ///
  ///     run.look_ahead(exec, next);  // then the batch before
  ///     run.step(exec, batch);
  ///
  /// Any number of batches may be ahead; steps take them in this order, before any other, and the batches stay as they are until then. The
  /// bits are those of steps alone where the source's `begin` reads no rows, as that of `sharded_tables` on several ranks.
  /// Batches that are ahead need their steps before the trainer ends: else its rank has left.
  /// @throws tessera::error as `step`, for what a batch cannot be. Then it is not ahead. With `comm`, what begins on this rank alone may
  /// throw in its step.
  void look_ahead(host_exec const& exec, batch_view const& batch) requires looks_ahead {
    auto next = ahead_.next(batch);
    if (ranks_.sums()) next.whole = ranks_.begin_batch(exec, batch, [&] { model_->check_batch(batch); });
    set_chunks(next.saved, next.whole);
    try {
      model_->begin_forward(exec, batch, next.saved);
    } catch (...) {
      if (!ranks_.comm()) throw;
      next.failure = std::current_exception();  // ranks stay in step: its step throws it
    }
    ahead_.add(std::move(next));
  }

  /// Adds `share` times the gradients of the batch's mean loss to those of earlier calls, for a later `update`. Returns the mean loss.
  /// Micro-batches of n_i samples that make a batch of n samples each take the share n_i / n.
  /// Tables that evict rows need `batches_in_flight` of at least the number of micro-batches.
  /// @throws tessera::error invalid_argument for a share that is negative or not finite, and where ranks that do not train hold tables.
  /// out_of_range for a row that was evicted in between
  /// and went to another id. The call also throws what `step` throws. Where the call throws, nothing has been added.
  double accumulate(host_exec const& exec, batch_view const& batch, float share = 1) requires sums_gradients {
    prepared_type unprepared;
    return accumulate(exec, batch, share, unprepared);
  }
  /// Adds the same with what `sort_ahead` made of the batch. @post `prepared` is of no batch.
  double accumulate(host_exec const& exec, batch_view const& batch, float share, prepared_type& prepared) requires sums_gradients {
    if (!(share >= 0 && share <= std::numeric_limits<float>::max()))
      throw error(errc::invalid_argument, "trainer::accumulate: a share that is negative or not finite", {{"share", share}});
    check_held_gradients("accumulate", ranks_.comm());
    bool const first = accumulated_ == 0;
    if (!first) gradient_of_batch_.resize(exec, gradient_.size());
    auto const loss = backward(exec, batch, share, first ? gradient_.view() : gradient_of_batch_.view(), prepared, false);
    if (chunk_samples_ > 0) {  // each batch has a tree of its own
      ranks_.begin_sums(exec);
      ranks_.finish_sums(exec, groups_);
    }
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
    if (chunk_samples_ == 0) {
      ranks_.begin_gradients(gradient_.view(), groups_, 0, {});
      ranks_.begin_sums(exec);
      ranks_.finish_sums(exec, groups_);
    }
    if (clip_norm_ > 0) clip(exec);
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
  static constexpr bool runs_by_chunks =
      requires(Model & model, typename Model::saved_type& saved, host_exec const& exec, vector_view<float> values, sum_tree& chunks) {
    saved.chunk_samples = 0;
    model.chunked_parameters();
    model.backward(exec, saved, values, values, chunks);
  };

  void check_model(trainer_options const& options) const {
    if (!sums_gradients && options.clip_norm > 0)
      throw error(errc::invalid_argument, "trainer: the source's gradients cannot be clipped", {{"clip_norm", options.clip_norm}});
    check_dense_optimizer();
    if constexpr (requires { model_->source().comm(); })
      if (std::int64_t const ranks = model_->source().comm().size(); ranks > 1 && !options.comm)
        throw error(errc::invalid_argument,
                    "trainer: tables of several ranks, whose dense parameters nobody would sum: the options need a comm",
                    {{"ranks", ranks}});
    if (options.clip_norm > 0) check_held_gradients("clip_norm", options.comm);
    if constexpr (!runs_by_chunks)
      if (options.chunk_samples != 0)
        throw error(errc::invalid_argument, "trainer: the model does not run by chunks", {{"chunk_samples", options.chunk_samples}});
  }
  // Ranks that hold tables alone update at once, where others would clip or wait.
  void check_held_gradients(char const* what, std::optional<any_communicator> const& comm) const {
    if constexpr (requires { model_->source().comm(); }) {
      std::int64_t const ranks = model_->source().comm().size(), trainers = comm ? comm->size() : 1;
      if (ranks > trainers)
        throw error(errc::invalid_argument, std::string("trainer: ") + what + ", where ranks that do not train hold tables",
                    {{"ranks", ranks}, {"that train", trainers}});
    }
  }
  // Its rate may have changed since the last step. The source looks at its own.
  void check_dense_optimizer() const {
    with_optimizer(dense_optimizer_, [](auto const& optimizer) { check_optimizer(optimizer); });
  }

  // Forward, loss and backward down to the pooled vectors; the loss counts `share` times. Returns the loss of all ranks.
  double backward(host_exec const& exec, batch_view const& batch, float share, vector_view<float> gradient, prepared_type& prepared,
                  bool tells) {
    if (!ranks_.sums()) {
      auto const is_ahead = ahead_.take(batch, saved_).has_value();
      auto const logits = forward(exec, batch, prepared, is_ahead);
      logit_gradient_.resize(exec, logits.size());
      auto const loss = bce_with_logits(exec, logits, batch.labels, logit_gradient_.view(), batch.weights);
      scale_logit_gradient(exec, share);
      model_->backward(exec, saved_, logit_gradient_.view(), gradient);
      return loss;
    }
    auto const taken = ahead_.take(batch, saved_);
    auto const whole = taken ? *taken : ranks_.begin_batch(exec, batch, [&] { model_->check_batch(batch); });
    losses_.clear();
    std::exception_ptr failure;
    try {
      ranks_.begin_gradients(gradient, groups_, gradients_by_chunks(), whole);
      backward_of_part(exec, batch, share, gradient, prepared, whole, tells, taken.has_value());
    } catch (...) {
      failure = std::current_exception();
      if (tells) ranks_.begin_told(exec);
    }
    try {
      return ranks_.sum_of_all(exec, losses_, "loss of a batch", failure);
    } catch (...) {
      ranks_.abandon(exec);
      throw;
    }
  }
  void backward_of_part(host_exec const& exec, batch_view const& batch, float share, vector_view<float> gradient, prepared_type& prepared,
                        detail::trainer_ranks::whole_batch const& whole, bool tells, bool is_ahead) {
    set_chunks(saved_, whole);
    auto const logits = forward(exec, batch, prepared, is_ahead);
    logit_gradient_.resize(exec, logits.size());
    sample_chunks const chunks{logits.size(), chunk_samples_};
    for (std::int64_t c = 0; c < chunks.count(); ++c) {
      auto const [first, last] = chunks.range(c);
      auto const size = last - first;
      losses_.push_back(bce_of_part(exec, logits.slice(first, size), batch.labels.slice(first, size),
                                    logit_gradient_.view().slice(first, size),
                                    batch.weights.empty() ? batch.weights : batch.weights.slice(first, size), whole.weight));
    }
    scale_logit_gradient(exec, share);
    auto const of_logits = logit_gradient_.view();
    if constexpr (runs_by_chunks)
      if (chunk_samples_ > 0) return model_->backward(exec, saved_, of_logits, gradient, ranks_.tree());
    if constexpr (requires(gradient_listener const& finished) { model_->backward(exec, saved_, of_logits, gradient, finished); })
      model_->backward(exec, saved_, of_logits, gradient,
                       tells ? gradient_listener([&](vector_view<float> part) { ranks_.finished(exec, part); }) : gradient_listener());
    else
      model_->backward(exec, saved_, of_logits, gradient);
  }
  void set_chunks([[maybe_unused]] typename Model::saved_type& saved,
                  [[maybe_unused]] detail::trainer_ranks::whole_batch const& whole) const {
    if constexpr (runs_by_chunks) {
      saved.chunk_samples = chunk_samples_;
      if constexpr (requires { saved.first_chunk; }) saved.first_chunk = whole.first_chunk;
    }
  }
  void scale_logit_gradient(host_exec const& exec, float share) {
    auto const of_logits = logit_gradient_.view();
    if (share != 1) for_each_index(exec, of_logits.size(), parameters_per_piece, [=](std::int64_t i) { of_logits[i] *= share; });
  }
  vector_view<float> forward(host_exec const& exec, batch_view const& batch, prepared_type& prepared, [[maybe_unused]] bool is_ahead) {
    if constexpr (looks_ahead)
      if (is_ahead) {
        prepared = prepared_type();
        ahead_.rethrow();
        return model_->finish_forward(exec, batch, saved_);
      }
    return model_->forward(exec, batch, saved_, prepared);
  }
  // The first of the dense parameters, which chunks give leaves of.
  std::int64_t gradients_by_chunks() const {
    if constexpr (runs_by_chunks)
      if (chunk_samples_ > 0) return model_->chunked_parameters();
    return 0;
  }

  // By the norm of all ranks' gradients; what all hold counts once.
  void clip(host_exec const& exec) {
    auto const limit = static_cast<double>(clip_norm_);
    vector_view<float> const gradients[] = {gradient_.view(), row_gradients_.values()};
    if (!ranks_.comm()) {
      clip_global_norm(exec, {gradients, 2}, limit);
      return;
    }
    std::vector<vector_view<float>> own = own_row_gradients(), shared;
    std::int64_t first = 0;
    for (auto const& group : groups_) {
      auto const part = gradient_.view().slice(first, group.values.size());
      first += part.size();
      if (group.replication == replication::everywhere)
        shared.push_back(part);
      else if (!group.is_copy)
        own.push_back(part);
    }
    auto const norm_of_own = gradient_norm(exec, own), norm_of_shared = gradient_norm(exec, shared);
    auto const norm =
        std::sqrt(norm_of_shared * norm_of_shared + ranks_.sum_of_all(exec, {norm_of_own * norm_of_own}, "norm of gradients"));
    auto const factor = limit / (norm + 1e-6);  // as clip_global_norm
    if (!(factor >= 1)) scale_gradients(exec, {gradients, 2}, static_cast<float>(factor));
  }

  // The gradients of rows, but for those that another rank counts.
  std::vector<vector_view<float>> own_row_gradients() {
    auto const elsewhere = counted_elsewhere_of(std::as_const(*model_).source());
    if (std::find(elsewhere.begin(), elsewhere.end(), true) != elsewhere.end()) {
      std::vector<vector_view<float>> own;
      for (std::int64_t t = 0; t < row_gradients_.tables(); ++t)
        if (auto const values = row_gradients_.values(t); !elsewhere[static_cast<std::size_t>(t)])
          own.emplace_back(values.data(), values.rows() * values.columns());
      return own;
    }
    return {row_gradients_.values()};
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
  float clip_norm_;
  std::int64_t chunk_samples_;
  detail::trainer_ranks ranks_;
  std::vector<parameter_group> groups_;              // the model's, which stay where they are
  std::vector<dense_optimizer_state> dense_states_;  // of each group
  typename Model::saved_type saved_;
  detail::batches_ahead<typename Model::saved_type> ahead_;
  buffer<float> logit_gradient_;
  buffer<float> gradient_;  // of the dense parameters, group after group
  row_gradients row_gradients_;
  std::int64_t accumulated_ = 0;  // batches whose gradients are in the two above
  std::vector<double> losses_;    // of each chunk here, or of the whole
  buffer<float> gradient_of_batch_;
  row_gradients row_gradients_of_batch_, row_gradients_spare_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
