// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/execution.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/row_store.hpp>
#include <tessera/tensor/keyed_jagged.hpp>

#include "embed_support.hpp"
#include "random.hpp"

namespace embed_tests {

using sparse_view = tessera::keyed_jagged_view<std::int64_t const>;

/// Dims on both sides of every special case, in the order of tables.
inline std::vector<std::int64_t> const all_dims{1, 3, 4, 8, 16, 17, 32, 64, 100, 128, 130, 1027, 2050};

inline std::vector<tessera::table_options> tables_of_dims(std::vector<std::int64_t> const& dims, std::int64_t rows) {
  std::vector<tessera::table_options> tables;
  for (auto const dim : dims)
    tables.push_back({.id = tessera::table_id(100 + static_cast<std::int64_t>(tables.size())),
                      .dim = dim,
                      .rows = rows,
                      .init_bound = 1,
                      .seed = tessera::random_seed(11)});
  return tables;
}

template <class Store, class Optimizer>
std::vector<Store> make_tables(tessera::host_exec const& exec, std::vector<tessera::table_options> options, Optimizer const& optimizer) {
  std::vector<Store> tables;
  for (auto& o : options) {
    if (!Store::slots_are_ids) o.rows = 0;
    tables.emplace_back(exec, o, optimizer);
  }
  return tables;
}

/// One feature a table, and one more on every third; sums and means in turn.
inline std::vector<tessera::pooled_feature> features_over(std::int64_t tables) {
  std::vector<tessera::pooled_feature> features;
  for (std::int64_t i = 0; i < tables + tables / 3; ++i)
    features.push_back({i < tables ? i : 3 * (i - tables), i % 2 == 0 ? tessera::pooling::sum : tessera::pooling::mean});
  return features;
}

struct batch_shape {
  std::int64_t id_range;  // ids in [0, id_range)
  std::int64_t most_rows;
  double mean_length;
  bool weighted;
};

/// Every key with its own number of rows, the second without any; repeated ids within bags and across; weights of both signs and 0.
inline tessera::keyed_jagged<> random_batch(tessera::host_exec const& exec, std::mt19937_64& random, std::size_t keys,
                                            batch_shape const& shape) {
  std::vector<std::string> names;
  std::vector<std::int64_t> rows_per_key, lengths;
  for (std::size_t key = 0; key < keys; ++key) {
    names.push_back("key" + std::to_string(key));
    rows_per_key.push_back(key == 1 ? 0 : tessera_tests::random_integers<std::int64_t>(random, 1, 1, shape.most_rows)[0]);
    auto const more = tessera_tests::random_lengths(random, static_cast<std::size_t>(rows_per_key.back()), shape.mean_length);
    lengths.insert(lengths.end(), more.begin(), more.end());
  }
  std::size_t count = 0;
  for (auto const length : lengths) count += static_cast<std::size_t>(length);
  auto const ids = tessera_tests::random_integers<std::int64_t>(random, count, 0, shape.id_range - 1);
  std::vector<float> weights;
  if (shape.weighted) weights = tessera_tests::random_floats(random, count);
  for (std::size_t i = 0; i < weights.size(); i += 5) weights[i] = 0;
  return tessera::keyed_jagged<>::from_lengths(exec, names, ids, lengths, rows_per_key, weights);
}

/// The matrices of a call: rows apart by more than their width, the gaps between them watched.
class pooled_matrices {
 public:
  static constexpr float canary = -31415.926F;

  pooled_matrices(std::vector<tessera::table_options> const& tables, std::vector<tessera::pooled_feature> const& features,
                  sparse_view batch, std::int64_t gap = 3)
      : pooled_matrices(
            tables, features, batch, [&](std::int64_t key) { return batch.rows(key); }, gap) {}
  /// `rows_of(key)`: how many rows its matrix has.
  template <class RowsOf>
  pooled_matrices(std::vector<tessera::table_options> const& tables, std::vector<tessera::pooled_feature> const& features,
                  sparse_view batch, RowsOf const& rows_of, std::int64_t gap = 3) requires std::invocable<RowsOf const&, std::int64_t> {
    for (std::int64_t key = 0; key < batch.keys; ++key) {
      auto const dim = tables[static_cast<std::size_t>(features[static_cast<std::size_t>(key)].table)].dim, rows = rows_of(key);
      storage_.emplace_back(static_cast<std::size_t>(rows * (dim + gap) + gap), canary);
      views_.push_back({storage_.back().data() + gap, rows, dim, dim + gap});
      const_views_.push_back(views_.back());
    }
  }

