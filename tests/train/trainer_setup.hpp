// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/embed/dense_table.hpp>
#include <tessera/embed/hash_table.hpp>
#include <tessera/nn/gemm_eigen.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/trainer.hpp>

#include "click_batches.hpp"
#include "local_source.hpp"

namespace tessera_tests {

/// The shape of the small models that these tests train; its batches come from `clicks`.
struct small_shape {
  std::int64_t dense_features = 5;
  std::int64_t dim = 8;
  std::vector<std::int64_t> bottom{12};
  std::vector<std::int64_t> top{16, 6};
  std::vector<std::int64_t> rows{40, 7, 300};  // of the tables
  float init_bound = 0.3F;
  std::uint64_t table_seed = 3;
  std::int64_t first_column = 0;

  /// A key for each table, pooled in different ways, and a second one that reads the first table.
  static std::vector<tessera::pooled_feature> features() { return {{0}, {1, tessera::pooling::mean}, {2}, {0}}; }
  click_batches clicks(std::uint64_t seed = 11) const {
    return click_batches(dense_features, {rows[0], rows[1], rows[2], rows[0]}, tessera::random_seed{seed});
  }
};

/// Names a store and an interaction, for typed suites.
template <class Store, class Interaction>
struct model_kind {
  using store = Store;
  using interaction = Interaction;
};

/// A model and its trainer, which refers to it.
template <class Store, class Rows, class Dense, class Interaction = tessera::dot_products>
struct small_run {
  using store_type = Store;
  using model_type = tessera::click_model<tessera::local_tables, tessera::eigen_gemm, Interaction>;
  model_type model;
  tessera::trainer<model_type, Dense> run;

  small_run(tessera::host_exec const& exec, Rows const& rows, Dense const& dense, small_shape const& shape = {}, std::uint64_t seed = 3,
            std::vector<tessera::pooled_feature> const& features = small_shape::features(), tessera::trainer_options const& options = {})
      : model(exec, {shape.dense_features, shape.bottom, shape.top, tessera::random_seed{seed}},
              source_of(tables(exec, rows, shape), features, rows)),
        run(exec, model, dense, options) {}
  small_run(small_run const&) = delete;

  static std::vector<Store> tables(tessera::host_exec const& exec, Rows const& rows, small_shape const& shape) {
    std::vector<Store> result;
    for (std::size_t t = 0; t < shape.rows.size(); ++t)
      tessera::with_optimizer(rows, [&](auto const& optimizer) {
        result.emplace_back(exec,
                            tessera::table_options{.id = tessera::table_id{static_cast<std::int64_t>(t)},
                                                   .dim = shape.dim,
                                                   .rows = shape.rows[t],
                                                   .init_bound = shape.init_bound,
                                                   .seed = tessera::random_seed{shape.table_seed},
                                                   .first_column = shape.first_column},
                            optimizer);
      });
    return result;
  }

  Store& table(std::size_t t) { return model.source().template store<Store>(static_cast<std::int64_t>(t)); }

  /// Trains on batches [first, last) of the stream.
  void train(tessera::host_exec const& exec, std::int64_t first, std::int64_t last) {
    auto clicks = small_shape().clicks();
    for (std::int64_t i = 0; i < last; ++i) {
      auto const batch = clicks.next(exec, i % 3 == 2 ? 17 : 48);
      if (i >= first) run.step(exec, batch);
    }
  }

  std::vector<float> predictions(tessera::host_exec const& exec) const {
    auto clicks = small_shape().clicks(99);
    typename model_type::saved_type saved;
    auto const logits = model.predict(exec, clicks.next(exec, 200), saved);
    return {logits.begin(), logits.end()};
  }
};

}  // namespace tessera_tests
