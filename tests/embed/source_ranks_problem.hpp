// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/core/optimizers.hpp>
#include <tessera/core/view.hpp>
#include <tessera/embed/row_gradients.hpp>
#include <tessera/embed/row_optimizer.hpp>
#include <tessera/tensor/concat.hpp>
#include <tessera/tensor/deduplicate.hpp>
#include <tessera/tensor/inverse_keyed_jagged.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "embed_support.hpp"
#include "pooled_problem.hpp"
#include "random.hpp"

/// The samples of several ranks as their tables' owner gets them, and the same as one batch.
namespace embed_tests {

struct ranks_shape {
  std::int64_t keys;          // of a rank
  std::int64_t id_range;      // ids in [0, id_range)
  std::int64_t most_samples;  // of a rank
  double mean_length;
  bool weighted;
};

/// The samples of each rank, in three forms.
struct ranks_batch {
  std::vector<tessera::keyed_jagged<>> of_rank;
  tessera::keyed_jagged<> whole;    // (keys,): all ranks' samples, rank 0's first
  tessera::keyed_jagged<> by_rank;  // (ranks * keys,)

  std::int64_t ranks() const { return static_cast<std::int64_t>(of_rank.size()); }
  sparse_view whole_view() const { return whole.view(); }
  sparse_view view() const { return by_rank.view(); }
  std::int64_t keys() const { return whole_view().keys; }
  std::int64_t samples(std::size_t rank) const { return keys() == 0 ? 0 : of_rank[rank].view().rows(0); }
};

inline std::vector<sparse_view> views_of(std::vector<tessera::keyed_jagged<>> const& batches) {
  std::vector<sparse_view> views;
  for (auto const& batch : batches) views.push_back(batch.view());
  return views;
}

/// Samples of one rank. Keys [0, 2) and the others each often repeat the rows of an earlier sample together.
inline tessera::keyed_jagged<> draw_samples(tessera::host_exec const& exec, std::mt19937_64& random, std::size_t samples,
                                            ranks_shape const& shape) {
  std::vector<tessera::feature_rows<>> keys;
  std::vector<std::size_t> earlier(2 * samples);
  for (std::size_t i = 0; i < earlier.size(); ++i) earlier[i] = i < 2 || random() % 2 == 0 ? samples : random() % (i / 2);
  for (std::size_t key = 0; key < static_cast<std::size_t>(shape.keys); ++key) {
    std::vector<std::vector<std::int64_t>> rows;
    std::vector<std::vector<float>> weights;
    auto const lengths = tessera_tests::random_lengths(random, samples, shape.mean_length);
    for (std::size_t i = 0; i < samples; ++i) {
      auto const from = earlier[2 * i + (key < 2 ? 0 : 1)];
      auto const length = static_cast<std::size_t>(lengths[i]);
      rows.push_back(from < samples ? rows[from] : tessera_tests::random_integers<std::int64_t>(random, length, 0, shape.id_range - 1));
      if (shape.weighted) weights.push_back(from < samples ? weights[from] : tessera_tests::random_floats(random, length));
    }
    keys.emplace_back("key" + std::to_string(key), std::move(rows), std::move(weights));
  }
  return tessera::keyed_jagged<>::from_rows(exec, keys);
}

/// So many ranks, some of them without samples.
inline ranks_batch draw_ranks(tessera::host_exec const& exec, std::mt19937_64& random, std::int64_t ranks, ranks_shape const& shape) {
  ranks_batch batch;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto const samples = random() % 4 == 0 ? 0 : tessera_tests::random_integers<std::int64_t>(random, 1, 1, shape.most_samples)[0];
    batch.of_rank.push_back(draw_samples(exec, random, static_cast<std::size_t>(samples), shape));
  }
  batch.whole = tessera::concat_rows(exec, views_of(batch.of_rank));
  batch.by_rank = tessera::concat_keys(exec, views_of(batch.of_rank));
  return batch;
}

