// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/comm/any_communicator.hpp>
#include <tessera/comm/collectives.hpp>
#include <tessera/core/buffer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_gradients.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Gathers the gradients of tables that all ranks have, of which each rank has summed some rows. Its memory is kept from step to step.
class copied_sums {
 public:
  /// Replaces the rows of each table t with `is_copied[t]` by those of all ranks, each of which has other ids. All ranks call it.
  /// `find(t, ids, slots)` says where these have their rows here. With a `failure`, all throw, and nothing has changed.
  /// @throws tessera::error as `communicator` says; incompatible, naming it, for an id that has no row here
  template <class Find>
  void gather(host_exec const& exec, any_communicator comm, std::vector<bool> const& is_copied, row_gradients& sum,
              std::exception_ptr failure, Find const& find) {
    try {
      if (failure == nullptr) pack(exec, is_copied, sum);
    } catch (...) {
      failure = std::current_exception();
    }
    auto const all = all_gather<std::byte>(exec, comm, std::as_const(sent_).view(), pending_, "gradients of tables on all ranks", failure);
    std::vector<std::vector<part>> parts(is_copied.size());
    for (std::size_t r = 0; r < all.size(); ++r) unpack(static_cast<int>(r), all[r], is_copied, sum, parts);
    auto const rows_of = [&](std::int64_t t) {
      auto const& of_table = parts[static_cast<std::size_t>(t)];
      std::int64_t rows = 0;
      for (auto const& one : of_table) rows += one.rows;
      return is_copied[static_cast<std::size_t>(t)] ? rows : sum.rows(t);
    };
    gathered_.resize(exec, sum.tables(), rows_of, [&](std::int64_t t) { return sum.dim(t); });
    exec.run(sum.tables(), [&](std::int64_t t) {
      if (!is_copied[static_cast<std::size_t>(t)])
        return copy(t, 0, {sum.rows(t), sum.ids(t).data(), sum.values(t).data()}, sum.slots(t).data());
      std::int64_t first = 0;
      for (auto const& one : parts[static_cast<std::size_t>(t)]) {
        copy(t, first, one, one.ids);
        first += one.rows;
      }
    });
    for (std::int64_t t = 0; t < sum.tables(); ++t)
      if (is_copied[static_cast<std::size_t>(t)]) take_slots(exec, t, find);
    std::swap(sum, gathered_);
  }

  /// Without what the communicator holds.
  std::size_t bytes() const noexcept { return sent_.capacity_bytes() + gathered_.bytes() + moved_.capacity_bytes(); }

 private:
  // What a rank has summed of a table: in a message, rows as int64, ids as int64, values as floats, to the next multiple of 8 bytes.
  struct part {
    std::int64_t rows;
    std::int64_t const* ids;
    float const* values;

    static std::int64_t size(std::int64_t rows, std::int64_t dim) noexcept { return 8 + rows * 8 + divide_up(rows * dim * 4, 8) * 8; }
  };

  void pack(host_exec const& exec, std::vector<bool> const& is_copied, row_gradients const& sum);

  static void unpack(int rank, vector_view<std::byte const> message, std::vector<bool> const& is_copied, row_gradients const& sum,
                     std::vector<std::vector<part>>& parts);

  void copy(std::int64_t t, std::int64_t first, part const& from, std::int64_t const* slots) noexcept {
    if (from.rows == 0) return;
    std::copy_n(slots, from.rows, gathered_.slots_to_write(t) + first);
    std::copy_n(from.ids, from.rows, gathered_.ids_to_write(t) + first);
    std::copy_n(from.values, from.rows * gathered_.dim(t), gathered_.values(t).row(first));
  }

  // The slots of a table's rows here, and the rows in their order.
  template <class Find>
  void take_slots(host_exec const& exec, std::int64_t t, Find const& find) {
    auto const rows = gathered_.rows(t), dim = gathered_.dim(t);
    if (rows == 0) return;
    auto* const slots = gathered_.slots_to_write(t);
    auto* const ids = gathered_.ids_to_write(t);
    find(t, vector_view<std::int64_t const>(ids, rows), vector_view<std::int64_t>(slots, rows));
    for (std::int64_t row = 0; row < rows; ++row)
      if (slots[row] < 0)
        throw error(errc::incompatible, "sharded_tables: an id of a table on all ranks has no row here", {{"shard", t}, {"id", ids[row]}});
    if (std::is_sorted(slots, slots + rows)) return;
    std::vector<std::pair<std::int64_t, std::int64_t>> order;  // slot, row
    for (std::int64_t row = 0; row < rows; ++row) order.emplace_back(slots[row], row);
    std::sort(order.begin(), order.end());
    auto* const values = gathered_.values(t).data();
    std::vector<std::int64_t> const unordered(ids, ids + rows);
    moved_.resize(exec, rows * dim);
    std::copy_n(values, rows * dim, moved_.data());
    for (std::int64_t i = 0; i < rows; ++i) {
      auto const row = order[static_cast<std::size_t>(i)].second;
      slots[i] = order[static_cast<std::size_t>(i)].first;
      ids[i] = unordered[static_cast<std::size_t>(row)];
      std::copy_n(moved_.data() + row * dim, dim, values + i * dim);
    }
  }

  buffer<std::byte> sent_;
  row_gradients gathered_;
  buffer<float> moved_;  // rows that are put in the order of their slots
  any_pending pending_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/shard/copied_sums.ipp>
#endif
