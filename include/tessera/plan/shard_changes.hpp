// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/placement.hpp>
#include <tessera/plan/shard_kinds.hpp>
#include <tessera/plan/table_replicas.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// The halves of a shard, on its device; false: it is not cut so.
inline bool halves_of(shard_kinds const& kinds, placed_shard const& shard, bool by_rows, placed_shard (&halves)[2]) {
  auto const& kind = kinds[shard.kind];
  auto const half = by_rows ? kind.half_rows : kind.half_columns;
  if (half < 0) return false;
  for (int i = 0; i < 2; ++i) {
    halves[i] = shard;
    halves[i].kind = half;
    auto& number = by_rows ? halves[i].row : halves[i].column;
    number = 2 * number + i;
  }
  return true;
}

// Draws changes of a placement: moves and swaps, halvings of a shard and joins of two halves, and whole tables that go to all devices or
// back to one. None of them gives a device two shards of a table that is cut both ways, which no rank executes.
class shard_changes {
 public:
  shard_changes(shard_kinds const& kinds, random_seed seed, std::uint64_t stream) : kinds_(kinds), seed_(seed), stream_(stream) {}

  // Uniform in (0, 1].
  float uniform() { return 1 - tessera::uniform(word()); }

  // False where what was drawn cannot be.
  template <class M>
  bool draw(placement<M> const& here, placement_change& change) {
    auto const devices = here.devices();
    change = {};
    if (kinds_.has_replicas() && uniform() < 0.2F) return uniform() < 0.5F ? replicate(here, change) : leave_all(here, change);
    auto const first = busy(here);
    if (here.held(first).empty()) return false;
    auto const s = here.held(first)[below(here.held(first).size())];
    auto const within = kinds_.devices_of(here.shards()[s].kind, devices);
    auto const other = static_cast<std::size_t>(within.first) + below(static_cast<std::size_t>(within.count));
    auto const what = uniform();
    bool const is_drawn = what < 0.35F && devices > 1   ? move(here, s, other, change)
                          : what < 0.70F && devices > 1 ? swap(here, s, other, change)
                          : what < 0.85F                ? halve(here, s, other, change)
                                                        : join(here, s, change);
    return is_drawn && !puts_two_together(here, change);
  }

