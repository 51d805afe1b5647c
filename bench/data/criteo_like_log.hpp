// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>

#include <tessera/core/id_map.hpp>
#include <tessera/data/delimited_layout.hpp>
#include <tessera/data/delimited_writer.hpp>
#include <tessera/data/sample_columns.hpp>
#include <tessera/files/atomic_file.hpp>

#include "../inputs.hpp"

/// A click log of any size whose fields are as long as those of Criteo's Kaggle data.
namespace tessera_bench {

namespace detail {

// Of 200 samples of the Kaggle data (the sample that facebookresearch/dlrm and DeepCTR ship), how many have an integer of 0, 1, … 6
// characters; and how many lack a category. A category that is there has 8 characters.
inline constexpr int sample_rows = 200;
inline constexpr std::array<std::array<int, 7>, 13> sample_integer_lengths = {{{90, 104, 6},
                                                                               {0, 108, 67, 20, 5},
                                                                               {34, 102, 55, 8, 1},
                                                                               {35, 114, 51},
                                                                               {6, 19, 20, 28, 73, 47, 7},
                                                                               {51, 39, 70, 37, 3},
                                                                               {10, 137, 49, 4},
                                                                               {0, 114, 86},
                                                                               {10, 47, 82, 60, 1},
                                                                               {90, 110},
                                                                               {10, 181, 9},
                                                                               {157, 43},
                                                                               {35, 105, 59, 1}}};
inline constexpr std::int64_t negative_column = 1;  // of its 67 integers of two characters 15 are -1
inline constexpr int sample_negatives = 15;
inline constexpr std::array<int, 26> sample_missing_categories = {0, 0, 9, 9, 0, 32, 0,  0, 0,   0, 0, 9,  0,
                                                                  0, 0, 9, 0, 0, 82, 82, 9, 159, 0, 9, 82, 82};
inline constexpr int sample_clicks = 49;

// Distinct values of each category in the Kaggle data, as facebookresearch/dlrm counts them.
inline constexpr std::array<double, 26> category_values = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                                           93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                                           2173,  4,    7046547,  18,      15,  286181, 105,     142572};

inline float draw_integer(std::int64_t column, std::uint32_t pick, std::uint32_t bits) {
  auto const& lengths = sample_integer_lengths[static_cast<std::size_t>(column)];
  auto left = static_cast<int>(pick % sample_rows);
  int length = 0;
  while (left >= lengths[static_cast<std::size_t>(length)]) left -= lengths[static_cast<std::size_t>(length++)];
  if (length == 0) return std::numeric_limits<float>::quiet_NaN();
  if (column == negative_column && length == 2 && left < sample_negatives) return -1;
  std::uint32_t least = 1;
  for (int i = 1; i < length; ++i) least *= 10;
  return static_cast<float>(length == 1 ? bits % 10 : least + bits % (9 * least));
}

// Value r of n comes with a probability of nearly 1 / r, so as Zipf's law has it.
inline std::int64_t draw_category(std::int64_t column, std::uint32_t pick, std::uint32_t bits) {
  if (static_cast<int>(pick % sample_rows) < sample_missing_categories[static_cast<std::size_t>(column)]) return tessera::missing_id;
  auto const rank = std::exp(std::log(category_values[static_cast<std::size_t>(column)]) * bits * 0x1p-32);
  return static_cast<std::int64_t>(tessera::mix_bits(static_cast<std::uint64_t>(column) << 32 | static_cast<std::uint64_t>(rank)) &
                                   0xffffffff);
}

inline void draw_rows(tessera::host_exec const& exec, std::int64_t first, tessera::sample_columns& rows) {
  tessera::for_each_piece(exec, rows.size(), 256, [&](std::int64_t begin, std::int64_t end) {
    for (auto row = begin; row < end; ++row) {
      auto const words = [&](std::int64_t field) {
        return tessera::philox(tessera::random_seed{5}, static_cast<std::uint64_t>(first + row), static_cast<std::uint32_t>(field), 0);
      };
      rows.labels()[row] = static_cast<int>(words(0)[0] % sample_rows) < sample_clicks ? 1.0F : 0.0F;
      for (std::int64_t i = 0; i < rows.dense_columns(); ++i) {
        auto const drawn = words(1 + i);
        rows.dense()(i, row) = draw_integer(i, drawn[0], drawn[1]);
      }
      for (std::int64_t c = 0; c < rows.sparse_columns(); ++c) {
        auto const drawn = words(14 + c);
        rows.single_ids(c)[row] = draw_category(c, drawn[0], drawn[1]);
      }
    }
  });
}

}  // namespace detail

/// The log's file, of more than 2 GB (or a small part of that for smoke): in the folder that TESSERA_BENCH_DATA names, else in that for
/// temporary files. What an earlier run left there is used again.
inline std::string criteo_like_log(tessera::host_exec const& exec) {
  auto const rows = sized(std::int64_t{9'000'000});
  auto const* const folder = std::getenv("TESSERA_BENCH_DATA");
  auto const path = (folder != nullptr ? std::filesystem::path(folder) : std::filesystem::temp_directory_path()) /
                    ("tessera_criteo_like_" + std::to_string(rows) + ".tsv");
  if (std::filesystem::exists(path)) return path.string();
  tessera::staged_file staged(path.string());
  tessera::delimited_writer out(staged.path(), tessera::criteo_schema(), tessera::criteo_layout());
  tessera::sample_columns some(tessera::criteo_schema());
  for (std::int64_t first = 0; first < rows; first += some.size()) {
    some.resize(exec, std::min<std::int64_t>(rows - first, 1 << 16));
    detail::draw_rows(exec, first, some);
    out.append(exec, some.view());
  }
  out.close();
  staged.commit();
  return path.string();
}

}  // namespace tessera_bench
