// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/unique.cuh>
#include <tessera/embed/dense_table.cuh>
#include <tessera/embed/pooled_lookup.cuh>
#include <tessera/embed/pooled_lookup_backward.cuh>

#include "../cuda_bench.cuh"
#include "../cuda_ceiling.cuh"
#include "../inputs.hpp"

namespace tessera_bench {

/// T tables of E rows of D elements, B samples, bags of L ids.
struct gpu_lookup_shape {
  std::int64_t tables = 8, rows = 10'000'000, dim = 128, samples = 16'384, length = 20;
  double exponent = 0;  // of Zipf; 0: uniform

  std::int64_t ids_a_table() const { return sized(samples) * length; }
  std::int64_t ids_a_batch() const { return tables * ids_a_table(); }
  std::int64_t bags() const { return tables * sized(samples); }
};

/// Tables of a shape, in memory of their own.
template <class Element, class Optimizer>
std::vector<tessera::dense_table<Element, tessera::cuda_exec>> gpu_tables(tessera::cuda_exec const& memory, gpu_lookup_shape const& s,
                                                                          Optimizer const& optimizer) {
  std::vector<tessera::dense_table<Element, tessera::cuda_exec>> tables;
  for (std::int64_t t = 0; t < s.tables; ++t)
    tables.emplace_back(memory, tessera::table_options{.id = tessera::table_id{t}, .dim = s.dim, .rows = sized(s.rows), .init_bound = 0.1F},
                        optimizer);
  return tables;
}

/// What lookups of a shape read and write beside tables: batches that no cache holds, a matrix of vectors side by side, gradients of them.
class gpu_lookups {
 public:
  gpu_lookups(gpu& on, gpu_lookup_shape const& s) : shape(s), on_(on) {
    for (std::int64_t b = 0; b < on.inputs_past_cache(s.ids_a_batch() * s.dim * 2) + 1; ++b)
      if (s.exponent == 0)
        add(drawn<std::int64_t>(on, s.ids_a_batch(), sized(s.rows), static_cast<std::uint64_t>(b)));
      else
        add(tessera::to_device(
            on.lasting, id_batch(s.tables, sized(s.samples), s.length, sized(s.rows), s.exponent, static_cast<std::uint64_t>(b)).ids));
    prepare();
  }
  gpu_lookups(gpu& on, gpu_lookup_shape const& s, std::vector<gpu_buffer<std::int64_t>> ids) : shape(s), on_(on) {
    for (auto& list : ids) add(std::move(list));
    prepare();
  }

  tessera::keyed_jagged_view<std::int64_t const> batch(std::int64_t i) const {
    auto const& list = ids[static_cast<std::size_t>(i) % ids.size()];
    return {list.data(), nullptr, offsets_.data(), first_row_.data(), shape.tables, list.size()};
  }
  template <class Tables>
  void evaluate(Tables const& tables, std::int64_t i) {
    tessera::pooled_lookup(on_.exec, tables, features_, batch(i), out_);
  }
  template <class Tables>
  void forward(Tables& tables, std::int64_t i) {
    tessera::pooled_lookup(on_.exec, tables, features_, batch(i), out_, saved_);
  }
  template <class Tables, class Optimizer>
  void backward(Tables& tables, std::int64_t i, Optimizer const& optimizer) {
    tessera::pooled_lookup_backward(on_.exec, tables, features_, saved_, gradients_[static_cast<std::size_t>(i) % gradients_.size()],
                                    optimizer);
  }

  /// Ids and offsets read, vectors written.
  double stream_bytes() const { return static_cast<double>((shape.ids_a_batch() + shape.bags() + 1) * 8 + shape.bags() * shape.dim * 4); }
  /// Rows of so many bytes, one an id.
  double row_bytes(std::int64_t bytes_a_row) const { return static_cast<double>(shape.ids_a_batch() * bytes_a_row); }

  /// Distinct rows that a batch names, as a mean over the batches.
  double distinct_rows() {
    auto const n = shape.ids_a_table();
    gpu_buffer<std::int64_t> distinct(on_.exec, n), inverse(on_.exec, n);
    double sum = 0;
    for (auto const& list : ids)
      for (std::int64_t t = 0; t < shape.tables; ++t)
        sum += static_cast<double>(
            tessera::unique(on_.exec, tessera::vector_view<std::int64_t const>{list.data() + t * n, n}, distinct.view(), inverse.view()));
    return sum / static_cast<double>(ids.size());
  }

  gpu_lookup_shape shape;
  std::vector<gpu_buffer<std::int64_t>> ids;  // of each batch

 private:
  void add(gpu_buffer<std::int64_t> list) { ids.push_back(std::move(list)); }
  void prepare() {
    auto const samples = sized(shape.samples), width = shape.tables * shape.dim;
    std::vector<std::int64_t> offsets;
    for (std::int64_t i = 0; i <= shape.bags(); ++i) offsets.push_back(i * shape.length);
    offsets_ = tessera::to_device(on_.lasting, offsets);
    vectors_.resize(on_.lasting, samples * width);
    for (std::uint64_t g = 0; g < 4; ++g) values_.push_back(drawn<float>(on_, samples * width, 0, 100 + g));
    gradients_.resize(values_.size());
    for (std::int64_t t = 0; t < shape.tables; ++t) {
      first_row_.push_back(t * samples);
      features_.push_back({.table = t});
      out_.push_back({vectors_.data() + t * shape.dim, samples, shape.dim, width});
      for (std::size_t g = 0; g < values_.size(); ++g)
        gradients_[g].push_back({values_[g].data() + t * shape.dim, samples, shape.dim, width});
    }
    first_row_.push_back(shape.tables * samples);
  }

  gpu& on_;
  gpu_buffer<std::int64_t> offsets_;
  std::vector<std::int64_t> first_row_;
  std::vector<tessera::pooled_feature> features_;
  gpu_buffer<float> vectors_;
  std::vector<gpu_buffer<float>> values_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<std::vector<tessera::matrix_view<float const>>> gradients_;
  tessera::basic_lookup_saved<tessera::cuda_exec> saved_;
};

/// The rate at which rows of these tables are gathered by these batches.
template <class Tables>
double gather_rate_of(gpu_ceilings& ceilings, Tables const& tables, gpu_lookups const& lookups) {
  std::vector<void const*> first_rows;
  for (auto const& table : tables) first_rows.push_back(table.row(0));
  return ceilings.gather_rate(first_rows, lookups.ids, tables[0].dim() * static_cast<std::int64_t>(sizeof(*tables[0].row(0))));
}

}  // namespace tessera_bench
