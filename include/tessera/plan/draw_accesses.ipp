// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plan/draw_accesses.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE std::vector<std::int64_t> draw_access_counts(random_sequence& random, std::array<double, access_bins> const& bins,
                                                            std::int64_t rows, std::int64_t accesses) {
  std::vector<std::int64_t> counts;
  if (accesses == 0) return counts;
  double shares = 0, mean = 0;
  for (int b = 0; b < access_bins; ++b)
    shares += bins[static_cast<std::size_t>(b)], mean += bins[static_cast<std::size_t>(b)] * mean_reads(b);
  // Without bins, every access is of another row as far as there are rows.
  auto const distinct = std::clamp<std::int64_t>(shares > 0 ? std::llround(static_cast<double>(accesses) * shares / mean) : accesses, 1,
                                                 std::min(rows, accesses));
  // Rows of each bin, by the places of the cumulative shares.
  double before = 0;
  std::vector<int> bin_of;
  for (int b = 0; b < access_bins && shares > 0; ++b) {
    before += bins[static_cast<std::size_t>(b)] / shares;
    auto const end = std::min(std::llround(before * static_cast<double>(distinct)), static_cast<long long>(distinct));
    bin_of.resize(std::max(bin_of.size(), static_cast<std::size_t>(end)), b);
  }
  bin_of.resize(static_cast<std::size_t>(distinct), bin_of.empty() ? 0 : bin_of.back());
  std::int64_t sum = 0;
  for (auto const b : bin_of) {
    auto const least = least_of_bin(b), most = b == access_bins - 1 ? 2 * (least - 1) : most_of_bin(b);
    auto const log_uniform =
        static_cast<double>(least - 1 + (b == 0)) *
        std::pow(static_cast<double>(most) / static_cast<double>(std::max<std::int64_t>(least - 1, 1)), random.uniform());
    counts.push_back(std::clamp(static_cast<std::int64_t>(std::ceil(log_uniform)), least, most));
    sum += counts.back();
  }
  // What is missing or too much goes to counts that stay in their bins, each in proportion to its room; the rest where it must.
  auto const spread = [&](auto const& room_of) {
    auto missing = accesses - sum;
    if (missing == 0) return;
    double room = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) room += static_cast<double>(room_of(i, missing > 0));
    if (room <= 0) return;
    auto const share = std::min(1.0, std::fabs(static_cast<double>(missing)) / room);
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t i = 0; i < counts.size() && missing != 0; ++i) {
        auto const free = room_of(i, missing > 0);
        auto const part = pass == 0 ? static_cast<std::int64_t>(share * static_cast<double>(free)) : free;
        auto const change = std::min(part, missing > 0 ? missing : -missing);
        counts[i] += missing > 0 ? change : -change;
        missing -= missing > 0 ? change : -change;
      }
    sum = accesses - missing;
  };
  spread([&](std::size_t i, bool up) {
    auto const b = bin_of[i];
    if (!up) return counts[i] - least_of_bin(b);
    return (b == access_bins - 1 ? std::max(4 * (least_of_bin(b) - 1), counts[i]) : most_of_bin(b)) - counts[i];
  });
  // Rows of one access more, or rows less.
  while (sum < accesses && static_cast<std::int64_t>(counts.size()) < rows && accesses - sum < 2 * access_bins) counts.push_back(1), ++sum;
  bin_of.resize(counts.size(), 0);
  while (sum > accesses && counts.front() <= sum - accesses) {  // the least first
    sum -= counts.front();
    counts.erase(counts.begin());
    bin_of.erase(bin_of.begin());
  }
  spread([&](std::size_t i, bool up) { return up ? accesses : counts[i] - 1; });
  return counts;
}

TESSERA_INLINE std::vector<std::int64_t> draw_distinct_rows(random_sequence& random, std::int64_t rows, std::int64_t count) {
  std::vector<std::int64_t> drawn;
  if (count > rows / 2) {
    drawn = random.permutation(rows);
    drawn.resize(static_cast<std::size_t>(count));
  } else {
    while (static_cast<std::int64_t>(drawn.size()) < count) {
      // Sorted and unique, then those that repeated again. What is drawn does not depend on the order in which it was.
      for (auto missing = count - static_cast<std::int64_t>(drawn.size()); missing > 0; --missing) drawn.push_back(random.below(rows));
      std::sort(drawn.begin(), drawn.end());
      drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
    }
    random.shuffle(drawn);
  }
  if (count > 0 && std::find(drawn.begin(), drawn.end(), rows - 1) == drawn.end())
    drawn[static_cast<std::size_t>(random.below(count))] = rows - 1;
  return drawn;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
