// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/config.hpp>

// How the lists of one session and feature come to share runs: each list, one after the other, is laid where it overlaps a run longest.
namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// Values that follow each other, and their weights or nullptr.
template <class T>
struct value_list {
  T const* values = nullptr;
  float const* weights = nullptr;
  std::int64_t size = 0;

  value_list part(std::int64_t first, std::int64_t count) const noexcept {
    return {values + first, weights == nullptr ? nullptr : weights + first, count};
  }
  bool same_at(std::int64_t i, value_list const& other, std::int64_t j) const noexcept {
    return std::memcmp(values + i, other.values + j, sizeof(T)) == 0 &&
           (weights == nullptr || std::memcmp(weights + i, other.weights + j, sizeof(float)) == 0);
  }
  /// Bit for bit. @pre as many of each.
  bool same(value_list const& other) const noexcept {
    auto const count = static_cast<std::size_t>(size);
    return std::memcmp(values, other.values, count * sizeof(T)) == 0 &&
           (weights == nullptr || std::memcmp(weights, other.weights, count * sizeof(float)) == 0);
  }
  /// The first place from `first` on with the value that `other` has at 0, or `size`.
  std::int64_t find_first(std::int64_t first, value_list const& other) const noexcept {
    // Blocks without a branch, which the compiler makes several comparisons at a time of.
    constexpr std::int64_t block = 32;
    if constexpr (std::is_integral_v<T>) {
      auto const sought = *other.values;
      for (; first + block <= size; first += block) {
        T found = 0;
        for (std::int64_t i = 0; i < block; ++i) found = static_cast<T>(found | static_cast<T>(values[first + i] == sought));
        if (found != 0) break;
      }
    }
    while (first < size && !same_at(first, other, 0)) ++first;
    return first;
  }
};

/// Finds where a pattern lies in a text, or where it begins that is cut off by the text's end: Knuth, Morris and Pratt's search.
template <class T, class Number>
class border_search {
 public:
  /// `borders` (pattern.size,), which it writes: how long a part of the pattern's first i + 1 values both begins and ends them.
  border_search(value_list<T> pattern, Number* borders) noexcept : pattern_(pattern), borders_(borders) {
    std::int64_t length = 0;
    borders_[0] = 0;
    for (std::int64_t i = 1; i < pattern_.size; ++i) borders_[i] = static_cast<Number>(length = longer(length, pattern_, i));
  }

  /// The first place from `first` on at which the whole pattern or, cut off by the end, its longest part begins; text.size where none does.
  std::int64_t operator()(value_list<T> const& text, std::int64_t first) const noexcept {
    std::int64_t length = 0;
    for (; first < text.size; ++first) {
      length = longer(length, text, first);
      if (length == pattern_.size) return first + 1 - length;
    }
    return text.size - length;
  }

 private:
  std::int64_t longer(std::int64_t length, value_list<T> const& text, std::int64_t i) const noexcept {
    while (length > 0 && !pattern_.same_at(length, text, i)) length = borders_[length - 1];
    return length + (pattern_.same_at(length, text, i) ? 1 : 0);
  }

  value_list<T> pattern_;
  Number* borders_;
};

/// One run in the memory of its session: `gap` places that are free, then `size` values from `begin` on, of which `front` came before those of
/// its first list.
struct session_run {
  std::int64_t begin, size, gap, front;
};

/// The runs of one session and feature. Memory is given: twice as many values, and as many runs, as the lists have that come. Runs lie one
/// behind the other in the order in which they last grew; one that grows moves behind all others.
///
/// A list is compared with the last runs as far as work allows that is linear in it: with the tail of the last one, and with those before it
/// until `searched(size)` values have been looked at.
template <class T, class Number>
class session_runs {
 public:
  struct memory {
    T* values;
    float* weights;   // or nullptr
    Number* borders;  // as many as the longest list has values
    session_run* runs;
    std::int64_t* order;
  };
  /// Where a list lies: `first` values behind the first one of the first list of its run, maybe before it.
  struct place {
    std::int64_t run, first;
  };

  static constexpr std::int64_t searched(std::int64_t size) noexcept { return 32 * size + 1024; }

  explicit session_runs(memory const& there) noexcept : memory_(there) {}

  std::int64_t count() const noexcept { return count_; }
  std::int64_t values() const noexcept { return values_; }

  /// @pre the list is not empty.
  place add(value_list<T> list) noexcept {
    auto const found = best_overlap(list);
    if (found.shared == 0) return start(list);
    auto const front = std::max<std::int64_t>(0, -found.at);
    auto const back = std::max<std::int64_t>(0, found.at + list.size - run_at(found.height).size);
    auto const run = front + back > 0 ? raise(found.height) : memory_.order[found.height];
    if (front > 0) grow_front(memory_.runs[run], list.part(0, front));
    if (back > 0) {
      write(top_, list.part(list.size - back, back));
      memory_.runs[run].size += back;
      top_ += back;
    }
    values_ += front + back;
    return {run, found.at + front - memory_.runs[run].front};
  }

