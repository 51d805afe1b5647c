// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::parquet

// Samples of about 1,900 ids in 100 list columns, of sessions that are under way at the same time, to a Parquet file and back from the page
// cache, and into the order of sessions. Bytes are those of the values in memory. Time at the ceiling: that of copying them.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/id_map.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/session_clustering.hpp>
#include <tessera/synth/session_log_store.hpp>

#include "../inputs.hpp"
#include "../memory_ceilings.hpp"
#include "../report.hpp"

namespace {

using namespace tessera_bench;

constexpr std::int64_t lists = 100, dense = 13, mean_ids = 19;

std::vector<std::string> names(char const* prefix, std::int64_t count) {
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(prefix + std::to_string(i));
  return result;
}

// A session has 16 samples, every 997th row of a window; list c changes every 1, 4, 7 … 22 of them.
class session_log {
 public:
  session_log(std::int64_t rows, std::int64_t block_rows) : rows_(rows), block_rows_(block_rows) {}

  tessera::sample_schema const& schema() const noexcept { return schema_; }
  std::uint32_t fingerprint() const noexcept { return 0; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t block_count() const noexcept { return tessera::divide_up(rows_, block_rows_); }
  std::int64_t rows(std::int64_t block) const noexcept { return std::min(block_rows_, rows_ - block * block_rows_); }
  std::int64_t first_row(std::int64_t block) const noexcept { return block * block_rows_; }

  void read(tessera::host_exec const& exec, std::int64_t block, tessera::sample_columns& out) const {
    using tessera::mix_bits;
    constexpr std::int64_t length = 16, window = 997 * length;
    auto const bits = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    auto const first = first_row(block);
    auto const session_of = [=](std::int64_t row) { return mix_bits(bits(row / window * 997 + row % window % 997)); };
    out = tessera::sample_columns(schema_);
    out.resize(exec, rows(block));
    for (std::int64_t i = 0; i < out.size(); ++i) {
      out.labels()[i] = static_cast<float>((first + i) % 2);
      out.sessions()[i] = static_cast<std::int64_t>(session_of(first + i));
      out.times()[i] = first + i;
      for (std::int64_t d = 0; d < dense; ++d) out.dense()(d, i) = static_cast<float>(mix_bits(bits((first + i) * dense + d)) % 1000) / 7;
    }
    for (std::int64_t c = 0; c < lists; ++c) {
      // A list is its session's, its column's and its state's, which changes now and then.
      auto const state_of = [=](std::int64_t i) {
        auto const step = (first + i) % window / 997 / (1 + c % 8 * 3);
        return session_of(first + i) ^ mix_bits(bits(step * lists + c) + 1);
      };
      out.offsets(c)[0] = 0;
      for (std::int64_t i = 0; i < out.size(); ++i)
        out.offsets(c)[i + 1] = out.offsets(c)[i] + static_cast<std::int64_t>(mix_bits(state_of(i)) % (2 * mean_ids + 1));
      auto const ids = out.ids(exec, c);
      for (std::int64_t i = 0; i < out.size(); ++i)
        for (auto k = out.offsets(c)[i]; k < out.offsets(c)[i + 1]; ++k)
          ids[k] = static_cast<std::int64_t>(mix_bits(state_of(i) + bits(k - out.offsets(c)[i]) * 0x9E3779B97F4A7C15) % 10'000'000);
    }
  }

 private:
  tessera::sample_schema schema_{"label", names("d", dense), names("s", lists), "session", "time"};
  std::int64_t rows_, block_rows_;
};

class bench_file {
 public:
  bench_file(tessera::parquet_writer_options const& options)
      : options_(options),
        source_(sized(16'384), sized(16'384)),
        folder_(std::filesystem::temp_directory_path() / "tessera_parquet_bench") {
    std::filesystem::create_directories(folder_);
    source_.read(machine_.exec, 0, samples_);
    copy_ = copy_ceiling(machine_.exec);
    written_ = write();
  }
  bench_file(bench_file const&) = delete;
  ~bench_file() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  tessera::host_exec const& exec() const { return machine_.exec; }
  session_log const& source() const { return source_; }
  std::string path() const { return (folder_ / "log.parquet").string(); }
  tessera::parquet_written const& written() const { return written_; }
  ceiling& copy() { return copy_; }
  tessera::parquet_written write() const {
    tessera::parquet_writer writer(path(), source_.schema(), options_);
    writer.write(exec(), samples_.view());
    return writer.finish();
  }

