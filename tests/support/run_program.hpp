// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tessera_tests {

/// What a program did: exit status, or -signal; standard output and error as one text.
struct program_result {
  int status = 0;
  std::string output;

  std::string last_line() const {
    auto text = output;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    auto const newline = text.rfind('\n');
    return newline == std::string::npos ? text : text.substr(newline + 1);
  }
  bool says(std::string const& part) const { return output.find(part) != std::string::npos; }
};

/// A program that runs; `arguments[0]` is its path. Whoever forgets to wait for it kills it.
class running_program {
 public:
  explicit running_program(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
    if (child_ < 0) throw std::runtime_error("no process");
  }
  running_program(running_program const&) = delete;
  ~running_program() {
    kill();
    wait();
  }

  void kill() {
    if (child_ > 0) ::kill(child_, SIGKILL);
  }
  /// The processes that it has started and that live.
  std::vector<pid_t> children() const {
    auto const id = std::to_string(child_);
    std::ifstream list("/proc/" + id + "/task/" + id + "/children");
    std::vector<pid_t> all;
    for (pid_t one = 0; list >> one;) all.push_back(one);
    return all;
  }
  /// Whether it has ended, without waiting.
  bool ended() const {
    siginfo_t info{};
    return child_ <= 0 || (::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0);
  }
  program_result wait() {
    program_result result;
    if (child_ <= 0) return result;
    char piece[4096];
    for (;;) {
      auto const found = ::read(output_, piece, sizeof piece);
      if (found > 0) result.output.append(piece, static_cast<std::size_t>(found));
      if (found == 0 || (found < 0 && errno != EINTR)) break;
    }
    ::close(output_);
    int status = 0;
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    child_ = 0;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return result;
  }

 private:
  ::pid_t child_ = 0;
  int output_ = -1;
};

inline program_result run_program(std::vector<std::string> arguments) { return running_program(std::move(arguments)).wait(); }

}  // namespace tessera_tests
