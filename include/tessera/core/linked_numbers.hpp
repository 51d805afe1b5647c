// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/execution.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The ends of a list that `linked_numbers` holds.
struct number_list {
  std::int64_t first = -1;
  std::int64_t last = -1;
  constexpr bool empty() const noexcept { return first < 0; }
};

/// Doubly linked lists over the numbers 0, 1, 2, …, with a value for each number. A number is in one list at most; the caller knows in
/// which. Every change takes the same time for lists of any length. One thread at a time.
/// @pre numbers are in [0, capacity()), which a checked build checks
template <class Value>
class linked_numbers {
 public:
  static constexpr std::int64_t none = -1;

  /// Makes room for the numbers below `count`, by doubling.
  void reserve(host_exec const& exec, std::int64_t count) { grow(exec, nodes_, count); }
  /// How many numbers there is room for.
  std::int64_t capacity() const noexcept { return nodes_.size(); }

  Value& operator[](std::int64_t number) noexcept(!checks_indices) { return nodes_[number].value; }
  Value const& operator[](std::int64_t number) const noexcept(!checks_indices) { return nodes_[number].value; }
  /// The number after this one in its list, or `none`.
  std::int64_t next(std::int64_t number) const noexcept(!checks_indices) { return nodes_[number].next; }
  /// The number before this one in its list, or `none`.
  std::int64_t previous(std::int64_t number) const noexcept(!checks_indices) { return nodes_[number].previous; }
  [[gnu::always_inline]] void prefetch(std::int64_t number) const noexcept(!checks_indices) { __builtin_prefetch(&nodes_[number], 1); }

  /// Appends a number to a list.
  void push_back(number_list& list, std::int64_t number) noexcept(!checks_indices) { insert_after(list, list.last, number); }
  /// Inserts a number after `place`, or at the front where that is `none`.
  void insert_after(number_list& list, std::int64_t place, std::int64_t number) noexcept(!checks_indices) {
    auto const behind = place == none ? list.first : nodes_[place].next;
    nodes_[number].previous = place;
    nodes_[number].next = behind;
    (place == none ? list.first : nodes_[place].next) = number;
    (behind == none ? list.last : nodes_[behind].previous) = number;
  }
  /// Removes a number from its list.
  void remove(number_list& list, std::int64_t number) noexcept(!checks_indices) {
    auto const [before, behind, value] = nodes_[number];
    (before == none ? list.first : nodes_[before].next) = behind;
    (behind == none ? list.last : nodes_[behind].previous) = before;
  }

  std::size_t bytes() const noexcept { return nodes_.capacity_bytes(); }
  static constexpr std::size_t bytes_for(std::int64_t count) noexcept { return static_cast<std::size_t>(count) * sizeof(node); }

 private:
  struct node {
    std::int64_t previous;
    std::int64_t next;
    Value value;
  };
  buffer<node> nodes_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
