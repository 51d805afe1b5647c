// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/communicator.hpp>
#include <tessera/comm/sum_tree.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Which of `count` values rank `rank` of `ranks` sums: [first, last). The parts cover all values, in the order of ranks, and their bounds
/// are multiples of 16 values but for the last.
struct summed_part {
  std::int64_t first = 0;  ///< number of its first value
  std::int64_t last = 0;   ///< number behind its last value

  /// No values.
  constexpr summed_part() = default;
  /// The part of one of several ranks.
  constexpr summed_part(std::int64_t count, std::int64_t ranks, std::int64_t rank) noexcept
      : first(bound(count, ranks, rank)), last(bound(count, ranks, rank + 1)) {}
  /// How many values it has.
  constexpr std::int64_t size() const noexcept { return last - first; }

 private:
  static constexpr std::int64_t bound(std::int64_t count, std::int64_t ranks, std::int64_t rank) noexcept {
    auto const units = divide_up(count, 16);
    return std::min(count, (units / ranks * rank + units % ranks * rank / ranks) * 16);
  }
};

/// What a sum over ranks has under way. The caller owns it, and may use it again; its memory is kept.
template <communicator C>
struct pending_sum {
  vector_view<float> values;                      ///< which become their sums
  std::vector<summed_part> parts;                 ///< of the values, at each level: what this rank sums
  std::vector<buffer<std::byte>> nodes;           ///< to each rank of a level, where a tree sums
  std::vector<sum_tree> trees;                    ///< of each level: the tree's nodes of all its ranks, of the part that this rank sums
  std::vector<typename C::pending_type> pending;  ///< of each level; they end before what they send
};

/// Ranks as they sum: level by level, from the innermost to the outermost. A communicator of level l joins this rank with the ranks that
/// sum the same part of the values after the levels below.
///
/// With one level, sums run in the order of ranks. `split_by_levels` makes levels of a topology. With hosts as its level, each host sums in
/// the order of its ranks, and then the sums of hosts are added in the order of hosts. Each value so leaves a host once.
/// The order depends on the levels alone, so all models of `communicator` give the same bits.
///
/// A `sum_tree` of which each rank has some leaves sums in its own order. Levels then change the messages, but not the bits.
template <communicator C>
class rank_sums {
 public:
  /// Sums in the order of ranks. @pre the communicator outlives it
  explicit rank_sums(C& comm) : levels_{&comm} {}
  /// Sums level by level, of at least one level, such as those of `split_by_levels`.
  /// @pre all communicators outlive it @throws tessera::error invalid_argument without levels.
  explicit rank_sums(std::vector<C>& levels)
      : rank_sums([&] {
          std::vector<C*> all;
          all.reserve(levels.size());
          for (auto& level : levels) all.push_back(&level);
          return all;
        }()) {}
  /// Sums level by level, as above.
  explicit rank_sums(std::vector<C*> levels) : levels_(std::move(levels)) {
    if (levels_.empty()) throw error(errc::invalid_argument, "rank_sums: no levels");
  }

  /// Starts to replace `values` by their sums over all ranks, which all give as many values. They stay where they are until `finish_all`.
  /// @throws tessera::error as `communicator` says.
  void begin_all(host_exec const& exec, vector_view<float> values, pending_sum<C>& sum) {
    sum.values = values;
    sum.parts.resize(levels_.size());
    sum.pending.resize(levels_.size());
    send_parts(exec, 0, sum);
  }

  /// Waits for the sums. @post all ranks have the same bits. @throws tessera::error as `communicator` says; incompatible where ranks gave
  /// other numbers of values.
  void finish_all(host_exec const& exec, pending_sum<C>& sum) {
    finish_part(exec, sum);
    share(exec, sum);
  }

  /// Which of `count` values `finish_part` gives this rank the sums of. The parts of all ranks cover the values once; with one level, they
  /// follow each other in the order of ranks.
  summed_part part(std::int64_t count) const noexcept {
    summed_part own(count, 1, 0);
    for (auto const* const level : levels_) {
      summed_part const of(own.size(), level->size(), level->rank());
      own.last = own.first + of.last;
      own.first += of.first;
    }
    return own;
  }

  /// Starts a reduce-scatter: replaces the values of this rank's part by their sums over all ranks, which all give as many values. They stay
  /// where they are until `finish_part`.
  ///
  ///     sums.begin_part(exec, gradients, sum);
  ///     auto const own = sums.finish_part(exec, sum);  // becomes parameters, say
  ///     sums.share(exec, sum);                         // which then all ranks have
  ///
  /// @throws tessera::error as `communicator` says.
  void begin_part(host_exec const& exec, vector_view<float> values, pending_sum<C>& sum) { begin_all(exec, values, sum); }

