// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Lookup + backward + row-wise Adagrad over tables as production models have them: rows and ids a bag log-normal and correlated (mean 15.8
// ids, from some that hardly occur to 200), dims mixed. With one thread and with all: their ratio tells how even the work is cut.
// Time at the ceilings as in pooled_lookup_bench, each dim at its own, that of a mean batch; states are not in it.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"
#include "../row_ceilings.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t table_count = 64, samples = 1024, batch_count = 8;
constexpr double mean_pooling = 15.8, mean_rows = 200'000, most_pooling = 200, most_rows = 600'000;

double normal(draws& draw) { return std::sqrt(-2 * std::log(1 - draw.unit())) * std::cos(2 * std::numbers::pi * draw.unit()); }

// Of clip(a · e^exponent, least, most), the values whose mean is `mean`.
std::vector<double> scaled_to_mean(std::vector<double> exponents, double mean, double least, double most) {
  auto const at = [&](double a, double exponent) { return std::clamp(a * std::exp(exponent), least, most); };
  double low = 0, high = most;
  for (int i = 0; i < 100; ++i) {
    auto const a = (low + high) / 2;
    double sum = 0;
    for (auto const e : exponents) sum += at(a, e);
    (sum < mean * static_cast<double>(exponents.size()) ? low : high) = a;
  }
  for (auto& e : exponents) e = at(low, e);
  return exponents;
}

class workload {
 public:
  explicit workload(int threads) : machine_(threads) {
    draws draw(5);
    std::vector<double> pooling, rows;
    for (std::int64_t t = 0; t < table_count; ++t) {
      auto const z = normal(draw);
      pooling.push_back(1.6 * z);
      rows.push_back(0.9 * (0.7 * z + std::sqrt(1 - 0.49) * normal(draw)));
    }
    pooling = scaled_to_mean(pooling, mean_pooling, 0.02, most_pooling);
    rows = scaled_to_mean(rows, mean_rows, 100, most_rows);
    std::int64_t width = 0;
    for (std::int64_t t = 0; t < table_count; ++t) {
      auto const dim = std::int64_t{16} << draw.below(4);
      tables_.emplace_back(
          machine_.exec,
          tessera::table_options{
              .id = tessera::table_id{t}, .dim = dim, .rows = sized(static_cast<std::int64_t>(rows[static_cast<std::size_t>(t)]))},
          optimizer_);
      features_.push_back({.table = t});
      width += dim;
    }
    for (std::int64_t b = 0; b < batch_count; ++b) add_batch(draw, pooling);
    vectors_.resize(machine_.exec, samples * width);
    std::fill(vectors_.begin(), vectors_.end(), 0.001F);
    std::int64_t column = 0;
    for (auto const& table : tables_) {
      out_.push_back({vectors_.data() + column, samples, table.dim(), width});
      gradient_.push_back({vectors_.data() + column, samples, table.dim(), width});
      column += table.dim();
    }
  }

  void step(std::int64_t i) {
    auto const& batch = batches_[static_cast<std::size_t>(i % batch_count)];
    tessera::pooled_lookup(machine_.step, tables_, features_, batch.view(), out_, saved_);
    tessera::pooled_lookup_backward(machine_.step, tables_, features_, saved_, gradient_, optimizer_);
  }
  /// Measures what the machine reaches on these tables and threads.
  void measure_ceilings() {
    copy_ = copy_ceiling(machine_.exec);
    read_ = read_ceiling(machine_.exec);
    write_ = write_ceiling(machine_.exec, vectors_.size() * 4);
    for (std::int64_t dim = 16; dim <= 128; dim *= 2) {
      std::vector<float*> read;
      std::vector<batch_rows> by_batch;
      std::size_t changed = 0;
      for (auto const& batch : batches_) {
        std::vector<float*> one;
        add_rows(batch, dim, one);
        read.insert(read.end(), one.begin(), one.end());
        changed += by_batch.emplace_back(std::move(one)).changed.size();
      }
      if (read.empty()) continue;
      auto const row_bytes = static_cast<double>(dim * 4) / batch_count;
      row_ceilings_.push_back({static_cast<double>(read.size()) * row_bytes, static_cast<double>(changed) * 2 * row_bytes,
                               gather_ceiling(machine_.exec, std::move(read), dim),
                               update_ceiling(machine_.exec, std::move(by_batch), dim)});
    }
  }
  /// The machine, measured again, and what a mean iteration costs at its ceilings, in seconds.
  double seconds_at_ceiling(benchmark::State& state) {
    report_machine(state, copy_, read_, write_);
    auto& moved = state.counters["moved"];
    double index_bytes = 0;
    for (auto const& batch : batches_) index_bytes += static_cast<double>((batch.ids.size() + batch.offsets.size()) * 8);
    // A vector is written, its gradient read.
    auto seconds = index_bytes / batch_count / read_.rate() + 2 * static_cast<double>(vectors_.size() * 4) / write_.rate();
    for (auto& rows : row_ceilings_) {
      rows.gather.measure_again();
      rows.update.measure_again();
      moved = std::max({static_cast<double>(moved), rows.gather.moved(), rows.update.moved()});
      seconds += rows.read_bytes / rows.gather.rate() + rows.changed_bytes / rows.update.rate();
    }
    return seconds;
  }
  double row_bytes(std::int64_t i) const { return batches_[static_cast<std::size_t>(i % batch_count)].row_bytes; }
  double workspace_bytes() const { return static_cast<double>(machine_.workspace.reserved_bytes()); }

