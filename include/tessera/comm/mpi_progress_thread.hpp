// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include <tessera/core/error.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// Who may call MPI, of the threads that share a progress thread.
struct mpi_turns {
  std::recursive_mutex calls;      // held around calls of MPI
  std::atomic<int> exchanges = 0;  // under way
  std::atomic<int> waiting = 0;    // threads that call MPI themselves until theirs is done
  std::mutex sleep;                // of the progress thread
  std::condition_variable wake;
  bool stopping = false;  // under `sleep`

  void add_exchange() {
    if (exchanges.fetch_add(1) > 0) return;
    std::lock_guard const lock(sleep);
    wake.notify_one();
  }
};

}  // namespace detail

/// A thread that calls MPI while ranks compute, so that messages move between `begin` and `finish` of an `mpi_communicator`. The caller makes
/// and owns it.
///
///     mpi_session mpi(argc, argv);
///     mpi_progress_thread progress;
///     mpi_communicator comm(mpi.world(), {}, &progress);
///
/// It sleeps where nothing is under way, and leaves the work to a `finish` that waits. One serves all communicators of a process. While it
/// lives, other calls of MPI need MPI_THREAD_MULTIPLE. It ends after the communicators that use it, and before MPI does.
/// `comm_mpi_overlap_bench` measures it.
class mpi_progress_thread {
 public:
  /// Starts the thread. It sleeps `pause` between calls of MPI; 0: it calls all the time. @throws tessera::error out_of_memory where the system refuses a thread.
  explicit mpi_progress_thread(std::chrono::microseconds pause = std::chrono::microseconds(20))
      : turns_(std::make_shared<detail::mpi_turns>()) {
    try {
      thread_ = std::thread([turns = turns_, pause] { work(*turns, pause); });
    } catch (std::system_error const& refusal) {
      throw error(errc::out_of_memory, "mpi_progress_thread: the system refuses a thread", {{"reason", refusal.what()}});
    }
  }
  mpi_progress_thread(mpi_progress_thread const&) = delete;
  mpi_progress_thread& operator=(mpi_progress_thread const&) = delete;
  ~mpi_progress_thread() {
    {
      std::lock_guard const lock(turns_->sleep);
      turns_->stopping = true;
      turns_->wake.notify_one();
    }
    thread_.join();
  }

 private:
  friend class mpi_communicator;

  static void work(detail::mpi_turns& turns, std::chrono::microseconds pause) noexcept {
    for (std::unique_lock lock(turns.sleep);;) {
      turns.wake.wait(lock, [&] { return turns.stopping || turns.exchanges > 0; });
      if (turns.stopping) return;
      lock.unlock();
      if (turns.waiting == 0) {
        std::lock_guard const turn(turns.calls);
        int there = 0;
        // Finds nothing: any call moves all messages.
        if (turns.exchanges > 0) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
      }
      std::this_thread::sleep_for(pause);
      lock.lock();
    }
  }

  std::shared_ptr<detail::mpi_turns> turns_;
  std::thread thread_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