/// The features of all ranks.
template <class Feature>
std::vector<Feature> of_ranks(std::vector<Feature> const& features, std::int64_t ranks) {
  std::vector<Feature> all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) all.insert(all.end(), features.begin(), features.end());
  return all;
}

/// The vectors of each rank as they lie in the message to it: of a rank's samples the vectors of all features side by side, or, where keys
/// have different numbers of vectors, key after key.
class rank_messages {
 public:
  /// `dims` (keys,); `rows_of(key)` of all ranks' keys.
  template <class RowsOf>
  rank_messages(std::vector<std::int64_t> const& dims, std::int64_t ranks, bool side_by_side, RowsOf const& rows_of)
      : keys_(static_cast<std::int64_t>(dims.size())) {
    std::int64_t all_columns = 0;
    for (auto const dim : dims) all_columns += dim;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::int64_t floats = 0;
      for (std::int64_t k = 0; k < keys_; ++k) floats += rows_of(rank * keys_ + k) * dims[static_cast<std::size_t>(k)];
      auto& message = messages_.emplace_back(static_cast<std::size_t>(floats), pooled_matrices::canary);
      std::int64_t at = 0;
      for (std::int64_t k = 0; k < keys_; ++k) {
        auto const rows = rows_of(rank * keys_ + k), dim = dims[static_cast<std::size_t>(k)];
        out_.push_back({message.data() + at, rows, dim, side_by_side ? all_columns : dim});
        in_.push_back(out_.back());
        at += side_by_side ? (rows == 0 ? 0 : dim) : rows * dim;
      }
    }
  }
  rank_messages(rank_messages&&) = default;

  std::vector<tessera::matrix_view<float>> const& out() const { return out_; }
  std::vector<tessera::matrix_view<float const>> const& in() const { return in_; }

  /// Takes the vectors of one batch. A key may have more rows than there are vectors of its samples (`counts`); they become `other`.
  void take(std::vector<tessera::matrix_view<float const>> const& whole, std::vector<std::int64_t> const& counts,
            float other = std::numeric_limits<float>::quiet_NaN()) {
    for_each_row(counts, [&](std::size_t key, std::int64_t row, std::size_t k, std::int64_t at) {
      auto* const to = out_[key].row(row);
      if (at < 0)
        std::fill_n(to, out_[key].columns(), other);
      else
        std::copy_n(whole[k].row(at), whole[k].columns(), to);
    });
  }
  /// Whether these are the vectors of one batch, bit for bit; rows of no sample are zeros.
  bool same(std::vector<tessera::matrix_view<float const>> const& whole, std::vector<std::int64_t> const& counts) const {
    bool same = true;
    for_each_row(counts, [&](std::size_t key, std::int64_t row, std::size_t k, std::int64_t at) {
      auto const& block = out_[key];
      if (at < 0)
        same = same && std::all_of(block.row(row), block.row(row) + block.columns(), [](float x) { return x == 0; });
      else
        same = same && same_bits(static_cast<float const*>(block.row(row)), whole[k].row(at), whole[k].columns());
    });
    return same;
  }
  /// All rows, one after the other.
  std::vector<float> values() const {
    std::vector<float> all;
    for (auto const& block : out_)
      for (std::int64_t r = 0; r < block.rows(); ++r) all.insert(all.end(), block.row(r), block.row(r) + block.columns());
    return all;
  }
  /// As many as each block has.
  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> counts;
    for (auto const& block : out_) counts.push_back(block.rows());
    return counts;
  }
  void take(std::vector<tessera::matrix_view<float const>> const& whole) { take(whole, all_rows()); }
  bool same(std::vector<tessera::matrix_view<float const>> const& whole) const { return same(whole, all_rows()); }

 private:
  // Calls f(key, row, feature, its row in the whole or -1).
  template <class F>
  void for_each_row(std::vector<std::int64_t> const& counts, F const& f) const {
    std::vector<std::int64_t> next(static_cast<std::size_t>(keys_));
    for (std::size_t key = 0; key < out_.size(); ++key) {
      auto const k = key % next.size();
      for (std::int64_t row = 0; row < out_[key].rows(); ++row) f(key, row, k, row < counts[key] ? next[k] + row : -1);
      next[k] += counts[key];
    }
  }

  std::int64_t keys_;
  std::vector<std::vector<float>> messages_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> in_;
};