 private:
  struct mixed_batch {
    std::vector<std::int64_t> ids, offsets{0}, first_row{0};
    double row_bytes = 0;
    tessera::keyed_jagged_view<std::int64_t const> view() const {
      return {ids.data(), nullptr, offsets.data(), first_row.data(), table_count};
    }
  };

  // Bags of a geometric length.
  void add_batch(draws& draw, std::vector<double> const& pooling) {
    auto& batch = batches_.emplace_back();
    for (std::int64_t t = 0; t < table_count; ++t) {
      auto const& table = tables_[static_cast<std::size_t>(t)];
      auto const more = std::log1p(-1 / (1 + pooling[static_cast<std::size_t>(t)]));
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        auto const length = static_cast<std::int64_t>(std::log(1 - draw.unit()) / more);
        for (std::int64_t i = 0; i < length; ++i) batch.ids.push_back(draw.below(table.rows()));
        batch.offsets.push_back(static_cast<std::int64_t>(batch.ids.size()));
        batch.row_bytes += static_cast<double>(length * table.dim() * 4);
      }
      batch.first_row.push_back((t + 1) * samples);
    }
  }

  void add_rows(mixed_batch const& batch, std::int64_t dim, std::vector<float*>& rows) {
    for (std::int64_t t = 0; t < table_count; ++t) {
      auto& table = tables_[static_cast<std::size_t>(t)];
      auto const first = batch.offsets[static_cast<std::size_t>(t * samples)],
                 last = batch.offsets[static_cast<std::size_t>((t + 1) * samples)];
      if (table.dim() == dim)
        for (auto i = first; i < last; ++i) rows.push_back(table.row(batch.ids[static_cast<std::size_t>(i)]));
    }
  }

  // Of the rows of a dim: bytes a mean batch.
  struct dim_ceilings {
    double read_bytes, changed_bytes;
    ceiling gather, update;
  };

  ceiling copy_, read_, write_;
  std::vector<dim_ceilings> row_ceilings_;
  tessera::rowwise_adagrad optimizer_{.learning_rate = 0.01F};
  machine machine_;
  std::vector<tessera::dense_table<>> tables_;
  std::vector<tessera::pooled_feature> features_;
  std::vector<mixed_batch> batches_;
  tessera::buffer<float> vectors_;
  std::vector<tessera::matrix_view<float>> out_;
  std::vector<tessera::matrix_view<float const>> gradient_;  // the vectors themselves
  tessera::lookup_saved saved_;
};

void lookup_mix(benchmark::State& state) {
  auto const threads = static_cast<int>(state.range(0));
  auto& work = kept<workload>("lookup_mix/" + std::to_string(threads), [&] {
    auto made = std::make_shared<workload>(threads);
    made->measure_ceilings();
    for (std::int64_t i = 0; i < 2; ++i) made->step(i);
    return made;
  });
  std::int64_t next = 2;
  double bytes = 0;
  for (auto _ : state) {
    bytes += work.row_bytes(next);
    work.step(next++);
  }
  report(state, bytes / static_cast<double>(state.iterations()), work.seconds_at_ceiling(state), work.workspace_bytes());
}

}  // namespace

int main(int argc, char** argv) {
  auto* const mix = benchmark::RegisterBenchmark("lookup_mix", lookup_mix);
  mix->ArgName("threads")->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);
  if (all_threads() > 1) mix->Arg(all_threads());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
