// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// bench-target: tessera::parquet

// What a Parquet file of a session log takes by the writer's options, in the order of time and in that of sessions, and how much time
// of one processor writing and reading it take, each the least of three. Ids are small (below 1,000), large (below 10 million) or hashed (of 63 bits). The defaults of
// parquet_writer_options rest on the table that this prints.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/id_map.hpp>
#include <tessera/core/thread_team.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_writer.hpp>

namespace {

using namespace tessera;

std::int64_t const rows = std::getenv("TESSERA_BENCH_SMOKE") != nullptr ? 1024 : 32'768;  // a small part where only smoke is asked for
constexpr std::int64_t lists = 10, singles = 2, mean_ids = 16, session_samples = 16, open_sessions = 1000;

sample_schema make_schema() {
  sample_schema schema{.label = "label", .dense = {"d0", "d1", "d2"}, .session = "session", .time = "time"};
  for (std::int64_t c = 0; c < lists; ++c) schema.sparse.push_back("list" + std::to_string(c));
  for (std::int64_t c = 0; c < singles; ++c) schema.single.push_back("single" + std::to_string(c));
  schema.sparse.insert(schema.sparse.end(), schema.single.begin(), schema.single.end());
  return schema;
}

// In the order of time: of each session every 1000th sample. List c changes after 1, 4, 7 … samples of its session.
sample_columns make_samples(host_exec const& exec, sample_schema const& schema, std::uint64_t ids, bool hashed) {
  auto const bits = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  auto const session_of = [](std::int64_t row) { return row / (open_sessions * session_samples) * open_sessions + row % open_sessions; };
  auto const step_of = [](std::int64_t row) { return row % (open_sessions * session_samples) / open_sessions; };
  // Some ids are frequent: the product of two even numbers below 1.
  auto const id_of = [&](std::uint64_t value) {
    auto const a = mix_bits(value) >> 32, b = mix_bits(value + 1) >> 32;
    auto const id = ((a * b) >> 32) * ids >> 32;
    return static_cast<std::int64_t>(hashed ? mix_bits(id + 1) >> 1 : id);
  };
  sample_columns samples(schema);
  samples.resize(exec, rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    samples.labels()[i] = mix_bits(bits(i)) % 10 == 0 ? 1 : 0;
    samples.sessions()[i] = static_cast<std::int64_t>(mix_bits(bits(session_of(i))));
    samples.times()[i] = 1'700'000'000'000 + i * 7;
    for (std::int64_t d = 0; d < 3; ++d) samples.dense()(d, i) = static_cast<float>(mix_bits(bits(i * 3 + d)) % 1000) / 7;
  }
  for (std::int64_t c = 0; c < lists + singles; ++c) {
    auto const state_of = [&](std::int64_t i) {
      return mix_bits(bits(session_of(i) * 64 + c)) ^ mix_bits(bits(step_of(i) / (1 + c % 5 * 3)));
    };
    if (c >= lists) {
      for (std::int64_t i = 0; i < rows; ++i) samples.single_ids(c)[i] = state_of(i) % 10 == 0 ? missing_id : id_of(state_of(i));
      continue;
    }
    samples.offsets(c)[0] = 0;
    for (std::int64_t i = 0; i < rows; ++i)
      samples.offsets(c)[i + 1] = samples.offsets(c)[i] + static_cast<std::int64_t>(state_of(i) % (2 * mean_ids + 1));
    auto const ids_of = samples.ids(exec, c);
    for (std::int64_t i = 0; i < rows; ++i)
      for (auto k = samples.offsets(c)[i]; k < samples.offsets(c)[i + 1]; ++k)
        ids_of[k] = id_of(state_of(i) + 2 * bits(k - samples.offsets(c)[i]));
  }
  return samples;
}

template <class F>
double fastest(F const& f) {
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    auto const start = std::clock();
    f();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

int main() {
  serial_team team;
  system_memory memory;
  host_exec const exec(team, memory);
  auto const schema = make_schema();
  auto const path = (std::filesystem::temp_directory_path() / "tessera_parquet_sizes.parquet").string();
  std::printf(
      "| ids | zstd | dictionary | page | by time, MB | by session, MB | of it | write, MB/s | read, MB/s "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (auto const& [name, ids, hashed] :
       {std::tuple("small", 1000, false), std::tuple("large", 10'000'000, false), std::tuple("hashed", 10'000'000, true)}) {
    auto const by_time = make_samples(exec, schema, static_cast<std::uint64_t>(ids), hashed);
    auto const by_session = sorted_by(exec, by_time, by_time.view().sessions);
    for (bool const dictionary : {false, true})
      for (int const level : {0, 1, 3, 9})
        for (std::int64_t const page : {std::int64_t{1} << 18, std::int64_t{1} << 20}) {
          parquet_writer_options const options{.zstd_level = level, .page_bytes = page, .dictionary = dictionary};
          auto const write = [&](sample_columns const& samples) {
            parquet_writer writer(path, schema, options);
            writer.write(exec, samples.view());
            return writer.finish();
          };
          auto const before = write(by_time);
          auto const after = write(by_session);
          auto const megabytes = static_cast<double>(after.value_bytes) * 1e-6;
          auto const writing = fastest([&] { write(by_session); });
          parquet_log const log({path}, schema);
          sample_columns out;
          auto const reading = fastest([&] {
            for (std::int64_t block = 0; block < log.block_count(); ++block) log.read(exec, block, out);
          });
          std::printf("| %s | %d | %s | %lld KiB | %.2f | %.2f | %.2f | %.0f | %.0f |\n", name, level, dictionary ? "yes" : "no",
                      static_cast<long long>(page >> 10), static_cast<double>(before.file_bytes) * 1e-6,
                      static_cast<double>(after.file_bytes) * 1e-6,
                      static_cast<double>(after.file_bytes) / static_cast<double>(before.file_bytes), megabytes / writing,
                      megabytes / reading);
          std::fflush(stdout);
        }
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return 0;
}
