// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/philox.hpp>
#include <tessera/core/types.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// A table of a pool, and how a batch of `pool_batch` bags reads it.
struct pool_table {
  static constexpr std::int64_t bins = 17;

  std::int64_t rows = 0;
  double pooling_factor = 0;  ///< ids of a bag, in the mean
  /// How many rows a batch is expected to read as often as the bin says: once in bin 0, from 2^(k-1) + 1 to 2^k times in bin k. In the last
  /// bin it is more than 2^15 times.
  std::array<double, bins> read_rows = {};

  /// The distinct rows that a batch reads.
  double distinct_rows() const noexcept {
    double sum = 0;
    for (double const of : read_rows) sum += of;
    return sum;
  }
  /// The shares of `read_rows`; all are 0 where no row is read.
  std::array<double, bins> shares() const noexcept {
    auto result = read_rows;
    auto const all = distinct_rows();
    for (double& of : result) of = all > 0 ? of / all : 0;
    return result;
  }

  friend bool operator==(pool_table const&, pool_table const&) = default;
};

/// The bags of the batch that a pool's tables are described by.
inline constexpr std::int64_t pool_batch = 65536;

/// What is published of the 856 tables of dlrm_datasets, over all tables together: its embedding_bag log of 2021, in its statistics of
/// locality, and, for the rows, NeuroShard's Table 6. Rows of a bin are counted from shares, to four digits.
struct pool_totals {
  static constexpr std::int64_t tables = 856;
  static constexpr double ids = 887'017'990;            ///< of a batch
  static constexpr double distinct_rows = 128'435'723;  ///< that a batch reads
  static constexpr double mean_rows = 4'107'458;        ///< of a table
  static constexpr std::array<double, pool_table::bins> read_rows{60.75e6, 19.52e6, 17.85e6, 14.38e6, 9.25e6, 4.11e6, 1.41e6, 557e3, 250e3,
                                                                  120e3,   58.8e3,  28.8e3,  14.4e3,  6.46e3, 2.33e3, 863,    357};
  /// How often rows of a bin are read, in the mean.
  static constexpr std::array<double, pool_table::bins> reads{
      1, 2, 3.38, 6.23, 11.6, 22.4, 45.8, 92.3328, 184.666, 369.331, 738.662, 1477.32, 2954.65, 5909.3, 11818.6, 23637.2, 47274.4};
};

/// Options of `make_table_pool`.
struct table_pool_options {
  random_seed seed{};
  std::int64_t tables = pool_totals::tables;  ///< totals are so many 856ths of those published
  std::int64_t empty_tables = 3;              ///< that no id of the batch is of
  double rows_spread = 0.9;                   ///< standard deviation of the logarithm of rows
  std::int64_t most_rows = 15'000'000;        ///< of a table
  double correlation = 0.7;                   ///< of the logarithms of rows and pooling factors
};

/// Makes tables whose totals are those of dlrm_datasets: ids and rows to rounding, distinct rows and the rows of each bin to 0.1 %.
///
/// Pooling factors and rows are log-normal, cut at 0.02 and 200, and at 100 and `most_rows`. Ids of each table follow a Zipf law of its own;
/// iterative proportional fitting then makes the bins of all tables meet the totals. One seed makes one pool.
/// @post a table's ids, summed over bins, are its pooling factor times `pool_batch`. Its distinct rows are at most its rows.
/// @throws tessera::error invalid_argument, naming the option, for less than 16 tables, as many empty ones, a negative spread, a correlation
/// outside [-1, 1], or `most_rows` that the published mean is above.
inline std::vector<pool_table> make_table_pool(table_pool_options const& options = {});