 private:
  // The list's first value lies at place `at` of the run that is so high, maybe before its first.
  struct overlap {
    std::int64_t height = 0, at = 0, shared = 0;
  };

  session_run& run_at(std::int64_t height) const noexcept { return memory_.runs[memory_.order[height]]; }
  value_list<T> content(session_run const& run) const noexcept {
    return {memory_.values + run.begin, memory_.weights == nullptr ? nullptr : memory_.weights + run.begin, run.size};
  }

  overlap best_overlap(value_list<T> const& list) const noexcept {
    overlap best;
    auto work = searched(list.size);
    for (auto height = count_; height-- > 0 && best.shared < list.size;) {
      auto const run = content(run_at(height));
      auto const cost = run.size + list.size;
      if (cost > work && height + 1 < count_) break;
      auto const consider = [&](std::int64_t at) {
        auto const shared = std::min(run.size, at + list.size) - std::max<std::int64_t>(0, at);
        if (shared > best.shared) best = {height, at, shared};
      };
      consider(place_behind(run, std::max<std::int64_t>(0, run.size - work), list));
      if (best.shared < std::min(run.size, list.size - 1)) consider(place_before(run, list));
      work -= cost;
    }
    return best;
  }

  // Where the list begins in the run, from `first` on, be it that it ends past it; run.size where it does not.
  std::int64_t place_behind(value_list<T> const& run, std::int64_t first, value_list<T> const& list) const noexcept {
    auto const at = run.find_first(first, list);
    if (at == run.size) return at;
    // Most lists lie at the first place that begins as they do; the others are to be searched for.
    auto const count = std::min(list.size, run.size - at);
    if (run.part(at, count).same(list.part(0, count))) return at;
    return border_search<T, Number>(list, memory_.borders)(run, at + 1);
  }

  // Where, before its own, the run's first value lies as some value of the list, from which on both are the same; -list.size: nowhere.
  std::int64_t place_before(value_list<T> const& run, value_list<T> const& list) const noexcept {
    auto const at = list.find_first(1, run);
    if (at == list.size) return -at;
    auto const count = std::min(run.size, list.size - at);
    if (list.part(at, count).same(run.part(0, count))) return -at;
    return -border_search<T, Number>(run.part(0, std::min(run.size, list.size)), memory_.borders)(list, at + 1);
  }

  place start(value_list<T> const& list) noexcept {
    memory_.runs[count_] = {top_, list.size, 0, 0};
    memory_.order[count_] = count_;
    write(top_, list);
    top_ += list.size;
    values_ += list.size;
    return {count_++, 0};
  }

  // Moves a run behind all others.
  std::int64_t raise(std::int64_t height) noexcept {
    auto const run = memory_.order[height];
    if (height + 1 == count_) return run;
    auto const first = memory_.runs[run].begin - memory_.runs[run].gap, end = memory_.runs[run].begin + memory_.runs[run].size;
    std::rotate(memory_.values + first, memory_.values + end, memory_.values + top_);
    if (memory_.weights != nullptr) std::rotate(memory_.weights + first, memory_.weights + end, memory_.weights + top_);
    for (auto h = height + 1; h < count_; ++h) {
      run_at(h).begin -= end - first;
      memory_.order[h - 1] = memory_.order[h];
    }
    memory_.order[count_ - 1] = run;
    memory_.runs[run].begin += top_ - end;
    return run;
  }

  // Of the last run. Where the gap is too small it becomes as large as the run, so that each value moves a few times on average.
  void grow_front(session_run& run, value_list<T> const& list) noexcept {
    if (run.gap < list.size) {
      auto const to = run.begin - run.gap + run.size + list.size;
      std::memmove(memory_.values + to, memory_.values + run.begin, static_cast<std::size_t>(run.size) * sizeof(T));
      if (memory_.weights != nullptr)
        std::memmove(memory_.weights + to, memory_.weights + run.begin, static_cast<std::size_t>(run.size) * sizeof(float));
      run.gap = run.size + list.size;
      run.begin = to;
      top_ = to + run.size;
    }
    run.begin -= list.size;
    run.gap -= list.size;
    run.size += list.size;
    run.front += list.size;
    write(run.begin, list);
  }

  void write(std::int64_t at, value_list<T> const& list) noexcept {
    std::copy_n(list.values, list.size, memory_.values + at);
    if (memory_.weights != nullptr) std::copy_n(list.weights, list.size, memory_.weights + at);
  }

  memory memory_;
  std::int64_t count_ = 0, values_ = 0, top_ = 0;
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
