// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/for_each_index.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Sums blocks of values in an order that the blocks' numbers alone fix. So the bits do not depend on who has which block.
///
///     sum_tree tree;
///     tree.start(0);  // the number of the first block here
///     for (…) {
///       fill(tree.next(exec, size));
///       tree.add(exec);
///     }
///     tree.join(exec, sum);
///
/// Blocks 0 … n - 1 are leaves of a binary tree. A node of 2^(h + 1) leaves, whose first one is a multiple of that, adds its two halves.
/// Nodes that lack a sibling, as n is no power of two, are added from the right to the left. A tree with some of the leaves holds the
/// largest nodes that these make: at most two of each size. Its memory is kept from `start` to `start`.
class sum_tree {
 public:
  /// The sum of leaves [first, first + leaves).
  struct node {
    std::int64_t first = 0;   ///< number of the first leaf
    std::int64_t leaves = 0;  ///< a power of two
    buffer<float> values;     ///< their sum
  };

  /// Forgets all nodes. The next leaf has number `first`.
  void start(std::int64_t first) {
    for (auto& one : nodes_) spare_.push_back(std::move(one.values));
    nodes_.clear();
    next_ = first;
  }

  /// Room for the values of the next leaf, (size,). They are the caller's until `add`.
  vector_view<float> next(host_exec const& exec, std::int64_t size) {
    if (spare_.empty()) spare_.emplace_back();
    spare_.back().resize(exec, size);
    return spare_.back().view();
  }
  /// The number of the next leaf.
  std::int64_t next_leaf() const noexcept { return next_; }
  /// Leaves out all leaves before `leaf`. @pre it is no less than `next_leaf()`
  void skip_to(std::int64_t leaf) noexcept { next_ = leaf; }

  /// Adds the next leaf, whose values `next` made room for.
  void add(host_exec const& exec) {
    auto const leaf = next_++;
    push(exec, leaf, 1);
  }
  /// Adds a node of another tree, all of whose leaves lie behind those here. Values (size,) are copied.
  void add(host_exec const& exec, std::int64_t first, std::int64_t leaves, vector_view<float const> values) {
    auto const to = next(exec, values.size());
    for_each_piece(exec, to.size(), values_per_piece,
                   [&](std::int64_t from, std::int64_t last) { std::copy(values.data() + from, values.data() + last, to.data() + from); });
    next_ = first + leaves;
    push(exec, first, leaves);
  }

  /// The nodes, by their first leaf.
  std::vector<node> const& nodes() const noexcept { return nodes_; }

  /// Overwrites `sum` (size,) with the sum of all leaves; zeros where there are none. @post there are no nodes
  /// @throws tessera::error shape_mismatch for nodes of another size. invalid_argument, naming it, for a leaf that is not here.
  void join(host_exec const& exec, vector_view<float> sum) {
    std::int64_t leaves = 0;
    for (auto const& one : nodes_) {
      if (one.first != leaves) throw error(errc::invalid_argument, "sum_tree: a leaf is missing", {{"leaf", leaves}});
      if (one.values.size() != sum.size())
        throw error(errc::shape_mismatch, "sum_tree: blocks of another size", {{"values", one.values.size()}, {"expected", sum.size()}});
      leaves += one.leaves;
    }
    for_each_piece(exec, sum.size(), values_per_piece, [&](std::int64_t first, std::int64_t last) {
      std::fill(sum.data() + first, sum.data() + last, 0.0F);
      if (nodes_.empty()) return;
      std::copy(nodes_.back().values.data() + first, nodes_.back().values.data() + last, sum.data() + first);
      for (auto n = nodes_.size() - 1; n-- > 0;)
        for (auto i = first; i < last; ++i) sum[i] = nodes_[n].values[i] + sum[i];
    });
    start(0);
  }

  /// Bytes of all nodes, and of memory that is kept.
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (auto const& one : nodes_) sum += one.values.capacity_bytes();
    for (auto const& one : spare_) sum += one.capacity_bytes();
    return sum;
  }

 private:
  static constexpr std::int64_t values_per_piece = 1 << 13;

  // The last of the spare blocks becomes a node, and joins those whose other half it is.
  void push(host_exec const& exec, std::int64_t first, std::int64_t leaves) {
    nodes_.push_back({first, leaves, std::move(spare_.back())});
    spare_.pop_back();
    while (nodes_.size() > 1) {
      auto& left = nodes_[nodes_.size() - 2];
      auto& right = nodes_.back();
      if (left.leaves != right.leaves || left.first + left.leaves != right.first || left.first % (2 * left.leaves) != 0) return;
      auto* const sum = left.values.data();
      auto const* const more = right.values.data();
      for_each_piece(exec, left.values.size(), values_per_piece, [=](std::int64_t from, std::int64_t last) {
        for (auto i = from; i < last; ++i) sum[i] += more[i];
      });
      left.leaves *= 2;
      spare_.push_back(std::move(right.values));
      nodes_.pop_back();
    }
  }

  std::vector<node> nodes_;
  std::vector<buffer<float>> spare_;
  std::int64_t next_ = 0;  // number of the next leaf
};

/// Returns the sum of values, by a tree of them. It depends on their number and order alone.
inline double sum_by_tree(vector_view<double const> values) noexcept {
  if (values.size() < 2) return values.empty() ? 0 : values[0];
  std::int64_t half = 1;
  while (half * 2 < values.size()) half *= 2;
  return sum_by_tree(values.slice(0, half)) + sum_by_tree(values.slice(half, values.size() - half));
}

}  // namespace TESSERA_ABI
}  // namespace tessera
