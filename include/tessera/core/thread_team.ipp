// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/thread_team.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE thread_pool::thread_pool(int threads) {
  if (threads < 1 || threads > 4096)
    throw error(errc::invalid_argument, "thread_pool: number of threads", {{"threads", threads}, {"least", 1}, {"most", 4096}});
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (std::system_error const& refusal) {
    stop();
    throw error(errc::out_of_memory, "thread_pool: the system refuses a thread",
                {{"threads", threads}, {"started", size()}, {"reason", refusal.what()}});
  }
}

TESSERA_INLINE void thread_pool::work() noexcept {
  for (int spins = 0; !stopping_.load(std::memory_order_relaxed);) {
    if (take_chunk<false>()) {
      spins = 0;
    } else if (++spins < spins_before_sleep) {
      pause(spins);
    } else {
      std::unique_lock lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [this] { return is_open() || stopping_.load(); });
      --sleeping_;
      spins = 0;
    }
  }
}

}  // namespace TESSERA_ABI
}  // namespace tessera
