// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace tessera_bench {

/// Seconds that all cores together have worked, as /proc/stat tells it: for users and for the system, and for others than this machine
/// (`steal`), but not idle. Not a number where the text says nothing.
inline double busy_seconds(std::string const& stat, double ticks_a_second) {
  std::istringstream in(stat);
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0, steal = 0;
  if (!(in >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> steal) || name != "cpu")
    return std::numeric_limits<double>::quiet_NaN();
  return (user + nice + system + interrupts + soft_interrupts + steal) / ticks_a_second;
}

/// Since it was made: how many cores, on the average, worked for others than this process. One neighbour that never rests is 1, whatever the
/// number of cores: where the work takes all cores, each of its parallel regions waits for the core that is shared.
class neighbour_watch {
 public:
  neighbour_watch() : start_(now()) {}

  /// Not a number where the system does not say. It counts in hundredths of a second, so that a short spell may come out below nothing.
  double cores() const {
    auto const end = now();
    return ((end.busy - start_.busy) - (end.own - start_.own)) / std::max(end.wall - start_.wall, 1e-9);
  }

 private:
  struct times {
    double wall, busy, own;
  };

  static times now() {
    std::ifstream file("/proc/stat");
    std::string line;
    std::getline(file, line);
    rusage self{}, children{};
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
            busy_seconds(line, static_cast<double>(sysconf(_SC_CLK_TCK))), seconds(self) + seconds(children)};
  }
  static double seconds(rusage const& used) {
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  }

  times start_;
};

}  // namespace tessera_bench
