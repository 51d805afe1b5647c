// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/cuda_execution.cuh>
#include <tessera/core/device.hpp>
#include <tessera/core/four_elements.hpp>
#include <tessera/core/multiply_add.hpp>
#include <tessera/core/row_formats.hpp>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooled_lookup_backward.hpp>
#include <tessera/embed/row_gradients.cuh>
#include <tessera/embed/row_sums.cuh>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

/// The gradients of one key's bags.
struct pooled_gradients {
  float const* gradients;
  std::int64_t stride;
  std::int64_t first_row;  // of the key, in the batch
  pooling mode;
  bool by_four;
};

// Which bag each value is of, for those that are found by position. A thread a bag: this is the rarer way.
struct number_bags {
  batch_on_device batch;
  std::int64_t count;
  std::int64_t* bags;

  TESSERA_DEVICE void operator()(std::int64_t row) const {
    auto const base = batch.first_value();
    for (auto p = batch.begin_of(row); p < batch.end_of(row); ++p)
      if (p - base < count) bags[p - base] = row;
  }
};

/// Finds the gradient of a value by its bag, or by its position.
struct pooled_source {
  pooled_gradients const* keys = nullptr;    // those with rows
  std::int64_t const* first_rows = nullptr;  // (key_count + 1,)
  std::int64_t key_count = 0;
  batch_on_device batch{};
  std::int64_t const* bags = nullptr;  // of each position, or nullptr: sources are bags

  TESSERA_DEVICE std::int64_t row_of(std::int64_t number) const { return bags == nullptr ? number : bags[number]; }
  /// The number of the key that has a row.
  TESSERA_DEVICE std::int64_t key_of(std::int64_t row) const { return range_of(first_rows, key_count, row); }

  template <class Index>
  TESSERA_DEVICE value_gradient operator()(Index source) const {
    auto const number = static_cast<std::int64_t>(source);
    auto const row = row_of(number);
    auto const& key = keys[key_of(row)];
    auto scale = pooling_scale(key.mode, key.mode == pooling::mean ? batch.end_of(row) - batch.begin_of(row) : 1);
    if (batch.weights != nullptr) scale = scale * batch.weights[batch.first_value() + number];
    return {key.gradients + (row - key.first_row) * key.stride, scale, key.by_four};
  }
};

/// The source of a call, and the memory that it reads.
template <class Exec>
class pooled_source_on_device {
 public:
  template <class Feature>
  pooled_source_on_device(Exec const& exec, vector_view<Feature const> features, keyed_jagged_view<std::int64_t const> batch,
                          vector_view<matrix_view<float const> const> gradients) {
    std::vector<pooled_gradients> keys;
    std::vector<std::int64_t> first_rows;
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      if (batch.rows(key) == 0) continue;
      auto const& matrix = gradients[key];
      first_rows.push_back(batch.first_row[key] - batch.first_row[0]);
      keys.push_back({matrix.data(), matrix.stride(), first_rows.back(), features[key].pooling,
                      moves_by_four(matrix.data(), matrix.columns(), matrix.stride())});
    }
    first_rows.push_back(batch.rows());
    keys_ = to_device(exec, keys);
    first_rows_ = to_device(exec, first_rows);
    source_ = {keys_.data(), first_rows_.data(), keys_.size(), batch_on_device(batch), nullptr};
    if (finds_by_bag(features, batch)) return;
    auto const count = value_bound(exec, batch.flat());
    bags_.resize(exec, count);
    launch_for_each(exec, batch.rows(), number_bags{source_.batch, count, bags_.data()});
    source_.bags = bags_.data();
  }

  pooled_source get() const noexcept { return source_; }

 private:
  buffer<pooled_gradients, Exec> keys_;
  buffer<std::int64_t, Exec> first_rows_, bags_;
  pooled_source source_;
};

// <gradient, row> for each value of a bag, in sixteen running sums as the host has them, a thread each.
template <class Rows>
struct weight_gradient_kernel {
  static constexpr int threads = 256, lanes = 16;

