// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/core/types.hpp>
#include <tessera/core/view.hpp>
#include <tessera/plan/draw_accesses.hpp>
#include <tessera/plan/plan_random.hpp>
#include <tessera/plan/table_profile.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// The ids of a batch for one table.
struct table_ids {
  std::vector<std::int64_t> ids;      ///< of all bags, one after the other
  std::vector<std::int64_t> lengths;  ///< (bags,)
};

/// Draws ids for a table, a function of its profile, the seed and `stream` alone.
///
/// It draws the reads of each distinct row of the profile's whole batch from the bins, gives them to random rows, and puts all ids in random
/// order. So many bags get the first of them, by the pooling factor: of one id each where that is 1, else as many as chance has it. The last
/// row is read where any is. Fewer bags than the profile's are a random part of its batch; their rows repeat less than its bins say.
/// @throws tessera::error as `check_table_profile`; invalid_argument for a negative number of bags, more bags than the profile has, and more
/// ids than 2^31.
inline table_ids draw_table_ids(table_profile const& profile, std::int64_t bags, random_seed seed, std::uint64_t stream = 0) {
  constexpr double most_ids = 2147483648.0;
  check_table_profile(profile);
  auto const refuse = [&](char const* why, char const* field, double value, double most) {
    throw error(errc::invalid_argument, std::string("draw_table_ids: ") + why, {{"table", profile.name}, {field, value}, {"most", most}});
  };
  if (bags < 0 || static_cast<double>(bags) > profile.bags)
    refuse("bags of a part of the batch", "bags", static_cast<double>(bags), profile.bags);
  if (ids_of_batch(profile) > most_ids) refuse("a batch with too many ids", "ids", ids_of_batch(profile), most_ids);
  detail::random_sequence random(seed, stream, 6);
  auto const counts = detail::draw_access_counts(random, profile.access, profile.rows, std::llround(ids_of_batch(profile)));
  auto const rows = detail::draw_distinct_rows(random, profile.rows, static_cast<std::int64_t>(counts.size()));
  table_ids result;
  for (std::size_t r = 0; r < rows.size(); ++r) result.ids.insert(result.ids.end(), static_cast<std::size_t>(counts[r]), rows[r]);
  random.shuffle(result.ids);
  auto const ids = std::min(std::llround(profile.pooling_factor * static_cast<double>(bags)), static_cast<long long>(result.ids.size()));
  if (ids > 0)
    std::swap(*std::find(result.ids.begin(), result.ids.end(), profile.rows - 1), result.ids[static_cast<std::size_t>(random.below(ids))]);
  result.ids.resize(static_cast<std::size_t>(ids));
  result.ids.shrink_to_fit();  // a small part of a large batch would keep the memory of all of it
  if (ids == bags && profile.pooling_factor == 1) {
    result.lengths.assign(static_cast<std::size_t>(bags), 1);
  } else {
    result.lengths.assign(static_cast<std::size_t>(bags), 0);
    for (std::int64_t i = 0; i < ids; ++i) ++result.lengths[static_cast<std::size_t>(random.below(bags))];
  }
  return result;
}

/// The profile of a table that a batch shows: `table` with the batch's bags, pooling factor and bins. All bags count as distinct.
inline table_profile profile_of_ids(table_profile table, table_ids const& batch) {
  table.bags = table.distinct_bags = static_cast<double>(batch.lengths.size());
  table.pooling_factor = batch.lengths.empty() ? 0 : static_cast<double>(batch.ids.size()) / table.bags;
  auto sorted = batch.ids;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> reads;
  for (auto first = sorted.begin(); first != sorted.end();) {
    auto const last = std::upper_bound(first, sorted.end(), *first);
    reads.push_back(last - first);
    first = last;
  }
  table.access = access_of_reads(reads);
  return table;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
