// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/local_model.hpp>
#include <tessera/shard/table_spec.hpp>
#include <tessera/synth/session_options.hpp>
#include <tessera/train/vector_places.hpp>
#ifdef TESSERA_RECD_DNNL
#include <tessera/nn/gemm_dnnl.hpp>
#endif

#include "results.hpp"

namespace recd {

#ifdef TESSERA_RECD_DNNL
using float_products = tessera::dnnl_fp32_gemm;
#else
using float_products = tessera::eigen_gemm;
#endif

template <class Gemm>
using session_dlrm = tessera::click_model<tessera::local_tables, Gemm, tessera::dot_products, tessera::encoder_pooling>;

constexpr std::int64_t dim = 64, hidden = 128;  // of tables, and of the transformers' feed-forward
constexpr tessera::rowwise_adagrad row_optimizer{.learning_rate = 0.02F};

/// Bytes of all tables of a set, with what their optimizer keeps of each row.
inline double bytes_of_tables(tessera::session_clicks_options const& options) {
  double rows = 0;
  for (auto const& feature : options.features) rows += static_cast<double>(feature.ids);
  return rows * (dim + 1) * sizeof(float);
}

/// What a model is made of, but for where its tables lie.
struct model_parts {
  std::vector<tessera::table_spec> tables;  // of each key
  std::vector<tessera::table_feature> features;
  std::vector<tessera::sequence_group<tessera::encoder_pooling>> groups;
  tessera::click_model_options dense;
};

/// What becomes of the features of a set: the sequences of each of the first `transformers` groups by a transformer together, all others each by
/// sum; users by sum and maximum in turn, items by sum. `keys`: of its batches. Models of the same keys begin alike.
inline model_parts parts_of_model(tessera::session_clicks_options const& options, std::size_t transformers,
                                  std::vector<std::string> const& keys, tessera::pooled_rows rows) {
  model_parts parts;
  std::int64_t users = 0, last_group = -1;
  for (auto const& key : keys) {
    auto const feature = std::find_if(options.features.begin(), options.features.end(), [&](auto const& f) { return f.name == key; });
    auto const table = static_cast<std::int64_t>(parts.tables.size());
    tessera::table_options const shape{
        .id = tessera::table_id(table), .dim = dim, .rows = feature->ids, .init_bound = 0.05F, .seed = tessera::random_seed(17)};
    parts.tables.push_back(tessera::spec_of<tessera::dense_table<>>(shape, row_optimizer));
    bool const is_new_group = parts.groups.empty() || feature->group < 0 || feature->group != last_group;
    bool const is_sequence =
        feature->kind == tessera::session_feature_kind::sequence && (is_new_group ? parts.groups.size() < transformers : true);
    bool const is_largest = !is_sequence && feature->kind == tessera::session_feature_kind::user && users++ % 2 == 1;
    parts.features.push_back(
        {.name = key, .table = table, .sequence = is_sequence, .pooling = is_largest ? tessera::pooling::max : tessera::pooling::sum});
    if (!is_sequence) continue;
    if (is_new_group) parts.groups.push_back({{}, {.layers = 1, .heads = 2, .hidden = hidden}});
    last_group = feature->group;
    parts.groups.back().outputs.push_back(key);
  }
  parts.dense = {.dense_features = options.dense_features,
                 .bottom_hidden = {512, 256},
                 .top_hidden = {512, 256},
                 .seed = tessera::random_seed(17),
                 .rows = rows};
  return parts;
}

/// The model whose tables are all of this process.
template <class Gemm>
session_dlrm<Gemm> make_model(tessera::host_exec const& exec, tessera::session_clicks_options const& options, std::size_t transformers,
                              std::vector<std::string> const& keys, tessera::pooled_rows rows) {
  auto parts = parts_of_model(options, transformers, keys, rows);
  tessera::table_list tables;
  for (auto const& spec : parts.tables) spec.add(exec, spec.table, tables);
  return {exec, parts.dense, {std::move(tables), std::move(parts.features)}, {}, std::move(parts.groups)};
}

/// What a step on a batch goes through, where sequences are pooled once a row that the batch has.
template <class Gemm>
amounts amounts_of(tessera::host_exec const& exec, session_dlrm<Gemm> const& model, tessera::batch_view const& batch) {
  auto const& sparse = batch.sparse;
  amounts n;
  std::int64_t sequences = 0;  // keys
  for (auto const& group : model.sequence_groups()) {
    auto const keys = static_cast<std::int64_t>(group.outputs.size());
    for (std::int64_t row = 0; row < sparse.rows(sequences); ++row) {
      double length = 0;
      for (std::int64_t k = 0; k < keys; ++k) length += static_cast<double>(sparse.key(sequences + k).length(row));
      n.sequence_ids += length;
      n.products += length * (4 * dim * dim + 2 * dim * hidden + 2 * dim * length);
    }
    sequences += keys;
  }
  n.bag_vectors = static_cast<double>(batch.samples() * (sparse.keys - sequences));
  std::vector<double> different(static_cast<std::size_t>(sparse.keys));
  exec.run(sparse.keys, [&](std::int64_t key) {
    auto const values = sparse.key(key).all_values();
    std::vector<std::int64_t> ids(values.begin(), values.end());
    std::sort(ids.begin(), ids.end());
    different[static_cast<std::size_t>(key)] = static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
  });
  for (std::int64_t key = 0; key < sparse.keys; ++key) {
    (key < sequences ? n.sequence_rows : n.bag_rows) += different[static_cast<std::size_t>(key)];
    if (key >= sequences) n.bag_ids += static_cast<double>(sparse.key(key).size());
  }
  return n;
}

}  // namespace recd
