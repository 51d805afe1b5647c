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
inline std::string text_of(std::vector<tower_table> const& tables, std::vector<table_spec> const& specs) {
  static constexpr char const* names[] = {"whole", "by columns", "by rows"};
  std::string text;
  for (auto const& t : tables) {
    auto const kind = static_cast<std::size_t>(t.kind);
    text += "table " + std::to_string(t.table) + " (id " + std::to_string(specs[static_cast<std::size_t>(t.table)].table.id.value) +
            "), ranks of group " + std::to_string(t.group) + ": " + std::to_string(t.bytes) + " bytes, share " + std::to_string(t.share) +
            ": " + names[kind];
    if (t.pieces > 1) text += " over " + std::to_string(t.pieces) + " ranks" + (t.partial ? " with partial sums" : "");
    text += ", moves " + std::to_string(t.moved[kind]) + " bytes a step inside its tower";
    for (std::size_t k = 0; k < std::size(names); ++k)
      if (k != kind)
        text += std::string("; ") + names[k] + " " +
                (t.moved[k] == tower_table::impossible ? std::string("cannot be") : std::to_string(t.moved[k]));
    text += "\n";
  }
  return text;
}

namespace detail {

/// What an exchange moves for a feature of a table that is cut into these shards.
inline void add_exchanged_shards(std::vector<table_shard> const& shards, table_feature const& feature, std::int64_t number,
                                 std::int64_t ids_a_sample, std::int64_t readers, bool partial, std::vector<exchanged_feature>& to) {
  std::int64_t row_shards = 0;
  for (auto const& shard : shards) row_shards += shard.first_column == shards.front().first_column ? 1 : 0;
  for (auto const& shard : shards) {
    auto& made = to.emplace_back();
    made.rank = shard.rank;
    made.dim = shard.columns;
    made.ids_a_sample = ids_a_sample;
    made.feature = number;
    made.first_column = shard.first_column;
    made.row_shards = row_shards;
    made.is_sequence = feature.sequence;
    made.of_ids = feature.sequence || (row_shards > 1 && !partial);
    made.keeps_rows = readers > 1;
  }
}

/// The bytes that all ranks of a tower send among themselves in a step for some features: ids, vectors and gradients.
inline std::int64_t moved_inside(std::int64_t ranks, std::int64_t sources, std::int64_t samples, std::vector<exchanged_feature> features,
                                 std::int64_t id_bytes) {
  exchange_shape shape{
      .grid = {.ranks = ranks}, .features = std::move(features), .samples = samples, .sources = sources, .id_bytes = id_bytes};
  std::int64_t bytes = 0;
  for (auto const& costs : {id_exchange_costs(shape), vector_exchange_costs(shape), gradient_exchange_costs(shape)})
    for (auto const& of_rank : costs) bytes += of_rank.sent.inside_host.bytes;
  return bytes;
}

/// The tables of one group of ranks, cut and dealt out.
class tower_dealer {
 public:
  /// `features` and `ids_a_sample` are of all tables, `tables` the numbers of those of this group. Shards get ranks of the group, from 0.
  tower_dealer(std::vector<table_spec> const& specs, std::vector<table_feature> const& features, std::vector<std::int64_t> const& tables,
               std::int64_t group, std::int64_t ranks, std::int64_t groups, plan_towers_options const& options)
      : specs_(specs), features_(features), options_(options), all_(options_of(specs)), ranks_(ranks), groups_(groups) {
    std::int64_t sum = 0;
    for (auto const t : tables) sum += bytes_of(t);
    share_ = divide_up(sum, ranks);
    if (options.limit_bytes > 0) share_ = std::min(share_, options.limit_bytes);
    for (auto const t : tables) choices.push_back(choose(t, group));
    deal();
  }

  std::vector<tower_table> choices;
  sharding_plan plan;

 private:
  static std::size_t at(std::int64_t i) noexcept { return static_cast<std::size_t>(i); }
  std::int64_t bytes_of(table_shard const& shard) const { return shard.rows * specs_[at(shard.table)].row_bytes(shard.columns); }
  std::int64_t bytes_of(std::int64_t table) const { return bytes_of(whole_table(all_, table, 0)); }

