// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tower/peer_batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<std::size_t> peer_keys::last_first(tower_shape const& shape) {
  std::vector<std::size_t> order(shape.pooled.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return shape.pooled[a] > shape.pooled[b]; });
  return order;
}

TESSERA_INLINE std::vector<exchanged_key> peer_keys::keys(std::vector<table_spec> const& specs,
                                                          std::vector<table_feature> const& of) const {
  std::vector<exchanged_key> all;
  for (auto const& feature : of) {
    auto const& spec = specs[static_cast<std::size_t>(feature.table)];
    all.push_back({feature.sequence, spec.slots_are_ids ? spec.table.rows : 0});
  }
  if (!has_modules) return all;
  constexpr std::int64_t bound_of_4_bytes = std::int64_t{1} << 31;
  // As sequences, whose ids have no weights.
  for (std::int64_t f = 0; f < features; ++f) all.push_back({true, bound_of_4_bytes});
  for (std::int64_t t = 0; t < towers; ++t) all.push_back({false, 1});
  all.push_back({true, 0});
  return all;
}

TESSERA_INLINE std::vector<std::vector<exchanged_block>> peer_keys::blocks(std::vector<tower_shape> const& shapes, tower_ranks const& ranks,
                                                                           std::vector<embedding_output> const& of) const {
  std::vector<std::vector<exchanged_block>> all(static_cast<std::size_t>(ranks.groups()));
  std::vector<std::vector<std::int64_t>> of_group(all.size());
  std::vector<bool> in_module(static_cast<std::size_t>(features), false);
  for (auto const& shape : shapes) {
    auto const g = static_cast<std::size_t>(ranks.group_of_tower(shape.tower));
    for (auto const f : shape.sequences) of_group[g].push_back(f);
    for (auto const f : shape.pooled) {
      of_group[g].push_back(f);
      in_module[static_cast<std::size_t>(f)] = has_modules;
    }
    if (has_modules)
      for (auto const i : last_first(shape)) all[g].push_back({.key = rows_of(shape.pooled[i]), .way = block_way::ids});
    if (has_modules && !shape.pooled.empty()) all[g].push_back({.key = made_by(shape.tower), .columns = shape.width});
  }
  for (std::size_t g = 0; g < all.size(); ++g) {
    if (has_modules) all[g].push_back({.key = chunk(), .way = block_way::ids});
    std::sort(of_group[g].begin(), of_group[g].end());
    for (auto const f : of_group[g]) {
      bool const stays = in_module[static_cast<std::size_t>(f)];
      all[g].push_back({.key = f,
                        .columns = stays ? 0 : of[static_cast<std::size_t>(f)].width,
                        .way = stays ? block_way::ids : block_way::both,
                        .section = 1});
    }
  }
  return all;
}

TESSERA_INLINE keyed_jagged_view<std::int64_t const> peer_batch::make(host_exec const& exec, peer_keys const& keys,
                                                                      std::vector<tower_shape> const& shapes, batch_view const& batch,
                                                                      std::int64_t first_chunk) {
  if (!keys.has_modules) return batch.sparse;
  auto const samples = batch.samples();
  std::vector<std::int64_t const*> inverse_of(static_cast<std::size_t>(keys.features), nullptr);
  for (auto const& group : batch.groups)
    for (auto key = group.first_key; key < group.first_key + group.keys; ++key) inverse_of[static_cast<std::size_t>(key)] = group.inverse;
  // A feature with the rows of the one before it in this order says nothing; one before the first has a row a sample.
  std::vector<bool> says(static_cast<std::size_t>(keys.features), false);
  for (auto const& shape : shapes) {
    std::int64_t const* before = nullptr;
    for (auto const i : peer_keys::last_first(shape)) {
      auto const f = static_cast<std::size_t>(shape.pooled[i]);
      auto const* const inverse = inverse_of[f];
      says[f] = inverse != before;
      before = inverse;
    }
  }
  auto const& sparse = batch.sparse;
  first_row_.assign(static_cast<std::size_t>(keys.size()) + 1, 0);
  std::int64_t values = 0;
  for (std::int64_t key = 0; key < keys.size(); ++key) {
    auto const feature = key - keys.features;
    std::int64_t rows = 0, ids = 0;
    if (key < keys.features)
      rows = sparse.rows(key), ids = sparse.key(key).size();
    else if (key < keys.made_by(0))
      rows = ids = says[static_cast<std::size_t>(feature)] ? samples : 0;
    else if (key < keys.chunk())
      rows = samples;
    else
      rows = ids = 1;
    first_row_[static_cast<std::size_t>(key) + 1] = first_row_[static_cast<std::size_t>(key)] + rows;
    values += ids;
  }
  values_.resize(exec, values);
  weights_.resize(exec, sparse.weighted() ? values : 0);
  offsets_.resize(exec, first_row_.back() + 1);
  offsets_[0] = 0;
  std::int64_t next = 0, row = 0;
  for (std::int64_t key = 0; key < keys.features; ++key) {
    auto const bags = sparse.key(key);
    auto const first = bags.rows == 0 ? 0 : bags.offsets[0];
    std::copy_n(bags.values + first, bags.size(), values_.data() + next);
    if (sparse.weighted()) std::copy_n(sparse.weights + first, bags.size(), weights_.data() + next);
    for (std::int64_t r = 0; r < bags.rows; ++r) offsets_[++row] = next + bags.end_of(r) - first;
    next += bags.size();
  }
  for (std::int64_t f = 0; f < keys.features; ++f) {
    if (!says[static_cast<std::size_t>(f)]) continue;
    auto const* const inverse = inverse_of[static_cast<std::size_t>(f)];
    for (std::int64_t s = 0; s < samples; ++s) {
      values_[next++] = inverse == nullptr ? s : inverse[s];
      offsets_[++row] = next;
    }
  }
  for (std::int64_t i = 0; i < keys.towers * samples; ++i) offsets_[++row] = next;
  values_[next++] = first_chunk;
  offsets_[++row] = next;
  std::fill(weights_.data() + (sparse.weighted() ? sparse.size() : 0), weights_.data() + weights_.size(), 1.0F);
  return {values_.data(), sparse.weighted() ? weights_.data() : nullptr, offsets_.data(), first_row_.data(), keys.size(), values};
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
