// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/batch_copy.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Prepares nothing beside a batch: the default of prefetching_reader.
struct prepare_nothing {
  struct state {};
  void operator()(host_exec const&, batch_view const&, state&) const noexcept {}
};

struct prefetching_options {
  std::int64_t depth = 2;  ///< batches read ahead of the one in use
};

/// Reads batches ahead on a thread of its own: the same ones in the same order as the wrapped reader gives.
///
/// The thread starts here and calls the reader and `prepare(exec, batch, state)` with the `exec` given here, whose team and memory are no
/// other thread's unless they are safe to share; an empty ring lets the consumer wait, a full one the thread. `prepare` may fill a
/// `Prepare::state` (default-constructible, one a slot, used again and again) with what a step will need, sorted ids for instance.
/// What the reader or `prepare` throws is thrown again by the `next` that would have given that batch; as with the reader alone, the
/// position is then what it was. The thread has tried again meanwhile, once for each free slot of the ring: the next failures, up to depth + 1
/// of them, may have happened before the consumer learned of the first, and each is thrown by a `next` of its own.
/// The destructor waits for the batch that is being read, no longer; the reader then stands where the thread got to. Reader, team and
/// memory outlive it; the reader is nobody else's meanwhile. One consumer thread at a time.
template <reader Reader, class Prepare = prepare_nothing>
class prefetching_reader {
 public:
  using prepared_state = typename Prepare::state;

  /// Takes up where `wrapped` stands. @throws tessera::error invalid_argument for depth < 1, out_of_memory when the system refuses a thread.
  prefetching_reader(host_exec const& exec, Reader& wrapped, prefetching_options options = {}, Prepare prepare = {})
      : exec_(exec), wrapped_(&wrapped), prepare_(std::move(prepare)), produced_at_(place()), consumed_at_(produced_at_) {
    if (options.depth < 1 || options.depth > 1 << 20)
      throw error(errc::invalid_argument, "prefetching_reader: option depth", {{"depth", options.depth}, {"least", 1}});
    slots_.resize(static_cast<std::size_t>(options.depth) + 1);  // one more is in the consumer's hands
    start();
  }
  prefetching_reader(prefetching_reader const&) = delete;
  prefetching_reader& operator=(prefetching_reader const&) = delete;
  ~prefetching_reader() { stop(); }

  /// As the wrapped reader's `next`; waits for the batch if need be. Copies nothing and allocates nothing.
  bool next(host_exec const&, batch_view& out) {
    if (!thread_.joinable()) start(true);  // after a seek that was refused
    std::unique_lock lock(mutex_);
    if (in_use_ != nullptr) free_slot();
    not_empty_.wait(lock, [this] { return filled_ > freed_; });
    auto& slot = slots_[static_cast<std::size_t>(freed_ % size())];
    if (auto const failure = std::exchange(slot.failure, nullptr)) {
      free_slot();
      std::rethrow_exception(failure);
    }
    consumed_at_ = slot.after;
    if (!slot.has_batch) {
      free_slot();
      return false;
    }
    in_use_ = &slot;
    out = slot.batch.view();
    return true;
  }

  /// What `prepare` made for the batch that `next` gave last; the caller may change it until the next call.
  /// @throws tessera::error invalid_argument where `next` gave no batch.
  prepared_state& prepared() {
    if (in_use_ == nullptr) throw error(errc::invalid_argument, "prefetching_reader: no batch to have prepared for");
    return in_use_->state;
  }

  /// Of the batch that `next` gives next, however far the thread has read.
  position_of<Reader> position() const { return consumed_at_.position; }
  std::int64_t epoch_samples() const noexcept { return consumed_at_.epoch_samples; }

  /// Drops what was read ahead and goes on from there. @throws as the wrapped reader's; then the position is what it was.
  void seek(position_of<Reader> position) {
    stop();
    auto const before = consumed_at_;
    try {
      wrapped_->seek(position);
      produced_at_ = consumed_at_ = place();
      start();
    } catch (...) {
      produced_at_ = consumed_at_ = before;  // where `next` takes up again
      throw;
    }
  }

  /// Of the copies so far, without the wrapped reader and what `prepare` keeps.
  std::size_t bytes() const {
    std::lock_guard const lock(mutex_);
    auto sum = sizeof(*this) + slots_.capacity() * sizeof(ring_slot);
    for (auto const& slot : slots_) sum += slot.bytes;
    return sum;
  }

 private:
  struct place_in_epoch {
    position_of<Reader> position;
    std::int64_t epoch_samples = 0;
  };
  struct ring_slot {
    bool has_batch = false;  // else: the end of an epoch
    batch_copy batch;
    prepared_state state{};
    place_in_epoch after;
    std::exception_ptr failure;
    std::size_t bytes = 0;  // of the batch; under the mutex
  };

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(slots_.size()); }
  place_in_epoch place() const { return {wrapped_->position(), wrapped_->epoch_samples()}; }

  // `astray`: the reader stands elsewhere than at `produced_at_`.
  void start(bool astray = false) {
    filled_ = freed_ = 0;
    in_use_ = nullptr;
    stopping_ = false;
    failed_ = astray;
    for (auto& slot : slots_) slot.failure = nullptr;
    try {
      thread_ = std::thread([this] { work(); });
    } catch (std::system_error const& refusal) {
      throw error(errc::out_of_memory, "prefetching_reader: the system refuses a thread", {{"reason", refusal.what()}});
    }
  }

  void stop() noexcept {
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    not_full_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // Under the mutex: the thread may fill the oldest slot again.
  void free_slot() noexcept {
    in_use_ = nullptr;
    ++freed_;
    not_full_.notify_one();
  }

  void work() noexcept {
    for (;;) {
      std::unique_lock lock(mutex_);
      not_full_.wait(lock, [this] { return stopping_ || filled_ - freed_ < size(); });
      if (stopping_) return;
      auto& slot = slots_[static_cast<std::size_t>(filled_ % size())];
      lock.unlock();
      fill(slot);
      lock.lock();
      slot.bytes = slot.batch.bytes();
      ++filled_;
      not_empty_.notify_one();
    }
  }

  void fill(ring_slot& slot) noexcept {
    try {
      if (failed_) wrapped_->seek(produced_at_.position);  // what was read may have been lost in copying or preparing
      failed_ = true;
      batch_view batch;
      slot.has_batch = wrapped_->next(exec_, batch);
      if (slot.has_batch) {
        slot.batch.assign(exec_, batch);
        prepare_(exec_, slot.batch.view(), slot.state);
      }
      slot.after = produced_at_ = place();
      failed_ = false;
    } catch (...) {
      slot.failure = std::current_exception();
    }
  }

  host_exec exec_;
  Reader* wrapped_;
  Prepare prepare_;
  std::vector<ring_slot> slots_;
  ring_slot* in_use_ = nullptr;  // the consumer's
  bool failed_ = false;          // the thread's: the reader may not stand at `produced_at_`
  place_in_epoch produced_at_;   // the thread's
  place_in_epoch consumed_at_;   // the consumer's
  mutable std::mutex mutex_;     // of what follows
  std::condition_variable not_empty_, not_full_;
  std::int64_t filled_ = 0;  // slots since the start
  std::int64_t freed_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