 private:
  machine machine_;
  tessera::parquet_writer_options options_;
  session_log source_;
  std::filesystem::path folder_;
  tessera::sample_columns samples_;
  tessera::parquet_written written_;
  ceiling copy_;
};

void report(benchmark::State& state, bench_file& file) {
  auto const bytes = static_cast<double>(file.written().value_bytes);
  report_machine(state, file.copy());
  tessera_bench::report(state, bytes, 2 * bytes / file.copy().rate(), 0);
  state.counters["compression"] = bytes / static_cast<double>(file.written().file_bytes);
}

bench_file& file_of(std::string const& name, tessera::parquet_writer_options const& options) {
  return kept<bench_file>(name, [&] { return std::make_shared<bench_file>(options); });
}

void read(benchmark::State& state, std::string const& name, tessera::parquet_writer_options const& options) {
  auto& file = file_of(name, options);
  tessera::parquet_log const log({file.path()}, file.source().schema());
  tessera::sample_columns out;
  for (auto _ : state)
    for (std::int64_t block = 0; block < log.block_count(); ++block) log.read(file.exec(), block, out);
  report(state, file);
}

void write(benchmark::State& state, std::string const& name, tessera::parquet_writer_options const& options) {
  auto& file = file_of(name, options);
  for (auto _ : state) file.write();
  report(state, file);
}

// In a tenth of the memory that the samples take. What compression gains: tables beside each other, and messages on their way there.
void cluster(benchmark::State& state) {
  auto& file = file_of("cluster", {});
  session_log const source(file.source().rows(), std::max<std::int64_t>(file.source().rows() / 64, 1));
  tessera::clustered_sessions result;
  for (auto _ : state)
    result = tessera::cluster_by_session(file.exec(), source, file.path() + ".sorted", {.memory_bytes = file.written().value_bytes / 10});
  report(state, file);
  state.counters["runs"] = static_cast<double>(result.runs);
  state.counters["merges"] = static_cast<double>(result.merges);
  state.counters["clustered_compression"] = static_cast<double>(file.written().value_bytes) / static_cast<double>(result.output.file_bytes);
  for (auto const key : {tessera::sample_key::sample, tessera::sample_key::session}) {
    tessera::session_log_store store({.shards = 64, .key = key});
    tessera::sample_columns samples;
    for (std::int64_t block = 0; block < source.block_count(); ++block) {
      source.read(file.exec(), block, samples);
      store.append(file.exec(), samples.view(), source.first_row(block));
    }
    state.counters[key == tessera::sample_key::sample ? "messages_by_sample" : "messages_by_session"] = store.finish(file.exec()).ratio();
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  std::vector<std::pair<std::string, tessera::parquet_writer_options>> const kinds{
      {"plain", {.zstd_level = 0}},
      {"zstd_1", {.zstd_level = 1}},
      {"zstd_3", {.zstd_level = 3}},
      {"dictionary_zstd_1", {.zstd_level = 1, .dictionary = true}}};
  for (auto const& [name, options] : kinds) {
    auto const what = name;
    auto const how = options;
    benchmark::RegisterBenchmark(("read/" + name).c_str(), [=](benchmark::State& state) { read(state, what, how); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("write/" + name).c_str(), [=](benchmark::State& state) { write(state, what, how); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("cluster", cluster)->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
}