  tower_table choose(std::int64_t table, std::int64_t group) const {
    tower_table made{.table = table, .group = group, .bytes = bytes_of(table), .share = share_};
    std::vector<std::int64_t> read_by;
    made.partial = true;
    for (std::size_t f = 0; f < features_.size(); ++f)
      if (features_[f].table == table) {
        read_by.push_back(static_cast<std::int64_t>(f));
        made.partial &= !features_[f].sequence && !features_[f].is_largest();
      }
    auto const pieces = !options_.cuts_tables || share_ == 0 ? 1 : std::min(ranks_, divide_up(made.bytes, share_));
    std::vector<std::vector<table_shard>> ways;
    for (auto const kind : {tower_kind::whole, tower_kind::columns, tower_kind::rows}) {
      ways.push_back(shards_of(table, kind, pieces));
      auto const& shards = ways.back();
      auto& moved = made.moved[static_cast<std::size_t>(kind)] = tower_table::impossible;
      if (kind != tower_kind::whole && (pieces == 1 || shards.size() < 2 || (kind == tower_kind::columns && !options_.by_columns)))
        continue;
      std::vector<exchanged_feature> of_table;
      for (auto const f : read_by)
        add_exchanged_shards(shards, features_[at(f)], f, options_.ids_a_sample.empty() ? 1 : options_.ids_a_sample[at(f)],
                             static_cast<std::int64_t>(read_by.size()), made.partial, of_table);
      moved = moved_inside(ranks_, groups_, options_.samples, std::move(of_table),
                           id_bytes_below(specs_[at(table)].slots_are_ids ? specs_[at(table)].table.rows : 0));
    }
    // What is larger than its share is cut, by what moves less; the better balanced one of equals, then by columns.
    if (pieces > 1)
      for (auto const kind : {tower_kind::columns, tower_kind::rows}) {
        auto const k = static_cast<std::size_t>(kind), best = static_cast<std::size_t>(made.kind);
        if (made.moved[k] == tower_table::impossible || !fits(ways[k])) continue;
        if (made.kind == tower_kind::whole || std::pair(made.moved[k], largest(ways[k])) < std::pair(made.moved[best], largest(ways[best])))
          made.kind = kind;
      }
    made.pieces = static_cast<std::int64_t>(ways[static_cast<std::size_t>(made.kind)].size());
    made.partial &= made.kind == tower_kind::rows;
    return made;
  }
  std::vector<table_shard> shards_of(std::int64_t table, tower_kind kind, std::int64_t pieces) const {
    std::vector<int> first(at(pieces));
    std::iota(first.begin(), first.end(), 0);
    return kind == tower_kind::whole     ? table_wise(all_, table, 0)
           : kind == tower_kind::columns ? column_wise(all_, table, first)
                                         : row_wise(all_, table, first);
  }
  std::int64_t largest(std::vector<table_shard> const& shards) const {
    std::int64_t most = 0;
    for (auto const& shard : shards) most = std::max(most, bytes_of(shard));
    return most;
  }
  bool fits(std::vector<table_shard> const& shards) const { return options_.limit_bytes == 0 || largest(shards) <= options_.limit_bytes; }

  // The largest shard first, each to the rank with the fewest bytes so far among those that have none of its table.
  void deal() {
    for (auto const& choice : choices) {
      auto const shards = shards_of(choice.table, choice.kind, choice.pieces);
      plan.shards.insert(plan.shards.end(), shards.begin(), shards.end());
      if (choice.partial) plan.partial.push_back(choice.table);
    }
    std::vector<std::size_t> order(plan.shards.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return bytes_of(plan.shards[a]) > bytes_of(plan.shards[b]); });
    std::vector<std::int64_t> bytes(at(ranks_), 0);
    std::vector<std::vector<std::int64_t>> tables_of(at(ranks_));
    for (auto const i : order) {
      auto& shard = plan.shards[i];
      std::size_t best = bytes.size();
      for (std::size_t r = 0; r < bytes.size(); ++r)
        if ((best == bytes.size() || bytes[r] < bytes[best]) && std::count(tables_of[r].begin(), tables_of[r].end(), shard.table) == 0)
          best = r;
      shard.rank = static_cast<int>(best);
      bytes[best] += bytes_of(shard);
      tables_of[best].push_back(shard.table);
      if (options_.limit_bytes > 0 && bytes[best] > options_.limit_bytes)
        throw error(errc::out_of_memory, "towers: a rank would hold more than it may",
                    {{"rank of its group", best},
                     {"bytes", bytes[best]},
                     {"limit_bytes", options_.limit_bytes},
                     {"table", all_[at(shard.table)].id.value}});
    }
  }

  std::vector<table_spec> const& specs_;
  std::vector<table_feature> const& features_;
  plan_towers_options const& options_;
  std::vector<table_options> all_;
  std::int64_t ranks_, groups_, share_ = 0;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