  pooled_matrices(pooled_matrices&&) = default;  // the views stay with the storage; a copy's would not

  std::vector<tessera::matrix_view<float>> const& out() const { return views_; }
  std::vector<tessera::matrix_view<float const>> const& in() const { return const_views_; }

  /// All rows, one after the other.
  std::vector<float> values() const {
    std::vector<float> all;
    for (auto const& m : views_)
      for (std::int64_t r = 0; r < m.rows(); ++r) all.insert(all.end(), m.row(r), m.row(r) + m.columns());
    return all;
  }

  /// Whether what lies between the rows is as it was.
  bool gaps_untouched() const {
    std::size_t touched = 0, inside = 0;
    for (auto const& s : storage_)
      for (auto const x : s) touched += x != canary;
    for (auto const& m : views_)
      for (std::int64_t r = 0; r < m.rows(); ++r)
        for (std::int64_t c = 0; c < m.columns(); ++c) inside += m(r, c) != canary;
    return touched == inside;
  }

  template <class F>
  void fill(F next) {
    for (auto const& m : views_)
      for (std::int64_t r = 0; r < m.rows(); ++r)
        for (std::int64_t c = 0; c < m.columns(); ++c) m(r, c) = next();
  }

 private:
  std::vector<std::vector<float>> storage_;
  std::vector<tessera::matrix_view<float>> views_;
  std::vector<tessera::matrix_view<float const>> const_views_;
};

/// Gradients of no pattern.
inline pooled_matrices random_gradients(std::mt19937_64& random, std::vector<tessera::table_options> const& tables,
                                        std::vector<tessera::pooled_feature> const& features, sparse_view batch) {
  pooled_matrices gradients(tables, features, batch);
  std::normal_distribution<float> draw;
  gradients.fill([&] { return draw(random); });
  return gradients;
}

/// What an id's row adds to its bag, times its elements.
inline double contribution_scale(sparse_view batch, std::int64_t key, std::int64_t bag, std::int64_t position, tessera::pooling mode) {
  auto const length = batch.key(key).length(bag);
  double const weight = batch.weighted() ? static_cast<double>(batch.weights[position]) : 1.0;
  return mode == tessera::pooling::mean ? weight / static_cast<double>(length) : weight;
}

struct reference_element {
  double value;
  double magnitude;  // of the terms, to which rounding is relative
};

/// The pooled vectors in double, all rows one after the other. `row_of(table, id)` -> a row, indexed by column.
template <class RowOf>
std::vector<reference_element> reference_pool(std::vector<tessera::table_options> const& tables,
                                              std::vector<tessera::pooled_feature> const& features, sparse_view batch,
                                              RowOf const& row_of) {
  std::vector<reference_element> all;
  for (std::int64_t key = 0; key < batch.keys; ++key) {
    auto const& feature = features[static_cast<std::size_t>(key)];
    auto const dim = static_cast<std::size_t>(tables[static_cast<std::size_t>(feature.table)].dim);
    auto const bags = batch.key(key);
    for (std::int64_t bag = 0; bag < bags.rows; ++bag) {
      std::vector<reference_element> sum(dim, {0, 0});
      for (auto p = bags.begin_of(bag); p < bags.end_of(bag); ++p) {
        auto const& row = row_of(feature.table, batch.values[p]);
        double const scale = contribution_scale(batch, key, bag, p, feature.pooling);
        for (std::size_t c = 0; c < dim; ++c) {
          sum[c].value += scale * static_cast<double>(row[c]);
          sum[c].magnitude += std::abs(scale * static_cast<double>(row[c]));
        }
      }
      all.insert(all.end(), sum.begin(), sum.end());
    }
  }
  return all;
}

/// Whether floats are what exact arithmetic gives, up to the rounding of a few dozen additions.
inline bool close_to(std::vector<float> const& values, std::vector<reference_element> const& expected) {
  if (values.size() != expected.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(static_cast<double>(values[i]) - expected[i].value) <= 4e-6 * expected[i].magnitude + 1e-12)) return false;
  return true;
}

}  // namespace embed_tests
