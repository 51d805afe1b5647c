// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/core/execution.hpp>
#include <tessera/core/view.hpp>
#include <tessera/tensor/batch.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

/// Owns a copy of a batch, which stays when the reader gives its next one. Move-only.
class batch_copy {
 public:
  /// Copies what the batch shows. Allocates only for a batch larger than all before, and for other names of keys.
  /// @post view() shows equal samples; their first row and first offset are 0.
  void assign(host_exec const& exec, batch_view const& batch) {
    auto const& sparse = batch.sparse;
    auto const flat = sparse.flat();
    auto const rows = flat.rows;
    auto const columns = batch.dense.columns();
    dense_.resize(exec, batch.dense.rows() * columns);
    for (std::int64_t i = 0; i < batch.dense.rows(); ++i) std::copy_n(batch.dense.row(i), columns, dense_.data() + i * columns);
    copy(exec, batch.labels, labels_);
    copy(exec, batch.sample_ids, sample_ids_);
    copy(exec, batch.session_ids, session_ids_);
    copy(exec, batch.weights, sample_weights_);
    auto const& others = batch.other_labels;
    other_labels_.resize(exec, others.rows() * others.columns());
    for (std::int64_t i = 0; i < others.rows(); ++i)
      std::copy_n(others.row(i), others.columns(), other_labels_.data() + i * others.columns());
    auto const begin = rows == 0 ? 0 : flat.offsets[0];
    copy(exec, {flat.values == nullptr ? nullptr : flat.values + begin, flat.size()}, ids_);
    copy(exec, {sparse.weighted() ? sparse.weights + begin : nullptr, sparse.weighted() ? flat.size() : 0}, weights_);
    offsets_.resize(exec, rows + 1);
    offsets_[0] = 0;
    for (std::int64_t row = 0; row < rows; ++row) offsets_[row + 1] = flat.offsets[row + 1] - begin;
    first_row_.resize(exec, sparse.keys + 1);
    first_row_[0] = 0;
    for (std::int64_t key = 0; key < sparse.keys; ++key) first_row_[key + 1] = first_row_[key] + sparse.rows(key);
    auto const samples = batch.samples(), groups = batch.groups.size();
    inverses_.resize(exec, groups * samples);
    groups_.resize(exec, groups);
    for (std::int64_t g = 0; g < groups; ++g) {
      std::copy_n(batch.groups[g].inverse, samples, inverses_.data() + g * samples);
      groups_[g] = {batch.groups[g].first_key, batch.groups[g].keys, inverses_.data() + g * samples};
    }

    auto const& names = batch.key_names;
    if (!std::equal(names.begin(), names.end(), key_names_.begin(), key_names_.end())) key_names_.assign(names.begin(), names.end());

    view_ = batch;
    view_.key_names = key_names_;
    view_.dense = {dense_.data(), batch.dense.rows(), columns};
    view_.labels = labels_.view();
    view_.sparse = {ids_.data(), sparse.weighted() ? weights_.data() : nullptr, offsets_.data(), first_row_.data(), sparse.keys};
    view_.sample_ids = sample_ids_.view();
    view_.session_ids = session_ids_.view();
    view_.groups = groups_.view();
    view_.weights = sample_weights_.view();
    view_.other_labels = {other_labels_.data(), others.rows(), others.columns()};
  }

  /// The copy, shown until the next `assign`.
  batch_view const& view() const noexcept { return view_; }
  std::size_t bytes() const noexcept {
    return dense_.capacity_bytes() + labels_.capacity_bytes() + sample_ids_.capacity_bytes() + session_ids_.capacity_bytes() +
           sample_weights_.capacity_bytes() + other_labels_.capacity_bytes() + ids_.capacity_bytes() + weights_.capacity_bytes() +
           offsets_.capacity_bytes() + first_row_.capacity_bytes() + inverses_.capacity_bytes() + groups_.capacity_bytes();
  }

 private:
  template <class T>
  static void copy(host_exec const& exec, vector_view<T const> from, buffer<T>& to) {
    to.resize(exec, from.size());
    std::copy(from.begin(), from.end(), to.begin());
  }

  batch_view view_;
  std::vector<std::string> key_names_;
  buffer<float> dense_, labels_, sample_weights_, other_labels_;
  buffer<float> weights_;  // of the ids
  buffer<std::int64_t> ids_, offsets_, first_row_, sample_ids_, session_ids_;
  buffer<std::int64_t> inverses_;  // (groups, samples)
  buffer<row_group> groups_;
};

}  // namespace TESSERA_ABI
}  // namespace tessera