/// The IKJTs of all ranks as one of ranks * keys keys, and as one of all samples. Every rank has `padded` samples; one of fewer points the
/// others to an empty row.
struct ranks_distinct {
  std::vector<tessera::inverse_keyed_jagged<>> of_rank;
  tessera::keyed_jagged<> rows;  // distinct ones, by rank
  tessera::inverse_keyed_jagged<> by_rank;
  tessera::inverse_keyed_jagged<> whole;
  std::int64_t padded = 0;
};

/// `keys_per_group` covers all keys.
inline ranks_distinct distinct_of(tessera::host_exec const& exec, ranks_batch const& batch,
                                  std::vector<std::int64_t> const& keys_per_group) {
  using tessera::keyed_jagged;
  ranks_distinct result;
  auto const groups = keys_per_group.size(), ranks = batch.of_rank.size();
  std::vector<keyed_jagged<>> rows, padded_rows;
  std::int64_t all_samples = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.padded = std::max(result.padded, batch.samples(rank));
    all_samples += batch.samples(rank);
  }
  tessera::buffer<std::int64_t> inverses(exec, static_cast<std::int64_t>(groups) * all_samples),
      padded_inverses(exec, static_cast<std::int64_t>(ranks * groups) * result.padded);
  std::vector<std::int64_t> rows_before(groups), all_groups;
  std::int64_t samples_before = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    result.of_rank.push_back(tessera::deduplicate(exec, batch.of_rank[rank].view(), keys_per_group));
    auto const of = std::as_const(result.of_rank.back()).view();
    std::vector<std::int64_t> const ones(static_cast<std::size_t>(batch.keys()), 1), zeros(ones.size());
    auto const empty_row = keyed_jagged<>::from_lengths(exec, {}, {}, zeros, ones);
    std::vector<sparse_view> const with_one{of.distinct, empty_row.view()};
    rows.push_back(tessera::concat_rows(exec, std::vector<sparse_view>{of.distinct}));
    padded_rows.push_back(tessera::concat_rows(exec, with_one));
    for (std::size_t g = 0; g < groups; ++g) {
      auto const& group = of.groups[static_cast<std::int64_t>(g)];
      auto const samples = of.samples, count = of.rows(group);
      auto* const to = inverses.data() + static_cast<std::int64_t>(g) * all_samples + samples_before;
      auto* const padded_to = padded_inverses.data() + static_cast<std::int64_t>(rank * groups + g) * result.padded;
      for (std::int64_t i = 0; i < samples; ++i) to[i] = rows_before[g] + group.inverse[i];
      for (std::int64_t i = 0; i < result.padded; ++i) padded_to[i] = i < samples ? group.inverse[i] : count;
      rows_before[g] += count;
      all_groups.push_back(keys_per_group[g]);
    }
    samples_before += of.samples;
  }
  result.rows = tessera::concat_keys(exec, views_of(rows));
  result.by_rank = tessera::inverse_keyed_jagged<>::from_parts(tessera::concat_keys(exec, views_of(padded_rows)), all_groups,
                                                               std::move(padded_inverses), result.padded);
  result.whole = tessera::inverse_keyed_jagged<>::from_parts(tessera::concat_rows(exec, views_of(rows)), keys_per_group,
                                                             std::move(inverses), all_samples);
  return result;
}

