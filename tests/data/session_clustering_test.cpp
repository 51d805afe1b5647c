// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-cost: 20
// ctest-target: tessera::parquet
#include <tessera/data/session_clustering.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <tessera/data/memory_log.hpp>

#include <hosts.hpp>
#include <random.hpp>
#include <temporary_folder.hpp>

#include "sample_support.hpp"
#include "sanitizers.hpp"
#include "session_source.hpp"

using namespace sample_tests;
using tessera_tests::contents;
using tessera_tests::error_of;
using tessera_tests::names_in;

namespace session_clustering_test {

namespace {

std::vector<sample> naively_clustered(std::vector<sample> samples, tessera::sample_selection const& selection = {}) {
  std::vector<sample> kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (selection.keeps(samples[i].session, static_cast<std::int64_t>(i))) kept.push_back(samples[i]);
  std::stable_sort(kept.begin(), kept.end(),
                   [](sample const& a, sample const& b) { return a.session != b.session ? a.session < b.session : a.time < b.time; });
  return kept;
}

// Ends the process by SIGKILL instead of its n-th parallel region, which come all the time.
struct deadly_team {
  std::int64_t left;
  static constexpr int size() noexcept { return 1; }
  void run(std::int64_t chunks, tessera::chunk_function f) noexcept {
    if (left-- == 0) ::kill(::getpid(), SIGKILL);
    tessera::serial_team::run(chunks, f);
  }
};

// Runs f in a process of its own, and meanwhile(that process) in this one; whether f came to its end.
template <class F, class Meanwhile>
bool survives(F const& f, Meanwhile const& meanwhile) {
  auto const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    f();
    ::_exit(0);
  }
  meanwhile(child);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL));
  return WIFEXITED(status);
}

// Whether clustering comes to its end in so many parallel regions.
bool survives(std::int64_t regions, sample_list const& source, std::string const& path,
              tessera::session_clustering_options const& options) {
  auto const cluster = [&] {
    deadly_team team{regions};
    tessera::system_memory memory;
    tessera::cluster_by_session(tessera::host_exec(team, memory), source, path, options);
  };
  return survives(cluster, [](::pid_t) {});
}

}  // namespace

