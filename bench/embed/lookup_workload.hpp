// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

#include "../ceiling.hpp"
#include "../inputs.hpp"

namespace tessera_bench {

/// T tables of E rows of D elements, B samples, bags of L ids.
struct lookup_shape {
  std::int64_t tables, rows, dim, samples, length;
  double exponent = 0;             // of Zipf; 0: uniform
  std::int64_t element_bytes = 4;  // of what rows are stored as

  std::int64_t ids_a_batch() const { return tables * samples * length; }
  std::int64_t row_bytes() const { return ids_a_batch() * dim * element_bytes; }
  /// What comes from memory for them: whole lines.
  std::int64_t line_bytes() const { return ids_a_batch() * tessera::divide_up(dim * element_bytes, 64) * 64; }
};

/// Tables in `Store`, batches whose rows exceed the caches, and a matrix of vectors side by side with its gradient.
template <class Store, class Optimizer>
class lookup_workload {
 public:
  lookup_workload(lookup_shape const& s, Optimizer const& optimizer) : lookup_workload(s, optimizer, sized(s.rows)) {}
  /// `rows_told`: how many rows the tables are made with, where their store makes others as their ids come.
  lookup_workload(lookup_shape const& s, Optimizer const& optimizer, std::int64_t rows_told) : shape(s), optimizer_(optimizer) {
    shape.rows = sized(s.rows);
    for (std::int64_t t = 0; t < s.tables; ++t) {
      tables.emplace_back(
          host.exec, tessera::table_options{.id = tessera::table_id{t}, .dim = s.dim, .rows = rows_told, .init_bound = 0.1F}, optimizer);
      features_.push_back({.table = t});
    }
    for (std::int64_t b = 0; b < batches_past_cache(s.line_bytes()); ++b)
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

/// The same with the machine's ceilings on these tables and batches: rows read at the rate of a gather, distinct rows read and written at that
/// of an update in place, ids, offsets and vectors at that of a copy. What a store does to find rows is not in them.
template <class Store, class Optimizer>
class measured_lookups : public lookup_workload<Store, Optimizer> {
 public:
  using base = lookup_workload<Store, Optimizer>;
  using base::base, base::batches, base::host, base::shape, base::tables, base::vectors;

  void measure_ceilings() {
    copy_ = copy_ceiling(host.exec);
    std::vector<float*> rows;
    for (std::size_t b = 0; b < batches.size() && b * static_cast<std::size_t>(shape.ids_a_batch()) < 4'000'000; ++b)
      add_rows(batches[b], rows);
    gather_ = gather_ceiling(host.exec, rows, shape.dim);
    auto const sampled = std::min<std::size_t>(batches.size(), 32);
    for (std::size_t b = 0; b < sampled; ++b) {
      std::vector<float*> one;
      add_rows(batches[b], one);
      std::sort(one.begin(), one.end());
      distinct_ += static_cast<double>(std::unique(one.begin(), one.end()) - one.begin()) / static_cast<double>(sampled);
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    draws draw(11);
    for (auto i = rows.size() - 1; i > 0; --i)
      std::swap(rows[i], rows[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(i) + 1))]);
    update_ = update_ceiling(host.exec, rows, shape.dim);
  }
  double copy_rate() const { return copy_; }
  double gather_rate() const { return gather_; }
  double update_rate() const { return update_; }

  double forward_bytes() const { return row_bytes() + stream_bytes(); }
  double forward_seconds() const { return row_bytes() / gather_ + stream_bytes() / copy_; }
  // The ids are read twice (forward, backward); a vector is written, its gradient read.
  double step_bytes() const { return row_bytes() + distinct_bytes() + 2 * stream_bytes(); }
  double step_seconds() const { return row_bytes() / gather_ + distinct_bytes() / update_ + 2 * stream_bytes() / copy_; }

 private:
  double row_bytes() const { return static_cast<double>(shape.row_bytes()); }
  double stream_bytes() const { return static_cast<double>((shape.ids_a_batch() + shape.tables * shape.samples) * 8 + vectors.size() * 4); }
  double distinct_bytes() const { return distinct_ * static_cast<double>(shape.dim * 8); }

  void add_rows(id_batch const& batch, std::vector<float*>& rows) {
    auto const ids_a_table = shape.samples * shape.length;
    tessera::buffer<std::int64_t> slots(host.exec, ids_a_table);
    for (std::int64_t t = 0; t < shape.tables; ++t) {
      auto& table = tables[static_cast<std::size_t>(t)];
      table.find(host.exec, {batch.ids.data() + t * ids_a_table, ids_a_table}, slots.view());
      for (auto const slot : slots) rows.push_back(table.row(slot));
    }
  }

  double copy_ = 0, gather_ = 0, update_ = 0, distinct_ = 0;
};

}  // namespace tessera_bench
