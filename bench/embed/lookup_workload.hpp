// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

#include "../inputs.hpp"

namespace tessera_bench {

/// T tables of E rows of D floats, B samples, bags of L ids.
struct lookup_shape {
  std::int64_t tables, rows, dim, samples, length;
  double exponent = 0;  // of Zipf; 0: uniform

  std::int64_t ids_a_batch() const { return tables * samples * length; }
  std::int64_t row_bytes() const { return ids_a_batch() * dim * 4; }
};

/// Tables in `Store`, batches whose rows exceed the caches, and a matrix of vectors side by side with its gradient.
template <class Store, class Optimizer>
class lookup_workload {
 public:
  lookup_workload(lookup_shape const& s, Optimizer const& optimizer) : shape(s), optimizer_(optimizer) {
    shape.rows = sized(s.rows);
    for (std::int64_t t = 0; t < s.tables; ++t) {
      tables.emplace_back(
          host.exec, tessera::table_options{.id = tessera::table_id{t}, .dim = s.dim, .rows = shape.rows, .init_bound = 0.1F}, optimizer);
      features_.push_back({.table = t});
    }
    for (std::int64_t b = 0; b < batches_past_cache(s.row_bytes()); ++b)
      batches.emplace_back(s.tables, s.samples, s.length, shape.rows, s.exponent, static_cast<std::uint64_t>(b));
    vectors.resize(host.exec, s.samples * s.tables * s.dim);
    gradients_.resize(host.exec, vectors.size());
    draws draw(7);
    for (auto& g : gradients_) g = static_cast<float>(draw.unit() - 0.5) * 0.01F;
    for (std::int64_t t = 0; t < s.tables; ++t) {
      out_.push_back({vectors.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
      gradient_.push_back({gradients_.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
    }
  }

  void forward(std::int64_t i) { tessera::pooled_lookup(host.step, std::as_const(tables), features_, batch(i), out_); }
  void step(std::int64_t i) {
    tessera::pooled_lookup(host.step, tables, features_, batch(i), out_, saved_);
    tessera::pooled_lookup_backward(host.step, tables, features_, saved_, gradient_, optimizer_);
  }
  double workspace_bytes() const { return static_cast<double>(host.workspace.reserved_bytes()); }

  lookup_shape shape;
  machine host;
  std::vector<Store> tables;
  std::vector<id_batch> batches;
  tessera::buffer<float> vectors;

 private:
  tessera::keyed_jagged_view<std::int64_t const> batch(std::int64_t i) const {
    return batches[static_cast<std::size_t>(i) % batches.size()].view();
  }

  Optimizer optimizer_;
  std::vector<tessera::pooled_feature> features_;
  tessera::buffer<float> gradients_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> gradient_;
  tessera::lookup_saved saved_;
};

}  // namespace tessera_bench
