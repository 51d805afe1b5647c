// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/faults.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/embed/lookup_checks.hpp>
#include <tessera/embed/pooling.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/row_sums.cuh>
#include <tessera/embed/sequence_lookup.cuh>
#include <tessera/embed/sequence_lookup_backward.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

inline constexpr fault_kind sequence_gradients_too_few{
    errc::shape_mismatch, "sequence lookup: gradients do not fit their feature", {"feature", "rows", "rows expected"}};

/// The gradients of one key's values.
struct sequence_gradients {
  float const* gradients;
  std::int64_t rows, stride;
  std::int64_t first_row, key_rows;  // of the key, in the batch
  std::int64_t feature;              // its number, or -1: the key is no sequence
  bool by_four;
};

// Whether there is a gradient for each value of a sequence.
struct check_gradient_rows {
  sequence_gradients const* keys;
  batch_on_device batch;
  fault_reporter too_few;

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block, std::int64_t i) const {
    auto const& key = keys[i];
    auto const count = batch.offsets[key.first_row + key.key_rows] - batch.offsets[key.first_row];
    if (key.feature >= 0 && count > key.rows) too_few(block, i, key.feature, key.rows, count);
  }
};

/// Finds the gradient of a value by its position.
struct sequence_source {
  sequence_gradients const* keys;  // those with rows
  std::int64_t key_count;
  batch_on_device batch;
  float const* zeros;  // as many as the widest row has, for values that a matrix has no row for

  template <class Index>
  TESSERA_DEVICE value_gradient operator()(Index source) const {
    auto const p = batch.first_value() + static_cast<std::int64_t>(source);
    // Its key: the last whose values begin at p or before.
    auto const& key = keys[count_first(key_count, [&](std::int64_t k) { return batch.offsets[keys[k].first_row] <= p; }) - 1];
    auto const row = p - batch.offsets[key.first_row];
    if (row >= key.rows) return {zeros, 1, true};
    return {key.gradients + row * key.stride, 1, key.by_four};
  }
};

/// The source of a call, and the memory that it reads. It reports sequences with fewer gradients than values.
template <class Exec>
class sequence_source_on_device {
 public:
  template <class Feature>
  sequence_source_on_device(Exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                            vector_view<matrix_view<float const> const> gradients)
      : batch_(batch) {
    std::vector<sequence_gradients> keys;
    std::int64_t widest = 4;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (batch.rows(key) == 0) continue;
      auto const& matrix = gradients[key];
      widest = std::max(widest, divide_up(matrix.columns(), 4) * 4);
      keys.push_back({matrix.data(), matrix.rows(), matrix.stride(), batch.first_row[key] - batch.first_row[0], batch.rows(key),
                      is_sequence(features[key]) ? feature_number(features[key], key) : -1,
                      moves_by_four(matrix.data(), matrix.columns(), matrix.stride())});
    }
    keys_ = to_device(exec, keys);
    launch_for_each(exec, keys_.size(), check_gradient_rows{keys_.data(), batch_, exec.faults(sequence_gradients_too_few)});
    zeros_.resize(exec, widest);
    exec.fill(zeros_.data(), 0, static_cast<std::size_t>(widest) * sizeof(float));
  }

  sequence_source get() const noexcept { return {keys_.data(), keys_.size(), batch_, zeros_.data()}; }

 private:
  batch_on_device batch_;
  buffer<sequence_gradients, Exec> keys_;
  buffer<float, Exec> zeros_;
};

template <device_execution Exec>
struct back_end<sequence_lookup_backward_tag, Exec> {
  template <class Store, class Optimizer>
  static void update(Exec const& exec, vector_view<Store> tables, vector_view<std::int64_t const> features,
                     basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                     vector_view<Optimizer const> optimizers) {
    sequence_source_on_device<Exec> const source(exec, features, saved.batch, gradients);
    update_rows_on_device(exec, "sequence_lookup_backward", tables, features, saved, optimizers, source.get());
  }

  template <class Store>
  static void sum(Exec const& exec, vector_view<Store const> tables, vector_view<std::int64_t const> features,
                  basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                  basic_row_gradients<Exec>& out) {
    sequence_source_on_device<Exec> const source(exec, features, saved.batch, gradients);
    sum_rows_on_device(exec, tables, features, saved, source.get(), out);
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
