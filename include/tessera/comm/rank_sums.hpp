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
  std::vector<typename C::pending_type> pending;  ///< of each level
};

/// Ranks as they sum: level by level, from the innermost to the outermost. A communicator of level l joins this rank with the ranks that
/// sum the same part of the values after the levels below.
///
/// With one level, sums run in the order of ranks. `split_by_levels` makes levels of a topology. With hosts as its level, each host sums in
/// the order of its ranks, and then the sums of hosts are added in the order of hosts. Each value so leaves a host once.
/// The order depends on the levels alone, so all models of `communicator` give the same bits.
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
    add_parts(exec, 0, sum);
    for (std::size_t l = 1; l < levels_.size(); ++l) {
      send_parts(exec, l, sum);
      add_parts(exec, l, sum);
    }
    for (auto l = levels_.size(); l-- > 0;) share_parts(exec, l, sum);
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