  pooled_source source;
  Rows const* tables;         // of each key with rows
  std::int64_t const* slots;  // or nullptr: the ids
  std::int64_t count;         // values there is room for
  float* out;

  static constexpr std::int64_t shared_bytes = threads * sizeof(float);

  template <class Block>
  TESSERA_DEVICE void operator()(Block& block) const {
    auto const group = block.thread() / lanes, lane = block.thread() % lanes;
    auto* const running = block.template shared<float>() + group * lanes;
    auto const& batch = source.batch;
    auto const base = batch.first_value();
    for_each_unit(block, batch.rows, threads / lanes, group, [&](std::int64_t row) {
      auto const number = range_of(source.first_rows, source.key_count, row);
      auto const& key = source.keys[number];
      auto const& rows = tables[number];
      auto const begin = batch.begin_of(row), end = batch.end_of(row);
      auto const scale = pooling_scale(key.mode, end - begin);
      auto const* const gradient = key.gradients + (row - key.first_row) * key.stride;
      for (auto p = begin; p < end && p - base < count; ++p) {
        auto const slot = slots == nullptr ? batch.values[p] : slots[p - base];
        running[lane] = dot(rows, slot, batch.values[p], gradient, lane);
        block.sync_group(lanes);
        if (lane == 0) out[p - base] = scale * join_lanes(running);
        block.sync_group(lanes);
      }
    });
  }

  TESSERA_DEVICE float dot(Rows const& rows, std::int64_t slot, std::int64_t id, float const* gradient, int lane) const {
    using element = typename Rows::element;
    float sum = 0;
    if (rows.holds(slot)) {
      auto const* const row = rows.row(slot);
      auto const scale = row_scale<element>::of(row);
      for (std::int64_t c = lane; c < rows.dim(); c += lanes) sum = multiply_add(scale.value(row[c]), gradient[c], sum);
    } else if constexpr (!Rows::slots_are_ids) {
      for (std::int64_t c = lane; c < rows.dim(); c += lanes) {
        auto const word = initial_row_block(rows.options(), id, c / 4)[static_cast<int>(c % 4)];
        auto const initial = stored_initial<element>(rows.options(), uniform_symmetric(word, rows.options().init_bound));
        sum = multiply_add(initial, gradient[c], sum);
      }
    }
    return sum;
  }
};

template <device_execution Exec>
struct back_end<pooled_lookup_backward_tag, Exec> {
  template <class Store, class Optimizer>
  static void update(Exec const& exec, vector_view<Store> tables, vector_view<pooled_feature const> features,
                     basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                     vector_view<Optimizer const> optimizers) {
    pooled_source_on_device<Exec> const source(exec, features, saved.batch, gradients);
    update_rows_on_device(exec, "pooled_lookup_backward", tables, features, saved, optimizers, source.get());
  }

  template <class Store>
  static void sum(Exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                  basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                  basic_row_gradients<Exec>& out) {
    pooled_source_on_device<Exec> const source(exec, features, saved.batch, gradients);
    sum_rows_on_device(exec, tables, features, saved, source.get(), out);
  }

  template <class Store>
  static void weight_gradient(Exec const& exec, vector_view<Store const> tables, vector_view<pooled_feature const> features,
                              basic_lookup_saved<Exec> const& saved, vector_view<matrix_view<float const> const> gradients,
                              vector_view<float> out) {
    using kernel = weight_gradient_kernel<decltype(tables[0].device_rows())>;
    auto const batch = saved.batch;
    if (batch.rows() == 0) return;
    pooled_source_on_device<Exec> const source(exec, features, batch, gradients);
    std::vector<decltype(tables[0].device_rows())> rows;
    for (std::int64_t key = 0; key < batch.keys; ++key)
      if (batch.rows(key) > 0) rows.push_back(tables[features[key].table].device_rows());
    auto const rows_on_device = to_device(exec, rows);
    exec.launch({.blocks = blocks_for(batch.rows(), kernel::threads / kernel::lanes), .shared_bytes = kernel::shared_bytes},
                kernel{source.get(), rows_on_device.data(), saved.template slots_of<Store>(), out.size(), out.data()});
  }
};

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
