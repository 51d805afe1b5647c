// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// What a sample of a click log in Criteo's layout has: a label, 13 integers, 26 categories; any but the label may be missing.
struct click_layout {
  static constexpr std::int64_t integers = 13;
  static constexpr std::int64_t categories = 26;
  static constexpr std::int64_t fields = 1 + integers + categories;
  static constexpr std::int32_t missing_integer = std::numeric_limits<std::int32_t>::min();
  static constexpr std::int64_t missing_category = -1;

  /// "integer 1" … "integer 13" for columns 0 … 12.
  static std::string integer_name(std::int64_t column) { return "integer " + std::to_string(column + 1); }
  /// "category 1" … "category 26" for columns 0 … 25.
  static std::string category_name(std::int64_t column) { return "category " + std::to_string(column + 1); }
};

/// Samples as they stand in a log, column-major. Trivially copyable.
struct raw_rows_view {
  vector_view<float const> labels;             // (n,), 0 or 1
  matrix_view<std::int32_t const> integers;    // (13, n), or click_layout::missing_integer
  matrix_view<std::int64_t const> categories;  // (26, n): 0 … 0xffffffff, or click_layout::missing_category

  constexpr std::int64_t size() const noexcept { return labels.size(); }
};

/// Owns samples as they stand in a log, column-major. Move-only.
class raw_rows {
 public:
  std::int64_t size() const noexcept { return labels_.size(); }
  vector_view<float> labels() noexcept { return labels_.view(); }
  matrix_view<std::int32_t> integers() noexcept { return {integers_.data(), click_layout::integers, size(), stride_}; }
  matrix_view<std::int64_t> categories() noexcept { return {categories_.data(), click_layout::categories, size(), stride_}; }
  raw_rows_view view() const noexcept {
    return {labels_.view(),
            {integers_.data(), click_layout::integers, size(), stride_},
            {categories_.data(), click_layout::categories, size(), stride_}};
  }

  /// Makes room for `rows` samples, whose values are the caller's to write. Allocates only beyond the largest size so far.
  void resize(host_exec const& exec, std::int64_t rows) {
    stride_ = column_stride(rows);
    labels_.resize(exec, rows);
    integers_.resize(exec, click_layout::integers * stride_);
    categories_.resize(exec, click_layout::categories * stride_);
  }

  std::size_t bytes() const noexcept { return labels_.capacity_bytes() + integers_.capacity_bytes() + categories_.capacity_bytes(); }

 private:
  // An odd number of cache lines between columns: a row's fields, written one after the other, then fall into different cache sets.
  static constexpr std::int64_t column_stride(std::int64_t rows) noexcept { return 16 * (divide_up(rows, 16) | 1); }

  buffer<float> labels_;
  buffer<std::int32_t> integers_;
  buffer<std::int64_t> categories_;
  std::int64_t stride_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