  /// Waits for the sums of this rank's part, `part(values.size())`, and returns them, in their place among the values. Their bits are those of
  /// `finish_all`. With several levels, values beside the part are of no meaning then. @throws tessera::error as `finish_all`.
  vector_view<float> finish_part(host_exec const& exec, pending_sum<C>& sum) {
    add_parts(exec, 0, sum);
    for (std::size_t l = 1; l < levels_.size(); ++l) {
      send_parts(exec, l, sum);
      add_parts(exec, l, sum);
    }
    auto const part = sum.parts.back();
    return whole(levels_.size() - 1, sum).slice(part.first, part.size());
  }

  /// Gives all ranks what each has in its part, behind `finish_part`: an all-gather. The caller may have changed the part meanwhile.
  /// @post all ranks have the same values. @throws tessera::error as `communicator` says.
  void share(host_exec const& exec, pending_sum<C>& sum) {
    for (auto l = levels_.size(); l-- > 0;) share_parts(exec, l, sum);
  }

  /// Gives up sums that `begin_all` or `begin_part` began, where all ranks give them up: waits for the messages that it sent. The values are as they were.
  /// @throws tessera::error as `communicator` says.
  void abandon(host_exec const& exec, pending_sum<C>& sum) { at(0).finish(exec, sum.pending[0]); }

  /// Starts to overwrite `values` with the sum of all ranks' leaves, whose blocks have as many values, and of which each leaf is on one rank.
  /// `tree` stays as it is until `finish_tree`. @throws tessera::error as `communicator` says; shape_mismatch for blocks of another size.
  void begin_tree(host_exec const& exec, sum_tree const& tree, vector_view<float> values, pending_sum<C>& sum) {
    for (auto const& node : tree.nodes())
      if (node.values.size() != values.size())
        throw error(errc::shape_mismatch, "rank_sums: leaves of another size",
                    {{"values", node.values.size()}, {"expected", values.size()}});
    sum.values = values;
    sum.parts.resize(levels_.size());
    sum.pending.resize(levels_.size());
    sum.trees.resize(levels_.size());
    send_nodes(exec, 0, tree, sum);
  }

  /// Waits for the sum. @post all ranks have the same bits, which depend on the leaves alone. @throws tessera::error as `sum_tree::join` and
  /// as `communicator` says; incompatible where ranks gave blocks of other sizes.
  void finish_tree(host_exec const& exec, pending_sum<C>& sum) {
    join_nodes(exec, 0, sum);
    for (std::size_t l = 1; l < levels_.size(); ++l) {
      send_nodes(exec, l, sum.trees[l - 1], sum);
      join_nodes(exec, l, sum);
    }
    auto const part = sum.parts.back();
    sum.trees.back().join(exec, whole(levels_.size() - 1, sum).slice(part.first, part.size()));
    share(exec, sum);
  }

  /// Replaces `values` by their sums over all ranks. @throws tessera::error as `finish_all`.
  void all(host_exec const& exec, vector_view<float> values, pending_sum<C>& sum) {
    begin_all(exec, values, sum);
    finish_all(exec, sum);
  }

 private:
  // What this rank has to do with at a level.
  static vector_view<float> whole(std::size_t level, pending_sum<C> const& sum) {
    if (level == 0) return sum.values;
    auto const of = whole(level - 1, sum);
    return of.slice(sum.parts[level - 1].first, sum.parts[level - 1].size());
  }
  C& at(std::size_t level) const noexcept { return *levels_[level]; }

  void send_parts(host_exec const& exec, std::size_t level, pending_sum<C>& sum) {
    auto const values = whole(level, sum);
    auto& comm = at(level);
    auto const part_of = [&](int rank) { return summed_part(values.size(), comm.size(), rank); };
    sum.parts[level] = part_of(comm.rank());
    std::vector<sent_message> send;
    std::vector<awaited_message> receive;
    for (int r = 0; r < comm.size(); ++r) {
      if (r == comm.rank()) continue;
      auto const part = part_of(r);
      send.push_back({r, message_bytes(values.slice(part.first, part.size()))});
      receive.push_back({r, sum.parts[level].size() * std::int64_t{sizeof(float)}});
    }
    comm.begin(exec, {send, receive, "sum over ranks"}, sum.pending[level]);
  }

  void add_parts(host_exec const& exec, std::size_t level, pending_sum<C>& sum) {
    auto& comm = at(level);
    auto const received = comm.finish(exec, sum.pending[level]);
    auto const part = sum.parts[level];
    auto const own = whole(level, sum).slice(part.first, part.size());
    std::vector<float const*> of_rank;
    for (std::int64_t r = 0, next = 0; r < comm.size(); ++r)
      of_rank.push_back(r == comm.rank() ? own.data() : message_values<float>(received[next++]).data());
    for_each_piece(exec, own.size(), values_per_piece, [&](std::int64_t first, std::int64_t last) {
      constexpr std::int64_t block = 256;  // which stays in the nearest cache
      for (; first < last; first += block) {
        auto const count = std::min(block, last - first);
        float total[block];
        std::copy_n(of_rank[0] + first, count, total);
        for (std::size_t r = 1; r < of_rank.size(); ++r)
          for (std::int64_t i = 0; i < count; ++i) total[i] += of_rank[r][first + i];
        std::copy_n(total, count, own.data() + first);
      }
    });
  }

