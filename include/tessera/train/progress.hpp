// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include <tessera/core/config.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Shows a person how far a job is. A terminal has one line, redrawn ten times a second; any other output gets a line every ten seconds.
class progress {
 public:
  using clock = std::chrono::steady_clock;

  /// Starts the clock and draws nothing yet. `out` must stay open while this lives.
  /// `total` counts the samples of the whole job, 0: that is not known; `before` of them were done earlier and do not count in the rate.
  progress(std::FILE* out, bool is_terminal, std::int64_t total, std::int64_t before = 0) noexcept
      : out_(out), is_terminal_(is_terminal), total_(total), before_(before) {}
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;
  ~progress() { clear(); }

  /// Whether it is time for `show`. Until then the caller can skip what only a person needs.
  bool due() const noexcept { return clock::now() - shown_ >= (is_terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10)); }

  /// Draws `done` samples of the total, the time left, the caller's `figures` and the rate since the start, in samples a second. Without a
  /// total it draws the last two.
  void show(std::int64_t done, std::string const& figures) {
    shown_ = clock::now();
    auto const seconds = std::chrono::duration<double>(shown_ - started_).count();
    auto const rate = seconds > 0 ? static_cast<double>(done - before_) / seconds : 0;
    auto const share = done < total_ ? static_cast<double>(done) / static_cast<double>(total_) : 1;
    auto const left = rate > 0 && done < total_ ? static_cast<std::int64_t>(static_cast<double>(total_ - done) / rate) : 0;
    constexpr int width = 24;
    auto const filled = static_cast<std::size_t>(share * width);
    auto const bar = std::string(filled, '#') + std::string(width - filled, '.');
    // Without wrapping, so that on a narrow terminal the next drawing still replaces all of it; what matters most stands first.
    std::fputs(is_terminal_ ? "\r\033[K\033[?7l" : "", out_);
    if (total_ > 0)
      std::fprintf(out_, "[%s] %3.0f%%  %ld:%02ld left  ", bar.c_str(), std::floor(100 * share), static_cast<long>(left / 60),
                   static_cast<long>(left % 60));
    std::fprintf(out_, "%s  %.0f samples/s%s", figures.c_str(), rate, is_terminal_ ? "\033[?7h" : "\n");
    std::fflush(out_);
    drawn_ = is_terminal_;
  }

  /// Takes the line off a terminal, so that other output starts on an empty line. Elsewhere nothing happens.
  void clear() noexcept {
    if (drawn_) std::fputs("\r\033[K", out_);
    drawn_ = false;
  }

 private:
  std::FILE* out_;
  bool is_terminal_;
  std::int64_t total_, before_;
  clock::time_point started_ = clock::now();
  clock::time_point shown_ = started_;
  bool drawn_ = false;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