namespace detail {

// Uniform in (0, 1).
inline double pool_uniform(random_seed seed, std::int64_t table, std::uint32_t what) {
  auto const words = philox(seed, static_cast<std::uint64_t>(table), 0x7AB1E, what);
  return (static_cast<double>(std::uint64_t{words[0]} << 20 | words[1] >> 12) + 0.5) * 0x1p-52;
}
inline double pool_normal(random_seed seed, std::int64_t table, std::uint32_t what) {
  return std::sqrt(-2 * std::log(pool_uniform(seed, table, what))) *
         std::cos(2 * 3.14159265358979323846 * pool_uniform(seed, table, what + 1));
}

// The factor with which the mean of clipped numbers is as wanted, by bisection of its logarithm.
inline double factor_of_mean(std::vector<double> const& numbers, double least, double most, double mean) {
  double low = std::log(least) - 60, high = std::log(most) + 60;
  for (int step = 0; step < 200; ++step) {
    auto const middle = (low + high) / 2, factor = std::exp(middle);
    double sum = 0;
    for (double const number : numbers) sum += std::clamp(factor * number, least, most);
    (sum < mean * static_cast<double>(numbers.size()) ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

// The reads of each bin's rows where so many ids are drawn by a Zipf law over so many rows. Ranks are a continuum.
inline std::array<double, pool_table::bins> zipf_reads(double ids, double rows, double exponent) {
  auto const area = [&](double r) { return exponent == 1 ? std::log(r) : (std::pow(r, 1 - exponent) - 1) / (1 - exponent); };
  auto const all = 1 + area(rows);
  // Ranks whose rows are read at least so often.
  auto const ranks = [&](double reads) { return std::min(rows, std::pow(ids / (all * reads), 1 / exponent)); };
  std::array<double, pool_table::bins> result{};
  for (std::size_t bin = 0; bin < result.size(); ++bin) {
    auto const low = bin == 0 ? 0.5 : std::ldexp(1.0, static_cast<int>(bin) - 1) + 0.5, high = std::ldexp(1.0, static_cast<int>(bin)) + 0.5;
    auto const count = ranks(low) - (bin + 1 == result.size() ? 0 : ranks(high));
    result[bin] = count * pool_totals::reads[bin];
  }
  // Each id of the others is the only one of its row.
  if (auto const often = std::max(1.0, ranks(0.5)); often < rows) result[0] += ids / all * (area(rows) - area(often));
  // A bin may be needed that the law does not reach.
  for (std::size_t bin = 0; bin < result.size(); ++bin) result[bin] = pool_totals::reads[bin] > ids ? 0 : std::max(result[bin], 1e-6 * ids);
  return result;
}

// Scales reads (bins,) to a sum, with the distinct rows at most so many: often read bins then get more.
inline void fit_reads(std::array<double, pool_table::bins>& reads, double ids, double most_rows) {
  auto const tilted = [&](double tilt) {
    auto result = reads;
    double sum = 0;
    for (std::size_t bin = 0; bin < result.size(); ++bin) sum += result[bin] *= std::pow(pool_totals::reads[bin], tilt);
    for (double& of : result) of *= ids / sum;
    return result;
  };
  auto const rows = [&](std::array<double, pool_table::bins> const& of) {
    double sum = 0;
    for (std::size_t bin = 0; bin < of.size(); ++bin) sum += of[bin] / pool_totals::reads[bin];
    return sum;
  };
  double low = 0, high = 0;
  if (rows(tilted(0)) > most_rows) {
    for (high = 1; rows(tilted(high)) > most_rows && high < 64;) high *= 2;
    for (int step = 0; step < 50; ++step) {
      auto const middle = (low + high) / 2;
      (rows(tilted(middle)) > most_rows ? low : high) = middle;
    }
  }
  reads = tilted(high);
}

// Makes reads (tables, bins) meet the ids of each table and the totals of each bin.
inline void fit_pool(std::vector<std::array<double, pool_table::bins>>& reads, std::vector<pool_table> const& pool, double share) {
  auto totals = pool_totals::read_rows;
  double distinct = 0;
  for (double const of : totals) distinct += of;
  totals[0] += pool_totals::distinct_rows - distinct;  // what rounded shares leave
  for (int round = 0; round < 200; ++round) {
    for (std::size_t bin = 0; bin < totals.size(); ++bin) {
      double sum = 0;
      for (auto const& of : reads) sum += of[bin];
      if (sum > 0)
        for (auto& of : reads) of[bin] *= totals[bin] * pool_totals::reads[bin] * share / sum;
    }
    for (std::size_t t = 0; t < reads.size(); ++t)
      if (pool[t].pooling_factor > 0)
        fit_reads(reads[t], pool[t].pooling_factor * static_cast<double>(pool_batch), static_cast<double>(pool[t].rows));
  }
}

}  // namespace detail

inline std::vector<pool_table> make_table_pool(table_pool_options const& options) {
  auto const check = [](char const* option, double value, bool fits) {
    if (!fits) throw error(errc::invalid_argument, "make_table_pool: an option that no pool has", {{option, value}});
  };
  check("tables", static_cast<double>(options.tables), options.tables >= 16 && options.tables <= 1'000'000);
  check("empty_tables", static_cast<double>(options.empty_tables), options.empty_tables >= 0 && options.empty_tables < options.tables);
  check("rows_spread", options.rows_spread, options.rows_spread >= 0 && options.rows_spread <= 10);
  check("most_rows", static_cast<double>(options.most_rows), static_cast<double>(options.most_rows) > pool_totals::mean_rows);
  check("correlation", options.correlation, std::abs(options.correlation) <= 1);
  auto const tables = static_cast<std::size_t>(options.tables), filled = tables - static_cast<std::size_t>(options.empty_tables);
  std::vector<double> pooling(filled), rows(tables);
  for (std::size_t t = 0; t < tables; ++t) {
    auto const number = static_cast<std::int64_t>(t);
    auto const z = detail::pool_normal(options.seed, number, 0), other = detail::pool_normal(options.seed, number, 2);
    if (t < filled) pooling[t] = std::exp(1.6 * z);
    rows[t] = std::exp(options.rows_spread * (options.correlation * z + std::sqrt(1 - options.correlation * options.correlation) * other));
  }
  auto const share = static_cast<double>(tables) / static_cast<double>(pool_totals::tables);
  auto const mean_pooling = pool_totals::ids * share / static_cast<double>(pool_batch) / static_cast<double>(filled);
  auto const most_rows = static_cast<double>(options.most_rows);
  auto const pooling_factor = detail::factor_of_mean(pooling, 0.02, 200, mean_pooling);
  auto const rows_factor = detail::factor_of_mean(rows, 100, most_rows, pool_totals::mean_rows);
  std::vector<pool_table> pool(tables);
  std::vector<std::array<double, pool_table::bins>> reads(tables);
  for (std::size_t t = 0; t < tables; ++t) {
    pool[t].rows = std::llround(std::clamp(rows_factor * rows[t], 100.0, most_rows));
    if (t >= filled) continue;
    pool[t].pooling_factor = std::clamp(pooling_factor * pooling[t], 0.02, 200.0);
    auto const exponent = 0.6 + 0.6 * detail::pool_uniform(options.seed, static_cast<std::int64_t>(t), 4);
    reads[t] = detail::zipf_reads(pool[t].pooling_factor * static_cast<double>(pool_batch), static_cast<double>(pool[t].rows), exponent);
  }
  detail::fit_pool(reads, pool, share);
  for (std::size_t t = 0; t < tables; ++t)
    for (std::size_t bin = 0; bin < reads[t].size(); ++bin) pool[t].read_rows[bin] = reads[t][bin] / pool_totals::reads[bin];
  return pool;
}

}  // namespace TESSERA_ABI
}  // namespace tessera
