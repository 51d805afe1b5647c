// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/core/view.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Rows that left a table, as they were: what `write_rows` takes. An id that left twice is there twice, its newer row after the older one.
struct evicted_rows_view {
  vector_view<std::int64_t const> ids;  ///< (n,)
  matrix_view<float const> weights;     ///< (n, dim)
  matrix_view<float const> states;      ///< (n, state width)
};

/// Owns rows that left a table.
class evicted_rows {
 public:
  /// Appends a row: `row` (dim,), where it lies in the store, beside its scale; `state` (state width,). When memory runs out, nothing
  /// changes.
  template <row_element Element>
  void push_back(host_exec const& exec, std::int64_t id, vector_view<Element const> row, vector_view<float const> state) {
    dim_ = row.size();
    width_ = state.size();
    grow(exec, ids_, count_ + 1);
    grow(exec, weights_, (count_ + 1) * dim_);
    grow(exec, states_, (count_ + 1) * width_);
    ids_[count_] = id;
    auto const scale = row_scale<Element>::of(row.data());
    std::transform(row.begin(), row.end(), weights_.begin() + count_ * dim_, [&](Element e) { return scale.value(e); });
    std::copy(state.begin(), state.end(), states_.begin() + count_ * width_);
    ++count_;
  }
  /// Forgets the rows and keeps the memory.
  void clear() noexcept { count_ = 0; }

  evicted_rows_view view() const noexcept {
    return {{ids_.data(), count_}, {weights_.data(), count_, dim_}, {states_.data(), count_, width_}};
  }
  std::size_t bytes() const noexcept { return ids_.capacity_bytes() + weights_.capacity_bytes() + states_.capacity_bytes(); }

 private:
  buffer<std::int64_t> ids_;
  buffer<float> weights_, states_;
  std::int64_t count_ = 0, dim_ = 0, width_ = 0;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
