// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>

#include "ceiling.hpp"
#include "inputs.hpp"

/// How fast memory is read, written and copied from one end to the other.
namespace tessera_bench {

namespace detail {

inline constexpr std::int64_t line_bytes = 64;

// f(first, last) on pieces of [first, last): more pieces than threads, so that a slow core takes fewer; a single one for one thread.
template <class F>
void in_pieces(tessera::host_exec const& exec, int threads, std::int64_t first, std::int64_t last, F const& f) {
  if (threads == 1) return f(first, last);
  auto const pieces = std::int64_t{8} * threads, count = last - first;
  exec.run(pieces, [&](std::int64_t p) { f(first + count * p / pieces, first + count * (p + 1) / pieces); });
}

// A loop over [0, count), of which each trial does the next quarter: a cache that is smaller than the other three has lost it since.
template <class F>
ceiling::loop by_quarters(tessera::host_exec const& exec, std::int64_t count, double bytes_each, F const& f) {
  return [=, next = std::int64_t{0}](int threads) mutable {
    auto const quarter = next++ % 4, first = count * quarter / 4, last = count * (quarter + 1) / 4;
    return static_cast<double>(last - first) * bytes_each / seconds_of([&] { in_pieces(exec, threads, first, last, f); });
  };
}

enum class stores { plain, streaming };

// One line read, or written, or both.
template <stores Stores>
void move_line(char* to, char const* from) {
#if defined(__AVX512F__)
  if constexpr (Stores == stores::streaming) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__SSE2__)
  if constexpr (Stores == stores::streaming) {
    for (int i = 0; i < 4; ++i)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(reinterpret_cast<__m128i const*>(from) + i));
    return;
  }
#endif
  std::memcpy(to, from, line_bytes);
}

// Lines [first, last) in so many streams side by side, four lines of each in turn: memory serves several pages faster than one.
template <int Streams, class F>
void in_streams(std::int64_t first, std::int64_t last, F const& line) {
  auto const each = (last - first) / Streams;
  for (std::int64_t i = 0; i < each; i += 4)
    for (int s = 0; s < Streams; ++s)
      for (auto l = i; l < std::min(i + 4, each); ++l) line(first + s * each + l);
  for (auto l = first + Streams * each; l < last; ++l) line(l);
}

inline void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
  keep(0);
}

// Memory in huge pages, as far as the system gives them, or in ordinary ones. Every page has been touched.
class pages {
 public:
  pages(tessera::host_exec const& exec, std::int64_t bytes, bool huge) {
    if (huge) {
      huge_.resize(exec, bytes);
      data_ = huge_.data();
    } else {
      small_.resize(static_cast<std::size_t>(bytes + line_bytes));
      data_ = small_.data() + (-reinterpret_cast<std::uintptr_t>(small_.data()) % line_bytes);
    }
    std::memset(data_, 1, static_cast<std::size_t>(bytes));
  }
  char* data() const { return data_; }

 private:
  tessera::buffer<char> huge_;
  std::vector<char> small_;
  char* data_;
};

template <int Streams, stores Stores>
ceiling::loop copy_loop(tessera::host_exec const& exec, std::shared_ptr<pages> const& from, std::shared_ptr<pages> const& to,
                        std::int64_t bytes) {
  return by_quarters(exec, bytes / line_bytes, 2 * line_bytes, [=](std::int64_t first, std::int64_t last) {
    in_streams<Streams>(first, last,
                        [&](std::int64_t l) { move_line<Stores>(to->data() + l * line_bytes, from->data() + l * line_bytes); });
    finish_stores();
  });
}

// Asks for each line so many bytes ahead; 0: leaves that to the hardware.
template <int Streams, std::int64_t Ahead>
ceiling::loop read_loop(tessera::host_exec const& exec, std::shared_ptr<pages> const& from, std::int64_t bytes) {
  return by_quarters(exec, bytes / line_bytes, line_bytes, [=](std::int64_t first, std::int64_t last) {
    std::uint64_t sum = 0;
    in_streams<Streams>(first, last, [&](std::int64_t l) {
      auto const* const line = from->data() + l * line_bytes;
      if constexpr (Ahead > 0) __builtin_prefetch(reinterpret_cast<void const*>(reinterpret_cast<std::uintptr_t>(line) + Ahead), 0, 2);
      std::uint64_t some;
      std::memcpy(&some, line, sizeof some);
      sum += some;
    });
    keep(sum);
  });
}

