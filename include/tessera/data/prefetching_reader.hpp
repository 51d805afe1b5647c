// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <tessera/core/background_thread.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/data/batch_copy.hpp>
#include <tessera/data/reader.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The `Prepare` of a `prefetching_reader` that prepares nothing beside a batch.
struct prepare_nothing {
  struct state {};
  void operator()(host_exec const&, batch_view const&, state&) const noexcept {}
};

/// Options of `prefetching_reader`.
struct prefetching_options {
  std::int64_t depth = 2;  ///< batches read ahead of the one in use
};

/// Reads batches ahead on a thread that the caller lends: the same batches in the same order as the wrapped reader gives.
///
///     background_thread thread;
///     prefetching_reader ahead(reader_exec, thread, reader);
///     for (batch_view batch; ahead.next(exec, batch);) run.step(exec, batch);
///
/// The thread calls the reader and `prepare(exec, batch, state)` with the `exec` given here. No other thread uses that team and memory
/// meanwhile, unless they are safe to share. Where no batch is ready, the consumer waits; where `depth` are ready, the thread waits.
/// `prepare` may fill a `Prepare::state` with what a step will need, sorted ids for instance. States are default-constructible; each slot
/// has one, which is used again and again.
///
/// What the reader or `prepare` throws is thrown again by the `next` that would have given that batch. The position is then what it was, as
/// with the reader alone. The thread tries again meanwhile, once for each free slot. So up to depth + 1 failures may have happened before
/// the consumer learns of the first. Each failure is thrown by a `next` of its own.
///
/// The destructor waits for the batch that is being read, no longer, and leaves the thread without a job. The reader then stands where the
/// thread got to. Thread, reader, team and memory outlive this object; nobody else uses the thread and the reader meanwhile. One consumer
/// thread at a time.
template <reader Reader, class Prepare = prepare_nothing>
class prefetching_reader {
 public:
  using prepared_state = typename Prepare::state;

  /// Goes on from where `wrapped` stands. @throws tessera::error invalid_argument for a depth below 1 or above 2^20, and for a thread that
  /// has another job.
  prefetching_reader(host_exec const& exec, background_thread& thread, Reader& wrapped, prefetching_options options = {},
                     Prepare prepare = {})
      : exec_(exec), thread_(&thread), wrapped_(&wrapped), prepare_(std::move(prepare)), produced_at_(place()), consumed_at_(produced_at_) {
    if (options.depth < 1 || options.depth > 1 << 20)
      throw error(errc::invalid_argument, "prefetching_reader: option depth", {{"depth", options.depth}, {"least", 1}});
    slots_.resize(static_cast<std::size_t>(options.depth) + 1);  // one more is in the consumer's hands
    start();
  }
  prefetching_reader(prefetching_reader const&) = delete;
  prefetching_reader& operator=(prefetching_reader const&) = delete;
  ~prefetching_reader() { stop(); }

  /// Gives the batch that the wrapped reader's `next` would give, and waits for it where need be. Copies nothing and allocates nothing.
  bool next(host_exec const&, batch_view& out) {
    if (!is_running_) start(true);  // after a seek that was refused
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

  /// What `prepare` made for the batch that `next` gave last. The caller may change it until the next call.
  /// @throws tessera::error invalid_argument where `next` gave no batch.
  prepared_state& prepared() {
    if (in_use_ == nullptr) throw error(errc::invalid_argument, "prefetching_reader: no batch to have prepared for");
    return in_use_->state;
  }

  /// The position of the batch that `next` gives next, however far the thread has read.
  position_of<Reader> position() const { return consumed_at_.position; }
  /// How many samples this epoch gave before that batch.
  std::int64_t epoch_samples() const noexcept { return consumed_at_.epoch_samples; }

  /// How many batches an epoch has, as the wrapped reader says.
  std::int64_t epoch_batches() const requires requires(Reader const& wrapped) { wrapped.epoch_batches(); }
  { return wrapped_->epoch_batches(); }

  /// Drops what was read ahead and goes on from `position`. @throws what the wrapped reader throws; the position is then what it was.
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

  /// Bytes of the batches that were copied so far, without the wrapped reader and what `prepare` keeps.
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
    thread_->start([this] { work(); });
    is_running_ = true;
  }

  void stop() noexcept {
    if (!is_running_) return;
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    not_full_.notify_one();
    thread_->wait();
    is_running_ = false;
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
  background_thread* thread_;
  Reader* wrapped_;
  Prepare prepare_;
  std::vector<ring_slot> slots_;
  bool is_running_ = false;      // the consumer's: the thread works for this reader
  ring_slot* in_use_ = nullptr;  // the consumer's
  bool failed_ = false;          // the thread's: the reader may not stand at `produced_at_`
  place_in_epoch produced_at_;   // the thread's
  place_in_epoch consumed_at_;   // the consumer's
  mutable std::mutex mutex_;     // of what follows
  std::condition_variable not_empty_, not_full_;
  std::int64_t filled_ = 0;  // slots since the start
  std::int64_t freed_ = 0;
  bool stopping_ = false;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
