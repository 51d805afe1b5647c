// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Reading a click log of 2 GB from the page cache to batches: integers through a logarithm, categories hashed.
// Time at the ceiling: that of parsing alone on one core, divided by the cores.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/background_thread.hpp>
#include <tessera/data/delimited_log.hpp>
#include <tessera/data/prefetching_reader.hpp>
#include <tessera/data/preprocessing.hpp>
#include <tessera/data/sample_reader.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"
#include "criteo_like_log.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t hash_size = 1'000'000, batch_size = 2048;

class log_file {
 public:
  log_file() : path_(criteo_like_log(machine_.exec)), bytes_(static_cast<double>(std::filesystem::file_size(path_))) {
    copy_ = copy_ceiling(machine_.exec);
    measure_ceilings();
  }

  tessera::host_exec const& exec() const { return machine_.exec; }
  std::vector<std::string> files() const { return {path_}; }
  double bytes() const { return bytes_; }
  ceiling& copy() { return copy_; }
  /// Bytes a second of reading the file into memory, all threads, a piece each at a time.
  double read_rate() const { return read_; }
  /// Bytes a second of parsing text in memory on one core.
  ceiling& parse() { return parse_; }

  tessera::delimited_log open() const { return {exec(), files(), tessera::criteo_schema(), tessera::criteo_layout()}; }

 private:
  void measure_ceilings() {
    auto const file = tessera::posix_file::open(path_);
    auto const size = file.size();
    constexpr std::int64_t piece = 1 << 18;
    tessera::buffer<char> text(exec(), exec().threads() * piece);
    read_ = bytes_ / fastest(3, [&] {
              auto const threads = std::int64_t{exec().threads()};
              exec().run(threads, [&](std::int64_t t) {
                for (auto at = size * t / threads, last = size * (t + 1) / threads; at < last; at += piece)
                  file.read_at(at, text.view().slice(t * piece, std::min(piece, last - at)));
              });
            });
    parse_ = ceiling({[this, next = std::int64_t{0}](int) mutable {
                       tessera::host_exec const one(alone_, machine_.memory);
                       tessera::line_blocks const blocks(path_, tessera::delimited_log_options{}.block_bytes);
                       auto const block = blocks.read(one, next++ % std::min<std::int64_t>(blocks.block_count(), 4), block_text_);
                       return static_cast<double>(block.text.size()) / fastest(2, [&] { text_.parser.parse(one, block.text, rows_); });
                     }},
                     1);
  }

  mutable machine machine_;
  std::string path_;
  double bytes_;
  ceiling copy_, parse_;
  double read_ = 0;
  tessera::serial_team alone_;
  tessera::buffer<char> block_text_;
  tessera::detail::opened_text text_ = tessera::detail::open_text({}, path_, tessera::criteo_schema(), tessera::criteo_layout());
  tessera::sample_columns rows_{tessera::criteo_schema()};
};

log_file& warm() {
  return kept<log_file>("log", [] { return std::make_shared<log_file>(); });
}

void report_reading(benchmark::State& state, log_file& file) {
  report_machine(state, file.copy(), file.parse());
  report(state, file.bytes(), file.bytes() / (file.parse().rate() * file.exec().threads()), 0);
  state.counters["parse_rate_one_core"] = file.parse().rate();
  state.counters["page_cache_rate"] = file.read_rate();
}

// Integers through a logarithm, categories hashed.
tessera::preprocessing preprocess() {
  return tessera::preprocessing(tessera::criteo_schema(), {{.steps = {tessera::log_values{}}}},
                                {{.steps = {tessera::hash_ids{.size = hash_size}}}});
}

template <class Reader>
void read_epochs(benchmark::State& state, log_file& file, tessera::delimited_log const& log, Reader& reader) {
  for (auto _ : state) {
    std::int64_t samples = 0;
    for (tessera::batch_view batch; reader.next(file.exec(), batch);) samples += batch.samples();
    if (samples != log.rows()) state.SkipWithError("an epoch lacks samples");
  }
  report_reading(state, file);
  auto const samples = static_cast<double>(state.iterations() * log.rows());
  state.counters["samples_per_second"] = benchmark::Counter(samples, benchmark::Counter::kIsRate);
}

void read_tsv(benchmark::State& state, tessera::sample_order order) {
  auto& file = warm();
  auto const log = file.open();
  auto const prepare = preprocess();
  tessera::sample_reader reader(file.exec(), log, prepare, {.batch_size = batch_size, .order = order});
  read_epochs(state, file, log, reader);
}

// As a trainer's pipeline does it: on one thread, which does nothing else.
void read_ahead(benchmark::State& state) {
  auto& file = warm();
  auto const log = file.open();
  auto const prepare = preprocess();
  tessera::sample_reader reader(file.exec(), log, prepare, {.batch_size = 128, .order = tessera::sample_order::samples});
  tessera::serial_team alone;
  tessera::system_memory memory;
  tessera::background_thread thread;
  tessera::prefetching_reader ahead(tessera::host_exec(alone, memory), thread, reader);
  read_epochs(state, file, log, ahead);
}

// What comes before the first batch: every line read and checked.
void open_log(benchmark::State& state) {
  auto& file = warm();
  for (auto _ : state) benchmark::DoNotOptimize(file.open().rows());
  report_reading(state, file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--log") {  // for bench/peers/reading.py: where the log is, written when it was not there
    std::puts(criteo_like_log(machine().exec).c_str());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (auto const& [name, order] :
       {std::pair("read_tsv", tessera::sample_order::stored), std::pair("read_tsv_shuffled", tessera::sample_order::samples)})
    benchmark::RegisterBenchmark(name, [order = order](benchmark::State& state) { read_tsv(state, order); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("read_ahead", read_ahead)->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("open_log", open_log)->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}
