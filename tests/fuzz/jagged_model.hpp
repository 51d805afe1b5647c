// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/tensor/keyed_jagged.hpp>

#include "fuzz_support.hpp"

namespace fuzz {

using batch_view = tessera::keyed_jagged_view<std::int64_t const>;

/// What a batch means: rows of each key, one by one.
struct plain_row {
  std::vector<std::int64_t> ids;
  std::vector<float> weights;  // as many, or none of an unweighted batch

  friend bool operator==(plain_row const&, plain_row const&) = default;
};
using plain_batch = std::vector<std::vector<plain_row>>;

/// The parts of a view, each in memory of its own without a byte to spare; row counts and offsets may say anything.
struct loose_batch {
  std::vector<std::int64_t> first_row, offsets, ids;
  std::vector<float> weights;

  batch_view view() const noexcept {
    auto const has_weights = !weights.empty() && weights.size() == ids.size();
    return {ids.data(),       has_weights ? weights.data() : nullptr,          offsets.data(),
            first_row.data(), static_cast<std::int64_t>(first_row.size()) - 1, static_cast<std::int64_t>(ids.size())};
  }
  /// What `validate` must say.
  bool is_valid() const noexcept {
    if (first_row.size() == 1) return true;
    if (first_row[0] < 0 || !std::is_sorted(first_row.begin(), first_row.end())) return false;
    if (first_row.front() == first_row.back()) return true;
    auto const begin = offsets.begin() + first_row.front(), end = offsets.begin() + first_row.back() + 1;
    return *begin >= 0 && std::is_sorted(begin, end) && end[-1] <= static_cast<std::int64_t>(ids.size());
  }
};

/// A batch of few keys and rows; most numbers fit together, some are whatever the input says.
inline loose_batch take_batch(number_source& from) {
  // A byte below 250 is a step onwards.
  auto const next = [&](std::int64_t before, std::int64_t steps) {
    auto const byte = from.take<std::uint8_t>();
    if (byte >= 250) return from.take<std::int64_t>();
    return before > INT64_MAX - steps ? before : before + byte % steps;
  };
  loose_batch batch;
  auto const keys = from.below(5);
  batch.first_row.push_back(next(0, 3));
  for (std::int64_t key = 0; key < keys; ++key) batch.first_row.push_back(next(batch.first_row.back(), 6));
  // Whoever makes a view has as many offsets as the last count says.
  auto& rows = batch.first_row.back();
  if (rows > 64) rows = 64;
  batch.offsets.push_back(next(0, 4));
  while (static_cast<std::int64_t>(batch.offsets.size()) < rows + 1) batch.offsets.push_back(next(batch.offsets.back(), 7));
  auto const surplus = from.below(8) - 1;
  batch.ids.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(batch.offsets.back(), 0, 500) + std::max<std::int64_t>(surplus, 0)));
  if (surplus < 0 && !batch.ids.empty()) batch.ids.pop_back();
  for (auto& id : batch.ids) {
    auto const byte = from.take<std::uint8_t>();
    id = byte >= 250 ? from.take<std::int64_t>() : byte % 14 - 1;
  }
  if (from.below(2) == 1)
    for (std::size_t i = 0; i < batch.ids.size(); ++i) batch.weights.push_back(static_cast<float>(from.take<std::int8_t>()) / 32);
  return batch;
}

/// @pre `validate` accepts the view.
inline plain_batch plain(batch_view view) {
  plain_batch batch;
  for (std::int64_t key = 0; key < view.keys; ++key) {
    auto& rows = batch.emplace_back();
    for (auto row = view.first_row[key]; row < view.first_row[key + 1]; ++row) {
      auto& to = rows.emplace_back();
      for (auto i = view.offsets[row]; i < view.offsets[row + 1]; ++i) {
        to.ids.push_back(view.values[i]);
        if (view.weighted()) to.weights.push_back(view.weights[i]);
      }
    }
  }
  return batch;
}

inline std::int64_t rows_of(plain_batch const& batch, std::size_t key) noexcept { return static_cast<std::int64_t>(batch[key].size()); }

}  // namespace fuzz
