// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/hot/classify_samples.hpp>

namespace tessera {
inline namespace TESSERA_ABI {

namespace detail {

TESSERA_INLINE void clear_cold(jagged_view<std::int64_t const> rows, table_hot_rows const& hot, std::int64_t first, std::int64_t last,
                               std::uint8_t* flags) noexcept {
  for (auto r = first; r < last; ++r) {
    std::uint8_t all = 1;
    for (auto const id : rows.row(r))
      if (!hot.is_hot(id)) all = 0;
    if (all == 0) flags[r] = 0;
  }
}

}  // namespace detail

TESSERA_INLINE void classify_batch(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features,
                                   hot_rows const& hot, vector_view<std::uint8_t> out) {
  detail::check_keys_of_features("classify_batch", batch, features);
  auto const view = batch.inverse_keyed();
  if (out.size() != view.samples)
    throw error(errc::shape_mismatch, "classify_batch: a class a sample", {{"classes", out.size()}, {"samples", view.samples}});
  for (std::size_t f = 0; f < features.size(); ++f)
    if (features[f].table < 0 || features[f].table >= static_cast<std::int64_t>(hot.tables.size()))
      throw error(errc::out_of_range, "classify_batch: a feature of no table",
                  {{"feature", f}, {"table", features[f].table}, {"tables", hot.tables.size()}});
  constexpr std::int64_t rows_a_piece = 4096;
  auto const clear = [&](std::int64_t first_key, std::int64_t keys, std::int64_t rows, std::uint8_t* flags) {
    for_each_piece(exec, rows, rows_a_piece, [&](std::int64_t first, std::int64_t last) {
      for (auto key = first_key; key < first_key + keys; ++key)
        detail::clear_cold(view.distinct.key(key), hot.tables[static_cast<std::size_t>(features[static_cast<std::size_t>(key)].table)],
                           first, last, flags);
    });
  };
  std::fill(out.begin(), out.end(), std::uint8_t{1});
  clear(view.grouped_keys(), view.keys() - view.grouped_keys(), view.samples, out.data());
  for (auto const& group : view.groups) {
    buffer<std::uint8_t> of_rows(exec, view.rows(group));
    std::fill(of_rows.begin(), of_rows.end(), std::uint8_t{1});
    clear(group.first_key, group.keys, of_rows.size(), of_rows.data());
    for (std::int64_t i = 0; i < view.samples; ++i)
      if (of_rows[group.inverse[i]] == 0) out[i] = 0;
  }
}

namespace detail {

TESSERA_INLINE void collected_classes::add(host_exec const& exec, batch_view const& batch, std::vector<table_feature> const& features,
                                           hot_rows const& hot) {
  auto const samples = batch.samples();
  if (batch.sample_ids.size() != samples)
    throw error(errc::invalid_argument, "classify_samples: a batch that does not number its samples",
                {{"sample_ids", batch.sample_ids.size()}, {"samples", samples}});
  of_batch_.resize(static_cast<std::size_t>(samples));
  classify_batch(exec, batch, features, hot, of_batch_);
  std::int64_t last = -1;
  for (auto const sample : batch.sample_ids) {
    if (sample < 0) throw error(errc::invalid_argument, "classify_samples: samples are numbered from 0 on", {{"sample", sample}});
    last = std::max(last, sample);
  }
  if (last >= static_cast<std::int64_t>(classes_.size())) classes_.resize(static_cast<std::size_t>(last + 1), unknown_class);
  for (std::int64_t i = 0; i < samples; ++i) {
    auto& of_sample = classes_[static_cast<std::size_t>(batch.sample_ids[i])];
    if (of_sample != unknown_class)
      throw error(errc::invalid_argument, "classify_samples: a sample came twice", {{"sample", batch.sample_ids[i]}});
    of_sample = of_batch_[static_cast<std::size_t>(i)];
  }
}

TESSERA_INLINE sample_classes collected_classes::finish(std::int64_t samples, std::uint32_t data, std::uint32_t rows) const {
  if (samples > static_cast<std::int64_t>(classes_.size()))
    throw error(errc::invalid_argument, "classify_samples: a sample did not come", {{"sample", classes_.size()}});
  sample_classes classes(static_cast<std::int64_t>(classes_.size()), data, rows);
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] == unknown_class) throw error(errc::invalid_argument, "classify_samples: a sample did not come", {{"sample", i}});
    if (classes_[i] == 1) classes.set_hot(static_cast<std::int64_t>(i));
  }
  return classes;
}

}  // namespace detail

}  // namespace TESSERA_ABI
}  // namespace tessera