TEST_CASE("cluster_by_session: a stable sort by session and time, whatever the memory, on any threads") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  auto const path = folder.file("sorted.parquet");
  for (std::int64_t const sessions : {1, 30, 100'000}) {
    table_shape const shape{
        .rows = 400, .dense = 2, .sparse = 3, .mean_ids = 4, .sessions = sessions, .single = 1, .other_labels = 1, .weights = true};
    sample_list const source(schema_of(shape), random_samples(random, shape), 20);
    auto const expected = naively_clustered(source.samples());
    for (std::int64_t const memory : {1, 30'000, 1 << 30}) {
      CAPTURE(memory);
      if (memory == 1 && sessions != 30) continue;  // row groups of a sample each take their time
      for (bool const whole : {false, true}) {
        if (tessera_tests::under_asan && (memory == 1 ? whole : whole != (sessions == 30))) continue;
        std::string first;
        tessera_tests::for_each_host([&](tessera::host_exec const& exec, auto&) {
          if (tessera_tests::under_asan && memory == 1 && exec.threads() == 1) return;
          auto const result =
              tessera::cluster_by_session(exec, source, path, {.memory_bytes = memory, .most_runs = 7, .whole_sessions = whole});
          CHECK(result.output.rows == 400);
          CHECK(result.rows_read == 400);
          CHECK_FALSE(result.resumed);
          if (memory == 1) CHECK(result.runs == 20);
          if (memory == 1) CHECK(result.merges > 15);
          if (memory == 30'000) CHECK(result.runs > 2);
          if (memory == 1 << 30) CHECK(result.runs == 0);
          tessera::parquet_log const log({path}, source.schema());
          CHECK(read_all(exec, log) == expected);
          CHECK(names_in(folder.path()) == std::vector<std::string>{"sorted.parquet"});
          auto const bytes = contents(path);
          if (first.empty()) first = bytes;
          CHECK(bytes == first);
        });
      }
    }
  }
}

TEST_CASE("cluster_by_session: without times the order of the source stays, and a Parquet file is a source") {
  std::mt19937_64 random(9);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{200};
  auto samples = random_samples(random, shape);
  auto const schema = schema_of(shape, true, false);
  for (auto& s : samples) s.time = 0;
  tessera::sample_columns columns;
  fill(h.exec, schema, samples, columns);
  tessera::parquet_writer writer(folder.file("log"), schema, {.row_group_rows = 30});
  writer.write(h.exec, columns.view());
  writer.finish();
  tessera::parquet_log const log({folder.file("log")}, schema);
  for (std::int64_t const memory : {1, 1 << 30}) {
    tessera::cluster_by_session(h.exec, log, folder.file("sorted"), {.memory_bytes = memory});
    CHECK(read_all(h.exec, tessera::parquet_log({folder.file("sorted")}, schema)) == naively_clustered(samples));
  }
}

TEST_CASE("cluster_by_session: a source without a fingerprint, and what was gained") {
  std::mt19937_64 random(9);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{.rows = 3000, .sessions = 400};
  auto const samples = random_samples(random, shape);
  tessera::sample_columns columns;
  fill(h.exec, schema_of(shape), samples, columns);
  tessera::memory_log const log(schema_of(shape), std::move(columns), 500);
  static_assert(!tessera::fingerprinted_source<tessera::memory_log>);
  for (std::int64_t const memory : {60'000, 1 << 30}) {
    auto const result = tessera::cluster_by_session(h.exec, log, folder.file("sorted"),
                                                    {.memory_bytes = memory, .order = {.blocks = 100, .batch_size = 100}});
    tessera::parquet_log const sorted({folder.file("sorted")}, schema_of(shape));
    CHECK(read_all(h.exec, sorted) == naively_clustered(samples));
    CHECK(result.source_bytes == 0);
    CHECK(result.before == tessera::session_order_of(h.exec, log, {.blocks = 100, .batch_size = 100}));
    CHECK(result.after == tessera::session_order_of(h.exec, sorted, {.blocks = 100, .batch_size = 100}));
    CHECK_FALSE(result.before.is_clustered());
    CHECK(result.after.is_clustered());
    CHECK(result.after.samples_per_session() > 3);
    CHECK(names_in(folder.path()) == std::vector<std::string>{"sorted"});
  }
}

TEST_CASE("cluster_by_session: row groups end with sessions where that is asked for") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  plain_host h;
  for (std::int64_t const sessions : {1, 3, 200}) {
    table_shape const shape{2000, 1, 2, 3, sessions};
    sample_list const source(schema_of(shape), random_samples(random, shape), 500);
    for (std::int64_t const memory : {400'000, 1 << 30}) {
      auto const path = folder.file("sorted");
      auto const result = tessera::cluster_by_session(h.exec, source, path,
                                                      {.memory_bytes = memory, .whole_sessions = true, .output = {.row_group_rows = 100}});
      CHECK((result.runs > 0) == (memory == 400'000));
      tessera::parquet_log const log({path}, source.schema());
      auto const all = read_all(h.exec, log);
      CHECK(all == naively_clustered(source.samples()));
      for (std::int64_t b = 0; b + 1 < log.block_count(); ++b) {
        auto const next = static_cast<std::size_t>(log.first_row(b + 1));
        bool const is_cut = all[next - 1].session == all[next].session;
        CHECK(log.rows(b) >= 100);
        CHECK(log.rows(b) <= 200);
        if (is_cut) CHECK(log.rows(b) == 200);
        if (!is_cut && sessions == 200) CHECK(log.rows(b) < 140);
      }
      CHECK(log.block_count() >= 10);
    }
  }
}

TEST_CASE("cluster_by_session: a share of the sessions, or of the samples") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{5000, 1, 2, 2, 500};
  sample_list const source(schema_of(shape), random_samples(random, shape), 500);
  for (tessera::sample_key const key : {tessera::sample_key::session, tessera::sample_key::sample})
    for (double const rate : {0.0, 0.3, 1.0})
      for (std::int64_t const memory : {300'000, 1 << 30}) {
        tessera::sample_selection const selection{rate, key, tessera::random_seed{seed}};
        auto const result =
            tessera::cluster_by_session(h.exec, source, folder.file("sorted"), {.memory_bytes = memory, .selection = selection});
        auto const all = read_all(h.exec, tessera::parquet_log({folder.file("sorted")}, source.schema()));
        CHECK(all == naively_clustered(source.samples(), selection));
        CHECK(result.rows_read == 5000);
        CHECK(std::abs(static_cast<double>(all.size()) - 5000 * rate) < 500);  // 4.9 standard deviations of whole sessions of 10
      }
}

TEST_CASE("cluster_by_session: after a kill at any point the next call comes to the same bytes") {
  auto const seed = tessera_tests::draw_seed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  tessera_tests::temporary_folder folder;
  table_shape const shape{1500, 1, 2, 3, 40};
  sample_list const source(schema_of(shape), random_samples(random, shape), 60);
  plain_host h;
  tessera::session_clustering_options const options{.memory_bytes = 60'000, .most_runs = 3};
  auto const undisturbed = tessera::cluster_by_session(h.exec, source, folder.file("undisturbed"), options);
  CHECK(undisturbed.runs > 6);
  CHECK(undisturbed.merges > 3);
  auto const expected = contents(folder.file("undisturbed"));

  // How many regions there are, then kills spread over them.
  deadly_team counter{std::int64_t{1} << 40};
  tessera::cluster_by_session(tessera::host_exec(counter, h.memory), source, folder.file("counted"), options);
  auto const regions = (std::int64_t{1} << 40) - counter.left;
  std::int64_t resumed = 0, reread = 0;
  for (int kill = 0; kill < 16; ++kill) {
    auto const path = folder.file("killed");
    auto const after = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(regions));
    CAPTURE(after);
    std::filesystem::remove(path);
    CHECK_FALSE(survives(after, source, path, options));
    if (std::filesystem::exists(path)) CHECK(contents(path) == expected);  // killed while it was measured, or not there
    if (kill % 3 == 0) survives(regions / 5, source, path, options);       // once more on the way
    auto const result = tessera::cluster_by_session(h.exec, source, path, options);
    CHECK(contents(path) == expected);
    resumed += result.resumed;
    reread += result.rows_read;
    CHECK_FALSE(std::filesystem::exists(path + ".work"));
    for (auto const& name : names_in(folder.path())) CHECK_FALSE(name.starts_with(".tessera-staging-"));
  }
  CHECK(resumed > 8);
  CHECK(reread < 16 * 1500 * 3 / 4);  // most of the work is not done again

  // Signals from outside, at any time.
  for (int kill = 0; kill < 8; ++kill) {
    auto const path = folder.file("killed");
    survives([&] { tessera::cluster_by_session(h.exec, source, path, options); },
             [&](::pid_t child) {
               ::usleep(static_cast<::useconds_t>(random() % 60'000));
               ::kill(child, SIGKILL);
             });
    tessera::cluster_by_session(h.exec, source, path, options);
    CHECK(contents(path) == expected);
  }
}

TEST_CASE("cluster_by_session: what is left of another task is cleared away, and what is damaged is not used") {
  std::mt19937_64 random(4);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{1000, 1, 2, 3, 40};
  sample_list source(schema_of(shape), random_samples(random, shape), 50);
  tessera::session_clustering_options options{.memory_bytes = 50'000, .work_folder = folder.file("work"), .most_runs = 3};
  std::filesystem::create_directory(folder.file("work"));
  tessera_tests::write_file(folder.file("work/mine"), "a file of the caller's");
  auto const path = folder.file("out");
  tessera::cluster_by_session(h.exec, source, path, options);
  auto const expected = contents(path);
  CHECK(names_in(folder.file("work")) == std::vector<std::string>{"mine"});

  auto const leave_behind = [&] {
    CHECK_FALSE(survives(200, source, path, options));
    CHECK(names_in(folder.file("work")).size() > 3);
  };
  auto const again = [&] {
    auto const result = tessera::cluster_by_session(h.exec, source, path, options);
    CHECK(names_in(folder.file("work")) == std::vector<std::string>{"mine"});
    return result.resumed;
  };
  leave_behind();
  CHECK(again());

  leave_behind();
  source.set_fingerprint(18);
  CHECK_FALSE(again());
  source.set_fingerprint(17);

  leave_behind();
  options.selection.rate = 0.5;
  CHECK_FALSE(again());
  options.selection.rate = 1;

  leave_behind();
  auto progress = contents(folder.file("work/progress.json"));
  tessera_tests::write_file(folder.file("work/progress.json"), progress.substr(0, progress.size() / 2));
  CHECK_FALSE(again());
  CHECK(contents(path) == expected);

  leave_behind();
  for (auto const& name : names_in(folder.file("work")))
    if (name.starts_with("run-")) {
      auto const text = contents(folder.file("work/" + name));
      tessera_tests::write_file(folder.file("work/" + name), text.substr(0, text.size() - 1));
      break;
    }
  CHECK_FALSE(again());
  CHECK(contents(path) == expected);
}

TEST_CASE("cluster_by_session: an error leaves no file, and what is out of range is refused") {
  std::mt19937_64 random(4);
  tessera_tests::temporary_folder folder;
  plain_host h;
  table_shape const shape{1000};
  sample_list source(schema_of(shape), random_samples(random, shape), 50);
  auto const path = folder.file("out");
  for (std::int64_t const at : {0, 7, 19}) {
    source.set_before_read([&](std::int64_t block) {
      if (block == at) throw std::runtime_error("no more");
    });
    CHECK_THROWS_AS(tessera::cluster_by_session(h.exec, source, path, {.memory_bytes = 50'000}), std::runtime_error);
    CHECK(names_in(folder.path()).empty());
  }
  source.set_before_read({});
  tessera_tests::serial_host failing;
  for (std::int64_t const allowed : {5, 100, 300, 600}) {
    failing.memory().fail_after(allowed);
    CHECK_THROWS(tessera::cluster_by_session(failing.exec(), source, path, {.memory_bytes = 50'000, .most_runs = 2}));
    failing.memory().never_fail();
    CHECK(names_in(folder.path()).empty());
  }

  auto const refuse = [&](tessera::session_clustering_options const& options) {
    auto const e = error_of([&] { tessera::cluster_by_session(h.exec, source, path, options); });
    CHECK(e.code() == tessera::errc::invalid_argument);
    CHECK(names_in(folder.path()).empty());
    return e;
  };
  CHECK(refuse({.memory_bytes = 0}).value("memory_bytes") == "0");
  CHECK(refuse({.most_runs = 1}).value("most_runs") == "1");
  CHECK(refuse({.selection = {.rate = 1.5}}).value("rate") == "1.5");
  sample_list const nameless(schema_of(shape, false), source.samples(), 50);
  CHECK(error_of([&] { tessera::cluster_by_session(h.exec, nameless, path, {}); }).code() == tessera::errc::invalid_argument);

  // A folder in which another sort is under way.
  std::filesystem::create_directory(path + ".work");
  tessera::detail::folder_handle const other(path + ".work");
  REQUIRE(other.lock());
  CHECK(error_of([&] { tessera::cluster_by_session(h.exec, source, path, {}); }).code() == tessera::errc::io_error);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"out.work"});
}

TEST_CASE("cluster_by_session: memory is bounded, however much there is to sort") {
  tessera_tests::temporary_folder folder;
  tessera_tests::pool_host<2> h;
  arrow::ProxyMemoryPool pool(arrow::default_memory_pool());
  for (std::int64_t const memory : {std::int64_t{4} << 20, std::int64_t{16} << 20}) {
    session_log_source const source(60'000, 500, 10, 6, 16);
    auto const before = h.memory().live_bytes();
    auto const result = tessera::cluster_by_session(h.exec(), source, folder.file("sorted"),
                                                    {.memory_bytes = memory, .output = {.row_group_rows = 1 << 30, .pool = &pool}});
    CHECK(result.output.rows == 60'000);
    CHECK(result.output.value_bytes > 30'000'000);
    CHECK(result.runs > 2);
    auto const peak = static_cast<std::int64_t>(h.memory().peak_bytes() - before) + pool.max_memory();
    MESSAGE("of ", memory, " bytes were taken ", peak, ", ", pool.max_memory(), " of them by Arrow, for ", result.output.value_bytes,
            " bytes in ", result.runs, " runs and ", result.merges, " merges");
    CHECK(peak <= memory);
  }
}

}  // namespace session_clustering_test
