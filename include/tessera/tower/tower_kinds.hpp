// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/embed/table_list.hpp>
#include <tessera/shard/sharding_plan.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/tower/exchange_costs.hpp>

/// How each table lies on the ranks of its tower.
namespace tessera {
inline namespace TESSERA_ABI {

/// How a table's shards lie on the ranks of its tower.
enum class tower_kind : std::uint8_t {
  whole,    ///< all of it on one rank
  columns,  ///< blocks of columns
  rows,     ///< blocks of rows, which return partial sums where features let them
};

/// The kind of a table, and what it was chosen by.
struct tower_table {
  static constexpr std::int64_t impossible = -1;

  std::int64_t table = 0;
  std::int64_t group = 0;  ///< of ranks, that makes its tower
  std::int64_t bytes = 0;  ///< of the table, with its optimizer's state
  std::int64_t share = 0;  ///< what a rank is to hold of a table at most: a table of more is cut
  tower_kind kind = tower_kind::whole;
  std::int64_t pieces = 1;
  bool partial = false;                                 ///< whether blocks of rows return partial sums
  std::int64_t moved[3] = {0, impossible, impossible};  ///< bytes inside the tower in a step, by kind, or `impossible`

  friend bool operator==(tower_table const&, tower_table const&) = default;
};

/// Options of `plan_towers`.
struct plan_towers_options {
  std::int64_t limit_bytes = 0;  ///< what a rank may hold of tables and optimizer states; 0: no limit
  /// Whether a table is cut that is larger than the limit, or than the share of a rank of its tower. It is cut over as many ranks as have the
  /// share, by columns or by rows, whichever moves fewer bytes inside the tower. The rest is of such tables.
  bool cuts_tables = false;
  std::int64_t samples = 1024;                  ///< of a rank's batch
  std::vector<std::int64_t> ids_a_sample = {};  ///< (features,), in the mean; none: 1 of each
  bool by_columns = true;  ///< whether tables are cut by columns. A block then has row-wise state and clipping of its own
};

/// A line a table: its bytes, the share, what is done, and what each kind moves inside the tower.
std::string text_of(std::vector<tower_table> const& tables, std::vector<table_spec> const& specs);

namespace detail {

/// What an exchange moves for a feature of a table that is cut into these shards.
void add_exchanged_shards(std::vector<table_shard> const& shards, table_feature const& feature, std::int64_t number,
                          std::int64_t ids_a_sample, std::int64_t readers, bool partial, std::vector<exchanged_feature>& to);

/// The bytes that all ranks of a tower send among themselves in a step for some features: ids, vectors and gradients.
std::int64_t moved_inside(std::int64_t ranks, std::int64_t sources, std::int64_t samples, std::vector<exchanged_feature> features,
                          std::int64_t id_bytes);

/// The tables of one group of ranks, cut and dealt out.
class tower_dealer {
 public:
  /// `features` and `ids_a_sample` are of all tables, `tables` the numbers of those of this group. Shards get ranks of the group, from 0.
  tower_dealer(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, std::vector<std::int64_t> const& tables,
               std::int64_t group, std::int64_t ranks, std::int64_t groups, plan_towers_options const& options);

  std::vector<tower_table> choices;
  sharding_plan plan;

 private:
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t bytes_of(table_shard const& shard) const { return shard.rows * specs_[at(shard.table)].row_bytes(shard.columns); }
  std::int64_t bytes_of(std::int64_t table) const { return bytes_of(whole_table(all_, table, 0)); }

  tower_table choose(std::int64_t table, std::int64_t group) const;
  std::vector<table_shard> shards_of(std::int64_t table, tower_kind kind, std::int64_t pieces) const;
  std::int64_t largest(std::vector<table_shard> const& shards) const;
  bool fits(std::vector<table_shard> const& shards) const { return options_.limit_bytes == 0 || largest(shards) <= options_.limit_bytes; }

  // The largest shard first, each to the rank with the fewest bytes so far among those that have none of its table.
  void deal();

  std::vector<table_spec> const& specs_;
  std::vector<table_feature> const& features_;
  plan_towers_options const& options_;
  std::vector<table_options> all_;
  std::int64_t ranks_, groups_, share_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera

#if !TESSERA_COMPILED
#include <tessera/tower/tower_kinds.ipp>
#endif