 private:
  std::uint32_t word() {
    if (used_ == 4) {
      block_ = philox(seed_, stream_, 0x91A7, next_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  std::size_t below(std::size_t bound) {
    auto const high = word();
    return static_cast<std::size_t>(uniform_below(high, word(), bound));
  }

  // Most often a device that decides what a plan costs. As devices wait for each other, the one whose sum is largest seldom is the cause.
  template <class M>
  std::size_t busy(placement<M> const& here) {
    auto const by = uniform();
    return by < 0.3F ? here.last_to_start() : by < 0.6F ? here.widest() : by < 0.8F ? here.most_loaded() : below(here.devices());
  }

  template <class M>
  static bool move(placement<M> const& here, std::size_t s, std::size_t to, placement_change& change) {
    if (static_cast<std::size_t>(here.shards()[s].device) == to) return false;
    leave(change, s);
    come(change, here.shards()[s], static_cast<std::int32_t>(to));
    return true;
  }

  // A whole table of a busy device comes on all devices.
  template <class M>
  bool replicate(placement<M> const& here, placement_change& change) {
    auto const& held = here.held(busy(here));
    if (held.empty()) return false;
    auto const s = held[below(held.size())];
    auto const table = kinds_[here.shards()[s].kind].table;
    if (kinds_.replica(table) < 0 || here.shards()[s].kind != kinds_.whole(table)) return false;
    leave(change, s);
    come(change, {kinds_.replica(table)}, static_cast<std::int32_t>(on_all_devices));
    return true;
  }

  // A table that is on all devices comes on one.
  template <class M>
  bool leave_all(placement<M> const& here, placement_change& change) {
    auto const& held = here.held_by_all();
    if (held.empty()) return false;
    auto const s = held[below(held.size())];
    leave(change, s);
    come(change, {kinds_.whole(kinds_[here.shards()[s].kind].table)}, static_cast<std::int32_t>(below(here.devices())));
    return true;
  }

  template <class M>
  bool swap(placement<M> const& here, std::size_t s, std::size_t with, placement_change& change) {
    auto const device = here.shards()[s].device;
    if (static_cast<std::size_t>(device) == with || here.held(with).empty()) return false;
    auto const other = here.held(with)[below(here.held(with).size())];
    auto const kind = here.shards()[other].kind;
    if (here.shards()[s].kind == kind || !kinds_.devices_of(kind, here.devices()).has(device)) return false;
    leave(change, s);
    leave(change, other);
    come(change, here.shards()[s], static_cast<std::int32_t>(with));
    come(change, here.shards()[other], device);
    return true;
  }

  template <class M>
  bool halve(placement<M> const& here, std::size_t s, std::size_t to, placement_change& change) {
    placed_shard halves[2];
    bool const rows_first = kinds_[here.shards()[s].kind].half_rows >= 0 && uniform() < 0.3F;
    if (!halves_of(kinds_, here.shards()[s], rows_first, halves) && !halves_of(kinds_, here.shards()[s], !rows_first, halves)) return false;
    leave(change, s);
    come(change, halves[0], halves[0].device);
    come(change, halves[1], static_cast<std::int32_t>(to));
    return true;
  }

  // The other half may be anywhere; the whole is on either's device.
  template <class M>
  bool join(placement<M> const& here, std::size_t s, placement_change& change) {
    auto const& shard = here.shards()[s];
    auto const& kind = kinds_[shard.kind];
    bool const of_rows = kind.column_halvings == 0 || (kind.row_halvings > 0 && uniform() < 0.5F);
    if (of_rows && kind.row_halvings == 0) return false;
    auto wanted = shard;
    (of_rows ? wanted.row : wanted.column) ^= 1;
    for (std::size_t other = 0; other < here.shards().size(); ++other) {
      auto const& with = here.shards()[other];
      if (with.kind != wanted.kind || with.column != wanted.column || with.row != wanted.row) continue;
      auto whole = shard;
      (of_rows ? whole.row : whole.column) >>= 1;
      whole.kind = kinds_.joined(shard.kind, of_rows);
      leave(change, s);
      leave(change, other);
      come(change, whole, uniform() < 0.5F ? shard.device : with.device);
      return true;
    }
    return false;
  }

  // Whether a device would have two shards of a table that is cut both ways then.
  template <class M>
  bool puts_two_together(placement<M> const& here, placement_change const& change) {
    for (int i = 0; i < change.coming_count; ++i) {
      auto const table = kinds_[change.coming[i].kind].table;
      auto const& whole = kinds_[kinds_.whole(table)];
      if (whole.half_columns < 0 || whole.half_rows < 0) continue;
      bool by_columns = false, by_rows = false;
      devices_.clear();
      auto const add = [&](placed_shard const& shard) {
        auto const& kind = kinds_[shard.kind];
        if (kind.table != table) return;
        by_columns |= kind.column_halvings > 0;
        by_rows |= kind.row_halvings > 0;
        devices_.push_back(shard.device);
      };
      for (std::size_t s = 0; s < here.shards().size(); ++s) {
        auto const* const last = change.leaving + change.leaving_count;
        if (std::find(change.leaving, last, s) == last) add(here.shards()[s]);
      }
      for (int c = 0; c < change.coming_count; ++c) add(change.coming[c]);
      if (!by_columns || !by_rows) continue;
      std::sort(devices_.begin(), devices_.end());
      if (std::adjacent_find(devices_.begin(), devices_.end()) != devices_.end()) return true;
    }
    return false;
  }

  static void leave(placement_change& change, std::size_t s) { change.leaving[change.leaving_count++] = s; }
  static void come(placement_change& change, placed_shard shard, std::int32_t device) {
    shard.device = device;
    change.coming[change.coming_count++] = shard;
  }

  shard_kinds const& kinds_;
  random_seed seed_;
  std::uint64_t stream_;
  std::uint32_t next_ = 0;
  random_block block_{};
  int used_ = 4;
  std::vector<std::int32_t> devices_;  // of a table's shards
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
