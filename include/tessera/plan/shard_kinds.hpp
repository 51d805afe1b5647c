// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/cost_model.hpp>
#include <tessera/plan/found_plan.hpp>
#include <tessera/plan/shard_memory.hpp>
#include <tessera/plan/table_profile.hpp>
#include <tessera/plan/table_replicas.hpp>
#include <tessera/plan/tower_devices.hpp>
#include <tessera/shard/sharding_plan.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

// What a search adds up of a shard that came from halving a table's columns so many times, and its rows so many times.
struct shard_kind {
  std::int64_t table, bytes;
  int column_halvings, row_halvings;
  float columns;                // of the shard, in the exchange of vectors
  float cost;                   // of a device with this shard alone
  int half_columns, half_rows;  // the kind of its halves, -1: it is not cut so
  float gradient_columns;       // in the exchange of gradients
};

// All kinds of shards of tables. A half of columns is a multiple of 4. Halves of rows differ by a row: a kind has the larger one's.
class shard_kinds {
 public:
  // Rows of a table are halved down to about so many.
  static constexpr std::int64_t least_rows = 1024;

  // `devices`: where each table's shards may lie; empty: anywhere. `replicas`: how many devices all have those tables that they may all
  // have; 0: there are no such kinds.
  template <cost_model M>
  shard_kinds(vector_view<table_profile const> tables, M const& model, counted_memory counted, bool cut_columns, bool cut_rows,
              std::vector<device_range> devices = {}, std::int64_t replicas = 0)
      : tables_(tables), width_(static_cast<std::int64_t>(model.width())), devices_(std::move(devices)) {
    std::vector<table_profile> profiles;
    for (std::int64_t t = 0; t < tables.size(); ++t) {
      auto const& table = tables[t];
      int columns = 1, rows = 1;
      while (cut_columns && (table.dim >> columns) % 4 == 0 && (table.dim >> columns) > 0 && (table.dim >> columns) << columns == table.dim)
        ++columns;
      while (cut_rows && table.rows >> rows >= least_rows) ++rows;
      whole_.push_back(static_cast<int>(kinds_.size()));
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c) {
          auto const at = static_cast<int>(kinds_.size());
          profiles.push_back(shard_profile(table, c, r));
          auto const of_shard = static_cast<float>(table.dim >> c);
          kinds_.push_back({t, memory_of_shard(profiles.back(), counted).total(), c, r, of_shard, 0, c + 1 < columns ? at + 1 : -1,
                            r + 1 < rows ? at + columns : -1, of_shard});
        }
    }
    first_replica_ = static_cast<int>(kinds_.size());
    replica_.assign(static_cast<std::size_t>(tables.size()), -1);
    for (std::int64_t t = 0; replicas > 1 && t < tables.size(); ++t) {
      if (!may_be_on_all_devices(tables[t], replicas) || (!devices_.empty() && devices_[static_cast<std::size_t>(t)].count < replicas))
        continue;
      replica_[static_cast<std::size_t>(t)] = static_cast<int>(kinds_.size());
      replicas_.push_back(profile_of_replica(tables[t], replicas));
      profiles.push_back(replicas_.back());
      kinds_.push_back({t, memory_of_shard(profiles.back(), counted).total(), 0, 0, 0, 0, -1, -1,
                        static_cast<float>(columns_of_replica(tables[t], replicas))});
    }
    representations_.resize(kinds_.size() * static_cast<std::size_t>(width_));
    matrix_view<float> const all(representations_.data(), static_cast<std::int64_t>(kinds_.size()), width_);
    model.represent(profiles, all);
    std::vector<float> costs(kinds_.size());
    model.compute_ms(matrix_view<float const>(all), costs);
    for (std::size_t k = 0; k < costs.size(); ++k) kinds_[k].cost = costs[k];
  }

  std::int64_t tables() const noexcept { return tables_.size(); }
  std::int64_t width() const noexcept { return width_; }
  shard_kind const& operator[](int kind) const noexcept { return kinds_[static_cast<std::size_t>(kind)]; }
  // The kind that a kind is half of. @pre it was halved so
  int joined(int kind, bool by_rows) const noexcept {
    if (!by_rows) return kind - 1;
    auto of = whole((*this)[kind].table), columns = 1;
    for (; (*this)[of].half_columns >= 0; of = (*this)[of].half_columns) ++columns;
    return kind - columns;
  }
  int whole(std::int64_t table) const noexcept { return whole_[static_cast<std::size_t>(table)]; }
  // The kind of a table on all devices, -1: it may not be there.
  int replica(std::int64_t table) const noexcept { return replica_[static_cast<std::size_t>(table)]; }
  std::vector<table_profile> const& replicas() const noexcept { return replicas_; }
  bool is_replica(int kind) const noexcept { return kind >= first_replica_; }
  bool has_replicas() const noexcept { return is_replica(static_cast<int>(kinds_.size()) - 1); }
  float const* representation(int kind) const noexcept { return representations_.data() + kind * width_; }
  table_profile const& table(std::int64_t t) const noexcept { return tables_[t]; }
  bool lies_anywhere() const noexcept { return devices_.empty(); }
  // Those of all devices that a shard of this kind may lie on.
  device_range devices_of(int kind, std::size_t all) const noexcept {
    return devices_.empty() ? device_range{0, static_cast<std::int64_t>(all)} : devices_[static_cast<std::size_t>((*this)[kind].table)];
  }
  table_profile profile(int kind) const {
    auto const& of = (*this)[kind];
    return shard_profile(tables_[of.table], of.column_halvings, of.row_halvings);
  }

  // The shard number (column, row) of its kind.
  table_shard shard(int kind, std::int64_t column, std::int64_t row, std::int64_t device) const {
    auto const& of = (*this)[kind];
    auto const& table = tables_[of.table];
    auto const columns = table.dim >> of.column_halvings;
    auto const first = first_row(table.rows, row, of.row_halvings);
    return {of.table, static_cast<int>(device), first, first_row(table.rows, row + 1, of.row_halvings) - first, column * columns, columns};
  }

 private:
  static table_profile shard_profile(table_profile const& table, int column_halvings, int row_halvings) {
    return profile_of_shard(table, ((table.rows - 1) >> row_halvings) + 1, table.dim >> column_halvings);
  }
  // rows * index / 2^halvings, without a product that overflows.
  static std::int64_t first_row(std::int64_t rows, std::int64_t index, int halvings) noexcept {
    auto const whole = rows >> halvings, rest = rows - (whole << halvings);
    return whole * index + ((rest * index) >> halvings);
  }

  vector_view<table_profile const> tables_;
  std::int64_t width_;
  std::vector<shard_kind> kinds_;
  std::vector<int> whole_, replica_;  // kinds of each table
  int first_replica_ = 0;             // kinds from here on are on all devices
  std::vector<table_profile> replicas_;
  std::vector<float> representations_;
  std::vector<device_range> devices_;  // of each table
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
