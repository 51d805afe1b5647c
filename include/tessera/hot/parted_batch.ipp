// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/parted_batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {
namespace detail {

TESSERA_INLINE void parted_batch::number(host_exec const& exec, batch_view const& batch, std::vector<hot_key> const& keys,
                                         hot_rows const& hot) {
  batch_ = batch;
  auto const& sparse = batch_.sparse;
  if (sparse.keys != static_cast<std::int64_t>(keys.size()))
    throw error(errc::shape_mismatch, "hot_source: a feature a key", {{"keys", sparse.keys}, {"features", keys.size()}});
  numbers_.resize(exec, sparse.first_value() + sparse.size());
  exec.run(sparse.keys, [&](std::int64_t k) {
    auto const& table = hot.tables[static_cast<std::size_t>(keys[static_cast<std::size_t>(k)].table)];
    auto const rows = sparse.key(k);
    auto const last = rows.first_value() + rows.size();
    for (auto p = rows.first_value(); p < last; ++p) numbers_[p] = table.number(sparse.values[p]);
  });
}

TESSERA_INLINE batch_view parted_batch::numbered() const {
  auto batch = batch_;
  batch.sparse = {numbers_.data(),         batch_.sparse.weights, batch_.sparse.offsets,
                  batch_.sparse.first_row, batch_.sparse.keys,    numbers_.size()};
  return batch;
}

TESSERA_INLINE std::exception_ptr parted_batch::cold_id(std::vector<hot_key> const& keys) const {
  auto const view = batch_.inverse_keyed();
  for (std::int64_t k = 0; k < view.keys(); ++k) {
    auto const rows = view.distinct.key(k);
    for (std::int64_t r = 0; r < rows.rows; ++r)
      for (auto p = rows.begin_of(r); p < rows.end_of(r); ++p) {
        if (numbers_[p] >= 0) continue;
        auto const inverse = view.inverse(k);
        auto const sample = inverse.empty() ? r : std::find(inverse.begin(), inverse.end(), r) - inverse.begin();
        return std::make_exception_ptr(
            error(errc::invalid_argument, "hot_source: a cold id in a hot batch",
                  {{"sample", sample}, {"key", k}, {"table", keys[static_cast<std::size_t>(k)].table}, {"id", view.distinct.values[p]}}));
      }
  }
  return nullptr;
}

TESSERA_INLINE void parted_batch::part(host_exec const& exec) {
  auto const& sparse = batch_.sparse;
  auto const first = sparse.first_value(), size = sparse.size();
  masks_.resize(exec, 2 * size);
  for (std::int64_t i = 0; i < size; ++i) {
    masks_[i] = numbers_[first + i] >= 0 ? 1 : 0;
    masks_[size + i] = masks_[i] ^ 1;
  }
  auto const masks = std::as_const(masks_).view();
  hot_ = {};  // before anything is taken, so that nothing stays behind it in an arena
  cold_ = {};
  hot_ = masked_select(exec, numbered().sparse, masks.slice(0, size));
  cold_ = masked_select(exec, sparse, masks.slice(size, size));
}

TESSERA_INLINE batch_view parted_batch::hot() const {
  auto batch = batch_;
  batch.sparse = hot_.view();
  return batch;
}
TESSERA_INLINE batch_view parted_batch::cold() const {
  auto batch = batch_;
  batch.sparse = cold_.view();
  return batch;
}

TESSERA_INLINE parted_batch::lengths parted_batch::of_bag(std::int64_t key, std::int64_t sample) const {
  auto const inverse = batch_.inverse_keyed().inverse(key);
  auto const row = inverse.empty() ? sample : inverse[sample];
  return {hot_.view().key(key).length(row), cold_.view().key(key).length(row)};
}

TESSERA_INLINE void parted_batch::make_blocks(host_exec const& exec, std::vector<hot_key> const& keys,
                                              vector_view<embedding_output const> outputs, vector_view<matrix_view<float> const> out) {
  check_blocks("hot_source::finish", keys, outputs, out, false);
  auto const hot_rows_of = [&](std::int64_t k, bool sequence) { return sequence ? hot_.view().key(k).size() : batch_.samples(); };
  std::int64_t floats = 0;
  for (std::int64_t k = 0; k < batch_.sparse.keys; ++k) {
    auto const& output = outputs[keys[static_cast<std::size_t>(k)].output];
    floats += (hot_rows_of(k, output.sequence) + (output.sequence ? cold_.view().key(k).size() : 0)) * output.width;
  }
  memory_.resize(exec, floats);
  cold_out_.assign(static_cast<std::size_t>(outputs.size()), {});
  hot_out_.clear();
  auto* next = memory_.data();
  auto const take = [&](std::int64_t rows, std::int64_t width) {
    matrix_view<float> const block(next, rows, width);
    next += rows * width;
    return block;
  };
  for (std::int64_t k = 0; k < batch_.sparse.keys; ++k) {
    auto const o = keys[static_cast<std::size_t>(k)].output;
    auto const& output = outputs[o];
    hot_out_.push_back(take(hot_rows_of(k, output.sequence), output.width));
    cold_out_[static_cast<std::size_t>(o)] = output.sequence ? take(cold_.view().key(k).size(), output.width) : out[o];
  }
}

TESSERA_INLINE void parted_batch::join(host_exec const& exec, std::vector<hot_key> const& keys, vector_view<embedding_output const> outputs,
                                       vector_view<matrix_view<float> const> out) const {
  exec.run(batch_.sparse.keys, [&](std::int64_t k) {
    auto const o = keys[static_cast<std::size_t>(k)].output;
    auto const width = outputs[o].width;
    auto const& hot = hot_out_[static_cast<std::size_t>(k)];
    auto const& cold = cold_out_[static_cast<std::size_t>(o)];
    if (outputs[o].sequence) {
      std::int64_t to = 0;
      return for_each_vector(
          k, false, [&](bool is_hot, std::int64_t place) { std::copy_n((is_hot ? hot : cold).row(place), width, out[o].row(to++)); });
    }
    for (std::int64_t i = 0; i < batch_.samples(); ++i) {
      auto const of = of_bag(k, i);
      if (of.hot == 0) continue;
      auto* const to = out[o].row(i);
      auto const* const from = hot.row(i);
      if (of.cold == 0) {
        std::copy_n(from, width, to);
      } else if (outputs[o].pooling == pooling::max) {
        for (std::int64_t c = 0; c < width; ++c) to[c] = std::max(to[c], from[c]);
      } else if (outputs[o].pooling == pooling::mean) {
        auto const all = static_cast<float>(of.hot + of.cold);
        auto const of_cold = static_cast<float>(of.cold) / all, of_hot = static_cast<float>(of.hot) / all;
        for (std::int64_t c = 0; c < width; ++c) to[c] = of_cold * to[c] + of_hot * from[c];
      } else {
        for (std::int64_t c = 0; c < width; ++c) to[c] += from[c];
      }
    }
  });
}

TESSERA_INLINE void parted_batch::split(host_exec const& exec, std::vector<hot_key> const& keys,
                                        vector_view<embedding_output const> outputs,
                                        vector_view<matrix_view<float const> const> gradients) {
  auto const samples = batch_.samples();
  check_blocks("hot_source::begin_backward", keys, outputs, gradients, true);
  auto const mixes = [&](std::int64_t k) {
    for (std::int64_t i = 0; i < samples; ++i)
      if (auto const of = of_bag(k, i); of.hot > 0 && of.cold > 0) return true;
    return false;
  };
  // Of sequences, and of means of bags that mix; other gradients are the caller's for both parts.
  std::vector<bool> is_own(keys.size());
  std::int64_t floats = 0;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    auto const& output = outputs[keys[k].output];
    auto const& gradient = gradients[keys[k].output];
    is_own[k] = output.sequence || (output.pooling == pooling::mean && mixes(static_cast<std::int64_t>(k)));
    if (is_own[k]) floats += (output.sequence ? 1 : 2) * gradient.rows() * output.width;
  }
  gradient_memory_.resize(exec, floats);
  cold_gradients_.assign(gradients.begin(), gradients.end());
  hot_gradients_.clear();
  auto* next = gradient_memory_.data();
  for (std::size_t k = 0; k < keys.size(); ++k) {
    auto const key = static_cast<std::int64_t>(k), o = keys[k].output;
    auto const width = outputs[o].width;
    auto const& from = gradients[o];
    hot_gradients_.push_back(from);
    if (!is_own[k]) continue;
    if (outputs[o].sequence) {
      bool const of_samples = outputs[o].expanded_gradients;
      std::int64_t hot_count = 0;
      for_each_vector(key, of_samples, [&](bool is_hot, std::int64_t) { hot_count += is_hot ? 1 : 0; });
      matrix_view<float> const hot(next, hot_count, width), cold(next + hot_count * width, from.rows() - hot_count, width);
      next += from.rows() * width;
      std::int64_t row = 0;
      for_each_vector(key, of_samples,
                      [&](bool is_hot, std::int64_t place) { std::copy_n(from.row(row++), width, (is_hot ? hot : cold).row(place)); });
      hot_gradients_.back() = hot;
      cold_gradients_[static_cast<std::size_t>(o)] = cold;
      continue;
    }
    matrix_view<float> const hot(next, samples, width), cold(next + samples * width, samples, width);
    next += 2 * samples * width;
    for (std::int64_t i = 0; i < samples; ++i) {
      auto const of = of_bag(key, i);
      auto const all = static_cast<float>(std::max<std::int64_t>(of.hot + of.cold, 1));
      auto const of_cold = static_cast<float>(of.cold) / all, of_hot = static_cast<float>(of.hot) / all;
      for (std::int64_t c = 0; c < width; ++c) {
        hot.row(i)[c] = of_hot * from.row(i)[c];
        cold.row(i)[c] = of_cold * from.row(i)[c];
      }
    }
    hot_gradients_.back() = hot;
    cold_gradients_[static_cast<std::size_t>(o)] = cold;
  }
}

}  // namespace detail
}  // namespace TESSERA_ABI
}  // namespace tessera
