// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

/// Which row of the bag has the maximum, for each bag and column of the features that pool by maximum. An empty bag has -1.
class pooled_argmax {
 public:
  /// Makes room for a batch, of which perhaps no feature pools by maximum. `dim_of(key)` is the dim of the key's table.
  template <class Feature, class DimOf>
  void resize(host_exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
              DimOf const& dim_of) {
    clear();
    if (std::none_of(features.begin(), features.end(), [](Feature const& feature) { return feature.is_largest(); })) return;
    first_.resize(exec, batch.keys + 1);
    first_[0] = 0;
    for (std::int64_t key = 0; key < batch.keys; ++key)
      first_[key + 1] = first_[key] + (features[key].is_largest() ? batch.rows(key) * dim_of(key) : 0);
    rows_.resize(exec, first_[batch.keys]);
    keys_ = batch.keys;
  }
  /// Forgets the batch and keeps the memory.
  void clear() noexcept { keys_ = 0; }
  /// The winners of a key, (bags of the key, dim); nullptr where it pools otherwise.
  std::int32_t* of(std::int64_t key) noexcept { return size(key) > 0 ? rows_.data() + first_[key] : nullptr; }
  std::int32_t const* of(std::int64_t key) const noexcept { return size(key) > 0 ? rows_.data() + first_[key] : nullptr; }
  /// The winners of all keys, one key after the other.
  std::int32_t const* of_all() const noexcept { return rows_.data(); }
  std::int64_t size() const noexcept { return keys_ == 0 ? 0 : rows_.size(); }
  /// The bags of the key times its dim; 0 where it pools otherwise.
  std::int64_t size(std::int64_t key) const noexcept { return key < keys_ ? first_[key + 1] - first_[key] : 0; }
  std::size_t bytes() const noexcept { return first_.capacity_bytes() + rows_.capacity_bytes(); }

 private:
  std::int64_t keys_ = 0;       // of the batch, where any pools so
  buffer<std::int64_t> first_;  // (keys + 1,)
  buffer<std::int32_t> rows_;
};

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