template <stores Stores>
ceiling::loop write_loop(tessera::host_exec const& exec, std::shared_ptr<pages> const& to, std::int64_t bytes) {
  return [=](int threads) {
    auto const rounds = std::max<std::int64_t>(sized(std::int64_t{1} << 27) / bytes, 1);
    auto const seconds = seconds_of([&] {
      for (std::int64_t round = 0; round < rounds; ++round)
        in_pieces(exec, threads, 0, bytes / line_bytes, [&](std::int64_t first, std::int64_t last) {
          char line[line_bytes];
          std::memset(line, 1, sizeof line);
          keep(line);
          for (auto l = first; l < last; ++l) move_line<Stores>(to->data() + l * line_bytes, line);
          finish_stores();
        });
    });
    return static_cast<double>(rounds * bytes) / seconds;
  };
}

}  // namespace detail

/// Bytes a second of a copy between two arrays of 256 MiB, those read and those written counted. A plain store reads a line before it
/// changes it, which is not counted, since a streaming store does not. Loops: both kinds of stores and memcpy, one stream or several at once,
/// huge pages and ordinary ones.
inline ceiling copy_ceiling(tessera::host_exec const& exec) {
  using namespace detail;
  auto const bytes = sized(std::int64_t{1} << 28);
  std::vector<ceiling::loop> loops;
  for (bool const huge : {true, false}) {
    auto const from = std::make_shared<pages>(exec, bytes, huge), to = std::make_shared<pages>(exec, bytes, huge);
    loops.push_back(by_quarters(exec, bytes, 2, [=](std::int64_t first, std::int64_t last) {
      std::memcpy(to->data() + first, from->data() + first, static_cast<std::size_t>(last - first));
      keep(0);
    }));
    loops.push_back(copy_loop<1, stores::plain>(exec, from, to, bytes));
    loops.push_back(copy_loop<4, stores::plain>(exec, from, to, bytes));
    loops.push_back(copy_loop<1, stores::streaming>(exec, from, to, bytes));
    loops.push_back(copy_loop<2, stores::streaming>(exec, from, to, bytes));
    loops.push_back(copy_loop<4, stores::streaming>(exec, from, to, bytes));
    loops.push_back(copy_loop<8, stores::streaming>(exec, from, to, bytes));
  }
  return {std::move(loops), exec.threads()};
}

/// Bytes a second of reading 256 MiB: in one stream or several at once, asked for ahead or not, in huge pages and small ones. Of each line one
/// word is read: the line comes as a whole.
inline ceiling read_ceiling(tessera::host_exec const& exec) {
  using namespace detail;
  auto const bytes = sized(std::int64_t{1} << 28);
  std::vector<ceiling::loop> loops;
  for (bool const huge : {true, false}) {
    auto const from = std::make_shared<pages>(exec, bytes, huge);
    loops.push_back(read_loop<1, 0>(exec, from, bytes));
    loops.push_back(read_loop<2, 0>(exec, from, bytes));
    loops.push_back(read_loop<4, 0>(exec, from, bytes));
    loops.push_back(read_loop<8, 0>(exec, from, bytes));
    loops.push_back(read_loop<1, 4096>(exec, from, bytes));
    loops.push_back(read_loop<4, 4096>(exec, from, bytes));
  }
  return {std::move(loops), exec.threads()};
}

/// Bytes a second of writing an array of so many bytes again and again, by plain or streaming stores. Each call of a benchmark writes its result
/// to the same place, which costs no less than this; where a cache holds the array, less than memory would take.
inline ceiling write_ceiling(tessera::host_exec const& exec, std::int64_t bytes) {
  using namespace detail;
  bytes = tessera::divide_up(bytes, line_bytes) * line_bytes;
  auto const to = std::make_shared<pages>(exec, bytes, true);
  return {{write_loop<stores::plain>(exec, to, bytes), write_loop<stores::streaming>(exec, to, bytes)}, exec.threads()};
}

}  // namespace tessera_bench