/// Both have the same ids in the same order of slots or uses, with the same rows and states.
template <class Store>
bool same_store(Store const& a, Store const& b) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows, others;
  a.for_each_row([&](std::int64_t slot, std::int64_t id) { rows.emplace_back(slot, id); });
  b.for_each_row([&](std::int64_t slot, std::int64_t id) { others.emplace_back(slot, id); });
  if (rows != others || a.steps() != b.steps()) return false;
  auto const width = a.state_layout().width(a.dim());
  return std::all_of(rows.begin(), rows.end(), [&](auto const& row) {
    return same_bits(values_of_row(a, row.first), values_of_row(b, row.first)) && same_bits(a.state(row.first), b.state(row.first), width);
  });
}
template <class Store>
bool same_stores(std::vector<Store> const& a, std::vector<Store> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](auto const& x, auto const& y) { return same_store(x, y); });
}

inline bool same_gradients(tessera::row_gradients const& a, tessera::row_gradients const& b) {
  if (a.tables() != b.tables()) return false;
  for (std::int64_t t = 0; t < a.tables(); ++t) {
    if (a.rows(t) != b.rows(t)) return false;
    if (!same_bits(a.slots(t).data(), b.slots(t).data(), a.rows(t)) || !same_bits(a.ids(t).data(), b.ids(t).data(), a.rows(t)))
      return false;
    if (!same_bits(a.values(t).data(), b.values(t).data(), a.rows(t) * a.dim(t))) return false;
  }
  return true;
}

// What the tests train.
inline constexpr std::int64_t ranks_ids = 40;
inline std::vector<std::int64_t> const ranks_dims{3, 17, 64};
// Tables 0 and 1 are read by several keys.
inline std::vector<tessera::pooled_feature> const ranks_poolings{{0, tessera::pooling::sum}, {1, tessera::pooling::mean},
                                                                 {0, tessera::pooling::max}, {2, tessera::pooling::sum},
                                                                 {1, tessera::pooling::sum}, {0, tessera::pooling::mean}};
inline std::vector<tessera::pooled_feature> const ranks_sums{{0, tessera::pooling::sum}, {1, tessera::pooling::mean},
                                                             {0, tessera::pooling::sum}, {2, tessera::pooling::sum},
                                                             {1, tessera::pooling::sum}, {0, tessera::pooling::mean}};
inline std::vector<std::int64_t> const ranks_sequences{0, 1, 0, 2, 1, 0};
inline constexpr tessera::rowwise_adagrad ranks_optimizer{.learning_rate = 0.1F};

inline ranks_shape ranks_shape_of(bool weighted) {
  return {.keys = 6, .id_range = ranks_ids, .most_samples = 60, .mean_length = 4, .weighted = weighted};
}

inline std::vector<std::int64_t> dims_of_keys() {
  std::vector<std::int64_t> dims;
  for (auto const table : ranks_sequences) dims.push_back(ranks_dims[static_cast<std::size_t>(table)]);
  return dims;
}

inline std::vector<tessera::table_options> ranks_options() { return tables_of_dims(ranks_dims, ranks_ids); }

inline rank_messages pooled_messages(sparse_view batch, bool side_by_side = true) {
  auto const keys = static_cast<std::int64_t>(ranks_sequences.size());
  return {dims_of_keys(), batch.keys / keys, side_by_side, [&](std::int64_t key) { return batch.rows(key); }};
}
inline rank_messages sequence_messages(sparse_view batch) {
  auto const keys = static_cast<std::int64_t>(ranks_sequences.size());
  return {dims_of_keys(), batch.keys / keys, false, [&](std::int64_t key) { return batch.key(key).size(); }};
}
// The vectors of all samples of each key.
inline rank_messages whole_vectors(sparse_view whole) {
  return {dims_of_keys(), 1, false, [&](std::int64_t key) { return whole.rows(key); }};
}

inline std::vector<tessera::matrix_view<float const>> random_vectors(std::mt19937_64& random, rank_messages const& to) {
  std::normal_distribution<float> draw;
  for (auto const& block : to.out())
    for (std::int64_t r = 0; r < block.rows(); ++r)
      for (std::int64_t c = 0; c < block.columns(); ++c) block(r, c) = draw(random);
  return to.in();
}

}  // namespace embed_tests