  // A message of nodes: their number, first leaf and leaves of each, then this part of the values of each.
  static void write_nodes(host_exec const& exec, sum_tree const& tree, summed_part part, buffer<std::byte>& message) {
    auto const count = static_cast<std::int64_t>(tree.nodes().size());
    std::vector<std::int64_t> head{count};
    for (auto const& node : tree.nodes()) head.insert(head.end(), {node.first, node.leaves});
    auto const head_bytes = static_cast<std::int64_t>(head.size() * sizeof(std::int64_t));
    message.resize(exec, head_bytes + count * part.size() * std::int64_t{sizeof(float)});
    std::copy_n(reinterpret_cast<std::byte const*>(head.data()), head_bytes, message.data());
    auto* const to = reinterpret_cast<float*>(message.data() + head_bytes);
    for (std::int64_t n = 0; n < count; ++n) {
      auto const* const from = tree.nodes()[static_cast<std::size_t>(n)].values.data() + part.first;
      for_each_piece(exec, part.size(), values_per_piece,
                     [=](std::int64_t first, std::int64_t last) { std::copy(from + first, from + last, to + n * part.size() + first); });
    }
  }

  void send_nodes(host_exec const& exec, std::size_t level, sum_tree const& tree, pending_sum<C>& sum) {
    auto& comm = at(level);
    auto const count = whole(level, sum).size();
    sum.parts[level] = {count, comm.size(), comm.rank()};
    sum.nodes.resize(std::max(sum.nodes.size(), static_cast<std::size_t>(comm.size())));
    std::vector<sent_message> send;
    std::vector<awaited_message> receive;
    for (int r = 0; r < comm.size(); ++r) {
      auto& message = sum.nodes[static_cast<std::size_t>(r)];
      write_nodes(exec, tree, {count, comm.size(), r}, message);
      send.push_back({r, std::as_const(message).view()});
      receive.push_back({r});
    }
    comm.begin(exec, {send, receive, "nodes of a sum"}, sum.pending[level]);
  }

  void join_nodes(host_exec const& exec, std::size_t level, pending_sum<C>& sum) {
    struct node {
      std::int64_t first, leaves;
      vector_view<float const> values;
    };
    auto& comm = at(level);
    auto const received = comm.finish(exec, sum.pending[level]);
    std::vector<node> all;
    for (std::int64_t m = 0; m < received.size(); ++m) {
      auto const refuse = [&] {
        throw error(errc::incompatible, "rank_sums: ranks sum other numbers of values", {{"bytes", received[m].size()}, {"rank", m}});
      };
      if (received[m].size() < std::int64_t{sizeof(std::int64_t)}) refuse();
      auto const* const head = reinterpret_cast<std::int64_t const*>(received[m].data());
      auto const size = sum.parts[level].size();
      auto const head_bytes = (1 + 2 * head[0]) * std::int64_t{sizeof(std::int64_t)};
      if (received[m].size() != head_bytes + head[0] * size * std::int64_t{sizeof(float)}) refuse();
      auto const* const values = reinterpret_cast<float const*>(received[m].data() + head_bytes);
      for (std::int64_t n = 0; n < head[0]; ++n) all.push_back({head[1 + 2 * n], head[2 + 2 * n], {values + n * size, size}});
    }
    std::sort(all.begin(), all.end(), [](node const& a, node const& b) { return a.first < b.first; });
    sum.trees[level].start(0);
    for (auto const& one : all) sum.trees[level].add(exec, one.first, one.leaves, one.values);
  }

  void share_parts(host_exec const& exec, std::size_t level, pending_sum<C>& sum) {
    auto& comm = at(level);
    auto const values = whole(level, sum);
    auto const part = sum.parts[level];
    std::vector<sent_message> send;
    std::vector<awaited_message> receive;
    for (int r = 0; r < comm.size(); ++r) {
      if (r == comm.rank()) continue;
      send.push_back({r, message_bytes(values.slice(part.first, part.size()))});
      receive.push_back({r, summed_part(values.size(), comm.size(), r).size() * std::int64_t{sizeof(float)}});
    }
    comm.begin(exec, {send, receive, "sums to all ranks"}, sum.pending[level]);
    auto const received = comm.finish(exec, sum.pending[level]);
    for (std::int64_t i = 0; i < received.size(); ++i) {
      auto const from = message_values<float>(received[i]);
      auto* const to = values.data() + summed_part(values.size(), comm.size(), receive[static_cast<std::size_t>(i)].from).first;
      for_each_piece(exec, from.size(), values_per_piece,
                     [&](std::int64_t first, std::int64_t last) { std::copy(from.data() + first, from.data() + last, to + first); });
    }
  }

  static constexpr std::int64_t values_per_piece = 1 << 14;

  std::vector<C*> levels_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
