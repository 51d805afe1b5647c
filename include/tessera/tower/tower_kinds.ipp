// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/tower_kinds.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

TESSERA_INLINE std::string text_of(std::vector<tower_table> const& tables, std::vector<table_spec> const& specs) {
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

TESSERA_INLINE void add_exchanged_shards(std::vector<table_shard> const& shards, table_feature const& feature, std::int64_t number,
                                         std::int64_t ids_a_sample, std::int64_t readers, bool partial,
                                         std::vector<exchanged_feature>& to) {
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

TESSERA_INLINE std::int64_t moved_inside(std::int64_t ranks, std::int64_t sources, std::int64_t samples,
                                         std::vector<exchanged_feature> features, std::int64_t id_bytes) {
  exchange_shape shape{
      .grid = {.ranks = ranks}, .features = std::move(features), .samples = samples, .sources = sources, .id_bytes = id_bytes};
  std::int64_t bytes = 0;
  for (auto const& costs : {id_exchange_costs(shape), vector_exchange_costs(shape), gradient_exchange_costs(shape)})
    for (auto const& of_rank : costs) bytes += of_rank.sent.inside_host.bytes;
  return bytes;
}

TESSERA_INLINE tower_dealer::tower_dealer(std::vector<table_spec> const& specs, std::vector<table_feature> const& features,
                                          std::vector<std::int64_t> const& tables, std::int64_t group, std::int64_t ranks,
                                          std::int64_t groups, plan_towers_options const& options)
    : specs_(specs), features_(features), options_(options), all_(options_of(specs)), ranks_(ranks), groups_(groups) {
  std::int64_t sum = 0;
  for (auto const t : tables) sum += bytes_of(t);
  share_ = divide_up(sum, ranks);
  if (options.limit_bytes > 0) share_ = std::min(share_, options.limit_bytes);
  for (auto const t : tables) choices.push_back(choose(t, group));
  deal();
}

TESSERA_INLINE tower_table tower_dealer::choose(std::int64_t table, std::int64_t group) const {
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
    if (kind != tower_kind::whole && (pieces == 1 || shards.size() < 2 || (kind == tower_kind::columns && !options_.by_columns))) continue;
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

TESSERA_INLINE std::vector<table_shard> tower_dealer::shards_of(std::int64_t table, tower_kind kind, std::int64_t pieces) const {
  std::vector<int> first(at(pieces));
  std::iota(first.begin(), first.end(), 0);
  return kind == tower_kind::whole     ? table_wise(all_, table, 0)
         : kind == tower_kind::columns ? column_wise(all_, table, first)
                                       : row_wise(all_, table, first);
}

TESSERA_INLINE std::int64_t tower_dealer::largest(std::vector<table_shard> const& shards) const {
  std::int64_t most = 0;
  for (auto const& shard : shards) most = std::max(most, bytes_of(shard));
  return most;
}

TESSERA_INLINE void tower_dealer::deal() {
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

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
