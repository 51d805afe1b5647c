// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

namespace tessera_bench {

/// Seconds that one call takes.
template <class F>
double seconds_of(F const& f) {
  auto const start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds of the fastest of `rounds` calls.
template <class F>
double fastest(int rounds, F const& f) {
  double best = 1e300;
  for (int round = 0; round < rounds; ++round) best = std::min(best, seconds_of(f));
  return best;
}

/// Keeps the compiler from leaving out `value`, or what was written to memory before it.
template <class T>
void keep(T const& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// What the machine reaches at best in one kind of work: the rate of the fastest of several loops that do nothing else. It is measured in the
/// process that is judged, on its threads and memory, before the work and after it.
class ceiling {
 public:
  /// One trial on so many threads; returns its rate in units of work a second.
  using loop = std::function<double(int threads)>;

  ceiling() = default;
  /// Chooses the best of the loops on `threads` threads, then tries it on one thread too.
  ceiling(std::vector<loop> loops, int threads) : threads_(threads) {
    for (auto& candidate : loops) {
      auto const rate = best_of(2, candidate, threads);
      if (rate <= found_) continue;
      found_ = rate;
      loop_ = std::move(candidate);
    }
    if (!loop_) return;
    if (auto const rate = best_of(3, loop_, 1); rate > found_) {
      found_ = rate;
      threads_ = 1;
    }
    before_ = after_ = best_of(trials, loop_, threads_);
  }

  /// Measures the chosen loop again, after the work.
  void measure_again() {
    if (loop_) after_ = best_of(trials, loop_, threads_);
  }

  /// The best rate of all measurements.
  double rate() const { return std::max({found_, before_, after_}); }
  /// 1 - slower / faster of the rates before and after the work.
  double moved() const { return before_ == after_ ? 0 : 1 - std::min(before_, after_) / std::max(before_, after_); }

 private:
  static constexpr int trials = 6;

  static double best_of(int rounds, loop const& run, int threads) {
    double best = 0;
    for (int round = 0; round < rounds; ++round) best = std::max(best, run(threads));
    return best;
  }

  loop loop_;
  int threads_ = 1;
  double found_ = 0, before_ = 0, after_ = 0;
};

}  // namespace tessera_bench
