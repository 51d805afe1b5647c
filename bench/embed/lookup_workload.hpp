// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/buffer.hpp>
#include <tessera/embed/pooled_lookup.hpp>
#include <tessera/embed/pooled_lookup_backward.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"
#include "../row_ceilings.hpp"

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

/// Batches whose rows exceed the caches, and a matrix of vectors side by side with its gradient.
class lookup_inputs {
 public:
  lookup_inputs(tessera::host_exec const& exec, lookup_shape const& s) {
    for (std::int64_t b = 0; b < batches_past_cache(s.line_bytes()); ++b)
      batches.emplace_back(s.tables, s.samples, s.length, s.rows, s.exponent, static_cast<std::uint64_t>(b));
    vectors.resize(exec, s.samples * s.tables * s.dim);
    gradients_.resize(exec, vectors.size());
    draws draw(7);
    for (auto& g : gradients_) g = static_cast<float>(draw.unit() - 0.5) * 0.01F;
    for (std::int64_t t = 0; t < s.tables; ++t) {
      out.push_back({vectors.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
      gradients.push_back({gradients_.data() + t * s.dim, s.samples, s.dim, s.tables * s.dim});
    }
  }

  tessera::keyed_jagged_view<std::int64_t const> batch(std::int64_t i) const {
    return batches[static_cast<std::size_t>(i) % batches.size()].view();
  }

  std::vector<id_batch> batches;
  tessera::buffer<float> vectors;
  std::vector<tessera::matrix_view<float>> out;
  std::vector<tessera::matrix_view<float const>> gradients;

 private:
  tessera::buffer<float> gradients_;
};

/// The shape with as many rows as this run has room for.
inline lookup_shape sized_shape(lookup_shape shape) {
  shape.rows = sized(shape.rows);
  return shape;
}

/// Tables in `Store` and what is looked up in them.
template <class Store, class Optimizer>
class lookup_workload {
 public:
  lookup_workload(lookup_shape const& s, Optimizer const& optimizer) : lookup_workload(s, optimizer, sized(s.rows)) {}
  /// `rows_told`: how many rows the tables are made with, where their store makes others as their ids come.
  lookup_workload(lookup_shape const& s, Optimizer const& optimizer, std::int64_t rows_told)
      : shape(sized_shape(s)), inputs(host.exec, shape), optimizer_(optimizer) {
    for (std::int64_t t = 0; t < s.tables; ++t) {
      tables.emplace_back(
          host.exec, tessera::table_options{.id = tessera::table_id{t}, .dim = s.dim, .rows = rows_told, .init_bound = 0.1F}, optimizer);
      features_.push_back({.table = t});
    }
  }

  void forward(std::int64_t i) { tessera::pooled_lookup(host.step, std::as_const(tables), features_, inputs.batch(i), inputs.out); }
  void step(std::int64_t i) {
    tessera::pooled_lookup(host.step, tables, features_, inputs.batch(i), inputs.out, saved_);
    tessera::pooled_lookup_backward(host.step, tables, features_, saved_, inputs.gradients, optimizer_);
  }
  double workspace_bytes() const { return static_cast<double>(host.workspace.reserved_bytes()); }

  lookup_shape shape;
  machine host;
  lookup_inputs inputs;
  std::vector<Store> tables;

 private:
  Optimizer optimizer_;
  std::vector<tessera::pooled_feature> features_;
  tessera::lookup_saved saved_;
};

/// The same with the machine's ceilings on these tables and batches. A lookup reads rows, at the rate of a gather, ids and offsets, at that of
/// reading, and writes vectors, at that of writing one place again and again. A step also reads the gradients, as many bytes at that same rate,
/// then reads and writes the distinct rows, at the rate of an update in place of rows that were just read. What a store does to find rows, and
/// what sorts ids, is not in them.
template <class Store, class Optimizer>
class measured_lookups : public lookup_workload<Store, Optimizer> {
 public:
  using base = lookup_workload<Store, Optimizer>;
  using base::base, base::host, base::inputs, base::shape, base::tables;

  void measure_ceilings() {
    std::vector<float*> rows;
    std::vector<batch_rows> by_batch;
    for (std::size_t b = 0; b < inputs.batches.size() && b * static_cast<std::size_t>(shape.ids_a_batch()) < 4'000'000; ++b) {
      std::vector<float*> one;
      add_rows(inputs.batches[b], one);
      rows.insert(rows.end(), one.begin(), one.end());
      if (b < 32) by_batch.emplace_back(std::move(one));
    }
    for (auto const& batch : by_batch) distinct_ += static_cast<double>(batch.changed.size()) / static_cast<double>(by_batch.size());
    copy_ = copy_ceiling(host.exec);
    read_ = read_ceiling(host.exec);
    write_ = write_ceiling(host.exec, inputs.vectors.size() * 4);
    gather_ = gather_ceiling(host.exec, std::move(rows), shape.dim);
    update_ = update_ceiling(host.exec, std::move(by_batch), shape.dim);
  }

  /// Measures the ceilings again and reports what the lookups, or whole steps, are to them.
  void report_lookups(benchmark::State& state, bool is_step) {
    report_machine(state, copy_, read_, write_, gather_, update_);
    auto const rows = static_cast<double>(shape.row_bytes()), pooled = static_cast<double>(inputs.vectors.size() * 4),
               indices = static_cast<double>((shape.ids_a_batch() + shape.tables * shape.samples) * 8),
               distinct = is_step ? distinct_ * static_cast<double>(shape.dim * 8) : 0, vectors_moved = (is_step ? 2 : 1) * pooled;
    report(state, rows + indices + distinct + vectors_moved,
           rows / gather_.rate() + indices / read_.rate() + distinct / update_.rate() + vectors_moved / write_.rate(),
           this->workspace_bytes());
    state.counters["gather_ceiling"] = gather_.rate();
    if (is_step) state.counters["update_ceiling"] = update_.rate();
  }

 private:
  void add_rows(id_batch const& batch, std::vector<float*>& rows) {
    auto const ids_a_table = shape.samples * shape.length;
    tessera::buffer<std::int64_t> slots(host.exec, ids_a_table);
    for (std::int64_t t = 0; t < shape.tables; ++t) {
      auto& table = tables[static_cast<std::size_t>(t)];
      table.find(host.exec, {batch.ids.data() + t * ids_a_table, ids_a_table}, slots.view());
      for (auto const slot : slots) rows.push_back(table.row(slot));
    }
  }

  ceiling copy_, read_, write_, gather_, update_;
  double distinct_ = 0;
};

}  // namespace tessera_bench
