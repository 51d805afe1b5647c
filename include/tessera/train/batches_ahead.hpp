// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/tensor/batch.hpp>
#include <tessera/train/trainer_ranks.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Batches whose forward has begun, in the order of their steps. Their memory is kept from batch to batch.
template <class Saved>
class batches_ahead {
 public:
  struct one {
    batch_view batch;
    trainer_ranks::whole_batch whole;
    Saved saved;
    std::exception_ptr failure;  ///< of the forward's beginning, on this rank alone
  };

  /// What a further batch is to be begun with.
  one next(batch_view const& batch) {
    one made;
    made.batch = batch;
    if (!spare_.empty()) {
      made.saved = std::move(spare_.back());
      spare_.pop_back();
    }
    return made;
  }
  void add(one begun) { begun_.push_back(std::move(begun)); }

  /// Swaps `saved` with what is ahead of a batch, and returns the batch's sums; nothing where no batch is ahead.
  /// @throws tessera::error invalid_argument for another batch than the first one ahead.
  std::optional<trainer_ranks::whole_batch> take(batch_view const& batch, Saved& saved) {
    if (begun_.empty()) return {};
    auto& first = begun_.front();
    if (first.batch.labels.data() != batch.labels.data() || first.batch.samples() != batch.samples() ||
        first.batch.sparse.values != batch.sparse.values)
      throw error(errc::invalid_argument, "trainer: another batch than the one that was looked ahead",
                  {{"samples", batch.samples()}, {"samples looked ahead", first.batch.samples()}});
    if constexpr (requires { saved.times; }) std::swap(saved.times, first.saved.times);  // which go on
    std::swap(saved, first.saved);
    auto const whole = first.whole;
    failure_ = std::exchange(first.failure, nullptr);
    spare_.push_back(std::move(first.saved));
    begun_.pop_front();
    return whole;
  }
  /// Throws what the beginning of the batch that was taken last threw, once.
  void rethrow() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  std::deque<one> begun_;
  std::vector<Saved> spare_;  // of batches before
  std::exception_ptr failure_;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
