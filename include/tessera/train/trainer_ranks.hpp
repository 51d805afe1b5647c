// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/comm/rank_levels.hpp>
#include <tessera/comm/rank_sums.hpp>
#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/trainer_options.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// What a trainer's ranks agree on and add up: weights, losses and gradients. Without a communicator there is this process alone.
class trainer_ranks {
 public:
  /// Of a batch of all ranks, after `begin_batch`.
  struct whole_batch {
    double weight = 0;             ///< sum of the samples' weights
    std::int64_t first_chunk = 0;  ///< number of the first chunk here
  };

  /// Refuses options that cannot be, and what `check` refuses; over ranks also options that differ. Where one rank throws, all throw.
  template <class Check>
  trainer_ranks(host_exec const& exec, trainer_options const& options, Check const& check)
      : comm_(options.comm), chunk_samples_(options.chunk_samples), bucket_bytes_(options.bucket_bytes) {
    std::exception_ptr failure;
    try {
      check_options(options);
      check();
    } catch (...) {
      if (!comm_) throw;
      failure = std::current_exception();
    }
    if (!comm_) return;
    check_same_text(exec, *comm_, text_of(options), "trainer: the same options", failure);
    levels_ = options.levels ? split_by_levels(exec, *comm_, *options.levels) : std::vector<any_communicator>{*comm_};
  }

  /// Whether the loss and gradients are sums over ranks or over chunks.
  bool sums() const noexcept { return comm_ || by_chunks(); }
  bool by_chunks() const noexcept { return chunk_samples_ > 0; }

  /// Refuses ranks whose parameters are not those of rank 0, before they drift apart in silence.
  void check_same_model(host_exec const& exec, std::vector<parameter_group> const& groups);

  /// Refuses on all ranks what a batch cannot be on one, as `check` says, and batches of different classes. All ranks call it.
  template <class Check>
  whole_batch begin_batch(host_exec const& exec, batch_view const& batch, Check const& check) {
    own_.clear();
    std::exception_ptr failure;
    try {
      check();
      check_loss("trainer", batch.samples(), batch.labels.size(), batch.samples());
      check_bce_labels(exec, "trainer", batch.labels, batch.weights);
      sum_of_weights(exec, "trainer", batch.weights, batch.samples());  // which names the position of a bad one
      own_ = {static_cast<double>(batch.samples()), static_cast<double>(batch.kind)};
      sample_chunks const chunks{batch.samples(), chunk_samples_};
      for (std::int64_t c = 0; c < chunks.count(); ++c) {
        auto const [first, last] = chunks.range(c);
        own_.push_back(sum_of_weights(exec, "trainer", batch.weights.empty() ? batch.weights : batch.weights.slice(first, last - first),
                                      last - first));
      }
    } catch (...) {
      failure = std::current_exception();
    }
    auto const all = gather(exec, "weight of a batch", failure);
    constexpr std::ptrdiff_t first_weight = 2;
    whole_batch whole;
    std::int64_t samples_before = 0;
    all_.clear();
    check_class(all);
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (by_chunks() && samples_before % chunk_samples_ != 0 && all[r][0] > 0)
        throw error(errc::invalid_argument, "trainer: ranks cut a batch within a chunk",
                    {{"rank", static_cast<std::int64_t>(r)}, {"samples before it", samples_before}, {"chunk_samples", chunk_samples_}});
      if (comm_ && static_cast<int>(r) == comm_->rank()) whole.first_chunk = static_cast<std::int64_t>(all_.size());
      samples_before += static_cast<std::int64_t>(all[r][0]);
      all_.insert(all_.end(), all[r].begin() + first_weight, all[r].end());
    }
    whole.weight = sum(all_);
    check_weight_sum("trainer", whole.weight);
    return whole;
  }

  /// Returns the sum of what all ranks have, of each of their chunks or of the whole. With a `failure`, all ranks throw.
  double sum_of_all(host_exec const& exec, std::vector<double> const& own, char const* what, std::exception_ptr const& failure = nullptr);

  /// Whether a backward tells of parts of the gradient that are final.
  bool listens() const noexcept { return comm_ && bucket_bytes_ > 0 && !by_chunks(); }
  /// Starts with the gradients of a batch, (parameters,) of these groups; the first `in_tree` ones are sums of `tree()`.
  void begin_gradients(vector_view<float> gradient, std::vector<parameter_group> const& groups, std::int64_t in_tree,
                       whole_batch const& whole);
  sum_tree& tree() noexcept { return tree_; }
  /// Hears of a final part. The first backward tells the order, which is that of all others; from the second one on, the sum of a bucket
  /// begins with its last part.
  void finished(host_exec const& exec, vector_view<float> part);
  /// Begins, after a failure, the sums that others have begun.
  void begin_told(host_exec const& exec) { begin_buckets(exec, never - 1); }
  /// Waits, after a failure that all ranks know of, for what has begun.
  void abandon(host_exec const& exec) noexcept {
    for (std::size_t b = 0; b < next_; ++b) try {
        rank_sums<any_communicator>(levels_).abandon(exec, sums_[b]);
      } catch (...) {  // what went wrong before says more
      }
  }

  /// Begins the sums that have not begun, of the gradients that all ranks hold.
  void begin_sums(host_exec const& exec);
  /// Waits for the sums.
  void finish_sums(host_exec const& exec, std::vector<parameter_group> const& groups);

  std::optional<any_communicator> const& comm() const noexcept { return comm_; }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  // Gradients [first, first + size), whose sum begins when `told` parts are final; `never`: when the whole backward is done.
  struct bucket {
    std::int64_t first = 0, size = 0, told = never;

    // Takes a neighbour.
    bool add(std::int64_t other, std::int64_t count) noexcept {
      if (other != first + size && other + count != first) return false;
      first = std::min(first, other);
      size += count;
      return true;
    }
  };

  // Of the parts that are told, in their order, those of groups that all ranks hold; then of such groups as are not told.
  void make_buckets(std::vector<parameter_group> const& groups);
  void begin_buckets(host_exec const& exec, std::int64_t told);

  static void check_options(trainer_options const& options);
  static std::string text_of(trainer_options const& options);

  // Of what each rank gathers for a batch, behind its samples: a source may exchange nothing for a hot batch, and ranks would wait for it.
  static void check_class(std::vector<vector_view<double const>> const& all);
  std::vector<vector_view<double const>> gather(host_exec const& exec, char const* what, std::exception_ptr const& failure);
  // In the order of ranks; of chunks, by a tree.
  double sum(std::vector<double> const& values) const;

  std::optional<any_communicator> comm_;
  std::vector<any_communicator> levels_;
  std::int64_t chunk_samples_, bucket_bytes_;
  std::vector<double> own_, all_;
  any_pending pending_;

  vector_view<float> gradient_;  // of the batch at hand
  std::int64_t in_tree_ = 0;
  sum_tree tree_;
  std::vector<bucket> buckets_;
  std::vector<pending_sum<any_communicator>> sums_;           // of each bucket, then of the tree
  std::vector<std::pair<std::int64_t, std::int64_t>> order_;  // parts as the first backward told them: first, size
  bool is_learned_ = false;                                   // whether the buckets are of that order
  std::int64_t told_ = 0;                                     // parts of the batch at hand
  std::size_t next_ = 0;                                      // bucket that has not begun
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/train/trainer_ranks.ipp>
#endif
