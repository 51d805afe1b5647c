// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Operations on jagged rows. Time at the ceiling: what must be read and what is written, at the rate of a copy; segments are read at that of
// reading, and their sums written at that of writing one place again and again.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t longest = 40;  // lengths are uniform in 0 … longest
constexpr std::int64_t keys = 100, ranks = 8, id_bound = std::int64_t{1} << 40;
constexpr std::int64_t dim = 64, width = 20;

std::vector<std::int64_t> draw_offsets(std::int64_t rows, draws& draw) {
  std::vector<std::int64_t> offsets{0};
  for (std::int64_t r = 0; r < rows; ++r) offsets.push_back(offsets.back() + draw.below(longest + 1));
  return offsets;
}

// Ids of `keys` features, and what takes one batch of them, for a number of batches that no cache holds.
class id_rows {
 public:
  explicit id_rows(int threads = all_threads()) : host(threads) {
    auto const samples = sized(4096);
    for (std::int64_t k = 0; k <= keys; ++k) first_row_.push_back(k * samples);
    for (std::int64_t b = 0; b < batches_past_cache(2 * 8 * keys * samples * longest / 2); ++b) {
      draws draw(static_cast<std::uint64_t>(b));
      offsets_.push_back(draw_offsets(keys * samples, draw));
      values_.emplace_back();
      for (std::int64_t i = 0; i < offsets_.back().back(); ++i) values_.back().push_back(draw.below(id_bound));
    }
    for (std::int64_t k = 0; k < keys; ++k) order_.push_back(k);
    draws draw(7);
    for (auto k = keys - 1; k > 0; --k) std::swap(order_[static_cast<std::size_t>(k)], order_[static_cast<std::size_t>(draw.below(k + 1))]);
    copy = copy_ceiling(host.exec);
  }

  tessera::keyed_jagged_view<std::int64_t const> batch(std::int64_t i) const {
    auto const b = static_cast<std::size_t>(i) % values_.size();
    return {values_[b].data(), nullptr, offsets_[b].data(), first_row_.data(), keys};
  }
  std::vector<std::int64_t> const& order() const { return order_; }

  machine host;
  ceiling copy;

 private:
  std::vector<std::vector<std::int64_t>> values_, offsets_;
  std::vector<std::int64_t> first_row_, order_;
};

