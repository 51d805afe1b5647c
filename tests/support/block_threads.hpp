// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sanitizers.hpp"
#if TESSERA_TEST_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace tessera_tests {

#ifdef __x86_64__

/// A place to go on at, on a stack of its own. `swapcontext` would ask the kernel for signals each time, which was most of the time of kernels
/// with shared memory.
class stack_place {
 public:
  /// Begins with `enter(argument)`, which never returns.
  void begin(std::byte* stack, std::size_t bytes, void (*enter)(void*), void* argument) {
    auto* top = reinterpret_cast<void**>((reinterpret_cast<std::uintptr_t>(stack) + bytes) / 16 * 16);
    *--top = nullptr;  // to where `enter` would return
    *--top = reinterpret_cast<void*>(&start);
    *--top = reinterpret_cast<void*>(enter);  // as rbp
    *--top = argument;                        // as rbx
    top -= 4;
    pointer_ = top;
  }
  /// Keeps the running place here and goes on at `other`, until somebody goes on here.
  void leave_for(stack_place& other) { exchanged(&pointer_, other.pointer_); }

 private:
  // What a function must keep for its caller goes to the stack.
  __attribute__((naked)) static void exchange(void** /*own: rdi*/, void* /*other: rsi*/) {
    __asm__ volatile(
        "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
        "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
        "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
  }
  __attribute__((naked)) static void start() { __asm__ volatile("movq %rbx, %rdi\n\tjmpq *%rbp"); }
  // The compiler must not see which registers `exchange` leaves alone.
  static inline void (*volatile exchanged)(void**, void*) = &exchange;

  void* pointer_ = nullptr;
};

#else

class stack_place {
 public:
  void begin(std::byte* stack, std::size_t bytes, void (*enter)(void*), void* argument) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    enter_ = enter;
    argument_ = argument;
    auto const self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context_, reinterpret_cast<void (*)()>(&start), 2, static_cast<unsigned>(self), static_cast<unsigned>(self >> 32));
  }
  void leave_for(stack_place& other) { swapcontext(&context_, &other.context_); }

 private:
  static void start(unsigned low, unsigned high) {
    auto const& self = *reinterpret_cast<stack_place*>(static_cast<std::uintptr_t>(high) << 32 | low);
    self.enter_(self.argument_);
  }

  ucontext_t context_{};
  void (*enter_)(void*) = nullptr;
  void* argument_ = nullptr;
};

#endif

/// Threads of one block, each on a stack of its own, that wait for each other where the kernel says so.
class block_threads {
 public:
  explicit block_threads(int threads) : fibers_(static_cast<std::size_t>(threads)) {
    for (auto& f : fibers_) {
      f.stack.reset(new std::byte[stack_bytes]);
      f.place.begin(f.stack.get(), stack_bytes, &enter, this);
    }
  }
  block_threads(block_threads const&) = delete;
  block_threads& operator=(block_threads const&) = delete;

  /// Calls body(t) for each thread, in this order as far as barriers let it. Fails the test where threads wait for what never comes.
  void run(std::function<void(int)> const& body, std::vector<int> const& order) {
    body_ = &body;
    for (auto& f : fibers_) f.state = fiber::ready;
    for (bool progress = true; progress;) {
      progress = false;
      for (int const t : order) {
        if (fibers_[static_cast<std::size_t>(t)].state != fiber::ready) continue;
        resume(t);
        progress = true;
      }
    }
    for (auto const& f : fibers_)
      if (f.state != fiber::done) {
        std::fputs("emulated device: a thread waits for others that do not come\n", stderr);
        std::abort();
      }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// Of the running thread: waits until the `width` threads of its aligned group have called it.
  void wait(int width) {
    auto const first = running_ / width * width;
    auto& own = fibers_[static_cast<std::size_t>(running_)];
    own.state = fiber::waiting;
    own.width = width;
    bool all = true;
    for (auto t = first; all && t < first + width; ++t) {
      auto const& f = fibers_[static_cast<std::size_t>(t)];
      all = f.state == fiber::waiting && f.width == width;
    }
    if (all)
      for (auto t = first; t < first + width; ++t) fibers_[static_cast<std::size_t>(t)].state = fiber::ready;
    leave(own);
  }

 private:
  static constexpr std::size_t stack_bytes = 256 * 1024;
  struct fiber {
    enum { ready, waiting, done } state = done;
    int width = 0;
    stack_place place;
    std::unique_ptr<std::byte[]> stack;
    void* fake_stack = nullptr;
  };

  void resume(int t) {
    auto& f = fibers_[static_cast<std::size_t>(t)];
    running_ = t;
#if TESSERA_TEST_ASAN
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, f.stack.get(), stack_bytes);
#endif
    scheduler_.leave_for(f.place);
#if TESSERA_TEST_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
  }

  void leave(fiber& own) {
#if TESSERA_TEST_ASAN
    __sanitizer_start_switch_fiber(&own.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
#endif
    own.place.leave_for(scheduler_);
#if TESSERA_TEST_ASAN
    __sanitizer_finish_switch_fiber(own.fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
  }

  // A thread of block after block.
  static void enter(void* team) {
    auto& self = *static_cast<block_threads*>(team);
#if TESSERA_TEST_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &self.scheduler_stack_, &self.scheduler_stack_bytes_);
#endif
    for (;;) {
      try {
        (*self.body_)(self.running_);
      } catch (...) {
        if (!self.failure_) self.failure_ = std::current_exception();
      }
      auto& own = self.fibers_[static_cast<std::size_t>(self.running_)];
      own.state = fiber::done;
      self.leave(own);
    }
  }

  std::vector<fiber> fibers_;
  std::function<void(int)> const* body_ = nullptr;
  stack_place scheduler_;
  [[maybe_unused]] void const* scheduler_stack_ = nullptr;
  [[maybe_unused]] std::size_t scheduler_stack_bytes_ = 0;
  int running_ = 0;
  std::exception_ptr failure_;
};

}  // namespace tessera_tests
