// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// One thread that the caller owns and lends: `prefetching_reader` reads ahead on it. It runs one job at a time and sleeps between jobs.
///
///     background_thread thread;
///     thread.start([&] { prepare(next); });
///     work();
///     thread.wait();
class background_thread {
 public:
  /// Starts the thread. @throws tessera::error out_of_memory when the system refuses a thread.
  background_thread() {
    try {
      thread_ = std::thread([this] { work(); });
    } catch (std::system_error const& refusal) {
      throw error(errc::out_of_memory, "background_thread: the system refuses a thread", {{"reason", refusal.what()}});
    }
  }
  background_thread(background_thread const&) = delete;
  background_thread& operator=(background_thread const&) = delete;
  /// Waits for the job that is under way.
  ~background_thread() {
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    begins_.notify_one();
    thread_.join();
  }

  /// Runs `job()` on the thread and returns at once. A job that throws ends the program. What the caller wrote before is visible to the job.
  /// @throws tessera::error invalid_argument while another job is under way.
  void start(std::function<void()> job) {
    {
      std::lock_guard const lock(mutex_);
      if (job_) throw error(errc::invalid_argument, "background_thread: another job is under way");
      job_ = std::move(job);
    }
    begins_.notify_one();
  }

  /// Returns when no job is under way. What the last job wrote is then visible to the caller.
  void wait() {
    std::unique_lock lock(mutex_);
    ends_.wait(lock, [this] { return !job_; });
  }

 private:
  void work() noexcept {
    for (std::unique_lock lock(mutex_);;) {
      begins_.wait(lock, [this] { return job_ || stopping_; });
      if (!job_) return;
      lock.unlock();
      job_();
      lock.lock();
      job_ = nullptr;
      ends_.notify_all();
    }
  }

  std::mutex mutex_;  // of what follows; the job itself is read by the thread alone while it runs
  std::condition_variable begins_, ends_;
  std::function<void()> job_;  // the one under way, or none
  bool stopping_ = false;
  std::thread thread_;  // after all that it reads
};

}  // namespace TESSERA_ABI
}  // namespace tessera