// Rows of vectors, likewise; rows of others that are selected, and a padded copy.
class vector_rows {
 public:
  explicit vector_rows(bool padded = false) {
    auto const rows = sized(40'960);
    for (std::int64_t b = 0; b < batches_past_cache(2 * 4 * dim * rows * longest / 2); ++b) {
      draws draw(static_cast<std::uint64_t>(b));
      offsets_.push_back(draw_offsets(rows, draw));
      values_.emplace_back(host.exec, padded ? rows * width * dim : offsets_.back().back() * dim);
      for (auto& v : values_.back()) v = static_cast<float>(draw.bits() >> 8) * 0x1p-24F;
      indices_.emplace_back();
      for (std::int64_t r = 0; r < rows; ++r) indices_.back().push_back(draw.below(rows));
      cut_.push_back({0});
      for (std::int64_t r = 0; r < rows; ++r) cut_.back().push_back(cut_.back().back() + std::min(width, row_length(cut_.size() - 1, r)));
    }
    out.resize(host.exec, rows * longest * dim);
    std::fill(out.begin(), out.end(), 0.0F);
    out_offsets.resize(host.exec, rows + 1);
    copy = copy_ceiling(host.exec);
    read = read_ceiling(host.exec);
    write = write_ceiling(host.exec, rows * dim * 4);
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(indices_[0].size()); }
  tessera::jagged_vectors_view<float const> batch(std::int64_t i) const {
    auto const b = place(i);
    return {{values_[b].data(), offsets_[b].back(), dim}, offsets_[b].data(), rows()};
  }
  std::vector<std::int64_t> const& indices(std::int64_t i) const { return indices_[place(i)]; }
  tessera::matrix_view<float const> padded(std::int64_t i) const { return {values_[place(i)].data(), rows() * width, dim}; }
  /// Offsets of rows cut to the width.
  std::vector<std::int64_t> const& cut(std::int64_t i) const { return cut_[place(i)]; }

  machine host;
  tessera::buffer<float> out;
  tessera::buffer<std::int64_t> out_offsets;
  ceiling copy, read, write;

 private:
  std::size_t place(std::int64_t i) const { return static_cast<std::size_t>(i) % offsets_.size(); }
  std::int64_t row_length(std::size_t b, std::int64_t row) const {
    return offsets_[b][static_cast<std::size_t>(row) + 1] - offsets_[b][static_cast<std::size_t>(row)];
  }

  std::vector<std::vector<std::int64_t>> offsets_, indices_, cut_;
  std::vector<tessera::buffer<float>> values_;
};

template <class Work>
void report_copy(benchmark::State& state, Work& work, double bytes) {
  report_machine(state, work.copy);
  report(state, bytes, bytes / work.copy.rate(), static_cast<double>(work.host.workspace.reserved_bytes()));
}

void permute(benchmark::State& state) {
  auto& work = kept<id_rows>("ids", [] { return std::make_shared<id_rows>(); });
  auto& next = next_input();
  for (auto _ : state) {
    auto const result = tessera::permute_keys(work.host.step, work.batch(next++), work.order());
    benchmark::DoNotOptimize(result.view().values);
  }
  auto const batch = work.batch(0);
  report_copy(state, work, static_cast<double>(2 * 8 * (batch.size() + batch.rows())));
}

void run_bucketize(benchmark::State& state, id_rows& work) {
  tessera::block_buckets const policy{.block_size = id_bound / ranks};
  auto& next = next_input();
  for (auto _ : state) {
    auto const result = tessera::bucketize(work.host.step, work.batch(next++), ranks, policy);
    benchmark::DoNotOptimize(result.view().values);
  }
  auto const batch = work.batch(0);
  report_copy(state, work, static_cast<double>(2 * 8 * batch.size() + 8 * (1 + ranks) * batch.rows()));
}

void bucketize(benchmark::State& state) {
  run_bucketize(state, kept<id_rows>("ids", [] { return std::make_shared<id_rows>(); }));
}

// As its peer runs, which has no threads.
void bucketize_on_one_thread(benchmark::State& state) {
  run_bucketize(state, kept<id_rows>("ids on one thread", [] { return std::make_shared<id_rows>(1); }));
}

void index_select(benchmark::State& state) {
  auto& work = kept<vector_rows>("vectors", [] { return std::make_shared<vector_rows>(); });
  double bytes = 0;
  auto& next = next_input();
  for (auto _ : state) {
    auto const in = work.batch(next);
    auto const& indices = work.indices(next++);
    tessera::select_vectors_offsets(work.host.step, in, indices, work.out_offsets.view());
    auto const size = work.out_offsets[work.rows()];
    tessera::select_vectors(work.host.step, in, indices,
                            tessera::jagged_vectors_view<float>{{work.out.data(), size, dim}, work.out_offsets.data(), work.rows()});
    bytes += static_cast<double>(2 * 4 * dim * size + 4 * 8 * work.rows());
  }
  report_copy(state, work, bytes / static_cast<double>(state.iterations()));
}

void to_padded(benchmark::State& state) {
  auto& work = kept<vector_rows>("vectors", [] { return std::make_shared<vector_rows>(); });
  auto& next = next_input();
  for (auto _ : state) tessera::to_padded_vectors(work.host.step, work.batch(next++), {work.out.data(), work.rows() * width, dim});
  report_copy(state, work, static_cast<double>(4 * dim * (work.cut(0).back() + work.rows() * width) + 8 * work.rows()));
}

void from_padded(benchmark::State& state) {
  auto& work = kept<vector_rows>("padded", [] { return std::make_shared<vector_rows>(true); });
  auto& next = next_input();
  for (auto _ : state) {
    auto const& cut = work.cut(next);
    tessera::from_padded_vectors(work.host.step, work.padded(next++),
                                 tessera::jagged_vectors_view<float>{{work.out.data(), cut.back(), dim}, cut.data(), work.rows()});
  }
  report_copy(state, work, static_cast<double>(2 * 4 * dim * work.cut(0).back() + 8 * work.rows()));
}

void segment_sum(benchmark::State& state) {
  auto& work = kept<vector_rows>("vectors", [] { return std::make_shared<vector_rows>(); });
  auto& next = next_input();
  for (auto _ : state)
    tessera::pool_segments(work.host.step, work.batch(next++), tessera::segment_pooling::sum, {work.out.data(), work.rows(), dim});
  auto const read = static_cast<double>(4 * dim * work.batch(0).size() + 8 * work.rows()),
             written = static_cast<double>(4 * dim * work.rows());
  report_machine(state, work.copy, work.read, work.write);
  report(state, read + written, read / work.read.rate() + written / work.write.rate(),
         static_cast<double>(work.host.workspace.reserved_bytes()));
}

}  // namespace

BENCHMARK(permute)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(bucketize)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(bucketize_on_one_thread)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(index_select)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(to_padded)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(segment_sum)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(from_padded)->UseRealTime()->Unit(benchmark::kMillisecond);
